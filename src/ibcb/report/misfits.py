"""Choices that do not fit: each episode is read alone, and steps that contradict the rest of it are named.

The weights that explain most of an episode's choices, of the width too, are found from the episode itself, so that
nothing that the model assumes of learning is blamed on a choice. Of a long episode the beginning is enough for them.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.logit import policy_alone
from ibcb.engine import Block
from ibcb.log import BehaviorLog
from ibcb.numerics.laplace import read_choices
from ibcb.report.shown_steps import LIKELY, as_text

__all__ = ["LIKELY", "READ_NUMBERS", "Misfit", "MisfitList", "Misfits", "Reading"]

Vector = NDArray[np.float64]

#: numbers of an episode from which its weights are found, 8 MB; not tuned
READ_NUMBERS = 1 << 20
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


class Reading:
    """An episode read alone; the width of candidates is their last feature.

    Parameters
    ----------
    top_k : int
        How many of its best candidates the decider draws from.
    """

    def __init__(self, top_k: int) -> None:
        self._top_k, self._weights = top_k, np.zeros(0)

    def find(self, parts: list[tuple[BehaviorLog, Vector]]) -> None:
        """The weights that explain most of the choices of some parts of it, each with the widths of its candidates;
        none where there are so many features that any are explained.
        """
        if sum(part.n_steps for part, _ in parts) <= parts[0][0].n_features + 1:
            return
        contexts = np.concatenate([_with_width(*pair) for pair in parts])
        counts = np.concatenate([np.diff(part.step_offsets) for part, _ in parts])
        chosen = np.concatenate([part.chosen for part, _ in parts])
        offsets = np.append(0, counts.cumsum())
        same = int(counts[0]) if (counts == counts[0]).all() else None
        block = Block(contexts, offsets[:-1] + chosen, offsets, same, 0, 0)
        self._weights = policy_alone(block, self._top_k)

    def strayed(self, part: BehaviorLog, width: Vector) -> Vector:
        """How probable it is that each choice of a part went astray, by these weights. Shape (steps,)."""
        if not self._weights.any():
            return np.zeros(part.n_steps)
        scores = _with_width(part, width) @ self._weights
        return read_choices(scores, np.diff(part.step_offsets), part.chosen, self._top_k).strayed


def _with_width(part: BehaviorLog, width: Vector) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.column_stack([part.contexts.astype(np.float64, copy=False), width])
    return found


class MisfitList:
    """Gathers `Misfits` while episodes go by."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._kept: list[tuple[float, int, int, Misfit]] = []

    def begin_episode(self) -> None:
        """Another one."""
        self._counts.append(0)

    def add(self, number: int, first: int, part: BehaviorLog, picked: NDArray[np.int64], probability: Vector) -> None:
        """A part of an episode that begins with its step ``first``, what the policy of the time would have taken, and
        how probable it is that each choice went astray.
        """
        found = np.flatnonzero(probability > LIKELY)
        self._counts[-1] += len(found)
        for place in found.tolist():
            misfit = Misfit(
                number,
                first + place,
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
