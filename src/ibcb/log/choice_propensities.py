"""Propensities as they were logged: with which probability the decider drew its candidates, where it wrote that down.

They stand beside a log and are no part of what is fitted. Most logs have them of the chosen candidates alone; what was
not logged is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.log.array_checks import LogFormatError, frozen
from ibcb.numerics.checks import number_array
from ibcb.numerics.printable import WrongTypeError

#: what the sum of probabilities may exceed 1 by for being computed in single precision
_ROUNDING = 1e-6


def row_propensities(
    values: Any, step_offsets: NDArray[np.int64], chosen: NDArray[np.int64], place: Callable[[int], str]
) -> NDArray[np.float64] | None:
    """One per row, read-only, of one per row or one per step; None if there are none.

    ``place`` names a step, for messages.
    """
    if values is None:
        return None
    steps, rows = len(chosen), int(step_offsets[-1])
    chosen_rows = step_offsets[:-1] + chosen
    try:
        rule = "a probability must be a number; give NaN where none is known"
        array = number_array(values, "propensities", rule).astype(np.float64, copy=False)
    except (WrongTypeError, ValueError) as error:
        raise LogFormatError(str(error)) from None
    if array.shape == (steps,):
        array = of_chosen(array, chosen_rows, rows)
    elif array.shape != (rows,):
        raise LogFormatError(
            f"propensities has shape {array.shape}; expected one entry per row, ({rows},), NaN where none is known, or "
            f"one per step, ({steps},): that of the chosen candidate."
        )
    wrong = wrong_propensity(array, chosen_rows)
    if wrong is not None:
        row, reason = wrong
        step = int(np.searchsorted(step_offsets, row, side="right")) - 1
        raise LogFormatError(
            f"{place(step)}, candidate {row - int(step_offsets[step])}: {reason}. Correct it, give NaN where it is not "
            "known, or leave the propensities out."
        )
    result: NDArray[np.float64] = frozen(array)
    return result


def of_chosen(values: NDArray[np.float64], chosen_rows: NDArray[np.int64], rows: int) -> NDArray[np.float64]:
    """The propensity of every row, where only those of the chosen ones are known. Shape (rows,)."""
    of_rows = np.full(rows, np.nan)
    of_rows[chosen_rows] = values
    return of_rows


def wrong_propensity(values: NDArray[np.float64], chosen_rows: NDArray[np.int64]) -> tuple[int, str] | None:
    """The first row whose propensity cannot be one, and why."""
    outside = (values < 0) | (values > 1 + _ROUNDING)
    never = np.zeros(len(values), dtype=bool)
    never[chosen_rows] = values[chosen_rows] == 0
    bad = outside | never
    if not bad.any():
        return None
    row = int(np.argmax(bad))
    why = "a probability must be between 0 and 1" if outside[row] else "the candidate was chosen, so it is above 0"
    return row, f"the propensity is {values[row]:g}; {why}"


def sum_tolerance(counts: Any) -> Any:
    """How far the propensities of so many candidates may be from summing to 1: they are often rounded to 4 digits."""
    return 1e-3 + 1e-4 * counts
