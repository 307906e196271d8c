"""SBUCB: the best candidate by an upper confidence bound, <policy, s> + alpha H(s).

Its choices bound (policy, alpha) by the rows of a cone, see `ibcb.deciders.cone`. Only ratios to alpha are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders.cone import ConeRows, Posterior, informative_rows, propagate
from ibcb.deciders.kind import Believed, Family, Kind, Lessons, Motions, Scales, Words, grid
from ibcb.deciders.ridge_policy import RidgePolicy, ridge_unit
from ibcb.engine import Block
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Ridge

__all__ = ["SBUCB", "SbucbKind"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: rows are called settled by what is believed, widened by this factor (judged by benchmarks/forecast.py)
_WIDENING = 4.0


@dataclass(frozen=True)
class SbucbKind(Kind):
    """The kind."""

    name = "sbucb"
    words = Words(
        "the decider learns, and adds a confidence bonus",
        "SBUCB: adds a confidence bonus, takes the best",
        length="but little of",
        explored="the exploration bonus decided",
        exploration="Exploration decided where the best score with the bonus is another candidate's than the best "
        "score without it.",
        misfit="",
        contradictions="No reward weights explain these choices together. Look here first for changed records, wrong "
        "batch edges, or a decider that is not what was assumed.",
    )
    # Only ratios matter, so scales are loose; alpha is of the order of 1.
    scales = Scales(policy=3.0, rewards=8.0, alpha=2.0, per_feature=False, first_policy=3.0)
    # A factor of three or four from model to model; judged by benchmarks/forecast.py.
    motions = Motions(
        (
            Family("walk", grid((0.002, 0.006, 0.02, 0.06, 0.2, 0.6))),
            Family("learner", grid((0.02, 0.1, 0.4, 1.6, 6.4), (0.0, 0.03, 0.1))),
        )
    )
    learns = True
    adds_bonus = True
    draws = False
    compares_predictions = True
    hopeless = 30.0
    good, fair = 0.8, 0.6

    def measure(self, block: Block) -> Matrix:
        return ridge_unit(block)

    def observe(self, block: Block, before: Ridge, believed: Believed, stray: float) -> ConeRows | None:
        if not before.phi.any():
            # Nothing had been learned: p is 0, and the choices do not tell more.
            return None
        # One episode tells no model from another: before the third the widest walk is asked.
        asked = believed.walk if believed.young else believed.best
        return informative_rows(block, before, asked.mean[0], _WIDENING * asked.covariance[0])

    def learn(
        self, seen: ConeRows | None, families: tuple[Beliefs, ...], alive: tuple[NDArray[np.bool_], ...]
    ) -> Lessons:
        d = families[0].mean.shape[1] - 1
        if seen is None:
            return Lessons(families, tuple(np.zeros(len(family)) for family in families), np.zeros((d, d)))
        learned, likely = list[Beliefs](), list[Vector]()
        for family, able in zip(families, alive, strict=True):
            models = np.flatnonzero(able)
            after, posterior = _conditioned(family, seen, models)
            gained = np.full(len(family), -np.inf)
            gained[models] = posterior.log_likelihood
            learned.append(after)
            likely.append(gained)
        A = posterior.sites.leads[:, :d]
        information = A.T @ (posterior.sites.precision[:, None] * A)
        # A model that did not learn, or could not, is as bad as the worst that could.
        everyone = np.concatenate(likely)
        worst = everyone[np.isfinite(everyone)].min(initial=0.0)
        return Lessons(tuple(learned), tuple(np.where(np.isfinite(each), each, worst) for each in likely), information)

    def scores(self, block: Block, before: Ridge, policy: Vector) -> Vector:
        scores: Vector = block.contexts @ policy
        scores += before.widths(block.contexts)
        return scores

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        scores: NDArray[Any] = contexts @ p.astype(contexts.dtype)
        scores += now.widths(contexts)
        return scores

    def live(self, gram: Matrix, moment: Vector, alpha: float, *, draws: str, random_state: Any) -> SBUCB:
        return SBUCB(len(moment), alpha=alpha, l2=self.l2, gram=gram, moment=moment)


def _conditioned(family: Beliefs, rows: ConeRows, models: NDArray[np.int64]) -> tuple[Beliefs, Posterior]:
    """The family after some of its models have learned that rows (p, alpha) <= 0."""
    o, some = rows.leads.shape[1], family[models]
    told = propagate(rows, some.of_first(o))
    gain = np.swapaxes(np.linalg.solve(told.root, some.covariance[:, :o]), 1, 2)
    less = gain @ (np.eye(o) - told.covariance) @ np.swapaxes(gain, 1, 2)
    mean, covariance = family.mean.copy(), family.covariance.copy()
    mean[models] = some.mean + (gain @ told.mean[:, :, None])[:, :, 0]
    covariance[models] = some.covariance - (less + np.swapaxes(less, 1, 2)) / 2
    return Beliefs(mean, covariance), told


class SBUCB(RidgePolicy):
    """Batched UCB: the largest <theta, s> + alpha H(s).

    Parameters
    ----------
    n_features : int
    alpha : float
        Exploration weight.
    l2 : float
        Ridge parameter lambda.
    gram, moment : arrays of shape (d, d) and (d,), optional
        S'S and S'R of what has been learned already; without them nothing has.

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
        l2: float = 1.0,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
    ) -> None:
        super().__init__(n_features, alpha=alpha, l2=l2, gram=gram, moment=moment)

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        widths = self._ridge.widths(candidates.reshape(-1, self.n_features))
        total: NDArray[Any] = candidates @ self.coef_ + self.alpha * widths.reshape(candidates.shape[:-1])
        return total
