"""Half-spaces through the origin, learned from by expectation propagation.

A belief about w is normal, and rows say that <row, w> <= 0. Each row has a Gaussian site of its own, chosen so that the
belief has the moments of the cavity (the belief without this site) cut by the row (Minka 2001). That is nearly exact;
Laplace's approximation would not do: it goes by slopes, and the walls of a cone have none.

A row may be wrong with probability ``stray``, and all copies of it with that to the power of their number: one that
contradicts what is firmly known is left alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.special import log_ndtr

from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.contexts import Contexts, dense, few_pairs, stacked
from ibcb.numerics.gaussians import BEYOND_NUMBERS


@dataclass(frozen=True)
class EPSettings:
    """Expectation propagation; judged by benchmarks/forecast.py and benchmarks/dirty.py."""

    #: probability that a row is wrong, at least and at most; and how many times more must fail to be looked at again
    stray: float = 1e-3
    most_stray: float = 0.25
    surprising: float = 2.0
    #: passes over the sites, and the move in posterior deviations at which they end
    max_passes: int = 16
    tolerance: float = 0.02
    #: by how much the information about each weight may grow in a pass, as a share of itself: many rows that say the
    #: same, learned from at once, would each be believed in full
    growth: float = 1.0
    #: rows whose site is weaker than this are dropped, once they are more than `dropped` of all
    settled: float = 1e-5
    dropped: float = 0.2


EP = EPSettings()
_LOG_ROOT = 0.5 * np.log(2 * np.pi)
_TINY = float(np.finfo(np.float64).tiny)
#: log-probability of a wrong row below which it need not go: 1 in 1e9
_SURELY_RIGHT = -20.7


class ConeRows(NamedTuple):
    """Rows of a cone, each with its site exp(shift y - precision y^2 / 2) of y = row w.

    Attributes
    ----------
    leads : Contexts of shape (n, o)
        Dense, or sparse where the contexts are.
    places : ndarray of shape (n,)
        Where each is among the rows of its block.
    times : ndarray of shape (n,)
        How often it is there, more often than its opposite: equal rows are one.
    precision, shift : ndarray of shape (n,)
        Natural parameters of the sites; zeros of rows of which nothing is known yet.
    """

    leads: Contexts
    places: NDArray[np.int64]
    times: Vector
    precision: Vector
    shift: Vector

    @classmethod
    def fresh(cls, leads: Contexts, places: NDArray[np.int64], times: Vector | None = None) -> ConeRows:
        """Rows of which nothing is known yet; each is there once unless ``times`` says otherwise."""
        n = len(places)
        return cls(leads, places, np.ones(n) if times is None else times, np.zeros(n), np.zeros(n))

    def joined(self, other: ConeRows) -> ConeRows:
        """These rows and then the others."""
        rest = (np.concatenate(both) for both in zip(self[1:], other[1:], strict=True))
        return ConeRows(stacked([self.leads, other.leads]), *rest)


class Posterior(NamedTuple):
    """A belief about w after some rows.

    Attributes
    ----------
    mean : ndarray of shape (o,)
    root : ndarray of shape (o, o)
        L, of the covariance L L'.
    log_likelihood : float
        Of the rows.
    log_scale : float
        Of the factor that the sites are together, exp(log_scale + sum over rows of shift y - precision y^2 / 2).
    rows : ConeRows
        Those that told something, with their sites.
    """

    mean: Vector
    root: Matrix
    log_likelihood: float
    log_scale: float
    rows: ConeRows


@np.errstate(all="ignore")
def propagate(
    rows: ConeRows, mean: Vector, root: Matrix, *, stray: float = EP.stray, tolerance: float = EP.tolerance
) -> Posterior:
    """Learn that leads w <= 0, by expectation propagation with all sites at once; it begins with the sites given.

    Raises FloatingPointError where numbers cannot hold the belief.

    Parameters
    ----------
    rows : ConeRows
    mean, root : ndarray of shape (o,) and (o, o)
        What is believed of w: N(mean, root root').
    stray : float
        Probability that a row is wrong.
    tolerance : float
        The move in posterior deviations at which passes end.
    """
    ahead, o = rows.leads @ mean, len(mean)
    belief = _SparseRows(rows.leads, root) if few_pairs(rows.leads) else _DenseRows(dense(rows.leads), root)
    places = np.arange(len(ahead))
    odds = _odds(rows.times, stray)
    # Sites of x = y - ahead, the row's product with w - mean: natural parameters tau (precision) and nu (shift).
    tau, nu = rows.precision, rows.shift - rows.precision * ahead
    longest, stride, moved_before, of_dropped = 1.0, 1.0, np.inf, 0.0
    for passes in range(EP.max_passes + 1):
        moved = belief.given(tau, nu)
        # The cavity of x, and what the row itself makes of it.
        marginal = np.maximum(belief.marginal, _TINY)
        share_left = np.maximum(1 - tau * marginal, 1e-3)
        cavity = marginal / share_left
        x = (belief.middle - nu * marginal) / share_left
        likelihood, pull, shrink = _tilt(ahead + x, cavity, odds)
        if (passes and moved < tolerance * stride) or passes == EP.max_passes:
            break
        wanted = shrink / (1 - shrink) / cavity
        change = wanted - tau
        if passes > 1:
            longest = max(0.1, 0.7 * longest) if moved > moved_before else min(1.0, 1.1 * longest)
        if passes:
            moved_before = moved
        stride = min(longest, o * EP.growth / max(float(np.abs(change) @ marginal), _TINY))
        tau = tau + stride * change
        nu = nu + stride * (wanted * x - pull * (1 + wanted * cavity) - nu)
        kept = np.maximum(shrink, tau * cavity) > EP.settled
        if passes and np.count_nonzero(kept) < (1 - EP.dropped) * len(kept):
            of_dropped += float(likelihood[~kept].sum())
            belief.keep(kept)
            places, ahead, tau, nu, odds = places[kept], ahead[kept], tau[kept], nu[kept], odds[:, kept]
    # What each site replaces, and what all of them together make of the prior.
    apart = (x + nu * cavity) ** 2 / (cavity * (1 + tau * cavity))
    each = likelihood + 0.5 * (np.log1p(tau * cavity) + x**2 / cavity - apart)
    log_scale = float(each.sum()) + of_dropped
    total = log_scale + belief.log_mass
    offset, after = belief.posterior()
    if not (np.isfinite(total) and np.isfinite(offset).all()):
        raise FloatingPointError(BEYOND_NUMBERS)
    # An approximation may be more than certain of what it has seen.
    excess = max(total, 0.0)
    return Posterior(
        mean + offset,
        after,
        total - excess,
        log_scale - excess - float((nu + 0.5 * tau * ahead) @ ahead),
        ConeRows(rows.leads[places], rows.places[places], rows.times[places], tau, nu + tau * ahead),
    )


class _Sited:
    """A belief N(0, root root') about w - mean, given sites of the products of rows with it, in some coordinates of w.

    Attributes
    ----------
    middle, marginal : ndarray of shape (n,)
        Mean and variance of each row's product.
    """

    middle: Vector
    marginal: Vector
    #: the mean of w, less what it was
    _offset: Vector
    #: log-determinant of the root, in these coordinates
    _log_det: float = 0.0

    def _moved(self, precision: Matrix, slope: Vector, unit: Vector) -> float:
        """The mean that is N(0, precision^-1)'s with a slope; returns how far it moved, in deviations.

        Precisions are factored at unit diagonal where features may have any ``unit``.
        """
        C = self._C = _cholesky(precision / unit / unit[:, None])
        half = self._half = blas.dtrsv(C, slope / unit, lower=1)
        reached = blas.dtrsv(C, half, lower=1, trans=1) / unit
        step = blas.dtrmv(C, unit * (reached - self._offset), lower=1, trans=1)
        self._unit, self._offset = unit, reached
        return math.sqrt(float(step @ step))

    @property
    def log_mass(self) -> float:
        """The log of what the sites make of the belief's mass."""
        log_det = float(np.log(self._C.diagonal()).sum() + np.log(self._unit).sum()) + self._log_det
        return 0.5 * float(self._half @ self._half) - log_det


class _DenseRows(_Sited):
    """Of dense rows: in coordinates v with w = mean + root v, where the belief is N(0, I)."""

    def __init__(self, leads: Matrix, root: Matrix) -> None:
        self._B, self._root, self._offset = leads @ root, root, np.zeros(len(root))

    def given(self, tau: Vector, nu: Vector) -> float:
        """Learn from sites; returns how far the mean moved since the last ones, in deviations."""
        B, o = self._B, len(self._offset)
        scaled = B * np.sqrt(tau)[:, None]
        precision = scaled.T @ scaled
        precision.flat[:: o + 1] += 1.0
        moved = self._moved(precision, nu @ B, np.ones(o))
        white = blas.dtrsm(1.0, self._C, B.T, lower=1)
        self.middle, self.marginal = self._half @ white, np.add.reduce(white * white, axis=0)
        return moved

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Leave the others out."""
        self._B = self._B[rows]

    def posterior(self) -> tuple[Vector, Matrix]:
        """Mean of w less what it was, and a root of its covariance."""
        return self._root @ self._offset, blas.dtrsm(1.0, self._C, self._root, side=1, lower=1, trans_a=1)


class _SparseRows(_Sited):
    """Of sparse rows: in the coordinates of w, where a row's own square touches few entries of a matrix."""

    def __init__(self, leads: Contexts, root: Matrix) -> None:
        self._A, self._offset = leads, np.zeros(len(root))
        back = np.linalg.inv(root)
        self._precision = back.T @ back
        self._log_det = float(np.linalg.slogdet(root)[1])
        self._pair_up()

    def _pair_up(self) -> None:
        """Of each row: places and products of every two of its numbers, those below the diagonal once."""
        A, o = self._A, len(self._offset)
        counts = np.diff(A.indptr)
        owners, places, products = list[NDArray[Any]](), list[NDArray[Any]](), list[NDArray[Any]]()
        for count in np.unique(counts[counts > 0]).tolist():
            rows = np.flatnonzero(counts == count)
            at = A.indptr[rows][:, None] + np.arange(count)
            column, value = A.indices[at].astype(np.int64), A.data[at]
            i, j = np.tril_indices(count)
            owners.append(np.repeat(rows, len(i)))
            places.append((column[:, i] * o + column[:, j]).ravel())
            products.append((value[:, i] * value[:, j]).ravel())
        none = [np.empty(0, dtype=np.int64)]
        self._owner, self._place = np.concatenate(owners or none), np.concatenate(places or none)
        self._product = np.concatenate(products or [np.empty(0)])
        self._below = np.where(self._place // o == self._place % o, 1.0, 2.0) * self._product

    def given(self, tau: Vector, nu: Vector) -> float:
        """Learn from sites; returns how far the mean moved since the last ones, in deviations."""
        A, o = self._A, len(self._offset)
        lower = _sums(self._place, tau[self._owner] * self._product, o * o).reshape(o, o)
        precision = self._precision + lower
        precision += np.tril(lower, -1).T
        unit = np.sqrt(precision.diagonal())
        moved = self._moved(precision, nu @ A, unit)
        covariance = lapack.dpotri(self._C, lower=1)[0] / unit / unit[:, None]
        each = covariance.ravel()[self._place] * self._below
        self.middle, self.marginal = A @ self._offset, _sums(self._owner, each, A.shape[0])
        return moved

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Leave the others out."""
        self._A = self._A[np.flatnonzero(rows)]
        kept = rows[self._owner]
        self._owner = (np.cumsum(rows) - 1)[self._owner[kept]]
        self._place, self._product, self._below = self._place[kept], self._product[kept], self._below[kept]

    def posterior(self) -> tuple[Vector, Matrix]:
        """Mean of w less what it was, and a root of its covariance."""
        return self._offset, lapack.dtrtri(self._C, lower=1)[0].T / self._unit[:, None]


def _sums(places: NDArray[np.int64], values: Vector, count: int) -> Vector:
    """Sum of the values at each place. Shape (count,)."""
    sums: NDArray[Any] = np.bincount(places, values, minlength=count)
    return sums.astype(np.float64, copy=False)


def _cholesky(precision: Matrix) -> Matrix:
    C: Matrix
    C, failed = lapack.dpotrf(precision, lower=1, clean=1)
    if failed:
        raise FloatingPointError(BEYOND_NUMBERS)
    return C


def _odds(times: Vector, stray: float) -> Matrix:
    """Log-probabilities that so many copies of a row are wrong, and that they are right; beyond `_SURELY_RIGHT` more of
    them add nothing. Shape (2, n).
    """
    wrong = np.maximum(times * math.log(stray), _SURELY_RIGHT)
    return np.array([wrong, np.log1p(-np.exp(wrong))])


def _tilt(x: Vector, spread: Vector, odds: Matrix) -> tuple[Vector, Vector, Vector]:
    """Of a row whose product is N(x, spread): its log-likelihood, minus the slope of that, and the share of the spread
    that it takes away. ``odds``: of its being wrong, and right.
    """
    wrong, right = odds
    deviation = np.sqrt(spread)
    z = -x / deviation
    likelihood: Vector = np.logaddexp(wrong, right + log_ndtr(z))
    r = np.exp(right - _LOG_ROOT - 0.5 * z * z - likelihood)
    # A row that is more probably wrong than right would widen the belief: it is left alone.
    ahead = r + z
    r *= ahead > 0
    return likelihood, r / deviation, np.minimum(r * ahead, 0.999)


def row_likelihoods(x: Vector, spread: Vector, times: Vector, stray: float) -> Vector:
    """Log-likelihood of rows, each so many times there, whose products with w are N(x, spread). Shape (n,)."""
    return _tilt(x, spread, _odds(times, stray))[0]
