"""What the cells of a table hold: labels, whole numbers, marks, lists, and what we wrote about a file ourselves."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.memory import amount, beyond
from ibcb.log.recipe import Preparation
from ibcb.log.steps import ROLES

__all__ = [
    "KEY",
    "VERSION",
    "Stored",
    "as_texts",
    "check_digits",
    "check_size",
    "complete",
    "flags",
    "flattened",
    "is_list",
    "is_ours",
    "marked",
    "metadata",
    "named_by",
    "names_of",
    "one_array",
    "parsed_times",
    "plain_text",
    "sound",
    "time_of",
    "values_of",
    "whole_column",
]

#: schema metadata of files that we wrote
KEY = b"ibcb"
VERSION = 1

_YES = "true yes y t 1 on chosen selected ja j wahr oui vrai sí si verdadero sì vero sim verdadeiro tak да 是 はい"
_NO = "false no n f 0 off nein falsch non faux falso não nao nej nee nie нет 否 いいえ"
_FLAGS = dict.fromkeys(_YES.split(), True) | dict.fromkeys(_NO.split(), False)
#: marks that stand at the chosen candidate, where the others have nothing
_MARKS = ("x", "*", "✓", "✔")
_MOST_FEATURES = 2**31
#: bytes of a text in a cell that is read
_LONGEST_TEXT = 1 << 20
#: bytes of padding that texts may have in NumPy
_MUCH_TEXT = 1 << 24


class Stored(NamedTuple):
    """What we wrote about a file; None where nothing was."""

    n_features: int | None = None
    feature_names: tuple[str, ...] | None = None
    preparation: Preparation | None = None
    #: with a row per candidate: the columns of the features, and of the roles
    features: tuple[str, ...] | None = None
    roles: tuple[tuple[str, str], ...] = ()
    #: with a row per step: whether only the numbers that are not 0 are there
    sparse: bool = False


def metadata(schema: pa.Schema) -> Stored:
    """What we wrote about the file, or nothing."""
    try:
        meta = json.loads((schema.metadata or {}).get(KEY, b"{}"))
    except (ValueError, RecursionError):
        meta = None
    version = meta.get("version", VERSION) if isinstance(meta, dict) else None
    if type(version) is not int:
        raise _damaged(f"version {shown(version)}")
    if version > VERSION:
        raise LogFormatError(f"written in format version {version}; this ibcb reads up to {VERSION}. Upgrade ibcb.")
    n_features = meta.get("n_features")
    if n_features is not None and (type(n_features) is not int or not 0 < n_features < _MOST_FEATURES):
        raise _damaged(f"n_features {shown(n_features)}")
    preparation = meta.get("preparation")
    try:
        preparation = None if preparation is None else Preparation.from_json(preparation)
    except ValueError:
        raise _damaged("preparation") from None
    names, features = _names(meta, "feature_names"), _names(meta, "features")
    if preparation is not None and names is not None and preparation.feature_names != names:
        raise _damaged("preparation makes other features than feature_names has")
    count = n_features if features is None else len(features)
    if names is not None and count is not None and len(names) != count:
        raise _damaged(f"{plural(len(names), 'name')} of {plural(count, 'feature')}")
    roles = meta.get("roles", {})
    if not isinstance(roles, dict) or not all(r in ROLES and isinstance(name, str) for r, name in roles.items()):
        raise _damaged(f"roles {shown(roles)}")
    absent = [name for name in (*(features or ()), *roles.values()) if name not in schema.names]
    if absent:
        raise _damaged(f"it names a column {shown(absent[0])}, which is not there")
    sparse = meta.get("sparse", False)
    if type(sparse) is not bool or (sparse and n_features is None):
        raise _damaged(f"sparse {shown(sparse)}")
    return Stored(n_features, names, preparation, features, tuple(roles.items()), sparse)


def is_ours(path: Path) -> bool:
    """Whether a file is a log that we wrote, which has its own episodes."""
    suffix = path.suffix.lower()
    try:
        if suffix in (".parquet", ".pq"):
            schema = pq.read_schema(path)
        elif suffix in (".arrow", ".feather", ".ipc"):
            with pa.memory_map(str(path)) as file:
                schema = pa.ipc.open_file(file).schema
        else:
            return suffix == ".npz"
    except (OSError, pa.ArrowException):
        return False
    return KEY in (schema.metadata or {})


def _names(meta: dict[str, Any], key: str) -> tuple[str, ...] | None:
    names = meta.get(key)
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise _damaged(f"{key} {shown(names)}")
    return None if names is None else tuple(names)


def _damaged(what: str) -> LogFormatError:
    return LogFormatError(f"the metadata under the key 'ibcb' is damaged ({what}); write the log again.")


def complete(table: pa.Table, name: str, row: int, *, optional: bool = False) -> pa.ChunkedArray:
    """A column that must have a value everywhere, if it is there; ``row`` is the number of the table's first row."""
    column = table[name]
    holes = pc.is_null(column, nan_is_null=True)
    if column.null_count or (pa.types.is_floating(column.type) and pc.any(holes).as_py()):
        at = row + pc.index(holes, True).as_py()
        raise LogFormatError(
            f"column {shown(name)} has {plural(pc.sum(holes).as_py(), 'missing value')}, the first in row {at} (from "
            f"0); fill it in, or leave the step out{', or the column (--drop)' if optional else ''}."
        )
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def named_by(table: pa.Table, name: str, row: int, *, optional: bool = False) -> pa.ChunkedArray:
    """A column that tells things apart: `complete`, and numbers in it must have kept all their digits."""
    column = complete(table, name, row, optional=optional)
    check_digits(column, name, row)
    return column


