"""An episode read alone, part by part, with the probability that each of its choices went astray.

The weights that explain most of an episode's choices, of the width too, are learned from the episode itself, so that
nothing that the model assumes of learning is blamed on a choice. Of a long episode the beginning is enough for them. A
choice that the policy of the time makes too did not go astray, nor did one that was made before there was any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.logit import policy_alone
from ibcb.engine import Block, Episode
from ibcb.estimators.fitting import Fit
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.behavior_log import dense_pieces
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.laplace import read_choices
from ibcb.numerics.ridge import Ridge
from ibcb.tracking import logged_policies

Candidates = NDArray[np.int64]

#: numbers of an episode from which its weights are learned, 8 MB; not tuned
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
    picked : ndarray of shape (steps,)
        The candidate that the policy of the time put first, with the bonus if there is one; the chosen one where that
        is as good as any.
    strayed : ndarray of shape (steps,)
        How probable it is that each choice went astray; 0 where that seems likely but is known to be wrong.
    """

    number: int
    first: int
    log: BehaviorLog
    width: Vector
    picked: Candidates
    strayed: Vector

    @property
    def place(self) -> tuple[int, int]:
        """Episode and first step."""
        return self.number, self.first

    @property
    def steps(self) -> slice:
        """Where its steps are in the episode."""
        return slice(self.first, self.first + self.log.n_steps)


def read_parts(episode: Episode, fit: Fit, now: Ridge, *, excused: bool = False) -> Iterator[ReadPart]:
    """The parts of an episode that a fit has seen.

    ``now``: what the choices before it leave behind; ``excused``: rewards explain all choices, and so none went astray.
    """
    kind, number = fit.kind, episode.number
    policy = (fit.evolution.policies if fit.track is None else logged_policies(fit.track))[number]
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
        picked = picked_by(fit, number, now, policy, log)
        strayed = np.zeros(log.n_steps)
        if weights.any():
            scores = _with_width(log, width) @ weights
            strayed = read_choices(scores, np.diff(log.step_offsets), log.chosen, kind.top_k).strayed
            strayed = np.where((excused | (picked == log.chosen)) & (strayed > LIKELY), 0.0, strayed)
        yield ReadPart(number, first, log, width, picked, strayed)
        first += log.n_steps


def picked_by(fit: Fit, number: int, now: Ridge, policy: Vector, log: BehaviorLog) -> Candidates:
    """The candidate that a policy puts first at each step of an episode, exploration included."""
    # In double precision where there is no tracker: what solves an episode exactly ties.
    block = block_of(log, log.contexts if fit.track is not None else in_double(log))
    added = None if fit.track is None else fit.track.added[number]
    return pick(fit.kind.scores(block, now, policy, added), log, log.chosen)


def pick(scores: Vector, log: BehaviorLog, preferred: Candidates) -> Candidates:
    """Best candidate of each step; the preferred one where nothing beats it by more than rounding.

    Equals are common: an exact solution lies where the chosen candidate just ties with another.
    """
    best, starts = argmax_per_step(scores, log), log.step_offsets[:-1]
    lead = scores[starts + best] - scores[starts + preferred]
    slack = 1e-9 if log.contexts.dtype == np.float64 else 1e-5
    picked: Candidates = np.where(lead > slack * float(np.abs(scores).max(initial=0.0)), best, preferred)
    return picked


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
