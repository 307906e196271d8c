"""Ridge algebra of a batched linear bandit: Gram matrices, the Cholesky factor of Psi, confidence widths.

Symbols as in the paper: Phi is the Gram matrix of the contexts chosen before an episode, Psi = l2 I + Phi,
and a decider with rewards R has the policy parameters Psi^-1 S'R. Since E[R] = S theta*, the policy that a
reward vector theta leads to is ``shrinkage @ theta`` with shrinkage = Psi^-1 Phi.

l2 has units: those of squared features. A decider that brings its features to one scale first, or to mean 0 as well,
has l2 in other units than the log's. A `Frame` says how: then Psi = l2 diag(scale)^2 + Phi in the units of the log, and
Phi and the widths are of contexts less the origin.

A log that is a random sample of the decider's choices, at a rate r, shows r times its Phi. The decider's own Psi is
then l2 I + Phi / r = (r l2 I + Phi) / r: here it is counted in choices of the log, so that r enters as a factor of l2
alone. Shrinkage is the same in both; widths are those of the decider over sqrt(r).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ibcb.numerics.arrays import Matrix, Stored, Vector, lazy
from ibcb.numerics.contexts import Contexts, dense, is_sparse, row_lengths

#: of whitened rows, so that they stay in the processor's cache; not tuned finely
_CACHE_BYTES = 400_000
#: below this reciprocal condition less than three digits of l2 survive the rounding of Phi
_LEAST_CONDITION = 1e-12
#: above this the estimate of the condition, good to a factor of ten, need not be looked at again
_SAFE_CONDITION = 1e-9
#: sums of single precision, which are taken in another order, agree within
_ROUNDED = 1.001


@dataclass(frozen=True)
class Chosen:
    """The contexts chosen so far, in sums.

    Attributes
    ----------
    count : float
        How many; those before the log do not count.
    total : ndarray of shape (d,) or None
        Their sum; None where there were choices before the log, whose sum nobody knows.
    phi : ndarray of shape (d, d)
        Their Gram matrix.
    """

    count: float
    total: Annotated[Vector, Stored("d")] | None
    phi: Annotated[Matrix, Stored("d d")]

    @classmethod
    def before_the_log(cls, gram: Matrix) -> Chosen:
        """What was chosen before the log begins: zeros if nothing was."""
        return cls(0.0, None if gram.any() else np.zeros(len(gram)), gram)

    def and_then(self, count: int, total: Vector, phi: Matrix) -> Chosen:
        """With the choices of one more episode."""
        # An overflow is reported by `ridge`, with its remedy.
        with np.errstate(over="ignore", invalid="ignore"):
            return Chosen(self.count + count, None if self.total is None else self.total + total, self.phi + phi)

    def without(self, share: float, lesson: Chosen) -> Chosen:
        """Less a share of what one of the episodes so far taught."""
        total = None if self.total is None or lesson.total is None else self.total - share * lesson.total
        return Chosen(self.count - share * lesson.count, total, self.phi - share * lesson.phi)

    def about(self, origin: Vector) -> Matrix:
        """Gram matrix of the contexts less an origin."""
        if self.total is None:
            raise ValueError("the sum of the contexts chosen before the log is not known, so they have no origin.")
        across = np.outer(origin, self.total - self.count / 2 * origin)
        return self.phi - across - across.T

    def check(self) -> None:
        """Raise ValueError where total and Gram matrix are not sums of the same contexts, by Cauchy and Schwarz."""
        most = np.sqrt(self.count) * np.sqrt(np.maximum(self.phi.diagonal(), 0))
        if self.total is not None and (np.abs(self.total) > _ROUNDED * most).any():
            raise ValueError("its total is larger than its Gram matrix allows")


@dataclass(frozen=True, eq=False)
class Frame:
    """The units in which a decider has its ridge parameter, and the point from which it measures features.

    Attributes
    ----------
    name : {"scaled", "standardized"}
        Features over their root mean square where they are not 0; or less their mean, over their standard deviation.
    scale : ndarray of shape (d,)
        Unit of each feature.
    origin : ndarray of shape (d,)
        Zeros where features are only scaled.
    """

    name: str
    scale: Annotated[Vector, Stored("d")]
    origin: Annotated[Vector, Stored("d")]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frame):
            return NotImplemented
        alike = np.array_equal(self.scale, other.scale) and np.array_equal(self.origin, other.origin)
        return self.name == other.name and alike

    def __hash__(self) -> int:
        return hash((self.name, len(self.scale)))

    def check(self) -> None:
        """Raise ValueError where features cannot be divided by the scales."""
        squares = np.where(self.scale > 0, self.scale, 0.0) ** 2
        if not ((squares > 0) & (squares < np.inf)).all():
            raise ValueError("its scales are not above 0, or their squares")


@dataclass(frozen=True)
class Regularization:
    """A decider's ridge parameter.

    Attributes
    ----------
    l2 : float
    frame : Frame or None
        Its units; None for those of the log.
    rate : float
        Share of the decider's choices that the log has.
    """

    l2: float
    frame: Frame | None = None
    rate: float = 1.0

    @property
    def units(self) -> str:
        """The name of the frame; "own" for the units of the log."""
        return "own" if self.frame is None else self.frame.name

    @property
    def origin(self) -> Vector | None:
        """From which features are measured; None for 0."""
        return self.frame.origin if self.frame is not None and self.frame.origin.any() else None

    def total(self, chosen: Chosen) -> Vector | None:
        """Sum of chosen contexts, measured from the decider's origin; None where it is not known."""
        origin = self.origin
        return chosen.total if origin is None or chosen.total is None else chosen.total - chosen.count * origin

    def ridge(self, chosen: Chosen) -> Ridge:
        """What the choices so far leave behind."""
        if self.frame is None:
            return ridge(chosen.phi, self.rate * self.l2)
        origin = self.origin
        phi = chosen.phi if origin is None else chosen.about(origin)
        return ridge(phi, self.rate * self.l2 * self.frame.scale**2, origin)


