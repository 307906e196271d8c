"""Where the policy of an errorless decider can lie: draws from the cell that its choices leave.

The rows A p + h <= 0 of an episode bound a polyhedron, and any p in it makes the same choices. Its Laplace
approximation has about the right shape but not the right size, so intervals come from the polyhedron itself. Where the
widths matter little it opens like a cone, and uniform draws would crowd far out. So draws have the density size(p)^-d,
with size the root mean square of A p + h: every direction, and every order of magnitude, is equally likely. Hit-and-run
(Smith 1984) with a Metropolis test on each chord, many chains at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

__all__ = ["draw_from_cell"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_CHAINS = 64
_BURN, _KEPT, _THIN = 200, 32, 10
#: of the Laplace approximation's deviations; nothing is drawn further out
_FAR = 50.0


def draw_from_cell(A: Matrix, h: Vector, shape: Matrix, moment: Matrix) -> Matrix | None:
    """Draws of p, shape (draws, d); None if no p satisfies all rows.

    Parameters
    ----------
    A, h : ndarray of shape (rows, d) and (rows,)
        The rows that can matter.
    shape : ndarray of shape (d, d)
        A covariance that resembles the cell's, as the Laplace approximation gives it.
    moment : ndarray of shape (d + 1, d + 1)
        Mean of (A, h)'(A, h) over all rows, for ``size``.
    """
    d = A.shape[1]
    B = np.linalg.cholesky(shape)
    # In coordinates u with p = B u the cell is about round.
    A = A @ B
    start = _inside(A, h)
    if start is None:
        return None
    M = moment.copy()
    M[:d] = B.T @ M[:d]
    M[:, :d] = M[:, :d] @ B
    rng = np.random.default_rng(0)
    u, middle = np.tile(start, (_CHAINS, 1)), start
    slack = -(A @ u.T + h[:, None])
    size, kept = _log_size(u, M), []
    for sweep in range(_BURN + _KEPT * _THIN):
        v = rng.standard_normal((_CHAINS, d))
        rate = A @ v.T
        with np.errstate(divide="ignore", invalid="ignore"):
            reach, box = slack / rate, (_FAR * np.sign(v) - (u - middle)) / v
            most = np.minimum(np.where(rate > 0, reach, np.inf).min(axis=0), box.min(axis=1))
            back = (-_FAR * np.sign(v) - (u - middle)) / v
            least = np.maximum(np.where(rate < 0, reach, -np.inf).max(axis=0), back.max(axis=1))
        t = least + rng.random(_CHAINS) * (most - least)
        trial = u + t[:, None] * v
        reached = _log_size(trial, M)
        moved = np.log(rng.random(_CHAINS)) < d * (size - reached)
        t = np.where(moved, t, 0.0)
        u, size = np.where(moved[:, None], trial, u), np.where(moved, reached, size)
        slack = np.maximum(slack - rate * t, 0.0)
        if sweep >= _BURN and sweep % _THIN == 0:
            kept.append(u)
    draws: Matrix = np.concatenate(kept) @ B.T
    return draws


def _log_size(u: Matrix, M: Matrix) -> Vector:
    w = np.column_stack([u, np.ones(len(u))])
    size: Vector = 0.5 * np.log(np.einsum("cd,cd->c", w @ M, w))
    return size


def _inside(A: Matrix, h: Vector) -> Vector | None:
    """Centre of a large ball inside A u + h <= 0, or None if there is none."""
    d = A.shape[1]
    length = np.linalg.norm(A, axis=1)
    found = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([A, length]),
        b_ub=-h,
        bounds=[(None, None)] * d + [(0.0, 1.0)],
    )
    if not found.success or found.x[-1] <= 0:
        return None
    centre: Vector = found.x[:d]
    return centre
