"""Gaussian beliefs, several side by side: what they learn from a linear observation, and how they move.

A belief about a state x is N(mean, covariance). What an observer wants to know, p, comes first in x; what else the
state holds follows. All functions take K beliefs at once, which share observations and differ in what they assume.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from ibcb.numerics.arrays import Matrix, Stored, Vector

#: by this factor the estimate of a condition number is safe
_SURELY = 1e3
#: share of a variance that no observation takes away
_ROUNDING = 1e-13
#: of Newton's method, at most, and the share of the sum so far below which a step is rounding; not tuned
_STEPS, _SETTLED = 60, 1e-13
#: rows that are solved for at a time: whoever has fewer waits for numpy, not for sums
_BLOCK = 16
#: variance that every direction has at least, at unit diagonal
_LEAST_VARIANCE = 1e-10
_TINY = float(np.finfo(np.float64).tiny)
#: difference of two figures that may be rounding
_EQUAL = 1e-9
#: why a belief cannot be had
BEYOND_NUMBERS = "numbers cannot hold what the choices of an episode say of the policy"


@dataclass(frozen=True)
class Site:
    """A Gaussian factor: the choices of an episode as if y = R' p + N(0, 1) had been observed.

    Attributes
    ----------
    root : ndarray of shape (d, r)
        R; R R' is the information about p.
    seen : ndarray of shape (r,)
        y.
    constant : float
        The log-likelihood of the choices is constant - |y - R' p|^2 / 2.
    """

    root: Annotated[Matrix, Stored("o r")]
    seen: Annotated[Vector, Stored("r")]
    constant: float

    @classmethod
    def empty(cls, d: int) -> Site:
        """One that tells nothing."""
        return cls(np.zeros((d, 0)), np.zeros(0), 0.0)

    @property
    def information(self) -> Matrix:
        """R R', shape (d, d)."""
        return self.root @ self.root.T


@dataclass(frozen=True)
class Beliefs:
    """K Gaussian beliefs.

    Attributes
    ----------
    mean : ndarray of shape (K, D)
    covariance : ndarray of shape (K, D, D)
    """

    mean: Annotated[Matrix, Stored("K D")]
    covariance: Annotated[Matrix, Stored("K D D")]

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, models: slice | NDArray[np.int64]) -> Beliefs:
        return Beliefs(self.mean[models], self.covariance[models])

    def of_first(self, o: int) -> Beliefs:
        """What is believed of the first o entries of the state."""
        return Beliefs(self.mean[:, :o], self.covariance[:, :o, :o])

    def widened(self, factor: float) -> Beliefs:
        """The same means, with more variance."""
        return Beliefs(self.mean, factor * self.covariance)

    def mixed(self, weights: Vector) -> Beliefs:
        """One belief with the mean and the covariance of all of them, each with a weight; weights add up to 1."""
        mean, D = weights @ self.mean, self.mean.shape[1]
        apart = self.mean - mean
        covariance = (weights @ self.covariance.reshape(len(self), -1)).reshape(D, D) + (weights * apart.T) @ apart
        return Beliefs(mean[None], covariance[None])

    def given(self, site: Site) -> tuple[Beliefs, Vector]:
        """Condition on a site: the beliefs, and the log-likelihood under each, shape (K,)."""
        (posterior,), likelihoods = condition([self], site)
        return posterior, likelihoods

    def wandered(self, noise: Matrix) -> Beliefs:
        """After p has moved by N(0, noise), shape (K, d, d)."""
        d = noise.shape[-1]
        wide = self.covariance.copy()
        wide[:, :d, :d] += noise
        return Beliefs(self.mean, wide)

    def moved(self, T: Matrix, noise: Matrix, wander: Matrix) -> Beliefs:
        """After one update: the end of the state x wanders by N(0, wander), then p becomes T x + N(0, noise).

        Shapes (d, D), (K, d, d) and (K, t, t), of the last t entries of x.
        """
        d, (K, D), tail = len(T), self.mean.shape, wander.shape[-1]
        wide = self.covariance.copy()
        wide[:, -tail:, -tail:] += wander
        beside = (wide.reshape(K * D, D) @ T.T).reshape(K, D, d)
        own = T @ beside + noise
        wide[:, :, :d] = beside
        wide[:, :d] = beside.swapaxes(1, 2)
        wide[:, :d, :d] = (own + own.swapaxes(1, 2)) / 2
        return Beliefs(np.concatenate([self.mean @ T.T, self.mean[:, d:]], axis=1), wide)


