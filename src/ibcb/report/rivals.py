"""Simple rivals: what anybody would try first to predict a decider's choices, without asking how it learns.

They go through a log beside the model, and predict each episode from the episodes before. Memory is bounded, whatever
the log's size: choice models learn from a sample of its steps, which depends on the log alone, and items are counted
only while they are few.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.estimators.choice_model import ChoiceModel
from ibcb.inverse.solvers import SolverError
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.report.reading import in_double

Hits = NDArray[np.bool_]

#: numbers (steps x candidates x features) of a sample unless said, 8 MB
MOST_NUMBERS = 1 << 20
#: steps that are kept at least, however large they are
_FEWEST_STEPS = 50
#: what is kept of a step beside its contexts; ``picked`` is what somebody else would have chosen
_STEP = np.dtype([("key", "u8"), ("episode", "i8"), ("count", "i8"), ("chosen", "i8"), ("picked", "i8")])
#: distinct candidates that are counted, and rows after which they must have come back twice on average
_MOST_ITEMS, _ENOUGH_ROWS = 1 << 16, 1000


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


class Lessons:
    """Steps to learn from, however they arrive.

    Parameters
    ----------
    most_numbers, most_steps : int
        What is kept at most; but at least a few steps, however large they are.

    Attributes
    ----------
    contexts : ndarray of shape (rows, d)
    steps : structured ndarray of shape (steps,)
        ``count`` (of candidates), ``chosen`` and ``picked`` of the steps kept, and what the sample goes by.
    seen : int
        Steps offered, kept or not.
    """

    def __init__(self, most_numbers: int = MOST_NUMBERS, most_steps: int = MOST_NUMBERS) -> None:
        self._most_numbers, self._most_steps, self._size = most_numbers, most_steps, 0
        self.contexts: Matrix = np.empty((0, 0))
        self.steps, self.seen = np.empty(0, dtype=_STEP), 0

    def offer(
        self,
        log: BehaviorLog,
        place: tuple[int, int],
        *,
        picked: NDArray[np.int64] | None = None,
        width: Vector | None = None,
    ) -> None:
        """Steps of an episode: ``place`` is its number and the first of them. A ``width`` becomes another feature."""
        contexts = in_double(log) if width is None else np.column_stack([in_double(log), width])
        if self._size == 0:
            fitting = self._most_numbers * log.n_steps // contexts.size
            self._size = min(self._most_steps, max(_FEWEST_STEPS, fitting))
            self.contexts = np.empty((0, contexts.shape[1]))
        steps = np.empty(log.n_steps, dtype=_STEP)
        steps["key"], steps["episode"] = step_keys(*place, log.n_steps), place[0]
        steps["count"], steps["chosen"] = np.diff(log.step_offsets), log.chosen
        steps["picked"] = log.chosen if picked is None else picked
        keys = np.append(self.steps["key"], steps["key"])
        bar = keys.max() if len(keys) <= self._size else np.partition(keys, self._size - 1)[self._size - 1]
        old, new = self.steps["key"] <= bar, steps["key"] <= bar
        rows = self.contexts[np.repeat(old, self.steps["count"])], contexts[np.repeat(new, steps["count"])]
        self.contexts = np.concatenate(rows, axis=0)
        self.steps = np.concatenate([self.steps[old], steps[new]])
        self.seen += log.n_steps

    def some(self, kept: NDArray[np.bool_]) -> Lessons:
        """Those of a mask alone, as if no others had been seen."""
        lessons = Lessons()
        lessons.contexts, lessons.steps = self.contexts[np.repeat(kept, self.steps["count"])], self.steps[kept]
        lessons.seen = len(lessons.steps)
        return lessons

    def since(self, episode: int, most_steps: int, most_numbers: int) -> Lessons:
        """Of the steps kept those from an episode on, so many or so many numbers at most."""
        late = np.flatnonzero(self.steps["episode"] >= episode)
        numbers = self.contexts.shape[1] * float(self.steps["count"][late].mean()) if len(late) else 1.0
        most = min(most_steps, max(_FEWEST_STEPS, int(most_numbers / numbers)))
        first = late[np.argsort(self.steps["key"][late], kind="stable")[:most]]
        return self.some(np.isin(np.arange(len(self.steps)), first))

    def log(self) -> BehaviorLog:
        """The steps as a log of one episode."""
        offsets = np.append(0, self.steps["count"].cumsum())
        return BehaviorLog(self.contexts, offsets, self.steps["chosen"].copy(), [0, len(self.steps)])


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


def hits(weights: Vector | None, part: BehaviorLog) -> Hits | None:
    """Which choices of a part have the best score under some weights; None where there are none."""
    return None if weights is None else np.asarray(argmax_per_step(part.contexts @ weights, part) == part.chosen)


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

    def hits(self, part: BehaviorLog) -> Hits | None:
        """Which choices it predicts from the episodes before; a tie of different candidates predicts nothing."""
        if not self.known:
            return None
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
