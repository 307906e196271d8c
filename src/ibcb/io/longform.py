"""A log as a table with one row per candidate, for every format that can hold a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ibcb.io.written import KEY, VERSION
from ibcb.log import BehaviorLog


def extras(log: BehaviorLog) -> dict[str, pa.Array]:
    """The columns that not every log has."""
    both = {"timestamp": log.timestamps, "step_id": log.step_ids}
    return {name: pa.array(values) for name, values in both.items() if values is not None}


def _schema(log: BehaviorLog) -> pa.Schema:
    """The schema of `long_tables`; features without a name are called x0, x1, ..."""
    names = log.feature_names or tuple(f"x{place}" for place in range(log.n_features))
    roles = {"episode": "episode", "step": "step", "chosen": "chosen"}
    roles |= {name: name for name in extras(log)}
    roles |= {} if log.propensities is None else {"propensity": "propensity"}
    # A feature may be called as a column of ours is, or as one by which the other form is recognised.
    taken = {*roles.values(), "contexts", "n_candidates"}
    features = [f"feature {name}" if name in taken else name for name in names]
    meta = {
        "version": VERSION,
        "features": features,
        "feature_names": log.feature_names,
        "preparation": None if log.preparation is None else log.preparation.to_json(),
        "roles": roles,
    }
    fields = [pa.field("episode", pa.int64()), pa.field("step", pa.int64()), pa.field("chosen", pa.bool_())]
    fields += [pa.field(name, values.type) for name, values in extras(log).items()]
    fields += [] if log.propensities is None else [pa.field("propensity", pa.float64())]
    fields += [pa.field(name, pa.from_numpy_dtype(log.contexts.dtype)) for name in features]
    return pa.schema(fields, metadata={KEY: json.dumps(meta).encode()})


def long_tables(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[pa.Table]:
    """The parts of a log, whose contexts are dense, with one row per candidate."""
    before, first = None, 0
    for number, part in parts:
        first = first if number == before else 0
        counts = np.diff(part.step_offsets)
        flags = np.zeros(part.n_rows, dtype=bool)
        flags[part.chosen_rows] = True
        owner = np.repeat(np.arange(part.n_steps), counts)
        columns = [pa.array(np.full(part.n_rows, number)), pa.array(first + owner), pa.array(flags)]
        columns += [values.take(pa.array(owner)) for values in extras(part).values()]
        if part.propensities is not None:
            columns.append(pa.array(part.propensities, mask=np.isnan(part.propensities)))
        columns += [pa.array(np.ascontiguousarray(column)) for column in part.contexts.T]
        yield pa.Table.from_arrays(columns, schema=_schema(part))
        before, first = number, first + part.n_steps


def write_tables(tables: Iterable[pa.Table], opened: Callable[[pa.Schema], Any]) -> None:
    """Write tables of one schema, one after the other, with the writer that is opened for it."""
    writer: Any = None
    try:
        for table in tables:
            if writer is None:
                writer = opened(table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
