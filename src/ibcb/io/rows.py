"""Arrow tables to be read again and again, wherever they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ibcb.log.arrays import LogFormatError, shown
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note

__all__ = ["RowGroups", "Tables", "distinct_columns", "whole_table"]


class Tables(NamedTuple):
    """Arrow tables to be read again and again: ``read(columns, whole)`` gives all rows in order.

    A bounded number at a time, or, if they are wanted whole, all at once where that is faster. Columns in ``of_step``
    are the same for all candidates of a step: features only where they are named. ``notes()`` has what a reader should
    know of how the rows came about, complete once they have been read to the end.
    """

    name: str
    schema: pa.Schema
    read: Callable[[Sequence[str], bool], Iterable[pa.Table]]
    groups: RowGroups | None = None
    of_step: tuple[str, ...] = ()
    notes: Callable[[], tuple[Note, ...]] = tuple


class RowGroups(NamedTuple):
    """Row groups of a Parquet file, to be read one by one.

    ``sizes(column)`` gives the rows of each and the value that the column has throughout it, None if it varies;
    ``read(columns, numbers)`` the rows of some of them, a bounded number at a time.
    """

    sizes: Callable[[str], list[tuple[int, Any]]]
    read: Callable[[Sequence[str], Sequence[int]], Iterable[pa.Table]]


def distinct_columns(names: Sequence[str]) -> None:
    """Refuse columns of the same name."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise LogFormatError(f"column {shown(twice[0])} appears twice; names must differ.")


def whole_table(tables: Tables, memory: int) -> pa.Table:
    """All rows and columns in memory, of which there are so many bytes."""
    parts, size = [tables.schema.empty_table()], 0
    for table in tables.read(tables.schema.names, True):
        parts.append(table)
        size += table.nbytes
        if size > memory:
            rows = sum(part.num_rows for part in parts)
            raise beyond(f"the first {rows} rows, which are needed all at once, take {amount(size)}", memory)
    return pa.concat_tables(parts)
