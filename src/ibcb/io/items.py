"""Impressions beside a table of items: the features of a candidate are looked up by its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ibcb.io.cells import as_texts
from ibcb.io.columns import ROW_NUMBERS, assign_roles, listed, normal_name
from ibcb.io.rows import Tables
from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.notes import Note
from ibcb.log.steps import ROLES, ReadOptions

__all__ = ["with_items"]


def with_items(tables: Tables, options: ReadOptions) -> tuple[Tables, ReadOptions]:
    """The impressions with the columns of ``options.items``, a table, at each candidate."""
    items: pa.Table = options.items
    key, item_key = _keys(tables, items, options)
    ids = as_texts(items[item_key]).combine_chunks()
    _check_distinct(ids, item_key)
    _check_known(tables, key, ids)
    both = [name for name in items.column_names if name != item_key and name in tables.schema.names]
    both = [name for name in both if normal_name(name) not in ROW_NUMBERS]
    new = [
        name
        for name in items.column_names
        if name != item_key and name not in tables.schema.names and normal_name(name) not in ROW_NUMBERS
    ]
    items = items.select(new)
    schema = tables.schema
    for field in items.schema:
        schema = schema.append(field)

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        own = [name for name in columns if name not in new]
        for table in tables.read(list(dict.fromkeys([*own, key])), whole):
            place = pc.index_in(as_texts(table[key]), value_set=ids)
            found = items.select([name for name in columns if name in new]).take(place)
            pieces = [found[name] if name in new else table[name] for name in columns]
            yield pa.table(pieces, schema=pa.schema([schema.field(name) for name in columns]))

    notes: tuple[Note, ...] = ()
    if both:
        text = f"{listed(both)} of the items left out: the impressions have columns of that name, which are read."
        notes = (Note("item-columns-left-out", "info", text, {"columns": tuple(both)}),)
    joined = tables._replace(schema=schema, read=read, groups=None, notes=lambda: (*tables.notes(), *notes))
    return joined, replace(options, items=None, columns=dict(options.columns) | {"candidate": key})


def _keys(tables: Tables, items: pa.Table, options: ReadOptions) -> tuple[str, str]:
    """The column with the items' ids in both tables."""
    names, theirs = tables.schema.names, items.column_names
    free = replace(options, features=None, one_hot=(), keep=())
    ours = assign_roles(names, free)[0].get("candidate")
    known = [name for name in theirs if normal_name(name) in ROLES["candidate"]]
    if ours is not None and ours in theirs:
        return ours, ours
    if ours is not None and len(known) == 1:
        return ours, known[0]
    others = {name for role, name in assign_roles(names, free)[0].items() if role != "candidate"}
    shared = [name for name in names if name in theirs and name not in others and normal_name(name) not in ROW_NUMBERS]
    if len(shared) == 1 and "candidate" not in options.columns:
        return shared[0], shared[0]
    reason = f"both have {listed(shared)}" if shared else "no column is in both"
    raise LogFormatError(
        f"which column of the impressions ({listed(names)}) is the id of an item is not clear: {reason}, and the items "
        f"have {listed(theirs)}. Name it with columns={{'candidate': ...}} (--column candidate=NAME), and call it the "
        "same in the table of items."
    )


def _check_distinct(ids: pa.Array, name: str) -> None:
    if ids.null_count:
        raise LogFormatError(
            f"items: column {shown(name)} has {plural(ids.null_count, 'missing value')}; every item needs its id."
        )
    twice = [entry["values"] for entry in ids.value_counts().to_pylist() if entry["counts"] > 1]
    if twice:
        raise LogFormatError(
            f"items: {plural(len(twice), 'id')} in column {shown(name)} {'appears' if len(twice) == 1 else 'appear'} "
            f"several times: {listed(twice)}; keep one row for each item."
        )


def _check_known(tables: Tables, key: str, ids: pa.Array) -> None:
    unknown: Counter[str] = Counter()
    for table in tables.read([key], False):
        texts = as_texts(table[key])
        strange = texts.filter(pc.invert(pc.is_in(texts, value_set=ids)))
        for entry in strange.value_counts().to_pylist():
            unknown["missing" if entry["values"] is None else entry["values"]] += entry["counts"]
    if unknown:
        rows = sum(unknown.values())
        raise LogFormatError(
            f"{plural(len(unknown), 'id')} in column {shown(key)} ({plural(rows, 'row')}) "
            f"{'is' if len(unknown) == 1 else 'are'} not in the table of items: {listed(unknown)}; it has "
            f"{plural(len(ids), 'item')}, such as {listed(ids.slice(0, 3).to_pylist())}. Add them, or leave these "
            "steps out."
        )
