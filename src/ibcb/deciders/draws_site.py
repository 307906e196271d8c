"""What one episode's choices of a Thompson sampler say of the policy behind them, in O(d^2) numbers.

An "sbts" decider draws from N(p, Psi^-1), and takes the best candidate of the draw. How far another candidate o is
behind the choice c, in deviations of the draw, is -x_o with x_o = <p, s_o - s_c> / |s_o - s_c|_Psi^-1. One draw decides
between all candidates at once, so a choice is read as that of a conditional logit,

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

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block
from ibcb.numerics.arrays import Matrix, Vector
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
#: choices against the mean that count as much as the logit's own word on the length; and the factors that are
#: considered at all; judged by benchmarks/uncertainty.py
_DOUBT, _LEAST, _MOST = 5.0, 0.3, 3.0


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
    known = against / (against + _DOUBT)
    return float(np.clip(factor, _LEAST, _MOST) ** known)


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
