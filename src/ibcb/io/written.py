"""Tables that we write, one after the other: a log with one row per candidate, or answers; and what we say of a log.

That stands in the metadata of the schema, and is looked at when the file is read.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ibcb.io.files import atomic
from ibcb.io.sources import kept_features, refuse_keep, refuse_one_hot
from ibcb.io.words import listed, note, refusal
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.read_options import ROLES, ReadOptions
from ibcb.log.recipe import Preparation
from ibcb.numerics.printable import shown

#: schema metadata of files that we wrote
KEY = b"ibcb"
VERSION = 1
_MOST_FEATURES = 2**31


class Written(NamedTuple):
    """What we wrote about a file; None where nothing was."""

    n_features: int | None = None
    feature_names: tuple[str, ...] | None = None
    preparation: Preparation | None = None
    #: with a row per candidate: the columns of the features, and of the roles
    features: tuple[str, ...] | None = None
    roles: tuple[tuple[str, str], ...] = ()
    #: with a row per step: whether only the numbers that are not 0 are there
    sparse: bool = False
    #: what a reader should know of it
    notes: tuple[Note, ...] = ()

    def recipe(self, names: tuple[str, ...] | None) -> Preparation | None:
        """How these of the features were made, if that was stored."""
        return None if self.preparation is None or names is None else self.preparation.only(names)


def metadata(schema: pa.Schema) -> Written:
    """What we wrote about the file, or nothing; also where its columns are others by now."""
    try:
        meta = json.loads((schema.metadata or {}).get(KEY, b"{}"))
    except (ValueError, RecursionError):
        meta = {"version": None}
    meta = meta if isinstance(meta, dict) else {"version": None}
    for key, (usual, is_sound) in _PARTS.items():
        if not is_sound(meta.setdefault(key, usual)):
            raise _damaged(f"{key} {shown(meta[key])}")
        if key == "version" and meta[key] > VERSION:
            raise refusal("written-later", version=meta[key], known=VERSION)
    if meta["sparse"] and meta["n_features"] is None:
        raise _damaged("sparse True")
    names, features = (None if meta[key] is None else tuple(meta[key]) for key in ("feature_names", "features"))
    absent = [name for name in (*(features or ()), *meta["roles"].values()) if name not in schema.names]
    if absent:
        return Written(notes=(note("rewritten-columns", "warning", columns=tuple(absent)),))
    try:
        made = meta.get("preparation")
        preparation = None if made is None else Preparation.from_json(made)
    except ValueError:
        raise _damaged("preparation") from None
    if preparation is not None and names is not None and preparation.feature_names != names:
        raise _damaged("preparation makes other features than feature_names has")
    count = meta["n_features"] if features is None else len(features)
    if names is not None and count is not None and len(names) != count:
        raise _damaged(f"{plural(len(names), 'name')} of {plural(count, 'feature')}")
    return Written(meta["n_features"], names, preparation, features, tuple(meta["roles"].items()), meta["sparse"])


def _are_names(names: Any) -> bool:
    return names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))


def _are_roles(roles: Any) -> bool:
    return isinstance(roles, dict) and all(role in ROLES and isinstance(name, str) for role, name in roles.items())


def _is_count(number: Any) -> bool:
    return number is None or (type(number) is int and 0 < number < _MOST_FEATURES)


#: what stands in the metadata: its usual value, and whether another can be right
_PARTS: dict[str, tuple[Any, Callable[[Any], bool]]] = {
    "version": (VERSION, lambda version: type(version) is int),
    "n_features": (None, _is_count),
    "feature_names": (None, _are_names),
    "features": (None, _are_names),
    "roles": ({}, _are_roles),
    "sparse": (False, lambda sparse: type(sparse) is bool),
}


def _damaged(what: str) -> LogFormatError:
    return LogFormatError(f"the metadata under the key 'ibcb' is damaged ({what}); write the log again.")


def selected(
    names: tuple[str, ...] | None, options: ReadOptions, columns: Sequence[str]
) -> tuple[tuple[str, ...] | None, NDArray[np.int64] | None]:
    """Names and places of the features to read of a log that we wrote; None: all of them.

    What is to be dropped may also be one of the other ``columns``.
    """
    drop = [name for name in options.drop if name not in columns]
    unnamed = " and have no names" if names is None else f" ({listed(names)})"
    refuse_one_hot(options, f"the features of this log are numbers{unnamed}. Encode columns when the log is converted")
    refuse_keep(options, f"every feature of this log is read{unnamed}. Keep columns when the log is converted")
    if names is not None:
        return kept_features(names, replace(options, drop=drop))
    if drop:
        raise refusal("written-no-drop", name=drop[0], unnamed=unnamed)
    if options.features is not None:
        raise refusal("written-no-names", features=options.features)
    return None, None


# -- writing -----------------------------------------------------------------------------------------------------------


def own_metadata(log: BehaviorLog, **more: Any) -> dict[bytes, bytes]:
    """What we write about a log ourselves into the metadata of a schema; see `ibcb.io.written`."""
    made = None if log.preparation is None else log.preparation.to_json()
    about = {"version": VERSION, "feature_names": log.feature_names, "preparation": made}
    return {KEY: json.dumps(about | more).encode()}


def extras(log: BehaviorLog) -> dict[str, pa.Array]:
    """The columns that not every log has."""
    both = {"timestamp": log.timestamps, "step_id": log.step_ids}
    return {name: pa.array(values) for name, values in both.items() if values is not None}


def _schema(log: BehaviorLog) -> pa.Schema:
    """The schema of `long_tables`; features without a name are called x0, x1, ..."""
    names = log.feature_names or tuple(f"x{place}" for place in range(log.n_features))
    more = {name: values.type for name, values in extras(log).items()}
    more |= {} if log.propensities is None else {"propensity": pa.float64()}
    roles = {name: name for name in ("episode", "step", "chosen", *more)}
    # A feature may be called as a column of ours is, or as one by which the other form is recognised.
    features = [f"feature {name}" if name in {*roles, "contexts", "n_candidates"} else name for name in names]
    kind = pa.from_numpy_dtype(log.contexts.dtype)
    kinds = {"episode": pa.int64(), "step": pa.int64(), "chosen": pa.bool_()} | more
    fields = [*kinds.items(), *((name, kind) for name in features)]
    return pa.schema(fields, metadata=own_metadata(log, features=features, roles=roles))


def long_tables(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[pa.Table]:
    """The parts of a log, whose contexts are dense, with one row per candidate."""
    before, first = None, 0
    for number, part in parts:
        first = first if number == before else 0
        flags = np.zeros(part.n_rows, dtype=bool)
        flags[part.chosen_rows] = True
        owner = np.repeat(np.arange(part.n_steps), np.diff(part.step_offsets))
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
            writer = writer or opened(table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


class TableWriter:
    """Writes tables of one schema to an open file, as CSV or as Parquet; `begin` again writes it anew."""

    def __init__(self, file: IO[bytes], *, parquet: bool = False) -> None:
        self._file, self._parquet = file, parquet
        self._writer: Any = None

    def begin(self) -> Callable[[pa.Table], None]:
        """What writes a table."""
        if self._writer is not None:
            self.close()
            self._writer = None
            self._file.seek(0)
            self._file.truncate()
        return self.write

    def write(self, table: pa.Table) -> None:
        """One more; the names of the columns stand before the first."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema) if self._parquet else pacsv
            if not self._parquet:
                self._file.write((",".join(table.column_names) + "\n").encode())
        if self._parquet:
            self._writer.write_table(table)
        else:
            pacsv.write_csv(table, self._file, pacsv.WriteOptions(include_header=False, quoting_style="needed"))

    def close(self) -> None:
        """With the end that the format has; the file stays open."""
        if self._parquet and self._writer is not None:
            self._writer.close()


@contextlib.contextmanager
def table_file(path: str | os.PathLike[str]) -> Iterator[TableWriter]:
    """A .csv or .parquet file to write, which appears whole or not at all."""
    parquet = Path(path).suffix.lower() == ".parquet"
    with (
        atomic(path) as temporary,
        temporary.open("wb") as file,
        contextlib.closing(TableWriter(file, parquet=parquet)) as writer,
    ):
        yield writer
