"""SBUCB: the best candidate by an upper confidence bound, <policy, s> + alpha H(s).

Its choices bound (policy, alpha) by the rows of a cone, see `ibcb.deciders.cone`. Only ratios to alpha are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders.best_kind import BestKind
from ibcb.deciders.kind import Family, Life, Motions, Scales, Words, grid
from ibcb.deciders.ridge_policy import IndexPolicy
from ibcb.engine import Block
from ibcb.numerics.contexts import Contexts, with_column
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Ridge

__all__ = ["SBUCB", "SbucbKind"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class SbucbKind(BestKind):
    """The kind."""

    name = "sbucb"
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
    # Only ratios matter, so scales are loose; alpha is of the order of 1.
    scales = Scales(policy=3.0, rewards=8.0, alpha=2.0, per_feature=False, first_policy=3.0)
    # Judged by benchmarks/forecast.py: twice as many models predict no better.
    motions = Motions(
        (
            Family("walk", grid((0.0, 0.006, 0.06, 0.6)), early=(0.6,), few=grid((0.0, 0.06, 0.6))),
            Family(
                "learner", grid((0.1, 0.4, 1.6), (0.0, 0.03, 0.1)), early=(0.4, 0.03), few=grid((0.4, 1.6), (0.03,))
            ),
        )
    )
    adds_bonus = True
    most_random = 0.06

    def drawn(self, block: Block, before: Ridge, believed: Beliefs) -> tuple[Contexts, Vector, Matrix]:
        return with_column(block.contexts, block.widths(before)), believed.mean[0], believed.covariance[0]

    def scores(self, block: Block, before: Ridge, policy: Vector) -> Vector:
        scores: Vector = block.contexts @ policy
        scores += before.widths(block.contexts)
        return scores

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        scores: NDArray[Any] = contexts @ p.astype(contexts.dtype)
        scores += now.widths(contexts)
        return scores

    def live(self, life: Life) -> SBUCB:
        return SBUCB(len(life.coef), alpha=life.alpha, gram=life.gram, moment=life.moment, **self.own_ridge)


class SBUCB(IndexPolicy):
    """Batched UCB: the largest <theta, s> + alpha H(s).

    Parameters
    ----------
    n_features : int
    alpha : float
        Exploration weight.
    l2 : float or array of shape (d,)
        Ridge parameter lambda; or one for each feature.
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

    def __init__(
        self,
        n_features: int,
        *,
        alpha: float = 0.4,
        l2: float | ArrayLike = 1.0,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
        origin: ArrayLike | None = None,
    ) -> None:
        super().__init__(n_features, alpha=alpha, l2=l2, gram=gram, moment=moment, origin=origin)

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        widths = self._ridge.widths(candidates.reshape(-1, self.n_features))
        total: NDArray[Any] = candidates @ self.coef_ + self.alpha * widths.reshape(candidates.shape[:-1])
        return total
