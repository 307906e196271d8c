"""Where the policy of an errorless decider can lie: draws from the cell that its choices leave.

The rows A p + h <= 0 of an episode bound a polyhedron, and any p in it makes the same choices. Its Laplace
approximation has about the right shape but not the right size, so intervals come from the polyhedron itself. Where the
widths matter little it opens like a cone, and uniform draws would crowd far out. In the weights w = (k p, k) it is a
cone: A u + h k <= 0 and k > 0 for w = (u, k). Draws of w from a normal law with the precision M, the second moment of
the rows, prefer no direction in units of scores; so p = u / k has the density size(p)^-(d + 1), with size the root mean
square of A p + h. Hit-and-run (Smith 1984) on the cone, many chains at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri

__all__ = ["draw_from_cell"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_CHAINS = 64
#: deviations of the Laplace approximation within which a start is looked for
_FAR = 20.0
_ROUNDS, _THIN = (100, 100, 100, 300), 10


def draw_from_cell(A: Matrix, h: Vector, centre: Vector, shape: Matrix, moment: Matrix) -> Matrix | None:
    """Draws of p, shape (draws, d); None if no p satisfies all rows.

    Parameters
    ----------
    A, h : ndarray of shape (rows, d) and (rows,)
        The rows that can matter.
    centre, shape : ndarray of shape (d,) and (d, d)
        A mean and a covariance that resemble the cell's, as the Laplace approximation gives them.
    moment : ndarray of shape (d + 1, d + 1)
        M, the mean of (A, h)'(A, h) over all rows.
    """
    d = A.shape[1]
    start = _inside(A, h, centre, np.linalg.cholesky(shape).astype(np.float64, copy=False))
    if start is None:
        return None
    w = np.append(start, 1.0)
    w *= ((d + 1) / (w @ moment @ w)) ** 0.5
    spread = np.outer(w, w) / (d + 1)
    spread[:d, :d] += w[-1] ** 2 * shape
    rows = np.vstack([np.column_stack([A, h]), -np.eye(d + 1)[-1:]])
    rng = np.random.default_rng(0)
    draws = np.tile(w, (_CHAINS, 1))
    for sweeps in _ROUNDS:
        # In coordinates v with w = B v the cone is about round; each round knows its shape better.
        B = np.linalg.cholesky(spread)
        v = np.linalg.solve(B, draws[-_CHAINS:].T).T
        draws = _hit_and_run(rows @ B, v, B.T @ moment @ B, sweeps, rng) @ B.T
        spread = np.cov(draws.T)
    policies: Matrix = draws[:, :d] / draws[:, d:]
    return policies


def _hit_and_run(rows: Matrix, v: Matrix, precision: Matrix, sweeps: int, rng: np.random.Generator) -> Matrix:
    """Draws from N(0, precision^-1) cut to rows v <= 0, by chains that begin at each v. Shape (draws, D)."""
    slack = np.maximum(-(rows @ v.T), 0.0)
    kept = []
    for sweep in range(1, sweeps + 1):
        way = rng.standard_normal(v.shape)
        rate = rows @ way.T
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = slack / rate
        most = np.where(rate > 0, reach, np.inf).min(axis=0)
        least = np.where(rate < 0, reach, -np.inf).max(axis=0)
        # On the line v + t way the law is normal with this mean and deviation.
        pull = way @ precision
        deviation = 1.0 / np.sqrt(np.einsum("cd,cd->c", pull, way))
        mean = -np.einsum("cd,cd->c", pull, v) * deviation**2
        low, high = ndtr((least - mean) / deviation), ndtr((most - mean) / deviation)
        t = mean + deviation * ndtri(low + rng.random(len(v)) * (high - low))
        # Far in a tail the formula has no digits left; and rounding must not carry a chain out.
        t = np.clip(np.where(np.isfinite(t), t, 0.0), np.minimum(least, 0.0), np.maximum(most, 0.0))
        v = v + t[:, None] * way
        slack = np.maximum(slack - rate * t, 0.0)
        if sweep % _THIN == 0:
            kept.append(v)
    return np.concatenate(kept)


def _inside(A: Matrix, h: Vector, centre: Vector, B: Matrix) -> Vector | None:
    """A point p = centre + B u with room around it that satisfies all rows, or None if there is none."""
    d = A.shape[1]
    found = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([A @ B, np.linalg.norm(A @ B, axis=1)]),
        b_ub=-(A @ centre + h),
        bounds=[(-_FAR, _FAR)] * d + [(0.0, 0.2)],
    )
    if not found.success or found.x[-1] <= 0:
        return None
    inside: Vector = centre + B @ found.x[:d]
    return inside
