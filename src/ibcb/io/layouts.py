"""Tables as people have them, made into the one that is read: a row per candidate, in order, with times that are times.

A row per step becomes a row per candidate (`ibcb.io.wide`, `ibcb.io.lists`), features of items come from a table of
their own (`ibcb.io.items`); repeated rows go, and times in other forms are understood.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ibcb.io.cells import as_texts, parsed_times
from ibcb.io.columns import ROW_NUMBERS
from ibcb.io.items import with_items
from ibcb.io.lists import candidate_lists, listed_rows
from ibcb.io.roles import assign_roles, normal_name
from ibcb.io.rows import Tables, in_memory, whole_table
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
    left_out = {name for name in whole.column_names if name in options.drop or normal_name(name) in ROW_NUMBERS}
    compared = [whole[name] for name in whole.column_names if name not in left_out]
    keys = [f"{place}" for place in range(len(compared))]
    cells = [as_texts(c) if pa.types.is_nested(c.type) or pa.types.is_dictionary(c.type) else c for c in compared]
    numbered = pa.table([*cells, pa.array(np.arange(whole.num_rows))], names=[*keys, "row"])
    kept = np.sort(numbered.group_by(keys).aggregate([("row", "min")])["row_min"].to_numpy())
    repeated = whole.num_rows - len(kept)
    if not repeated:
        return in_memory(tables.name, whole)
    text = f"{plural(repeated, 'row')} left out that {'repeats' if repeated == 1 else 'repeat'} an earlier one."
    note = Note("repeated-rows", "info", text, {"rows": repeated})
    return in_memory(tables.name, whole.take(pa.array(kept)))._replace(notes=lambda: (*tables.notes(), note))


def _dated(tables: Tables, options: ReadOptions, form: str) -> Tables:
    """With the texts of the timestamp as times."""
    name = assign_roles(tables.schema.names, options)[0].get("timestamp")
    if name is None:
        raise LogFormatError(
            "cannot apply date_format (--date-format): no column holds times; name it: "
            "columns={'timestamp': ...} (--column timestamp=NAME)."
        )
    place = tables.schema.get_field_index(name)
    if pa.types.is_temporal(tables.schema.field(place).type):
        return tables
    schema = tables.schema.set(place, pa.field(name, pa.timestamp("us")))

    def make(rows: pa.Table, columns: Sequence[str], row: int) -> pa.Table:
        if name not in columns:
            return rows
        times = parsed_times(rows[name], name, form, row)
        return rows.set_column(rows.column_names.index(name), name, times)

    return tables.derived(schema, list, make)
