"""Rows in Arrow tables, to be read again and again: what formats yield, and what layouts make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ibcb.log.array_checks import LogFormatError
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.numerics.printable import shown


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

    def numbered(self, columns: Sequence[str], whole: bool = False) -> Iterator[tuple[pa.Table, int]]:
        """Some columns, part by part, each with the number of its first row."""
        row = 0
        for table in self.read(columns, whole):
            yield table, row
            row += table.num_rows

    def derived(
        self,
        schema: pa.Schema,
        sources: Callable[[Sequence[str]], Sequence[str]],
        make: Callable[[pa.Table, Sequence[str], int], Any],
    ) -> Tables:
        """Tables of another schema: ``make(rows, names, row)`` makes columns of those that ``sources(names)`` names.

        ``row`` is the number of the first of these rows.
        """

        def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
            target = pa.schema([schema.field(name) for name in columns])
            for table, row in self.numbered(list(dict.fromkeys(sources(columns))), whole):
                made = make(table, columns, row)
                yield pa.table([made[name] for name in columns], schema=target)

        return self._replace(schema=schema, read=read, groups=None)


class RowGroups(NamedTuple):
    """Row groups of a Parquet file, to be read one by one.

    ``sizes(column)`` gives the rows of each and the value that the column has throughout it, None if it varies;
    ``read(columns, numbers)`` the rows of some of them, a bounded number at a time.
    """

    sizes: Callable[[str], list[tuple[int, Any]]]
    read: Callable[[Sequence[str], Sequence[int]], Iterable[pa.Table]]


def in_memory(name: str, table: pa.Table) -> Tables:
    """A table in memory as tables."""
    return Tables(name, table.schema, lambda columns, whole: iter([table.select(list(columns))]))


def sound_columns(tables: Tables) -> Tables:
    """The tables without the index that pandas kept in them; columns of the same name are refused."""
    fields = [field for field in tables.schema if not field.name.startswith("__index_level_")]
    twice = sorted(name for name, count in Counter(field.name for field in fields).items() if count > 1)
    if twice:
        raise LogFormatError(f"column {shown(twice[0])} appears twice; names must differ.")
    return tables._replace(schema=pa.schema(fields, metadata=tables.schema.metadata))


def whole_table(tables: Tables, memory: int) -> pa.Table:
    """All rows and columns in memory, of which there are so many bytes."""
    parts, size = [tables.schema.empty_table()], 0
    for table, row in tables.numbered(tables.schema.names, True):
        parts.append(table)
        size += table.nbytes
        if size > memory:
            rows = row + table.num_rows
            raise beyond(f"the first {rows} rows, which are needed all at once, take {amount(size)}", memory)
    return pa.concat_tables(parts)
