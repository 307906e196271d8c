"""Propensities that nobody logged, and off-policy values made of them, beside those of conditional logits.

    python benchmarks/propensities.py [--seeds 2] [--first-seed 2000] [--only TEXT] [--json]

Epsilon-greedy (constant and falling), softmax and Thompson sampling (SBTS) deciders, 12 episodes of 600 steps with 6
candidates and 8 features. *normal*: contexts are normal, rewards linear with noise, and the decider is written here;
*paper*: `ibcb.simulate`. Each with a random start of 300 steps and without, at two levels of noise, with two parameters
of the decider. The expert is named, all else is left to "auto".

First table: total variation from the true propensities, mean from the third episode on, of `IBCB.propensities` (ours;
ahead: each episode foreseen) and of conditional logits over all steps (logit) and over each episode (each). Bars, mean
of each decider: ours and ahead at most .05, ours at most half of either logit. Behind a world in which ours is above
half of a logit stands how much of it ours is.

Second table: root mean square error of the values of 50 target policies, over the error with the logit's propensities:
ours, and the true ones. Targets are softmax policies around random weights and around the decider's own, drawn until
50 have an effective sample size of 100 steps by the true propensities: of others the log tells nothing. IPS, SNIPS
and DR over the whole log, without clipping; a random start is known to be one. DR's model of the rewards is wrong: it
is linear in half of the features. Ratios are geometric means over logs. Bar: .8 for each decider and estimator.

Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, softmax
from scipy.stats import qmc
from tqdm import tqdm

import ibcb

Array = NDArray[np.float64]
Picks = NDArray[np.int64]
Record = dict[str, Any]

EPISODES, STEPS, CANDIDATES, FEATURES, START = 12, 600, 6, 8, 300
FIRST = 2 * STEPS
TARGETS, LEAST_SIZE, MOST_DRAWN = 50, 100.0, 20_000
MOST_OFF, HALF, SHARE = 0.05, 0.5, 0.8
LOGITS, ESTIMATORS = ("logit", "each"), ("IPS", "SNIPS", "DR")
METHODS = ("ours", "ahead", *LOGITS)
REMARKS = (
    "start: after a random start. *: with the true propensities.",
    "A softmax decider with a random start among normal contexts hardly moves: its",
    "choices are those of one logit, which nothing can beat by much.",
)
#: points of a standard normal distribution, for the true propensities of Thompson sampling: exact to about .002
POINTS: Array = ndtri(qmc.Sobol(FEATURES, seed=0).random(4096))


class Decider(NamedTuple):
    """A kind of decider, with two sets of parameters in each of the worlds."""

    expert: str
    normal: tuple[dict[str, Any], ...]
    paper: tuple[dict[str, Any], ...]


DECIDERS = {
    "egreedy": Decider("egreedy", ({"epsilon": 0.1}, {"epsilon": 0.3}), ({"epsilon": 0.1}, {"epsilon": 0.3})),
    "falling": Decider(
        "egreedy",
        ({"epsilon": 0.5, "decay": 0.5}, {"epsilon": 0.5, "decay": 1.0}),
        ({"epsilon": 0.5, "decay": 0.5}, {"epsilon": 0.5, "decay": 1.0}),
    ),
    "softmax": Decider(
        "softmax", ({"temperature": 0.2}, {"temperature": 0.5}), ({"temperature": 0.05}, {"temperature": 0.15})
    ),
    "sbts": Decider("sbts", ({"alpha": 0.5}, {"alpha": 2.0}), ({"alpha": 0.4}, {"alpha": 1.0})),
}
NOISE = {"normal": (0.3, 1.0), "paper": (0.03, 0.1)}


# -- worlds ----------------------------------------------------------------------------------------------------------


class Logged(NamedTuple):
    """A log, and what is true of it: of all steps, those of the random start first."""

    log: ibcb.BehaviorLog
    propensities: Array
    rewards: Array
    expected: Array
    #: after the log
    policy: Array

    @property
    def contexts(self) -> Array:
        found: Array = np.asarray(self.log.contexts).reshape(-1, CANDIDATES, FEATURES)
        return found

    @property
    def start(self) -> int:
        return self.log.n_steps - EPISODES * STEPS


def rule(expert: str, own: dict[str, Any], X: Array, G: Array, b: Array, updates: int) -> Array:
    """Probability of every candidate, by a decider that has learned G = l2 I + S'S and b = S'r. Shape (steps, M)."""
    theta = np.linalg.solve(G, b)
    scores = X @ theta
    if expert == "softmax":
        return np.asarray(softmax(scores / own["temperature"], axis=1))
    if expert == "sbts":
        draws = theta + own["alpha"] * POINTS @ np.linalg.cholesky(np.linalg.inv(G)).T
        best = (X @ draws.T).argmax(axis=1)
        return np.stack([(best == j).mean(axis=1) for j in range(CANDIDATES)], axis=1)
    epsilon = own["epsilon"] / (updates + 1) ** own.get("decay", 0.0)
    # Before anything is learned all are best.
    best = scores == scores.max(axis=1, keepdims=True)
    return np.asarray(epsilon / CANDIDATES + (1 - epsilon) * best / best.sum(axis=1, keepdims=True))


def normal(expert: str, own: dict[str, Any], noise: float, start: int, seed: int) -> Logged:
    """A ridge learner (l2 = 1) among normal contexts."""
    rng = np.random.default_rng([seed, 17])
    theta = rng.normal(size=FEATURES) / np.sqrt(FEATURES)
    G, b = np.eye(FEATURES), np.zeros(FEATURES)
    episodes = list[tuple[Array, Picks]]()
    probabilities, rewards, expected = list[Array](), list[Array](), list[Array]()
    for steps in [start] * bool(start) + [STEPS] * EPISODES:
        X = rng.normal(size=(steps, CANDIDATES, FEATURES))
        at_random = bool(start) and not episodes
        P = np.full((steps, CANDIDATES), 1 / CANDIDATES) if at_random else rule(expert, own, X, G, b, len(episodes))
        chosen = (P.cumsum(axis=1) > rng.random((steps, 1))).argmax(axis=1)
        S = X[np.arange(steps), chosen]
        r = S @ theta + noise * rng.normal(size=steps)
        G, b = G + S.T @ S, b + S.T @ r
        episodes.append((X, chosen))
        for kept, what in ((probabilities, P), (rewards, r), (expected, X @ theta)):
            kept.append(what)
    log = ibcb.BehaviorLog.from_episodes(episodes, warmup=int(start > 0))
    P, r, q = (np.concatenate(parts) for parts in (probabilities, rewards, expected))
    return Logged(log, P, r, q, np.asarray(np.linalg.solve(G, b), dtype=np.float64))


def paper(expert: str, own: dict[str, Any], noise: float, start: int, seed: int) -> Logged:
    """The paper's synthetic data."""
    sizes: dict[str, Any] = {"n_candidates": CANDIDATES, "n_features": FEATURES, "warmup": start}
    sizes |= {"n_episodes": EPISODES, "batch_size": STEPS}
    run = ibcb.simulate("synthetic", expert=expert, noise=noise, seed=seed, **own, **sizes)
    phases = [run.world.learning] if run.world.warmup is None else [run.world.warmup, run.world.learning]
    expected = np.concatenate([phase.expected for phase in phases])
    # Those of SBTS are shares of 10,000 draws, and what was chosen cannot have had none.
    propensities = np.maximum(run.propensities(), 0.5 / 10_000).reshape(-1, CANDIDATES)
    return Logged(run.log, propensities, run.rewards, expected, run.policy_coefs[-1])


