"""Choices without error: half-spaces for (policy, alpha), learned from by expectation propagation.

An "sbucb" decider with the policy p prefers its choice c to another candidate o:

    <p, s_o - s_c> + alpha (H(s_o) - H(s_c))  <=  0.

So w = (p, alpha) lies in a cone, whose rows are the differences of (s, H(s)). Choices tell only its direction, which is
p / alpha. Beliefs about w are normal all the same; its length is a matter of the prior. In these coordinates every row
is a half-space through the origin, and expectation propagation (Minka 2001) learns from all of them nearly exactly:
each row has a Gaussian site of its own, chosen so that the belief has the moments of the cavity (the belief without
this site) cut by the row. Laplace's approximation would not do: it goes by slopes, and the walls of a cone have none.

A row may be wrong with probability ``stray``: one that contradicts what is firmly known is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from ibcb.engine import Block
from ibcb.numerics.gaussians import Beliefs, factor, symmetric_inverse
from ibcb.numerics.ridge import Ridge, widths

__all__ = ["ConeRows", "EPSettings", "Posterior", "RowSearch", "informative_rows", "propagate"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class EPSettings:
    """Expectation propagation; judged by benchmarks/forecast.py and benchmarks/dirty.py."""

    #: probability that a row is wrong
    stray: float = 1e-3
    #: passes over the sites, and the move in posterior deviations at which they end
    max_passes: int = 24
    tolerance: float = 0.02
    #: by how much the information about each weight may grow in a pass, as a share of itself: many rows that say the
    #: same, learned from at once, would each be believed in full
    growth: float = 1.0
    #: after these passes rows whose site is weaker than `settled` are dropped
    drop_after: tuple[int, ...] = (10, 20)
    settled: float = 1e-5
    #: a belief this much narrower than before is an accident of rounding
    overflow: float = 1e16


@dataclass(frozen=True)
class RowSearch:
    """Which rows are learned from; judged by benchmarks/forecast.py."""

    #: rows that hold by more deviations than this tell nothing
    far: float = 8.0
    #: what is believed after a look at some rows is widened by this factor before others are called settled
    widening: float = 4.0
    #: rows per weight that are looked at (an errorless episode has fewer that matter), in so many rounds
    rows_per_weight: int = 64
    rounds: int = 4


_EP, _SEARCH = EPSettings(), RowSearch()
_LOG_STRAY, _LOG_MEANT = np.log(_EP.stray), np.log1p(-_EP.stray)
_LOG_ROOT = 0.5 * np.log(2 * np.pi)


class ConeRows(NamedTuple):
    """Rows of a cone, each with a first guess of its site exp(shift y - precision y^2 / 2) of y = row w.

    Attributes
    ----------
    leads : ndarray of shape (n, o)
    precision, shift : ndarray of shape (n,)
        Natural parameters of the sites.
    """

    leads: Matrix
    precision: Vector
    shift: Vector

    @classmethod
    def fresh(cls, leads: Matrix) -> ConeRows:
        """Rows of which nothing is guessed."""
        return cls(leads, np.zeros(len(leads)), np.zeros(len(leads)))

    def joined(self, other: ConeRows) -> ConeRows:
        """These rows and then the others."""
        leads, precision, shift = (np.concatenate(both) for both in zip(self, other, strict=True))
        return ConeRows(leads, precision, shift)


class Posterior(NamedTuple):
    """Beliefs N(m, V) of K models after some rows, in coordinates v with w = m + L v and V = L L'.

    Attributes
    ----------
    root : ndarray of shape (K, o, o)
        L.
    mean : ndarray of shape (K, o)
        Of v.
    covariance : ndarray of shape (K, o, o)
        Of v; it was I before.
    log_likelihood : ndarray of shape (K,)
        Of the rows.
    informative : ndarray of int
        Which rows changed a belief.
    sites : ConeRows
        These rows, with their sites in the first model.
    """

    root: Matrix
    mean: Matrix
    covariance: Matrix
    log_likelihood: Vector
    informative: NDArray[np.int64]
    sites: ConeRows


@np.errstate(all="ignore")
def propagate(given: ConeRows, before: Beliefs) -> Posterior:
    """Learn that rows w <= 0, by expectation propagation with all sites at once.

    A model that is so far from the rows that no number can say it learns nothing, at a likelihood of zero.

    Parameters
    ----------
    given : ConeRows
    before : Beliefs
        K of them, about w.
    """
    L, rows = factor(before.covariance), given.leads
    B, ahead = rows @ L, before.mean @ rows.T
    K, n, o = B.shape
    places = np.arange(n)
    # Sites of x = y - ahead, the row's product with L v: natural parameters tau (precision) and nu (shift).
    tau = np.tile(given.precision, (K, 1))
    nu = given.shift - tau * ahead
    v, largest_stride, stride, moved_before = np.zeros((K, o)), np.full(K, 0.5), np.ones(K), np.full(K, np.inf)
    lost = np.zeros(K, dtype=bool)
    for passes in range(_EP.max_passes + 1):
        precision = np.swapaxes(B * tau[:, :, None], 1, 2) @ B
        precision += np.eye(o)
        beyond = ~(np.abs(precision).max(axis=(1, 2)) < _EP.overflow)
        if beyond.any():
            lost |= beyond
            tau[beyond], nu[beyond], precision[beyond] = 0.0, 0.0, np.eye(o)
        C = symmetric_inverse(precision)
        told = (nu[:, None] @ B)[:, 0]
        reached = (C @ told[:, :, None])[:, :, 0]
        step, v = reached - v, reached
        moved = np.sqrt(np.maximum(np.einsum("ko,kop,kp->k", step, precision, step), 0.0))
        # The cavity of x, and what the row itself makes of it.
        marginal = np.maximum(((B @ C) * B).sum(axis=2), np.finfo(np.float64).tiny)
        share_left = np.maximum(1 - tau * marginal, 1e-3)
        cavity = marginal / share_left
        x = ((B @ v[:, :, None])[:, :, 0] - nu * marginal) / share_left
        likelihood, pull, shrink = _tilt(ahead + x, cavity)
        if (passes and (moved < _EP.tolerance * stride).all()) or passes == _EP.max_passes:
            break
        wanted = shrink / (1 - shrink) / cavity
        largest_stride = np.where(
            moved > moved_before, np.maximum(0.1, 0.7 * largest_stride), np.minimum(0.8, 1.1 * largest_stride)
        )
        moved_before = moved
        change = np.maximum((np.abs(wanted - tau) * marginal).sum(axis=1), o * _EP.growth)
        stride = np.minimum(largest_stride, o * _EP.growth / change)
        tau += stride[:, None] * (wanted - tau)
        nu += stride[:, None] * (wanted * x - pull * (1 + wanted * cavity) - nu)
        if passes in _EP.drop_after:
            informative = ((shrink > _EP.settled) | (tau * cavity > _EP.settled)).any(axis=0)
            rows, places, B, ahead = rows[informative], places[informative], B[:, informative], ahead[:, informative]
            tau, nu = tau[:, informative], nu[:, informative]
    # What each site replaces, and what all of them together make of the prior.
    apart = (x + nu * cavity) ** 2 / (cavity * (1 + tau * cavity))
    each = likelihood + 0.5 * (np.log1p(tau * cavity) + x**2 / cavity - apart)
    total = each.sum(axis=1) + 0.5 * (np.einsum("ko,ko->k", told, v) - np.linalg.slogdet(precision)[1])
    known = ~lost & (total <= 0) & np.isfinite(v).all(axis=1)
    informative = (tau * cavity > _EP.settled).any(axis=0)
    return Posterior(
        L,
        np.where(known[:, None], v, 0.0),
        np.where(known[:, None, None], C, np.eye(o)),
        np.where(known, total, -np.inf),
        places[informative],
        ConeRows(rows[informative], tau[0, informative], (nu + tau * ahead)[0, informative]),
    )


def _tilt(x: Matrix, spread: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Of a row whose product is N(x, spread): its log-likelihood, minus the slope of that, and the share of the spread
    that it takes away.
    """
    deviation = np.sqrt(spread)
    z = -x / deviation
    likelihood: Matrix = np.logaddexp(_LOG_STRAY, _LOG_MEANT + log_ndtr(z))
    r = np.exp(_LOG_MEANT - _LOG_ROOT - 0.5 * z * z - likelihood)
    # A row that is more probably wrong than right would widen the belief: it is left alone.
    r = np.where(r + z > 0, r, 0.0)
    return likelihood, r / deviation, np.clip(r * (r + z), 0.0, 0.999)


