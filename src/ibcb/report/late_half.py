"""How the later half of a log was predicted, beside simple rivals, and how far its own choices bear the prediction out.

Whether `predict` will pick what the decider prefers next cannot be read off the share of choices predicted: a decider
that draws, or chooses at random now and then, is not predicted where it does. Two figures tell that are free of its
luck: how often what an episode showed left the preference predicted of it as it was, and how often that preference is
the one of the weights that explain the choices of these episodes by themselves, without what came before. Such weights
have errors of their own, which the weights of the even and of the odd steps tell: they are twice as far apart.

Which half is the later one is known only at the end. Until then every episode has tallies of its own, and of the steps
a sample is kept, of bounded size whatever the length of the log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.deciders.logit import policy_alone
from ibcb.engine import Block
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.report.rivals import ItemShares, Lessons, choice_weights, hits

__all__ = ["Late", "LateHalf", "Paired", "Seen"]

Vector = NDArray[np.float64]

#: how rivals are called
_LAST, _ALL, _ITEMS = "choice model of the last episode", "choice model of all episodes before", "item shares"
#: the choice model of all episodes before is fitted again when they have grown by this factor
_GROWN = 1.25
#: numbers (steps x candidates x features) of a sample, 2 MB: 2,600 steps of the paper's size
_NUMBERS = 1 << 18
#: steps per weight that are read by themselves, in one episode or several: fewer tell little (benchmarks/verdicts.py)
_STEPS_PER_WEIGHT = 80
#: samples to be read by themselves that wait for the end, 64 MB; beyond it every second one is let go
_MOST_WAITING = 32
#: steps of the sample: a standard error of .004 in a share of .98; and how many times as many of the whole log are kept
_SAMPLED_STEPS, _TIMES_SAMPLED = 1000, 4


class Seen(NamedTuple):
    """Of some steps: which choices were predicted, which candidate was preferred one episode ahead, without
    exploration, whether it still was once the episode was seen, and the width of every candidate where that matters.
    """

    hit: NDArray[np.bool_]
    preferred: NDArray[np.int64]
    kept: NDArray[np.bool_]
    width: Vector | None


class Paired(NamedTuple):
    """A rival on the same steps: its name, the share it predicts, and the steps that only the model or only it did.

    ``greedy_only`` and ``over_greedy``: the same of the model without exploration, which is what `predict` picks.
    """

    name: str
    share: float
    model_only: int
    rival_only: int
    greedy_only: int
    over_greedy: int


@dataclass(frozen=True)
class Late:
    """How the later half of the episodes was predicted, each from the episodes before.

    Attributes
    ----------
    episodes, steps : int
    predicted : float
        Share of choices predicted.
    greedy : float
        Share of choices of the candidate preferred, without exploration.
    chance : float
        Share that a blind draw would meet.
    rivals : tuple of Paired
        The best first.
    kept : float
        Share of steps at which the candidate preferred one episode ahead still was once the episode was seen.
    confirmed : float
        Share of steps at which it is the one of the weights that explain the choices of these episodes by themselves.
    borne_out : float
        The same, the errors of these weights aside: 1 - sqrt(D^2 - E^2), of the share D = 1 - ``confirmed`` that
        differs and the share E by which these errors explain it. Shares of steps that differ are about in proportion to
        lengths, and errors add up by their squares.
    sample : BehaviorLog
        Some of the steps.
    """

    episodes: int
    steps: int
    predicted: float
    greedy: float
    chance: float
    rivals: tuple[Paired, ...]
    kept: float
    confirmed: float
    borne_out: float
    sample: BehaviorLog


class _Tally:
    """Counts over the steps of an episode that could be predicted."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps = self.hit = self.greedy = self.kept = 0
        self.chance = 0.0
        self.rivals: dict[str, NDArray[np.int64]] = {}


class _Waiting(NamedTuple):
    """Steps to be read by themselves, should they turn out to be of the later half: its first episode, and kind."""

    first: int
    lessons: Lessons
    kind: Kind


