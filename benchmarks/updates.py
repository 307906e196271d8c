"""What `find_updates` finds, and what a fit is worth on the episodes found, beside one on the episodes that were.

    python benchmarks/updates.py [--seeds 2] [--first-seed 700] [--json]

Logs of 8,000 steps whose episodes are hidden: SBUCB, SBTS and epsilon-greedy (a ridge regression, one choice in ten at
random) with batches of 400 and of 1,000, with 0 and 1% of the choices replaced at random, updated by count, or every
night at 03:00 while steps arrive at irregular times. Prints a row per setting: BT-Fitness with the episodes known and
with those found, fitted as the kind that it is and as "auto"; the share of false edges, which are more than 5% of a
batch from any true one; the share of true edges found; seconds of computing. Then deciders that never learn. Exits with
1 if BT-Fitness is more than .004 lower, if more than 5% of the edges are false, if a stationary decider has any, or if
it takes 10 s.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ibcb
from ibcb.paper.environments import Phase

STEPS, EPSILON, HOUR = 8000, 0.1, 3
#: bars: BT-Fitness lost, share of false edges, seconds
LOST, FALSE, SECONDS = 0.004, 0.05, 10.0
#: an edge is false if it is further from a true one, in batches
NEAR = 0.05

Array = NDArray[Any]


class Greedy(ibcb.SBUCB):
    """Epsilon-greedy: the best by ridge regression, but at random with probability epsilon."""

    def __init__(self, n_features: int, rng: np.random.Generator) -> None:
        super().__init__(n_features, alpha=0.0, l2=0.3)
        self._rng = rng

    def act(self, candidates: Any, *, explore: bool = True) -> Any:
        best = super().act(candidates, explore=False)
        return astray(best, candidates.shape[1], EPSILON if explore else 0.0, self._rng)


def astray(chosen: Array, candidates: int, share: float, rng: np.random.Generator) -> Array:
    """Choices of which a share are made at random."""
    return np.where(rng.random(len(chosen)) < share, rng.integers(candidates, size=len(chosen)), chosen)


class Life(NamedTuple):
    """A log without its episodes, the true edges, and test steps with the final policy's choices."""

    log: ibcb.BehaviorLog
    edges: Array
    test: Array
    best: Array

    def fitness(self, edges: Array, kind: str) -> float:
        """BT-Fitness of a fit with some edges."""
        policy = ibcb.IBCB(expert=kind).fit(self.log.recut(edges)).forecast(1)
        return float(np.mean((self.test @ policy).argmax(axis=1) == self.best))


