"""The exact projection onto the feasible set, by cutting planes on implicit rows.

    minimise 1/2 |theta - centre|^2   subject to every row,

with the view's `Metric` as length.

Of many thousands of rows a handful bind. Start from the centre, add the most violated rows to a working set, solve
that small problem exactly with DAQP (a dual active-set method), and repeat until no row is violated. If the working
set has no solution neither has the whole; non-negative least squares then names the contradicting steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import daqp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ibcb.inverse.constraints import Solution, View
from ibcb.inverse.row_kernels import RowSet
from ibcb.numerics.newton import SolverError

#: not tuned: two are usual, and a problem that takes so many is lost to rounding
_MAX_ROUNDS = 200
#: rows that a round may add: many are cheap while d is small, and dear to DAQP when it is not (decision 0008)
_LEAST_ROWS_PER_ROUND, _ROWS_PER_FEATURE = 200, 2
#: rows that hold by less than this many typical bonuses are likely to bind once theta has moved; not tuned finely:
#: it saves rounds, and theta does not depend on it
_NEARLY_BINDING = 1.0

#: combinations of rows that reach 0 <= -1 within this are contradictions: the rounding that non-negative least squares
#: may add up
_CERTIFICATE_TOLERANCE = 1e-7
#: weights below this share of the largest are rounding; not tuned
_ROUNDING = 1e-12


class Contradiction(NamedTuple):
    """One row of a certificate: at this step ``chosen`` was preferred to ``other``."""

    episode: int
    step: int
    chosen: int
    other: int
    weight: float


class Certificate(tuple[Contradiction, ...]):
    """At most d + 1 choices that no theta can explain together.

    With the weights w >= 0 their rows add up to 0 <= -1: sum w A = 0 and sum w b = -1.
    """

    def __str__(self) -> str:
        return "; ".join(f"episode {row.episode} step {row.step} (chose {row.chosen} over {row.other})" for row in self)


class InfeasibleError(SolverError):
    """No theta satisfies every row; ``certificate`` names the steps that contradict each other."""

    def __init__(self, message: str, certificate: Certificate) -> None:
        super().__init__(message)
        self.certificate = certificate


def hard(view: View, centre: NDArray[np.float64]) -> Solution:
    """Project ``centre`` on the feasible set; raise `InfeasibleError` with a certificate if it is empty."""
    per_round = max(_LEAST_ROWS_PER_ROUND, _ROWS_PER_FEATURE * view.n_features)
    working, before = view.worst(centre, per_round, _NEARLY_BINDING * view.bonus_scale)
    after, theta, gap = before, centre.copy(), 0.0
    for passes in range(1, _MAX_ROUNDS + 1):
        if after.violated == 0:
            return Solution(theta, "solved", view.metric.square(theta - centre) / 2, gap, passes, before, after)
        # Holding rows to half the tolerance keeps rounding from reporting them as violated again.
        theta, gap = _project(view, working, view.tolerance(theta) / 2, centre)
        cut, after = view.worst(theta, per_round, 0.0)
        if after.violated:
            new = cut.without(working)
            if not len(new.key):
                break
            working = RowSet.join([working, new], view.n_features)
    raise SolverError(
        f"hard: {after.violated} rows stay violated by up to {after.max_violation:.3g} after {passes} passes; the "
        'problem is too badly scaled for the exact solver. Rescale the contexts to about 1, or use solver="robust".'
    )


def _project(view: View, rows: RowSet, slack: float, centre: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Nearest point to ``centre`` within the working set, and the duality gap there."""
    # theta - centre = T z unit, whose length is that of z; in units of the rows, so that DAQP sees numbers near 1.
    room = rows.rhs + slack - rows.matrix @ centre
    turned = rows.matrix @ view.metric.root
    length = math.sqrt(np.vdot(turned, turned) / len(room)) or 1.0
    size = float(np.abs(room).max()) or 1.0
    A, b = turned / length, room / size
    d = len(centre)
    z, _, flag, info = daqp.solve(np.eye(d), np.zeros(d), A, b, primal_tol=1e-10)
    if flag != 1:
        # Not by DAQP's multipliers: where it stops before its first step, they are whatever was in memory.
        certificate = contradiction(view, rows)
        if certificate is not None:
            raise InfeasibleError(
                f"no theta explains these choices together: {certificate}. Either (a) the decider does not always take "
                "its best candidate, as when it draws at random, (b) it was updated inside an episode, (c) l2, the "
                "expert kind or the choices before the log differ from what was given, (d) contexts were rounded, or "
                '(e) several episodes were solved as one while the policy changed. Use solver="robust".',
                certificate,
            )
        raise SolverError(
            f"hard: DAQP stopped with flag {flag} on {len(b)} rows and no contradiction among them was found: the "
            'problem is feasible only within rounding. Use solver="robust".'
        )
    multipliers = np.maximum(info["lam"], 0.0)
    # Weak duality for min 1/2 |z|^2, A z <= b: -1/2 |A' y|^2 - y b bounds it from below for every y >= 0.
    pull = multipliers @ A
    gap = float(z @ z / 2 + pull @ pull / 2 + multipliers @ b)
    unit = size / length
    return centre + view.metric.root @ (unit * z), max(gap, 0.0) * unit**2


def contradiction(view: View, rows: RowSet) -> Certificate | None:
    """Prove that ``matrix @ theta <= rhs`` has no solution, or return None.

    By Farkas' lemma there is none exactly if some w >= 0 has w A = 0 and w b = -1. Non-negative least squares finds
    such a w with at most d + 1 positive entries.
    """
    lengths = np.linalg.norm(rows.matrix, axis=1)
    lengths[lengths == 0] = 1.0
    matrix, rhs = rows.matrix / lengths[:, None], rows.rhs / lengths
    size = np.abs(rhs).max(initial=0.0)
    if size == 0:
        return None
    system = np.vstack([matrix.T, rhs / size])
    target = np.zeros(len(system))
    target[-1] = -1.0
    try:
        weights, residual = nnls(system, target, maxiter=30 * len(rhs))
    except RuntimeError:  # its iteration limit
        return None
    if residual > _CERTIFICATE_TOLERANCE * max(1.0, float(weights.sum())):
        return None
    used = np.flatnonzero(weights > _ROUNDING * weights.max())
    scale = weights[used] / (size * lengths[used])
    places = sorted(zip(view.places(rows.key[used]).tolist(), scale.tolist(), strict=True))
    return Certificate(Contradiction(e, step, chosen, other, weight) for (e, step, chosen, other), weight in places)
