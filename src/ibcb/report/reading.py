"""An episode read alone, part by part, with the probability that each of its choices went astray.

The weights that explain most of an episode's choices, of the width too, are found from the episode itself, so that
nothing that the model assumes of learning is blamed on a choice. Of a long episode the beginning is enough for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ibcb.deciders import Kind
from ibcb.deciders.logit import policy_alone
from ibcb.engine import Block, Episode
from ibcb.log import BehaviorLog
from ibcb.log.behavior_log import dense_pieces
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.laplace import read_choices
from ibcb.numerics.ridge import Ridge

__all__ = ["LIKELY", "ReadPart", "block_of", "in_double", "read_parts"]

#: numbers of an episode from which its weights are found, 8 MB; not tuned
READ_NUMBERS = 1 << 20
#: a choice does not fit where it more probably went astray than not
LIKELY = 0.5


class ReadPart(NamedTuple):
    """A part of an episode.

    Attributes
    ----------
    number, first : int
        The episode, and the first step of the part in it.
    log : BehaviorLog
        Its steps, with dense contexts.
    width : ndarray of shape (rows,)
        Confidence width of every candidate, by the choices before the episode.
    strayed : ndarray of shape (steps,)
        How probable it is that each choice went astray.
    """

    number: int
    first: int
    log: BehaviorLog
    width: Vector
    strayed: Vector

    @property
    def place(self) -> tuple[int, int]:
        """Episode and first step."""
        return self.number, self.first

    @property
    def steps(self) -> slice:
        """Where its steps are in the episode."""
        return slice(self.first, self.first + self.log.n_steps)


def read_parts(episode: Episode, kind: Kind, now: Ridge) -> Iterator[ReadPart]:
    """The parts of an episode; ``now``: what the choices before it leave behind."""
    pieces = (piece for part in episode.rows.parts() for piece in dense_pieces(part))
    parts = ((piece, now.widths(in_double(piece))) for piece in pieces)
    beginning, numbers = [], 0
    for pair in parts:
        beginning.append(pair)
        numbers += pair[0].contexts.size
        if numbers >= READ_NUMBERS:
            break
    weights, first = _weights(beginning, kind.top_k), 0
    for log, width in chain(beginning, parts):
        strayed = np.zeros(log.n_steps)
        if weights.any():
            scores = _with_width(log, width) @ weights
            strayed = read_choices(scores, np.diff(log.step_offsets), log.chosen, kind.top_k).strayed
        yield ReadPart(episode.number, first, log, width, strayed)
        first += log.n_steps


def _weights(parts: Sequence[tuple[BehaviorLog, Vector]], top_k: int) -> Vector:
    """Those that explain most of the choices of some parts; none where so many features would explain any choices."""
    if sum(part.n_steps for part, _ in parts) <= parts[0][0].n_features + 1:
        return np.zeros(0)
    contexts = np.concatenate([_with_width(*pair) for pair in parts])
    counts = np.concatenate([np.diff(part.step_offsets) for part, _ in parts])
    chosen = np.concatenate([part.chosen for part, _ in parts])
    offsets = np.append(0, counts.cumsum())
    alike = int(counts[0]) if (counts == counts[0]).all() else None
    return policy_alone(Block(contexts, offsets[:-1] + chosen, offsets, alike, 0, 0), top_k)


def _with_width(log: BehaviorLog, width: Vector) -> Matrix:
    """The contexts with the width as their last feature."""
    return np.column_stack([in_double(log), width])


def in_double(log: BehaviorLog) -> Any:
    """Contexts in double precision, whatever their own."""
    return log.contexts.astype(np.float64, copy=False)


def block_of(log: BehaviorLog, contexts: Any = None) -> Block:
    """The steps of a log as a block, with other contexts than its own if they are given."""
    contexts = log.contexts if contexts is None else contexts
    return Block(contexts, log.chosen_rows, log.step_offsets, log.candidates_per_step, 0, 0)
