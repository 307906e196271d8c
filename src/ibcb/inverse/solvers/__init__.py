"""Solvers of one episode's problem (or of all episodes' at once), behind one `Solution`.

A solver is a function ``solve(view, centre) -> Solution``: find the reward parameters nearest to ``centre`` that
satisfy the view's rows, exactly (`hard`), in the squared hinge (`soft`), in the Huber hinge (`robust`), or as the
paper did (`paper`). It never returns an unsolved theta.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ibcb.inverse.constraints import View
from ibcb.inverse.solvers.admm import paper
from ibcb.inverse.solvers.cutting_plane import hard
from ibcb.inverse.solvers.hinge import robust, soft
from ibcb.inverse.solvers.solution import Certificate, Contradiction, InfeasibleError, Solution
from ibcb.numerics.newton import SolverError

__all__ = [
    "SOLVERS",
    "Certificate",
    "Contradiction",
    "InfeasibleError",
    "NamedSolver",
    "Solution",
    "Solver",
    "SolverError",
    "SolverSettings",
    "hard",
    "paper",
    "robust",
    "soft",
]

Solver = Callable[[View, NDArray[np.float64]], Solution]


@dataclass(frozen=True)
class SolverSettings:
    """What solvers can be told, see `ibcb.IBCB`."""

    penalty: float
    bend: float
    tolerance: float


@dataclass(frozen=True)
class NamedSolver:
    """A solver as people choose it: its title, and how it is made of settings."""

    title: str
    make: Callable[[SolverSettings], Solver]


#: by name; a new solver is a file and a line here
SOLVERS = {
    "hard": NamedSolver("exact", lambda given: hard),
    "soft": NamedSolver("soft (squared hinge)", lambda given: partial(soft, penalty=given.penalty)),
    "robust": NamedSolver(
        "robust (Huber hinge)", lambda given: partial(robust, penalty=given.penalty, bend=given.bend)
    ),
    "paper": NamedSolver("the paper's (OSQP)", lambda given: partial(paper, tolerance=given.tolerance)),
}