def condition(families: Sequence[Beliefs], site: Site) -> tuple[list[Beliefs], Vector]:
    """Condition families of beliefs on a site, all at once (a Kalman update).

    States of different families may be of different sizes; the site is about what comes first in all of them. Gives
    the beliefs by family, and the log-likelihood under each of all K. Raises FloatingPointError where numbers cannot
    hold them.
    """
    R, y = site.root, site.seen
    o, r = R.shape
    K = sum(map(len, families))
    if not r:
        return list(families), np.full(K, site.constant)
    C = np.concatenate([each.covariance[:, :o, :o] for each in families])
    gain = (C.reshape(K * o, o) @ R).reshape(K, o, r).swapaxes(1, 2)
    L = _roots_above_one(gain @ R)
    # L^-1 of R' and of what is surprising about y.
    white = np.empty((K, r, o + 1))
    white[:, :, :o] = R.T
    white[:, :, o] = y - np.concatenate([each.mean[:, :o] for each in families]) @ R
    _whiten(L, white)
    surprise = white[:, :, o]
    likelihoods = site.constant - np.log(_diagonals(L)).sum(axis=1) - 0.5 * np.square(surprise).sum(axis=1)
    posteriors, first = list[Beliefs](), 0
    for each in families:
        own = slice(first, first + len(each))
        whole = white[own, :, :o] @ each.covariance[:, :o]
        taken = whole.swapaxes(1, 2)
        covariance = taken @ whole
        np.subtract(each.covariance, covariance, out=covariance)
        # However much was told, what is left is more than the rounding of what was there.
        _diagonals(covariance)[:] += _ROUNDING * _diagonals(each.covariance)
        posteriors.append(Beliefs(each.mean + (taken @ surprise[own, :, None])[:, :, 0], covariance))
        first = own.stop
    if not np.isfinite(likelihoods.sum() + sum(float(each.mean.sum()) for each in posteriors)):
        raise FloatingPointError(BEYOND_NUMBERS)
    return posteriors, likelihoods


def site_at(point: Vector, information: Matrix, slope: Vector, loss: float, *, least: float) -> Site:
    """A loss expanded to second order at a point, as a site; ``slope`` is its gradient there.

    Directions whose information, at unit diagonal, is at most ``least`` of the largest are left out. Where the loss
    hardly bends, the expansion may peak far away, at a likelihood above 1: then as much information is added as keeps
    it at 1, and the slope here as it is. A loss of 0 is one that is not known.
    """
    unit = np.sqrt(np.maximum(information.diagonal(), 0.0))
    unit[unit == 0] = 1.0
    scaled = (information + information.T) / 2 / unit / unit[:, None]
    slope = slope / unit
    # The loss falls from here with R (y - R' p) = -gradient.
    C, failed = lapack.dpotrf(scaled, lower=1, clean=1)
    if not failed and lapack.dpocon(C, np.abs(scaled).sum(axis=0).max(), uplo="L")[0] > _SURELY * least:
        root, ahead = unit[:, None] * C, -blas.dtrsv(C, slope, lower=1)
        values = None
    else:
        values, V, push = _bends(scaled, slope, least)
        scale = np.sqrt(values)
        root, ahead = unit[:, None] * V * scale, -push / scale
    if 0 < 2 * loss < float(ahead @ ahead):
        if values is None:
            values, V, push = _bends(scaled, slope, least)
        scale = np.sqrt(values + _added(values, push**2, 2 * loss))
        root, ahead = unit[:, None] * V * scale, -push / scale
    # What tells nothing tells exactly nothing, whatever the rounding.
    root[information.diagonal() == 0] = 0.0
    return Site(root, root.T @ point + ahead, 0.5 * float(ahead @ ahead) - loss)


def _bends(information: Matrix, slope: Vector, least: float) -> tuple[Vector, Matrix, Vector]:
    """Directions in which a loss bends by more than a share of the most: how much, which, and its slope along each."""
    values, V, failed = lapack.dsyevd(information, lower=1)
    if failed:
        raise FloatingPointError(BEYOND_NUMBERS)
    kept = values > max(least * values[-1], 0.0)
    V = V[:, kept]
    return values[kept], V, slope @ V


