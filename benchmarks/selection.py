"""Which kind of decider expert="auto" tells from logs of each, with shared weights and on arms, and how long it takes.

    python benchmarks/selection.py [--logs 20] [--first-seed 0] [--only TEXT] [--world TEXT]

Deciders of every kind choose among candidates of three worlds: the paper's synthetic one, independent normal features,
and arms with weights of their own. Prints how many logs of each are told right, and what the others are taken for.
Exits with 1 if fewer than 19 of 20 are. How well dirty and unfair logs are imitated through it is in `dirty.py`.
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

RIGHT = 0.95
Array = NDArray[np.float64]

SYNTHETIC: dict[str, Any] = {"n_episodes": 15, "batch_size": 500, "n_candidates": 8, "n_features": 12, "noise": 0.03}
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


def told(world: str, kind: str, seeds: range) -> bool:
    """Print how many logs of a kind are told right; whether they are enough."""
    name = kind.partition(",")[0]
    name += "" if name != "sbts" else " (episode)" if "episode" in kind else " (step)"
    found, seconds = [], []
    for seed in seeds:
        log = normal_log(kind, seed) if world == "normal" else simulated(world, kind, seed)
        start = time.process_time()
        model = ibcb.IBCB(expert="auto").fit(log)
        found.append(f"{model.expert_} ({model.draws_})" if model.draws_ else model.expert_)
        seconds.append(time.process_time() - start)
    right = found.count(name)
    met = right >= RIGHT * len(found)
    others = ", ".join(f"{other} {count}" for other, count in Counter(found).most_common() if other != name)
    print(
        f"{world:10}{kind:21}{right:4} of {len(found):3}  {max(seconds):5.1f} s  {'' if met else 'MISSED  '}{others}",
        flush=True,
    )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", type=int, default=20, help="logs of each kind (default 20)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--only", default="", help="only kinds whose name contains this text")
    parser.add_argument("--world", default="", help="only worlds whose name contains this text")
    options = parser.parse_args()
    met = []
    print(f"{'world':10}{'kind':21}told right   at most   taken for")
    for world in ("synthetic", "normal", "arms"):
        for kind in KINDS:
            if options.only in kind and options.world in world:
                met.append(told(world, kind, range(options.first_seed, options.first_seed + options.logs)))
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
