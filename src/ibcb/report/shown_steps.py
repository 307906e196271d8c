"""Which steps a page shows, and what of them: a sample that depends on the log alone, not on how it is read, and all
whose choice does not fit.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.report.reading import LIKELY, ReadPart, Scores
from ibcb.report.rivals import step_keys

#: numbers of an episode's sampled steps in memory
_SAMPLE_NUMBERS = 1 << 22
#: characters of step data on a page
_PAGE_CHARACTERS = 3_400_000
_MOST_FEATURES, _MOST_CANDIDATES = 24, 40
#: steps whose choice does not fit that are listed
_MOST_LISTED = 1000


class SampledStep(NamedTuple):
    """One step as the explorer shows it; candidates are counted from 0, the best-scored come first.

    ``values`` has a row per shown candidate and a column per feature of the `SampledEpisode`. ``strayed`` is how
    probable it is that the choice went astray, ``ahead`` what was expected of the candidates one episode ahead, where
    another choice than the decider's was predicted.
    """

    step: int
    id: str | None
    time: str | None
    n_candidates: int
    chosen: int
    picked: int
    greedy: int
    predicted: int | None
    explored: bool
    contradicts: bool
    strayed: float
    candidates: list[int]
    expected: list[float]
    width: list[float]
    values: list[list[float]]
    ahead: list[float] | None


class SampledEpisode(NamedTuple):
    """The sampled steps of an episode, and the policy's weights of the features that they show.

    ``ahead``: those of the policy predicted one episode ahead; None where none could be.
    """

    number: int
    features: list[int]
    weights: list[float]
    ahead: list[float] | None
    steps: list[SampledStep]


class EpisodeSample:
    """Steps of one episode for the page, gathered while its parts go by.

    Parameters
    ----------
    number : int
        Of the episode.
    policy : ndarray of shape (d,)
    ahead : ndarray of shape (d,) or None
        The policy predicted one episode ahead, in the same unit.
    named : collection of int
        Steps that contradict others; they are always shown.
    size : int
        How many steps to show.
    """

    def __init__(self, number: int, policy: Vector, ahead: Vector | None, named: Collection[int], size: int) -> None:
        self.number, self.policy, self.ahead, self.named, self.size = number, policy, ahead, named, size
        # The smallest keys, with their steps: of those that do not fit, and of those that were not predicted or not
        # explained, each with half of the room at most, and of all.
        self._kept: list[list[tuple[int, int]]] = [[], [], []]
        self._steps: dict[int, tuple[SampledStep, Matrix]] = {}

    def add(self, part: ReadPart, scores: Scores, total: Vector, greedy: NDArray[np.int64]) -> None:
        """A part of the episode: with every candidate's score, any bonus included, and the best expected
        of each step.
        """
        steps, keys = np.arange(part.steps.start, part.steps.stop), step_keys(*part.place, part.log.n_steps)
        odd, astray = part.picked != part.log.chosen, part.strayed > LIKELY
        if part.predicted is not None:
            odd |= part.predicted != part.log.chosen
        # The most probable first.
        doubts = (np.uint64(1 << 62) * (1 - part.strayed)).astype(np.uint64)
        half, every = max(1, self.size // 2), np.ones(len(steps), dtype=bool)
        for place, (some, key, size) in enumerate(
            [(astray, doubts, half), (odd, keys, half), (every, keys, self.size)]
        ):
            offered = zip(key[some].tolist(), steps[some].tolist(), strict=True)
            self._kept[place] = heapq.nsmallest(size, [*self._kept[place], *offered])
        kept = {*self.named, *self._wanted}
        self._steps = {step: content for step, content in self._steps.items() if step in kept}
        for step in sorted(kept.intersection(steps.tolist())):
            self._steps[step] = self._shown(part, step, scores, total, greedy)

    @property
    def _wanted(self) -> list[int]:
        return [step for kept in self._kept for _, step in kept]

    def _shown(
        self, part: ReadPart, step: int, scores: Scores, total: Vector, greedy: NDArray[np.int64]
    ) -> tuple[SampledStep, Matrix]:
        """A step without values, and the contexts of the candidates shown."""
        log, inside = part.log, step - part.first
        rows = slice(int(log.step_offsets[inside]), int(log.step_offsets[inside + 1]))
        own, chosen, picked = total[rows], int(log.chosen[inside]), int(part.picked[inside])
        predicted = None if part.predicted is None else int(part.predicted[inside])
        # The pick first: another may tie with it.
        order = sorted(range(len(own)), key=lambda place: (place != picked, -own[place]))
        wanted = {chosen, picked, predicted, *order[:_MOST_CANDIDATES]}
        shown = [place for place in order if place in wanted]
        contexts = log.contexts[rows][shown]
        name, time = step_names(log, inside)
        return SampledStep(
            step=step,
            id=name,
            time=time,
            n_candidates=len(own),
            chosen=chosen,
            picked=picked,
            greedy=int(greedy[inside]),
            predicted=predicted,
            explored=bool(scores.explored[inside]),
            contradicts=step in self.named,
            strayed=round(float(part.strayed[inside]), 3),
            candidates=shown,
            expected=_rounded(scores.expected[rows][shown], 6),
            width=_rounded(part.width[rows][shown], 6),
            values=[],
            ahead=None if self.ahead is None or predicted == chosen else _rounded(contexts @ self.ahead, 6),
        ), contexts

    def finish(self) -> SampledEpisode:
        """The sample: all contradicting steps, those that do not fit, the odd ones, and others to fill it."""
        named = [step for step, (content, _) in self._steps.items() if content.contradicts]
        steps = sorted(list(dict.fromkeys([*named, *self._wanted]))[: max(self.size, len(named))])
        features, shown = self._telling(steps), []
        for content, contexts in map(self._steps.__getitem__, steps):
            shown.append(content._replace(values=[_rounded(row, 4) for row in contexts[:, features]]))
        ahead = None if self.ahead is None else _rounded(self.ahead[features], 8)
        return SampledEpisode(self.number, features, _rounded(self.policy[features], 8), ahead, shown)

    def _telling(self, steps: list[int]) -> list[int]:
        """The features that move scores most among these steps; all of them if they are few."""
        if len(self.policy) <= _MOST_FEATURES:
            return list(range(len(self.policy)))
        contexts = np.concatenate([self._steps[step][1] for step in steps])
        moved = np.abs(self.policy) * np.ptp(contexts, axis=0)
        return sorted(np.argsort(-moved, kind="stable")[:_MOST_FEATURES].tolist())


def room_per_episode(part: BehaviorLog, episodes: int) -> int:
    """Steps of an episode that a page has room for, given how large the log's steps are."""
    candidates, d = max(1, part.n_rows // part.n_steps), part.n_features
    room = _PAGE_CHARACTERS // (120 + min(candidates, _MOST_CANDIDATES) * (7 * min(d, _MOST_FEATURES) + 22))
    return max(1, min(room // max(1, episodes), _SAMPLE_NUMBERS // (candidates * d)))


def within_budget(sample: list[SampledEpisode]) -> list[SampledEpisode]:
    """The sample without the steps of largest key, if it has become too large for a page."""
    entries = []
    for number, *_, steps in sample:
        for step in steps:
            length = 120 + sum(22 + 7 * len(row) for row in step.values) + len(step.id or "")
            last = not (step.contradicts or step.strayed > LIKELY)
            entries.append((last, int(step_keys(number, step.step, 1)[0]), length, number, step.step))
    used, kept = 0, set()
    for _, _, length, number, place in sorted(entries):
        used += length
        if used > 1.1 * _PAGE_CHARACTERS:
            break
        kept.add((number, place))
    cut = [each._replace(steps=[step for step in each.steps if (each.number, step.step) in kept]) for each in sample]
    return [episode for episode in cut if episode.steps]


def _rounded(values: Any, digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


def step_names(log: BehaviorLog, step: int) -> tuple[str | None, str | None]:
    """Id and time of a step, where the log has them."""
    ids, times = log.step_ids, log.timestamps
    return None if ids is None else _as_text(ids[step]), None if times is None else _as_text(times[step])


def _as_text(value: Any) -> str:
    """An id or a time, cut where nobody would read on; of times, seconds and no more where they are whole."""
    if isinstance(value, np.datetime64) and value == value.astype("datetime64[s]"):
        value = value.astype("datetime64[s]")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 1000 else text[:999] + "…"


# -- choices that do not fit ------------------------------------------------------------------------------------------


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
