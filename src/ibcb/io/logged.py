"""Columns of logged propensities: one per candidate, or only that of the chosen one, in whatever way it is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.cells import flattened, is_quantity, one_array, shown_type
from ibcb.io.words import dropped, refusal, sentence, taken_back
from ibcb.log.array_checks import LogFormatError, first_true, plural
from ibcb.log.choice_propensities import of_chosen, sum_tolerance, wrong_propensity
from ibcb.log.notes import Note
from ibcb.numerics.printable import shown


class Logged(NamedTuple):
    """The column of a table that holds logged propensities.

    ``told``: a user said so, or the format does; otherwise it is called like one.
    """

    column: str
    told: bool

    @property
    def notes(self) -> tuple[Note, ...]:
        """Where its name alone says so: that it is no feature."""
        if self.told:
            return ()
        text = sentence("propensities-read", column=self.column)
        return (Note("propensities-read", "info", text, {"column": self.column}),)

    def numbers(self, values: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
        """Values of the column, NaN where there is none."""
        kind = values.type
        if not is_quantity(kind):
            raise refusal("propensity-no-number", column=self.column, kind=shown_type(kind), remedy=self._remedy)
        numbers: NDArray[np.float64] = values.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
        return numbers

    def per_step(self, table: pa.Table, chosen_rows: NDArray[np.int64], rows: int, row: int) -> NDArray[np.float64]:
        """Of every row, from one per step: that of the chosen candidate. ``row`` is the number of the first step."""
        values = self.numbers(table[self.column])
        self.check(values, np.arange(len(values)), row)
        return of_chosen(values, chosen_rows, rows)

    def per_list(
        self, table: pa.Table, counts: NDArray[np.int64], chosen_rows: NDArray[np.int64], row: int
    ) -> NDArray[np.float64]:
        """Of every row, from a list per step. ``row`` is the number of the first step."""
        values = self.numbers(self.flat(table, counts, row))
        wrong = wrong_propensity(values, chosen_rows)
        if wrong is not None:
            step = int(np.searchsorted(np.cumsum(counts), wrong[0], side="right"))
            raise self._error(row + step, wrong[1])
        return values

    def flat(self, table: pa.Table, counts: NDArray[np.int64], row: int) -> pa.Array:
        """The entries of all lists of the column, as many as each step has candidates, or none."""
        lists = one_array(table[self.column])
        values, lengths = flattened(lists)
        missing = lists.is_null().to_numpy(zero_copy_only=False)
        if (at := first_true((lengths != counts) & ~missing)) is not None:
            raise self._error(
                row + at,
                f"the list has {plural(int(lengths[at]), 'number')} but the step has "
                f"{plural(int(counts[at]), 'candidate')}; each needs one",
            )
        places = np.full(int(counts.sum()), -1)
        places[np.repeat(~missing, counts)] = np.arange(len(values))
        return values.take(pa.array(places, mask=places < 0))

    def check(self, values: NDArray[np.float64], chosen_rows: NDArray[np.int64], row: int) -> None:
        """Refuse what cannot be a propensity; ``row`` is the number of the first one."""
        wrong = wrong_propensity(values, chosen_rows)
        if wrong is not None:
            raise self._error(row + wrong[0], wrong[1])

    def _error(self, row: int, reason: str) -> LogFormatError:
        return LogFormatError(f"row {row} (from 0), column {shown(self.column)}: {reason}. {self._remedy}")

    @property
    def _remedy(self) -> str:
        feature = "" if self.told else f", or, if it is a feature, {taken_back(self.column)}"
        return f"Correct it, leave the column out with {dropped(self.column)}{feature}."


def of_every_candidate(
    batches: Iterable[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]],
) -> bool:
    """Whether a column with a row per candidate has the propensity of each, not only that of the chosen one.

    It has not where all rows of a step have the same, as a column of the step has, and these do not sum to 1; nor where
    the chosen one has less than 1 and the others 0. Batches are values, where each step begins, and what was chosen.
    """
    same, zero, off, less = True, True, False, False
    for values, starts, chosen in batches:
        counts = np.diff(starts, append=len(values))
        first = np.repeat(values[starts], counts)
        same = same and np.array_equal(values, first, equal_nan=True)
        zero = zero and not (values[~chosen] > 0).any()
        if not same and not zero:
            return True
        off = off or bool((np.abs(np.add.reduceat(values, starts) - 1) > sum_tolerance(counts)).any())
        less = less or bool((values[chosen] < 1 - sum_tolerance(1)).any())
    return not ((same and off) or (zero and less))
