"""The paper's own solver: OSQP at a loose tolerance, and a looser one where that does not converge.

Kept for fidelity. The loose tolerance is part of the paper's results; the point it returns violates rows, by as much
as the solution reports. OSQP gets an iteration limit, since problems without a solution can keep it for minutes.
"""

from __future__ import annotations

import numpy as np
import osqp
from numpy.typing import NDArray
from scipy import sparse

from ibcb.inverse.constraints import Solution, View
from ibcb.numerics.newton import SolverError

#: the paper's; it says nothing of a limit, and this is OSQP's own (decision 0003)
_SECOND_TOLERANCE = 8e-1
_MAX_ITERATIONS = 4000
#: OSQP's codes
_SOLVED, _SOLVED_INACCURATELY = 1, 2


def paper(view: View, centre: NDArray[np.float64], *, tolerance: float = 8e-2) -> Solution:
    """Minimise 1/2 |theta - centre|^2 over every row with OSQP at eps = ``tolerance``, else at 0.8."""
    before = view.tally(centre)
    rows = view.rows()
    if len(rows.rhs) == 0:
        return Solution(centre.copy(), "solved", 0.0, 0.0, 0, before, before)
    tried = []
    # OSQP calls a point inaccurately solved that meets ten times the tolerance when its iterations run out.
    for eps, accepted in ((tolerance, {_SOLVED}), (_SECOND_TOLERANCE, {_SOLVED, _SOLVED_INACCURATELY})):
        problem = osqp.OSQP()
        try:
            problem.setup(
                P=sparse.csc_matrix(sparse.eye(view.n_features)),
                q=-centre,
                A=sparse.csc_matrix(rows.matrix),
                l=np.full(len(rows.rhs), -np.inf),
                u=rows.rhs,
                eps_abs=eps,
                eps_rel=eps,
                max_iter=_MAX_ITERATIONS,
                verbose=False,
            )
        except osqp.OSQPException as error:
            raise SolverError(
                f"paper: OSQP refuses the problem ({error}): its rows reach {np.abs(rows.matrix).max():.3g} and "
                f"{np.abs(rows.rhs).max():.3g}. Rescale the contexts to about 1."
            ) from None
        result = problem.solve(raise_error=False)
        tried.append(f"{result.info.status} at tolerance {eps:g} after {result.info.iter} iterations")
        if result.info.status_val in accepted:
            break
    else:
        raise SolverError(
            f"paper: OSQP did not solve the problem ({'; '.join(tried)}); at the centre {before.violated} of "
            f'{len(rows.rhs)} rows are violated by up to {before.max_violation:.3g}. Use solver="robust".'
        )
    theta = np.asarray(result.x, dtype=np.float64)
    status = "solved" if len(tried) == 1 else f"{result.info.status} at tolerance {eps:g}"
    away = theta - centre
    objective = float(away @ away) / 2
    multipliers = np.maximum(result.y, 0.0)
    pull = multipliers @ rows.matrix
    bound = float(multipliers @ (rows.matrix @ centre - rows.rhs) - pull @ pull / 2)
    # Below zero where theta violates rows: it is then cheaper than any feasible point. The violation is reported.
    gap = max(objective - bound, 0.0)
    return Solution(theta, status, objective, gap, int(result.info.iter), before, view.tally(theta))