# -- which rows ----------------------------------------------------------------------------------------------------


def informative_rows(block: Block, ridge: Ridge, mean: Vector, covariance: Matrix) -> ConeRows:
    """The rows of an episode's block that can change a belief N(mean, covariance) of w, and alpha > 0.

    Nearly all rows of a log hold anyway. Of those that are not settled by what is known, some are learned from first;
    after that most of the others are settled too.
    """
    seen, most = _Features(block, ridge), _SEARCH.rows_per_weight * len(mean)
    found = seen.open_rows(mean, covariance)
    looked = found[: most // 2]
    rows = ConeRows.fresh(seen.leads(looked))
    for _ in range(_SEARCH.rounds):
        learned = propagate(rows, Beliefs(mean[None], covariance[None]))
        after = mean + learned.root[0] @ learned.mean[0]
        shape = learned.root[0] @ learned.covariance[0] @ learned.root[0].T
        all_seen, found = len(looked) == len(found), seen.open_rows(after, _SEARCH.widening * shape)
        # What was learned stays learned, and the rows next to it come in.
        told = looked[learned.informative]
        more = found[~np.isin(found, told)]
        looked = np.concatenate([told, more])[:most]
        fresh = ConeRows.fresh(seen.leads(looked[len(told) :]))
        rows = learned.sites.joined(fresh)
        if all_seen or len(told) + len(more) <= most or not len(fresh.leads):
            break
    positive = np.zeros((1, len(mean)))
    positive[0, -1] = -1.0
    return ConeRows.fresh(positive).joined(rows)


class _Features:
    """(s, H(s)) of a block's candidates, in single precision unless that overflows: it is enough to find rows."""

    def __init__(self, block: Block, ridge: Ridge) -> None:
        self.block, self.whitener = block, ridge.whitener
        with np.errstate(over="ignore", invalid="ignore"):
            contexts = block.contexts.astype(np.float32, copy=False)
            wide = ridge.widths(contexts)
        if not np.isfinite(wide).all():
            contexts = block.contexts.astype(np.float64, copy=False)
            wide = ridge.widths(contexts)
        self.features = np.column_stack([contexts, wide])
        self.counts = np.diff(block.offsets)
        # Candidates that do not differ from the chosen one have no row: either may be the chosen one.
        self.differs = (contexts != self._of_chosen(contexts)).any(axis=1)

    def _of_chosen(self, rows: NDArray[Any]) -> NDArray[Any]:
        """For every row that of the candidate chosen in its step."""
        return np.repeat(rows[self.block.chosen_rows], self.counts, axis=0)

    def open_rows(self, mean: Vector, covariance: Matrix) -> NDArray[np.int64]:
        """Rows that neither hold nor fail by `RowSearch.far` deviations, the most open first; equals in any order."""
        kind = self.features.dtype
        lead = self.block.leads(self.features @ mean.astype(kind))
        white = self.features @ factor(covariance).astype(kind)
        white -= self._of_chosen(white)
        typical = float(lead[self.differs].mean()) if self.differs.any() else 0.0
        if typical < 0:
            # The length of w does not matter: deviations at the length that gives the typical row its lead.
            white -= np.outer(np.where(self.differs, lead, 0.0) / typical, white[self.differs].mean(axis=0))
        deviation = np.sqrt(np.einsum("no,no->n", white, white))
        lead = np.abs(lead)
        found = np.random.default_rng(0).permutation(np.flatnonzero(self.differs & (lead < _SEARCH.far * deviation)))
        return found[np.argsort(lead[found] / deviation[found], kind="stable")]

    def leads(self, rows: NDArray[np.int64]) -> Matrix:
        """Features of some rows less those of the candidates chosen in their steps, in double precision."""
        chosen = self.block.chosen_rows.take(self.block.step_of(rows))
        both = self.block.contexts.take(np.concatenate([rows, chosen]), axis=0).astype(np.float64, copy=False)
        wide, count = widths(self.whitener, both), len(rows)
        return np.column_stack([both[:count] - both[count:], wide[:count] - wide[count:]])
