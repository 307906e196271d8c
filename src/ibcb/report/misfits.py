"""Choices that do not fit: each episode is read alone, and steps that contradict the rest of it are named.

The weights that explain most of an episode's choices, of the width too, are found from the episode itself, so that
nothing that the model assumes of learning is blamed on a choice. Of a long episode the beginning is enough for them.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.topk import TopKKind
from ibcb.engine import Block
from ibcb.log import BehaviorLog
from ibcb.log.history import EpisodePart
from ibcb.numerics.laplace import read_choices
from ibcb.report.scores import Scores
from ibcb.report.shown_steps import LIKELY, Picks, as_text

__all__ = ["EpisodeReader", "Misfit", "MisfitList", "Misfits", "Scored", "read_alone"]

Vector = NDArray[np.float64]

#: numbers of an episode from which its weights are found, 8 MB; not tuned
_NUMBERS = 1 << 20
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
    """What was found in a log: how many in each episode, and those listed, the most probable first."""

    counts: tuple[int, ...]
    listed: tuple[Misfit, ...]

    @property
    def total(self) -> int:
        """Choices of the whole log that do not fit."""
        return sum(self.counts)


class Scored(NamedTuple):
    """A part of an episode as the policy of the time saw it."""

    entry: EpisodePart
    scores: Scores
    picks: Picks


def read_alone(episode: BehaviorLog, width: Vector, top_k: int) -> Vector:
    """How probable it is that each choice of an episode went astray, told by the episode alone. Shape (steps,)."""
    steps = _Steps.of([(episode, width)])
    return steps.strayed(steps.weights(top_k), top_k)


class _Steps(NamedTuple):
    """Some steps of an episode; the width of candidates is their last feature."""

    contexts: NDArray[np.float64]
    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]

    @classmethod
    def of(cls, parts: list[tuple[BehaviorLog, Vector]]) -> _Steps:
        contexts = [np.column_stack([part.contexts.astype(np.float64, copy=False), width]) for part, width in parts]
        counts = np.concatenate([np.diff(part.step_offsets) for part, _ in parts])
        return cls(np.concatenate(contexts), counts, np.concatenate([part.chosen for part, _ in parts]))

    def weights(self, top_k: int) -> Vector:
        """Those that explain most of the choices; zeros where there are so many features that any are explained."""
        if len(self.counts) <= self.contexts.shape[1]:
            return np.zeros(self.contexts.shape[1])
        offsets = np.append(0, self.counts.cumsum())
        same = int(self.counts[0]) if (self.counts == self.counts[0]).all() else None
        block = Block(self.contexts, offsets[:-1] + self.chosen, offsets, same, 0, 0)
        weights: Vector = TopKKind(top_k=top_k).policy_alone(block)
        return weights

    def strayed(self, weights: Vector, top_k: int) -> Vector:
        """How probable it is that each choice went astray, by an episode's weights."""
        if not weights.any():
            return np.zeros(len(self.counts))
        return read_choices(self.contexts @ weights, self.counts, self.chosen, top_k).strayed


class EpisodeReader:
    """Reads an episode alone while its parts go by, and gives each back with how probably its choices went astray.

    Parameters
    ----------
    top_k : int
        How many of its best candidates the decider draws from.
    """

    def __init__(self, top_k: int) -> None:
        self._top_k = top_k
        self._weights: Vector | None = None
        self._held: list[Scored] = []
        self._numbers = 0

    def add(self, scored: Scored) -> list[tuple[Scored, Vector]]:
        """One more part; it may be held until the weights are known, and come with a later one, or with `end`."""
        self._held.append(scored)
        self._numbers += scored.entry.part.contexts.size
        return self.end() if self._weights is not None or self._numbers >= _NUMBERS else []

    def end(self) -> list[tuple[Scored, Vector]]:
        """All that is still held."""
        held, self._held = self._held, []
        if not held:
            return []
        steps = _Steps.of([(each.entry.part, each.scores.width) for each in held])
        if self._weights is None:
            self._weights = steps.weights(self._top_k)
        edges = np.cumsum([each.entry.part.n_steps for each in held])[:-1]
        return list(zip(held, np.split(steps.strayed(self._weights, self._top_k), edges), strict=True))


class MisfitList:
    """Gathers `Misfits` while episodes go by."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._kept: list[tuple[float, int, int, Misfit]] = []

    def begin_episode(self) -> None:
        """Another one."""
        self._counts.append(0)

    def add(self, scored: Scored, probability: Vector) -> None:
        """A part of the episode, and how probable it is that each of its choices went astray."""
        number, part, picked = scored.entry.number, scored.entry.part, scored.picks.picked
        found = np.flatnonzero(probability > LIKELY)
        self._counts[-1] += len(found)
        for place in found.tolist():
            misfit = Misfit(
                number,
                scored.entry.first + place,
                None if part.step_ids is None else as_text(part.step_ids[place]),
                None if part.timestamps is None else as_text(part.timestamps[place]),
                int(part.chosen[place]),
                int(picked[place]),
                float(probability[place]),
            )
            keep = heapq.heappush if len(self._kept) < _MOST_LISTED else heapq.heappushpop
            keep(self._kept, (misfit.probability, -number, -misfit.step, misfit))

    def found(self) -> Misfits:
        """Of all episodes so far."""
        return Misfits(tuple(self._counts), tuple(entry[-1] for entry in sorted(self._kept, reverse=True)))
