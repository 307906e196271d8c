"""What expert="auto" makes of logs: which kind it tells, and how well it imitates dirty and unfair ones.

    python benchmarks/selection.py [--logs 20] [--seeds 5] [--first-seed 0] [--only TEXT]

First how many simulated logs of each kind are told right, with the time of a fit. Then, on the paper's data, the greedy
agreement with the final expert of logs with 1% of the choices flipped and of experts that draw from their two best; and
for experts that draw from their k best, both sides drawing, the agreement as a share of the expert's with itself and
the cumulative fairness regret as a share of that of the paper's solver with pruned rows. Exits with 1 if a bar is
missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dirty import flipped, greedy

import ibcb

RIGHT = 0.95
BARS = {"1% flipped": 0.983, "top 2": 0.94}
LEAST_DRAWN, MOST_CFR = 0.97, 0.75
SIZE: dict[str, Any] = {"n_episodes": 15, "batch_size": 500, "n_candidates": 8, "n_features": 12}


def fixed(seed: int, *, sharpness: float | None) -> ibcb.BehaviorLog:
    """A decider that never learns: it takes its best candidate, or draws from the softmax of its scores."""
    rng = np.random.default_rng([seed, 1])
    contexts = rng.normal(size=(15, 500, 8, 12))
    scores = contexts @ rng.normal(size=12)
    if sharpness is not None:
        scores = sharpness * scores + rng.gumbel(size=scores.shape)
    return ibcb.BehaviorLog.from_episodes(list(zip(contexts, scores.argmax(axis=2), strict=True)))


def simulated(seed: int, expert: str, top_k: int | None = None) -> ibcb.BehaviorLog:
    return ibcb.simulate("synthetic", expert=expert, noise=0.03, seed=seed, top_k=top_k, **SIZE).log


KINDS: dict[str, tuple[str, Callable[[int], ibcb.BehaviorLog]]] = {
    "sbucb": ("sbucb", lambda seed: simulated(seed, "sbucb")),
    "sbts": ("sbts", lambda seed: simulated(seed, "sbts")),
    "sbucb, top 2": ("topk", lambda seed: simulated(seed, "sbucb", 2)),
    "sbts, top 2": ("topk", lambda seed: simulated(seed, "sbts", 2)),
    "fixed, greedy": ("stationary", lambda seed: fixed(seed, sharpness=None)),
    "fixed, softmax": ("stationary", lambda seed: fixed(seed, sharpness=1.0)),
}


def told(kind: str, seeds: range) -> bool:
    """Print how many logs of a kind are told right; whether they are enough."""
    name, make = KINDS[kind]
    found, seconds = [], []
    for seed in seeds:
        log = make(seed)
        start = time.perf_counter()
        found.append(ibcb.IBCB(expert="auto", l2="auto").fit(log).expert_)
        seconds.append(time.perf_counter() - start)
    right = found.count(name)
    met = right >= RIGHT * len(found)
    others = ", ".join(sorted({other for other in found if other != name}))
    print(
        f"{kind:20}{right:4} of {len(found)}{f' ({others})' if others else '':16} at most {max(seconds):5.1f} s"
        f"{'' if met else '  MISSED'}",
        flush=True,
    )
    return met


def imitated(condition: str, top_k: int | None, seeds: range) -> bool:
    """Print the agreement with SBUCB experts; whether it is enough."""
    rows = []
    for seed in seeds:
        run = ibcb.simulate("synthetic", noise=0.03, seed=seed, top_k=top_k)
        log = run.log if top_k else flipped(run.log, 0.01, seed)
        model = ibcb.IBCB(expert="auto", l2="auto").fit(log)
        row = [greedy(model, run)]
        if top_k:
            paper = ibcb.IBCB(solver="paper", prune=True, forecast=None).fit(log)
            row.append(ibcb.metrics.bt_fitness(model, run) / ibcb.metrics.bt_fitness(run.expert, run))
            row.append(
                ibcb.metrics.cumulative_fairness_regret(model, run)
                / ibcb.metrics.cumulative_fairness_regret(paper, run)
            )
        rows.append(row)
    means = np.mean(rows, axis=0)
    met = means[0] >= BARS.get(condition, 0.0)
    if top_k:
        met = met and means[1] >= LEAST_DRAWN and means[2] <= MOST_CFR
    print(f"{condition:20}{''.join(f'{value:10.4f}' for value in means)}{'' if met else '  MISSED'}", flush=True)
    return bool(met)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", type=int, default=20, help="logs of each kind (default 20)")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of each condition (default 5)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of either (default 0)")
    parser.add_argument("--only", default="", help="only lines whose name contains this text")
    options = parser.parse_args()
    met = []
    print(f"{'kind':20}told right")
    for kind in KINDS:
        if options.only in kind:
            met.append(told(kind, range(options.first_seed, options.first_seed + options.logs)))
    print(f"\n{'condition':20}{'greedy':>10}{'drawn':>10}{'cfr':>10}")
    for condition, top_k in {"1% flipped": None, "top 2": 2, "top 3": 3, "top 4": 4}.items():
        if options.only in condition:
            met.append(imitated(condition, top_k, range(options.first_seed, options.first_seed + options.seeds)))
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
