"""What a decider thought of its candidates: what it expected, what exploration added, what its choices cost.

The score that a recovered SBUCB decider gives a candidate s in episode n has two parts, <p_n, s> for what it expects of
s and alpha H_n(s) for what it might learn, with p_n the policy of that time and H_n the width of the choices before it.
A Thompson sampler explores by a draw that the log does not show; the least that it can have added to the chosen
candidate is what that one lacked to the best. Regret is seen with the policy right after the log: with what the decider
knew at the end, not then.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.report.reading import in_double

if TYPE_CHECKING:
    from ibcb.estimators.ibcb import IBCB

#: scores that differ by less than this share of the largest are equal
_TIE = 1e-8


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
    expected, width, exploration : ndarray of shape (rows,)
        <p, s>, H(s), and what exploration added to the score: alpha H(s), or what a draw must at least have added to
        the chosen candidate, and 0 to the others.
    explored, unexplained : ndarray of bool, shape (steps,)
        See `EpisodeThoughts`.
    regret : ndarray of shape (steps,)
        What each choice cost against the step's best.
    random_regret : float
        What choices at random would cost, summed over the steps.
    """

    expected: Vector
    width: Vector
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
    return Scores(expected, width, exploration, explored, total[chosen] < lacking, regret, float((top - means).sum()))


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