class LateHalf:
    """Gathers `Late` while episodes go by; rivals learn from all of them."""

    def __init__(self) -> None:
        self._tallies: list[_Tally] = []
        self._kind: Kind | None = None
        self._last: Vector | None = None
        self._all: Vector | None = None
        self._fit_at = 0.0
        self._before, self._items = Lessons(_NUMBERS), ItemShares()
        self._alone: _Waiting | None = None
        self._waiting: list[_Waiting] = []
        self._sample = Lessons(_NUMBERS * _TIMES_SAMPLED, _SAMPLED_STEPS * _TIMES_SAMPLED)

    def begin_episode(self, number: int, last: Vector | None, kind: Kind, *, predicted: bool) -> None:
        """``last``: weights of a choice model of the last episode; ``predicted``: whether this one could be."""
        self._last, self._kind = last, kind
        if not predicted:
            return
        self._tallies.append(_Tally(number))
        if len(self._tallies) >= self._fit_at:
            self._all = choice_weights(self._before)
            self._fit_at = _GROWN * len(self._tallies)

    def add(self, number: int, first: int, part: BehaviorLog, seen: Seen | None) -> None:
        """A part of an episode that begins with its step ``first``, and what was predicted of it."""
        place = (number, first)
        if seen is not None and self._kind is not None:
            tally = self._tallies[-1]
            tally.steps += part.n_steps
            tally.hit += int(np.count_nonzero(seen.hit))
            tally.kept += int(np.count_nonzero(seen.kept))
            tally.chance += float((1.0 / np.diff(part.step_offsets)).sum())
            self._sample.offer(part, place)
            if self._alone is None:
                self._alone = _Waiting(number, Lessons(_NUMBERS), self._kind)
            self._alone.lessons.offer(part, place, picked=seen.preferred, width=seen.width)
            greedy = seen.preferred == part.chosen
            tally.greedy += int(np.count_nonzero(greedy))
            self._compare(tally, part, seen.hit, greedy)
        self._before.offer(part, place)
        self._items.learn(part)

    def _compare(self, tally: _Tally, part: BehaviorLog, own: NDArray[np.bool_], greedy: NDArray[np.bool_]) -> None:
        guesses = {name: hits(w, part) for name, w in ((_LAST, self._last), (_ALL, self._all)) if w is not None}
        if self._items.known:
            guesses[_ITEMS] = self._items.hits(part)
        for name, guess in guesses.items():
            apart = (guess, own & ~guess, guess & ~own, greedy & ~guess, guess & ~greedy)
            counts = np.array([np.count_nonzero(each) for each in apart])
            tally.rivals[name] = tally.rivals.get(name, 0) + counts

    def end_episode(self) -> None:
        """The episode is over: rivals may use it."""
        self._items.end_episode()
        alone = self._alone
        if alone is None or alone.lessons.seen < _STEPS_PER_WEIGHT * alone.lessons.contexts.shape[1]:
            return
        self._alone = None
        # What lies before the later half of the episodes so far lies before that of all.
        late = self._late[0].number
        self._waiting = [*(each for each in self._waiting if each.first >= late), alone]
        if len(self._waiting) > _MOST_WAITING:
            self._waiting = self._waiting[1::2]

    @property
    def _late(self) -> list[_Tally]:
        return self._tallies[len(self._tallies) // 2 :]

    def found(self) -> Late | None:
        """All of it; None where nothing could be predicted."""
        late = self._late
        steps = sum(each.steps for each in late)
        if not steps:
            return None
        read = [each for each in self._waiting if each.first >= late[0].number]
        if not read:
            # What is left over, or began earlier, is read if there is nothing else: it tells less.
            left = [each for each in (self._alone, *self._waiting[-1:]) if each is not None]
            read = [max(left, key=lambda each: each.lessons.seen)]
        apart = np.array([_apart(each.lessons, each.kind) for each in read])
        differ, errors = np.average(apart, axis=0, weights=[each.lessons.seen for each in read]).tolist()
        names = dict.fromkeys(name for each in late for name in each.rivals)
        rivals = []
        for name in names:
            hit, *counts = np.sum([each.rivals[name] for each in late if name in each.rivals], axis=0).tolist()
            rivals.append(Paired(name, hit / steps, *counts))
        return Late(
            episodes=len(late),
            steps=steps,
            predicted=sum(each.hit for each in late) / steps,
            greedy=sum(each.greedy for each in late) / steps,
            chance=sum(each.chance for each in late) / steps,
            rivals=tuple(sorted(rivals, key=lambda rival: -rival.share)),
            kept=sum(each.kept for each in late) / steps,
            confirmed=1 - differ,
            borne_out=1 - math.sqrt(max(0.0, differ**2 - errors**2)),
            sample=self._sample.since(late[0].number, _SAMPLED_STEPS, _NUMBERS).log(),
        )


def _apart(lessons: Lessons, kind: Kind) -> tuple[float, float]:
    """Share of steps whose picked candidate is not the best one by the weights that explain the choices by themselves,
    and the share by which the errors of these weights explain it.
    """
    best = _best_alone(lessons, kind, slice(None))
    even, odd = (_best_alone(lessons, kind, slice(first, None, 2)) for first in (0, min(1, lessons.seen - 1)))
    return float(np.mean(best != lessons.picked)), float(np.mean(even != odd)) / 2


def _best_alone(lessons: Lessons, kind: Kind, steps: slice) -> NDArray[np.int64]:
    """Best candidate of every step by the weights that explain the choices of some of them."""
    log = lessons.log()
    chosen_rows, counts = log.chosen_rows[steps], lessons.counts[steps]
    kept = np.zeros(len(lessons.counts), dtype=bool)
    kept[steps] = True
    offsets = np.append(0, counts.cumsum())
    rows = np.repeat(kept, lessons.counts)
    inside = offsets[:-1] + chosen_rows - log.step_offsets[:-1][steps]
    block = Block(log.contexts[rows], inside, offsets, log.candidates_per_step, 0, 0)
    weights = policy_alone(block, kind.top_k)
    if kind.per_unit is not None:
        # The last feature is the width: it explains exploration, and is not preferred.
        weights[-1] = 0.0
    return argmax_per_step(log.contexts @ weights, log)
