"""Logs as Parquet, one row per step.

Columns: ``episode`` (negative for the warm-up, then 0, 1, ...), ``step`` (counted from 0 within the episode),
``chosen``, ``n_candidates``, ``contexts`` (the candidates' features, one after the other), and where the log has them
``timestamp`` and ``step_id``. The number of features, their names and the format's version are in the schema metadata
under the key ``ibcb``. Each episode is a row group of its own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ibcb.io.files import atomic
from ibcb.log import BehaviorLog, LogFormatError

__all__ = ["read_log", "write_log"]

_KEY = b"ibcb"
_VERSION = 1
_WHOLE = ("episode", "step", "chosen", "n_candidates")


def write_log(log: BehaviorLog, path: str | os.PathLike[str]) -> None:
    """Write a log as Parquet; the file appears whole or not at all."""
    if not isinstance(log, BehaviorLog):
        raise TypeError(f"write_log takes a BehaviorLog, got {type(log).__name__}.")
    _check_suffix(path)
    meta = {"version": _VERSION, "n_features": log.n_features, "feature_names": log.feature_names}
    extras = {name: pa.array(values) for name, values in _extras(log).items()}
    fields = [pa.field(name, pa.int64()) for name in _WHOLE]
    fields.append(pa.field("contexts", pa.large_list(pa.from_numpy_dtype(log.contexts.dtype))))
    fields += [pa.field(name, values.type) for name, values in extras.items()]
    schema = pa.schema(fields, metadata={_KEY: json.dumps(meta).encode()})
    with atomic(path) as temporary, pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer:
        first = 0
        for number, (_, episode) in enumerate(log.episodes(), start=-log.warmup):
            steps = episode.n_steps
            offsets = pa.array(episode.step_offsets * log.n_features)
            lists = pa.LargeListArray.from_arrays(offsets, pa.array(episode.contexts.reshape(-1)))
            columns = [pa.array(np.full(steps, number)), pa.array(np.arange(steps)), pa.array(episode.chosen)]
            columns += [pa.array(np.diff(episode.step_offsets)), lists]
            columns += [values.slice(first, steps) for values in extras.values()]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=steps)
            first += steps


def read_log(path: str | os.PathLike[str]) -> BehaviorLog:
    """Read a log from Parquet: one row per step, in order.

    Columns: ``episode`` (0, 1, ...; negative for a random start that the policy did not choose), ``step`` (rising
    within an episode), ``chosen`` (position of the chosen candidate, from 0), ``n_candidates``, and ``contexts``, a
    list of the candidates' features one after the other: n_candidates times d numbers. `write_log` writes this form.
    """
    name = Path(path).name
    _check_suffix(path, reading=True)
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a log.")
    try:
        return _assemble(pq.read_table(path, page_checksum_verification=True))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogFormatError(f"{name}: not a readable Parquet file ({error}).") from None
    except (LogFormatError, TypeError) as error:
        raise LogFormatError(f"{name}: {error}") from None


def _assemble(table: pa.Table) -> BehaviorLog:
    for column in (*_WHOLE, "contexts"):
        if column not in table.column_names:
            raise LogFormatError(
                f"column {column!r} is missing; a log has {', '.join(_WHOLE)}, contexts and this file has "
                f"{', '.join(table.column_names) or 'no columns'}."
            )
    meta = _metadata(table)
    episode, step, chosen, counts = (_whole_column(table, column) for column in _WHOLE)
    if len(chosen) == 0:
        raise LogFormatError("the log is empty: it has no step.")
    values, lengths = _context_column(table)
    d = int(meta.get("n_features") or (lengths[0] // max(int(counts[0]), 1)))
    wrong = np.flatnonzero(lengths != counts * d)
    if len(wrong):
        row = int(wrong[0])
        raise LogFormatError(
            f"row {row}: contexts has {lengths[row]} numbers but {counts[row]} candidates of {d} features need "
            f"{counts[row] * d}."
        )
    if (np.diff(episode) < 0).any():
        row = int(np.argmax(np.diff(episode) < 0)) + 1
        raise LogFormatError(f"row {row}: episode {episode[row]} follows {episode[row - 1]}; sort the rows by episode.")
    still = np.flatnonzero((np.diff(episode) == 0) & (np.diff(step) <= 0))
    if len(still):
        row = int(still[0]) + 1
        raise LogFormatError(
            f"row {row}: step {step[row]} of episode {episode[row]} follows step {step[row - 1]}; sort the rows by "
            "episode and step, and keep one row per step."
        )
    edges = np.concatenate([[0], np.flatnonzero(np.diff(episode)) + 1, [len(episode)]])
    extras = {column: table[column].to_numpy() for column in ("timestamp", "step_id") if column in table.column_names}
    return BehaviorLog(
        values.reshape(-1, d),
        np.concatenate([[0], np.cumsum(counts)]),
        chosen,
        edges,
        warmup=int(np.count_nonzero(episode[edges[:-1]] < 0)),
        feature_names=meta.get("feature_names"),
        timestamps=extras.get("timestamp"),
        step_ids=extras.get("step_id"),
    )


def _metadata(table: pa.Table) -> dict[str, Any]:
    try:
        meta = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    except ValueError:
        meta = None
    version = meta.get("version", _VERSION) if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(version, int):
        raise LogFormatError(
            f"the metadata under the key 'ibcb' is damaged (version {version!r}); write the log again."
        )
    if version > _VERSION:
        raise LogFormatError(f"written in format version {version}; this ibcb reads up to {_VERSION}. Upgrade ibcb.")
    return meta


def _whole_column(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table[name]
    if column.null_count:
        raise LogFormatError(f"column {name!r} has {column.null_count} missing values.")
    if not pa.types.is_integer(column.type):
        raise LogFormatError(f"column {name!r} holds {column.type}; it must hold whole numbers.")
    values: NDArray[np.int64] = column.to_numpy().astype(np.int64)
    return values


def _context_column(table: pa.Table) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All numbers of all lists, and each list's length."""
    lists = table["contexts"].combine_chunks()
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise LogFormatError(f"column 'contexts' holds {lists.type}; it must hold lists of numbers.")
    if not (pa.types.is_floating(lists.type.value_type) or pa.types.is_integer(lists.type.value_type)):
        raise LogFormatError(f"column 'contexts' holds {lists.type}; it must hold lists of float32 or float64.")
    values = lists.flatten()
    if lists.null_count or values.null_count:
        raise LogFormatError("column 'contexts' has missing values; impute them or drop the steps.")
    return values.to_numpy(), np.diff(lists.offsets.to_numpy())


def _extras(log: BehaviorLog) -> dict[str, Any]:
    both = {"timestamp": log.timestamps, "step_id": log.step_ids}
    return {name: values for name, values in both.items() if values is not None}


def _check_suffix(path: str | os.PathLike[str], *, reading: bool = False) -> None:
    if Path(path).suffix.lower() != ".parquet":
        missing = " and this file does not exist" if reading and not Path(path).exists() else ""
        raise LogFormatError(
            f"{Path(path).name}: logs are kept as Parquet, under a name that ends in .parquet{missing}."
        )
