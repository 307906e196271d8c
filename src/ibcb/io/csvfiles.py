"""CSV and TSV files as tables: their delimiter, the types of their columns, and what is wrong with them, in words."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from ibcb.io.columns import normal_name
from ibcb.io.format import Format, Tables, has_suffix
from ibcb.io.opened import Opened, refuse_disguise
from ibcb.io.words import refusal
from ibcb.io.written import long_tables, write_tables
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError
from ibcb.log.read_options import ROLES, ReadOptions
from ibcb.numerics.printable import shown

#: rows may not be longer than a block, which is this, or less where memory is scarce
_CSV_BLOCK, _LEAST_BLOCK = 1 << 24, 1 << 20
_HEADER = 1 << 16
_NAMING = ("step", "step_id")
_WORDS = {
    "double": "number",
    "int64": "whole number",
    "bool": "boolean (true or false)",
    "timestamp[s]": "time",
    "date32": "date",
}


def _tables(path: Path, options: ReadOptions) -> Tables:
    """The rows of a CSV file, a block at a time; types are those of the first block."""
    opened = Opened(path)
    header = _header(opened)
    delimiter = options.delimiter or max(",;\t", key=header.count)
    # Values with line breaks must not be cut where a block ends.
    parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # Arrow reads some blocks ahead, and their numbers take several times their text.
    block = min(_CSV_BLOCK, max(_LEAST_BLOCK, options.memory // 64))

    @contextmanager
    def rows(convert: pacsv.ConvertOptions, threads: bool = True) -> Iterator[pacsv.CSVStreamingReader]:
        how = pacsv.ReadOptions(block_size=block, use_threads=threads)
        with _text(opened) as file, pacsv.open_csv(pa.PythonFile(file, "r"), how, parse, convert) as reader:
            yield reader

    @contextmanager
    def explained(convert: pacsv.ConvertOptions) -> Iterator[None]:
        """Damage in our words, with the row: only a reader without threads knows it."""
        try:
            yield
        except pa.ArrowInvalid as error:
            message = str(error)
            try:
                with rows(convert, threads=False) as reader:
                    deque(reader, maxlen=0)
            except pa.ArrowInvalid as again:
                message = str(again)
            raise _explained(message, header, delimiter, names, block) from None

    how = {"strings_can_be_null": True, "decimal_point": options.decimal}
    plain, names = pacsv.ConvertOptions(**how), list[str]()
    with explained(plain), rows(plain) as reader:
        schema = reader.schema
    names += schema.names
    if not options.columns and all(_is_number(name) for name in names):
        raise refusal("csv-no-header", names=names)
    types = _types(schema, options)

    def read(columns: Sequence[str]) -> Iterator[pa.Table]:
        convert = pacsv.ConvertOptions(column_types=types, include_columns=list(columns), **how)
        with explained(convert), rows(convert) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

    # Columns of the same name are refused later, as those of any table are.
    return Tables(path.name, pa.schema([field.with_type(types[field.name]) for field in schema]), read)


def _text(opened: Opened) -> BufferedIOBase:
    """The file, unpacked where it is called so."""
    return opened.text(has_suffix(opened.path, ".gz"))


def _header(opened: Opened) -> str:
    """The first line; a file that has none, or is no text, is refused."""
    with _text(opened) as file:
        head = file.read(_HEADER)
    refuse_disguise(head, "a CSV file")
    line = re.split(rb"[\r\n]", head.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n"), maxsplit=1)[0]
    if not line.strip():
        raise LogFormatError("the file is empty; a log has a row with the names of its columns, and rows below it.")
    try:
        # The first bytes may end within a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(line)
    except UnicodeDecodeError as error:
        raise refusal("csv-header-encoding", place=error.start, byte=line[error.start]) from None
    if "\0" in text:
        raise refusal("csv-header-null")
    return text


def _types(schema: pa.Schema, options: ReadOptions) -> dict[str, pa.DataType]:
    """The types to read columns as; those of the first block may be too narrow for the rest."""
    given = dict(options.columns) if options.preparation is None else dict(options.preparation.roles)
    # Of roles, those that are names rather than numbers.
    named = {name for role, name in given.items() if role != "propensity"}
    known = {name for role, names in ROLES.items() if role != "propensity" for name in names}
    steps = {given.get(role) for role in _NAMING} | {name for role in _NAMING for name in ROLES[role]}
    types = {}
    for field in schema:
        kind, normal = field.type, normal_name(field.name)
        empty, a_feature = pa.types.is_null(kind), field.name in (options.features or ())
        is_time = given.get("timestamp") == field.name or normal in ROLES["timestamp"]
        if pa.types.is_binary(kind) or (options.date_format is not None and is_time):
            # Text that is not UTF-8, which is said with its place when it is read; and times in a form that was given,
            # which need not be the one that they look like.
            kind = pa.string()
        elif not a_feature and (field.name in steps or normal in steps):
            # Numbers too large for an integer would lose digits, and with them what tells steps apart.
            kind = pa.string() if pa.types.is_floating(kind) or empty else kind
        elif a_feature or (normal not in known and field.name not in named):
            # Whole numbers in the first block may become fractions later on; those that name something stay whole.
            kind = pa.float64() if pa.types.is_integer(kind) or empty else kind
        types[field.name] = kind
    return types


def _explained(message: str, header: str, delimiter: str, names: list[str], block: int) -> LogFormatError:
    """What Arrow's reader says, with the column's name and a remedy."""
    ragged = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if ragged:
        row, expected, got = ragged.groups()
        return refusal(
            "csv-ragged", row=row or "?", values=got, header=shown(header, 40), expected=expected, delimiter=delimiter
        )
    value = re.search(r"column #(\d+): (?:Row #(\d+): )?CSV conversion error to ([^:]*): (.*)", message, re.DOTALL)
    if value:
        column, row, kind, what = value.groups()
        name = shown(names[int(column)]) if int(column) < len(names) else column
        place = f"row {row or '?'} (the header is row 1), column {name}"
        if "UTF8" in what:
            return LogFormatError(f"{place}: the text is not UTF-8; save the file as UTF-8.")
        text = shown(what.removeprefix("invalid value ").strip("'"))
        return refusal("csv-value", place=place, text=text, kind=_WORDS.get(kind, kind))
    if "straddling" in message:
        return refusal("csv-row-too-long", size=block)
    if "Empty CSV" in message:
        return LogFormatError(f"no row follows the header {shown(header)}; a log needs at least one.")
    return LogFormatError(f"not a readable CSV file ({shown(message)[1:-1]}); is it CSV? Write it again.")


def _is_number(name: str) -> bool:
    try:
        float(name or 0)
    except ValueError:
        return False
    return True


def _write(parts: Iterable[tuple[int, BehaviorLog]], path: Path) -> None:
    def opened(schema: pa.Schema) -> pacsv.CSVWriter:
        for name in schema.names:
            if name.startswith("feature "):
                raise refusal("csv-feature-name", name=name.removeprefix("feature "))
        return pacsv.CSVWriter(path, schema)

    def doubles(table: pa.Table) -> pa.Table:
        """The shortest text of a single is not that of the same number as a double, which is how it is read."""
        return table.cast(
            pa.schema([f.with_type({pa.float32(): pa.float64()}.get(f.type, f.type)) for f in table.schema])
        )

    write_tables(map(doubles, long_tables(parts)), opened)


FORMAT = Format(
    name="CSV file",
    suffixes=(".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    # Vowpal Wabbit's text, which may be called so, is asked first.
    looks_like=lambda source: has_suffix(source, ".dat", ".data", ".dat.gz", ".data.gz"),
    tables=_tables,
    write=_write,
    loses="the float type, missing feature names, and how the features were made",
)
