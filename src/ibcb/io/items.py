"""Impressions beside a table of items: the features of a candidate are looked up by its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ibcb.io.cells import as_texts, value_counts
from ibcb.io.columns import ROW_NUMBERS
from ibcb.io.roles import assign_roles, normal_name
from ibcb.io.rows import Tables
from ibcb.io.words import listed, name_it
from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.read_options import ROLES, ReadOptions
from ibcb.numerics.printable import shown


def with_items(tables: Tables, options: ReadOptions) -> tuple[Tables, ReadOptions]:
    """The impressions with the columns of ``options.items``, a table, at each candidate."""
    items: pa.Table = options.items
    key, item_key = _keys(tables, items, options)
    ids = as_texts(items[item_key]).combine_chunks()
    _check_distinct(ids, item_key)
    _check_known(tables, key, ids)
    theirs = [name for name in items.column_names if name != item_key and normal_name(name) not in ROW_NUMBERS]
    both = [name for name in theirs if name in tables.schema.names]
    new = {name: items[name] for name in theirs if name not in both}
    schema = tables.schema
    for name in new:
        schema = schema.append(items.schema.field(name))

    def make(rows: pa.Table, columns: Sequence[str], row: int) -> dict[str, pa.ChunkedArray]:
        place = pc.index_in(as_texts(rows[key]), value_set=ids)
        return {name: new[name].take(place) if name in new else rows[name] for name in columns}

    joined = tables.derived(schema, lambda columns: [*(name for name in columns if name not in new), key], make)
    if both:
        text = f"{listed(both)} of the items left out: the impressions have columns of that name, which are read."
        note = Note("item-columns-left-out", "info", text, {"columns": tuple(both)})
        joined = joined._replace(notes=lambda: (*tables.notes(), note))
    return joined, replace(options, items=None, columns=dict(options.columns) | {"candidate": key})


def _keys(tables: Tables, items: pa.Table, options: ReadOptions) -> tuple[str, str]:
    """The column with the items' ids in both tables."""
    names, theirs = tables.schema.names, items.column_names
    roles, _ = assign_roles(names, replace(options, features=None, one_hot=(), keep=()))
    ours = roles.pop("candidate", None)
    known = [name for name in theirs if normal_name(name) in ROLES["candidate"]]
    if ours is not None and ours in theirs:
        return ours, ours
    if ours is not None and len(known) == 1:
        return ours, known[0]
    taken = set(roles.values())
    shared = [name for name in names if name in theirs and name not in taken and normal_name(name) not in ROW_NUMBERS]
    if len(shared) == 1 and "candidate" not in options.columns:
        return shared[0], shared[0]
    reason = f"both have {listed(shared)}" if shared else "no column is in both"
    raise LogFormatError(
        f"which column of the impressions ({listed(names)}) is the id of an item is not clear: {reason}, and the items "
        f"have {listed(theirs)}. Name it with {name_it('candidate')}, and call it the same in the table of items."
    )


def _check_distinct(ids: pa.Array, name: str) -> None:
    if ids.null_count:
        raise LogFormatError(
            f"items: column {shown(name)} has {plural(ids.null_count, 'missing value')}; every item needs its id."
        )
    twice = [text for text, count in value_counts(ids).items() if count > 1]
    if twice:
        raise LogFormatError(
            f"items: {plural(len(twice), 'id')} in column {shown(name)} {'appears' if len(twice) == 1 else 'appear'} "
            f"several times: {listed(twice)}; keep one row for each item."
        )


def _check_known(tables: Tables, key: str, ids: pa.Array) -> None:
    unknown: Counter[str] = Counter()
    for table in tables.read([key], False):
        texts = pc.fill_null(as_texts(table[key]), "missing")
        unknown.update(value_counts(texts.filter(pc.invert(pc.is_in(texts, value_set=ids)))))
    if unknown:
        raise LogFormatError(
            f"{plural(len(unknown), 'id')} in column {shown(key)} ({plural(unknown.total(), 'row')}) "
            f"{'is' if len(unknown) == 1 else 'are'} not in the table of items: {listed(unknown)}; it has "
            f"{plural(len(ids), 'item')}, such as {listed(ids.slice(0, 3).to_pylist())}. Add them, or leave these "
            "steps out."
        )
