"""What one episode's choices say of the policy that made them, in O(d^2) numbers.

An "sbucb" decider with policy parameters p (for alpha = 1) prefers its choice c to another candidate o:

    x_o = <p, s_o - s_c> + H(s_o) - H(s_c)  <=  0.

An "sbts" decider draws from N(p, Psi^-1): x_o = <p, s_o - s_c> / |s_o - s_c|_Psi^-1 is below a standard normal number.
Either way a row costs log(1 + exp(k x_o)). For "sbts" k = 1.7 makes the logistic function the normal one. The choices
of "sbucb" have no error: its rows bound a cell, and k says how finely the cell is seen. In one dimension, n rows with
density f at the boundary leave a cell of variance about 1 / (2 n^2 f^2), while rows of sharpness k have the information
n f k: k has to grow with the number of rows, until all rows together cost no more than a number that depends on d
alone. So the expansion point minimises

    F(p, k) = loss(p, k) + LOSS d log size(p, k),        size = root mean square of k x over the rows,

A decider that errs brings its own k, and the second term is left out. Otherwise it also keeps p finite where choices
only tell its direction. Expanded to second order there, the rows can be forgotten.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ibcb.engine import Block
from ibcb.ridge import Ridge, widths

__all__ = ["Bounds", "Site", "observe"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: cost per feature of the rows of an errorless decider, seen as finely as its cell is wide
LOSS = 0.5
PROBIT = 1.7
#: rows that hold by more than BAND / k cost less than exp(-BAND)
BAND = 8.0
#: rows that hold by more than FAR / k do not bound the cell
FAR = 40.0
_SCALE_STEPS = 128
_VAGUEST = 1e-3
#: widths that vary by less than this share of themselves are all the same
_EVEN = 1e-2
_LOOKS = 6
_PASSES = 60


class Bounds(NamedTuple):
    """Rows A p + h <= 0, and the mean of (A, h)'(A, h) over all rows, near or not."""

    A: Matrix
    h: Vector
    moment: Matrix


class Site(NamedTuple):
    """The choices of an episode as if y = R' p + N(0, 1) had been observed.

    Attributes
    ----------
    root : ndarray of shape (d, r)
        R; R R' is the information about p.
    seen : ndarray of shape (r,)
        y.
    constant : float
        The log-likelihood of the rows is constant - |y - R' p|^2 / 2.
    sharpness : float
        k.
    bounds : Bounds or None
        The rows of "sbucb" choices that can matter.
    """

    root: Matrix
    seen: Vector
    constant: float
    sharpness: float
    bounds: Bounds | None


def observe(
    block: Block,
    ridge: Ridge,
    centre: Vector,
    precision: Matrix,
    *,
    draws: bool,
    sharpness: float | None = None,
) -> Site:
    """Summarise an episode.

    Parameters
    ----------
    block : Block
        The episode's rows, or as many of the first as are enough.
    ridge : Ridge
        Of all choices before the episode.
    centre, precision : ndarray of shape (d,) and (d, d)
        A vague prior for p: where to expand in directions of which the rows say nothing.
    draws : bool
        True for "sbts" rows, False for "sbucb" rows.
    sharpness : float, optional
        The k of an earlier episode, to start from.
    """
    if not ridge.phi.any():
        # Nothing had been learned: p is 0, and the choices do not tell more.
        return Site(np.zeros((len(centre), 0)), np.zeros(0), 0.0, sharpness or 0.0, None)
    rows: _Drawn | _Bounded = _Drawn(block, ridge) if draws else _Bounded(block, ridge)
    start = rows.start(centre)
    if start is None:
        return Site(np.zeros((len(centre), 0)), np.zeros(0), 0.0, sharpness or rows.least, None)
    found = _Expansion(start, max(rows.least, (sharpness or 0.0) / 2), rows.least, rows.moment, centre, precision)
    for look in range(_LOOKS):
        # Rows left out at first may be violated where p has gone: look further each time.
        if found.minimise(*rows.near(found.p, BAND * 4**look / found.k)):
            break
    bounds = None if draws else Bounds(*rows.near(found.p, FAR / found.k), rows.moment)
    return found.site(bounds)


