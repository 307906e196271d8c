"""Verdicts on simulated logs: is a model called good only where `predict` picks what the decider's next policy does?

    python benchmarks/verdicts.py [--seeds 200] [--first-seed 5000] [--quick] [--json]

Every seed gives one log, whose setting is drawn too: kind of decider, size, share of random choices, wrong episode
edges, rewards that are not linear, candidates from a catalogue or fresh ones. It is fitted with the decider's kind
named and with expert="auto", l2="auto". The truth is the share of fresh steps at which `predict` picks what the
decider's own next policy prefers; "right" is at least .98. Printed are counts of level and truth by setting. Bars: no
"good" that is not right, no "poor" that is; three decisions are "unknown", and logs of random choices neither "good"
nor "fair". Exit code 1 if one is missed. Seeds below 1000 were used to set what the verdict asks for.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import ibcb

Array = NDArray[np.float64]
Picks = NDArray[np.int64]

KINDS = ("sbucb", "sbts", "topk", "stationary", "egreedy")
#: episodes, steps of each, features, candidates; and how often a size is drawn
SIZES = {
    "three": (3, 1, 3, 5),
    "tiny": (3, 8, 4, 5),
    "small": (5, 40, 4, 6),
    "short": (30, 20, 5, 6),
    "middle": (8, 200, 8, 8),
    "wide": (6, 300, 20, 10),
    "long": (12, 400, 6, 8),
    "paper": (20, 1000, 10, 10),
}
DRAWN = (0.03, 0.06, 0.12, 0.14, 0.22, 0.13, 0.12, 0.18)
LEVELS = ("good", "fair", "poor", "unknown")
RIGHT, TEST_STEPS, ITEMS = 0.98, 2000, 40


# -- settings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a log is simulated with."""

    kind: str
    size: str
    random: float
    edges: str
    rewards: str

    @classmethod
    def draw(cls, rng: np.random.Generator, seed: int) -> Setting:
        kind = KINDS[seed % len(KINDS)]
        size = str(rng.choice(list(SIZES), p=DRAWN))
        share = float(rng.choice([0.0, 0.01, 0.05, 0.2]))
        edges = str(rng.choice(["right", "shifted", "half", "twice"], p=[0.55, 0.15, 0.15, 0.15]))
        rewards = str(rng.choice(["linear", "nonlinear"], p=[0.7, 0.3]))
        return cls(kind, size, max(share, 0.05) if kind == "egreedy" else share, edges, rewards)


@dataclass(frozen=True)
class Case:
    """A log, fresh candidate sets of shape (T, M, d), what the decider's next policy prefers there, and its kind."""

    setting: Setting
    log: ibcb.BehaviorLog
    test: Array
    preferred: Picks
    named: dict[str, Any]


class Greedy:
    """Takes the best by ridge regression."""

    def __init__(self, d: int, l2: float) -> None:
        self.inner = ibcb.SBUCB(d, alpha=1.0, l2=l2)
        self.update = self.inner.update

    def act(self, X: Array) -> Picks:
        return _best(X @ self.coef_)

    @property
    def coef_(self) -> Array:
        return self.inner.coef_


class Still:
    """Never learns; draws from the softmax of its scores, or takes the best where the temperature is 0."""

    def __init__(self, coef: Array, temperature: float, rng: np.random.Generator) -> None:
        self.coef_, self.temperature, self.rng = coef, temperature, rng

    def act(self, X: Array) -> Picks:
        scores = X @ self.coef_
        return _best(scores + self.temperature * self.rng.gumbel(size=scores.shape))

    def update(self, S: Array, R: Array) -> None:
        pass


def _best(scores: Array) -> Picks:
    picks: Picks = scores.argmax(axis=1)
    return picks