class Whitener(NamedTuple):
    """W and W o, with |W s - W o| the width of a context s about the origin o; None for an origin of 0."""

    matrix: Matrix
    offset: Vector | None

    def same(self, other: Whitener | None) -> bool:
        """Whether widths are equal, to the bit."""
        if other is None or (self.offset is None) != (other.offset is None):
            return False
        pairs = zip(self, other, strict=True)
        return all(one is None or np.array_equal(one, its) for one, its in pairs if its is not None)


@dataclass(frozen=True)
class Ridge:
    """What the choices before an episode leave behind: Phi, and Psi = diag(penalty) + Phi by its Cholesky factor.

    Attributes
    ----------
    phi : ndarray of shape (d, d)
        About the origin.
    penalty : ndarray of shape (d,)
        l2, in the units of the log.
    cholesky : ndarray of shape (d, d)
        Lower triangle L with Psi = L L'.
    origin : ndarray of shape (d,) or None
        From which contexts are measured; None for 0.
    """

    phi: Matrix
    penalty: Vector
    cholesky: Matrix
    origin: Vector | None = None

    def solve(self, b: Matrix) -> Matrix:
        """Psi^-1 b: the ridge estimate of Eq. (2) when b = S'R."""
        solution: Matrix = lapack.dpotrs(self.cholesky, b, lower=1)[0]
        return solution

    @lazy
    def psi(self) -> Matrix:
        """Psi, shape (d, d)."""
        psi = self.phi.copy()
        psi.flat[:: len(psi) + 1] += self.penalty
        return psi

    @lazy
    def shrinkage(self) -> Matrix:
        """G = Psi^-1 Phi, which takes reward parameters to the policy that expects them. Shape (d, d)."""
        # I - Psi^-1 diag(penalty) is the same matrix but cancels to noise where Phi is tiny beside the penalty.
        return self.solve(self.phi)

    @lazy
    def whitener(self) -> Whitener:
        """W = L^-1, so that |W s| = sqrt(s' Psi^-1 s), and what it makes of the origin."""
        inverse: Matrix = lapack.dtrtri(self.cholesky, lower=1)[0]
        return Whitener(inverse, None if self.origin is None else inverse @ self.origin)

    def widths(self, contexts: Contexts) -> NDArray[Any]:
        """Confidence width H(s) = sqrt(s' Psi^-1 s) of every row: shape (rows, d) to (rows,).

        ``H_n`` of the paper's formulation (label eq:inverse:opt:constriant), in the contexts' own float type.
        """
        return widths(self.whitener, contexts)

    def lengths(self, leads: Contexts) -> NDArray[Any]:
        """The same of differences of contexts, which do not depend on the origin."""
        return widths(Whitener(self.whitener.matrix, None), leads)


