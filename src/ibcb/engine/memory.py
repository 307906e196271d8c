"""Blocks of an episode that lies in memory; they share the log's arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.log import BehaviorLog

BLOCK_STEPS = 4096


@dataclass(frozen=True, slots=True)
class Block:
    """A run of whole steps of one episode.

    Attributes
    ----------
    contexts : ndarray of shape (rows, d)
    chosen_rows : ndarray of shape (steps,)
        Row of the chosen candidate of each step.
    offsets : ndarray of shape (steps + 1,)
        First row of each step.
    width : int or None
        The number of candidates of every step, None where it varies.
    first_step, first_row : int
        Position of the block's first step, and of its first row, within the episode.
    """

    contexts: NDArray[Any]
    chosen_rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    width: int | None
    first_step: int
    first_row: int

    def step_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Step, within the block, that owns each row."""
        if self.width is not None:
            return rows // self.width
        steps: NDArray[np.int64] = np.searchsorted(self.offsets, rows, side="right") - 1
        return steps

    def lead(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Score of each row minus that of the candidate chosen in its step, shape (rows,)."""
        of_chosen = scores.take(self.chosen_rows)
        lead: NDArray[Any]
        if self.width is not None:
            lead = (scores.reshape(-1, self.width) - of_chosen[:, None]).ravel()
        else:
            lead = scores - np.repeat(of_chosen, np.diff(self.offsets))
        return lead

    def leading(self, scores: NDArray[Any], band: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """Rows that score more than ``band`` below the chosen candidate of their step, their steps, and their leads.

        The chosen rows themselves are left out. ``scores`` is written over.
        """
        of_chosen = scores.take(self.chosen_rows)
        scores[self.chosen_rows] = -np.inf
        least = of_chosen - band
        if self.width is not None:
            rows = (scores.reshape(-1, self.width) > least[:, None]).ravel().nonzero()[0]
        else:
            rows = (scores > np.repeat(least, np.diff(self.offsets))).nonzero()[0]
        steps = self.step_of(rows)
        return rows, steps, scores.take(rows) - of_chosen.take(steps)

    def lead_contexts(self, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Contexts of some rows minus those of the candidates chosen in their steps, in float64."""
        lead = self.contexts.take(rows, axis=0).astype(np.float64, copy=False)
        lead -= self.contexts.take(self.chosen_rows.take(steps), axis=0)
        return lead


def blocks(episode: BehaviorLog) -> list[Block]:
    """The fixed blocks of a log of one episode."""
    offsets, chosen_rows = episode.step_offsets, episode.chosen_rows
    result = []
    for first in range(0, episode.n_steps, BLOCK_STEPS):
        last = min(first + BLOCK_STEPS, episode.n_steps)
        start, stop = int(offsets[first]), int(offsets[last])
        result.append(
            Block(
                contexts=episode.contexts[start:stop],
                chosen_rows=chosen_rows[first:last] - start,
                offsets=offsets[first : last + 1] - start,
                width=episode.candidates_per_step,
                first_step=first,
                first_row=start,
            )
        )
    return result
