"""The cut that explains the choices best: any edges at all, or those of a regular schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ibcb.log.validation.updates.evidence import CutEvidence

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
HOUR, DAY, WEEK = 3600, 86_400, 7 * 86_400
#: seconds between updates that people choose
_USUAL_PERIODS = (*(60 * k for k in (5, 10, 15, 20, 30)), *(HOUR * k for k in (1, 2, 3, 4, 6, 8, 12)), DAY, WEEK)
#: zones that stand for the rules by which clocks are put forward and back; hours between zones do not matter
_RULES = ("Europe/Berlin", "America/New_York", "Australia/Sydney")
#: of a log prior: for each digit of a number that zeros do not fill, for a usual period, for one that nobody would
#: choose by the clock, for a count that does not begin with the log, and for a zone that nobody named. A digit that
#: could be any is worth log 10 = 2.3; more here, because a logit that is only nearly right makes evidence of nothing
_DIGIT, _USUAL, _UNUSUAL, _SHIFTED, _GUESSED_ZONE = 4.0, 2.0, 12.0, 8.0, 3.0
_UNITS = {DAY: "days", HOUR: "h", 60: "min", 1: "s"}
_WEEKDAYS = ("Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday")


@dataclass(frozen=True)
class Schedule:
    """When a policy is updated.

    Attributes
    ----------
    unit : {"steps", "seconds"}
    period : int
        Steps or seconds from one update to the next.
    offset : int
        Of steps: the first update. Of seconds: the time of day of an update, or where it is not once a day, the seconds
        from 1970 to one, less whole periods; in the zone's local time.
    zone : str
        Of seconds: UTC, or a time zone whose local time the schedule keeps, so that it moves by an hour in UTC where
        clocks are put forward or back.

    Examples
    --------
    >>> print(Schedule("steps", 400, 400))
    every 400 steps
    >>> print(Schedule("seconds", 86400, 3 * 3600, "Europe/Berlin"))
    every day at 03:00 (Europe/Berlin)
    """

    unit: str
    period: int
    offset: int
    zone: str = "UTC"

    def edges(self, steps: int, seconds: NDArray[np.float64] | None) -> NDArray[np.int64]:
        """The first step of every episode among so many steps, beginning with 0.

        ``seconds`` since 1970, UTC, of each step, which must not fall.
        """
        if self.unit == "steps":
            edges = np.arange(self.offset, steps, self.period)
        else:
            assert seconds is not None
            edges = np.searchsorted(seconds, self._instants(float(seconds[0]), float(seconds[-1])))
        edges = edges[(edges > 0) & (edges < steps)]
        return np.unique(np.concatenate([[0], edges])).astype(np.int64)

    def moved(self, period: int, offset: int) -> Schedule:
        """With another period and offset."""
        return replace(self, period=period, offset=offset if self.unit == "steps" else offset % period)

    def _instants(self, first: float, last: float) -> NDArray[np.float64]:
        """Seconds since 1970, UTC, of the updates from the first to the last."""
        start = math.floor((first - DAY - self.offset) / self.period)
        end = math.ceil((last + DAY - self.offset) / self.period)
        local = self.offset + self.period * np.arange(start, end + 1, dtype=np.float64)
        if self.zone == "UTC":
            return local
        zone = ZoneInfo(self.zone)
        return np.array([_local(wall).replace(tzinfo=zone).timestamp() for wall in local.tolist()])

    def __str__(self) -> str:
        if self.unit == "steps":
            late = "" if self.offset == self.period else f", first at step {self.offset}"
            return f"every {self.period} steps{late}"
        at = _local(self.offset)
        clock = f"{at:%H:%M:%S}".removesuffix(":00")
        if self.period == DAY:
            return f"every day at {clock} ({self.zone})"
        if self.period == WEEK:
            return f"every {_WEEKDAYS[self.offset // DAY]} at {clock} ({self.zone})"
        unit, name = next((unit, name) for unit, name in _UNITS.items() if self.period % unit == 0)
        return f"every {self.period // unit} {name}, such as {clock} ({self.zone})"


def _local(seconds: float) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=seconds)


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
    clocks = ["UTC", *_zones_that_shift(first, last)] if zone is None else [zone]
    for period in _USUAL_PERIODS:
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


def log_prior(schedule: Schedule, guessed: bool = False) -> float:
    """How likely a schedule is before anything is known of the log: people like round numbers."""
    if schedule.unit == "steps":
        prior = -_DIGIT * _digits(schedule.period)
        return prior - (0.0 if schedule.offset == schedule.period else _SHIFTED + _DIGIT * _digits(schedule.offset))
    prior = -_GUESSED_ZONE * guessed
    if schedule.period in _USUAL_PERIODS:
        prior -= 1.0 if schedule.period == DAY else _USUAL
    else:
        units = (unit for unit in (1, 60, HOUR, DAY) if schedule.period % unit == 0)
        prior -= _UNUSUAL + _DIGIT * min(_digits(schedule.period // unit) for unit in units)
    # The roundest clock time first: each finer grid has so many more places.
    grids = [grid for grid in (HOUR, 1800, 900, 300, 60, 1) if grid <= schedule.period]
    rank = next(place for place, grid in enumerate(grids) if schedule.offset % grid == 0)
    return prior - math.log(max(schedule.period // grids[rank], 1)) - 0.7 * rank


def _digits(number: int) -> int:
    """Digits but the zeros at the end."""
    return len(str(abs(int(number))).rstrip("0")) or 1


def _zones_that_shift(first: float, last: float) -> list[str]:
    """Zones, one for each rule, whose clocks are put forward or back between two times."""

    def offset(zone: str, when: float) -> Any:
        return datetime.fromtimestamp(when, UTC).astimezone(ZoneInfo(zone)).utcoffset()

    return [zone for zone in _RULES if offset(zone, first) != offset(zone, last)]
