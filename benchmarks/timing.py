"""What benchmarks of running time share: contenders that take turns, the floor, peak memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ibcb


def turns(contenders: dict[str, Callable[[], object]], most: int = 7) -> dict[str, float]:
    """Best time of each over a few turns; the slow ones get fewer."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(most):
        for name, run in contenders.items():
            if turn and sum(times[name]) > 3.0:
                continue
            times[name].append(seconds(run))
    return {name: min(found) for name, found in times.items()}


def seconds(run: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def floor(log: ibcb.BehaviorLog) -> None:
    """One GEMM and one GEMV over the contexts of every episode."""
    matrix, vector = np.eye(log.n_features, dtype=log.contexts.dtype), np.ones(log.n_features, dtype=log.contexts.dtype)
    for episode in log:
        episode.contexts @ matrix
        episode.contexts @ vector


def peak() -> float:
    """Largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget_peak() -> None:
    """Let `peak` begin at what is resident now. Linux only."""
    Path("/proc/self/clear_refs").write_text("5")
