"""The one unit in which weights of any decider can be compared."""

from __future__ import annotations

import numpy as np

from ibcb.numerics.arrays import Matrix

__all__ = ["direction"]


def direction(weights: Matrix) -> Matrix:
    """Weights, shape (..., d), at length 1, zeros as they are: choices tell little of the length, of "sbts" nothing."""
    length = np.linalg.norm(weights, axis=-1, keepdims=True)
    return weights / np.where(length > 0, length, 1.0)
