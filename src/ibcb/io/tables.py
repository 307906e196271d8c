"""From the rows of a table to steps: its columns tell the layout, which says what reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ibcb.io.armtables import ArmRows
from ibcb.io.cells import check_size
from ibcb.io.layouts import arranged
from ibcb.io.longrows import CandidateRows
from ibcb.io.roles import assign_roles, check_roles
from ibcb.io.rows import RowGroups, Tables, in_memory, whole_table
from ibcb.io.steprows import StepRows
from ibcb.io.written import KEY
from ibcb.log.steps import ReadOptions, Source

__all__ = ["RowGroups", "StepRows", "Tables", "table_source"]


def table_source(tables: Tables, options: ReadOptions) -> Source:
    """The steps in some tables, whatever their layout."""
    # Where features were named, nobody need be told that it is none.
    told = "propensity" in options.columns or options.features is not None or options.preparation is not None
    tables, options = arranged(_bounded(tables, options.memory), options)
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
