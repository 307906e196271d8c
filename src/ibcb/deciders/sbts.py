"""SBTS: Thompson sampling, the best candidate of a policy drawn from N(policy, alpha^2 Psi^-1).

It draws at every step, or once an episode. What an episode of choices says in the first case is a site, see
`ibcb.deciders.draws_site`; in the second they are the best by one draw, and bound it by the rows of a cone, see
`ibcb.deciders.cone`. Policies are in units of alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from ibcb.deciders.best_kind import BestKind
from ibcb.deciders.draws_site import draws_site, length_factor
from ibcb.deciders.kind import Believed, Family, Kind, Life, Motions, Observed, Scales, Words, grid
from ibcb.deciders.ridge_policy import IndexPolicy
from ibcb.engine import Block, CandidateMoments
from ibcb.numerics.checks import one_of
from ibcb.numerics.contexts import Contexts, is_sparse, scaled_rows, step_sums
from ibcb.numerics.gaussians import Beliefs, draws_root
from ibcb.numerics.ridge import Ridge

__all__ = ["DRAWS", "SBTS", "SbtsEpisodeKind", "SbtsKind"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: a mean square below this share of what it is the difference of is rounding
_ROUNDING = 1e-12

#: variance of a belief over that of the draws that is believed where choices are foreseen (judged by
#: benchmarks/propensities.py, and by arms without features: with 5 those never taken have a hundredth each)
_WIDEST = 3.0

DRAWS = ("step", "episode")

#: alpha of a decider that draws once an episode, in the unit of its policies, between which is told (judged by
#: benchmarks/selection.py)
_SPREADS = (0.4, 1.0, 2.5, 6.0, 15.0)

#: draws behind `SBTS.propensities`, whose standard errors are then .005 at most; their seed; and how many scores are
#: held at a time
_PROPENSITY_DRAWS, _PROPENSITY_SEED, _SCORES_HELD = 10_000, 0, 1 << 22


@dataclass(frozen=True)
class SbtsKind(Kind):
    """The kind that draws at every step."""

    name = "sbts"
    draws_every = "step"
    words = Words(
        "the decider learns, and draws from its posterior",
        "SBTS: Thompson sampling",
        explored="its draws decide",
        exploration="A Thompson sampler draws its weights. Shown is how often its draws prefer another candidate than "
        "the one it expects most of.",
        misfits="They are further off than its draws explain: look here for changed records.",
        misfit="The luck of a Thompson sampler has no exact explanation",
    )
    scales = Scales(policy=10.0, rewards=2.0, first_policy=0.1)
    # As of SbucbKind, in units of the decider's own draws.
    motions = Motions(
        (
            Family("walk", grid((0.03, 0.3, 3.0)), early=(3.0,), few=grid((0.3, 3.0))),
            Family(
                "learner", grid((0.2, 0.8, 3.2, 8.0), (0.0, 0.03)), early=(0.8, 0.03), few=grid((0.8, 3.2), (0.03,))
            ),
        )
    )
    learns = True
    compares_predictions = True
    most_random = 0.06
    narrows = True
    # Its factors are found with the variance of one that only walks.
    doubt = 0.05
    # Judged by benchmarks/arms.py and benchmarks/forecast.py.
    tempering = 0.2

    def unit(self, candidates: CandidateMoments) -> Matrix:
        return candidates.unit

    def observe(self, block: Block, before: Ridge, believed: Believed, stray: float) -> Observed:
        # Around what is believed, with the doubt of one that only walks: other models are to learn from the site too.
        prior = Beliefs(believed.best.mean, believed.leaders[0].covariance)
        site = draws_site(block, before, prior)
        if site.root.shape[1]:
            # The logit's p, made longer: what is seen of it stays as sure.
            factor = length_factor(block, before, prior.given(site)[0].mean[0])
            site = replace(site, root=site.root / factor)
        return Observed((site,) * len(believed.leaders))

    def drawn(self, block: Block, before: Ridge, believed: Beliefs) -> tuple[Contexts, Vector, Matrix]:
        """With the decider's own draws, N(0, Psi^-1)."""
        L = before.whitener.matrix
        return block.contexts, believed.mean[0], _bounded(believed.covariance[0], L) + L.T @ L

    def scores(self, block: Block, before: Ridge, policy: Vector) -> Vector:
        """In units of the step's width: the less a decider has seen, the more widely it draws."""
        X, starts, counts = block.contexts, block.offsets[:-1], np.diff(block.offsets)
        scores: Vector = X @ policy
        middle = scaled_rows(step_sums(X, block.offsets), 1 / counts)
        if is_sparse(X):
            # The mean of squares less the square of the mean: leads of the mean itself would not be sparse.
            whole = np.add.reduceat(before.lengths(X) ** 2, starts) / counts
            square = whole - before.lengths(middle) ** 2
            square[square <= _ROUNDING * whole] = 0.0
        else:
            square = np.add.reduceat(before.lengths(X - np.repeat(middle, counts, axis=0)) ** 2, starts) / counts
        # Steps whose candidates do not differ have no width, and no lead either.
        unit = np.sqrt(np.where(square > 0, square, 1.0))
        scores /= np.repeat(unit, counts)
        return scores

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        scores: NDArray[Any] = contexts @ p.astype(contexts.dtype)
        L = now.whitener.matrix
        drawn = (rng.standard_normal((len(counts), len(p))) @ draws_root(p, L.T @ L).T).astype(contexts.dtype)
        scores += np.einsum("rd,rd->r", contexts, np.repeat(drawn, counts, axis=0))
        return scores

    def live(self, life: Life) -> SBTS:
        return _live(self, life)


