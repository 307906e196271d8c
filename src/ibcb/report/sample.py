"""Which steps a page shows: a sample that depends on the log alone, not on how it is read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Keeper", "step_keys"]


def step_keys(episode: int, first: int, count: int) -> NDArray[np.uint64]:
    """A number for each of ``count`` steps from ``first`` on, as if drawn at random but always the same.

    The finaliser of SplitMix64 on episode and step. Steps with the smallest numbers are the sample.
    """
    with np.errstate(over="ignore"):
        z = (np.uint64(episode & 0xFFFFFFFF) << np.uint64(32)) + np.arange(first, first + count, dtype=np.uint64)
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return keys


@dataclass
class Keeper:
    """Keeps the ``size`` steps of smallest key that it has been shown, each with what belongs to it."""

    size: int
    kept: list[tuple[int, int]] = field(default_factory=list)

    def offer(self, steps: NDArray[np.int64], keys: NDArray[np.uint64]) -> None:
        """Steps with their keys; those beyond ``size`` are forgotten."""
        if len(steps) > self.size:
            small = np.argpartition(keys, self.size - 1)[: self.size]
            steps, keys = steps[small], keys[small]
        merged = [*self.kept, *zip(keys.tolist(), steps.tolist(), strict=True)]
        self.kept = sorted(merged)[: self.size]
