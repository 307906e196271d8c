"""The cut that explains the choices best: any edges at all, or those of a regular schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log.validation.updates.evidence import CutEvidence
from ibcb.log.validation.updates.schedules import DAY, USUAL_PERIODS, Schedule, log_prior, zones_that_shift

Edges = NDArray[np.int64]

#: places tried for a free edge, and what an edge must add to the evidence above log(steps)
_PLACES, _WORTH = 160, 6.0
#: each may double the number of edges
_MOST_ROUNDS = 8
#: what an edge of a schedule costs: one that says nothing is not to be had for nothing
_EDGE = 0.3
#: an episode has so many steps at least, and a log so many episodes at most
_LEAST_STEPS, _MOST_EPISODES = 25, 200
#: relative distance of the periods that are tried, and in how many places
_SPACING, _CLOSE_PLACES = 0.015, 40
#: schedules that are looked at closely, by count and by time
_CLOSER, _CLOSER_IN_TIME = 5, 2
#: free edges of which pairs propose a schedule: the first ones, at which policies move most
_PROPOSERS = 8
#: schedules that are compared at the end, and the log-evidence by which one that is doubtful leads
_FINALISTS, _CLOSE = 4, 3.0
#: episodes of the cut by which the pace is found, and how far an edge may be off by the first expansion
_NEUTRAL, _FAR_OFF = 50, 30


class Timeline(NamedTuple):
    """The steps that are cut: how many, the times of all of them, and which of them were sampled."""

    total: int
    seconds: NDArray[np.float64] | None
    sampled: Edges

    def cut(self, edges: Edges) -> list[int]:
        """Edges as steps of the sample."""
        places = np.unique(np.searchsorted(self.sampled, edges))
        return [int(place) for place in places if place < len(self.sampled)]

    def edges(self, schedule: Schedule) -> Edges:
        """The edges of a schedule."""
        return schedule.edges(self.total, self.seconds)


class BestCut(NamedTuple):
    """A cut and its value: evidence, prior and the cost of its edges.

    ``edges`` are steps of the log. Of a schedule: which, and another that is almost as good.
    """

    value: float
    edges: Edges
    schedule: Schedule | None = None
    rival: Schedule | None = None


def find_cut(evidence: CutEvidence, timeline: Timeline, zone: str | None) -> tuple[BestCut, BestCut | None]:
    """The best cut with free edges, and the best by a schedule; None where the log is too short for one."""
    # The pace first, from a cut that favours no place.
    neutral = range(0, evidence.n, max(_LEAST_STEPS, evidence.n // _NEUTRAL))
    evidence.settle(neutral)
    free = _grown(evidence, [0])
    schedules = _proposed(evidence, timeline, free, zone)
    sharp = evidence.sharpened(free)
    if len(sharp) != len(free) or np.abs(np.subtract(sharp, free)).max() > _FAR_OFF:
        # The policy changes so much that steps near the edge misled: once more, about the policies that were found.
        evidence.expand(sharp)
        evidence.settle(neutral)
        free = _grown(evidence, sharp)
        schedules += _proposed(evidence, timeline, free, zone)
    free = evidence.sharpened(free)
    value = evidence.judge(free) - (len(free) - 1) * math.log(evidence.n)
    best_free = BestCut(value, timeline.sampled[free] * (np.array(free) > 0))
    judge = _Judge(evidence, timeline, zone)
    judged = [(judge.settled(schedule), schedule) for schedule in dict.fromkeys(schedules)]
    judged = sorted((pair for pair in judged if pair[0] > -math.inf), key=lambda pair: pair[0], reverse=True)
    if not judged:
        return best_free, None
    value, schedule = judged[0]
    edges = timeline.edges(schedule)
    rivals = (
        one for other, one in judged[1:] if other > value - _CLOSE and _differ(edges, timeline.edges(one), timeline)
    )
    return best_free, BestCut(value, edges, schedule, next(rivals, None))


def _differ(edges: Edges, other: Edges, timeline: Timeline) -> bool:
    """Whether a tenth of the edges or more are elsewhere in the other cut, by a tenth of an episode or more."""
    far = np.abs(edges[:, None] - other[None]).min(axis=1) > 0.1 * timeline.total / len(edges)
    return len(other) != len(edges) or bool(far.mean() >= 0.1)


# -- free edges ----------------------------------------------------------------------------------------------------


def _grown(evidence: CutEvidence, cut: list[int]) -> list[int]:
    n = evidence.n
    worth = _WORTH + math.log(n)
    cut, here = _pruned(evidence, cut, worth)
    grid: Edges = np.unique(np.linspace(_LEAST_STEPS, n - _LEAST_STEPS, _PLACES).astype(int))
    for _ in range(_MOST_ROUNDS):
        added = []
        for first, last in pairwise([*cut, n]):
            inside = [int(k) for k in grid if first + _LEAST_STEPS <= k <= last - _LEAST_STEPS]
            if inside:
                values = evidence.evidences([sorted([*cut, k]) for k in inside])
                if values.max() - here > worth:
                    added.append(inside[int(values.argmax())])
        if not added:
            break
        cut, here = _pruned(evidence, _moved(evidence, sorted([*cut, *added])), worth)
    return cut


def _moved(evidence: CutEvidence, cut: list[int]) -> list[int]:
    """Every edge where it explains most, the others as they are."""
    reach = max(2, evidence.n // _PLACES)
    while reach >= 1:
        for place in range(1, len(cut)):
            low, high = cut[place - 1] + 1, [*cut, evidence.n][place + 1] - 1
            tries = sorted({min(max(cut[place] + move, low), high) for move in (-reach, 0, reach)})
            values = evidence.evidences([[*cut[:place], k, *cut[place + 1 :]] for k in tries])
            cut[place] = tries[int(values.argmax())]
        reach //= 2
    return cut


def _pruned(evidence: CutEvidence, cut: list[int], worth: float) -> tuple[list[int], float]:
    """Without the edges that are not worth their place, the least first; and the evidence then."""
    here = evidence.evidence(cut)
    while len(cut) > 1:
        shorter = [[*cut[:k], *cut[k + 1 :]] for k in range(1, len(cut))]
        values = evidence.evidences(shorter)
        if here - values.max() >= worth:
            break
        cut, here = shorter[int(values.argmax())], float(values.max())
    return cut, here


# -- schedules -----------------------------------------------------------------------------------------------------


class _Judge:
    """Values schedules, each once."""

    def __init__(self, evidence: CutEvidence, timeline: Timeline, zone: str | None) -> None:
        self._evidence, self._timeline, self._zone = evidence, timeline, zone
        self._known: dict[Schedule, float] = {}

    def best(self, schedules: Iterable[Schedule], most: int = 1) -> list[Schedule]:
        """The likeliest of some schedules, in order."""
        asked = list(dict.fromkeys(schedules))
        cuts = {schedule: self._cut(schedule) for schedule in asked if schedule not in self._known}
        possible = {schedule: cut for schedule, cut in cuts.items() if cut}
        self._known |= dict.fromkeys(cuts, -math.inf)
        evidence = self._evidence.evidences(list(possible.values()))
        for (schedule, cut), value in zip(possible.items(), evidence.tolist(), strict=True):
            self._known[schedule] = value + self._prior(schedule, cut)
        ranked = sorted(asked, key=self._known.__getitem__, reverse=True)
        return [schedule for schedule in ranked[:most] if self._known[schedule] > -math.inf]

    def settled(self, schedule: Schedule) -> float:
        """The value at the pace that suits the schedule, and expanded about it."""
        cut = self._cut(schedule)
        return self._evidence.judge(cut) + self._prior(schedule, cut) if cut else -math.inf

    def refined(self, schedule: Schedule, unit: int = 1) -> Schedule:
        """The best period and the best offset near those of a schedule, in whole units."""
        for _ in range(2):
            periods = _around(schedule.period // unit)
            [schedule] = self.best(schedule.moved(p * unit, schedule.offset) for p in periods)
            offsets = _around(schedule.offset // unit, schedule.period // unit)
            [schedule] = self.best(schedule.moved(schedule.period, o * unit) for o in offsets)
        return schedule

    def _cut(self, schedule: Schedule) -> list[int]:
        """Empty where it has too few edges to be a schedule, or too many."""
        cut = self._timeline.cut(self._timeline.edges(schedule))
        return cut if 3 <= len(cut) <= _MOST_EPISODES else []

    def _prior(self, schedule: Schedule, cut: list[int]) -> float:
        guessed = self._zone is None and schedule.zone != "UTC"
        return log_prior(schedule, guessed) - _EDGE * len(cut)


def _proposed(evidence: CutEvidence, timeline: Timeline, free: list[int], zone: str | None) -> list[Schedule]:
    """The likeliest schedules, as far as the present expansion tells."""
    judge = _Judge(evidence, timeline, zone)
    edges = timeline.sampled[free[1 : 1 + _PROPOSERS]]
    schedules = [*_by_count(judge, timeline.total, edges)]
    if timeline.seconds is not None and timeline.seconds[-1] > timeline.seconds[0]:
        schedules += _by_time(judge, timeline.total, timeline.seconds, edges, zone)
    return judge.best(schedules, _FINALISTS)


def _by_count(judge: _Judge, n: int, edges: Edges) -> Iterator[Schedule]:
    least = max(_LEAST_STEPS, n // _MOST_EPISODES)
    if 2 * least > n:
        return
    periods = np.unique(np.geomspace(least, n // 2, 1 + int(math.log(n / 2 / least) / _SPACING)).astype(int))
    for schedule in judge.best((Schedule("steps", p, p) for p in periods.tolist()), _CLOSER):
        yield from judge.best(Schedule("steps", p, p) for p in _around(schedule.period))
    proposed = (
        Schedule("steps", period, offset)
        for first, period in _lattices(edges, least)
        for offset in {int(first), int(first) % period or period}
    )
    for schedule in judge.best(proposed, _CLOSER):
        yield judge.refined(schedule)


def _by_time(judge: _Judge, n: int, seconds: NDArray[np.float64], edges: Edges, zone: str | None) -> Iterator[Schedule]:
    first, last = float(seconds[0]), float(seconds[-1])
    least = max((last - first) / _MOST_EPISODES, (last - first) * _LEAST_STEPS / n)
    clocks = ["UTC", *zones_that_shift(first, last)] if zone is None else [zone]
    for period in USUAL_PERIODS:
        if not least <= period <= (last - first) / 2:
            continue
        # An hour of the day is one of local time; shorter periods go by the clock that all zones share.
        for where in clocks if period % DAY == 0 else ["UTC"]:
            coarse = max(60, period // 24 if period <= DAY else 3600)
            schedules = [Schedule("seconds", period, offset, where) for offset in range(0, period, coarse)]
            for schedule in judge.best(schedules, _CLOSER_IN_TIME):
                for finer in (finer for finer in (900, 300, 60) if finer < coarse):
                    near = (schedule.offset + finer * k for k in range(-4, 5))
                    [schedule] = judge.best(schedule.moved(period, offset) for offset in near)
                yield schedule
    unit = 60 if least > 3600 else 1
    proposed = (
        Schedule("seconds", period * unit, int(start) % (period * unit))
        for start, period in _lattices(seconds[edges] / unit, least / unit)
    )
    for schedule in judge.best(proposed, _CLOSER_IN_TIME):
        yield judge.refined(schedule, unit)


def _lattices(edges: NDArray[np.float64] | Edges, least: float) -> Iterator[tuple[float, int]]:
    """First place and period of lattices through two edges, with up to three places between them."""
    for one, other in combinations(edges.tolist(), 2):
        periods = (round((other - one) / parts) for parts in (1, 2, 3, 4))
        yield from ((one, period) for period in periods if period >= max(least, 1))


def _around(value: int, scale: int | None = None) -> list[int]:
    """Whole numbers about a value, as far as periods are apart; all of them, or evenly some and the roundest."""
    reach = max(3, math.ceil((scale or value) * _SPACING))
    every = range(max(1, value - reach), value + reach + 1)
    stride = max(1, len(every) // _CLOSE_PLACES)
    round_ = {
        number for size in (10, 100, 1000, 10_000) for number in range(-(-every.start // size) * size, every.stop, size)
    }
    return sorted({value, *every[::stride], *sorted(round_ - {0})[:_CLOSE_PLACES]})
