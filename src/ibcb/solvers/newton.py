"""Penalised rows by a semismooth Newton method: the squared hinge (`soft`) and the Huber hinge (`robust`).

With v the violations, rho the typical length of a context and C the penalty, minimise

    F(theta) = 1/2 rho^2 |theta - centre|^2 + C sum_rows h(v),     h(v) = max(v, 0)^2 / 2     up to v = bend,
                                                                        linear beyond it.

rho makes C a pure number: rescaling the contexts (and l2 with them) rescales theta and changes nothing else. F is
convex, once differentiable and piecewise quadratic, so Newton steps with the generalised Hessian end in a handful of
passes; a backtracking line search makes them safe from anywhere. Taking h'(v) as multipliers, weak duality gives
F - min F <= |grad F|^2 / (2 rho^2): the gap needs no further pass.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ibcb.constraints import View
from ibcb.solvers.solution import Solution, SolverError

__all__ = ["robust", "soft"]

_MAX_PASSES = 300
_RELATIVE_GAP = 1e-10
#: a Newton step that promises less than this share of F is lost in the rounding of F
_ROUNDING = 1e-14
_STIFF, _STIFF_STEP = 1e4, 1e2


def soft(view: View, centre: NDArray[np.float64], *, penalty: float) -> Solution:
    """Squared hinge: every row pulls in proportion to its violation. A large penalty approaches `hard`."""
    return _newton("soft", view, centre, penalty, math.inf)


def robust(view: View, centre: NDArray[np.float64], *, penalty: float, bend: float) -> Solution:
    """Huber hinge: beyond ``bend`` typical bonuses a row pulls no harder, so a few wrong choices do little harm."""
    return _newton("robust", view, centre, penalty, bend * view.bonus_scale)


def _newton(name: str, view: View, centre: NDArray[np.float64], slope: float, bend: float) -> Solution:
    stiffness = view.context_scale**2
    theta, passes, before = centre.copy(), 1, None
    if slope > _STIFF:
        # Many short steps lead through the kinks of a stiff penalty; a gentler one shows where they end.
        gentle = _newton(name, view, centre, slope / _STIFF_STEP, bend)
        theta, passes, before = gentle.theta, gentle.iterations + 1, gentle.before
    here = view.penalty(theta, slope, bend)
    before = before or here.tally()
    offset = theta - centre
    objective = stiffness * float(offset @ offset) / 2 + here.value
    while True:
        offset = theta - centre
        gradient = stiffness * offset + here.gradient
        gap = float(gradient @ gradient) / (2 * stiffness)
        if gap <= _RELATIVE_GAP * objective:
            return Solution(theta, "solved", objective, gap, passes, before, here.tally())
        hessian = here.hessian
        hessian.flat[:: len(theta) + 1] += stiffness
        _, step, failed = lapack.dposv(hessian, -gradient, lower=1)
        if failed:
            raise SolverError(
                f"{name}: the Hessian is singular in floating point (penalty {slope:.3g}, contexts of size about "
                f"{view.context_scale:.3g}). Rescale the contexts to about 1, or lower the penalty."
            )
        slope_along = float(gradient @ step)
        if -slope_along <= _ROUNDING * objective:
            return Solution(theta, "solved", objective, gap, passes, before, here.tally())
        length = 1.0
        while True:
            if passes >= _MAX_PASSES:
                raise SolverError(
                    f"{name}: the duality gap is {gap:.3g} of an objective of {objective:.3g} after {passes} passes "
                    f"of Newton's method (penalty {slope:.3g}). Rescale the contexts to about 1, or lower the penalty."
                )
            trial = theta + length * step
            there = view.penalty(trial, slope, bend)
            passes += 1
            away = trial - centre
            value = stiffness * float(away @ away) / 2 + there.value
            # The last term forgives the rounding of F itself, or a converged point could not be left or accepted.
            if value <= objective + 1e-4 * length * slope_along + _ROUNDING * objective:
                break
            length /= 2
        theta, here, objective = trial, there, value