def widths(whitener: Whitener, contexts: Contexts) -> NDArray[Any]:
    """|W s - W o| of every row s, with a `Ridge.whitener`: its confidence width."""
    W = whitener.matrix.astype(contexts.dtype, copy=False)
    offset = None if whitener.offset is None else whitener.offset.astype(contexts.dtype, copy=False)[:, None]
    rows, d = contexts.shape
    if is_sparse(contexts):
        return row_lengths(contexts, W.T, None if offset is None else offset[:, 0])
    # A stretch at a time, so that the whitened rows stay in the processor's cache; as columns, so that they are summed
    # as long vectors.
    stretch = min(max(256, _CACHE_BYTES // (d * contexts.itemsize)), max(rows, 1))
    buffer = np.empty((d, stretch), dtype=contexts.dtype)
    squares = np.empty(rows, dtype=contexts.dtype)
    for start in range(0, rows, stretch):
        part = contexts[start : start + stretch]
        white = np.matmul(W, part.T, out=buffer[:, : len(part)])
        if offset is not None:
            white -= offset
        np.multiply(white, white, out=white)
        np.add.reduce(white, axis=0, out=squares[start : start + stretch])
    return np.sqrt(squares, out=squares)


def ridge(phi: Matrix, l2: float | Vector, origin: Vector | None = None) -> Ridge:
    """Factor Psi = diag(l2) + Phi; a Psi that is singular in floating point raises ValueError with the remedy.

    Parameters
    ----------
    phi : ndarray of shape (d, d)
        Gram matrix, about the origin.
    l2 : float or ndarray of shape (d,)
    origin : ndarray of shape (d,), optional
    """
    penalty = np.full(len(phi), l2, dtype=np.float64)
    psi = phi.copy()
    psi.flat[:: len(psi) + 1] += penalty
    # LAPACK itself: the checks of its wrappers cost more than the algebra at d = 10.
    factor, failed = lapack.dpotrf(psi, lower=1, clean=1)
    if not failed and not _condition(factor, psi) > _SAFE_CONDITION:
        # At unit diagonal: what counts is collinearity, not the features' different units.
        length = np.sqrt(psi.diagonal())
        scaled = psi / length / length[:, None]
        at_unit_diagonal, failed = lapack.dpotrf(scaled, lower=1, clean=1)
        failed = failed or not _condition(at_unit_diagonal, scaled) > _LEAST_CONDITION
    if not failed:
        return Ridge(phi, penalty, factor, origin)
    scale = np.sqrt(np.abs(phi.diagonal()).max())
    raise ValueError(
        f"Psi = l2 I + Phi is singular in floating point: the chosen contexts are of size about {scale:.3g} and "
        f"l2 is {penalty.max():.3g}, which vanishes beside them. Rescale the contexts to about 1, or raise l2."
    )


def _condition(factor: Matrix, matrix: Matrix) -> float:
    """Estimated reciprocal condition number of a positive matrix, from its Cholesky factor; 0 if it is not finite."""
    with np.errstate(over="ignore"):
        trace = float(matrix.trace())  # not below the largest eigenvalue, and cheap
    return float(lapack.dpocon(factor, trace, uplo="L")[0]) if math.isfinite(trace) else 0.0


def gram(chosen_contexts: Contexts) -> Matrix:
    """Phi = S'S of chosen contexts S, shape (steps, d), in float64."""
    S = chosen_contexts.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported by `ridge`, with its remedy
        phi: Matrix = dense(S.T @ S)
    return phi
