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

import json
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

from ibcb.io.cells import check_size, sound
from ibcb.io.files import beginning, refuse_disguise
from ibcb.io.format import Format
from ibcb.io.longform import extras, long_tables, write_tables
from ibcb.io.parquet_footer import pages, row_groups
from ibcb.io.rows import RowGroups, Tables
from ibcb.io.written import KEY, VERSION
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
    writer: pq.ParquetWriter | None = None
    try:
        for number, first, episode in _row_groups(parts):
            if writer is None:
                writer = pq.ParquetWriter(path, _schema(episode), write_page_checksum=True)
            writer.write_table(_table(number, first, episode, writer.schema), row_group_size=episode.n_steps)
    finally:
        if writer is not None:
            writer.close()


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


def _schema(log: BehaviorLog) -> pa.Schema:
    meta = {
        "version": VERSION,
        "n_features": log.n_features,
        "feature_names": log.feature_names,
        "preparation": None if log.preparation is None else log.preparation.to_json(),
    }
    if is_sparse(log.contexts):
        meta["sparse"] = True
    fields = [pa.field(name, pa.int64()) for name in ("episode", "step", "chosen", "n_candidates")]
    fields.append(pa.field("contexts", pa.large_list(pa.from_numpy_dtype(log.contexts.dtype))))
    if is_sparse(log.contexts):
        fields += [pa.field(name, pa.large_list(pa.int32())) for name in ("columns", "sizes")]
    fields += [pa.field(name, values.type) for name, values in _more(log).items()]
    return pa.schema(fields, metadata={KEY: json.dumps(meta).encode()})


def _table(number: int, first: int, episode: BehaviorLog, schema: pa.Schema) -> pa.Table:
    steps, X = episode.n_steps, episode.contexts
    if is_sparse(X):
        ends = X.indptr[episode.step_offsets].astype(np.int64)
        sizes = np.diff(X.indptr).astype(np.int32)
        lists = [_lists(ends, X.data), _lists(ends, X.indices), _lists(episode.step_offsets, sizes)]
    else:
        lists = [_lists(episode.step_offsets * episode.n_features, X.reshape(-1))]
    columns = [pa.array(np.full(steps, number)), pa.array(np.arange(first, first + steps)), pa.array(episode.chosen)]
    columns += [pa.array(np.diff(episode.step_offsets)), *lists, *_more(episode).values()]
    return pa.Table.from_arrays([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _lists(offsets: NDArray[Any], values: NDArray[Any]) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def _more(log: BehaviorLog) -> dict[str, pa.Array]:
    """What else the log has of its steps, by the names of their columns."""
    of_rows = {"candidate_ids": log.candidate_ids, "propensities": log.propensities}
    return extras(log) | {n: _lists(log.step_offsets, values) for n, values in of_rows.items() if values is not None}


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
        for part in file.iter_batches(batch, row_groups=groups, columns=list(columns)):
            yield plain(pa.Table.from_batches([part]))

    def all_at_once(columns: Sequence[str]) -> pa.Table:
        # Arrow takes memory for as many rows as the file says that it has, before it has seen one.
        size = chunks.size(columns)
        if size > options.memory:
            words = f"the file says that it has {rows} rows, which take {amount(size)} or more"
            raise beyond(words, options.memory, "read it part by part (validate, convert, fit --stream), ")
        return plain(pq.read_table(path, columns=list(columns), partitioning=None, **how))

    def plain(table: pa.Table) -> pa.Table:
        check_size(sound(table), options.memory)
        return table.cast(pa.schema([schema.field(name) for name in table.column_names]))

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        there = 0
        for table in [all_at_once(columns)] if whole else some(columns):
            there += table.num_rows
            yield table
        if there != rows:
            raise LogFormatError(
                f"the file says that it has {rows} rows, but {there} are there; it is damaged. Copy or write it again."
            )

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
        tops = [field.name for field in schema for _ in range(_leaves(field.type))]
        leaves = [meta.schema.column(place) for place in range(len(tops))]
        self._columns: dict[str, list[int]] = {}
        for place, top in enumerate(tops):
            self._columns.setdefault(top, []).append(place)
        self._widths = [_WIDTHS.get(leaf.physical_type, 8) for leaf in leaves]
        self._are_lists = [leaf.max_repetition_level > 0 for leaf in leaves]
        if any(len(group.chunks) != len(tops) for group in self._groups):
            raise LogFormatError("a row group lacks columns; the file is damaged. Copy it again, or write it again.")
        #: columns of texts that are encoded by a dictionary
        self.texts = [
            leaf.path
            for place, (leaf, top) in enumerate(zip(leaves, tops, strict=True))
            if (leaf.physical_type, leaf.path) == ("BYTE_ARRAY", top)
            and any(group.chunks[place].by_dictionary for group in self._groups)
        ]
        self._known: dict[int, list[int]] = {}

    def _values(self, columns: Sequence[str]) -> dict[int, list[int]]:
        """How many values each part of some columns has in each row group."""
        places = {place: name for name in columns for place in self._columns.get(name, ())}
        with self._path.open("rb") as file:
            for place, name in places.items():
                if place not in self._known:
                    self._known[place] = [self._told(file, name, place, i) for i in range(len(self._groups))]
        return {place: self._known[place] for place in places}

    def _told(self, file: BinaryIO, name: str, place: int, number: int) -> int:
        """How many values a column has in a row group, by the footer or its pages, whichever says more.

        Arrow takes as much memory as the header of a page asks for, before it has seen what is in it.
        """
        chunk, where = self._groups[number].chunks[place], f"column {shown(name)}, row group {number}"
        told = pages(file, chunk)
        if told is None:
            # As Arrow calls damage.
            raise pa.ArrowInvalid(f"{where}: the header of a page makes no sense")
        if told.largest > self._memory:
            words = f"{where}: a page takes {amount(told.largest)}"
            raise beyond(words, self._memory, "write it in smaller pages, ")
        return max(chunk.values, told.values)

    def size(self, columns: Sequence[str]) -> int:
        """Bytes of all values of some columns; of texts only where they begin."""
        return sum(self._widths[place] * sum(values) for place, values in self._values(columns).items())

    def numbers_per_row(self, columns: Sequence[str]) -> float:
        """How many values a row of some columns has, where it has most, and one at least."""
        most, each = 1.0, self._values(columns)
        for number, group in enumerate(self._groups):
            # Which of its rows has the long list is not known before it is read.
            size = sum(self._widths[place] * values[number] for place, values in each.items() if self._are_lists[place])
            if size > self._memory:
                words = f"row group {number} holds lists that take {amount(size)}"
                raise beyond(words, self._memory, "write it in smaller row groups, ")
            most = max(most, sum(values[number] for values in each.values()) / max(group.rows, 1))
        return most


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
    write_long=lambda parts, path: write_tables(
        long_tables(parts), lambda schema: pq.ParquetWriter(path, schema, write_page_checksum=True)
    ),
    keeps_sparse=True,
)
