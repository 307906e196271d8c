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
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.deciders.logit import policy_alone
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.numerics.arrays import Vector
from ibcb.report.lessons import Lessons
from ibcb.report.reading import ReadPart, block_of
from ibcb.report.rivals import ItemShares, choice_weights, hits
from ibcb.report.verdict import Figures

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
    exploration, and whether it still was once the episode was seen.
    """

    hit: NDArray[np.bool_]
    preferred: NDArray[np.int64]
    kept: NDArray[np.bool_]


class _EpisodeSums(NamedTuple):
    """Sums over the steps of an episode that could be predicted. Of each rival, choices that it predicts, that the
    model or it alone predicts, and that the model without exploration, which is what `predict` picks, or it alone does.
    """

    number: int
    sums: Any
    rivals: dict[str, NDArray[np.int64]]


class _Waiting(NamedTuple):
    """Steps to be read by themselves, should they turn out to be of the later half: its first episode, and kind."""

    first: int
    lessons: Lessons
    kind: Kind


class LateHalf:
    """Gathers `Figures` while episodes go by; rivals learn from all of them."""

    def __init__(self) -> None:
        self._tallies: list[_EpisodeSums] = []
        self._guessing: dict[str, Vector | None] = {}
        self._fit_at = 0.0
        self._before, self._items = Lessons(_NUMBERS), ItemShares()
        self._alone: _Waiting | None = None
        self._waiting: list[_Waiting] = []
        self._sample = Lessons(_NUMBERS * _TIMES_SAMPLED, _SAMPLED_STEPS * _TIMES_SAMPLED)

    def begin_episode(self, number: int, last: Vector | None, *, predicted: bool) -> None:
        """``last``: weights of a choice model of the last episode; ``predicted``: whether this one could be."""
        self._guessing[_LAST] = last
        if not predicted:
            return
        self._tallies.append(_EpisodeSums(number, Counter(), {}))
        if len(self._tallies) >= self._fit_at:
            self._guessing[_ALL] = choice_weights(self._before)
            self._fit_at = _GROWN * len(self._tallies)

    def add(self, part: ReadPart, seen: Seen | None, kind: Kind) -> None:
        """A part of an episode, and what was predicted of it."""
        if seen is not None:
            greedy, counts = seen.preferred == part.log.chosen, np.diff(part.log.step_offsets)
            self._tallies[-1].sums.update(
                steps=part.log.n_steps,
                hit=int(np.count_nonzero(seen.hit)),
                greedy=int(np.count_nonzero(greedy)),
                kept=int(np.count_nonzero(seen.kept)),
                chance=float((1.0 / counts).sum()),
            )
            self._compare(part.log, seen.hit, greedy)
            self._sample.offer(part.log, part.place)
            if self._alone is None:
                self._alone = _Waiting(part.number, Lessons(_NUMBERS), kind)
            width = None if kind.per_unit is None else part.width
            self._alone.lessons.offer(part.log, part.place, picked=seen.preferred, width=width)
        self._before.offer(part.log, part.place)
        self._items.learn(part.log)

    def _compare(self, part: BehaviorLog, own: NDArray[np.bool_], greedy: NDArray[np.bool_]) -> None:
        guesses = {name: hits(weights, part) for name, weights in self._guessing.items() if weights is not None}
        if self._items.known:
            guesses[_ITEMS] = self._items.hits(part)
        rivals = self._tallies[-1].rivals
        for name, guess in guesses.items():
            apart = (guess, own & ~guess, guess & ~own, greedy & ~guess, guess & ~greedy)
            rivals[name] = rivals.get(name, 0) + np.array([np.count_nonzero(each) for each in apart])

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
    def _late(self) -> list[_EpisodeSums]:
        return self._tallies[len(self._tallies) // 2 :]

    def finish(self) -> tuple[Figures, BehaviorLog] | None:
        """What a verdict goes by, and some of the steps; None where nothing could be predicted."""
        late = self._late
        sums = sum((each.sums for each in late), Counter[str]())
        steps = sums["steps"]
        if not steps:
            return None
        rivals: dict[str, NDArray[np.int64]] = {}
        for each in late:
            for name, counts in each.rivals.items():
                rivals[name] = rivals.get(name, 0) + counts
        best = max(rivals, key=lambda name: rivals[name][0], default=None)
        hit, *apart = (0,) * 5 if best is None else rivals[best].tolist()
        differ, errors = self._apart(late[0].number)
        figures = Figures.of(
            episodes=len(late),
            steps=steps,
            predicted=sums["hit"] / steps,
            greedy=sums["greedy"] / steps,
            chance=sums["chance"] / steps,
            rival=best,
            rival_predicted=None if best is None else hit / steps,
            apart=apart,
            kept=sums["kept"] / steps,
            confirmed=1 - differ,
            # Shares of steps that differ are about in proportion to lengths, and errors add up by their squares.
            borne_out=1 - math.sqrt(max(0.0, differ**2 - errors**2)),
        )
        return figures, self._sample.since(late[0].number, _SAMPLED_STEPS, _NUMBERS).log()

    def _apart(self, late: int) -> tuple[float, float]:
        """Share of steps, from an episode on, whose preferred candidate is not the one of the weights that explain the
        choices by themselves, and the share by which the errors of these weights explain it.
        """
        read = [each for each in self._waiting if each.first >= late]
        if not read:
            # What is left over, or began earlier, is read if there is nothing else: it tells less.
            left = [each for each in (self._alone, *self._waiting[-1:]) if each is not None]
            read = [max(left, key=lambda each: each.lessons.seen)]
        shares = []
        for _, lessons, kind in read:
            best = _best_alone(lessons, kind, slice(None))
            even, odd = (_best_alone(lessons, kind, slice(first, None, 2)) for first in (0, min(1, lessons.seen - 1)))
            shares.append((float(np.mean(best != lessons.steps["picked"])), float(np.mean(even != odd)) / 2))
        differ, errors = np.average(np.array(shares), axis=0, weights=[each.lessons.seen for each in read]).tolist()
        return differ, errors


def _best_alone(lessons: Lessons, kind: Kind, steps: slice) -> NDArray[np.int64]:
    """Best candidate of every step by the weights that explain the choices of some of them."""
    kept = np.zeros(len(lessons.steps), dtype=bool)
    kept[steps] = True
    weights = policy_alone(block_of(lessons.some(kept).log()), kind.top_k)
    if kind.per_unit is not None:
        # The last feature is the width: it explains exploration, and is not preferred.
        weights[-1] = 0.0
    log = lessons.log()
    return argmax_per_step(log.contexts @ weights, log)
