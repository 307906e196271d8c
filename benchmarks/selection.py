"""Which kind of decider expert="auto" tells from simulated logs of each, and how long that takes.

    python benchmarks/selection.py [--logs 20] [--first-seed 0] [--only TEXT]

Exits with 1 if fewer than 19 of 20 logs of a kind are told right. How well dirty and unfair logs are imitated through
it is in `dirty.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ibcb

RIGHT = 0.95
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", type=int, default=20, help="logs of each kind (default 20)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--only", default="", help="only kinds whose name contains this text")
    options = parser.parse_args()
    met = []
    print(f"{'kind':20}told right")
    for kind in KINDS:
        if options.only in kind:
            met.append(told(kind, range(options.first_seed, options.first_seed + options.logs)))
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
