"""A row per step made into a row per candidate: what wide tables and lists of candidates have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.columns import listed
from ibcb.io.rows import Tables
from ibcb.log.arrays import LogFormatError
from ibcb.log.steps import ReadOptions

__all__ = ["Candidates", "named_roles", "unfolded"]


class Candidates(NamedTuple):
    """The candidates of some steps: the row that each belongs to, rising, and their columns."""

    owner: NDArray[np.int64]
    columns: Mapping[str, pa.Array]


def named_roles(tables: Tables, options: ReadOptions) -> dict[str, str]:
    """The columns that were named for a role, by the options or for the log of a model, and are there."""
    before = {} if options.preparation is None else dict(options.preparation.roles)
    usable = set(tables.schema.names) - set(options.drop)
    return {role: name for role, name in before.items() if name in usable} | dict(options.columns)


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
    made = {field.name: field for field in fields}
    used = set(sources(list(made))) - set(roles.values())
    own = [field for field in tables.schema if field.name not in used and field.name not in made]
    told = (roles.get("chosen"), roles.get("propensity"))
    twice = [name for name in made if name in tables.schema.names and name not in used and name not in told]
    if twice:
        raise LogFormatError(
            f"{listed(twice)}: a column of the step and one of its candidates would have the same name; rename one."
        )
    number = roles.get("step") or _fresh("step", tables.schema.names, made)
    numbers = [] if "step" in roles else [pa.field(number, pa.int64())]
    schema = pa.schema([*numbers, *own, *fields])
    roles = dict(roles) | {"step": number}

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        asked = [name for name in columns if name in made]
        repeated = [name for name in columns if name not in made and name in tables.schema.names]
        needed = list(dict.fromkeys([*sources(asked), *repeated])) or tables.schema.names[:1]
        first = 0
        for table in tables.read(needed, whole):
            owner, cells = candidates(table, asked, first)
            take = pa.array(owner)
            step = pa.array(owner + first)
            first += table.num_rows
            pieces = [
                cells[name] if name in made else table[name].take(take) if name in repeated else step
                for name in columns
            ]
            yield pa.table(pieces, schema=pa.schema([schema.field(name) for name in columns]))

    # What numbers or names the step is no feature of it; everything else may be crossed with those of candidates.
    names = {name for role, name in roles.items() if role != "propensity"}
    of_step = tuple(field.name for field in own if field.name not in names)
    columns = {role: name for role, name in roles.items() if name in schema.names}
    long = Tables(tables.name, schema, read, of_step=of_step, notes=tables.notes)
    return long, replace(options, columns=columns)


def _fresh(name: str, *taken: Sequence[str] | Mapping[str, pa.Field]) -> str:
    """A name that no column has."""
    while any(name in names for names in taken):
        name += "_"
    return name
