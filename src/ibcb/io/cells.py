"""What the cells of a table hold: labels, whole numbers, marks, lists, objects, texts."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ibcb.io.words import refusal
from ibcb.io.written import KEY
from ibcb.log.array_checks import first_true, plural
from ibcb.log.memory import amount, beyond
from ibcb.numerics.printable import shown

_YES = "true yes y t 1 on chosen selected ja j wahr oui vrai sí si verdadero sì vero sim verdadeiro tak да 是 はい"
_NO = "false no n f 0 off nein falsch non faux falso não nao nej nee nie нет 否 いいえ"
#: marks that stand at the chosen candidate, where the others have nothing
_MARKS = ("x", "*", "✓", "✔")
#: bytes of a text in a cell that is read
_LONGEST_TEXT = 1 << 20
#: bytes of padding that texts may have in NumPy
_MUCH_TEXT = 1 << 24


# -- types -------------------------------------------------------------------------------------------------------------


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of lists, of whatever size."""
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type is a feature as it is."""
    known = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in known)


def is_quantity(kind: pa.DataType) -> bool:
    """Whether a column holds numbers, and not yes and no."""
    return is_number(kind) and not pa.types.is_boolean(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds texts, encoded by a dictionary or not."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def shown_type(kind: pa.DataType) -> str:
    """A type as messages show it."""
    return shown(str(kind))[1:-1]


def is_ours(path: Path) -> bool:
    """Whether a file is a log that we wrote, which has its own episodes."""
    suffix, metadata = path.suffix.lower(), None
    with contextlib.suppress(OSError, pa.ArrowException):
        if suffix in (".parquet", ".pq"):
            metadata = pq.read_schema(path).metadata
        elif suffix in (".arrow", ".feather", ".ipc"):
            with pa.memory_map(str(path)) as file:
                metadata = pa.ipc.open_file(file).schema.metadata
    return suffix == ".npz" or KEY in (metadata or {})


# -- columns -----------------------------------------------------------------------------------------------------------


def complete(table: pa.Table, name: str, row: int, *, optional: bool = False) -> pa.ChunkedArray:
    """A column that must have a value everywhere, if it is there; ``row`` is the number of the table's first row."""
    column = table[name]
    holes = pc.is_null(column, nan_is_null=True)
    if column.null_count or (pa.types.is_floating(column.type) and pc.any(holes).as_py()):
        at = row + pc.index(holes, True).as_py()
        count, more = pc.sum(holes).as_py(), ", or the column (--drop)" if optional else ""
        raise refusal("value-missing", name=name, holes=count, row=at, more=more)
    return decoded(column)


def decoded(column: pa.Array | pa.ChunkedArray) -> Any:
    """The values of a column, whether or not they are encoded by a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def as_text(column: pa.Array | pa.ChunkedArray) -> Any:
    """Values as Arrow writes them."""
    return decoded(column).cast(pa.string())


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
        raise refusal("digits-lost", name=name, value=column[at].as_py(), row=row + at)


def values_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column as numpy, texts as str and times without zone, in UTC."""
    column = decoded(column)
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
    return values_of(pc.fill_null(as_text(column), "") if column.null_count else column)


def whole_column(table: pa.Table, name: str, row: int) -> NDArray[np.int64]:
    """A column of whole numbers."""
    values = values_of(complete(table, name, row))
    if values.dtype.kind not in "iu":
        raise refusal("not-whole", name=name, kind=table.schema.field(name).type)
    if values.dtype == np.uint64 and len(values) and int(values.max()) > np.iinfo(np.int64).max:
        raise refusal("whole-too-large", row=row + int(values.argmax()), name=name, value=values.max())
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
        marks = np.isin(lower, [*_YES.split(), *_MARKS])
        wrong = ~(marks | np.isin(lower, [*_NO.split(), ""]))
    elif values.dtype.kind in "iuf":
        marks, wrong = values == 1, ~np.isin(values, (0, 1))
    else:
        marks, wrong = np.zeros(len(values), dtype=bool), np.ones(len(values), dtype=bool)
    if (at := first_true(wrong)) is not None:
        raise refusal("mark-unknown", name=name, value=values[at], row=row + at, what=what)
    return np.asarray(marks)


