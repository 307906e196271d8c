"""The one unit in which weights of any decider can be compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["direction"]


def direction(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights scaled to length 1, zeros as they are: choices tell little of the length, and nothing of it for "sbts"."""
    length = float(np.linalg.norm(weights))
    return weights / length if length else weights
