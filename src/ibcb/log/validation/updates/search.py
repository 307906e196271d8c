"""The cut that explains the choices best: any edges at all, or those of a regular schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log.validation.updates.schedules import DAY, USUAL_PERIODS, Schedule, log_prior, zones_that_shift
from ibcb.log.validation.updates.walk import Walk

__all__ = ["Found", "Steps", "find_cut"]

Edges = NDArray[np.int64]

#: places tried for a free edge, and what an edge must add to the evidence above log(steps)
_PLACES, _WORTH = 160, 6.0
#: each may double the number of edges
_MOST_ROUNDS = 8
#: what an edge of a schedule costs: one that says nothing is not to be had for nothing
_EDGE = 0.3
#: an episode has so many steps at least, and a log so many episodes at most
_LEAST_STEPS, _MOST_EPISODES = 25, 200
#: relative distance of the periods that are tried, how many of them are looked at closely, and in how many places
_SPACING, _CLOSER, _CLOSE_PLACES = 0.015, 5, 40
#: free edges of which pairs propose a schedule
_PROPOSERS = 8
#: schedules that are compared at the end, and the log-evidence by which one that is doubtful leads
_FINALISTS, _CLOSE = 4, 3.0
#: episodes of the cut by which the pace is found, and how far an edge may be off by the first expansion
_NEUTRAL, _FAR_OFF = 50, 30


class Steps(NamedTuple):
    """The steps that are cut: how many, the times of all of them, and which of them the walk has."""

    total: int
    seconds: NDArray[np.float64] | None
    sampled: Edges

    def cut(self, edges: Edges) -> list[int]:
        """Edges as steps of the sample."""
        places = np.unique(np.searchsorted(self.sampled, edges))
        return [int(place) for place in places if place < len(self.sampled)]


class Found(NamedTuple):
    """A cut and its value: evidence, prior and the cost of its edges.

    ``edges`` are steps of the log. Of a schedule: which, and another that is almost as good.
    """

    value: float
    edges: Edges
    schedule: Schedule | None = None
    rival: Schedule | None = None


def find_cut(walk: Walk, steps: Steps, zone: str | None) -> tuple[Found, Found | None]:
    """The best cut with free edges, and the best by a schedule; None where the log is too short for one."""
    # The pace first, from a cut that favours no place.
    neutral = range(0, walk.n, max(_LEAST_STEPS, walk.n // _NEUTRAL))
    walk.settle(neutral)
    free = _grown(walk, [0])
    schedules = _proposed(walk, steps, free, zone)
    sharp = walk.sharpened(free)
    if len(sharp) != len(free) or np.abs(np.subtract(sharp, free)).max() > _FAR_OFF:
        # The policy changes so much that steps near the edge misled: once more, about the policies that were found.
        walk.expand(sharp)
        walk.settle(neutral)
        free = _grown(walk, sharp)
        schedules += _proposed(walk, steps, free, zone)
    free = walk.sharpened(free)
    best_free = Found(walk.judge(free) - (len(free) - 1) * math.log(walk.n), steps.sampled[free] * (np.array(free) > 0))
    judge = _Judge(walk, steps, zone)
    judged = [(judge.settled(schedule), schedule) for schedule in dict.fromkeys(schedules)]
    judged = sorted((pair for pair in judged if pair[0] > -math.inf), key=lambda pair: pair[0], reverse=True)
    if not judged:
        return best_free, None
    value, schedule = judged[0]
    edges = schedule.edges(steps.total, steps.seconds)
    rivals = (one for other, one in judged[1:] if other > value - _CLOSE and _differ(edges, one, steps))
    return best_free, Found(value, edges, schedule, next(rivals, None))


def _proposed(walk: Walk, steps: Steps, free: list[int], zone: str | None) -> list[Schedule]:
    """The likeliest schedules, as far as the present expansion tells."""
    judge = _Judge(walk, steps, zone)
    found = [*_by_count(judge, steps, free)]
    if steps.seconds is not None and steps.seconds[-1] > steps.seconds[0]:
        found += _by_time(judge, steps, free, zone)
    return judge.best(found, _FINALISTS)


def _differ(edges: Edges, schedule: Schedule, steps: Steps) -> bool:
    """Whether a tenth of the edges or more are elsewhere by the other schedule, by a tenth of an episode or more."""
    other = schedule.edges(steps.total, steps.seconds)
    far = np.abs(edges[:, None] - other[None]).min(axis=1) > 0.1 * steps.total / len(edges)
    return len(other) != len(edges) or bool(far.mean() >= 0.1)


def _grown(walk: Walk, cut: list[int]) -> list[int]:
    n = walk.n
    worth = _WORTH + math.log(n)
    cut, here = _pruned(walk, cut, worth)
    grid: Edges = np.unique(np.linspace(_LEAST_STEPS, n - _LEAST_STEPS, _PLACES).astype(int))
    for _ in range(_MOST_ROUNDS):
        added = []
        for first, last in zip(cut, [*cut[1:], n], strict=True):
            inside = [int(k) for k in grid if first + _LEAST_STEPS <= k <= last - _LEAST_STEPS]
            if inside:
                values = walk.evidences([sorted([*cut, k]) for k in inside])
                if values.max() - here > worth:
                    added.append(inside[int(values.argmax())])
        if not added:
            break
        cut, here = _pruned(walk, _moved(walk, sorted([*cut, *added])), worth)
    return cut


def _moved(walk: Walk, cut: list[int]) -> list[int]:
    """Every edge where it explains most, the others as they are."""
    reach = max(2, walk.n // _PLACES)
    while reach >= 1:
        for place in range(1, len(cut)):
            low = cut[place - 1] + 1
            high = (cut[place + 1] if place + 1 < len(cut) else walk.n) - 1
            tries = sorted({min(max(cut[place] + move, low), high) for move in (-reach, 0, reach)})
            values = walk.evidences([[*cut[:place], k, *cut[place + 1 :]] for k in tries])
            cut[place] = tries[int(values.argmax())]
        reach //= 2
    return cut


def _pruned(walk: Walk, cut: list[int], worth: float) -> tuple[list[int], float]:
    """Without the edges that are not worth their place, the least first; and the evidence then."""
    here = walk.evidence(cut)
    while len(cut) > 1:
        shorter = [[*cut[:k], *cut[k + 1 :]] for k in range(1, len(cut))]
        values = walk.evidences(shorter)
        if here - values.max() >= worth:
            break
        cut, here = shorter[int(values.argmax())], float(values.max())
    return cut, here


class _Judge:
    """Values schedules, each once."""

    def __init__(self, walk: Walk, steps: Steps, zone: str | None) -> None:
        self._walk, self._steps, self._zone = walk, steps, zone
        self._known: dict[Schedule, float] = {}

    def best(self, schedules: Iterable[Schedule], most: int = 1) -> list[Schedule]:
        """The likeliest of some schedules, in order."""
        asked = list(dict.fromkeys(schedules))
        cuts = {schedule: self._cut(schedule) for schedule in asked if schedule not in self._known}
        possible = [schedule for schedule, cut in cuts.items() if cut is not None]
        self._known |= dict.fromkeys(cuts, -math.inf)
        evidence = self._walk.evidences([cuts[schedule] or [] for schedule in possible])
        for schedule, found in zip(possible, evidence.tolist(), strict=True):
            self._known[schedule] = found + self._prior(schedule, cuts[schedule] or [])
        ranked = sorted(asked, key=self._known.__getitem__, reverse=True)
        return [schedule for schedule in ranked[:most] if self._known[schedule] > -math.inf]

    def settled(self, schedule: Schedule) -> float:
        """The value at the pace that suits the schedule, and expanded about it."""
        cut = self._cut(schedule)
        if cut is None:
            return -math.inf
        return self._walk.judge(cut) + self._prior(schedule, cut)

    def _cut(self, schedule: Schedule) -> list[int] | None:
        """None where it has too few edges to be a schedule, or too many."""
        cut = self._steps.cut(schedule.edges(self._steps.total, self._steps.seconds))
        return cut if 3 <= len(cut) <= _MOST_EPISODES else None

    def _prior(self, schedule: Schedule, cut: list[int]) -> float:
        guessed = self._zone is None and schedule.zone != "UTC"
        return log_prior(schedule, guessed) - _EDGE * len(cut)


def _by_count(judge: _Judge, steps: Steps, free: list[int]) -> Iterator[Schedule]:
    n = steps.total
    least = max(_LEAST_STEPS, n // _MOST_EPISODES)
    if 2 * least > n:
        return
    periods = np.unique(np.geomspace(least, n // 2, 1 + int(math.log(n / 2 / least) / _SPACING)).astype(int))
    for schedule in judge.best((Schedule("steps", p, p) for p in periods.tolist()), _CLOSER):
        [found] = judge.best(Schedule("steps", p, p) for p in _around(schedule.period))
        yield found
    edges = steps.sampled[_proposers(free)]
    proposed = (
        Schedule("steps", period, offset)
        for first, period in _lattices(edges, least)
        for offset in {int(first), int(first) % period or period}
    )
    for found in judge.best(proposed, _CLOSER):
        for _ in range(2):
            [found] = judge.best(replace(found, period=p) for p in _around(found.period))
            [found] = judge.best(replace(found, offset=o) for o in _around(found.offset, found.period))
        yield found


def _by_time(judge: _Judge, steps: Steps, free: list[int], zone: str | None) -> Iterator[Schedule]:
    assert steps.seconds is not None
    first, last = float(steps.seconds[0]), float(steps.seconds[-1])
    least = max((last - first) / _MOST_EPISODES, (last - first) * _LEAST_STEPS / steps.total)
    clocks = ["UTC", *zones_that_shift(first, last)] if zone is None else [zone]
    for period in USUAL_PERIODS:
        if not least <= period <= (last - first) / 2:
            continue
        # An hour of the day is one of local time; shorter periods go by the clock that all zones share.
        for where in clocks if period % DAY == 0 else ["UTC"]:
            coarse = max(60, period // 24 if period <= DAY else 3600)
            schedules = [Schedule("seconds", period, offset, where) for offset in range(0, period, coarse)]
            for found in judge.best(schedules, 2):
                for finer in (900, 300, 60):
                    if finer >= coarse:
                        continue
                    near = (found.offset + finer * k for k in range(-4, 5))
                    [found] = judge.best(replace(found, offset=offset % period) for offset in near)
                yield found
    edges = steps.seconds[steps.sampled[_proposers(free)]]
    unit = 60 if least > 3600 else 1
    proposed = (
        Schedule("seconds", period * unit, int(start) % (period * unit))
        for start, period in _lattices(edges / unit, least / unit)
    )
    for found in judge.best(proposed, 2):
        for _ in range(2):
            [found] = judge.best(
                replace(found, period=p * unit, offset=found.offset % (p * unit)) for p in _around(found.period // unit)
            )
            [found] = judge.best(
                replace(found, offset=o * unit % found.period)
                for o in _around(found.offset // unit, found.period // unit)
            )
        yield found


def _proposers(free: list[int]) -> Edges:
    """The free edges that propose schedules: the first ones, at which policies move most."""
    return np.array(free[1 : 1 + _PROPOSERS], dtype=np.int64)


def _lattices(edges: NDArray[np.float64] | Edges, least: float) -> Iterator[tuple[float, int]]:
    """First place and period of lattices through two edges, with up to three places between them."""
    for one, other in combinations(edges.tolist(), 2):
        for parts in (1, 2, 3, 4):
            period = round((other - one) / parts)
            if period >= max(least, 1):
                yield one, period


def _around(value: int, scale: int | None = None) -> list[int]:
    """Whole numbers about a value, as far as periods are apart; all of them, or evenly some and the roundest."""
    reach = max(3, math.ceil((scale or value) * _SPACING))
    every = range(max(1, value - reach), value + reach + 1)
    stride = max(1, len(every) // _CLOSE_PLACES)
    round_ = {
        number for size in (10, 100, 1000, 10_000) for number in range(-(-every.start // size) * size, every.stop, size)
    }
    return sorted({value, *every[::stride], *sorted(round_ - {0})[:_CLOSE_PLACES]})
