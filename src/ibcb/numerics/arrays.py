"""Arrays as kernels want them, whoever made them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["plain"]


def plain(array: NDArray[Any]) -> NDArray[Any]:
    """The array in the machine's byte order, aligned, with its last axis contiguous; itself if it is so already.

    NumPy takes other paths through other layouts, and sums then differ in their last bits. Arrays from Dask, from
    mapped files and from Arrow begin at any byte.
    """
    return np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "A"])