WORLDS = {"normal": normal, "paper": paper}


# -- propensities ----------------------------------------------------------------------------------------------------


def one_logit(log: ibcb.BehaviorLog) -> Array:
    """Of all steps, by a conditional logit over those that the policy decided."""
    model = ibcb.ChoiceModel(episodes=None).fit(log)
    return np.asarray(softmax(model.decision_function(log).reshape(-1, CANDIDATES), axis=1))


def estimated(case: Logged, expert: str) -> dict[str, Array]:
    """Propensities of all steps by each method, uniform in the random start."""
    log, start = case.log, case.start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ibcb.IBCB(expert=expert).fit(log)
    found = {
        "ours": model.propensities(log).reshape(-1, CANDIDATES),
        "ahead": model.propensities(log, ahead=True).reshape(-1, CANDIDATES),
        "logit": one_logit(log),
        "each": np.concatenate([one_logit(log[number : number + 1]) for number in range(len(log))]),
    }
    for P in found.values():
        P[:start] = 1 / CANDIDATES
    return found


def total_variation(P: Array, Q: Array) -> float:
    return float(np.abs(P - Q).sum(axis=1).mean() / 2)


# -- off-policy values -----------------------------------------------------------------------------------------------


def effective_size(target: Array, propensities: Array) -> float:
    """(sum w)^2 / sum w^2 of a target's probabilities of the choices, shape (steps,), over their propensities."""
    weights = target / propensities
    return float(weights.sum() ** 2 / (weights**2).sum())