def check_digits(column: pa.ChunkedArray, name: str, row: int) -> None:
    """Refuse numbers beyond 2 ** 53 that are no integers: different ones may look the same."""
    if not pa.types.is_floating(column.type) or pa.types.is_float16(column.type):
        return
    large = pc.greater_equal(pc.abs(column), 2.0**53)
    if pc.any(large).as_py():
        at = pc.index(large, True).as_py()
        raise LogFormatError(
            f"column {shown(name)} holds {column[at].as_py()} in row {row + at} (from 0), of which not all digits are "
            "kept, so it cannot serve as a name; write names as text, in CSV with a letter before the digits."
        )


def values_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column as numpy, texts as str and times without zone, in UTC."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.int64() if column.type.scale == 0 else pa.float64())
    array: NDArray[Any] = column.to_numpy()
    if array.dtype == object and all(isinstance(value, str) for value in array):
        lengths = [len(text) for text in array]
        # NumPy makes all texts as long as the longest; a single long one would make an array of them huge.
        padded = 4 * max(lengths, default=0) * len(lengths)
        return array if padded > max(_MUCH_TEXT, 16 * sum(lengths)) else array.astype(np.str_)
    return array


def names_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """The names in a column, which may be missing: as texts then, and empty."""
    if column.null_count:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        column = pc.fill_null(column.cast(kind).cast(pa.string()), "")
    return values_of(column)


def whole_column(table: pa.Table, name: str, row: int) -> NDArray[np.int64]:
    """A column of whole numbers."""
    values = values_of(complete(table, name, row))
    if values.dtype.kind not in "iu":
        raise LogFormatError(
            f"column {shown(name)} holds {table.schema.field(name).type}; it must hold whole numbers. Store them as "
            "int64."
        )
    if values.dtype == np.uint64 and len(values) and int(values.max()) > np.iinfo(np.int64).max:
        raise LogFormatError(
            f"row {row + int(values.argmax())}: {shown(name)} is {values.max()}, too large for a position "
            "or a number; correct it, or leave the step out."
        )
    return values.astype(np.int64)


def marked(table: pa.Table, name: str, row: int) -> NDArray[np.bool_]:
    """True where a candidate is marked as chosen: by words, numbers, or an x where the others have nothing."""
    column = table[name]
    if column.null_count and pa.types.is_string(column.type):
        crosses = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(column)), value_set=pa.array(_MARKS))
        if pc.all(pc.or_(crosses, pc.is_null(column))).as_py():
            return np.asarray(crosses.to_numpy())
    return flags(complete(table, name, row), name, row, "marks the chosen one")


