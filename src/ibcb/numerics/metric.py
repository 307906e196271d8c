"""Lengths of weights: by the scores of candidates, which do not depend on the units of features, and Euclid's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.linalg import lapack

from ibcb.numerics.arrays import Matrix, Stored, Vector, lazy


@dataclass(frozen=True)
class Metric:
    """The length sqrt(x' K x) of x.

    Attributes
    ----------
    matrix : ndarray of shape (d, d)
        K, positive definite.
    """

    matrix: Annotated[Matrix, Stored("d d")]

    @lazy
    def root(self) -> Matrix:
        """T with T' K T = I: x = T z is as long as z is in Euclid's length. Shape (d, d)."""
        # At unit diagonal: features may have any unit.
        unit = np.sqrt(self.matrix.diagonal())
        L, failed = lapack.dpotrf(self.matrix / unit / unit[:, None], lower=1, clean=1)
        if failed:
            raise ValueError("the candidates' second moment is singular in floating point; rescale the contexts.")
        inverse: Matrix = lapack.dtrtri(L, lower=1)[0]
        return inverse.T / unit[:, None]

    def square(self, x: Vector) -> float:
        """x' K x."""
        return float(x @ self.matrix @ x)

    def dual_square(self, slope: Vector) -> float:
        """Largest (slope x)^2 of an x of length 1: slope' K^-1 slope."""
        pulled = slope @ self.root
        with np.errstate(over="ignore"):
            return float(pulled @ pulled)

    def check(self) -> None:
        """Raise ValueError where a feature has no length."""
        if not (self.matrix.diagonal() > 0).all():
            raise ValueError("its diagonal is not above 0")


def direction(weights: Matrix) -> Matrix:
    """Weights, shape (..., d), at length 1, zeros as they are: choices tell little of the length, of "sbts" nothing."""
    length = np.linalg.norm(weights, axis=-1, keepdims=True)
    return weights / np.where(length > 0, length, 1.0)
