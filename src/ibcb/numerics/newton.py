"""Newton's method with a line search, for every smooth problem whose loss stays the same from step to step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from scipy.linalg import lapack

from ibcb.numerics.arrays import Matrix, Vector

#: share of the decrease that the slope promises which a step must bring; not tuned: the usual constant of Armijo's rule
_SUFFICIENT_DECREASE = 1e-4


class SolverError(RuntimeError):
    """A problem that was not solved; the message tells status, residual and what was tried."""


class Point(Protocol):
    """F at x, its gradient, and what may stand for its Hessian: the first that is positive definite does."""

    @property
    def x(self) -> Vector: ...

    @property
    def value(self) -> float: ...

    @property
    def gradient(self) -> Vector: ...

    @property
    def hessians(self) -> Sequence[Matrix]: ...


P = TypeVar("P", bound=Point)


@dataclass(frozen=True)
class Stopping:
    """When to stop; shares are of ``floor`` + abs(F).

    Attributes
    ----------
    gain : float
        Solved once a Newton step promises to lower F by less than this share: half the squared decrement g' H^-1 g,
        which estimates F - min F.
    slack : float
        A rise by this share counts as rounding of F in the line search.
    max_passes : int
        Evaluations of F, that at the start included.
    floor : float
        For an F whose minimum may be 0.
    shortest : float
        If above 0: a line search that gets there, or a step that leaves F as it is, is at the minimum in floating
        point.
    """

    gain: float
    slack: float
    max_passes: int
    floor: float = 0.0
    shortest: float = 0.0


@dataclass(frozen=True)
class Descent(Generic[P]):
    """Where Newton's method ended.

    Attributes
    ----------
    point : Point
        The lowest.
    hessian : ndarray of shape (d, d)
        That of the point's which was used.
    gain : float
        Newton's estimate of F - min F there.
    passes : int
        Evaluations of F.
    status : str
        "solved", "out of passes" or "singular".
    """

    point: P
    hessian: Matrix
    gain: float
    passes: int
    status: str

    @property
    def solved(self) -> bool:
        return self.status == "solved"

    def error(self, what: str, remedy: str) -> SolverError:
        """To be raised where it is not solved."""
        where = f"where F = {self.point.value:.6g}, after {self.passes} passes of Newton's method. {remedy}"
        singular = "the Hessian is singular in floating point, or not finite"
        how = singular if self.status == "singular" else f"about {self.gain:.3g} above the minimum"
        return SolverError(f"{what}: {how}, {where}")


@np.errstate(over="ignore", invalid="ignore")  # points that are not finite are told by their status
def descend(
    at: Callable[[Vector], P], start: Vector, stopping: Stopping, solved: Callable[[P], bool] | None = None
) -> Descent[P]:
    """Minimise F by damped Newton steps, each of which lowers it.

    Parameters
    ----------
    at : callable
        F with its derivatives at a point.
    start : ndarray of shape (d,)
    stopping : Stopping
    solved : callable, optional
        One more test for a point that is good enough.
    """
    here, passes = at(start), 1
    while True:
        hessian, step = _newton_step(here)
        if step is None or not math.isfinite(here.value):
            return Descent(here, hessian, math.nan, passes, "singular")
        slope = float(here.gradient @ step)
        gain, size = -slope / 2, stopping.floor + abs(here.value)
        if gain <= stopping.gain * size or (solved is not None and solved(here)):
            return Descent(here, hessian, gain, passes, "solved")
        length = 1.0
        while True:
            if passes >= stopping.max_passes:
                return Descent(here, hessian, gain, passes, "out of passes")
            there = at(here.x + length * step)
            passes += 1
            if there.value <= here.value + _SUFFICIENT_DECREASE * length * slope + stopping.slack * size:
                break
            length /= 2
            if length < stopping.shortest:
                return Descent(here, hessian, gain, passes, "solved")
        if stopping.shortest and there.value >= here.value:
            flatter = min(here, there, key=lambda point: float(point.gradient @ point.gradient))
            return Descent(flatter, hessian, gain, passes, "solved")
        here = there


def _newton_step(here: Point) -> tuple[Matrix, Vector | None]:
    """The Hessian used and the step to the minimum of the quadratic model; no step if none is positive definite."""
    for hessian in here.hessians:
        _, step, failed = lapack.dposv(hessian, -here.gradient, lower=1)
        # A diagonal that overflowed would give a step of 0.
        if not failed and math.isfinite(hessian.trace()) and math.isfinite(np.add.reduce(step)):
            return hessian, step
    return here.hessians[0], None
