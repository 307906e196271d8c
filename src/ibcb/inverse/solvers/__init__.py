"""Solvers of one episode's problem (or of all episodes' at once), behind one `Solution`.

A solver is a function ``solve(view, centre) -> Solution``: find the reward parameters nearest to ``centre`` that
satisfy the view's rows, exactly (`hard`), in the squared hinge (`soft`), in the Huber hinge (`robust`), or as the
paper did (`paper`). It never returns an unsolved theta.
"""

from ibcb.inverse.solvers.admm import paper
from ibcb.inverse.solvers.cutting_plane import hard
from ibcb.inverse.solvers.newton import robust, soft
from ibcb.inverse.solvers.solution import Certificate, Contradiction, InfeasibleError, Solution, SolverError

__all__ = [
    "Certificate",
    "Contradiction",
    "InfeasibleError",
    "Solution",
    "SolverError",
    "hard",
    "paper",
    "robust",
    "soft",
]
