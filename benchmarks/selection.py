"""What expert="auto" says of logs of each kind of decider, with shared weights and on arms, and how long it takes.

    python benchmarks/selection.py [--logs 20] [--first-seed 0] [--only TEXT] [--world TEXT]

Deciders of every kind choose among candidates of five worlds: the paper's synthetic one, independent normal features,
the same in short logs (10 episodes of 300 choices among 5 candidates, 8 episodes of 200), and arms with weights of
their own. Prints how many logs of each are named rightly, how many are left open, and what the others are taken for.
Exits with 1 where more than one in sixty is named falsely, or fewer than eight in ten of the short logs rightly. How
well dirty and unfair logs are imitated through it is in `dirty.py`; other libraries' deciders are in `foreign.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ibcb

#: of short logs at least so many are to be named rightly, and of all at most so many falsely
RIGHT, FALSE = 0.8, 1 / 60
Array = NDArray[np.float64]

SYNTHETIC: dict[str, Any] = {"n_episodes": 15, "batch_size": 500, "n_candidates": 8, "n_features": 12, "noise": 0.03}
#: sizes of worlds with normal features
SHORT: dict[str, dict[str, int]] = {
    "normal": {},
    "10 x 300": {"episodes": 10, "batch": 300, "M": 5, "d": 6},
    "8 x 200": {"episodes": 8, "batch": 200, "M": 5, "d": 6},
}
#: with a short random start: after a long one a softmax can hardly be seen to learn more
ARMS: dict[str, Any] = {"n_episodes": 12, "batch_size": 600, "n_arms": 8, "n_features": 4, "warmup": 80}


def policy(kind: str, seed: int, weights: Array) -> Any:
    """A decider of that kind for candidates with normal features, which knows nothing yet."""
    d, luck = len(weights), np.random.default_rng([seed, 2])
    made: dict[str, Callable[[], Any]] = {
        "sbucb": lambda: ibcb.SBUCB(d, alpha=1.0),
        "sbts": lambda: ibcb.SBTS(d, alpha=1.0, random_state=luck),
        "sbts, episode": lambda: ibcb.SBTS(d, alpha=1.0, draws="episode", random_state=luck),
        "egreedy": lambda: ibcb.EGreedy(d, epsilon=0.1, random_state=luck),
        "egreedy, falling": lambda: ibcb.EGreedy(d, epsilon=0.5, decay=0.5, random_state=luck),
        "softmax": lambda: ibcb.Softmax(d, temperature=0.3, random_state=luck),
        "topk": lambda: ibcb.TopK(ibcb.SBUCB(d, alpha=1.0), 2, random_state=luck),
        "stationary, greedy": lambda: ibcb.FixedPolicy(weights, temperature=1e-9, random_state=luck),
        "stationary, softmax": lambda: ibcb.FixedPolicy(weights, temperature=0.5, random_state=luck),
        "other": lambda: Walker(weights, luck),
    }
    return made[kind]()


class Walker:
    """A decider that none of the known kinds describes: it draws by a softmax, strays, and walks."""

    def __init__(self, weights: Array, luck: np.random.Generator) -> None:
        self.weights, self.luck = weights, luck

    def act(self, candidates: Array) -> Any:
        return ibcb.FixedPolicy(self.weights, temperature=0.25, epsilon=0.25, random_state=self.luck).act(candidates)

    def update(self, contexts: Array, rewards: Array) -> None:
        self.weights = self.weights + self.luck.normal(size=len(self.weights)) * 0.3 / np.sqrt(len(self.weights))


def normal_log(kind: str, seed: int, *, episodes: int = 12, batch: int = 500, M: int = 6, d: int = 8) -> Any:
    """A log of candidates with independent normal features; the first 30 choices are made at random."""
    rng = np.random.default_rng([seed, 1])
    weights = rng.normal(size=d) / np.sqrt(d)
    decider, pairs = policy(kind, seed, weights), []
    for number in range(1 + episodes):
        contexts = rng.normal(size=(batch if number else 30, M, d))
        chosen = decider.act(contexts) if number else rng.integers(M, size=len(contexts))
        taken = contexts[np.arange(len(contexts)), chosen]
        decider.update(taken, taken @ weights + 0.5 * rng.normal(size=len(taken)))
        pairs.append((contexts, chosen))
    return ibcb.BehaviorLog.from_episodes(pairs, warmup=1)


def simulated(world: str, kind: str, seed: int) -> Any:
    """A log of the simulator."""
    name, _, more = kind.partition(", ")
    variants: dict[str, dict[str, Any]] = {
        "falling": {"epsilon": 0.5, "decay": 0.5},
        "greedy": {"temperature": 1e-9},
        "episode": {"draws": "episode"},
    }
    how = variants.get(more, {}) | ({"epsilon": 0.25} if name == "other" else {})
    sizes = SYNTHETIC if world == "synthetic" else ARMS
    return ibcb.simulate(world, expert=name, seed=seed, **sizes, **how).log


KINDS = (
    *("sbucb", "sbts", "sbts, episode", "egreedy", "egreedy, falling", "softmax", "topk"),
    *("stationary, greedy", "stationary, softmax", "other"),
)


def told(world: str, kind: str, seeds: range) -> tuple[int, int]:
    """Print what logs of a kind are called; how many are named rightly, and how many falsely."""
    name, found, seconds = kind.partition(",")[0], list[str](), []
    for seed in seeds:
        log = normal_log(kind, seed, **SHORT[world]) if world in SHORT else simulated(world, kind, seed)
        start = time.process_time()
        found.append(ibcb.IBCB(expert="auto").fit(log).expert_)
        seconds.append(time.process_time() - start)
    right, left_open = found.count(name), found.count("undetermined")
    others = ", ".join(f"{other} {count}" for other, count in Counter(found).most_common() if other != name)
    print(
        f"{world:10}{kind:21}{right:5}{left_open:6}{len(found) - right - left_open:7}  {max(seconds):6.1f} s  {others}",
        flush=True,
    )
    return right, len(found) - right - left_open


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", type=int, default=20, help="logs of each kind (default 20)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--only", default="", help="only kinds whose name contains this text")
    parser.add_argument("--world", default="", help="only worlds whose name contains this text")
    options = parser.parse_args()
    met, seeds = True, range(options.first_seed, options.first_seed + options.logs)
    print(f"{'world':10}{'kind':21}{'right':>5}{'open':>6}{'false':>7}   at most  taken for")
    for world in ("synthetic", *SHORT, "arms"):
        kinds = [kind for kind in KINDS if options.only in kind and options.world in world]
        counts = [told(world, kind, seeds) for kind in kinds]
        right, false, logs = sum(each for each, _ in counts), sum(each for _, each in counts), len(seeds) * len(kinds)
        if logs:
            met &= false <= max(1, FALSE * logs) and (world not in SHORT or right >= RIGHT * logs)
            print(f"{world}: {right} of {logs} named rightly, {false} falsely\n")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
