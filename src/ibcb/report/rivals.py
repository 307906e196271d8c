"""Simple rivals: what anybody would try first to predict a decider's choices, without asking how it learns.

They go through a log beside the model, and predict each episode from the episodes before. Memory is bounded, whatever
the log's size: choice models learn from a sample of its steps, and items are counted only while they are few.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.estimators.choice_model import ChoiceModel
from ibcb.inverse.solvers import SolverError
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.numerics.arrays import Vector
from ibcb.report.lessons import Lessons

Hits = NDArray[np.bool_]

#: distinct candidates that are counted, and rows after which they must have come back twice on average
_MOST_ITEMS, _ENOUGH_ROWS = 1 << 16, 1000


def choice_weights(lessons: Lessons) -> Vector | None:
    """Weights of a choice model of some steps; None where they give nothing to learn.

    Features are brought to one scale first, so that their units do not matter.
    """
    if not lessons.seen:
        return None
    log, counts = lessons.log(), lessons.steps["count"]
    means = np.add.reduceat(log.contexts, log.step_offsets[:-1], axis=0) / counts[:, None]
    scale = np.sqrt(np.mean(np.square(log.contexts - np.repeat(means, counts, axis=0)), axis=0))
    scale[scale == 0] = 1.0
    try:
        alike = BehaviorLog(log.contexts / scale, log.step_offsets, log.chosen, log.episode_offsets)
        weights: Vector = ChoiceModel(episodes=1).fit(alike).coef_ / scale
    except (ValueError, SolverError):
        return None
    return weights


def hits(weights: Vector, part: BehaviorLog) -> Hits:
    """Which choices of a part have the best score under some weights."""
    return np.asarray(argmax_per_step(part.contexts @ weights, part) == part.chosen)


class _ItemCounts(NamedTuple):
    """How often some items were offered and chosen; items are numbers, in order."""

    items: NDArray[np.uint64]
    offered: Vector
    chosen: Vector

    def plus(self, *others: Any) -> _ItemCounts:
        """With those of others."""
        items, offered, chosen = map(np.append, self, others)
        every, place = np.unique(items, return_inverse=True)
        return _ItemCounts(every, np.bincount(place, offered).astype(float), np.bincount(place, chosen).astype(float))

    def shares(self, items: NDArray[np.uint64]) -> Vector:
        """Of some items, the share of offers that were chosen; 0 where there was none."""
        shares = np.zeros(len(items))
        if len(self.items):
            place = np.minimum(np.searchsorted(self.items, items), len(self.items) - 1)
            seen = self.items[place] == items
            # One more offer than there was: who was chosen once of once has not proved much.
            shares[seen] = (self.chosen[place] / (self.offered[place] + 1))[seen]
        return shares


_NO_ITEMS = _ItemCounts(np.empty(0, dtype=np.uint64), np.empty(0), np.empty(0))


class ItemShares:
    """Predicts the candidate that was chosen most often of the times it was offered; for candidates that come back.

    Candidates are the same if all their features are. It gives up where they hardly come back, or are too many.
    """

    def __init__(self) -> None:
        self._counts = self._fresh = _NO_ITEMS
        self._gave_up = False

    @property
    def known(self) -> bool:
        """Whether candidates have come back: each twice or more, on average."""
        return 0 < 2 * len(self._counts.items) <= float(self._counts.offered.sum())

    def hits(self, part: BehaviorLog) -> Hits:
        """Which choices it predicts from the episodes before; a tie of different candidates predicts nothing."""
        items, chosen, each = _items(part.contexts), part.chosen_rows, np.diff(part.step_offsets)
        share = self._counts.shares(items)
        rivals = (share >= np.repeat(share[chosen], each)) & (items != np.repeat(items[chosen], each))
        return np.asarray(~np.logical_or.reduceat(rivals, part.step_offsets[:-1]) & (share[chosen] > 0))

    def learn(self, part: BehaviorLog) -> None:
        """Count the candidates of a part; they are used once the episode is over."""
        if self._gave_up or len(self._fresh.items) > _MOST_ITEMS:
            return
        items = _items(part.contexts)
        taken = np.zeros(len(items))
        taken[part.chosen_rows] = 1.0
        self._fresh = self._fresh.plus(items, np.ones(len(items)), taken)

    def end_episode(self) -> None:
        """Use what was counted."""
        self._counts, self._fresh = self._counts.plus(*self._fresh), _NO_ITEMS
        rare = self._counts.offered.sum() >= _ENOUGH_ROWS and not self.known
        if self._gave_up or rare or len(self._counts.items) > _MOST_ITEMS:
            self._counts, self._gave_up = _NO_ITEMS, True


def _items(contexts: NDArray[Any]) -> NDArray[np.uint64]:
    """A number for each row, the same for equal rows; different rows have different ones but for bad luck (1 in 2^64).

    Multiplies and mixes column by column, as SplitMix64 does.
    """
    # + 0.0: -0.0 equals 0.0.
    bits = np.ascontiguousarray(contexts.astype(np.float64) + 0.0).view(np.uint64)
    items = np.full(len(contexts), 0x632BE59BD9B4E019, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in bits.T:
            items = (items ^ column) * np.uint64(0x9E3779B97F4A7C15)
            items ^= items >> np.uint64(29)
    return items
