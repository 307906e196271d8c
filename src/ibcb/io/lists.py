"""A row per step made into a row per candidate: from lists of candidates, or from whatever has them.

A list holds an object of features for each, as JSON has them (Parquet may, too):

``{"request": "r1", "user": "u7", "items": [{"id": 3, "price": 1.5}, {"id": 9, "price": 2.0}], "chosen": 9}``: the keys
of the objects are columns, those of objects within them ``item.price``. The chosen candidate is marked in its object,
or named at the step: by its id, or by its position from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.cells import as_objects, flat, flattened, is_list, one_array
from ibcb.io.columns import assign_roles, fitted_roles, normal_name
from ibcb.io.format import Tables
from ibcb.io.logged import Logged
from ibcb.io.words import refusal
from ibcb.log.array_checks import plural
from ibcb.log.read_options import ROLES, ReadOptions

#: what lists of candidates are called
_LISTS = ("candidates", "items", "actions", "alternatives", "options", "arms", "choices", "slate", "impressions")
_IDS = (*ROLES["candidate"], "id", "name")


class Candidates(NamedTuple):
    """The candidates of some steps: the row that each belongs to, rising, and their columns."""

    owner: NDArray[np.int64]
    columns: Mapping[str, pa.Array]


def unfolded(
    tables: Tables,
    options: ReadOptions,
    roles: Mapping[str, str],
    fields: Sequence[pa.Field],
    sources: Callable[[Sequence[str]], Sequence[str]],
    candidates: Callable[[pa.Table, Sequence[str], int], Candidates],
) -> tuple[Tables, ReadOptions]:
    """A table with a row per candidate, in the order of the steps, and the options that say which column is which.

    ``roles`` are those of the new table. ``fields`` are the columns of candidates; ``sources(names)`` gives the columns
    that some of them are made of, ``candidates(rows, names, first)`` makes them, where ``first`` is the number of the
    first row. All other columns are those of the step, repeated for each of its candidates. Steps are numbered where
    no column tells them apart.
    """
    made, old = {field.name: field for field in fields}, tables.schema
    used = set(sources(list(made))) - set(roles.values())
    own = [field for field in old if field.name not in used and field.name not in made]
    told = (roles.get("chosen"), roles.get("propensity"))
    twice = [name for name in made if name in old.names and name not in used and name not in told]
    if twice:
        raise refusal("list-same-name", names=twice)
    number = roles.get("step", "step")
    while "step" not in roles and (number in old.names or number in made):
        number += "_"
    numbers = [] if "step" in roles else [pa.field(number, pa.int64())]
    schema = pa.schema([*numbers, *own, *fields])
    roles = dict(roles) | {"step": number}

    def needed(columns: Sequence[str]) -> Sequence[str]:
        repeated = [name for name in columns if name not in made and name in old.names]
        return [*sources([name for name in columns if name in made]), *repeated] or old.names[:1]

    def make(rows: pa.Table, columns: Sequence[str], row: int) -> dict[str, pa.Array | pa.ChunkedArray]:
        owner, cells = candidates(rows, [name for name in columns if name in made], row)
        steps = {name: rows[name].take(pa.array(owner)) for name in columns if name not in made and name in old.names}
        return {number: pa.array(owner + row), **steps, **cells}

    # What numbers or names the step is no feature of it; everything else may be crossed with those of candidates.
    names = {name for role, name in roles.items() if role != "propensity"}
    of_step = tuple(field.name for field in own if field.name not in names)
    columns = {role: name for role, name in roles.items() if name in schema.names}
    return tables.derived(schema, needed, make)._replace(of_step=of_step), replace(options, columns=columns)


# -- lists -------------------------------------------------------------------------------------------------------------


def candidate_lists(schema: pa.Schema, options: ReadOptions) -> str | None:
    """The column with the lists of candidates, if there is one."""
    structs = [f.name for f in schema if is_list(f.type) and pa.types.is_struct(f.type.value_type)]
    structs = [name for name in structs if name not in options.drop]
    named = options.columns.get("candidate")
    if named in structs:
        return named
    usual = structs if len(structs) == 1 else [name for name in structs if normal_name(name) in _LISTS]
    if structs and len(usual) != 1:
        raise refusal("lists-several", columns=structs)
    return usual[0] if usual else None


def listed_rows(tables: Tables, column: str, options: ReadOptions) -> tuple[Tables, ReadOptions]:
    """A row per candidate, and the options that are left for it."""
    schema = tables.schema
    outside = [name for name in schema.names if name != column]
    # What the step has, too, goes by the name of the list.
    fields = flat(pa.schema([*schema.field(column).type.value_type]).empty_table()).schema
    own = {field.name: f"{column}.{field.name}" if field.name in outside else field.name for field in fields}
    inside = list(own.values())
    given = {role: name for role, name in fitted_roles(schema.names, options).items() if name != column}
    unknown = [name for name in given.values() if name not in (*outside, *inside)]
    roles, theirs = (
        assign_roles(names, replace(options, columns={r: name for r, name in given.items() if name in names}))[0]
        for names in (outside, inside)
    )
    if unknown:
        raise refusal("list-no-column", name=unknown[0], outside=outside, list=column, inside=inside)
    # One list of propensities for all candidates stands beside theirs.
    logged = roles.get("propensity") if "propensity" not in theirs else None
    logged = logged if logged is not None and is_list(schema.field(logged).type) else None
    ids = theirs.pop("candidate", None) or next(
        (name for name in inside if normal_name(name.removeprefix(f"{column}.")) in _IDS), None
    )
    told = roles.pop("chosen", None) if options.choices and "chosen" not in theirs else None
    by_id = ids if told is not None and _are_ids(tables, column, told, ids, own) else None
    roles = {role: name for role, name in roles.items() if role not in ("chosen", "candidate")}
    roles |= {role: name for role, name in theirs.items() if role != "step_id"}
    roles |= {"chosen": told} if told is not None else {}
    roles |= {"candidate": ids} if ids is not None else {}

    def candidates(table: pa.Table, asked: Sequence[str], row: int) -> Candidates:
        rows, counts = _flat(table, column, row, own)
        cells = {name: rows[name] for name in asked if name in inside}
        if told is not None and told in asked:
            cells[told] = pa.array(_marks(table[told], None if by_id is None else rows[by_id], counts, told, row))
        if logged is not None and logged in asked:
            cells[logged] = Logged(logged, "propensity" in given).flat(table, counts, row)
        return Candidates(np.repeat(np.arange(table.num_rows), counts), cells)

    made = [field.with_name(own[field.name]) for field in fields]
    made += [] if told is None else [pa.field(told, pa.bool_())]
    made += [] if logged is None else [pa.field(logged, schema.field(logged).type.value_type)]
    return unfolded(
        tables, options, roles, made, lambda asked: [column, *(n for n in asked if n in (told, logged))], candidates
    )


def _flat(
    table: pa.Table, column: str, row: int, names: Mapping[str, str]
) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
    """The candidates of all steps, one after the other, and how many each step has."""
    values, counts = flattened(one_array(table[column]))
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        more = f", and so in {plural(len(empty) - 1, 'other row')}" if len(empty) > 1 else ""
        raise refusal("list-empty", row=row + int(empty[0]), column=column, more=more)
    table = flat(pa.Table.from_arrays(values.flatten(), schema=pa.schema([*values.type])))
    return {names[name]: one_array(table[name]) for name in table.column_names}, counts


def _are_ids(tables: Tables, column: str, told: str, ids: str | None, names: Mapping[str, str]) -> bool:
    """Whether the step names the chosen candidate by its id: all of them do, or it must be the position."""
    if ids is None:
        return False
    for table, row in tables.numbered([column, told]):
        rows, counts = _flat(table, column, row, names)
        wanted = as_objects(table[told])
        fits = as_objects(rows[ids]) == np.repeat(wanted, counts)
        missing = np.array([value is None for value in wanted])
        if table.num_rows and not (np.logical_or.reduceat(fits, np.cumsum(counts) - counts) | missing).all():
            return False
    return True


def _marks(
    column: pa.ChunkedArray, ids: pa.Array | None, counts: NDArray[np.int64], told: str, row: int
) -> NDArray[np.bool_]:
    """True at the candidate that its step names, by its id where these are given."""
    owner = np.repeat(np.arange(len(counts)), counts)
    wanted = as_objects(column)
    if ids is not None:
        known = np.array([value is not None for value in wanted])
        return np.asarray((as_objects(ids) == wanted[owner]) & known[owner])
    places = np.full(len(counts), -1)
    for at, text in enumerate(wanted):
        if text is None:
            continue
        if not text.isdecimal() or int(text) >= counts[at]:
            raise refusal("list-no-choice", row=row + at, column=told, value=text, candidates=counts[at])
        places[at] = int(text)
    return np.asarray(np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner] == places[owner])