def _bounded(covariance: Matrix, L: Matrix) -> Matrix:
    """A covariance, in no direction more than `_WIDEST` times that of the decider's own draws, L'L.

    That a candidate was never taken bounds its score from above only. A normal belief has no such bounds, and would
    give it a good chance for ever.
    """
    K = np.linalg.inv(L)
    values, V = np.linalg.eigh(K.T @ covariance @ K)
    if values[-1] <= _WIDEST:
        return covariance
    root = V.T @ L
    found: Matrix = (root.T * np.minimum(values, _WIDEST)) @ root
    return found


@dataclass(frozen=True)
class SbtsEpisodeKind(BestKind):
    """The kind that draws once an episode: its choices are the best by that draw."""

    name = "sbts"
    draws_every = "episode"
    words = Words(
        "the decider learns, and draws from its posterior once an episode",
        "SBTS: Thompson sampling, one draw per episode",
        misfit="The luck of a Thompson sampler has no exact explanation",
    )
    # As of SbucbKind, without alpha. Judged by benchmarks/selection.py: with walks beside it is mistaken more often.
    scales = Scales(policy=3.0, rewards=8.0, per_feature=False, first_policy=3.0)
    motions = Motions(
        (
            Family(
                "sampler",
                grid((0.4,), (0.03,), _SPREADS),
                early=(0.4, 0.03, 6.0),
                few=grid((0.4,), (0.03,), (1.0, 6.0)),
            ),
        )
    )
    # Its choices do not depend on l2 but through what it has learned, and how widely it draws at first.
    penalties: ClassVar = {"scaled": (0.3, 3.0), "standardized": (1.0,)}
    most_random = 0.06
    # The draw is part of what is believed.
    doubt = 1.0

    def live(self, life: Life) -> SBTS:
        return _live(self, life)


def _live(kind: Kind, life: Life) -> SBTS:
    state: dict[str, Any] = {"gram": life.gram, "moment": life.moment, "random_state": life.random_state}
    return SBTS(len(life.coef), alpha=life.alpha, draws=life.draws, **kind.own_ridge, **state)


class SBTS(IndexPolicy):
    """Batched Thompson sampling: the largest <theta~, s> with theta~ drawn from N(theta, alpha^2 Psi^-1).

    Parameters
    ----------
    n_features, alpha, l2, gram, moment, origin
        As of `SBUCB`.
    draws : {"step", "episode"}
        A fresh theta~ at every step, or one after every update that serves until the next.
    random_state : int, Generator or None

    Notes
    -----
    With a draw at every step, `propensities` averages over 10,000 draws of a luck of its own, always the same: its
    standard errors are .005 at most, and asking changes no choice. With one draw per episode it is 1 for the best
    candidate of the draw in force.
    """

    def __init__(
        self,
        n_features: int,
        *,
        alpha: float = 0.4,
        l2: float | ArrayLike = 1.0,
        draws: str = "step",
        random_state: int | np.random.Generator | None = None,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
        origin: ArrayLike | None = None,
    ) -> None:
        self.draws = one_of("draws", draws, DRAWS)
        self._rng = np.random.default_rng(random_state)
        super().__init__(n_features, alpha=alpha, l2=l2, gram=gram, moment=moment, origin=origin)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, draws={self.draws!r})"

    def _refit(self) -> None:
        super()._refit()
        if self.draws == "episode":
            self._drawn = self._draw(1)[0]

    def _draw(self, count: int) -> Matrix:
        """Some theta~ of this policy's own luck. Shape (count, d)."""
        return self._drawn_by(self._rng.standard_normal((count, self.n_features)))

    def _drawn_by(self, z: Matrix) -> Matrix:
        """theta + alpha L^-T z, whose covariance is alpha^2 Psi^-1: shape (count, d) to the same."""
        spread = solve_triangular(self._ridge.cholesky, z.T, lower=True, trans="T", check_finite=False)
        drawn: Matrix = self.coef_ + self.alpha * spread.T
        return drawn

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        if self.draws == "episode":
            return np.asarray(candidates @ self._drawn)
        drawn = self._draw(1 if candidates.ndim == 2 else len(candidates))
        if candidates.ndim == 2:
            return np.asarray(candidates @ drawn[0])
        return np.asarray((candidates @ drawn[:, :, None])[:, :, 0])

    def average(
        self, candidates: NDArray[Any], rule: Callable[[NDArray[Any]], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        if self.draws == "episode":
            return super().average(candidates, rule)
        # Fixed luck of its own: asking disturbs no choice, and asking twice gives the same.
        z = np.random.default_rng(_PROPENSITY_SEED).standard_normal((_PROPENSITY_DRAWS, self.n_features))
        drawn = self._drawn_by(z)
        sets = candidates.reshape(-1, *candidates.shape[-2:])
        at_once = max(1, _SCORES_HELD // (_PROPENSITY_DRAWS * sets.shape[1]))
        parts = [sets[first : first + at_once] for first in range(0, len(sets), at_once)]
        means = [rule(np.moveaxis(part @ drawn.T, -1, 0)).mean(axis=0) for part in parts]
        return np.concatenate(means).reshape(candidates.shape[:-1])
