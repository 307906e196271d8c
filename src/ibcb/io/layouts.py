"""Tables as people have them, made into the one that is read: a row per candidate, in order, with times that are times.

A row per step becomes a row per candidate (`ibcb.io.wide`, `ibcb.io.lists`), features of items come from a table of
their own (`ibcb.io.items`); repeated rows go, and times in other forms are understood.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ibcb.io.cells import as_texts, parsed_times
from ibcb.io.columns import ROW_NUMBERS, assign_roles, normal_name
from ibcb.io.items import with_items
from ibcb.io.lists import candidate_lists, listed_rows
from ibcb.io.rows import Tables, whole_table
from ibcb.io.wide import wide_rows
from ibcb.log.arrays import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.steps import ReadOptions

__all__ = ["arranged"]


def arranged(tables: Tables, options: ReadOptions) -> tuple[Tables, ReadOptions]:
    """The same log as an ordinary table, and the options that are left for it."""
    if options.deduplicate:
        tables = _distinct(tables, options)
    if options.alternatives:
        tables, options = wide_rows(tables, options)
    elif (column := candidate_lists(tables.schema, options)) is not None:
        tables, options = listed_rows(tables, column, options)
    if options.items is not None:
        tables, options = with_items(tables, options)
    return (tables if options.date_format is None else _dated(tables, options, options.date_format)), options


def _distinct(tables: Tables, options: ReadOptions) -> Tables:
    """Without rows that repeat an earlier one, but for row numbers and columns that are dropped; in memory."""
    whole = whole_table(tables, options.memory)
    compared = [
        name for name in whole.column_names if name not in options.drop and normal_name(name) not in ROW_NUMBERS
    ]
    keys, row = [f"{place}" for place in range(len(compared))], "row"
    cells = [whole[name] if _has_hash(whole[name].type) else as_texts(whole[name]) for name in compared]
    numbered = pa.table([*cells, pa.array(np.arange(whole.num_rows))], names=[*keys, row])
    kept = np.sort(numbered.group_by(keys).aggregate([(row, "min")])[f"{row}_min"].to_numpy())
    repeated = whole.num_rows - len(kept)
    if repeated:
        whole = whole.take(pa.array(kept))
    text = f"{plural(repeated, 'row')} left out that {'repeats' if repeated == 1 else 'repeat'} an earlier one."
    notes = (Note("repeated-rows", "info", text, {"rows": repeated}),) if repeated else ()
    return Tables(
        tables.name, tables.schema, lambda columns, _: iter([whole.select(list(columns))]), notes=lambda: notes
    )


def _has_hash(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)


def _dated(tables: Tables, options: ReadOptions, form: str) -> Tables:
    """With the texts of the timestamp as times."""
    roles, _ = assign_roles(tables.schema.names, options)
    if "timestamp" not in roles:
        raise LogFormatError(
            "cannot apply date_format (--date-format): no column holds times; name it: "
            "columns={'timestamp': ...} (--column timestamp=NAME)."
        )
    name = roles["timestamp"]
    place = tables.schema.get_field_index(name)
    kind = tables.schema.field(place).type
    if pa.types.is_temporal(kind):
        return tables
    schema = tables.schema.set(place, pa.field(name, pa.timestamp("us")))

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        row = 0
        for table in tables.read(columns, whole):
            if name in columns:
                times = parsed_times(table[name], name, form, row)
                table = table.set_column(table.column_names.index(name), name, times)
            row += table.num_rows
            yield table

    return tables._replace(schema=schema, read=read, groups=None)