class _Bounded:
    """Rows of an "sbucb" episode, x = A p + h with h the difference of the widths."""

    contexts: NDArray[np.floating]

    def __init__(self, block: Block, ridge: Ridge) -> None:
        self.block, self.whitener = block, ridge.whitener
        # Single precision is enough to find the rows that matter.
        with np.errstate(over="ignore", invalid="ignore"):
            self.contexts = block.contexts.astype(np.float32, copy=False)
            self.widths = ridge.widths(self.contexts)
        if not np.isfinite(self.widths).all():
            self.contexts = block.contexts.astype(np.float64, copy=False)
            self.widths = ridge.widths(self.contexts)
        #: with this k the widths alone leave every choice open
        spread = float(np.var(self.widths, dtype=np.float64)) ** 0.5
        self.least = 1.0 / (max(spread, _EVEN * float(np.mean(self.widths, dtype=np.float64))) or 1.0)
        steps = min(_SCALE_STEPS, len(block.chosen_rows))
        A, h = self._rows(np.arange(block.offsets[steps]))
        self.moment, self.mean = _moment(np.column_stack([A, h])), A.mean(axis=0)

    def start(self, centre: Vector) -> Vector | None:
        return _start(centre, self.moment, self.mean)

    def near(self, p: Vector, band: float) -> tuple[Matrix, Vector]:
        """A and h of the rows with x > -band at p."""
        scores = self.contexts @ p.astype(self.contexts.dtype, copy=False)
        scores += self.widths
        return self._rows(np.flatnonzero(self.block.leads(scores) > -band))

    def _rows(self, rows: NDArray[np.int64]) -> tuple[Matrix, Vector]:
        chosen = self.block.chosen_rows.take(self.block.step_of(rows))
        both = self.block.contexts.take(np.concatenate([rows, chosen]), axis=0).astype(np.float64, copy=False)
        wide = widths(self.whitener, both)
        count = len(rows)
        return both[:count] - both[count:], wide[:count] - wide[count:]


class _Drawn:
    """Rows of an "sbts" episode, x = A p with leads of length 1 in the metric of Psi^-1."""

    least = PROBIT

    def __init__(self, block: Block, ridge: Ridge) -> None:
        others = np.ones(len(block.contexts), dtype=bool)
        others[block.chosen_rows] = False
        rows = np.flatnonzero(others)
        A = block.lead_contexts(rows, block.step_of(rows))
        length = ridge.widths(A)
        # Candidates that do not differ have no row: either may be the chosen one.
        self.A = A / length[:, None] if length.all() else A[length > 0] / length[length > 0, None]
        d = A.shape[1]
        self.moment, self.mean = np.zeros((d, d)), np.zeros(d)
        if len(self.A):
            self.moment, self.mean = _moment(self.A), self.A.mean(axis=0)

    def start(self, centre: Vector) -> Vector | None:
        return _start(centre, self.moment, self.mean)

    def near(self, p: Vector, band: float) -> tuple[Matrix, Vector]:
        """A and h of the rows with x > -band at p."""
        A = self.A[self.A @ p > -band]
        return A, np.zeros(len(A))