def as_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values as text, so that the same id is the same whatever its type: 7, 7.0 and "7"."""
    kind = column.type
    if pa.types.is_floating(kind):
        # Beyond 2 ** 53 a float is no id.
        with contextlib.suppress(pa.ArrowInvalid):
            column = column.cast(pa.int64())
    elif pa.types.is_nested(kind):
        texts = [None if value is None else repr(value) for value in column.to_pylist()]
        return pa.array(texts, pa.string()) if isinstance(column, pa.Array) else pa.chunked_array([texts], pa.string())
    return as_text(column)


def changes(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Whether each value but the first is another than the one before it."""
    differ: NDArray[np.bool_] = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
    return differ


def as_objects(values: pa.Array | pa.ChunkedArray) -> NDArray[np.object_]:
    """Values as texts in NumPy, None where one is missing."""
    return np.array(as_texts(values).to_pylist(), dtype=object)


def value_counts(texts: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    """How often each text stands there; missing ones are left out."""
    return {each["values"]: each["counts"] for each in texts.drop_null().value_counts().to_pylist()}


def plain_values(values: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Some values of a column as floats, nan where one is missing."""
    if pa.types.is_boolean(values.type) or pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array.astype(dtype, copy=False)


def parsed_times(column: pa.ChunkedArray, name: str, form: str, row: int) -> pa.Array:
    """Texts in a form as times in UTC; those without a zone are taken for UTC."""
    texts = one_array(as_texts(column))
    codes, times = texts.dictionary_encode(), list[np.datetime64]()
    for text in codes.dictionary.to_pylist():
        try:
            times.append(time_of(text, form))
        except ValueError as error:
            at = row + pc.index(texts, text).as_py()
            raise refusal("time-unknown", name=name, text=text, row=at, form=form, error=error) from None
    return pa.array(np.array(times, dtype="datetime64[us]"), pa.timestamp("us")).take(codes.indices)


def time_of(text: str, form: str) -> np.datetime64:
    """A text in a form of `datetime.datetime.strptime` as time in UTC; ValueError where it is none."""
    time = datetime.strptime(text.strip(), form)
    return np.datetime64(time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None), "us")


# -- lists and objects -------------------------------------------------------------------------------------------------


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def flattened(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """All entries of all lists, and each list's length."""
    return lists.flatten(), pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)


def flat(table: pa.Table) -> pa.Table:
    """The table with objects within objects as columns with a dot."""
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


# -- whole tables ------------------------------------------------------------------------------------------------------


def within(table: pa.Table, memory: int) -> pa.Table:
    """The table; refused is one whose cells would take more memory than there is: encoded, they may take little."""
    size = max(table.nbytes, 8 * table.num_rows * table.num_columns)
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            texts = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            binary = pa.types.is_binary(texts.type) or pa.types.is_large_binary(texts.type)
            if not (binary or is_text(texts.type)) or len(chunk) == 0:
                continue
            lengths = pc.fill_null(pc.binary_length(texts), 0)
            longest = pc.max(lengths).as_py() or 0
            if longest > _LONGEST_TEXT:
                raise refusal("text-too-long", name=name, size=longest, most=_LONGEST_TEXT)
            if texts is not chunk:
                size += pc.sum(lengths.take(chunk.indices).cast(pa.int64())).as_py() or 0
    if size > memory:
        raise beyond(f"{table.num_rows} rows of {plural(table.num_columns, 'column')} take {amount(size)}", memory)
    return table


def sound(table: pa.Table) -> pa.Table:
    """The table, unless offsets or texts in it are damaged: they would lead to memory that is not ours."""
    table.validate(full=True)
    return table


def plain_table(table: pa.Table) -> pa.Table:
    """The same table without views of texts and lists and runs of equal values, for which Arrow has few kernels."""
    for place, field in enumerate(table.schema):
        column = _plain_column(table.column(place))
        table = table.set_column(place, field.with_type(column.type), column)
    return table


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        return _plain_column(pc.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return column.cast(pa.large_list(kind.value_type))
    if not (pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type)):
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string())) for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(kind.index_type, pa.string()))
