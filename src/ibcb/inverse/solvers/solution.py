"""What a solver returns, and what it raises instead when it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ibcb.inverse.constraints import View
from ibcb.inverse.row_kernels import RowSet, Tally
from ibcb.numerics.newton import SolverError

#: combinations of rows that reach 0 <= -1 within this are contradictions: the rounding that non-negative least squares
#: may add up
_CERTIFICATE_TOLERANCE = 1e-7
#: weights below this share of the largest are rounding; not tuned
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Solution:
    """A solved problem, with the evidence that it is one; every figure is computed here, not by a back end.

    Attributes
    ----------
    theta : ndarray of shape (d,)
        Reward parameters for alpha = 1.
    status : str
        "solved", or what else was accepted (the paper's second tolerance).
    objective : float
        Value of the problem that was solved.
    gap : float
        Objective minus a lower bound on it (weak duality), at least 0. Zero proves optimality.
    iterations : int
        Passes over the rows.
    before, after : Tally
        How the rows held at the centre, before solving, and at theta.
    """

    theta: NDArray[np.float64]
    status: str
    objective: float
    gap: float
    iterations: int
    before: Tally
    after: Tally


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
