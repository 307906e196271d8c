"""A row per step with a list of candidates, each an object of features, as JSON has them (Parquet may, too).

``{"request": "r1", "user": "u7", "items": [{"id": 3, "price": 1.5}, {"id": 9, "price": 2.0}], "chosen": 9}``: the keys
of the objects are columns, those of objects within them ``item.price``. The chosen candidate is marked in its object,
or named at the step: by its id, or by its position from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.cells import as_texts, flattened, is_list, one_array
from ibcb.io.columns import assign_roles, listed, normal_name
from ibcb.io.propensities import Logged
from ibcb.io.rows import Tables
from ibcb.io.unfold import Candidates, named_roles, unfolded
from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.steps import ROLES, ReadOptions

__all__ = ["candidate_lists", "flat_fields", "flat_struct", "listed_rows"]

#: what lists of candidates are called
_LISTS = ("candidates", "items", "actions", "alternatives", "options", "arms", "choices", "slate", "impressions")
_IDS = (*ROLES["candidate"], "id", "name")
_MARK = "chosen"


def candidate_lists(schema: pa.Schema, options: ReadOptions) -> str | None:
    """The column with the lists of candidates, if there is one."""
    found: list[str] = [
        field.name for field in schema if is_list(field.type) and pa.types.is_struct(field.type.value_type)
    ]
    found = [name for name in found if name not in options.drop]
    named = options.columns.get("candidate")
    if named in found:
        return named
    usual = [name for name in found if normal_name(name) in _LISTS]
    if len(found) == 1 or len(usual) == 1:
        return (found if len(found) == 1 else usual)[0]
    if found:
        raise LogFormatError(
            f"the columns {listed(found)} each hold lists of objects; name the one with the candidates: "
            "columns={'candidate': ...} (--column candidate=NAME)."
        )
    return None


def listed_rows(tables: Tables, column: str, options: ReadOptions) -> tuple[Tables, ReadOptions]:
    """A row per candidate, and the options that are left for it."""
    kind = tables.schema.field(column).type.value_type
    given = {role: name for role, name in named_roles(tables, options).items() if name != column}
    outside = [name for name in tables.schema.names if name != column]
    # What the step has, too, goes by the name of the list.
    own = {f.name: f"{column}.{f.name}" if f.name in outside else f.name for f in flat_fields(kind)}
    inner = [field.with_name(own[field.name]) for field in flat_fields(kind)]
    inside = list(own.values())
    roles = _roles(outside, {role: name for role, name in given.items() if name in outside}, options)
    theirs = _roles(inside, {role: name for role, name in given.items() if name in inside}, options)
    unknown = [name for name in given.values() if name not in (*outside, *inside)]
    if unknown:
        raise LogFormatError(
            f"there is no column {shown(unknown[0])}; the columns are {listed(outside)}, and those of the candidates "
            f"in {shown(column)} are {listed(inside)}."
        )
    # One list of propensities for all candidates stands beside theirs.
    logged = roles.get("propensity") if "propensity" not in theirs else None
    logged = logged if logged is not None and is_list(tables.schema.field(logged).type) else None
    ids = theirs.get("candidate") or next(
        (name for name in inside if normal_name(name.removeprefix(f"{column}.")) in _IDS), None
    )
    told = roles.get("chosen") if options.choices and "chosen" not in theirs else None
    by_id = told is not None and _are_ids(tables, column, told, ids, own)
    mark = told or _MARK

    def sources(asked: Sequence[str]) -> list[str]:
        return [column, *(name for name in (told, logged) if name is not None and name in asked)]

    def candidates(table: pa.Table, asked: Sequence[str], row: int) -> Candidates:
        rows, counts = _flat(table, column, row, own)
        owner = np.repeat(np.arange(table.num_rows), counts)
        cells = {name: rows[name] for name in asked if name in inside}
        if told is not None and told in asked:
            cells[mark] = pa.array(_marks(table[told], rows, ids if by_id else None, counts, told, row))
        if logged is not None and logged in asked:
            cells[logged] = Logged(logged, "propensity" in given).flat(table, counts, row)
        return Candidates(owner, cells)

    fields = [*inner, *([pa.field(mark, pa.bool_())] if told is not None else [])]
    fields += [] if logged is None else [pa.field(logged, tables.schema.field(logged).type.value_type)]
    new = {role: name for role, name in roles.items() if role not in ("chosen", "candidate")}
    of_candidates = ("chosen", "step", "episode", "timestamp", "propensity")
    new |= {role: name for role, name in theirs.items() if role in of_candidates}
    new |= {"chosen": mark} if told is not None else {}
    new |= {} if ids is None else {"candidate": ids}
    return unfolded(tables, options, new, fields, sources, candidates)


def _roles(names: Sequence[str], given: dict[str, str], options: ReadOptions) -> dict[str, str]:
    return assign_roles(names, replace(options, columns=given))[0]


def flat_fields(kind: pa.StructType, before: str = "") -> list[pa.Field]:
    """The fields of a struct; those of structs within it with a dot."""
    fields: list[pa.Field] = []
    for field in kind:
        name = f"{before}{field.name}"
        fields += flat_fields(field.type, f"{name}.") if pa.types.is_struct(field.type) else [field.with_name(name)]
    return fields


def flat_struct(values: pa.StructArray, before: str = "") -> dict[str, pa.Array]:
    """The columns of a struct; those of structs within it with a dot."""
    cells: dict[str, pa.Array] = {}
    for field, inner in zip(values.type, values.flatten(), strict=True):
        name = f"{before}{field.name}"
        cells |= flat_struct(inner, f"{name}.") if pa.types.is_struct(field.type) else {name: inner}
    return cells


def _flat(
    table: pa.Table, column: str, row: int, names: Mapping[str, str]
) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
    """The candidates of all steps, one after the other, and how many each step has."""
    values, counts = flattened(one_array(table[column]))
    if (counts == 0).any():
        empty = np.flatnonzero(counts == 0)
        more = f", and so in {plural(len(empty) - 1, 'other row')}" if len(empty) > 1 else ""
        raise LogFormatError(
            f"row {row + int(empty[0])} (from 0): {shown(column)} has no candidate{more}; leave the step out."
        )
    return {names[name]: cells for name, cells in flat_struct(values).items()}, counts


def _are_ids(tables: Tables, column: str, told: str, ids: str | None, names: Mapping[str, str]) -> bool:
    """Whether the step names the chosen candidate by its id: all of them do, or it must be the position."""
    if ids is None:
        return False
    row = 0
    for table in tables.read([column, told], False):
        rows, counts = _flat(table, column, row, names)
        wanted = np.repeat(_as_objects(table[told]), counts)
        fits = _as_objects(rows[ids]) == wanted
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        missing = np.array([value is None for value in _as_objects(table[told])])
        if table.num_rows and not (np.logical_or.reduceat(fits, starts) | missing).all():
            return False
        row += table.num_rows
    return True


def _as_objects(values: pa.Array | pa.ChunkedArray) -> NDArray[np.object_]:
    return np.array(as_texts(values).to_pylist(), dtype=object)


def _marks(
    column: pa.ChunkedArray,
    rows: dict[str, pa.Array],
    ids: str | None,
    counts: NDArray[np.int64],
    told: str,
    row: int,
) -> NDArray[np.bool_]:
    """True at the candidate that its step names."""
    owner = np.repeat(np.arange(len(counts)), counts)
    wanted = _as_objects(column)
    if ids is not None:
        known = np.array([value is not None for value in wanted])
        return np.asarray((_as_objects(rows[ids]) == wanted[owner]) & known[owner])
    places = np.full(len(counts), -1)
    for at, text in enumerate(wanted):
        if text is None:
            continue
        if not text.isdecimal() or int(text) >= counts[at]:
            which = "the id of one of them, or " if ids is None else ""
            raise LogFormatError(
                f"row {row + at} (from 0): {shown(told)} is {shown(text)} but the step has "
                f"{plural(int(counts[at]), 'candidate')}; it must be {which}the position of the chosen one, from 0."
            )
        places[at] = int(text)
    start = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.asarray(np.arange(len(owner)) - start[owner] == places[owner])
