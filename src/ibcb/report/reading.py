"""An episode read alone, part by part, with the probability that each of its choices went astray.

The weights that explain most of an episode's choices, of the width too, are learned from the episode itself, so that
nothing that the model assumes of learning is blamed on a choice. Of a long episode the beginning is enough for them. A
choice that the policy of the time makes too did not go astray, nor did one that was made before there was any.

What the decider thought of its candidates stands below: what it expected, what exploration added, what its choices
cost. The score that a recovered SBUCB decider gives a candidate s in episode n has two parts, <p_n, s> for what it
expects of s and alpha H_n(s) for what it might learn, with p_n the policy of that time and H_n the width of the choices
before it. A Thompson sampler explores by a draw that the log does not show; the least that it can have added to the
chosen candidate is what that one lacked to the best. Regret is seen with the policy right after the log: with what the
decider knew at the end, not then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.deciders.softmax import policy_alone
from ibcb.engine import Block, Episode
from ibcb.estimators.fitting import Fit
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.behavior_log import dense_pieces
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.laplace import read_choices
from ibcb.numerics.ridge import Ridge
from ibcb.tracking import logged_policies

if TYPE_CHECKING:
    from ibcb.estimators.ibcb import IBCB

Candidates = NDArray[np.int64]

#: numbers of an episode from which its weights are learned, 8 MB; not tuned
READ_NUMBERS = 1 << 20
#: a choice does not fit where it more probably went astray than not
LIKELY = 0.5
#: scores that differ by less than this share of the largest are equal
_TIE = 1e-8


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
    rival : ndarray of bool, shape (steps,), or None
        Which choices a choice model of the episode before predicts.
    predicted, preferred : ndarray of shape (steps,), or None
        The candidate that was predicted one episode ahead, and the one preferred then, without exploration; None where
        nothing could be predicted.
    kept : ndarray of bool, shape (steps,), or None
        Whether it still was preferred once the episode was seen.
    """

    number: int
    first: int
    log: BehaviorLog
    width: Vector
    picked: Candidates
    strayed: Vector
    rival: Any = None
    predicted: Any = None
    preferred: Any = None
    kept: Any = None

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


# -- what the decider thought ------------------------------------------------------------------------------------------


class Decider(NamedTuple):
    """What a model says of the decider, in any unit.

    Attributes
    ----------
    policies : ndarray of shape (N, d)
        Policy of each episode.
    alpha : float or None
        Weight of the width H in the score; None where the decider explores by luck.
    kind : Kind
    worth : ndarray of shape (d,)
        Weights of the policy right after the log; the regret is seen with them.
    """

    policies: Matrix
    alpha: float | None
    kind: Kind
    worth: Vector

    @classmethod
    def of(cls, model: IBCB, policies: Matrix, alpha: float | None, worth: Vector) -> Decider:
        """A model's, ``alpha`` being the decider's own, counted in choices of the log."""
        kind = model.decider_
        return cls(policies, alpha and alpha * math.sqrt(kind.rate), kind, worth)


class Scores(NamedTuple):
    """Candidates and choices of an episode, or of a part of one, as the decider saw them.

    Attributes
    ----------
    expected, exploration : ndarray of shape (rows,)
        <p, s>, and what exploration added to the score: alpha H(s), or what a draw must at least have added to
        the chosen candidate, and 0 to the others.
    explored, unexplained : ndarray of bool, shape (steps,)
        See `EpisodeThoughts`.
    regret : ndarray of shape (steps,)
        What each choice cost against the step's best.
    random_regret : float
        What choices at random would cost, summed over the steps.
    """

    expected: Vector
    exploration: Vector
    explored: NDArray[np.bool_]
    unexplained: NDArray[np.bool_]
    regret: Vector
    random_regret: float

    @property
    def sums(self) -> Any:
        """What is added up over the parts of an episode: a Counter."""
        told = {name: getattr(self, name).sum().item() for name in ("explored", "unexplained", "regret")}
        return Counter({"steps": len(self.explored), **told, "random_regret": self.random_regret})


class EpisodeThoughts(NamedTuple):
    """Exploration and regret of one episode.

    Attributes
    ----------
    episode, steps : int
    explored : float
        Share of choices that exploration decided. Of an "sbucb" decider: the best candidate is another one without the
        bonus; all of them while nothing had been learned. Of any other: the chosen candidate is not the best; NaN while
        nothing had been learned.
    unexplained : float
        Share of choices that are not the best candidate even with exploration; 0 where a draw explains all.
    regret : float
        Mean over the steps of max_j <p, s_j> - <p, s_chosen>, with p the policy right after the log, divided by alpha
        for "sbucb". Compare episodes, not models.
    regret_share : float
        The same as a share of what choices at random would have cost: 0 for the best choices, 1 for random ones. NaN
        where candidates do not differ.
    """

    episode: int
    steps: int
    explored: float
    unexplained: float
    regret: float
    regret_share: float

    @classmethod
    def of(cls, decider: Decider, number: int, sums: Any) -> EpisodeThoughts:
        """From sums of `Scores.sums` over the parts of episode ``number``."""
        steps, random = sums["steps"], sums["random_regret"]
        blank = decider.alpha is None and not decider.policies[number].any()
        return cls(
            number,
            steps,
            np.nan if blank else sums["explored"] / steps,
            sums["unexplained"] / steps,
            sums["regret"] / steps,
            sums["regret"] / random if random > 0 else np.nan,
        )


def score(decider: Decider, number: int, part: BehaviorLog, width: Vector) -> Scores:
    """Score the candidates of episode ``number``, or of a part of it, each with its confidence ``width``.

    In double precision, whatever the contexts' own: widths in single precision would decide ties by their rounding.
    """
    contexts, chosen = in_double(part), part.chosen_rows
    expected: Vector = contexts @ decider.policies[number]
    if decider.alpha is None:
        exploration = np.zeros(len(expected))
        exploration[chosen] = _best(expected, part) - expected[chosen]
    else:
        exploration = decider.alpha * width
    total = expected + exploration
    lacking = _best(total, part) - _slack(total, part)
    if decider.alpha is None:
        explored = exploration[chosen] > _slack(total, part)
    elif not expected.any():
        explored = np.ones(part.n_steps, dtype=bool)
    else:
        explored = total[_best_rows(expected, part)] < lacking
    worth: Vector = contexts @ decider.worth
    top = _best(worth, part)
    means = np.add.reduceat(worth, part.step_offsets[:-1]) / np.diff(part.step_offsets)
    regret = top - worth[chosen]
    return Scores(expected, exploration, explored, total[chosen] < lacking, regret, float((top - means).sum()))


def _slack(total: Vector, part: BehaviorLog) -> float:
    # An exact solution lies on the boundary of its rows: there the chosen candidate ties with another, but for
    # rounding in the float type of the contexts.
    rounding = max(_TIE, 16 * float(np.finfo(part.contexts.dtype).eps))
    return rounding * float(np.abs(total).max(initial=0.0))


def _best_rows(scores: Vector, part: BehaviorLog) -> NDArray[np.int64]:
    return np.asarray(part.step_offsets[:-1] + argmax_per_step(scores, part))


def _best(scores: Vector, part: BehaviorLog) -> Vector:
    """The largest score of each step."""
    return np.asarray(scores[_best_rows(scores, part)])
