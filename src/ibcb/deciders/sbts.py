"""SBTS: Thompson sampling, the best candidate of a policy drawn from N(policy, alpha^2 Psi^-1).

It draws at every step, or once an episode: then its choices are the best by one draw, see `ibcb.deciders.cone`. What an
episode of choices by many draws says of the policy behind them is a site of O(d^2) numbers; policies are in units of
alpha.

How far another candidate o is behind the choice c, in deviations of the draw, is -x_o with
x_o = <p, s_o - s_c> / |s_o - s_c|_Psi^-1. One draw decides between all candidates at once, so a choice is read as that
of a conditional logit,

    P(c)  =  1 / (1 + sum over o of exp(k x_o)),

where k = 1.7 makes the logistic function the normal one for two candidates. With the belief so far as prior, its mode
and curvature there (Laplace's approximation) are the site.

That tells the direction of p well. Of its length, which is in units of the draws, a logit is not the right judge where
candidates are alike and draws lift them together. How often choices go against the mean is: a draw z takes the best
expected candidate g exactly if p is at least as long as

    t  =  max over o of  -<z, s_g - s_o> / <p, s_g - s_o>      times itself.

So the share of draws with t below a factor is the share of choices that agree with the mean if p is that much longer,
and the factor for the share that was seen is a quantile of t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ibcb.deciders.live import IndexPolicy, Learned, Learning, Probabilities, RandomState
from ibcb.deciders.rule import Believed, Columns, Life, Observed, Parameter, Rule, Setting, Unit, Values, Words
from ibcb.engine import Block
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.averages import best_of_draws
from ibcb.numerics.checks import one_of
from ibcb.numerics.choice_likelihood import Expansion
from ibcb.numerics.contexts import (
    Contexts,
    best_rows,
    dense,
    few_pairs,
    is_sparse,
    scaled_rows,
    shown_counts,
    step_counts,
    step_products,
    step_sums,
)
from ibcb.numerics.gaussians import Beliefs, Site, draws_root, site_at, symmetric_inverse
from ibcb.numerics.laplace import WithPrior
from ibcb.numerics.newton import Stopping, descend
from ibcb.numerics.ridge import Ridge


class DrawSettings(NamedTuple):
    """What is made of choices by draws; set by benchmarks/propensities.py (`widest`) and benchmarks/uncertainty.py."""

    #: variance of a belief over that of the draws that is believed where choices are predicted; of arms without
    #: features, with 5 those never taken have a hundredth each
    widest: float = 3.0
    #: choices against the mean that count as much as the logit's own word on the length
    doubt: float = 5.0
    #: factors on the length that are considered at all
    least: float = 0.3
    most: float = 3.0


_SET = DrawSettings()
#: the logistic function of 1.7 x is the normal distribution function of x to within .01
PROBIT = 1.7
#: rows that hold by more than this over k add less than exp(-8) to the cost of a step
SETTLED = 8.0
#: rounds in which rows left out at first are looked at again; not tuned: two or three are usual
_ROUNDS = 20
#: the site is exact to this share of a log-likelihood unit; not tuned finely
_STOPPING = Stopping(gain=1e-6, slack=1e-10, max_passes=100, floor=1.0)
#: draws that the length is told by, at least
_DRAWS = 2000
#: numbers (draws x rows x features) that are multiplied at a time, 2 MB: more would not stay near the processor
_NUMBERS_AT_ONCE = 1 << 18

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
        how: Any = {"alpha": state.alpha, "draws": state.draws, "random_state": state.random_state}
        return SBTS(len(state.coef), **how, **state.learned)


def _bounded(covariance: Matrix, L: Matrix) -> Matrix:
    """A covariance, in no direction more than `DrawSettings.widest` times that of the decider's own draws, L'L.

    That a candidate was never taken bounds its score from above only. A normal belief has no such bounds, and would
    give it a good chance for ever.
    """
    K = np.linalg.inv(L)
    values, V = np.linalg.eigh(K.T @ covariance @ K)
    if values[-1] <= _SET.widest:
        return covariance
    root = V.T @ L
    bounded: Matrix = (root.T * np.minimum(values, _SET.widest)) @ root
    return bounded


def draws_site(block: Block, ridge: Ridge, prior: Beliefs) -> Site:
    """Summarise an episode.

    Parameters
    ----------
    block : Block
        The episode's rows, or as many of the first as are enough.
    ridge : Ridge
        Of all choices before the episode.
    prior : Beliefs
        One belief of p.
    """
    centre, precision = prior.mean[0], symmetric_inverse(prior.covariance[0])
    if not ridge.phi.any():
        # Nothing had been learned, so that p is 0.
        return Site.empty(len(centre))
    rows, step = _rows(block, ridge)
    if not len(step):
        return Site.empty(len(centre))
    p, kept, descent = centre, np.zeros(len(step), dtype=bool), None
    for _ in range(_ROUNDS):
        # Rows left out at first may matter where p has gone.
        matters = rows @ p > -SETTLED / PROBIT
        if descent is not None and not (matters & ~kept).any():
            break
        kept |= matters
        loss = _Loss(rows[np.flatnonzero(kept)], step[kept])
        descent = descend(partial(WithPrior, loss=loss, centre=centre, precision=precision), p, _STOPPING)
        p = descent.point.x
    assert descent is not None
    here = descent.point.here
    return site_at(p, here.hessian, here.gradient, here.loss, least=1e-12)


def length_factor(block: Block, ridge: Ridge, p: Vector) -> float:
    """By how much p has to be longer for draws to go against its mean as often as the choices did.

    1 where hardly any choice goes against it: then its length is anybody's guess.
    """
    X, starts, counts = block.contexts.astype(np.float64, copy=False), block.offsets[:-1], step_counts(block.offsets)
    # A feature that is always 0 takes no part in the luck either.
    shown = shown_counts(X) > 0
    L = ridge.whitener.matrix[:, shown] if not shown.all() else ridge.whitener.matrix
    spread = draws_root(p[shown], L.T @ L)
    scores = X @ p
    X = X[:, shown] if not shown.all() else X
    greedy = best_rows(scores, block.offsets)
    steps = len(greedy)
    against = steps - int(np.count_nonzero(scores[greedy] <= scores[block.chosen_rows]))
    lead = np.repeat(scores[greedy], counts) - scores
    # Candidates that the mean does not tell apart are left out: no length does.
    told = lead > 0
    rng, thresholds = np.random.default_rng(0), list[Matrix]()
    rounds = -(-_DRAWS // (2 * steps))
    at_once = max(1, _NUMBERS_AT_ONCE // (len(lead) * len(spread)))
    for first in range(0, rounds, at_once):
        drawn = rng.standard_normal((min(at_once, rounds - first), steps, len(spread))) @ spread.T
        luck = step_products(X, drawn, counts)
        luck -= np.repeat(luck[:, greedy], counts, axis=1)
        ratio = np.divide(luck, lead, out=luck, where=told)
        # Every draw and its opposite: together they err less.
        both = (np.where(told, each, -np.inf) for each in (ratio, -ratio))
        thresholds += [np.maximum.reduceat(each, starts, axis=1) for each in both]
    share = (steps - against + 0.5) / (steps + 1)
    factor = float(np.quantile(np.concatenate(thresholds, axis=None), share, method="lower"))
    known = against / (against + _SET.doubt)
    return float(np.clip(factor, _SET.least, _SET.most) ** known)


def _rows(block: Block, ridge: Ridge) -> tuple[Contexts, NDArray[np.int64]]:
    """Leads of the candidates that were not chosen, of length 1 in the metric of Psi^-1, and the step of each."""
    others = np.ones(block.n_rows, dtype=bool)
    others[block.chosen_rows] = False
    places = np.flatnonzero(others)
    step = block.step_of(places)
    A = block.all_leads(np.float64)[places] if is_sparse(block.contexts) else block.lead_contexts(places, step)
    length = ridge.lengths(A)
    # Candidates that do not differ have no row: either may be the chosen one.
    if not length.all():
        differ = np.flatnonzero(length > 0)
        A, step, length = A[differ], step[differ], length[differ]
    A = A if few_pairs(A) else dense(A)
    return scaled_rows(A, 1 / length), step


class _Loss:
    """Minus the log-likelihood of some rows, which come in the order of their steps."""

    def __init__(self, rows: Contexts, step: NDArray[np.int64]) -> None:
        self.rows = rows * PROBIT
        self.starts = np.flatnonzero(np.diff(step, prepend=-1))
        self.counts = np.diff(self.starts, append=len(step))
        self._known: tuple[Vector | None, float, Vector] = (None, 0.0, np.empty(0))

    def __call__(self, p: Vector) -> float:
        return self._drawn(p)[0]

    def _drawn(self, p: Vector) -> tuple[float, Vector]:
        """The loss, and how probable each row's candidate is; worked out once for a p that is asked about again."""
        if self._known[0] is not p:
            s = self.rows @ p
            top = np.maximum(np.maximum.reduceat(s, self.starts), 0.0)
            e = np.exp(s - np.repeat(top, self.counts))
            total = np.exp(-top) + np.add.reduceat(e, self.starts)
            self._known = p, float(np.sum(top + np.log(total))), e / np.repeat(total, self.counts)
        return self._known[1:]

    def expand(self, p: Vector) -> Expansion:
        """The loss with its derivatives: means and covariances of a lead drawn from each step's candidates, the chosen
        one's zeros among them.
        """
        A, (loss, q) = self.rows, self._drawn(p)
        if is_sparse(A):
            drawn = scaled_rows(A, q)
            means = dense(step_sums(drawn, np.append(self.starts, len(q))))
            return Expansion(loss, q @ A, dense(A.T @ drawn) - means.T @ means)
        bent = A * np.sqrt(q)[:, None]
        means = np.add.reduceat(A * q[:, None], self.starts, axis=0)
        return Expansion(loss, q @ A, bent.T @ bent - means.T @ means)


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
