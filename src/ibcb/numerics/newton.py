"""Newton's method with a line search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ibcb.numerics.choice_likelihood import ChoiceLoss

__all__ = ["SolverError", "minimise"]

Vector = NDArray[np.float64]


class SolverError(RuntimeError):
    """A problem that was not solved; the message tells status, residual and what was tried."""


def minimise(loss: ChoiceLoss, penalty: float, *, tolerance: float, max_passes: int) -> tuple[Vector, int]:
    """The minimiser of F = loss + penalty / 2 |w|^2 and the passes it took, by Newton's method with a line search.

    F is strictly convex. It is solved when Newton's estimate of F - min F, half the squared decrement g' H^-1 g, is at
    most ``tolerance`` times F.
    """
    w = np.zeros(loss.n_features)
    here, passes = loss.expand(w), 1
    while True:
        value = here.loss + penalty / 2 * float(w @ w)
        gradient = here.gradient + penalty * w
        hessian = here.hessian.copy()
        hessian.flat[:: len(w) + 1] += penalty
        _, direction, failed = lapack.dposv(hessian, -gradient, lower=1)
        slope = float(gradient @ direction)
        if failed or not np.isfinite(hessian).all() or not np.isfinite(slope):
            raise SolverError(
                f"conditional logit: the Hessian is singular in floating point (ridge {penalty:.3g}). "
                "Rescale the contexts to about 1, or raise the ridge."
            )
        if -slope / 2 <= tolerance * value:
            return w, passes
        length = 1.0
        while True:
            if passes == max_passes:
                raise SolverError(
                    f"conditional logit: F = {value:.6g} is still about {-slope / 2:.3g} above its minimum after "
                    f"{passes} passes of Newton's method (ridge {penalty:.3g}). Rescale the contexts to about 1, or "
                    "raise the ridge."
                )
            trial = w + length * direction
            there = loss.expand(trial)
            passes += 1
            reached = there.loss + penalty / 2 * float(trial @ trial)
            # The last term forgives the rounding of F itself.
            if reached <= value + 1e-4 * length * slope + tolerance / 10 * value:
                break
            length /= 2
        w, here = trial, there
