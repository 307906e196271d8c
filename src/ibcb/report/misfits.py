"""Choices that do not fit the rest of their episode, named."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from ibcb.report.reading import LIKELY, ReadPart
from ibcb.report.shown_steps import step_names

#: steps that are listed
_MOST_LISTED = 1000


class Misfit(NamedTuple):
    """A choice that probably went astray; ``preferred`` is what the policy of the time would have taken."""

    episode: int
    step: int
    id: str | None
    time: str | None
    chosen: int
    preferred: int
    probability: float


class Misfits(NamedTuple):
    """Those of a log: how many in each episode, and those listed, the most probable first."""

    counts: tuple[int, ...]
    listed: tuple[Misfit, ...]

    @property
    def total(self) -> int:
        """Choices of the whole log that do not fit."""
        return sum(self.counts)

    def without_names(self) -> Misfits:
        """Without ids and times of steps."""
        return self._replace(listed=tuple(each._replace(id=None, time=None) for each in self.listed))


class MisfitList:
    """Gathers `Misfits` while episodes go by."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._kept: list[tuple[float, int, int, Misfit]] = []

    def add(self, part: ReadPart) -> None:
        """A part of an episode."""
        places = np.flatnonzero(part.strayed > LIKELY)
        self._counts[part.number] = self._counts.get(part.number, 0) + len(places)
        for place in places.tolist():
            step, probability = part.first + place, float(part.strayed[place])
            chosen, preferred = int(part.log.chosen[place]), int(part.picked[place])
            misfit = Misfit(part.number, step, *step_names(part.log, place), chosen, preferred, probability)
            keep = heapq.heappush if len(self._kept) < _MOST_LISTED else heapq.heappushpop
            keep(self._kept, (probability, -part.number, -step, misfit))

    def finish(self) -> Misfits:
        """Of all episodes so far."""
        listed = tuple(entry[-1] for entry in sorted(self._kept, reverse=True))
        return Misfits(tuple(self._counts.values()), listed)
