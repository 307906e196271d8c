"""Simple rivals: what anybody would try first to predict a decider's choices, without asking how it learns.

They go through a log beside the model, and predict each episode from the episodes before. Memory is bounded, whatever
the log's size: choice models learn from a sample of its steps, and items are counted only while they are few.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ibcb.estimators.choice_model import ChoiceModel
from ibcb.inverse.solvers import SolverError
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.report.shown_steps import step_keys

__all__ = ["ItemShares", "Lessons", "choice_weights", "hits"]

Vector = NDArray[np.float64]
Hits = NDArray[np.bool_]

#: numbers (steps x candidates x features) that a choice model learns from, 8 MB
MOST_NUMBERS = 1 << 20
#: steps that it learns from at least, however large they are
_FEWEST_STEPS = 50
#: distinct candidates that are counted, and rows after which they must have come back twice on average
_MOST_ITEMS, _ENOUGH_ROWS = 1 << 16, 1000


@dataclass
class Lessons:
    """Steps to learn from: a sample of bounded size that depends on the steps alone, not on how they arrive.

    Attributes
    ----------
    most_numbers, most_steps : int
        What is kept at most; but at least a few steps, however large they are.
    contexts : ndarray of shape (rows, d)
    counts, chosen, picked : ndarray of shape (steps,)
        Candidates of each step, the chosen one, and what somebody else would have picked.
    seen : int
        Steps offered, kept or not.
    """

    most_numbers: int = MOST_NUMBERS
    most_steps: int = MOST_NUMBERS
    contexts: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    chosen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    picked: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    seen: int = 0
    _keys: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    _episodes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _size: int = 0

    def offer(
        self,
        part: BehaviorLog,
        place: tuple[int, int],
        *,
        picked: NDArray[np.int64] | None = None,
        width: Vector | None = None,
    ) -> None:
        """Steps of an episode: ``place`` is its number and the first of them. A ``width`` becomes another feature."""
        contexts = part.contexts.astype(np.float64, copy=False)
        contexts = contexts if width is None else np.column_stack([contexts, width])
        if self._size == 0:
            fitting = self.most_numbers * part.n_steps // contexts.size
            self._size = min(self.most_steps, max(_FEWEST_STEPS, fitting))
            self.contexts = np.empty((0, contexts.shape[1]))
        self.seen += part.n_steps
        keys = np.append(self._keys, step_keys(*place, part.n_steps))
        bar = keys.max() if len(keys) <= self._size else np.partition(keys, self._size - 1)[self._size - 1]
        old, new = keys[: len(self._keys)] <= bar, keys[len(self._keys) :] <= bar
        counts = np.diff(part.step_offsets)
        self._keys = keys[keys <= bar]
        self.contexts = np.concatenate(
            [self.contexts[np.repeat(old, self.counts)], contexts[np.repeat(new, counts)]], axis=0
        )
        self.counts = np.append(self.counts[old], counts[new])
        self.chosen = np.append(self.chosen[old], part.chosen[new])
        self._episodes = np.append(self._episodes[old], np.full(np.count_nonzero(new), place[0]))
        self.picked = np.append(self.picked[old], (part.chosen if picked is None else picked)[new])

    def since(self, episode: int, most_steps: int, most_numbers: int) -> Lessons:
        """Of the steps kept those from an episode on, so many or so many numbers at most."""
        kept = np.flatnonzero(self._episodes >= episode)
        numbers = self.contexts.shape[1] * float(self.counts[kept].mean()) if len(kept) else 1.0
        most = min(most_steps, max(_FEWEST_STEPS, int(most_numbers / numbers)))
        kept = np.sort(kept[np.argsort(self._keys[kept], kind="stable")[:most]])
        rows = np.repeat(np.isin(np.arange(len(self.counts)), kept), self.counts)
        some = Lessons(contexts=self.contexts[rows], counts=self.counts[kept], chosen=self.chosen[kept])
        some.picked, some.seen = self.picked[kept], len(kept)
        return some

    @property
    def complete(self) -> bool:
        """Whether all steps offered are kept."""
        return len(self.counts) == self.seen

    def log(self) -> BehaviorLog:
        """The steps as a log of one episode."""
        return BehaviorLog(self.contexts, np.append(0, self.counts.cumsum()), self.chosen, [0, len(self.counts)])


def choice_weights(lessons: Lessons) -> Vector | None:
    """Weights of a choice model of some steps; None where they give nothing to learn.

    Features are brought to one scale first, so that their units do not matter.
    """
    if not lessons.seen:
        return None
    log = lessons.log()
    means = np.add.reduceat(log.contexts, log.step_offsets[:-1], axis=0) / lessons.counts[:, None]
    scale = np.sqrt(np.mean(np.square(log.contexts - np.repeat(means, lessons.counts, axis=0)), axis=0))
    scale[scale == 0] = 1.0
    try:
        alike = BehaviorLog(log.contexts / scale, log.step_offsets, log.chosen, log.episode_offsets)
        weights: Vector = ChoiceModel(episodes=1).fit(alike).coef_ / scale
    except (ValueError, SolverError):
        return None
    return weights


def hits(weights: Vector, part: BehaviorLog) -> Hits:
    """Which choices of a part have the best score under some weights."""
    found: Hits = argmax_per_step(part.contexts @ weights, part) == part.chosen
    return found


@dataclass(frozen=True)
class _Counts:
    """How often some items were offered and chosen; items are numbers, in order."""

    items: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    offered: Vector = field(default_factory=lambda: np.empty(0))
    chosen: Vector = field(default_factory=lambda: np.empty(0))

    def plus(self, items: NDArray[np.uint64], offered: Vector, chosen: Vector) -> _Counts:
        """With more of them."""
        every, place = np.unique(np.append(self.items, items), return_inverse=True)
        offers, choices = np.append(self.offered, offered), np.append(self.chosen, chosen)
        return _Counts(every, np.bincount(place, offers).astype(float), np.bincount(place, choices).astype(float))

    def shares(self, items: NDArray[np.uint64]) -> Vector:
        """Of some items, the share of offers that were chosen; 0 where there was none."""
        found = np.zeros(len(items))
        if len(self.items):
            place = np.minimum(np.searchsorted(self.items, items), len(self.items) - 1)
            seen = self.items[place] == items
            # One more offer than there was: who was chosen once of once has not proved much.
            found[seen] = (self.chosen[place] / (self.offered[place] + 1))[seen]
        return found


class ItemShares:
    """Predicts the candidate that was chosen most often of the times it was offered; for candidates that come back.

    Candidates are the same if all their features are. It gives up where they hardly come back, or are too many.
    """

    def __init__(self) -> None:
        self._counts, self._fresh = _Counts(), _Counts()
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
        found: Hits = ~np.logical_or.reduceat(rivals, part.step_offsets[:-1]) & (share[chosen] > 0)
        return found

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
        fresh, self._fresh = self._fresh, _Counts()
        self._counts = self._counts.plus(fresh.items, fresh.offered, fresh.chosen)
        rare = self._counts.offered.sum() >= _ENOUGH_ROWS and not self.known
        if self._gave_up or rare or len(self._counts.items) > _MOST_ITEMS:
            self._counts, self._gave_up = _Counts(), True


def _items(contexts: NDArray[np.float64]) -> NDArray[np.uint64]:
    """A number for each row, the same for equal rows; different rows have different ones but for bad luck (1 in 2^64).

    Multiplies and mixes column by column, as SplitMix64 does.
    """
    # + 0.0: -0.0 equals 0.0.
    bits = np.ascontiguousarray(contexts.astype(np.float64) + 0.0).view(np.uint64)
    found = np.full(len(contexts), 0x632BE59BD9B4E019, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in bits.T:
            found = (found ^ column) * np.uint64(0x9E3779B97F4A7C15)
            found ^= found >> np.uint64(29)
    return found
