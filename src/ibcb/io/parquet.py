"""Logs as Parquet, one row per step: the form that everything else is converted to.

Columns: ``episode`` (negative for the warm-up, then 0, 1, ...), ``step`` (counted from 0 within the episode),
``chosen``, ``n_candidates``, ``contexts`` (the candidates' features, one after the other), and where the log has them
``timestamp``, ``step_id``, ``candidate_ids`` and ``propensities`` (lists per step). Of a sparse log ``contexts`` has
only the numbers that are not 0; ``columns`` says which features they are of, and ``sizes`` how many each candidate has.
The number of features, their names, how they were made and the format's version are in the schema metadata under the
key ``ibcb``.
Each episode is a row group of its own, or several if it is large.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ibcb.io.cells import sound, within
from ibcb.io.format import Format, RowGroups, Tables
from ibcb.io.opened import beginning, refuse_disguise
from ibcb.io.parquet_footer import pages, row_groups
from ibcb.io.words import refusal
from ibcb.io.written import extras, long_tables, own_metadata, write_tables
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError
from ibcb.log.disk import gathered
from ibcb.log.memory import amount, beyond
from ibcb.log.read_options import ReadOptions
from ibcb.numerics.contexts import is_sparse
from ibcb.numerics.printable import shown

#: numbers in a row group; an episode with more gets several
_GROUP_NUMBERS = 1 << 24
#: numbers in memory at a time when a log is streamed
_STREAM_NUMBERS = 1 << 22


def write_steps(parts: Iterable[tuple[int, BehaviorLog]], path: str | os.PathLike[str]) -> None:
    """Write the parts of a log, in order, as the canonical Parquet file."""
    _write(_tables_of_steps(parts), path)


def _write(tables: Iterable[pa.Table], path: str | os.PathLike[str]) -> None:
    write_tables(tables, lambda schema: pq.ParquetWriter(path, schema, write_page_checksum=True))


def _row_groups(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[tuple[int, int, BehaviorLog]]:
    """Parts of one episode put together until they fill a row group: episode, its first step here, steps."""
    for number, same in groupby(parts, key=itemgetter(0)):
        first, waiting = 0, list[BehaviorLog]()
        for _, part in same:
            if waiting and sum(log.contexts.size for log in (*waiting, part)) > _GROUP_NUMBERS:
                yield number, first, _one(waiting)
                first, waiting = first + sum(log.n_steps for log in waiting), []
            waiting.append(part)
        yield number, first, _one(waiting)


def _one(parts: list[BehaviorLog]) -> BehaviorLog:
    """Consecutive parts of one episode as one."""
    return parts[0] if len(parts) == 1 else gathered(parts, sum(part.n_rows for part in parts), tuple)


def _tables_of_steps(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[pa.Table]:
    """A table with the schema of the first for every row group."""
    schema = None
    for number, first, log in _row_groups(parts):
        X, steps, offsets = log.contexts, log.n_steps, log.step_offsets
        columns = {"episode": np.full(steps, number), "step": np.arange(first, first + steps), "chosen": log.chosen}
        columns["n_candidates"] = np.diff(offsets)
        if is_sparse(X):
            ends = X.indptr[offsets].astype(np.int64)
            columns |= {"contexts": _lists(ends, X.data), "columns": _lists(ends, X.indices.astype(np.int32))}
            columns["sizes"] = _lists(offsets, np.diff(X.indptr).astype(np.int32))
        else:
            columns["contexts"] = _lists(offsets * log.n_features, X.reshape(-1))
        of_rows = {"candidate_ids": log.candidate_ids, "propensities": log.propensities}
        columns |= extras(log)
        columns |= {name: _lists(offsets, values) for name, values in of_rows.items() if values is not None}
        table = pa.table(columns)
        if schema is None:
            about = {"n_features": log.n_features} | ({"sparse": True} if is_sparse(X) else {})
            schema = table.schema.with_metadata(own_metadata(log, **about))
        yield table.cast(schema)


def _lists(offsets: NDArray[Any], values: NDArray[Any]) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


# -- reading -----------------------------------------------------------------------------------------------------------


def _tables(path: Path, options: ReadOptions) -> Tables:
    refuse_disguise(beginning(path), "a Parquet file")
    meta = pq.read_metadata(path)
    schema, rows = meta.schema.to_arrow_schema(), meta.num_rows
    if not schema.names:
        raise LogFormatError("the file has no columns; a log has one for the step, the choice, and each feature.")
    chunks = _Chunks(path, meta, schema, options.memory)
    # Texts come as they are encoded, until it is known how much they take.
    how = {"page_checksum_verification": True, "read_dictionary": chunks.texts, "pre_buffer": False}
    # Unbuffered reads would hold all of a column chunk, which in a file of one row group is all of the file.
    file = pq.ParquetFile(path, buffer_size=1 << 20, **how)
    numbers = min(_STREAM_NUMBERS, options.memory // 64)

    def some(columns: Sequence[str], groups: Sequence[int] | None = None) -> Iterator[pa.Table]:
        batch = max(1, int(numbers / chunks.numbers_per_row(columns)))
        target = pa.schema([schema.field(name) for name in columns])
        for part in file.iter_batches(batch, row_groups=groups, columns=list(columns)):
            table = sound(pa.Table.from_batches([part])).select(list(columns))
            yield within(table, options.memory).cast(target)

    def read(columns: Sequence[str]) -> Iterator[pa.Table]:
        there = 0
        for table in some(columns):
            there += table.num_rows
            yield table
        if there != rows:
            raise refusal("parquet-rows", rows=rows, there=there)

    def sizes(column: str) -> list[tuple[int, Any]]:
        # From the column itself: the statistics of a damaged file end the process.
        pairs: list[tuple[int, Any]] = []
        for i in range(meta.num_row_groups):
            parts = (pc.unique(part.column(0)) for part in some([column], [i]))
            values = {value for part in parts for value in part.slice(0, 2).to_pylist()}
            pairs.append((meta.row_group(i).num_rows, values.pop() if len(values) == 1 else None))
        return pairs

    return Tables(path.name, schema, read, RowGroups(sizes, some))


class _Chunks:
    """What a file says of the values of each column; of lists there are many in a row."""

    def __init__(self, path: Path, meta: pq.FileMetaData, schema: pa.Schema, memory: int) -> None:
        self._path, self._memory = path, memory
        with path.open("rb") as file:
            self._groups = row_groups(file)
        #: of each column of the file that of the table which it is a part of, and what is known of its values
        self._tops = [field.name for field in schema for _ in range(_leaves(field.type))]
        self._leaves = [meta.schema.column(place) for place in range(len(self._tops))]
        if any(len(group.chunks) != len(self._tops) for group in self._groups):
            raise LogFormatError("a row group lacks columns; the file is damaged. Copy it again, or write it again.")
        #: columns of texts that are encoded by a dictionary
        self.texts = [
            leaf.path
            for place, (leaf, top) in enumerate(zip(self._leaves, self._tops, strict=True))
            if (leaf.physical_type, leaf.path) == ("BYTE_ARRAY", top)
            and any(group.chunks[place].by_dictionary for group in self._groups)
        ]
        self._per_row: dict[tuple[str, ...], float] = {}

    def numbers_per_row(self, columns: Sequence[str]) -> float:
        """How many values a row of some columns has, where it has most, and one at least."""
        if tuple(columns) not in self._per_row:
            with self._path.open("rb") as file:
                most = max((self._in_group(file, columns, i) for i in range(len(self._groups))), default=1.0)
            self._per_row[tuple(columns)] = max(1.0, most)
        return self._per_row[tuple(columns)]

    def _in_group(self, file: BinaryIO, columns: Sequence[str], number: int) -> float:
        """The same of one row group, by the footer or the pages, whichever says more.

        Arrow takes as much memory as the header of a page asks for, before it has seen what is in it.
        """
        group, values, size = self._groups[number], 0, 0
        for leaf, top, chunk in zip(self._leaves, self._tops, group.chunks, strict=True):
            if top not in columns:
                continue
            where, told = f"column {shown(top)}, row group {number}", pages(file, chunk)
            if told is None:
                # As Arrow calls damage.
                raise pa.ArrowInvalid(f"{where}: the header of a page makes no sense")
            if told.largest > self._memory:
                words = f"{where}: a page takes {amount(told.largest)}"
                raise beyond(words, self._memory, "write it in smaller pages, ")
            there = max(chunk.values, told.values)
            values += there
            # Which of its rows has the long list is not known before it is read.
            size += _WIDTHS.get(leaf.physical_type, 8) * there if leaf.max_repetition_level > 0 else 0
        if size > self._memory:
            words = f"row group {number} holds lists that take {amount(size)}"
            raise beyond(words, self._memory, "write it in smaller row groups, ")
        return values / max(group.rows, 1)


#: bytes of a value, at least
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 8, "INT64": 8, "DOUBLE": 8, "BYTE_ARRAY": 4}


def _leaves(kind: pa.DataType) -> int:
    """How many columns of a Parquet file a column of this type is made of."""
    if pa.types.is_dictionary(kind):
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 1


FORMAT = Format(
    name="Parquet file",
    suffixes=(".parquet", ".pq"),
    tables=_tables,
    write=write_steps,
    write_long=lambda parts, path: _write(long_tables(parts), path),
    keeps_sparse=True,
)
