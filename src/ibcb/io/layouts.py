"""From the rows of a table to steps: a layout makes them long, and a reader makes steps of them.

A row per step becomes a row per candidate (`ibcb.io.wide`, `ibcb.io.lists`), features of items come from a table of
their own; repeated rows go, and times in other forms are understood. Long rows, rows of arms, and rows of whole steps
as we write them each have a reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ibcb.io.armtables import ArmRows
from ibcb.io.cells import as_texts, parsed_times, value_counts, within
from ibcb.io.columns import ROW_NUMBERS, assign_roles, check_roles, normal_name
from ibcb.io.format import Tables, in_memory
from ibcb.io.lists import candidate_lists, listed_rows
from ibcb.io.longrows import CandidateRows
from ibcb.io.steprows import StepRows
from ibcb.io.wide import wide_rows
from ibcb.io.words import listed, note, refusal
from ibcb.io.written import KEY
from ibcb.log.read_options import ROLES, ReadOptions
from ibcb.log.steps import Source


def table_source(tables: Tables, options: ReadOptions) -> Source:
    """The steps in some tables, whatever their layout."""
    # Where features were named, nobody need be told that it is none.
    told = "propensity" in options.columns or options.features is not None or options.preparation is not None
    read = tables.read
    tables = tables._replace(read=lambda columns: (within(table, options.memory) for table in read(columns)))
    if options.deduplicate:
        tables = _distinct(tables, options)
    if options.alternatives:
        tables, options = wide_rows(tables, options)
    elif (column := candidate_lists(tables.schema, options)) is not None:
        tables, options = listed_rows(tables, column, options)
    if options.items is not None:
        tables, options = _with_items(tables, options)
    if options.date_format is not None:
        tables = _dated(tables, options, options.date_format)
    if options.sort:
        tables = _sorted(tables, options)
    made = options.preparation
    of_arms = made is not None and made.arms is not None and KEY not in (tables.schema.metadata or {})
    if options.arm is not None or of_arms:
        return ArmRows(tables, options, told)
    # A row per candidate may have a feature of that name.
    own = {*(options.features or ()), *options.drop}
    ours = {"contexts", "n_candidates"}.intersection(tables.schema.names) - own
    return StepRows(tables, options) if ours else CandidateRows(tables, options, told)


def _sorted(tables: Tables, options: ReadOptions) -> Tables:
    """The same rows by episode, time and step; equal ones stay in order. Needs the memory for all of them."""
    roles, _ = assign_roles(tables.schema.names, options)
    check_roles(tables.schema, roles)
    whole = tables.whole(options.memory)
    keys = [roles[role] for role in ("episode", "timestamp", "step") if role in roles]
    row = "ibcb row"
    order = whole.select(keys).append_column(row, pa.array(np.arange(whole.num_rows)))
    whole = whole.take(pc.sort_indices(order, sort_keys=[(key, "ascending") for key in (*keys, row)]))
    return tables._replace(read=in_memory(tables.name, whole).read, groups=None)


def _distinct(tables: Tables, options: ReadOptions) -> Tables:
    """Without rows that repeat an earlier one, but for row numbers and columns that are dropped; in memory."""
    whole = tables.whole(options.memory)
    left_out = {name for name in whole.column_names if name in options.drop or normal_name(name) in ROW_NUMBERS}
    compared = [whole[name] for name in whole.column_names if name not in left_out]
    keys = [f"{place}" for place in range(len(compared))]
    cells = [as_texts(c) if pa.types.is_nested(c.type) or pa.types.is_dictionary(c.type) else c for c in compared]
    numbered = pa.table([*cells, pa.array(np.arange(whole.num_rows))], names=[*keys, "row"])
    kept = np.sort(numbered.group_by(keys).aggregate([("row", "min")])["row_min"].to_numpy())
    repeated = whole.num_rows - len(kept)
    if not repeated:
        return in_memory(tables.name, whole)
    kept_rows = in_memory(tables.name, whole.take(pa.array(kept)))._replace(notes=tables.notes)
    return kept_rows.noted(note("repeated-rows", "info", rows=repeated))


def _dated(tables: Tables, options: ReadOptions, form: str) -> Tables:
    """With the texts of the timestamp as times."""
    name = assign_roles(tables.schema.names, options)[0].get("timestamp")
    if name is None:
        raise refusal("date-format-no-time")
    place = tables.schema.get_field_index(name)
    if pa.types.is_temporal(tables.schema.field(place).type):
        return tables

    def make(rows: pa.Table, columns: Sequence[str], row: int) -> pa.Table:
        if name not in columns:
            return rows
        times = parsed_times(rows[name], name, form, row)
        return rows.set_column(rows.column_names.index(name), name, times)

    return tables.derived(tables.schema.set(place, pa.field(name, pa.timestamp("us"))), list, make)


# -- impressions beside a table of items -------------------------------------------------------------------------------


def _with_items(tables: Tables, options: ReadOptions) -> tuple[Tables, ReadOptions]:
    """The impressions with the columns of ``options.items``, a table, at each candidate, looked up by its id."""
    items: pa.Table = options.items
    key, item_key = _keys(tables, items, options)
    ids = as_texts(items[item_key]).combine_chunks()
    _check_ids(tables, key, ids, item_key)
    theirs = [name for name in items.column_names if name != item_key and normal_name(name) not in ROW_NUMBERS]
    both = [name for name in theirs if name in tables.schema.names]
    new = {name: items[name] for name in theirs if name not in both}
    schema = pa.schema([*tables.schema, *(items.schema.field(name) for name in new)], metadata=tables.schema.metadata)

    def make(rows: pa.Table, columns: Sequence[str], row: int) -> dict[str, pa.ChunkedArray]:
        place = pc.index_in(as_texts(rows[key]), value_set=ids)
        return {name: new[name].take(place) if name in new else rows[name] for name in columns}

    joined = tables.derived(schema, lambda columns: [*(name for name in columns if name not in new), key], make)
    if both:
        joined = joined.noted(note("item-columns-left-out", "info", columns=tuple(both)))
    return joined, replace(options, items=None, columns=dict(options.columns) | {"candidate": key})


def _keys(tables: Tables, items: pa.Table, options: ReadOptions) -> tuple[str, str]:
    """The column with the items' ids in both tables."""
    names, theirs = tables.schema.names, items.column_names
    roles, _ = assign_roles(names, replace(options, features=None, one_hot=(), keep=()))
    ours = roles.pop("candidate", None)
    known = [name for name in theirs if normal_name(name) in ROLES["candidate"]]
    if ours is not None and (ours in theirs or len(known) == 1):
        return ours, ours if ours in theirs else known[0]
    usable = [name for name in names if name not in roles.values() and normal_name(name) not in ROW_NUMBERS]
    shared = [name for name in usable if name in theirs]
    if len(shared) == 1 and "candidate" not in options.columns:
        return shared[0], shared[0]
    reason = f"both have {listed(shared)}" if shared else "no column is in both"
    raise refusal("items-no-key", columns=names, reason=reason, items=theirs)


def _check_ids(tables: Tables, key: str, ids: pa.Array, name: str) -> None:
    """Refuse items without an id or of the same one, and candidates that are none of them."""
    if ids.null_count:
        raise refusal("items-without-id", name=name, holes=ids.null_count)
    twice = [text for text, count in value_counts(ids).items() if count > 1]
    if twice:
        raise refusal("items-twice", count=len(twice), name=name, ids=twice)
    unknown: Counter[str] = Counter()
    for table in tables.read([key]):
        texts = pc.fill_null(as_texts(table[key]), "missing")
        unknown.update(value_counts(texts.filter(pc.invert(pc.is_in(texts, value_set=ids)))))
    if unknown:
        some = ids.slice(0, 3).to_pylist()
        count, rows = len(unknown), unknown.total()
        raise refusal("items-unknown", count=count, column=key, rows=rows, unknown=unknown, items=len(ids), some=some)