def drawn_targets(case: Logged, rng: np.random.Generator) -> Iterator[Array]:
    """Softmax policies, around random weights and around the decider's own in turn. Shape (steps, M) each."""
    spread = float((case.contexts - case.contexts.mean(axis=1, keepdims=True)).std())
    own = case.policy / np.linalg.norm(case.policy)
    while True:
        for around in (np.zeros(FEATURES), own):
            weights = around + rng.uniform() * rng.normal(size=FEATURES) / np.sqrt(FEATURES)
            # From nearly uniform to nearly greedy.
            sharpness = 10 ** rng.uniform(-0.5, 1.5) / spread
            yield np.asarray(softmax(sharpness * case.contexts @ weights / np.linalg.norm(weights), axis=1))


def targets(case: Logged, seed: int) -> Array:
    """Those of which the log can tell. Shape (targets, steps, M)."""
    steps, chosen = np.arange(case.log.n_steps), case.log.chosen
    kept = list[Array]()
    for target in islice(drawn_targets(case, np.random.default_rng([seed, 23])), MOST_DRAWN):
        if effective_size(target[steps, chosen], case.propensities[steps, chosen]) >= LEAST_SIZE:
            kept.append(target)
        if len(kept) == TARGETS:
            return np.array(kept)
    raise RuntimeError(f"only {len(kept)} of {MOST_DRAWN} targets have an effective sample size of {LEAST_SIZE:g}")


def values(case: Logged, pi: Array, propensities: Array, rewards: Array) -> Array:
    """IPS, SNIPS and DR of target policies. Shape (3, targets); ``rewards`` (steps, M) are those of DR's model."""
    steps, chosen = np.arange(case.log.n_steps), case.log.chosen
    weights = pi[:, steps, chosen] / propensities[steps, chosen]
    ips = (weights * case.rewards).mean(axis=1)
    left = case.rewards - rewards[steps, chosen]
    dr = (np.einsum("ktm,tm->kt", pi, rewards) + weights * left).mean(axis=1)
    return np.array([ips, ips / weights.mean(axis=1), dr])


