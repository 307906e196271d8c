"""The rewards that a decider found, from how its policy evolved: linear ones that explain its policies together.

A decider that earns <theta, s> + c, and learns by ridge regression, has the policies

    p_n = Psi_n^-1 (Psi_1 p_1 + (Phi_n - Phi_1) theta + (m_n - m_1) c),

with Phi_n and m_n the Gram matrix and the sum of the contexts chosen before episode n. Its policies have been tracked,
and the rest is in the log, so (theta, c) is a problem of generalised least squares: the sum over n of

    |p_n - what (theta, c) leads to|^2_W,       W = (C + e^2 (p_n' V p_n) V^-1)^-1,

where C is the covariance of what is believed of p_n, and V the mean covariance of the candidates of a step. The second
term stands for rewards that are not linear: it allows for errors that change how far apart candidates score by the
share e. The first policy is explained as well, p_1 = Psi_1^-1 (Phi_1 theta + m_1 c), with little weight: what it was
taught by was chosen from all candidates, and what came later from the best, of which the rewards may differ.

Errors of the p_n are far from independent: policies remember, and so do beliefs. So their residuals count as if all
were one and the same error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
from scipy.linalg import lapack

from ibcb.numerics.arrays import Matrix, Stored, Vector
from ibcb.numerics.checks import gram_matrix
from ibcb.numerics.gaussians import symmetric_inverse
from ibcb.numerics.ridge import Ridge

#: the share e; and the weight of the first policy (judged by benchmarks/rewards.py)
_MISFIT, _FIRST = 0.03, 0.03
#: weights of theta's and of c's not being far beyond the size of the scores (the latter judged by
#: benchmarks/rewards.py, the former not tuned: it decides what nothing else does)
_SIZE, _LEVEL = 1e-6, 1e-5
#: sum of the squared residuals that stands for one error, and the least variance of that in units of C
#: (judged by benchmarks/uncertainty.py)
_ONE_ERROR, _LEAST_VARIANCE = 24.0, 0.4
#: squares of numbers up to this can be weighed and summed
_SQUARED = 1e150


class Rewards(NamedTuple):
    """Rewards <theta, s> + c per unit of alpha, and how sure they are.

    Attributes
    ----------
    theta : ndarray of shape (d,)
    c : float
    covariance : ndarray of shape (d + 1, d + 1)
        Of (theta, c).
    """

    theta: Vector
    c: float
    covariance: Matrix


@dataclass(frozen=True)
class RewardFit:
    """The sums of the least-squares problem so far, q = d + 1 unknowns; it is never changed.

    Contexts are measured from the decider's origin.

    Attributes
    ----------
    moment : ndarray of shape (d,)
        Psi_1 p_1.
    phi, total : ndarray of shape (d, d) and (d,)
        Phi_1 and m_1.
    normal, right : ndarray of shape (q, q) and (q,)
        Sums of A'WA and A'Wy, for equations y = A (theta, c).
    squares : float
        Sum of y'Wy.
    """

    moment: Annotated[Vector, Stored("d")]
    phi: Annotated[Matrix, Stored("d d")]
    total: Annotated[Vector, Stored("d")]
    normal: Annotated[Matrix, Stored("q q")]
    right: Annotated[Vector, Stored("q")]
    squares: float

    @classmethod
    def begin(cls, policy: Vector, before: Ridge, total: Vector, within: Matrix, unit: Matrix) -> RewardFit:
        """With the first policy.

        Parameters
        ----------
        policy : ndarray of shape (d,)
        before : Ridge
            Of the choices before its episode.
        total : ndarray of shape (d,)
            Sum of these, from the origin.
        within, unit : ndarray of shape (d, d)
            Mean covariance of the candidates of a step, and the inverse of their second moment.
        """
        d = len(policy)
        fit = cls(before.psi @ policy, before.phi, total, np.zeros((d + 1, d + 1)), np.zeros(d + 1), 0.0)
        size = float(policy @ within @ policy)
        if size <= 0:
            # Nothing had been learned.
            return fit
        A = before.solve(np.column_stack([before.phi, total]))
        weight = _FIRST / (_MISFIT**2 * size)
        right = weight * (A.T @ (within @ policy))
        normal = weight * A.T @ within @ A + _prior(unit, size)
        return replace(fit, normal=normal, right=right, squares=_FIRST / _MISFIT**2)

    def after(
        self,
        policy: Vector,
        covariance: Matrix,
        before: Ridge,
        total: Vector,
        within: Matrix,
        unit: Matrix,
    ) -> RewardFit:
        """With a later policy; ``covariance`` is of what is believed of it, the rest as of `begin`."""
        size = float(policy @ within @ policy)
        if size <= 0:
            return self
        if not self.normal.any():
            return replace(self, normal=_prior(unit, size)).after(policy, covariance, before, total, within, unit)
        d = len(policy)
        known = np.empty((d, d + 2))
        known[:, :d], known[:, d], known[:, d + 1] = before.phi - self.phi, total - self.total, self.moment
        solved = before.solve(known)
        A, y = solved[:, : d + 1], policy - solved[:, d + 1]
        W = _weight(within, covariance, size)
        WA = W @ A
        normal, right = self.normal + A.T @ WA, self.right + y @ WA
        return RewardFit(self.moment, self.phi, self.total, normal, right, self.squares + float(y @ W @ y))

    def solve(self, unit_doubt: float = 0.0) -> Rewards:
        """The rewards; zeros where nothing had been learned.

        ``unit_doubt``: share by which alpha, the unit of all policies, may be mistaken.
        """
        q = len(self.right)
        if not self.normal.any():
            return Rewards(np.zeros(q - 1), 0.0, np.zeros((q, q)))
        # x = (theta, c), in units that make its entries alike.
        unit = np.sqrt(self.normal.diagonal())
        unit[unit == 0] = 1.0
        scaled = self.normal / unit / unit[:, None]
        scaled.flat[:: q + 1] += 1e-12
        back = symmetric_inverse(scaled) / unit / unit[:, None]
        x = back @ self.right
        left = self.squares - float(x @ self.right)
        covariance = max(left / _ONE_ERROR, _LEAST_VARIANCE) * back + unit_doubt**2 * np.outer(x, x)
        return Rewards(x[:-1], float(x[-1]), covariance)

    def check(self) -> None:
        """Raise ValueError where these cannot be sums of squares, or later sums would overflow."""
        if min(float(self.normal.diagonal().min(initial=0.0)), self.squares) < 0:
            raise ValueError("its sums of squares are negative")
        gram_matrix("phi", self.phi, len(self.moment))
        if max(np.abs(self.moment).max(), np.abs(self.total).max()) > _SQUARED:
            raise ValueError(f"its sums are beyond {_SQUARED:g}")


def _prior(unit: Matrix, size: float) -> Matrix:
    """A'WA of the prior, beside policies whose scores have this mean square."""
    d = len(unit)
    normal = np.zeros((d + 1, d + 1))
    normal[:d, :d] = _SIZE * symmetric_inverse(unit)
    normal[d, d] = _LEVEL
    return normal / (_MISFIT**2 * size)


def _weight(within: Matrix, covariance: Matrix, size: float) -> Matrix:
    """W, without inverting V, which may lack directions."""
    room = covariance @ within
    room.flat[:: len(room) + 1] += _MISFIT**2 * size
    _, _, W, singular = lapack.dgesv(room.T, within)
    if singular:
        raise np.linalg.LinAlgError("what is known of a policy is singular in floating point")
    weight: Matrix = (W + W.T) / 2
    return weight
