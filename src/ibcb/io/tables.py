"""From the rows of a table to steps: a layout makes them long, and a reader makes steps of them.

A row per step becomes a row per candidate (`ibcb.io.wide`, `ibcb.io.lists`), features of items come from a table of
their own (`ibcb.io.items`); repeated rows go, and times in other forms are understood. Long rows, rows of arms, and
rows of whole steps as we write them each have a reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ibcb.io.armtables import ArmRows
from ibcb.io.cells import as_texts, check_size, parsed_times
from ibcb.io.columns import ROW_NUMBERS
from ibcb.io.items import with_items
from ibcb.io.lists import candidate_lists, listed_rows
from ibcb.io.longrows import CandidateRows
from ibcb.io.roles import assign_roles, check_roles, normal_name
from ibcb.io.rows import Tables, in_memory, whole_table
from ibcb.io.steprows import StepRows
from ibcb.io.wide import wide_rows
from ibcb.io.words import name_it
from ibcb.io.written import KEY
from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.steps import Source


def table_source(tables: Tables, options: ReadOptions) -> Source:
    """The steps in some tables, whatever their layout."""
    # Where features were named, nobody need be told that it is none.
    told = "propensity" in options.columns or options.features is not None or options.preparation is not None
    tables, options = _arranged(_bounded(tables, options.memory), options)
    if options.sort:
        tables = _sorted(tables, options)
    made = options.preparation
    of_arms = made is not None and made.arms is not None and KEY not in (tables.schema.metadata or {})
    if options.arm is not None or of_arms:
        return ArmRows(tables, options, told)
    # A row per candidate may have a feature of that name.
    ours = {"contexts", "n_candidates"}.intersection(tables.schema.names).difference(
        options.features or (), options.drop
    )
    return StepRows(tables, options) if ours else CandidateRows(tables, options, told)


def _bounded(tables: Tables, memory: int) -> Tables:
    """The same tables, each of them refused where its rows would take more memory than there is."""

    def checked(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for table in parts:
            check_size(table, memory)
            yield table

    groups = tables.groups
    if groups is not None:
        some = groups.read
        groups = groups._replace(read=lambda columns, numbers: checked(some(columns, numbers)))
    return tables._replace(read=lambda columns, whole: checked(tables.read(columns, whole)), groups=groups)


def _sorted(tables: Tables, options: ReadOptions) -> Tables:
    """The same rows by episode, time and step; equal ones stay in order. Needs the memory for all of them."""
    roles, _ = assign_roles(tables.schema.names, options)
    check_roles(tables.schema, roles)
    whole = whole_table(tables, options.memory)
    keys = [roles[role] for role in ("episode", "timestamp", "step") if role in roles]
    row = "ibcb row"
    order = whole.select(keys).append_column(row, pa.array(np.arange(whole.num_rows)))
    whole = whole.take(pc.sort_indices(order, sort_keys=[(key, "ascending") for key in (*keys, row)]))
    return tables._replace(read=in_memory(tables.name, whole).read, groups=None)


# -- layouts -----------------------------------------------------------------------------------------------------------


def _arranged(tables: Tables, options: ReadOptions) -> tuple[Tables, ReadOptions]:
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
            f"cannot apply date_format (--date-format): no column holds times; name it: {name_it('timestamp')}."
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
