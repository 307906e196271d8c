"""Tables in memory: of pandas, polars, DuckDB, pyarrow, or whatever else has the Arrow interface."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ibcb.io.cells import plain_text
from ibcb.io.format import Format
from ibcb.io.sources import source_name
from ibcb.io.tables import Tables, table_source
from ibcb.log.steps import ReadOptions, Source

__all__ = ["FORMAT", "arrow_table"]


def arrow_table(source: Any) -> pa.Table:
    """A table in memory as Arrow has it, without the index of pandas."""
    table = pa.table(source)
    # By position: names that appear twice are refused later, in words.
    kept = [place for place, name in enumerate(table.column_names) if not name.startswith("__index_level_")]
    return plain_text(table.select(kept))


def _open(source: Any, options: ReadOptions) -> Source:
    table = arrow_table(source)
    rows = Tables(source_name(source), table.schema, lambda columns, whole: iter([table.select(list(columns))]))
    return table_source(rows, options)


FORMAT = Format(name="table", open=_open, looks_like=lambda source: hasattr(source, "__arrow_c_stream__"))
