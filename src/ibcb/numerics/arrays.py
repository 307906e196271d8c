"""Arrays as kernels want them, whoever made them, and what records say of the arrays that they hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: in double precision; docstrings have the shapes, in which a matrix may stand for several of them
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def plain(array: NDArray[Any]) -> NDArray[Any]:
    """The array in the machine's byte order, aligned, with its last axis contiguous; itself if it is so already.

    NumPy takes other paths through other layouts, and sums then differ in their last bits. Arrays from Dask, from
    mapped files and from Arrow begin at any byte.
    """
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    return np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "A"])


class Stored(NamedTuple):
    """Of an array that is a field of a stored record, as in ``Annotated[Matrix, Stored("K d")]``: shape and type.

    Said here and not read from the type beside it, whose form is NumPy's own and differs between its versions.

    Attributes
    ----------
    shape : a letter for each axis; the same letter means the same size within a record, d the number of features
    dtype : np.floating stands for single precision where it holds the numbers exactly, and else for double
    """

    shape: str
    dtype: type[np.integer[Any]] | type[np.floating[Any]] = np.float64
