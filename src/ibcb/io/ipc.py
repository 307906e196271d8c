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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ibcb.io.cells import one_array, plain_table, sound
from ibcb.io.files import beginning, refuse_disguise
from ibcb.io.format import Format
from ibcb.io.longform import long_tables, write_tables
from ibcb.io.rows import Tables
from ibcb.log.array_checks import LogFormatError
from ibcb.log.read_options import ReadOptions
from ibcb.numerics.printable import shown

#: the key of a record batch under which the digests of its columns stand
_DIGESTS = b"ibcb digests"
_PIECE = 1 << 16


def _tables(path: Path, options: ReadOptions) -> Tables:
    refuse_disguise(beginning(path), "an Arrow file")

    def opened() -> Any:
        try:
            return pa.ipc.open_file(pa.memory_map(str(path)))
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(path)))

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        reader = opened()
        stream = (
            (reader.get_batch_with_custom_metadata(i) for i in range(reader.num_record_batches))
            if hasattr(reader, "get_batch")
            else reader.iter_batches_with_custom_metadata()
        )
        for number, (batch, more) in enumerate(stream):
            table = sound(pa.Table.from_batches([batch]).select(list(columns)))
            # Whoever writes the file again in another way leaves them out.
            if _DIGESTS in (more or {}):
                _check(table, reader.schema, number, more[_DIGESTS])
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
            digests = _digests(pa.Table.from_batches([batch]), table.schema, self._count)
            self._file.write_batch(batch, {_DIGESTS: json.dumps(digests).encode()})
            self._count += 1


def _digests(table: pa.Table, schema: pa.Schema, number: int) -> dict[str, str]:
    """Of each column, with all that the file says of itself and the place of the rows in it."""
    about = [str(schema.field(place)) for place in range(len(schema))]
    texts = [*about, *(f"{key!r}{value!r}" for key, value in sorted((schema.metadata or {}).items())), str(number)]
    return {name: _digest(table[name], texts) for name in table.column_names}


def _digest(column: pa.ChunkedArray, texts: list[str]) -> str:
    """blake2b over the values as they are, whatever buffers hold them."""
    array = one_array(column)
    digest = blake2b(json.dumps([*texts, len(array)]).encode(), digest_size=16)
    digest.update(np.packbits(array.is_null().to_numpy(zero_copy_only=False)).data)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        filled = pc.fill_null(array, "")
        digest.update(pc.binary_length(filled).cast(pa.int64()).to_numpy())
        # In pieces, so that there are no two copies of long texts.
        for start in range(0, len(filled), _PIECE):
            digest.update("".join(filled.slice(start, _PIECE).to_pylist()).encode())
    else:
        values = array.drop_null().to_numpy(zero_copy_only=False)
        digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    return digest.hexdigest()


def _check(table: pa.Table, schema: pa.Schema, number: int, digests: bytes) -> None:
    """Refuse rows that are not those that were written."""
    try:
        stored = dict(json.loads(digests))
    except (TypeError, ValueError, RecursionError):
        stored = {}
    for name, digest in _digests(table, schema, number).items():
        if stored.get(name) != digest:
            raise LogFormatError(
                f"damaged: the digest of column {shown(name)} in record batch {number} is not that of its values. Copy "
                "it again, or write it again."
            )


FORMAT = Format(
    name="Arrow file",
    suffixes=(".arrow", ".ipc", ".feather"),
    tables=_tables,
    write=lambda parts, path: write_tables(long_tables(parts), lambda schema: _Writer(path, schema)),
)
