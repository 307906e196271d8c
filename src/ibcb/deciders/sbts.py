"""SBTS: Thompson sampling, the best candidate of a policy drawn from N(policy, alpha^2 Psi^-1).

It draws at every step, or once an episode. What an episode of choices says in the first case is a site, see
`ibcb.deciders.draws_site`, with policies in units of alpha. In the second they are the best by one draw, without any
other luck: they bound the policy by the rows of a cone, see `ibcb.deciders.cone`. Only its direction is told then, or,
for rules that add to the candidates and take the best, its ratio to the weight of what is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ibcb.deciders.cone import cone_sites
from ibcb.deciders.draws_site import draws_site, length_factor
from ibcb.deciders.live import IndexPolicy, Learned, Learning, Probabilities, RandomState
from ibcb.deciders.rule import Believed, Columns, Life, Observed, Parameter, Rule, Setting, Unit, Values, Words
from ibcb.engine import Block
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.averages import best_of_draws
from ibcb.numerics.checks import one_of
from ibcb.numerics.contexts import best_rows
from ibcb.numerics.gaussians import Beliefs, Site

#: variance of a belief over that of the draws that is believed where choices are predicted (judged by
#: benchmarks/propensities.py, and by arms without features: with 5 those never taken have a hundredth each)
_WIDEST = 3.0
#: factors are found with this much more variance than a family's leader has: its other models are to learn from them
#: too, and would be too sure otherwise (judged by benchmarks/uncertainty.py)
_WIDENING = 3.0

DRAWS = ("step", "episode")

#: draws behind `SBTS.propensities`, whose standard errors are then .005 at most; their seed; and how many scores are
#: held at a time
_PROPENSITY_DRAWS, _PROPENSITY_SEED, _SCORES_HELD = 10_000, 0, 1 << 22


@dataclass(frozen=True)
class BestOfDraw(Rule):
    """The rule of one that draws at every step."""

    name = "sbts"
    parameters = (
        Parameter("alpha", "rewards", (0.0, math.inf), "none", "how widely policies are drawn", Unit(), luck=True),
        Parameter("draws", "", DRAWS, "none", "how often the policy is drawn", Setting(value="step")),
    )
    words = Words(
        "the decider learns, and draws from its posterior",
        "SBTS: Thompson sampling",
        explored="its draws decide",
        exploration="A Thompson sampler draws its weights. Shown is how often its draws prefer another candidate than "
        "the one it expects most of.",
        misfits="They are further off than its draws explain: look here for changed records.",
        misfit="The luck of a Thompson sampler has no exact explanation",
        spread="spread H",
    )

    def observe(self, block: Block, columns: Columns, belief: Believed, parameters: Values) -> Observed:
        # Around what is believed, with the doubt of one that only walks: other models are to learn from the site too.
        prior = Beliefs(belief.best.mean, belief.leaders[0].covariance)
        site = draws_site(block, columns.before, prior)
        if site.root.shape[1]:
            # The logit's p, made longer: what is seen of it stays as sure.
            factor = length_factor(block, columns.before, prior.given(site)[0].mean[0])
            site = replace(site, root=site.root / factor)
        return Observed((site,) * len(belief.leaders))

    def probabilities(self, block: Block, columns: Columns, belief: Beliefs, parameters: Values) -> Vector:
        """With the decider's own draws, N(0, Psi^-1)."""
        L = columns.before.whitener.matrix
        covariance = _bounded(belief.covariance[0], L) + L.T @ L
        return best_of_draws(block.contexts, block.offsets, belief.mean[0], covariance, parameters.draws)

    def live(self, state: Life) -> SBTS:
        return _live(state)


@dataclass(frozen=True)
class Best(Rule):
    """The rule of one that draws once an episode, and of those that take the best without luck."""

    name = "best"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("alpha", "rewards", (0.0, math.inf), "none", "how widely the policy is drawn", Unit()),
        Parameter("draws", "", DRAWS, "none", "how often the policy is drawn", Setting(value="episode")),
    )
    words = Words(
        "the decider learns, and draws from its posterior once an episode",
        "SBTS: Thompson sampling, one draw per episode",
        misfit="The luck of a Thompson sampler has no exact explanation",
    )

    def observe(self, block: Block, columns: Columns, belief: Believed, parameters: Values) -> Observed:
        families = range(len(belief.leaders))
        if not columns.before.phi.any():
            # Nothing had been learned: p is 0, and the choices do not tell more.
            return Observed((Site.empty(belief.best.mean.shape[1]),) * len(families), parameters.stray)
        # A family that has no chance learns from the factor of the likeliest.
        wide = [belief.leaders[family].widened(_WIDENING) for family in belief.asked]
        sites, strayed = cone_sites(block, columns, wide, parameters.stray)
        by_family = dict(zip(belief.asked, sites, strict=True))
        return Observed(tuple(by_family.get(family, sites[0]) for family in families), strayed)

    def probabilities(self, block: Block, columns: Columns, belief: Beliefs, parameters: Values) -> Vector:
        mean, covariance = belief.mean[0], belief.covariance[0]
        if not covariance.any():
            # Nothing to draw: the best, the first of equals.
            certain = np.zeros(block.n_rows)
            certain[best_rows(columns.scores(mean.astype(block.contexts.dtype)), block.offsets)] = 1.0
            return certain
        return best_of_draws(columns.whole, block.offsets, mean, covariance, parameters.draws)

    def live(self, state: Life) -> Any:
        return _live(state)


def _live(state: Life) -> SBTS:
    how: Any = {"alpha": state.alpha, "draws": state.draws, "random_state": state.random_state}
    return SBTS(len(state.coef), **how, **state.learned)


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
    bounded: Matrix = (root.T * np.minimum(values, _WIDEST)) @ root
    return bounded


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
        draws: str = "step",
        random_state: RandomState = None,
        **learned: Unpack[Learned],
    ) -> None:
        self.draws = one_of("draws", draws, DRAWS)
        self._rng = np.random.default_rng(random_state)
        super().__init__(n_features, alpha=alpha, **learned)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, draws={self.draws!r})"

    def _adopt(self, learning: Learning) -> None:
        super()._adopt(learning)
        if self.draws == "episode":
            self._in_force = self._draw(1)[0]

    def _draw(self, count: int) -> Matrix:
        """Some theta~ of this policy's own luck. Shape (count, d)."""
        return self._drawn_by(self._rng.standard_normal((count, self.n_features)))

    def _drawn_by(self, z: Matrix) -> Matrix:
        """theta + alpha L^-T z, whose covariance is alpha^2 Psi^-1: shape (count, d) to the same."""
        spread = solve_triangular(self._learning.ridge.cholesky, z.T, lower=True, trans="T", check_finite=False)
        drawn: Matrix = self.coef_ + self.alpha * spread.T
        return drawn

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        """By the draw in force, or by one of each set's own: shape (..., M, d) to (..., M)."""
        if self.draws == "episode":
            return np.asarray(candidates @ self._in_force)
        drawn = self._draw(1 if candidates.ndim == 2 else len(candidates))
        if candidates.ndim == 2:
            return np.asarray(candidates @ drawn[0])
        return np.asarray((candidates @ drawn[:, :, None])[:, :, 0])

    def average(self, candidates: NDArray[Any], rule: Callable[[NDArray[Any]], Probabilities]) -> Probabilities:
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
