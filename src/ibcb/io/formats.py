"""Reading and writing logs: which format a path or object has, and one way through for all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ibcb.io.csvfiles import csv_tables
from ibcb.io.dsjson import DSJsonSource, looks_like_dsjson, write_dsjson
from ibcb.io.files import atomic, machine_memory, refuse_disguise
from ibcb.io.folders import folder_tables
from ibcb.io.npz import NpzSource, write_npz
from ibcb.io.openbandit import OpenBanditSource, looks_like_openbandit
from ibcb.io.parquet import long_tables, write_steps
from ibcb.io.tables import RowGroups, Tables, table_source
from ibcb.io.vw import VWSource, looks_like_vw, write_vw
from ibcb.log import BehaviorLog
from ibcb.log.arrays import LogFormatError, warmup_count
from ibcb.log.disk import DiskLog, named
from ibcb.log.steps import Reading, Source

__all__ = ["LOST", "WRITABLE", "DiskLog", "open_log", "read_log", "write_log"]

_WRITERS = {".npz": write_npz, ".vw": write_vw, ".dsjson": write_dsjson}
WRITABLE = (".parquet", ".arrow", ".csv", *_WRITERS)
#: what a format that is written cannot carry
LOST = {
    ".csv": "the float type, missing feature names, and how the features were made",
    ".dsjson": "the float type, and how the features were made",
    ".vw": "episodes, warm-up, times, ids, the float type, missing feature names, and how the features were made",
}

_TABLES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".arrow", ".ipc", ".feather")
#: bytes of a file that is read part by part
_LARGE = 1 << 28
_EMPTY = "the log is empty: it has no step. Is it the right file?"
#: numbers in memory at a time when a log is streamed
_STREAM_NUMBERS = 1 << 22


def read_log(source: Any, **options: Any) -> BehaviorLog:
    """Read a log from a file, a folder of files, or a table in memory.

    Parameters
    ----------
    source : path, or DataFrame
        Parquet, CSV or TSV (also gzipped) or Arrow IPC, or a folder of such files, read in the order of their names;
        or any object with the Arrow interface: a table of pandas, polars, DuckDB or pyarrow. Also NumPy archives
        (``.npz``), Vowpal Wabbit text (``.vw``), dsjson, and folders of the Open Bandit Dataset: see `ibcb.io.npz`,
        `ibcb.io.vw`, `ibcb.io.dsjson`, `ibcb.io.openbandit`.

        Two forms are understood. *One row per candidate* (long): columns that name the step and mark the chosen
        candidate, and the features. *One row per step*, as `write_log` writes: ``episode``, ``step``, ``chosen`` (the
        position, from 0), ``n_candidates`` and ``contexts``, a list of all candidates' features one after the other,
        or a list of such lists. Rows of a step stand together, steps in the order of time.
    columns : dict, optional
        Which column plays which role, where its name does not tell: episode, step, chosen, timestamp, step_id,
        candidate. ``{"step": "request"}``.
    features : list of str, optional
        The features to read, in this order; by default all columns that are left, but those without a name and those
        whose name says reward or propensity.
    drop : list of str
        Columns that are no features.
    one_hot : list of str, or True
        Columns of text to encode as one feature per value; True: all of them.
    missing : {"refuse", "mean", "zero"}
        What to do about missing numbers.
    episode_every : str, optional
        Cut episodes by time: "1d", "6h", "30min". Windows are counted from midnight, 1 January 1970, UTC; the steps
        of one stand before those of the next.
    episode_size : int, optional
        Cut episodes by number of steps.
    warmup : int, optional
        How many leading episodes were random. By default those with negative numbers.
    sort : bool
        Sort the rows by episode, time and step first; needs all of them in memory.
    delimiter, decimal : str
        Of CSV files; by default the delimiter is found in the header, and the decimal point is a point.
    choices : bool
        False: candidate sets without choices, for `predict`.
    preparation : Preparation, optional
        Make the features as for another log: ``model.preparation_``.

    Examples
    --------
    >>> import ibcb, pyarrow as pa
    >>> table = pa.table({
    ...     "batch": [0, 0, 0, 0, 1, 1], "request_id": ["a", "a", "b", "b", "c", "c"],
    ...     "picked": [True, False, False, True, True, False], "price": [1.0, 2.0, 3.0, 1.5, 2.5, 4.0],
    ... })
    >>> ibcb.read_log(table)
    BehaviorLog(2 episodes, 3 steps, 2 candidates each, 1 feature, float64)
    """
    return open_log(source, **options).read()


def open_log(source: Any, **options: Any) -> DiskLog:
    """A log that stays on disk: `ibcb.validate` and `write_log` go through it part by part.

    Takes what `read_log` takes. Nothing but the header is read yet.
    """
    unknown = [name for name in options if name not in Reading.__dataclass_fields__]
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; see help(ibcb.read_log).")
    reading = Reading(**options)
    if not isinstance(source, (str, os.PathLike)) and not hasattr(source, "__arrow_c_stream__"):
        lazy = "; collect it first: read_log(frame.collect())" if callable(getattr(source, "collect", None)) else ""
        raise TypeError(
            "expected a path, or a table with the Arrow interface (pandas 2.2 or newer, polars, DuckDB, pyarrow); got "
            f"{type(source).__name__}{lazy}."
        )
    name = source_name(source)
    with named(name):
        where = (Path(source).absolute(), options) if isinstance(source, (str, os.PathLike)) else None
        return DiskLog(_open_source(source, reading), reading, where)


def write_log(log: BehaviorLog | DiskLog, path: str | os.PathLike[str], *, long: bool = False) -> None:
    """Write a log; the file appears whole or not at all. A log on disk goes through part by part.

    Parameters
    ----------
    log : BehaviorLog, or what `open_log` gave
    path : path
        The suffix tells the format. ``.parquet`` carries everything and is read fastest: one row per step, or with
        ``long=True`` one per candidate. ``.arrow`` and ``.csv`` have one row per candidate; CSV does not keep the float
        type, nor whether the features had names. ``.npz`` carries everything. ``.dsjson`` and ``.vw`` are for Vowpal
        Wabbit; `ibcb.io.LOST` tells what a format loses.
    """
    if not isinstance(log, (BehaviorLog, DiskLog)):
        raise TypeError(f"write_log takes a BehaviorLog or what open_log gave, got {type(log).__name__}.")
    suffix = Path(path).suffix.lower()
    if suffix == ".parquet" and not long:
        with atomic(path) as temporary:
            write_steps(_some_chosen(log), temporary)
    elif suffix in (".parquet", ".arrow", ".csv"):
        with atomic(path) as temporary:
            _write_long(_some_chosen(log), temporary, suffix)
    elif suffix in _WRITERS:
        with atomic(path) as temporary:
            _WRITERS[suffix](_some_chosen(log), temporary)
    else:
        raise LogFormatError(
            f"{Path(path).name}: a log cannot be written under that name; it must end in one of {', '.join(WRITABLE)}."
        )


def _some_chosen(log: BehaviorLog | DiskLog) -> Iterator[tuple[int, BehaviorLog]]:
    """The parts of a log; all episodes cannot be warm-up, which is known at the end only."""
    numbers: set[int] = set()
    for number, part in log.parts():
        numbers.add(number)
        yield number, part
    if max(numbers) < 0:
        with named(log.name if isinstance(log, DiskLog) else "the log"):
            warmup_count(len(numbers), len(numbers))


def _write_long(parts: Iterator[tuple[int, BehaviorLog]], path: Path, suffix: str) -> None:
    writer: Any = None
    try:
        for table in long_tables(parts):
            if suffix == ".csv":
                # The shortest text of a single is not that of the same number as a double, which is how it is read.
                table = table.cast(pa.schema([f.with_type(_double(f.type)) for f in table.schema]))
            if writer is None:
                if suffix == ".csv":
                    _check_csv_names(table.schema)
                    writer = pacsv.CSVWriter(path, table.schema)
                elif suffix == ".arrow":
                    writer = pa.ipc.new_file(path, table.schema)
                else:
                    writer = pq.ParquetWriter(path, table.schema, write_page_checksum=True)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _double(kind: pa.DataType) -> pa.DataType:
    return pa.float64() if kind == pa.float32() else kind


def _check_csv_names(schema: pa.Schema) -> None:
    own = [name for name in schema.names if name.startswith("feature ")]
    if own:
        raise LogFormatError(
            f"a feature is called {own[0].removeprefix('feature ')!r}, which is a column of its own in CSV; rename it, "
            "or write Parquet."
        )


# -- where tables come from ------------------------------------------------------------------------------------------


def _open_source(source: Any, reading: Reading) -> Source:
    if not isinstance(source, (str, os.PathLike)):
        return table_source(_from_object(source), reading)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a log.")
    if not path.is_file() and not path.is_dir():
        raise LogFormatError("a pipe or device, which can be read only once; save what it gives to a file first.")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"{path} cannot be read: no permission. Ask its owner for it.")
    if looks_like_openbandit(path):
        return OpenBanditSource(path, reading)
    if path.is_dir():
        return table_source(_from_folder(path, reading), reading)
    kind = path.suffix.lower()
    if kind == ".npz":
        return NpzSource(path, reading)
    if kind == ".vw" or (kind == ".txt" and looks_like_vw(path)):
        return VWSource(path, reading)
    if kind == ".dsjson" or (kind in (".json", ".jsonl", ".ndjson") and looks_like_dsjson(path)):
        return DSJsonSource(path, reading)
    return table_source(_from_file(path, reading), reading)


def source_name(source: Any) -> str:
    """What to call a source in messages."""
    return Path(source).name if isinstance(source, (str, os.PathLike)) else f"the {type(source).__name__}"


def _from_object(source: Any) -> Tables:
    table = pa.table(source)
    table = table.select([name for name in table.column_names if not name.startswith("__index_level_")])
    table = _plain_text(table)
    return Tables(source_name(source), table.schema, lambda columns, whole: iter([table.select(list(columns))]))


def _from_file(path: Path, reading: Reading) -> Tables:
    kind = _suffix(path)
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise LogFormatError("the path has a character that is not UTF-8; rename the file.") from None
    if kind in (".parquet", ".pq"):
        return _parquet(path)
    if kind in (".arrow", ".ipc", ".feather"):
        return _ipc(path)
    if kind in (".csv", ".tsv", ".csv.gz", ".tsv.gz"):
        return csv_tables(path, reading)
    known = ", ".join((*_TABLES, ".npz", ".vw", ".dsjson"))
    raise LogFormatError(f"the format is not known by the name; it must end in one of {known}.")


def _suffix(path: Path) -> str:
    return next((kind for kind in sorted(_TABLES, key=len, reverse=True) if path.name.lower().endswith(kind)), "")


def _parquet(path: Path) -> Tables:
    refuse_disguise(_beginning(path), "a Parquet file")
    # Unbuffered reads would hold all of a column chunk, which in a file of one row group is all of the file.
    file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False, buffer_size=1 << 20)
    schema = file.schema_arrow
    rows, leaves = file.metadata.num_rows, file.metadata.num_columns
    size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    # Encoded values can be smaller than numbers in memory; lists hold many per row.
    per_row = max(leaves, size / max(rows, 1) / 4)
    batch = max(1, int(_STREAM_NUMBERS / per_row))

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        tables: Iterator[pa.Table]
        if whole:
            # Arrow takes memory for as many rows as the file says that it has, before it has seen one.
            _check_memory(pa.schema([schema.field(name) for name in columns]), rows)
            options = {"page_checksum_verification": True, "partitioning": None}
            tables = iter([pq.read_table(path, columns=list(columns), **options)])
        else:
            tables = (pa.Table.from_batches([part]) for part in file.iter_batches(batch, columns=list(columns)))
        found = 0
        for table in tables:
            found += table.num_rows
            yield _sound(table)
        if found != rows:
            raise LogFormatError(
                f"the file says that it has {rows} rows, but {found} are there; it is damaged. Copy or write it again."
            )

    def sizes(column: str) -> list[tuple[int, Any]]:
        # From the column itself: the statistics of a damaged file end the process.
        found: list[tuple[int, Any]] = []
        for i in range(file.metadata.num_row_groups):
            values = pc.unique(_sound(file.read_row_group(i, columns=[column])).column(0))
            found.append((file.metadata.row_group(i).num_rows, values[0].as_py() if len(values) == 1 else None))
        return found

    def some(columns: Sequence[str], numbers: Sequence[int]) -> Iterator[pa.Table]:
        for part in file.iter_batches(batch, row_groups=list(numbers), columns=list(columns)):
            yield _sound(pa.Table.from_batches([part]))

    return Tables(path.name, schema, read, RowGroups(sizes, some))


def _ipc(path: Path) -> Tables:
    refuse_disguise(_beginning(path), "an Arrow file")

    def opened() -> Any:
        try:
            return pa.ipc.open_file(pa.memory_map(str(path)))
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(path)))

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        reader = opened()
        stream = (
            (reader.get_batch(i) for i in range(reader.num_record_batches))
            if hasattr(reader, "get_batch")
            else iter(reader)
        )
        for batch in stream:
            yield _plain_text(_sound(pa.Table.from_batches([batch]).select(list(columns))))

    return Tables(path.name, _plain_text(opened().schema.empty_table()).schema, read)


def _plain_text(table: pa.Table) -> pa.Table:
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


def _check_memory(schema: pa.Schema, rows: int) -> None:
    size = rows * sum(_width(field.type) for field in schema)
    if size > machine_memory():
        raise LogFormatError(
            f"the file says that it has {rows} rows, {size} bytes at least; this machine's memory has "
            f"{machine_memory()}. Go through it part by part (validate, convert), or is the file damaged?"
        )


def _width(kind: pa.DataType) -> int:
    """Bytes of a value, at least: of texts and lists only where they begin."""
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 4


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


def _sound(table: pa.Table) -> pa.Table:
    """The table, unless offsets or texts in it are damaged: they would lead to memory that is not ours."""
    table.validate(full=True)
    return table


def _from_folder(folder: Path, reading: Reading) -> Tables:
    """All files of one format under a folder, in the order of their names."""
    files = sorted((path for path in folder.rglob("*") if path.is_file() and _suffix(path)), key=_natural)
    files = [path for path in files if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)]
    if not files:
        raise LogFormatError(f"the folder holds no log; files must end in one of {', '.join(_TABLES)}.")
    kinds = sorted({_suffix(path) for path in files})
    if len(kinds) > 1:
        raise LogFormatError(f"the folder holds files of several formats ({', '.join(kinds)}); keep one of them.")
    return folder_tables(folder, files, lambda path: _from_file(path, reading), reading)


def _natural(path: Path) -> list[Any]:
    """part-2 before part-10."""
    return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in re.split(r"(\d+)", str(path))]
