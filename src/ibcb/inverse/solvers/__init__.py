"""Solvers of one episode's problem (or of all episodes' at once), behind one `Solution`.

A solver is a function ``solve(view, centre) -> Solution``: find the reward parameters nearest to ``centre`` that
satisfy the view's rows, exactly (`hard`), in the squared hinge (`soft`), in the Huber hinge (`robust`), or as the
paper did (`paper`). It never returns an unsolved theta.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ibcb.inverse.constraints import Solution, View
from ibcb.inverse.solvers.admm import paper
from ibcb.inverse.solvers.cutting_plane import Certificate, InfeasibleError, hard
from ibcb.inverse.solvers.hinge import robust, soft
from ibcb.numerics.newton import SolverError

__all__ = ["SOLVERS", "Certificate", "InfeasibleError", "NamedSolver", "Solution", "Solver", "SolverError"]

Solver = Callable[[View, NDArray[np.float64]], Solution]


@dataclass(frozen=True)
class NamedSolver:
    """A solver as people choose it: its title, the function, and the parameters of `ibcb.IBCB` that it takes."""

    title: str
    solve: Callable[..., Solution]
    takes: tuple[str, ...] = ()


#: by name; a new solver is a file and a line here
SOLVERS = {
    "hard": NamedSolver("exact", hard),
    "soft": NamedSolver("soft (squared hinge)", soft, ("penalty",)),
    "robust": NamedSolver("robust (Huber hinge)", robust, ("penalty", "bend")),
    "paper": NamedSolver("the paper's (OSQP)", paper, ("tolerance",)),
}
