"""Arrow IPC files and streams (Feather is one of them), mapped into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ibcb.io.cells import plain_text, sound
from ibcb.io.files import beginning, refuse_disguise
from ibcb.io.format import table_format
from ibcb.io.longform import long_tables, write_tables
from ibcb.io.tables import Tables
from ibcb.log import BehaviorLog
from ibcb.log.steps import ReadOptions

__all__ = ["FORMAT"]


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
            (reader.get_batch(i) for i in range(reader.num_record_batches))
            if hasattr(reader, "get_batch")
            else iter(reader)
        )
        for batch in stream:
            yield plain_text(sound(pa.Table.from_batches([batch]).select(list(columns))))

    return Tables(path.name, plain_text(opened().schema.empty_table()).schema, read)


def _write(parts: Iterable[tuple[int, BehaviorLog]], path: Path) -> None:
    write_tables(long_tables(parts), lambda schema: pa.ipc.new_file(path, schema))


FORMAT = table_format(
    name="Arrow file",
    suffixes=(".arrow", ".ipc", ".feather"),
    tables=_tables,
    write=_write,
)