def flags(column: pa.ChunkedArray, name: str, row: int, what: str) -> NDArray[np.bool_]:
    """Which values say yes; ``row`` is the number of the first row, and ``what`` the column does, for messages."""
    values: NDArray[Any] = values_of(column)
    if values.dtype == bool:
        return values
    if values.dtype.kind == "U":
        lower = np.char.lower(np.char.strip(values))
        found = np.isin(lower, [*(text for text, flag in _FLAGS.items() if flag), *_MARKS])
        wrong = ~(found | np.isin(lower, [*(text for text, flag in _FLAGS.items() if not flag), ""]))
    elif values.dtype.kind in "iuf":
        wrong, found = ~np.isin(values, (0, 1)), values == 1
    else:
        wrong, found = np.ones(len(values), dtype=bool), np.zeros(len(values), dtype=bool)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise LogFormatError(
            f"column {shown(name)} holds {shown(values[at])} in row {row + at} (from 0); with a row per candidate it "
            f"{what}: 1 or true there, 0 or false at the others."
        )
    return np.asarray(found)


def as_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values as text, so that the same id is the same whatever its type: 7, 7.0 and "7"."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif pa.types.is_floating(kind):
        # Beyond 2 ** 53 a float is no id.
        with contextlib.suppress(pa.ArrowInvalid):
            column = column.cast(pa.int64())
    elif pa.types.is_nested(kind):
        texts = [None if value is None else repr(value) for value in column.to_pylist()]
        return pa.array(texts, pa.string()) if isinstance(column, pa.Array) else pa.chunked_array([texts], pa.string())
    return column.cast(pa.string())


def parsed_times(column: pa.ChunkedArray, name: str, form: str, row: int) -> pa.Array:
    """Texts in a form as times in UTC; those without a zone are taken for UTC."""
    codes = one_array(as_texts(column)).dictionary_encode()
    times: list[np.datetime64] = []
    for text in codes.dictionary.to_pylist():
        try:
            times.append(time_of(text, form))
        except ValueError as error:
            at = row + pc.index(one_array(as_texts(column)), text).as_py()
            raise LogFormatError(
                f"column {shown(name)} holds {shown(text)} in row {at} (from 0), which is not a time as in "
                f"{shown(form)} ({error}); correct it, or date_format (--date-format)."
            ) from None
    known = pa.array(np.array(times, dtype="datetime64[us]"), pa.timestamp("us"))
    return known.take(codes.indices)


def time_of(text: str, form: str) -> np.datetime64:
    """A text in a form of `datetime.datetime.strptime` as time in UTC; ValueError where it is none."""
    time = datetime.strptime(text.strip(), form)
    return np.datetime64(time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None), "us")


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of lists, of whatever size."""
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def flattened(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """All entries of all lists, and each list's length."""
    return lists.flatten(), pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)


def check_size(table: pa.Table, memory: int) -> None:
    """Refuse a table whose cells would take more memory than there is: encoded, they may take next to none."""
    size = max(table.nbytes, 8 * table.num_rows * table.num_columns)
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            texts = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            if not _is_text(texts.type) or len(chunk) == 0:
                continue
            lengths = pc.fill_null(pc.binary_length(texts), 0)
            longest = pc.max(lengths).as_py() or 0
            if longest > _LONGEST_TEXT:
                raise LogFormatError(
                    f"column {shown(name)} holds a text of {longest} bytes, of at most {_LONGEST_TEXT}; shorten it, or "
                    "leave the column out (--drop)."
                )
            if texts is not chunk:
                size += pc.sum(lengths.take(chunk.indices).cast(pa.int64())).as_py() or 0
    if size > memory:
        raise beyond(f"{table.num_rows} rows of {plural(table.num_columns, 'column')} take {amount(size)}", memory)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def sound(table: pa.Table) -> pa.Table:
    """The table, unless offsets or texts in it are damaged: they would lead to memory that is not ours."""
    table.validate(full=True)
    return table


def plain_text(table: pa.Table) -> pa.Table:
    """The same table without string views, for which Arrow has few kernels."""
    for place, field in enumerate(table.schema):
        kind, column = field.type, table.column(place)
        if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
            chunks = [
                pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
                for chunk in column.chunks
            ]
            column = pa.chunked_array(chunks, pa.dictionary(kind.index_type, pa.string()))
        elif pa.types.is_string_view(kind):
            column = column.cast(pa.string())
        table = table.set_column(place, field.with_type(column.type), column)
    return table
