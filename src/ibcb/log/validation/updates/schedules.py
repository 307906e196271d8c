"""Regular schedules: every so many steps, every so many seconds, or at the same local hour."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

HOUR, DAY, WEEK = 3600, 86_400, 7 * 86_400
#: seconds between updates that people choose
USUAL_PERIODS = (*(60 * k for k in (5, 10, 15, 20, 30)), *(HOUR * k for k in (1, 2, 3, 4, 6, 8, 12)), DAY, WEEK)
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


def log_prior(schedule: Schedule, guessed: bool = False) -> float:
    """How likely a schedule is before anything is known of the log: people like round numbers."""
    if schedule.unit == "steps":
        prior = -_DIGIT * _digits(schedule.period)
        return prior - (0.0 if schedule.offset == schedule.period else _SHIFTED + _DIGIT * _digits(schedule.offset))
    prior = -_GUESSED_ZONE * guessed
    if schedule.period in USUAL_PERIODS:
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


def zones_that_shift(first: float, last: float) -> list[str]:
    """Zones, one for each rule, whose clocks are put forward or back between two times."""

    def offset(zone: str, when: float) -> Any:
        return datetime.fromtimestamp(when, UTC).astimezone(ZoneInfo(zone)).utcoffset()

    return [zone for zone in _RULES if offset(zone, first) != offset(zone, last)]