class _Expansion:
    """F of the module's docstring, minimised over the weights w = (k p, k), or k p alone where ``moment`` has no width.

    In w the loss is convex, and so is L size(w) for a fixed L. Starting from a small L, with which rows are seen
    finely, and ending with L = LOSS d / size, Newton's method keeps to the solution that explains most rows.
    """

    def __init__(self, p: Vector, k: float, least: float, moment: Matrix, centre: Vector, precision: Matrix) -> None:
        self.p, self.k, self.moment, self.centre, self.precision = p, k, moment, centre, precision
        # Where widths tell nothing k could shrink for ever, and p = u / k grow.
        self.least = _VAGUEST * least
        self.free = len(moment) > len(p)
        self.cost = LOSS * len(p)
        self.pressure = 0.2 * self.cost / self._size(self._weights())

    def _weights(self) -> Vector:
        return np.append(self.k * self.p, self.k) if self.free else self.k * self.p

    def _size(self, w: Vector) -> float:
        return math.sqrt(w @ self.moment @ w)

    def minimise(self, A: Matrix, h: Vector) -> bool:
        """Newton's method on some rows; whether hardly anything was left to do."""
        X = np.column_stack([A, h]) if self.free else A
        w = self._weights()
        self._look(X, w)
        for passes in range(_PASSES):
            # The prior of p = u / k by its Gauss-Newton part: dp = J dw.
            away, J = self.precision @ (self.p - self.centre), self._jacobian()
            gradient = self.gradient + away @ J
            hessian = self.hessian + J.T @ self.precision @ J
            _, step, failed = lapack.dposv(hessian, -gradient, lower=1)
            decrement = -float(gradient @ step)
            if failed or decrement < self.cost / 4:
                # Choices that cost more than a cell's are not errorless: their k is their own, and needs no pressure.
                short = float(np.log(self.cost / (self.pressure * self._size(w)))) if self.loss < self.cost else 0.0
                if failed or (decrement < 2e-3 * self.cost and short < 0.1):
                    return passes <= 1
                if short >= 0.1:
                    self.pressure *= float(np.exp(short))
                    self._look(X, w)
                    continue
            start, value, length = w, self._total(), 1.0
            while True:
                w = start + length * step
                if not self.free or w[-1] > self.least:
                    self._look(X, w)
                    if self._total() < value:
                        break
                length /= 2
                if length < 1e-4:
                    self._look(X, start)
                    return False
        return False

    def _jacobian(self) -> Matrix:
        d = len(self.p)
        return np.column_stack([np.eye(d), -self.p]) / self.k if self.free else np.eye(d) / self.k

    def _total(self) -> float:
        away = self.p - self.centre
        total: float = self.value + 0.5 * float(away @ self.precision @ away)
        return total

    def _look(self, X: Matrix, w: Vector) -> None:
        d = len(self.p)
        s = X @ w
        e = np.exp(-np.abs(s))
        weight = np.where(s > 0, 1.0, e) / (1.0 + e)
        pulled = self.moment @ w
        size = math.sqrt(pulled @ w)
        self.loss = float(np.sum(np.maximum(s, 0.0) + np.log1p(e)))
        self.value = self.loss + self.pressure * size
        self.gradient = weight @ X + self.pressure / size * pulled
        curvature = (X * (e / (1.0 + e) ** 2)[:, None]).T @ X
        self.hessian = curvature + self.pressure / size * (self.moment - np.outer(pulled, pulled) / size**2)
        if self.free:
            # Keeps k above zero, and tells next to nothing.
            self.k = float(w[-1])
            self.value -= 0.5 * math.log(self.k)
            self.gradient[-1] -= 0.5 / self.k
            self.hessian[-1, -1] += 0.5 / self.k**2
        self.p = w[:d] / self.k
        self.slope = self.k * self.gradient[:d]
        self.information = self.k**2 * curvature[:d, :d]

    def site(self, bounds: Bounds | None) -> Site:
        """Second-order expansion of F at p."""
        unit = np.sqrt(self.information.diagonal())
        unit[unit == 0] = 1.0
        values, V = np.linalg.eigh(self.information / unit / unit[:, None])
        kept = values > 1e-12 * values[-1] if values[-1] > 0 else np.zeros(len(values), dtype=bool)
        scale, V = np.sqrt(values[kept]), V[:, kept]
        root = unit[:, None] * V * scale
        # F rises from here with R (y - R' p) = -gradient.
        ahead = -(V.T @ (self.slope / unit)) / scale
        return Site(root, root.T @ self.p + ahead, 0.5 * float(ahead @ ahead) - self.loss, self.k, bounds)


def _moment(rows: Matrix) -> Matrix:
    moment: Matrix = rows.T @ rows / len(rows)
    return moment


def _start(centre: Vector, moment: Matrix, mean: Vector) -> Vector | None:
    """The centre, or where it says nothing a policy against the mean lead; None if the rows say nothing either."""
    d = len(centre)
    w = np.append(centre, 1.0)[: len(moment)]
    if w @ moment @ w > 0:
        return centre
    size = float(mean @ moment[:d, :d] @ mean) ** 0.5
    return -mean / size if size > 0 else None
