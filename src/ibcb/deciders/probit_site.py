"""What one episode's choices of a Thompson sampler say of the policy behind them, in O(d^2) numbers.

An "sbts" decider draws from N(p, Psi^-1). That it prefers its choice c to another candidate o means that
x_o = <p, s_o - s_c> / |s_o - s_c|_Psi^-1 is below a standard normal number. A row costs log(1 + exp(k x_o)), where
k = 1.7 makes the logistic function the normal one. The expansion point minimises

    F(p) = loss(p) + LENGTH_COST d log size(p),        size = root mean square of k x over the rows,

where the second term keeps p finite if choices tell only its direction; it is left out where the rows cost more than it
can. Expanded to second order there, the rows can be forgotten.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ibcb.engine import Block
from ibcb.numerics.gaussians import Site, site_at
from ibcb.numerics.ridge import Ridge

__all__ = ["draws_site"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: cost per feature of rows that tell only a direction; half a log-likelihood unit per weight, as a prior on its size
LENGTH_COST = 0.5
#: the logistic function of 1.7 x is the normal distribution function of x to within .01
PROBIT = 1.7
#: rows that hold by more than this over k cost less than exp(-8) each
SETTLED = 8.0
#: rounds in which rows left out at first are looked at again, each four times further; none has needed more than four
_ROUNDS = 6
_MAX_PASSES = 60


def draws_site(block: Block, ridge: Ridge, centre: Vector, precision: Matrix) -> Site:
    """Summarise an episode.

    Parameters
    ----------
    block : Block
        The episode's rows, or as many of the first as are enough.
    ridge : Ridge
        Of all choices before the episode.
    centre, precision : ndarray of shape (d,) and (d, d)
        A vague prior for p: where to expand in directions of which the rows say nothing.
    """
    d = len(centre)
    rows = _rows(block, ridge) if ridge.phi.any() else np.empty((0, d))
    moment = rows.T @ rows / max(1, len(rows))
    start = _start(centre, moment, rows)
    if start is None:
        # Nothing had been learned, so that p is 0; or the candidates never differ.
        return Site.empty(d)
    found = _Expansion(start, moment, centre, precision)
    for look in range(_ROUNDS):
        # Rows left out at first may be violated where p has gone: look further each time.
        if found.minimise(rows[rows @ found.p > -SETTLED * 4**look / PROBIT]):
            break
    return found.site()


def _rows(block: Block, ridge: Ridge) -> Matrix:
    """Leads of the candidates that were not chosen, of length 1 in the metric of Psi^-1."""
    others = np.ones(len(block.contexts), dtype=bool)
    others[block.chosen_rows] = False
    places = np.flatnonzero(others)
    A = block.lead_contexts(places, block.step_of(places))
    length = ridge.widths(A)
    # Candidates that do not differ have no row: either may be the chosen one.
    scaled: Matrix = A / length[:, None] if length.all() else A[length > 0] / length[length > 0, None]
    return scaled


def _start(centre: Vector, moment: Matrix, rows: Matrix) -> Vector | None:
    """The centre, or where it says nothing a policy against the mean lead; None if the rows say nothing either."""
    if centre @ moment @ centre > 0:
        return centre
    if not len(rows):
        return None
    mean = rows.mean(axis=0)
    size = float(mean @ moment @ mean) ** 0.5
    return -mean / size if size > 0 else None


class _Expansion:
    """F of the module's docstring, minimised over the weights w = k p.

    In w the loss is convex, and so is L size(w) for a fixed L. Starting from a small L and ending with
    LENGTH_COST d / size, Newton's method keeps to the solution that explains most rows.
    """

    def __init__(self, p: Vector, moment: Matrix, centre: Vector, precision: Matrix) -> None:
        self.p, self.moment, self.centre, self.precision = p, moment, centre, precision
        self.cost = LENGTH_COST * len(p)
        self.pressure = 0.2 * self.cost / self._size(PROBIT * p)

    def _size(self, w: Vector) -> float:
        return math.sqrt(w @ self.moment @ w)

    def minimise(self, A: Matrix) -> bool:
        """Newton's method on some rows; whether hardly anything was left to do."""
        w = PROBIT * self.p
        self._look(A, w)
        for passes in range(_MAX_PASSES):
            gradient = self.gradient + self.precision @ (self.p - self.centre) / PROBIT
            _, step, failed = lapack.dposv(self.hessian + self.precision / PROBIT**2, -gradient, lower=1)
            decrement = -float(gradient @ step)
            if failed or decrement < self.cost / 4:
                short = float(np.log(self.cost / (self.pressure * self._size(w)))) if self.loss < self.cost else 0.0
                if failed or (decrement < 2e-3 * self.cost and short < 0.1):
                    return passes <= 1
                if short >= 0.1:
                    self.pressure *= float(np.exp(short))
                    self._look(A, w)
                    continue
            start, value, length = w, self._total(), 1.0
            while True:
                w = start + length * step
                self._look(A, w)
                if self._total() < value:
                    break
                length /= 2
                if length < 1e-4:
                    self._look(A, start)
                    return False
        return False

    def _total(self) -> float:
        away = self.p - self.centre
        total: float = self.value + 0.5 * float(away @ self.precision @ away)
        return total

    def _look(self, A: Matrix, w: Vector) -> None:
        s = A @ w
        e = np.exp(-np.abs(s))
        weight = np.where(s > 0, 1.0, e) / (1.0 + e)
        pulled = self.moment @ w
        size = math.sqrt(pulled @ w)
        self.loss = float(np.sum(np.maximum(s, 0.0) + np.log1p(e)))
        self.value = self.loss + self.pressure * size
        self.gradient = weight @ A + self.pressure / size * pulled
        # Of a matrix with itself, which takes half the time.
        bent = A * (np.sqrt(e) / (1.0 + e))[:, None]
        curvature = bent.T @ bent
        self.hessian = curvature + self.pressure / size * (self.moment - np.outer(pulled, pulled) / size**2)
        self.p = w / PROBIT
        self.slope = PROBIT * self.gradient
        self.information = PROBIT**2 * curvature

    def site(self) -> Site:
        """Second-order expansion of F at p."""
        return site_at(self.p, self.information, self.slope, self.loss, least=1e-12)
