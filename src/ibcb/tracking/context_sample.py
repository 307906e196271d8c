"""A few of the candidate sets that a decider has seen, kept to imagine what it will choose next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block
from ibcb.numerics.arrays import Stored
from ibcb.numerics.contexts import step_counts, taken

#: numbers kept after a cut, half a megabyte; a cut comes at half as many more
MOST = 1 << 17
#: sizes of features for which single precision will do: weights are about as small as these are large
_SINGLE = (1e-30, 1e30)


@dataclass(frozen=True, slots=True)
class ContextSample:
    """A uniform sample of the steps so far: those with the smallest of random keys, so that it grows as a log does.

    Attributes
    ----------
    contexts : ndarray of shape (rows, d)
        float32, unless that does not hold the sizes of some features.
    counts : ndarray of shape (steps,)
        Candidates of each step.
    keys : ndarray of shape (steps,)
    """

    contexts: Annotated[NDArray[np.floating], Stored("rows d", np.floating)]
    counts: Annotated[NDArray[np.int64], Stored("steps", np.int64)]
    keys: Annotated[NDArray[np.float64], Stored("steps")]

    @classmethod
    def empty(cls, d: int) -> Self:
        return cls(np.empty((0, d), dtype=np.float32), np.empty(0, dtype=np.int64), np.empty(0))

    @property
    def bar(self) -> float:
        """Once the sample is full, a key above all of it has no chance."""
        full = self.counts.sum() + self.counts.max(initial=0) > MOST // max(1, self.contexts.shape[1])
        return float(self.keys.max()) if full else 1.0

    def extend(self, fresh: ContextSample) -> ContextSample:
        """The sample with steps of one more episode."""
        joined = ContextSample(
            np.concatenate([self.contexts, fresh.contexts]),
            np.concatenate([self.counts, fresh.counts]),
            np.concatenate([self.keys, fresh.keys]),
        )
        counts, most = joined.counts, MOST // max(1, self.contexts.shape[1])
        # Cut rarely, because that copies the whole sample.
        if 2 * counts.sum() <= 3 * most:
            return joined
        order = np.argsort(joined.keys, kind="stable")
        kept = np.zeros(len(order), dtype=bool)
        kept[order[np.cumsum(counts[order]) <= most]] = True
        kept[order[0]] = True
        return ContextSample(joined.contexts[np.repeat(kept, counts)], counts[kept], joined.keys[kept])

    def check(self) -> None:
        """Raise ValueError where the counts are not those of the contexts."""
        if self.counts.sum() != len(self.contexts) or not self.counts.all():
            raise ValueError("its counts do not add up to its contexts")


def picked(block: Block, *, most: float, episode: int) -> ContextSample:
    """The steps of a block whose keys are at most ``most``; keys depend on the episode's number alone."""
    keys, counts = np.random.default_rng(episode).random(len(block.chosen_rows)), step_counts(block.offsets)
    kept = keys < most
    rows = np.flatnonzero(np.repeat(kept, counts))
    return ContextSample(_light(taken(block.contexts, rows)), counts[kept], keys[kept])


def _light(contexts: NDArray[Any]) -> NDArray[Any]:
    """In single precision, where it holds the sizes of all features with room for products with weights."""
    size = np.abs(contexts).max(axis=0, initial=0.0)
    fits = (size == 0) | ((size > _SINGLE[0]) & (size < _SINGLE[1]))
    return contexts.astype(np.float32, copy=False) if fits.all() else contexts.astype(np.float64, copy=False)
