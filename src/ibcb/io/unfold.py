"""A row per step made into a row per candidate: what wide tables and lists of candidates have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.rows import Tables
from ibcb.io.words import listed
from ibcb.log.array_checks import LogFormatError
from ibcb.log.read_options import ReadOptions


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
        raise LogFormatError(
            f"{listed(twice)}: a column of the step and one of its candidates would have the same name; rename one."
        )
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