def make(setting: Setting, theta: Array, l2: float, seed: int, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """A decider, and how a fit names its kind."""
    d, k = len(theta), int(rng.integers(2, 4))
    named: dict[str, Any] = {"expert": setting.kind, "l2": l2}
    if setting.kind == "sbucb":
        return ibcb.SBUCB(d, alpha=0.4, l2=l2), named
    if setting.kind == "sbts":
        return ibcb.SBTS(d, alpha=0.3, l2=l2, random_state=seed), named
    if setting.kind == "topk":
        return ibcb.TopK(ibcb.SBUCB(d, alpha=0.4, l2=l2), k, random_state=seed), named | {"top_k": k}
    if setting.kind == "stationary":
        return Still(theta, float(rng.choice([0.0, 0.1, 0.3])), rng), named
    return Greedy(d, l2), named | {"expert": "other"}


def simulate(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    setting = Setting.draw(rng, seed)
    N, B, d, M = SIZES[setting.size]
    theta, bend = rng.normal(size=d) / np.sqrt(d), rng.normal(size=(d, d)) / d
    mean = rng.choice([0.0, 0.5]) * rng.normal(size=d)
    items = mean + rng.normal(size=(ITEMS, d)) if rng.random() < 0.2 else None

    def candidates(count: int) -> Array:
        fresh: Array = mean + rng.normal(size=(count, M, d)) if items is None else np.empty(0)
        return fresh if items is None else items[np.argsort(rng.random((count, ITEMS)), axis=1)[:, :M]]

    def earned(S: Array) -> Array:
        R: Array = S @ theta + 0.1 * rng.normal(size=len(S))
        if setting.rewards == "linear":
            return R
        bent: Array = np.tanh(R) + np.einsum("si,ij,sj->s", S, bend, S)
        return bent

    l2 = float(rng.choice([0.3, 1.0]))
    decider, named = make(setting, theta, l2, seed, rng)
    warmup = int(rng.random() < 0.5 and setting.size != "three")
    episodes = []
    for number in range(-warmup, N):
        X = candidates(B if number >= 0 else max(5, B // 2))
        chosen = rng.integers(M, size=len(X))
        if number >= 0:
            chosen = np.where(rng.random(B) < setting.random, chosen, decider.act(X))
        S = X[np.arange(len(X)), chosen]
        decider.update(S, earned(S))
        episodes.append((X, chosen))
    log = recut(ibcb.BehaviorLog.from_episodes(episodes, warmup=warmup), setting.edges, B)
    test = candidates(TEST_STEPS)
    return Case(setting, log, test, _best(test @ decider.coef_), named)


def recut(log: ibcb.BehaviorLog, edges: str, B: int) -> ibcb.BehaviorLog:
    """The same choices in other episodes: each begins half an episode late, or they are half or twice as long."""
    first, last = log.policy_steps.start, log.n_steps
    if edges == "right" or B < 2:
        return log
    start, stride = {"shifted": (B // 2, B), "half": (B // 2, B // 2), "twice": (2 * B, 2 * B)}[edges]
    inner = np.arange(first + start, last, stride)
    offsets = np.concatenate([[0] * log.warmup, [first], inner, [last]]).astype(np.int64)
    return ibcb.BehaviorLog(log.contexts, log.step_offsets, log.chosen, offsets, warmup=log.warmup)


def nobody(seed: int) -> ibcb.BehaviorLog:
    """A log of random choices."""
    rng = np.random.default_rng(seed)
    N, B, d, M = list(SIZES.values())[2 + seed % 6]
    return ibcb.BehaviorLog.from_episodes(
        [(rng.normal(size=(B, M, d)), rng.integers(M, size=B)) for _ in range(N)], warmup=seed % 2
    )


# -- verdicts ------------------------------------------------------------------------------------------------------


def fitted(log: ibcb.BehaviorLog, options: dict[str, Any]) -> ibcb.IBCB:
    with warnings.catch_warnings():
        # A log that was cut at other edges may look as if it started in the middle.
        warnings.simplefilter("ignore", UserWarning)
        return ibcb.IBCB(**options).fit(log)


def judged(seeds: range) -> Iterator[dict[str, Any]]:
    """A row per log and model."""
    for seed in tqdm(seeds, leave=False, disable=None):
        case = simulate(seed)
        for how, options in (("named", case.named), ("auto", {"expert": "auto", "l2": "auto"})):
            model = fitted(case.log, options)
            verdict = model.verdict(case.log)
            truth = float(np.mean(model.predict(case.test) == case.preferred))
            missed = (verdict.level == "good" and truth < RIGHT) or (verdict.level == "poor" and truth >= RIGHT)
            missed |= case.setting.size == "three" and verdict.level != "unknown"
            yield {
                "seed": seed,
                "model": how,
                **asdict(case.setting),
                "level": verdict.level,
                "truth": truth,
                "missed": bool(missed),
                "figures": None if verdict.figures is None else asdict(verdict.figures),
            }


def judged_random(seeds: range) -> Iterator[dict[str, Any]]:
    """The same of logs whose choices nobody decided."""
    for seed in tqdm(seeds, leave=False, disable=None):
        log = nobody(seed)
        for how, options in (("named", {"expert": KINDS[seed % 3]}), ("auto", {"expert": "auto", "l2": "auto"})):
            level = fitted(log, options).verdict(log).level
            yield {"seed": seed, "model": how, "kind": "nobody", "level": level, "missed": level in ("good", "fair")}


def print_counts(rows: list[dict[str, Any]]) -> None:
    print(f"{'':10}{'':12}" + "".join(f"{level:>16}" for level in LEVELS))
    print(f"{'setting':10}{'':12}" + f"{'right   wrong':>16}" * len(LEVELS))
    for name in ("model", "kind", "size", "random", "edges", "rewards"):
        for value in dict.fromkeys(row[name] for row in rows):
            counts = Counter((row["level"], row["truth"] >= RIGHT) for row in rows if row[name] == value)
            cells = "".join(f"{counts[level, True]:8}{counts[level, False]:8}" for level in LEVELS)
            print(f"{name:10}{value!s:12}{cells}")
    counts = Counter((row["level"], row["truth"] >= RIGHT) for row in rows)
    print(f"{'all':22}" + "".join(f"{counts[level, True]:8}{counts[level, False]:8}" for level in LEVELS))
    worst = {level: min((r["truth"] for r in rows if r["level"] == level), default=None) for level in LEVELS}
    print("least agreement by level: " + ", ".join(f"{k} {v:.3f}" for k, v in worst.items() if v is not None))
    best = max((row["truth"] for row in rows if row["level"] == "poor"), default=None)
    if best is not None:
        print(f"largest agreement that was called poor: {best:.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many logs (default 200)")
    parser.add_argument("--first-seed", type=int, default=5000, help="the first of them (default 5000)")
    parser.add_argument("--quick", action="store_true", help="20 logs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    count = 20 if options.quick else options.seeds
    seeds = range(options.first_seed, options.first_seed + count)
    rows: list[dict[str, Any]] = []
    noise: list[dict[str, Any]] = []
    for found, source in ((rows, judged(seeds)), (noise, judged_random(seeds[: max(5, count // 10)]))):
        for row in source:
            found.append(row)
            if options.json:
                print(json.dumps(row), flush=True)
    missed = [row for row in (*rows, *noise) if row["missed"]]
    if not options.json:
        print_counts(rows)
        levels = Counter(row["level"] for row in noise)
        print("random choices: " + ", ".join(f"{level} {levels[level]}" for level in LEVELS))
        for row in missed:
            print("MISSED", {name: value for name, value in row.items() if name not in ("missed", "figures")})
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
