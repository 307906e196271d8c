"""Penalised rows by a semismooth Newton method: the squared hinge (`soft`) and the Huber hinge (`robust`).

With v the violations, |.| the length by the view's `Metric` and C the penalty, minimise

    F(theta) = 1/2 |theta - centre|^2 + C sum_rows h(v),     h(v) = max(v, 0)^2 / 2     up to v = bend,
                                                                  linear beyond it.

The metric makes C a pure number: rescaling features (and l2 with them) rescales theta and changes nothing else. F is
convex, once differentiable and piecewise quadratic, so Newton steps with the generalised Hessian end after a handful;
a backtracking line search makes them safe from anywhere. Only rows that are violated, or nearly so, matter: one pass
over all rows finds them, the steps are taken on these alone, and a second pass confirms that no other row came into
play. Taking h'(v) as multipliers, weak duality gives F - min F <= |grad F|^2 / 2, in the dual length: the gap needs no
pass of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.inverse.constraints import Solution, View
from ibcb.inverse.row_kernels import RowSet
from ibcb.numerics.arrays import Vector
from ibcb.numerics.newton import Descent, Stopping, descend

#: not tuned: two are usual, up to 10 where every step is a pass
_MAX_PASSES = 300
#: the gap, as a share of F, that counts as closed; not tuned: the last Newton step, on a quadratic, goes far below
_RELATIVE_GAP = 1e-10
#: a Newton step that promises less than this share of F is lost in the rounding of F
_ROUNDING = 1e-14
#: a step shortened to this is lost in the rounding too
_SHORTEST = 1e-12
#: penalties above the first are approached in stages, each so many times stiffer; not tuned finely: it saves passes
_STIFF_PENALTY, _STAGE = 1e4, 1e2
#: rows that hold by less than this many typical bonuses may become violated within one solve; not tuned finely:
#: rows that it leaves out are found by the pass that confirms
_NEARLY_VIOLATED = 0.25
#: rows are written out while they take no more numbers than this: 128 MB
_POOL_NUMBERS = 16_000_000
#: at the rows written out; not tuned: 4 are usual, 50 at stiff penalties, and if they run out there is another pass
_MAX_LOOKS = 200


def soft(view: View, centre: Vector, *, penalty: float) -> Solution:
    """Squared hinge: every row pulls in proportion to its violation. A large penalty approaches `hard`."""
    return _newton("soft", view, centre, penalty, math.inf)


def robust(view: View, centre: Vector, *, penalty: float, bend: float) -> Solution:
    """Huber hinge: beyond ``bend`` typical bonuses a row pulls no harder, so a few wrong choices do little harm."""
    return _newton("robust", view, centre, penalty, bend * view.bonus_scale)


class _HingePoint(NamedTuple):
    """F at theta, its gradient and generalised Hessian."""

    x: Vector
    value: float
    gradient: Vector
    hessians: Sequence[NDArray[np.float64]]


def _newton(name: str, view: View, centre: Vector, slope: float, bend: float) -> Solution:
    K = view.metric.matrix

    def at(theta: Vector, rows: View | RowSet) -> _HingePoint:
        value, gradient, hessian = rows.penalty(theta, slope, bend)
        offset = theta - centre
        pull = K @ offset
        return _HingePoint(theta, value + float(offset @ pull) / 2, pull + gradient, (hessian + K,))

    def gap(point: _HingePoint) -> float:
        return view.metric.dual_square(point.gradient) / 2

    def solve(rows: View | RowSet, start: Vector, most: int) -> Descent[_HingePoint]:
        stopping = Stopping(_ROUNDING / 2, _ROUNDING, most, shortest=_SHORTEST)
        return descend(partial(at, rows=rows), start, stopping, lambda p: gap(p) <= _RELATIVE_GAP * p.value)

    theta, passes, before = centre, 0, None
    if slope > _STIFF_PENALTY:
        # Many short steps lead through the kinks of a stiff penalty; a gentler one shows where they end.
        gentle = _newton(name, view, centre, slope / _STAGE, bend)
        theta, passes, before = gentle.theta, gentle.iterations, gentle.before
    limit = _POOL_NUMBERS // len(centre)
    pool, tally = view.worst(theta, limit + 1, _NEARLY_VIOLATED * view.bonus_scale)
    passes += 1
    before = before or tally
    while len(pool.rhs) <= limit and passes < _MAX_PASSES:
        # Solve to the end on the rows that matter here, then see whether others do there.
        descent = solve(pool, theta, _MAX_LOOKS)
        if descent.status == "singular":
            break
        theta = descent.point.x
        violated, tally = view.worst(theta, limit + 1, 0.0)
        passes += 1
        new = violated.without(pool)
        if descent.solved and len(new.rhs) == 0:
            return Solution(theta, "solved", descent.point.value, gap(descent.point), passes, before, tally)
        pool = RowSet.join([pool, new], len(centre))
    else:
        # Too many rows to write out: every step is a pass over all of them.
        descent = solve(view, theta, _MAX_PASSES - passes)
        theta, passes = descent.point.x, passes + descent.passes
        if descent.solved:
            return Solution(theta, "solved", descent.point.value, gap(descent.point), passes, before, view.tally(theta))
    remedy = "Rescale the contexts to about 1, or lower the penalty."
    raise replace(descent, passes=passes).error(f"{name} (penalty {slope:.3g})", remedy)