def _added(values: Vector, squares: Vector, most: float) -> float:
    """The least t for which the sum of squares / (values + t) is at most ``most``.

    By Newton's method for the inverse of the sum, which is concave and nearly straight: t grows from 0 up to it.
    """
    added = 0.0
    for _ in range(_STEPS):
        shares = squares / (values + added)
        total = float(shares.sum())
        step = total * (total / most - 1) / float((shares / (values + added)).sum())
        added += step
        if step <= _SETTLED * added:
            break
    return added


def factor(covariance: Matrix) -> Matrix:
    """A root L of a covariance L L', which may lack a direction or have features of any unit."""
    unit = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    unit[unit == 0] = 1.0
    scaled = covariance / unit[:, None] / unit
    wide = scaled.copy()
    wide.flat[:: len(unit) + 1] += _LEAST_VARIANCE
    root, failed = lapack.dpotrf(wide, lower=1, clean=1)
    if failed:
        values, V = np.linalg.eigh(scaled)
        root = V * np.sqrt(np.maximum(values, _LEAST_VARIANCE))
    roots: Matrix = unit[:, None] * root
    return roots


def draws_root(mean: Vector, covariance: Matrix) -> Matrix:
    """A root of a covariance for draws about a mean: another order, other units or signs of the features give the same
    draws, where `told_apart`.

    Its columns come in the order of the sizes of the means in deviations, those that are 0 last, and point the other
    way; of equals, the feature that is the most correlated with others comes first.
    """
    deviation = np.sqrt(np.maximum(covariance.diagonal(), _TINY))
    ahead, together = mean / deviation, np.abs(covariance / deviation / deviation[:, None]).sum(axis=1)
    # Sums in another order round otherwise.
    order = np.lexsort((-together.round(9), np.where(ahead == 0, np.inf, np.abs(ahead))))
    root = np.empty_like(covariance)
    root[order] = factor(covariance[order][:, order])
    root *= np.where(ahead[order] > 0, -1.0, 1.0)
    return root


def told_apart(mean: Vector, covariance: Matrix) -> bool:
    """Whether no two features have means of one size in deviations, and none has a mean of 0, up to rounding."""
    ahead = np.abs(mean) / np.sqrt(np.maximum(covariance.diagonal(), _TINY))
    return bool((np.diff(np.sort(ahead), prepend=0.0) > _EQUAL * np.maximum(1.0, np.sort(ahead))).all())


def symmetric_inverse(matrices: Matrix) -> Matrix:
    """Inverses of symmetric matrices, symmetric to the bit; shape (..., d, d)."""
    inverse = np.linalg.inv(matrices).astype(np.float64, copy=False)
    return (inverse + inverse.swapaxes(-1, -2)) / 2


def _diagonals(matrices: Matrix) -> Matrix:
    """Of each of some matrices, as a view where they lie side by side in memory. Shape (K, d)."""
    return matrices.reshape(len(matrices), -1)[:, :: matrices.shape[1] + 1]


def _roots_above_one(information: Matrix) -> Matrix:
    """Cholesky factors of I + matrices without negative eigenvalues, up to rounding; shape (K, r, r)."""
    spread = (information + information.swapaxes(1, 2)) / 2
    _diagonals(spread)[:] += 1.0
    try:
        return np.linalg.cholesky(spread).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        values, V = np.linalg.eigh(spread)
        above = (V * np.maximum(values, 1.0)[:, None]) @ np.swapaxes(V, 1, 2)
        return np.linalg.cholesky(above).astype(np.float64, copy=False)


def _whiten(roots: Matrix, rows: Matrix) -> None:
    """L^-1 X in place of X, by blocks of rows, for every L at once. Shapes (K, r, r) and (K, r, n)."""
    size = roots.shape[1]
    for first in range(0, size, _BLOCK):
        own = slice(first, min(first + _BLOCK, size))
        if first:
            rows[:, own] -= roots[:, own, :first] @ rows[:, :first]
        rows[:, own] = np.linalg.inv(roots[:, own, own]) @ rows[:, own]
