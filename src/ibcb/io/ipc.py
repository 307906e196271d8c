"""Arrow IPC files and streams (Feather is one of them), mapped into memory.

Arrow has no checksums. In files that we write every record batch carries digests of its columns, which are compared
when it is read; they find damage, and are no signature.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from ibcb.io.cells import plain_table, sound
from ibcb.io.format import Format, Tables
from ibcb.io.opened import beginning, refuse_disguise
from ibcb.io.words import refusal
from ibcb.io.written import long_tables, write_tables
from ibcb.log.read_options import ReadOptions

#: the key of a record batch under which the digests of its columns stand
_DIGESTS = b"ibcb digests of buffers"


def _tables(path: Path, options: ReadOptions) -> Tables:
    refuse_disguise(beginning(path), "an Arrow file")

    def opened() -> Any:
        try:
            return pa.ipc.open_file(pa.memory_map(str(path)))
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(path)))

    def read(columns: Sequence[str]) -> Iterator[pa.Table]:
        reader = opened()
        stream = (
            (reader.get_batch_with_custom_metadata(i) for i in range(reader.num_record_batches))
            if hasattr(reader, "get_batch")
            else reader.iter_batches_with_custom_metadata()
        )
        for number, (batch, more) in enumerate(stream):
            batch = batch.select(list(columns))
            table = sound(pa.Table.from_batches([batch]))
            # Whoever writes the file again in another way leaves them out.
            if _DIGESTS in (more or {}):
                _check(batch, reader.schema, number, more[_DIGESTS])
            yield plain_table(table)

    return Tables(path.name, plain_table(opened().schema.empty_table()).schema, read)


class _Writer:
    """Writes tables with the digests of their columns, for which Arrow itself has no place."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file, self._count = pa.ipc.new_file(path, schema), 0
        self.close = self._file.close

    def write_table(self, table: pa.Table) -> None:
        """As one record batch."""
        for batch in table.combine_chunks().to_batches():
            # As it will be read: with nothing but its own rows in its buffers.
            own = pa.ipc.read_record_batch(batch.serialize(), table.schema)
            self._file.write_batch(own, {_DIGESTS: json.dumps(_digests(own, table.schema, self._count)).encode()})
            self._count += 1


def _digests(batch: pa.RecordBatch, schema: pa.Schema, number: int) -> dict[str, str]:
    """Of each column, with all that the file says of itself and the place of the rows in it."""
    about = repr([[str(field) for field in schema], sorted((schema.metadata or {}).items()), number])
    digests: dict[str, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        buffers = [buffer or b"" for buffer in column.buffers()]
        sizes = (len(column), column.null_count, *map(len, buffers))
        digest = blake2b(f"{about} {sizes}".encode(), digest_size=16)
        for buffer in buffers:
            digest.update(buffer)
        digests[name] = digest.hexdigest()
    return digests


def _check(batch: pa.RecordBatch, schema: pa.Schema, number: int, digests: bytes) -> None:
    """Refuse rows that are not those that were written."""
    try:
        stored = dict(json.loads(digests))
    except (TypeError, ValueError, RecursionError):
        stored = {}
    for name, digest in _digests(batch, schema, number).items():
        if stored.get(name) != digest:
            raise refusal("arrow-digest", name=name, batch=number)


FORMAT = Format(
    name="Arrow file",
    suffixes=(".arrow", ".ipc", ".feather"),
    tables=_tables,
    write=lambda parts, path: write_tables(long_tables(parts), lambda schema: _Writer(path, schema)),
)
