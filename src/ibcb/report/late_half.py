"""How the later half of a log was predicted, beside simple rivals, and how far its own choices bear the prediction out.

Whether `predict` will pick what the decider prefers next cannot be read off the share of choices predicted: a decider
that draws, or chooses at random now and then, is not predicted where it does. Two figures tell that are free of its
luck: how often what an episode showed left the preference predicted of it as it was, and how often that preference is
the one of the weights that explain the choices of these episodes by themselves, without what came before. Such weights
have errors of their own, which the weights of the even and of the odd steps tell: they are twice as far apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.deciders.topk import TopKKind
from ibcb.engine import Block
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.history import EpisodePart
from ibcb.report.rivals import ItemShares, Lessons, choice_weights, hits

__all__ = ["Late", "LateHalf", "Paired", "Seen"]

Vector = NDArray[np.float64]

#: how rivals are called
_LAST, _ALL, _ITEMS = "choice model of the last episode", "choice model of all episodes before", "item shares"
#: the choice model of all episodes before is fitted again so often
_REFITS = 5
#: numbers (steps x candidates x features) of a sample, 2 MB: 2,600 steps of the paper's size
_NUMBERS = 1 << 18
#: steps per weight that are read by themselves, in one episode or several: fewer tell little (benchmarks/verdicts.py)
_STEPS_PER_WEIGHT = 80
#: steps of the sample: a standard error of .004 in a share of .98
_SAMPLED_STEPS = 1000


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


class LateHalf:
    """Gathers `Late` while episodes go by, the early ones included, from which rivals learn."""

    def __init__(self, late: Sequence[int], kind: Kind) -> None:
        self._late, self._kind = {number: place for place, number in enumerate(late)}, kind
        self._refit_every = -(-len(late) // _REFITS)
        self._last: Vector | None = None
        self._all: Vector | None = None
        self._before, self._items, self._alone = Lessons(_NUMBERS), ItemShares(), Lessons(_NUMBERS)
        self._sample = Lessons(_NUMBERS, _SAMPLED_STEPS)
        self._hit = self._greedy = self._kept = 0
        self._steps, self._sizes = 0, Counter[int]()
        self._rivals: dict[str, list[int]] = {}
        self._apart: list[tuple[int, float, float]] = []

    def begin_episode(self, number: int, last: Vector | None) -> None:
        """``last``: weights of a choice model of the last episode."""
        self._last = last
        if number in self._late and self._late[number] % self._refit_every == 0:
            self._all = choice_weights(self._before)

    def add(self, number: int, entry: EpisodePart, seen: Seen | None) -> None:
        """A part of an episode, and what was predicted of it."""
        part, place = entry.part, (number, entry.first)
        if number in self._late and seen is not None:
            self._steps += part.n_steps
            self._hit += int(np.count_nonzero(seen.hit))
            self._kept += int(np.count_nonzero(seen.kept))
            self._sizes.update(np.diff(part.step_offsets).tolist())
            self._sample.offer(part, place)
            self._alone.offer(part, place, picked=seen.preferred, width=seen.width)
            greedy = seen.preferred == part.chosen
            self._greedy += int(np.count_nonzero(greedy))
            self._compare(part, seen.hit, greedy)
        self._before.offer(part, place)
        self._items.learn(part)

    def _compare(self, part: BehaviorLog, own: NDArray[np.bool_], greedy: NDArray[np.bool_]) -> None:
        guesses = {name: hits(w, part) for name, w in ((_LAST, self._last), (_ALL, self._all)) if w is not None}
        if self._items.known:
            guesses[_ITEMS] = self._items.hits(part)
        for name, guess in guesses.items():
            totals = self._rivals.setdefault(name, [0] * 5)
            apart = (own & ~guess, guess & ~own, greedy & ~guess, guess & ~greedy)
            for place, each in enumerate((guess, *apart)):
                totals[place] += int(np.count_nonzero(each))

    def end_episode(self, number: int) -> None:
        """The episode is over: rivals may use it."""
        self._items.end_episode()
        if self._alone.seen and self._alone.seen >= _STEPS_PER_WEIGHT * self._alone.contexts.shape[1]:
            self._read_alone()

    def _read_alone(self) -> None:
        """Compare what was preferred with the weights that explain the steps gathered so far by themselves."""
        gathered, self._alone = self._alone, Lessons(_NUMBERS)
        self._apart.append((gathered.seen, *_apart(gathered, self._kind)))

    def found(self) -> Late | None:
        """All of it; None where nothing could be predicted."""
        if not self._steps:
            return None
        # What is left over at the end is read if there is nothing else, and not otherwise: it would tell little.
        if not self._apart:
            self._read_alone()
        rivals = [Paired(name, hit / self._steps, *apart) for name, (hit, *apart) in self._rivals.items()]
        weights, *shares = zip(*self._apart, strict=True)
        differ, errors = (float(np.average(each, weights=weights)) for each in shares)
        return Late(
            episodes=len(self._late),
            steps=self._steps,
            predicted=self._hit / self._steps,
            greedy=self._greedy / self._steps,
            chance=sum(self._sizes[size] / size for size in sorted(self._sizes)) / self._steps,
            rivals=tuple(sorted(rivals, key=lambda rival: -rival.share)),
            kept=self._kept / self._steps,
            confirmed=1 - differ,
            borne_out=1 - math.sqrt(max(0.0, differ**2 - errors**2)),
            sample=self._sample.log(),
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
    weights = TopKKind(top_k=kind.top_k).policy_alone(block)
    if kind.adds_bonus:
        # The last feature is the width: it explains exploration, and is not preferred.
        weights[-1] = 0.0
    return argmax_per_step(log.contexts @ weights, log)
