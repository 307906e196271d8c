"""Which models of a decider's evolution are filtered side by side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DRAWN", "FREE", "Grid"]

Vector = NDArray[np.float64]


class Grid(NamedTuple):
    """The models of a kind of decider, and how large things are before anything is seen.

    Attributes
    ----------
    scores, rewards : float
        Of policies and of rewards: deviations of whole scores, or of what one feature adds to them where ``apart``.
    alpha : float
        Its deviation; 0 where it is known to be 1.
    apart : bool
    start : float
        How far the first policy may lie from what the learner's law makes of the choices before the log.
    walks : ndarray
        q of the walks.
    sigma, wander : ndarray of equal length
        sigma and q of the learners.
    """

    scores: float
    rewards: float
    alpha: float
    apart: bool
    start: float
    walks: Vector
    sigma: Vector
    wander: Vector

    @property
    def names(self) -> tuple[str, ...]:
        """What the models are called, the walks first."""
        learners = zip(self.sigma.tolist(), self.wander.tolist(), strict=True)
        return (*(f"walk(q={q:g})" for q in self.walks), *(f"learner(sigma={s:g}, q={q:g})" for s, q in learners))


def _models(sigma: list[float], wander: list[float]) -> tuple[Vector, Vector]:
    first, second = np.meshgrid(sigma, wander)
    return first.ravel(), second.ravel()


#: of "sbucb", where alpha is unknown and only ratios matter
FREE = Grid(
    *(3.0, 8.0, 2.0, False, 3.0),
    np.array([0.002, 0.006, 0.02, 0.06, 0.2, 0.6]),
    *_models([0.02, 0.1, 0.4, 1.6, 6.4], [0.0, 0.03, 0.1]),
)
#: of "sbts", in units of alpha
DRAWN = Grid(
    *(10.0, 5.0, 0.0, True, 0.1),
    np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0]),
    *_models([0.05, 0.2, 0.8, 1.6, 3.2, 8.0], [0.0, 0.03]),
)
