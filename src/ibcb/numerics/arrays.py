"""Arrays as kernels want them, what records say of the arrays that they hold, and what they work out when asked."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

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


class lazy(cached_property[T]):  # noqa: N801 - a decorator
    """`functools.cached_property` as Python has it from 3.12 on, everywhere: without a lock.

    Before, a process forked while another thread worked a value out waited for that thread for ever. Two threads may
    work out the same value at once, which then must be the same to the bit.
    """

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            known = instance.__dict__
            if self.attrname not in known:
                known[self.attrname] = self.func(instance)
            return known[self.attrname]


def changed(record: T, **parts: Any) -> T:
    """A frozen dataclass without lazy values, with some of its parts; as `dataclasses.replace`, but nothing is checked,
    in a tenth of the time.
    """
    other = object.__new__(type(record))
    vars(other).update(vars(record), **parts)
    return other