def arrivals(steps: int, a_day: int, rng: np.random.Generator) -> Array:
    """Times of steps: about so many a day, on some days more than on others, and fewer at night."""
    days = []
    for day in range(4 + 2 * steps // a_day):
        hours = 24 * rng.random(rng.poisson(1.6 * a_day * np.exp(0.15 * rng.normal())))
        awake = rng.random(len(hours)) < 0.25 + 0.375 * (1 + np.cos((hours - 15) / 24 * 2 * np.pi))
        days.append(24 * day + np.sort(hours[awake]))
    seconds = 3600 * np.concatenate(days)
    first = np.searchsorted(seconds, 3600 * rng.uniform(4, 22))
    return np.datetime64("2024-01-10", "ms") + (1000 * seconds[first : first + steps]).astype("timedelta64[ms]")


def live(kind: str, batch: int, stray: float, calendar: bool, seed: int) -> Life:
    """Let a decider learn in the synthetic world."""
    world = ibcb.simulate(
        expert="sbts" if kind == "sbts" else "sbucb", noise=0.03, batch_size=batch, n_episodes=STEPS // batch, seed=seed
    ).world
    rng = np.random.default_rng([seed, 7])
    times = arrivals(STEPS, batch, rng)
    edges = np.arange(0, STEPS, batch)
    if calendar:
        nights = (times - np.timedelta64(HOUR, "h")).astype("datetime64[D]")
        edges = np.concatenate([[0], np.flatnonzero(nights[1:] > nights[:-1]) + 1])
    _, M, d = world.learning.contexts.shape
    deciders: dict[str, Any] = {
        "sbucb": lambda: ibcb.SBUCB(d, alpha=0.4, l2=0.3),
        "sbts": lambda: ibcb.SBTS(d, alpha=0.4, l2=0.3, random_state=rng),
        "egreedy": lambda: Greedy(d, rng),
    }
    decider = deciders[kind]()

    def learn(phase: Phase, chosen: Array, steps: slice) -> None:
        decider.update(phase.contexts[steps][np.arange(len(chosen)), chosen], phase.rewards(chosen, steps))

    assert world.warmup is not None
    start = rng.integers(M, size=len(world.warmup.noise))
    learn(world.warmup, start, slice(None))
    chosen = []
    for first, last in pairwise([*edges.tolist(), STEPS]):
        steps = slice(first, last)
        chosen.append(astray(decider.act(world.learning.contexts[steps]), M, stray, rng))
        learn(world.learning, chosen[-1], steps)
    log = ibcb.BehaviorLog.from_episodes(
        [(world.warmup.contexts, start), (world.learning.contexts, np.concatenate(chosen))],
        warmup=1,
        timestamps=np.concatenate([np.full(len(start), times[0]), times]),
    )
    return Life(log, edges, world.test.contexts, decider.act(world.test.contexts, explore=False))


def stationary(how: str, seed: int) -> ibcb.BehaviorLog:
    """A log of a decider that never learns; "drifting": its candidates wander and spread."""
    rng = np.random.default_rng([seed, 8])
    X = rng.normal(size=(STEPS, 10, 10))
    if how.startswith("drifting"):
        late = np.linspace(0, 1, STEPS)[:, None, None]
        X = X * (1 + 2 * late * rng.random(10)) + 2 * np.sin(4 * late + 2 * rng.normal(size=10)) * rng.normal(size=10)
    policy, scatter = rng.normal(size=10), np.linalg.inv(np.cov(rng.normal(size=(10, 40))) * 300)
    scores = X @ policy
    if how.endswith("softmax"):
        scores = scores + rng.gumbel(size=scores.shape)
    if how.endswith("bonus"):
        scores = scores + 8 * np.sqrt(np.einsum("tmi,ij,tmj->tm", X, scatter, X))
    chosen = astray(scores.argmax(axis=1), 10, EPSILON if how.endswith("egreedy") else 0.0, rng)
    return ibcb.BehaviorLog.from_episodes([(X, chosen)], timestamps=arrivals(STEPS, 400, rng))


def timed(log: ibcb.BehaviorLog) -> tuple[Any, float]:
    """What is found in a log cut into one episode, and the seconds of computing it took."""
    start = time.process_time()
    updates = ibcb.find_updates(log.recut([0]))
    return updates, time.process_time() - start


def measure(kind: str, batch: int, stray: float, calendar: bool, seed: int) -> dict[str, float]:
    life = live(kind, batch, stray, calendar, seed)
    updates, seconds = timed(life.log)
    found = updates.edges[1:]
    off = np.abs(found[:, None] - life.edges[None]).min(axis=1)
    missed = np.abs(life.edges[1:, None] - updates.edges[None]).min(axis=1)
    row = {
        "seconds": seconds,
        "edges": float(len(found)),
        "false": float(np.count_nonzero(off > NEAR * batch)),
        "found": float(np.mean(missed <= NEAR * batch)),
    }
    for fitted in ("auto",) if kind == "egreedy" else (kind, "auto"):
        known, ours = life.fitness(life.edges, fitted), life.fitness(updates.edges, fitted)
        which = "auto" if fitted == "auto" else "kind"
        row |= {f"known, {which}": known, f"ours, {which}": ours}
    return row


def rows(seeds: range) -> Iterator[dict[str, Any]]:
    total = {"edges": 0.0, "false": 0.0}
    for kind, batch, stray, calendar in product(("sbucb", "sbts", "egreedy"), (400, 1000), (0.0, 0.01), (False, True)):
        found = [measure(kind, batch, stray, calendar, seed) for seed in seeds]
        for name in total:
            total[name] += sum(one[name] for one in found)
        means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        means["seconds"] = max(one["seconds"] for one in found)
        lost = max(
            means[f"known, {which}"] - means.get(f"ours, {which}", 0.0)
            for which in ("kind", "auto")
            if f"known, {which}" in means
        )
        name = f"{kind} {batch} {'night' if calendar else 'count'} {stray:.0%}"
        yield {"setting": name, **means, "lost": lost, "met": lost <= LOST and means["seconds"] < SECONDS}
    share = total["false"] / max(total["edges"], 1)
    yield {"setting": "false edges of all", "share": share, "met": share <= FALSE}
    for how in ("greedy", "softmax", "egreedy", "bonus", "drifting greedy", "drifting softmax", "drifting bonus"):
        outcomes = [timed(stationary(how, seed)) for seed in seeds]
        edges = sum(len(updates.edges) - 1 for updates, _ in outcomes)
        seconds = max(taken for _, taken in outcomes)
        met = edges == 0 and seconds < SECONDS
        yield {"setting": f"stationary {how}", "edges": float(edges), "seconds": seconds, "met": met}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=700)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    missed = 0
    for row in rows(range(options.first_seed, options.first_seed + options.seeds)):
        missed += not row["met"]
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        figures = "  ".join(f"{name} {value:.4g}" for name, value in row.items() if isinstance(value, float))
        print(f"{row['setting']:26} {figures}  {'' if row['met'] else 'MISSED'}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
