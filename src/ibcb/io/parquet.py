"""Logs as Parquet, one row per step: the form that everything else is converted to.

Columns: ``episode`` (negative for the warm-up, then 0, 1, ...), ``step`` (counted from 0 within the episode),
``chosen``, ``n_candidates``, ``contexts`` (the candidates' features, one after the other), and where the log has them
``timestamp`` and ``step_id``. The number of features, their names, how they were made and the format's version are in
the schema metadata under the key ``ibcb``. Each episode is a row group of its own, or several if it is large.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ibcb.io.cells import KEY, VERSION
from ibcb.log import BehaviorLog

__all__ = ["long_schema", "long_tables", "write_steps"]

#: numbers in a row group; an episode with more gets several
_GROUP_NUMBERS = 1 << 24


def write_steps(parts: Iterable[tuple[int, BehaviorLog]], path: str | os.PathLike[str]) -> None:
    """Write the parts of a log, in order, as the canonical Parquet file."""
    writer: pq.ParquetWriter | None = None
    try:
        for number, first, episode in _row_groups(parts):
            if writer is None:
                writer = pq.ParquetWriter(path, _schema(episode), write_page_checksum=True)
            writer.write_table(_table(number, first, episode, writer.schema), row_group_size=episode.n_steps)
    finally:
        if writer is not None:
            writer.close()


def _row_groups(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[tuple[int, int, BehaviorLog]]:
    """Parts of one episode put together until they fill a row group: episode, its first step here, steps."""
    waiting: list[BehaviorLog] = []
    number, first = None, 0
    for this, part in parts:
        full = sum(log.contexts.size for log in waiting) + part.contexts.size > _GROUP_NUMBERS
        if waiting and (this != number or full):
            assert number is not None
            group = joined(waiting)
            yield number, first, group
            first = 0 if this != number else first + group.n_steps
            waiting = []
        number = this
        waiting.append(part)
    if waiting:
        assert number is not None
        yield number, first, joined(waiting)


def joined(parts: list[BehaviorLog]) -> BehaviorLog:
    """Consecutive parts of one episode as one."""
    if len(parts) == 1:
        return parts[0]
    head = parts[0]
    steps = [part.n_steps for part in parts]
    extras: dict[str, Any] = {
        name: None if getattr(head, name) is None else np.concatenate([getattr(part, name) for part in parts])
        for name in ("timestamps", "step_ids")
    }
    return BehaviorLog(
        np.concatenate([part.contexts for part in parts]),
        np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.step_offsets) for part in parts]))]),
        np.concatenate([part.chosen for part in parts]),
        [0, sum(steps)],
        feature_names=head.feature_names,
        preparation=head.preparation,
        **extras,
    )


def _schema(log: BehaviorLog) -> pa.Schema:
    meta = {
        "version": VERSION,
        "n_features": log.n_features,
        "feature_names": log.feature_names,
        "preparation": None if log.preparation is None else log.preparation.to_json(),
    }
    fields = [pa.field(name, pa.int64()) for name in ("episode", "step", "chosen", "n_candidates")]
    fields.append(pa.field("contexts", pa.large_list(pa.from_numpy_dtype(log.contexts.dtype))))
    fields += [pa.field(name, values.type) for name, values in _extras(log).items()]
    return pa.schema(fields, metadata={KEY: json.dumps(meta).encode()})


def _table(number: int, first: int, episode: BehaviorLog, schema: pa.Schema) -> pa.Table:
    steps = episode.n_steps
    offsets = pa.array(episode.step_offsets * episode.n_features)
    lists = pa.LargeListArray.from_arrays(offsets, pa.array(episode.contexts.reshape(-1)))
    columns = [pa.array(np.full(steps, number)), pa.array(np.arange(first, first + steps)), pa.array(episode.chosen)]
    columns += [pa.array(np.diff(episode.step_offsets)), lists, *_extras(episode).values()]
    return pa.Table.from_arrays([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _extras(log: BehaviorLog) -> dict[str, pa.Array]:
    both = {"timestamp": log.timestamps, "step_id": log.step_ids}
    return {name: pa.array(values) for name, values in both.items() if values is not None}


# -- one row per candidate -------------------------------------------------------------------------------------------


def long_schema(log: BehaviorLog) -> pa.Schema:
    """The schema of `long_tables`; features without a name are called x0, x1, ..."""
    names = log.feature_names or tuple(f"x{place}" for place in range(log.n_features))
    roles = {"episode": "episode", "step": "step", "chosen": "chosen"}
    roles |= {name: name for name in _extras(log)}
    # A feature may be called as a column of ours is, or as one by which the other form is recognised.
    taken = {*roles.values(), "contexts", "n_candidates"}
    features = [f"feature {name}" if name in taken else name for name in names]
    meta = {"version": VERSION, "features": features, "feature_names": log.feature_names, "roles": roles}
    fields = [pa.field("episode", pa.int64()), pa.field("step", pa.int64()), pa.field("chosen", pa.bool_())]
    fields += [pa.field(name, values.type) for name, values in _extras(log).items()]
    fields += [pa.field(name, pa.from_numpy_dtype(log.contexts.dtype)) for name in features]
    return pa.schema(fields, metadata={KEY: json.dumps(meta).encode()})


def long_tables(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[pa.Table]:
    """The parts of a log with one row per candidate."""
    before, first = None, 0
    for number, part in parts:
        first = first if number == before else 0
        counts = np.diff(part.step_offsets)
        flags = np.zeros(part.n_rows, dtype=bool)
        flags[part.chosen_rows] = True
        owner = np.repeat(np.arange(part.n_steps), counts)
        columns = [pa.array(np.full(part.n_rows, number)), pa.array(first + owner), pa.array(flags)]
        columns += [values.take(pa.array(owner)) for values in _extras(part).values()]
        columns += [pa.array(np.ascontiguousarray(column)) for column in part.contexts.T]
        yield pa.Table.from_arrays(columns, schema=long_schema(part))
        before, first = number, first + part.n_steps
