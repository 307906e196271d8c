"""SBUCB: the best candidate by an upper confidence bound, <policy, s> + alpha H(s).

Its choices bound (policy, alpha) by the rows of a cone, see `ibcb.deciders.cone`. Only ratios to alpha are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ibcb.deciders.cone import Best
from ibcb.deciders.live import IndexPolicy
from ibcb.deciders.rule import Columns, Life, Parameter, Unit, Width, Words
from ibcb.engine import Block
from ibcb.numerics.ridge import Ridge


@dataclass(frozen=True)
class UpperBound(Best):
    """The rule."""

    name = "sbucb"
    # Only ratios matter, so scales are loose; alpha is of the order of 1.
    parameters = (
        Parameter("alpha", "rewards", (0.0, math.inf), "normal, deviation 2", "weight of the width H", Unit(2.0)),
    )
    words = Words(
        "the decider learns, and adds a confidence bonus",
        "SBUCB: adds a confidence bonus, takes the best",
        length="but little of",
        explored="the exploration bonus decides",
        exploration="The bonus decides where another candidate has the best score without it.",
        misfit="",
        contradictions="No reward weights explain these choices together. Look here first for changed records, wrong "
        "episode edges, or a decider that is not what was assumed.",
    )

    def columns(self, block: Block, before: Ridge) -> Columns:
        return Columns(block, before, (Width(before),))

    def live(self, state: Life) -> SBUCB:
        return SBUCB(len(state.coef), alpha=state.alpha, **state.learned)


class SBUCB(IndexPolicy):
    """Batched UCB: the largest <theta, s> + alpha H(s).

    Parameters
    ----------
    n_features : int
    alpha : float
        Exploration weight.
    l2 : float or array of shape (d,)
        Ridge parameter lambda, 1 unless given; or one for each feature.
    gram, moment : arrays of shape (d, d) and (d,), optional
        S'S and S'R of what has been learned already; without them nothing has.
    origin : array of shape (d,), optional
        From which contexts are measured, 0 unless given.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> policy = SBUCB(3, alpha=0.4, l2=0.3)
    >>> candidates = rng.normal(size=(100, 5, 3))
    >>> chosen = candidates[np.arange(100), policy.act(candidates)]
    >>> policy.update(chosen, chosen @ [1.0, 0.0, -1.0])
    >>> policy.act(candidates[0])
    2
    """

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        """Upper bound of every candidate: shape (..., M, d) to (..., M)."""
        widths = self._learning.ridge.widths(candidates.reshape(-1, self.n_features))
        return candidates @ self.coef_ + self.alpha * widths.reshape(candidates.shape[:-1])
