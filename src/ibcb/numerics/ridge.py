"""Ridge algebra of a batched linear bandit: Gram matrices, the Cholesky factor of Psi, confidence widths.

Symbols as in the paper: Phi is the Gram matrix of the contexts chosen before an episode, Psi = l2 I + Phi,
and a decider with rewards R has the policy parameters Psi^-1 S'R. Since E[R] = S theta*, the policy that a
reward vector theta leads to is ``shrinkage @ theta`` with shrinkage = Psi^-1 Phi.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

__all__ = ["Ridge", "gram", "ridge", "widths"]

Matrix = NDArray[np.float64]

#: of whitened rows, so that they stay in the processor's cache; not tuned finely
_CACHE_BYTES = 400_000
#: below this reciprocal condition less than three digits of l2 survive the rounding of Phi
_LEAST_CONDITION = 1e-12
#: above this the estimate of the condition, good to a factor of ten, need not be looked at again
_SAFE_CONDITION = 1e-9


@dataclass(frozen=True)
class Ridge:
    """What the choices before an episode leave behind: Phi, and Psi = l2 I + Phi by its Cholesky factor.

    Attributes
    ----------
    phi : ndarray of shape (d, d)
    l2 : float
    cholesky : ndarray of shape (d, d)
        Lower triangle L with Psi = L L'.
    """

    phi: Matrix
    l2: float
    cholesky: Matrix

    def solve(self, b: Matrix) -> Matrix:
        """Psi^-1 b: the ridge estimate of Eq. (2) when b = S'R."""
        solution: Matrix = lapack.dpotrs(self.cholesky, b, lower=1)[0]
        return solution

    @cached_property
    def shrinkage(self) -> Matrix:
        """G = Psi^-1 Phi, which takes reward parameters to the policy that expects them. Shape (d, d)."""
        # I - l2 Psi^-1 is the same matrix but cancels to noise where Phi is tiny beside l2.
        return self.solve(self.phi)

    @cached_property
    def whitener(self) -> Matrix:
        """W = L^-1, so that |W s| = sqrt(s' Psi^-1 s). Shape (d, d)."""
        inverse: Matrix = lapack.dtrtri(self.cholesky, lower=1)[0]
        return inverse

    def widths(self, contexts: NDArray[Any]) -> NDArray[Any]:
        """Confidence width H(s) = sqrt(s' Psi^-1 s) of every row: shape (rows, d) to (rows,).

        ``H_n`` of the paper's formulation (label eq:inverse:opt:constriant), in the contexts' own float type.
        """
        return widths(self.whitener, contexts)


def widths(whitener: Matrix, contexts: NDArray[Any]) -> NDArray[Any]:
    """|W s| of every row s, with a `Ridge.whitener` W: its confidence width."""
    W = whitener.astype(contexts.dtype, copy=False)
    rows, d = contexts.shape
    # A stretch at a time, so that the whitened rows stay in the processor's cache; as columns, so that they are summed
    # as long vectors.
    stretch = min(max(256, _CACHE_BYTES // (d * contexts.itemsize)), max(rows, 1))
    buffer = np.empty((d, stretch), dtype=contexts.dtype)
    squares = np.empty(rows, dtype=contexts.dtype)
    for start in range(0, rows, stretch):
        part = contexts[start : start + stretch]
        white = np.matmul(W, part.T, out=buffer[:, : len(part)])
        np.multiply(white, white, out=white)
        np.add.reduce(white, axis=0, out=squares[start : start + stretch])
    return np.sqrt(squares, out=squares)


def ridge(phi: Matrix, l2: float) -> Ridge:
    """Factor Psi = l2 I + Phi; a Psi that is singular in floating point raises ValueError with the remedy."""
    psi = phi.copy()
    psi.flat[:: len(psi) + 1] += l2
    # LAPACK itself: the checks of its wrappers cost more than the algebra at d = 10.
    factor, failed = lapack.dpotrf(psi, lower=1, clean=1)
    if not failed and (
        _condition(factor, psi) > _SAFE_CONDITION or _condition_at_unit_diagonal(psi) > _LEAST_CONDITION
    ):
        return Ridge(phi, l2, factor)
    scale = np.sqrt(np.abs(phi.diagonal()).max())
    raise ValueError(
        f"Psi = l2 I + Phi is singular in floating point: the chosen contexts are of size about {scale:.3g} and "
        f"l2 is {l2:.3g}, which vanishes beside them. Rescale the contexts to about 1, or raise l2."
    )


def _condition(factor: Matrix, matrix: Matrix) -> float:
    """Estimated reciprocal condition number of a positive matrix, from its Cholesky factor; 0 if it is not finite."""
    trace = float(matrix.trace())  # not below the largest eigenvalue, and cheap
    return float(lapack.dpocon(factor, trace, uplo="L")[0]) if np.isfinite(trace) else 0.0


def _condition_at_unit_diagonal(psi: Matrix) -> float:
    """The same after rescaling to unit diagonal: tells collinearity, not the features' different units."""
    length = np.sqrt(psi.diagonal())
    scaled = psi / length / length[:, None]
    factor, failed = lapack.dpotrf(scaled, lower=1, clean=1)
    return 0.0 if failed else _condition(factor, scaled)


def gram(chosen_contexts: NDArray[Any]) -> Matrix:
    """Phi = S'S of chosen contexts S, shape (steps, d), in float64."""
    S = chosen_contexts.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported by `ridge`, with its remedy
        phi: Matrix = S.T @ S
    return phi
