"""Gaussian beliefs, several side by side: what they learn from a linear observation, and how they move.

A belief about a state x is N(mean, covariance). What an observer wants to know, p, comes first in x; what else the
state holds follows. All functions take K beliefs at once, which share observations and differ in what they assume.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from ibcb.numerics.arrays import Matrix, Stored, Vector

__all__ = ["Beliefs", "Site", "Transition", "draws_root", "factor", "site_at", "symmetric_inverse"]

#: by this factor the estimate of a condition number is safe
_SURELY = 1e3
#: share of a variance that no observation takes away
_ROUNDING = 1e-13
#: of an interval, for a share of 1e-12 of it
_HALVINGS = 40
#: rows that are solved for at a time: whoever has fewer waits for numpy, not for sums
_BLOCK = 16
_TINY = float(np.finfo(np.float64).tiny)
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
class Transition:
    """One update as K models see it: the end of the state x wanders by N(0, W), then p becomes T x + N(0, Q).

    Attributes
    ----------
    matrix : ndarray of shape (d, D)
        T.
    noise : ndarray of shape (K, d, d)
        Q.
    wander : ndarray of shape (K, t, t)
        W, of the last t entries of x.
    """

    matrix: Matrix
    noise: Matrix
    wander: Matrix


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
        mean = weights @ self.mean
        apart = self.mean - mean
        covariance = np.tensordot(weights, self.covariance, axes=1) + (weights * apart.T) @ apart
        return Beliefs(mean[None], covariance[None])

    def given(self, site: Site) -> tuple[Beliefs, Vector]:
        """Condition on a site (a Kalman update): the beliefs, and the log-likelihood under each, shape (K,)."""
        R, y = site.root, site.seen
        (o, r) = R.shape
        if not r:
            return self, np.full(len(self), site.constant)
        gain, surprise = R.T @ self.covariance[:, :o], (y - self.mean[:, :o] @ R)[:, :, None]
        L = _roots_above_one(gain[:, :, :o] @ R)
        _whiten(L, gain, surprise)
        mean = self.mean + (np.swapaxes(surprise, 1, 2) @ gain)[:, 0]
        covariance = np.swapaxes(gain, 1, 2) @ gain
        np.subtract(self.covariance, covariance, out=covariance)
        # However much was told, what is left is more than the rounding of what was there.
        _diagonals(covariance)[:] += _ROUNDING * _diagonals(self.covariance)
        likelihood = site.constant - np.log(_diagonals(L)).sum(axis=1) - 0.5 * np.square(surprise[:, :, 0]).sum(axis=1)
        if not (np.isfinite(likelihood).all() and np.isfinite(mean).all()):
            raise FloatingPointError(BEYOND_NUMBERS)
        return Beliefs(mean, covariance), likelihood

    def wandered(self, noise: Matrix) -> Beliefs:
        """After p has moved by N(0, noise), shape (K, d, d)."""
        d = noise.shape[-1]
        wide = self.covariance.copy()
        wide[:, :d, :d] += noise
        return Beliefs(self.mean, wide)

    def moved(self, by: Transition) -> Beliefs:
        """After one update."""
        T = by.matrix
        d, tail = len(T), by.wander.shape[-1]
        wide = self.covariance.copy()
        wide[:, -tail:, -tail:] += by.wander
        top = T @ wide
        own = top @ T.T + by.noise
        wide[:, :d] = top
        wide[:, :, :d] = np.swapaxes(top, 1, 2)
        wide[:, :d, :d] = (own + np.swapaxes(own, 1, 2)) / 2
        return Beliefs(np.concatenate([self.mean @ T.T, self.mean[:, d:]], axis=1), wide)


def site_at(point: Vector, information: Matrix, slope: Vector, loss: float, *, least: float) -> Site:
    """A loss expanded to second order at a point, as a site; ``slope`` is its gradient there.

    Directions whose information, at unit diagonal, is at most ``least`` of the largest are left out. Where the loss
    hardly bends, the expansion may peak far away, at a likelihood above 1: then as much information is added as keeps
    it at 1, and the slope here as it is. A loss of 0 is one that is not known.
    """
    unit = np.sqrt(np.maximum(information.diagonal(), 0.0))
    unit[unit == 0] = 1.0
    scaled = (information + information.T) / 2 / unit / unit[:, None]
    # The loss falls from here with R (y - R' p) = -gradient.
    C, failed = lapack.dpotrf(scaled, lower=1, clean=1)
    if not failed and lapack.dpocon(C, np.abs(scaled).sum(axis=0).max(), uplo="L")[0] > _SURELY * least:
        root, ahead = unit[:, None] * C, -blas.dtrsv(C, slope / unit, lower=1)
    else:
        values, V = np.linalg.eigh(scaled)
        kept = values > least * values[-1] if values[-1] > 0 else np.zeros(len(values), dtype=bool)
        scale, V = np.sqrt(values[kept]), V[:, kept]
        root, ahead = unit[:, None] * V * scale, -(V.T @ (slope / unit)) / scale
    if 0 < 2 * loss < float(ahead @ ahead):
        values, V = np.linalg.eigh(scaled)
        kept = values > max(least * values[-1], 0.0)
        values, V = values[kept], V[:, kept]
        push = V.T @ (slope / unit)
        scale = np.sqrt(values + _added(values, push**2, 2 * loss))
        root, ahead = unit[:, None] * V * scale, -push / scale
    # What tells nothing tells exactly nothing, whatever the rounding.
    root[information.diagonal() == 0] = 0.0
    return Site(root, root.T @ point + ahead, 0.5 * float(ahead @ ahead) - loss)


def _added(values: Vector, squares: Vector, most: float) -> float:
    """The least t for which the sum of squares / (values + t) is at most ``most``."""
    low, high = 0.0, float(squares.sum()) / most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(np.sum(squares / (values + middle))) > most else (low, middle)
    return high


def factor(covariance: Matrix) -> Matrix:
    """Roots L of covariances L L', which may lack a direction or have features of any unit."""
    unit = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    unit = np.where(unit > 0, unit, 1.0)
    scaled = covariance / unit[..., :, None] / unit[..., None, :]
    try:
        root = np.linalg.cholesky(scaled + 1e-10 * np.eye(scaled.shape[-1]))
    except np.linalg.LinAlgError:
        values, V = np.linalg.eigh(scaled)
        root = V * np.sqrt(np.maximum(values, 1e-10))[..., None, :]
    roots: Matrix = unit[..., :, None] * root
    return roots


