"""Tables in memory: of pandas, polars, DuckDB, pyarrow, or whatever else has the Arrow interface."""

from __future__ import annotations

import pyarrow as pa

from ibcb.io.cells import plain_table
from ibcb.io.format import Format
from ibcb.io.rows import in_memory
from ibcb.io.sources import source_name

__all__ = ["FORMAT"]

FORMAT = Format(
    name="table",
    tables=lambda source, _: in_memory(source_name(source), plain_table(pa.table(source))),
    looks_like=lambda source: hasattr(source, "__arrow_c_stream__"),
)
