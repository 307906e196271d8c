"""Tables of answers on their way into a file: CSV or Parquet, one table after the other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ibcb.io.files import atomic


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