def draws_root(mean: Vector, covariance: Matrix) -> Matrix:
    """A root of a covariance for draws about a mean: another order or other units of the features give the same draws.

    Its columns come in the order of the means in deviations, those that are 0 last; of equals, the feature that is the
    most correlated with others comes first.
    """
    deviation = np.sqrt(np.maximum(covariance.diagonal(), _TINY))
    ahead, together = mean / deviation, np.abs(covariance / deviation / deviation[:, None]).sum(axis=1)
    # Sums in another order round otherwise.
    order = np.lexsort((-np.round(together, 9), np.where(ahead == 0, np.inf, -ahead)))
    root = np.empty_like(covariance)
    root[order] = factor(covariance[np.ix_(order, order)])
    return root


def symmetric_inverse(matrices: Matrix) -> Matrix:
    """Inverses of symmetric matrices, symmetric to the bit; shape (..., d, d)."""
    inverse = np.linalg.inv(matrices).astype(np.float64, copy=False)
    return (inverse + np.swapaxes(inverse, -1, -2)) / 2


def _diagonals(matrices: Matrix) -> Matrix:
    """Of each of some matrices, as a view. Shape (K, d)."""
    diagonals: Matrix = np.einsum("kii->ki", matrices)
    return diagonals


def _roots_above_one(information: Matrix) -> Matrix:
    """Cholesky factors of I + matrices without negative eigenvalues, up to rounding; shape (K, r, r)."""
    spread = (information + np.swapaxes(information, 1, 2)) / 2
    _diagonals(spread)[:] += 1.0
    try:
        return np.linalg.cholesky(spread).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        values, V = np.linalg.eigh(spread)
        above = (V * np.maximum(values, 1.0)[:, None]) @ np.swapaxes(V, 1, 2)
        return np.linalg.cholesky(above).astype(np.float64, copy=False)


def _whiten(roots: Matrix, *rows: Matrix) -> None:
    """L^-1 X in place of X, by blocks of rows, for every L at once. Shapes (K, r, r), and (K, r, n) each."""
    size = roots.shape[1]
    for first in range(0, size, _BLOCK):
        own = slice(first, min(first + _BLOCK, size))
        back = np.linalg.inv(roots[:, own, own])
        for X in rows:
            if first:
                X[:, own] -= roots[:, own, :first] @ X[:, :first]
            X[:, own] = back @ X[:, own]
