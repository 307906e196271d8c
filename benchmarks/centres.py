"""Which point of all that explain the choices is nearest to the decider's own policy?

    python benchmarks/centres.py [--seeds 5] [--first-seed 600] [--json]

Simulated logs, every episode but the first two: how often the point prefers the candidate that the policy of that time
preferred, on fresh candidates and without exploration, and how long it is against the policy, per unit alpha. Points of
the whole log so far: the projection (`policy_coefs_`), the same by soft and by robust rows, and what `policy_at` gives,
the mean of the filtered belief. Points of the episode's own cone alone: its analytic centre, the point of the largest
margin (Chebyshev's centre in homogeneous coordinates), the mean of the belief. Exit code 1 if `policy_at` is not the
best.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import osqp
from numpy.typing import NDArray
from scipy import sparse

import ibcb
from ibcb.deciders.cone import Cone
from ibcb.deciders.sbucb import UpperBound
from ibcb.engine import blocks
from ibcb.log import argmax_per_step
from ibcb.numerics.gaussians import factor
from ibcb.numerics.ridge import gram, ridge

Vector = NDArray[np.float64]

#: kind, episodes, steps, features
SETTINGS = (
    ("sbucb", 20, 1000, 10),
    ("sbucb", 8, 300, 8),
    ("sbucb", 10, 500, 20),
    ("sbts", 20, 1000, 10),
    ("sbts", 8, 300, 8),
)
BELIEVED = "belief, all episodes (policy_at)"


def analytic(rows: Vector, w: Vector, moment: Vector) -> Vector:
    """The w that minimises sum -log(-rows w) + n log |w|, by Newton's method from a w inside."""

    def value(w: Vector) -> float:
        slack = -(rows @ w)
        return float(-np.log(slack).sum() + len(rows) / 2 * np.log(w @ moment @ w)) if slack.min() > 0 else np.inf

    for _ in range(100):
        scaled = rows / -(rows @ w)[:, None]
        size = w @ moment @ w
        gradient = scaled.sum(axis=0) + len(rows) * moment @ w / size
        # The length is free: held, so that the Hessian is positive.
        hessian = scaled.T @ scaled + len(rows) * np.outer(moment @ w, moment @ w) / size**2
        step, length = -np.linalg.solve(hessian, gradient), 1.0
        while value(w + length * step) > value(w) and length > 1e-9:
            length /= 2
        if -gradient @ step < 1e-8 or length <= 1e-9:
            break
        w = w + length * step
    return w


def widest(rows: Vector, moment: Vector) -> Vector | None:
    """The w of a given size with the largest margin, every row at the length that the moment gives it; None if OSQP
    does not find it.
    """
    size = np.sqrt(np.einsum("no,op,np->n", rows, np.linalg.inv(moment), rows))
    solver = osqp.OSQP()
    rules = {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iter": 100_000, "verbose": False}
    high = -np.ones(len(rows))
    scaled = sparse.csc_matrix(rows / size[:, None])
    solver.setup(sparse.csc_matrix(moment), np.zeros(len(moment)), scaled, np.full(len(rows), -np.inf), high, **rules)
    solved = solver.solve()
    return solved.x if solved.info.status == "solved" and solved.x[-1] > 0 else None


def alone(episode: ibcb.BehaviorLog, phi: Vector, l2: float) -> dict[str, Vector]:
    """Points of an "sbucb" episode's own cone, as policies per unit alpha."""
    X = episode.contexts
    d = X.shape[1]
    prior = np.zeros((d + 1, d + 1))
    prior[:d, :d], prior[d, d] = 9 / d * np.linalg.inv(X.T @ X / len(X)), 4.0
    block = blocks(episode)[0]
    told = Cone(block, UpperBound().columns(block, ridge(phi, l2))).learn(np.zeros(d + 1), factor(prior))
    w, rows = told.mean, told.rows.leads
    moment = np.linalg.inv(prior)
    found = {"belief, episode alone": w}
    if (rows @ w < 0).all():
        found["analytic centre, episode alone"] = analytic(rows, w, moment)
    far = widest(rows, moment)
    if far is not None:
        found["largest margin, episode alone"] = far
    return {name: each[:d] / each[d] for name, each in found.items()}


def points(run: ibcb.Run, l2: float) -> dict[str, list[tuple[int, Vector]]]:
    """Every point of every episode but the first two."""
    kind, log, found = run.expert_settings.kind, run.log, defaultdict(list)
    phi = np.zeros((log.n_features, log.n_features))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fits = {
            name: ibcb.IBCB(expert=kind, l2=l2, solver=solver, forecast=None).fit(log)
            for name, solver in (("projection", "auto"), ("soft rows", "soft"), ("robust rows", "robust"))
        }
        fits[BELIEVED] = ibcb.IBCB(expert=kind, l2=l2).fit(log)
    for stored, (_, episode) in enumerate(log.episodes()):
        number = stored - log.warmup
        if number >= 2:
            for name, model in fits.items():
                found[name].append((number, model.policy_coefs_[number]))
            if kind == "sbucb":
                for name, p in alone(episode, phi, l2).items():
                    found[name].append((number, p))
        phi = phi + gram(episode.contexts[episode.chosen_rows])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds (default 5)")
    parser.add_argument("--first-seed", type=int, default=600)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    lost = False
    for kind, episodes, steps, d in SETTINGS:
        figures = defaultdict(list)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            sizes: dict[str, Any] = {"n_episodes": episodes, "batch_size": steps, "n_features": d}
            run = ibcb.simulate("synthetic", expert=kind, noise=0.03, seed=seed, **sizes)
            test, alpha = run.test_log, run.expert_settings.alpha
            for name, found in points(run, 0.3).items():
                for number, p in found:
                    truth = run.policy_coefs[number] / alpha
                    same = argmax_per_step(test.contexts @ p, test) == argmax_per_step(test.contexts @ truth, test)
                    figures[name].append((np.mean(same), np.linalg.norm(p) / np.linalg.norm(truth)))
        best = max(figures, key=lambda name: np.mean([agreement for agreement, _ in figures[name]]))
        lost |= best != BELIEVED
        for name, each in figures.items():
            agreement, length = np.mean([a for a, _ in each]), np.median([r for _, r in each])
            row = {
                "expert": kind,
                "size": [episodes, steps, d],
                "point": name,
                "agreement": agreement,
                "length": length,
            }
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                told = f"length {length:8.3f}" if kind == "sbucb" else ""
                where = f"{kind:6}{episodes:3} x {steps:4} x {d:2}"
                print(
                    f"{where}  {name:34} agreement {agreement:.4f}  {told}{'  best' if name == best else ''}",
                    flush=True,
                )
    sys.exit(int(lost))


if __name__ == "__main__":
    main()