def reward_model(case: Logged) -> Array:
    """Least squares on half of the features: a model of the rewards that is wrong. Shape (steps, M)."""
    half = case.contexts[:, :, : FEATURES // 2]
    X = np.concatenate([half, np.ones_like(half[:, :, :1])], axis=2)
    chosen = X[np.arange(len(X)), case.log.chosen]
    found: Array = X @ np.linalg.lstsq(chosen, case.rewards, rcond=None)[0]
    return found


def errors(case: Logged, found: dict[str, Array], seed: int) -> dict[str, Array]:
    """Root mean square error over the targets of IPS, SNIPS and DR, with each method's propensities."""
    pi, rewards = targets(case, seed), reward_model(case)
    truth = np.einsum("ktm,tm->kt", pi, case.expected).mean(axis=1)
    methods = {"true": case.propensities, **found}
    return {name: np.sqrt(((values(case, pi, P, rewards) - truth) ** 2).mean(axis=1)) for name, P in methods.items()}


# -- judging ---------------------------------------------------------------------------------------------------------


def measure(name: str, world: str, start: int, seed: int) -> Iterator[Record]:
    """A record for each of the parameters and levels of noise."""
    decider = DECIDERS[name]
    parameters = decider.normal if world == "normal" else decider.paper
    for own in parameters:
        for noise in NOISE[world]:
            case = WORLDS[world](decider.expert, own, noise, start, seed)
            found = estimated(case, decider.expert)
            late = slice(case.start + FIRST, None)
            off = {each: total_variation(case.propensities[late], P[late]) for each, P in found.items()}
            error = {
                each: dict(zip(ESTIMATORS, e.tolist(), strict=True)) for each, e in errors(case, found, seed).items()
            }
            where = {"decider": name, "world": world, "start": start, **own, "noise": noise, "seed": seed}
            yield {**where, "variation": off, "error": error}


def variation(records: list[Record], method: str) -> float:
    """Mean over logs."""
    return float(np.mean([record["variation"][method] for record in records]))


def ratio(records: list[Record], method: str, estimator: str) -> float:
    """Error of values over that with the logit's propensities, geometric mean over logs."""
    logs = [np.log(each["error"][method][estimator] / each["error"]["logit"][estimator]) for each in records]
    return float(np.exp(np.mean(logs)))


def judged_variation(records: list[Record], *, whole: bool) -> tuple[list[float], str]:
    """Total variations, and what is said of them."""
    ours, ahead, *logits = (variation(records, method) for method in METHODS)
    behind = [f"{ours / off:.0%} of {name}" for name, off in zip(LOGITS, logits, strict=True) if ours > HALF * off]
    if not whole:
        return [ours, ahead, *logits], ", ".join(behind)
    return [ours, ahead, *logits], "MISSED" if behind or max(ours, ahead) > MOST_OFF else "ok"


def judged_errors(records: list[Record], *, whole: bool) -> tuple[list[float], str]:
    """Ratios of errors, and what is said of them."""
    figures = [ratio(records, method, estimator) for method in ("ours", "true") for estimator in ESTIMATORS]
    behind = [
        estimator for estimator, figure in zip(ESTIMATORS, figures[: len(ESTIMATORS)], strict=True) if figure > SHARE
    ]
    return figures, ("MISSED: " if behind else "ok") * whole + ", ".join(behind)


def summary(records: list[Record]) -> tuple[list[str], bool]:
    """Lines of both tables, and whether every bar is met."""
    grouped: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        place = f"{record['world']}{', start' if record['start'] else ''}"
        grouped[record["decider"]][place].append(record)
    lines, met = list[str](), True
    for title, columns, judge in (
        ("total variation", METHODS, judged_variation),
        ("error over logit's", (*ESTIMATORS, *(f"*{name}" for name in ESTIMATORS)), judged_errors),
    ):
        lines += ["", f"{title:24}" + "".join(f"{column:>7}" for column in columns)]
        for name, places in grouped.items():
            every = [record for some in places.values() for record in some]
            rows = {place: judge(some, whole=False) for place, some in places.items()} | {
                "all": judge(every, whole=True)
            }
            met &= rows["all"][1] == "ok"
            for place, (figures, note) in rows.items():
                shown = "".join(f"{figure:7.3f}" for figure in figures)
                lines.append(f"{name:10}{place:14}{shown}  {note}".rstrip())
    return [*lines, "", *REMARKS], met


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="logs of each setting (default 2)")
    parser.add_argument("--first-seed", type=int, default=2000)
    parser.add_argument("--only", default="", help="only settings whose name, as 'sbts normal 300', contains this text")
    parser.add_argument("--json", action="store_true", help="one JSON object per log")
    options = parser.parse_args()
    places = [(name, world, start) for name in DECIDERS for world in WORLDS for start in (0, START)]
    places = [place for place in places if options.only in " ".join(map(str, place))]
    records = list[Record]()
    for name, world, start in tqdm(places, leave=False, disable=None):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for record in measure(name, world, start, seed):
                records.append(record)
                if options.json:
                    print(json.dumps(record), flush=True)
    lines, met = summary(records)
    if not options.json:
        print("\n".join(lines))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
