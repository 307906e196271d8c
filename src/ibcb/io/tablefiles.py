"""Tables on their way into a file, one after the other: a log with one row per candidate, or answers."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ibcb.io.files import atomic
from ibcb.io.written import KEY, VERSION
from ibcb.log import BehaviorLog


def own_metadata(log: BehaviorLog, **more: Any) -> dict[bytes, bytes]:
    """What we write about a log ourselves into the metadata of a schema; see `ibcb.io.written`."""
    made = None if log.preparation is None else log.preparation.to_json()
    about = {"version": VERSION, "feature_names": log.feature_names, "preparation": made}
    return {KEY: json.dumps(about | more).encode()}


def extras(log: BehaviorLog) -> dict[str, pa.Array]:
    """The columns that not every log has."""
    both = {"timestamp": log.timestamps, "step_id": log.step_ids}
    return {name: pa.array(values) for name, values in both.items() if values is not None}


def _schema(log: BehaviorLog) -> pa.Schema:
    """The schema of `long_tables`; features without a name are called x0, x1, ..."""
    names = log.feature_names or tuple(f"x{place}" for place in range(log.n_features))
    more = {name: values.type for name, values in extras(log).items()}
    more |= {} if log.propensities is None else {"propensity": pa.float64()}
    roles = {name: name for name in ("episode", "step", "chosen", *more)}
    # A feature may be called as a column of ours is, or as one by which the other form is recognised.
    features = [f"feature {name}" if name in {*roles, "contexts", "n_candidates"} else name for name in names]
    kind = pa.from_numpy_dtype(log.contexts.dtype)
    kinds = {"episode": pa.int64(), "step": pa.int64(), "chosen": pa.bool_()} | more
    fields = [*kinds.items(), *((name, kind) for name in features)]
    return pa.schema(fields, metadata=own_metadata(log, features=features, roles=roles))


def long_tables(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[pa.Table]:
    """The parts of a log, whose contexts are dense, with one row per candidate."""
    before, first = None, 0
    for number, part in parts:
        first = first if number == before else 0
        flags = np.zeros(part.n_rows, dtype=bool)
        flags[part.chosen_rows] = True
        owner = np.repeat(np.arange(part.n_steps), np.diff(part.step_offsets))
        columns = [pa.array(np.full(part.n_rows, number)), pa.array(first + owner), pa.array(flags)]
        columns += [values.take(pa.array(owner)) for values in extras(part).values()]
        if part.propensities is not None:
            columns.append(pa.array(part.propensities, mask=np.isnan(part.propensities)))
        columns += [pa.array(np.ascontiguousarray(column)) for column in part.contexts.T]
        yield pa.Table.from_arrays(columns, schema=_schema(part))
        before, first = number, first + part.n_steps


def write_tables(tables: Iterable[pa.Table], opened: Callable[[pa.Schema], Any]) -> None:
    """Write tables of one schema, one after the other, with the writer that is opened for it."""
    writer: Any = None
    try:
        for table in tables:
            writer = writer or opened(table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


class TableWriter:
    """Writes tables of one schema to an open file, as CSV or as Parquet; `begin` again writes it anew."""

    def __init__(self, file: IO[bytes], *, parquet: bool = False) -> None:
        self._file, self._parquet = file, parquet
        self._writer: Any = None

    def begin(self) -> Callable[[pa.Table], None]:
        """What writes a table."""
        if self._writer is not None:
            self.close()
            self._writer = None
            self._file.seek(0)
            self._file.truncate()
        return self.write

    def write(self, table: pa.Table) -> None:
        """One more; the names of the columns stand before the first."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema) if self._parquet else pacsv
            if not self._parquet:
                self._file.write((",".join(table.column_names) + "\n").encode())
        if self._parquet:
            self._writer.write_table(table)
        else:
            pacsv.write_csv(table, self._file, pacsv.WriteOptions(include_header=False, quoting_style="needed"))

    def close(self) -> None:
        """With the end that the format has; the file stays open."""
        if self._parquet and self._writer is not None:
            self._writer.close()


@contextlib.contextmanager
def table_file(path: str | os.PathLike[str]) -> Iterator[TableWriter]:
    """A .csv or .parquet file to write, which appears whole or not at all."""
    parquet = Path(path).suffix.lower() == ".parquet"
    with (
        atomic(path) as temporary,
        temporary.open("wb") as file,
        contextlib.closing(TableWriter(file, parquet=parquet)) as writer,
    ):
        yield writer
