"""Penalised rows by a semismooth Newton method: the squared hinge (`soft`) and the Huber hinge (`robust`).

With v the violations, rho the typical length of a context and C the penalty, minimise

    F(theta) = 1/2 rho^2 |theta - centre|^2 + C sum_rows h(v),     h(v) = max(v, 0)^2 / 2     up to v = bend,
                                                                        linear beyond it.

rho makes C a pure number: rescaling the contexts (and l2 with them) rescales theta and changes nothing else. F is
convex, once differentiable and piecewise quadratic, so Newton steps with the generalised Hessian end after a handful;
a backtracking line search makes them safe from anywhere. Only rows that are violated, or nearly so, matter: one pass
over all rows finds them, the steps are taken on these alone, and a second pass confirms that no other row came into
play. Taking h'(v) as multipliers, weak duality gives F - min F <= |grad F|^2 / (2 rho^2): the gap needs no pass of its
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ibcb.inverse.constraints import RowSet, View
from ibcb.inverse.solvers.solution import Solution, SolverError

__all__ = ["robust", "soft"]

_MAX_PASSES = 300
_RELATIVE_GAP = 1e-10
#: a Newton step that promises less than this share of F is lost in the rounding of F
_ROUNDING = 1e-14
#: a step that short is lost in the rounding too
_SHORTEST = 1e-12
_STIFF, _STIFF_STEP = 1e4, 1e2
#: rows that hold by less than this many typical bonuses may become violated within one solve
_BAND = 0.25
#: rows are written out while they take no more numbers than this
_POOL_NUMBERS = 16_000_000
_MAX_STEPS = 200

Vector = NDArray[np.float64]


def soft(view: View, centre: Vector, *, penalty: float) -> Solution:
    """Squared hinge: every row pulls in proportion to its violation. A large penalty approaches `hard`."""
    return _newton("soft", view, centre, penalty, math.inf)


def robust(view: View, centre: Vector, *, penalty: float, bend: float) -> Solution:
    """Huber hinge: beyond ``bend`` typical bonuses a row pulls no harder, so a few wrong choices do little harm."""
    return _newton("robust", view, centre, penalty, bend * view.bonus_scale)


class _Point(NamedTuple):
    """F at theta, its gradient and generalised Hessian, and the bound on F - min F."""

    theta: Vector
    objective: float
    gradient: Vector
    hessian: NDArray[np.float64]
    gap: float


def _newton(name: str, view: View, centre: Vector, slope: float, bend: float) -> Solution:
    stiffness = view.context_scale**2
    ridge = stiffness * np.eye(len(centre))

    passes = 0

    def at(rows: View | RowSet, theta: Vector) -> _Point:
        nonlocal passes
        passes += rows is view
        value, gradient, hessian = rows.penalty(theta, slope, bend)
        offset = theta - centre
        gradient = stiffness * offset + gradient
        objective = stiffness * float(offset @ offset) / 2 + value
        return _Point(theta, objective, gradient, hessian + ridge, float(gradient @ gradient) / (2 * stiffness))

    theta, before = centre, None
    if slope > _STIFF:
        # Many short steps lead through the kinks of a stiff penalty; a gentler one shows where they end.
        gentle = _newton(name, view, centre, slope / _STIFF_STEP, bend)
        theta, passes, before = gentle.theta, gentle.iterations, gentle.before
    limit = _POOL_NUMBERS // len(centre)
    pool, tally = view.worst(theta, limit + 1, _BAND * view.bonus_scale)
    passes += 1
    before = before or tally
    point = at(pool, theta)
    while len(pool.rhs) <= limit and passes < _MAX_PASSES:
        # Solve to the end on the rows that matter here, then see whether others do there.
        point, finished = _descend(partial(at, pool), point, _MAX_STEPS)
        violated, tally = view.worst(point.theta, limit + 1, 0.0)
        passes += 1
        new = _not_in(pool, violated)
        if finished and len(new.rhs) == 0:
            return Solution(point.theta, "solved", point.objective, point.gap, passes, before, tally)
        pool = RowSet.join([pool, new], len(centre))
        point = at(pool, point.theta)
    # Too many rows to write out: every step is a pass over all of them.
    point = at(view, point.theta)
    while passes < _MAX_PASSES:
        point, finished = _descend(partial(at, view), point, 1)
        if finished:
            return Solution(point.theta, "solved", point.objective, point.gap, passes, before, view.tally(point.theta))
    raise SolverError(
        f"{name}: the duality gap is {point.gap:.3g} of an objective of {point.objective:.3g} after {passes} passes of "
        f"Newton's method (penalty {slope:.3g}). Rescale the contexts to about 1, or lower the penalty."
    )


def _descend(at: Callable[[Vector], _Point], here: _Point, steps: int) -> tuple[_Point, bool]:
    """At most so many damped Newton steps; whether the gap has closed, or no step would show in the rounding of F."""
    for _ in range(steps):
        if here.gap <= _RELATIVE_GAP * here.objective:
            return here, True
        _, step, failed = lapack.dposv(here.hessian, -here.gradient, lower=1)
        if failed:
            raise SolverError(
                "the Hessian is singular in floating point. Rescale the contexts to about 1, or lower the penalty."
            )
        slope_along = float(here.gradient @ step)
        if -slope_along <= _ROUNDING * here.objective:
            return here, True
        length = 1.0
        while True:
            there = at(here.theta + length * step)
            # The middle term forgives the rounding of F itself, or a converged point could not be left or accepted.
            if there.objective <= here.objective * (1 + _ROUNDING) + 1e-4 * length * slope_along:
                break
            length /= 2
            if length < _SHORTEST:
                return here, True
        if there.objective >= here.objective:
            # No decrease that shows: this is as low as F goes in floating point.
            return min(here, there, key=lambda point: point.gap), True
        here = there
    return here, here.gap <= _RELATIVE_GAP * here.objective


def _not_in(pool: RowSet, rows: RowSet) -> RowSet:
    """The rows that the pool does not hold."""
    if len(rows.key) == 0:
        return rows
    known = np.sort(pool.key)
    place = np.minimum(known.searchsorted(rows.key), len(known) - 1)
    return rows.take(known[place] != rows.key) if len(known) else rows
