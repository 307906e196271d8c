"""Which steps a page shows, and what of them: a sample that depends on the log alone, not on how it is read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log import BehaviorLog
from ibcb.report.scores import Scores

__all__ = [
    "LIKELY",
    "EpisodeSample",
    "Keeper",
    "Picks",
    "SampledEpisode",
    "SampledStep",
    "as_text",
    "room_per_episode",
    "step_keys",
    "within_budget",
]

Vector = NDArray[np.float64]

#: numbers of an episode's sampled steps in memory
_SAMPLE_NUMBERS = 1 << 22
#: characters of step data on a page
_PAGE_CHARACTERS = 3_400_000
#: a choice does not fit where it more probably went astray than not
LIKELY = 0.5
_MOST_FEATURES = 24
_MOST_CANDIDATES = 40


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

    @property
    def always(self) -> bool:
        """Whether it is shown before others."""
        return self.contradicts or self.strayed > LIKELY


class SampledEpisode(NamedTuple):
    """The sampled steps of an episode, and the policy's weights of the features that they show.

    ``ahead``: those of the policy predicted one episode ahead; None where none could be.
    """

    number: int
    features: list[int]
    weights: list[float]
    ahead: list[float] | None
    steps: list[SampledStep]


class Picks(NamedTuple):
    """What a model makes of some steps.

    Attributes
    ----------
    total : ndarray of shape (rows,)
        Score of every candidate, the bonus included if there is one.
    picked, greedy : ndarray of shape (steps,)
        The best candidate, and the best expected one.
    predicted : ndarray of shape (steps,) or None
        What the episodes before predict; None where nothing can be predicted.
    """

    total: Vector
    picked: NDArray[np.int64]
    greedy: NDArray[np.int64]
    predicted: NDArray[np.int64] | None


def step_keys(episode: int, first: int, count: int) -> NDArray[np.uint64]:
    """A number for each of ``count`` steps from ``first`` on, as if drawn at random but always the same.

    The finaliser of SplitMix64 on episode and step. Steps with the smallest numbers are the sample.
    """
    with np.errstate(over="ignore"):
        z = (np.uint64(episode & 0xFFFFFFFF) << np.uint64(32)) + np.arange(first, first + count, dtype=np.uint64)
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return keys


@dataclass
class Keeper:
    """Keeps the ``size`` steps of smallest key that it has been shown, each with what belongs to it."""

    size: int
    kept: list[tuple[int, int]] = field(default_factory=list)

    def offer(self, steps: NDArray[np.int64], keys: NDArray[np.uint64]) -> None:
        """Steps with their keys; those beyond ``size`` are forgotten."""
        if len(steps) > self.size:
            small = np.argpartition(keys, self.size - 1)[: self.size]
            steps, keys = steps[small], keys[small]
        merged = [*self.kept, *zip(keys.tolist(), steps.tolist(), strict=True)]
        self.kept = sorted(merged)[: self.size]

    @property
    def steps(self) -> list[int]:
        """The steps that are kept, the smallest key first."""
        return [step for _, step in self.kept]


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
        # Half of the room at most for steps that were not predicted or not explained, and so for those that do not fit.
        self._all, self._odd, self._astray = Keeper(size), Keeper(max(1, size // 2)), Keeper(max(1, size // 2))
        self._steps: dict[int, SampledStep] = {}
        self._contexts: dict[int, NDArray[Any]] = {}

    def add(self, part: BehaviorLog, first: int, scores: Scores, picks: Picks, strayed: Vector) -> None:
        """A part of the episode that begins with its step ``first``; ``strayed``: how probably each choice did."""
        steps, keys = np.arange(first, first + part.n_steps), step_keys(self.number, first, part.n_steps)
        odd = picks.picked != part.chosen
        if picks.predicted is not None:
            odd |= picks.predicted != part.chosen
        self._all.offer(steps, keys)
        self._odd.offer(steps[odd], keys[odd])
        astray = strayed > LIKELY
        # The most probable first.
        ranks = (np.uint64(1 << 62) * (1 - strayed[astray])).astype(np.uint64)
        self._astray.offer(steps[astray], ranks)
        kept = {*self.named, *self._all.steps, *self._odd.steps, *self._astray.steps}
        self._steps = {step: content for step, content in self._steps.items() if step in kept}
        self._contexts = {step: content for step, content in self._contexts.items() if step in kept}
        for step in sorted(kept.intersection(range(first, first + part.n_steps))):
            self._steps[step], self._contexts[step] = self._shown(part, step, step - first, scores, picks, strayed)

    def _shown(
        self, part: BehaviorLog, step: int, inside: int, scores: Scores, picks: Picks, strayed: Vector
    ) -> tuple[SampledStep, NDArray[Any]]:
        rows = slice(int(part.step_offsets[inside]), int(part.step_offsets[inside + 1]))
        total = picks.total[rows]
        chosen, picked = int(part.chosen[inside]), int(picks.picked[inside])
        # The pick first: another may tie with it.
        order = sorted(range(len(total)), key=lambda place: (place != picked, -total[place]))
        wanted = {chosen, picked, *order[:_MOST_CANDIDATES]}
        predicted = None if picks.predicted is None else int(picks.predicted[inside])
        if predicted is not None:
            wanted.add(predicted)
        shown = [place for place in order if place in wanted]
        contexts = part.contexts[rows][shown]
        ahead = None if self.ahead is None or predicted == chosen else _rounded(contexts @ self.ahead, 6)
        return SampledStep(
            step=step,
            id=None if part.step_ids is None else as_text(part.step_ids[inside]),
            time=None if part.timestamps is None else as_text(part.timestamps[inside]),
            n_candidates=len(total),
            chosen=chosen,
            picked=picked,
            greedy=int(picks.greedy[inside]),
            predicted=predicted,
            explored=bool(scores.explored[inside]),
            contradicts=step in self.named,
            strayed=round(float(strayed[inside]), 3),
            candidates=shown,
            expected=_rounded(scores.expected[rows][shown], 6),
            width=_rounded(scores.width[rows][shown], 6),
            values=[],
            ahead=ahead,
        ), contexts

    def episode(self) -> SampledEpisode:
        """The sample: all contradicting steps, those that do not fit, the odd ones, and others to fill it."""
        named = [step for step, content in self._steps.items() if content.contradicts]
        wanted = list(dict.fromkeys([*named, *self._astray.steps, *self._odd.steps, *self._all.steps]))
        chosen = sorted(wanted[: max(self.size, len(named))])
        features = self._telling(chosen)
        shown = []
        for step in chosen:
            values = self._contexts[step][:, features]
            shown.append(self._steps[step]._replace(values=[_rounded(row, 4) for row in values]))
        ahead = None if self.ahead is None else _rounded(self.ahead[features], 8)
        return SampledEpisode(self.number, features, _rounded(self.policy[features], 8), ahead, shown)

    def _telling(self, steps: list[int]) -> list[int]:
        """The features that move scores most among these steps; all of them if they are few."""
        d = len(self.policy)
        if d <= _MOST_FEATURES:
            return list(range(d))
        contexts = np.concatenate([self._contexts[step] for step in steps])
        moved = np.abs(self.policy) * np.ptp(contexts, axis=0)
        best = np.argsort(-moved, kind="stable")[:_MOST_FEATURES]
        return sorted(int(feature) for feature in best)


def room_per_episode(part: BehaviorLog, episodes: int) -> int:
    """Steps of an episode that a page has room for, given how large the log's steps are."""
    candidates = max(1, part.n_rows // part.n_steps)
    d = part.n_features
    room = _PAGE_CHARACTERS // (120 + min(candidates, _MOST_CANDIDATES) * (7 * min(d, _MOST_FEATURES) + 22))
    return max(1, min(room // max(1, episodes), _SAMPLE_NUMBERS // (candidates * d)))


def within_budget(sample: list[SampledEpisode]) -> list[SampledEpisode]:
    """The sample without the steps of largest key, if it has become too large for a page."""

    def size(step: SampledStep) -> int:
        return 120 + sum(22 + 7 * len(row) for row in step.values) + len(step.id or "")

    entries = [
        (
            not step.always,
            int(step_keys(episode.number, step.step, 1)[0]),
            size(step),
            episode.number,
            step.step,
        )
        for episode in sample
        for step in episode.steps
    ]
    used, kept = 0, set()
    for _, _, length, number, place in sorted(entries):
        used += length
        if used > 1.1 * _PAGE_CHARACTERS:
            break
        kept.add((number, place))
    cut = [
        episode._replace(steps=[step for step in episode.steps if (episode.number, step.step) in kept])
        for episode in sample
    ]
    return [episode for episode in cut if episode.steps]


def _rounded(values: Any, digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


def as_text(value: Any) -> str:
    """An id or a time, cut where nobody would read on; of times, seconds and no more where they are whole."""
    if isinstance(value, np.datetime64) and value == value.astype("datetime64[s]"):
        value = value.astype("datetime64[s]")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 1000 else text[:999] + "…"
