"""What formats yield and declare of themselves: Arrow tables that are read again and again, or a folder of such files.

`ibcb.io.formats` lists them, each of which has a module of its own.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ibcb.io.cells import shown_type
from ibcb.io.words import refusal
from ibcb.io.written import metadata
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError
from ibcb.log.disk import named, short_message
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.steps import Source
from ibcb.numerics.printable import shown

_Writer = Callable[[Iterable[tuple[int, BehaviorLog]], Path], None]


class Tables(NamedTuple):
    """Arrow tables to be read again and again: ``read(columns)`` gives all rows in order, a bounded number at a time.

    Columns in ``of_step`` are the same for all candidates of a step: features only where they are named. ``notes()``
    has what a reader should know of how the rows came about, complete once they have been read to the end.
    """

    name: str
    schema: pa.Schema
    read: Callable[[Sequence[str]], Iterable[pa.Table]]
    groups: RowGroups | None = None
    of_step: tuple[str, ...] = ()
    notes: Callable[[], tuple[Note, ...]] = tuple

    def numbered(self, columns: Sequence[str]) -> Iterator[tuple[pa.Table, int]]:
        """Some columns, part by part, each with the number of its first row."""
        row = 0
        for table in self.read(columns):
            yield table, row
            row += table.num_rows

    def noted(self, *notes: Note) -> Tables:
        """The same, with more to know of them."""
        return self._replace(notes=lambda: (*self.notes(), *notes))

    def derived(
        self,
        schema: pa.Schema,
        sources: Callable[[Sequence[str]], Sequence[str]],
        make: Callable[[pa.Table, Sequence[str], int], Any],
    ) -> Tables:
        """Tables of another schema: ``make(rows, names, row)`` makes columns of those that ``sources(names)`` names.

        ``row`` is the number of the first of these rows.
        """

        def read(columns: Sequence[str]) -> Iterator[pa.Table]:
            target = pa.schema([schema.field(name) for name in columns])
            for table, row in self.numbered(list(dict.fromkeys(sources(columns)))):
                made = make(table, columns, row)
                yield pa.table([made[name] for name in columns], schema=target)

        return self._replace(schema=schema, read=read, groups=None)

    def whole(self, memory: int) -> pa.Table:
        """All rows and columns in memory, of which there are so many bytes."""
        parts, size = [self.schema.empty_table()], 0
        for table, row in self.numbered(self.schema.names):
            parts.append(table)
            size += table.nbytes
            if size > memory:
                rows = row + table.num_rows
                raise beyond(f"the first {rows} rows, which are needed all at once, take {amount(size)}", memory)
        return pa.concat_tables(parts)


class RowGroups(NamedTuple):
    """Row groups of a Parquet file, to be read one by one.

    ``sizes(column)`` gives the rows of each and the value that the column has throughout it, None if it varies;
    ``read(columns, numbers)`` the rows of some of them, a bounded number at a time.
    """

    sizes: Callable[[str], list[tuple[int, Any]]]
    read: Callable[[Sequence[str], Sequence[int]], Iterable[pa.Table]]


def in_memory(name: str, table: pa.Table) -> Tables:
    """A table in memory as tables."""
    return Tables(name, table.schema, lambda columns: [table.select(list(columns))])


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of logs: how it is recognised, opened and written. It has either ``tables`` or ``open``.

    Attributes
    ----------
    name : str
        As messages have it: "not a readable Parquet file".
    tables : callable, optional
        The rows of a source that is a table: of a path that exists, or of an object in memory. Which layout they have
        is no matter of a format. A folder may hold many files of it.
    open : callable, optional
        The steps of a source that is no table.
    suffixes : tuple of str
        How the names of its files end; a log is written under the first.
    short : str
        What users call it, as in ``--format csv``; by default its first suffix without the point.
    looks_like : callable
        Whether a source that has none of these suffixes has the format.
    write : callable, optional
        Writes the parts of a log to a path.
    write_long : callable, optional
        Likewise, with one row per candidate, where the format has both forms.
    keeps_sparse : bool
        Whether sparse contexts are written as such; others are made dense, a few at a time.
    loses : str
        What a written log no longer has.
    """

    name: str
    tables: Callable[[Any, ReadOptions], Tables] | None = None
    open: Callable[[Any, ReadOptions], Source] | None = None
    suffixes: tuple[str, ...] = ()
    short: str = ""
    looks_like: Callable[[Any], bool] = lambda source: False
    write: _Writer | None = None
    write_long: _Writer | None = None
    keeps_sparse: bool = False
    loses: str = ""

    @property
    def key(self) -> str:
        """What users call it; empty where it goes without saying."""
        return self.short or "".join(self.suffixes[:1]).removeprefix(".")

    def recognises(self, source: Any) -> bool:
        """Whether a source has this format."""
        return has_suffix(source, *self.suffixes) or self.looks_like(source)

    def rows(self, source: Any, options: ReadOptions) -> Tables:
        """The rows of a source that is a table, without the index of pandas; columns of one name are refused."""
        assert self.tables is not None
        if isinstance(source, Path) and any(0xD800 <= ord(sign) < 0xE000 for sign in str(source)):
            raise LogFormatError("the path has a character that is not UTF-8; rename the file.")
        tables = self.tables(source, options)
        fields = [field for field in tables.schema if not field.name.startswith("__index_level_")]
        twice = sorted(name for name, count in Counter(field.name for field in fields).items() if count > 1)
        if twice:
            raise LogFormatError(f"column {shown(twice[0])} appears twice; names must differ.")
        return tables._replace(schema=pa.schema(fields, metadata=tables.schema.metadata))


def has_suffix(source: Any, *suffixes: str) -> bool:
    """Whether a source is a path that ends so, in small letters or capitals."""
    return isinstance(source, Path) and source.name.lower().endswith(suffixes)


# -- folders -----------------------------------------------------------------------------------------------------------


def folder_format(formats: Sequence[Format]) -> Format:
    """Folders of files of one of these formats, which are tables."""
    return Format(
        name="folder of tables",
        tables=lambda folder, options: _folder_tables(folder, formats, options),
        looks_like=lambda source: isinstance(source, Path) and source.is_dir(),
    )


def is_hidden(folder: Path, path: Path) -> bool:
    """Whether a file of a folder, there or not yet, is one of those that are never read."""
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _folder_tables(folder: Path, formats: Sequence[Format], options: ReadOptions) -> Tables:
    """The rows of all files, one file after the other: the same columns in all, with numbers wide enough for all.

    Parts of the path such as day=3 become columns.
    """
    files, format = _files(folder, formats, any_name=options.format is not None)
    assert format.tables is not None
    members: dict[str, Tables] = {}
    for path in files:
        place = path.relative_to(folder)
        with named(str(place), format.name):
            members[str(place)] = _partitioned(format.tables(path, options), place)
            _check_like(*next(iter(members.items())), members[str(place)], options)
    schema = _common_schema([tables.schema for tables in members.values()])

    def read(columns: Sequence[str]) -> Iterator[pa.Table]:
        target = pa.schema([schema.field(name) for name in columns])
        for place, tables in members.items():
            with named(place, format.name):
                for rows in tables.read(columns):
                    yield _cast(rows, target)

    return Tables(folder.name, schema, read)


def _files(folder: Path, formats: Sequence[Format], any_name: bool) -> tuple[list[Path], Format]:
    """All files of the one format that a folder holds, part-2 before part-10.

    Whatever their names are, if the format was named.
    """

    def place(path: Path) -> list[Any]:
        return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in re.split(r"(\d+)", str(path))]

    suffixes = {suffix: format for format in formats for suffix in format.suffixes}
    kinds: dict[Path, str] = {}
    for path in sorted(folder.rglob("*"), key=place):
        suffix = next((suffix for suffix in suffixes if any_name or has_suffix(path, suffix)), None)
        if suffix is not None and not is_hidden(folder, path) and path.is_file():
            kinds[path] = suffix
    if not kinds:
        raise LogFormatError(f"the folder holds no log; files must end in one of {', '.join(suffixes)}.")
    several = sorted(set(kinds.values()))
    if len(several) > 1:
        raise LogFormatError(f"the folder holds files of several formats ({', '.join(several)}); keep one of them.")
    return list(kinds), suffixes[several[0]]


def _check_like(name: str, first: Tables, tables: Tables, options: ReadOptions) -> None:
    """Raise if a file cannot belong to the same log as the first, called ``name``."""
    same = "all files of a log need the same columns."
    own, theirs = tables.schema.names, first.schema.names
    if lacking := [column for column in theirs if column not in own]:
        raise LogFormatError(f"it has no column {shown(lacking[0])}, which {name} has; {same}")
    more = [column for column in own if column not in theirs]
    if more and options.features is None and options.preparation is None:
        raise refusal("folder-more-columns", column=more[0], first=name, same=same)
    # The number of features is compared with the data in any case.
    if metadata(first.schema)._replace(n_features=None) != metadata(tables.schema)._replace(n_features=None):
        raise refusal("folder-other-features", first=name)


def _common_schema(schemas: list[pa.Schema]) -> pa.Schema:
    """The columns of the first, wide enough for the numbers of all."""
    fields = []
    for field in schemas[0]:
        for schema in schemas[1:]:
            # Where there is no common type, the first one stays, and what cannot be cast to it is refused.
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError):
                both = [pa.schema([field]), pa.schema([schema.field(field.name)])]
                field = pa.unify_schemas(both, promote_options="permissive").field(0)
        fields.append(field)
    return pa.schema(fields, metadata=schemas[0].metadata)


def _cast(rows: pa.Table, target: pa.Schema) -> pa.Table:
    columns = []
    for field, column in zip(target, rows.columns, strict=True):
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            kind, before, why = shown_type(column.type), shown_type(field.type), short_message(error)
            raise refusal("folder-other-types", name=field.name, kind=kind, before=before, error=why) from None
    return pa.Table.from_arrays(columns, schema=target)


def _partitioned(tables: Tables, path: Path) -> Tables:
    """With columns from the path: of key=value folders."""
    pairs = dict(part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    extra = {
        key: pa.scalar(int(value) if re.fullmatch(r"-?\d{1,18}", value) else value)
        for key, value in pairs.items()
        if key not in tables.schema.names
    }
    schema = tables.schema
    for key, value in extra.items():
        schema = schema.append(pa.field(key, value.type))

    def sources(columns: Sequence[str]) -> list[str]:
        # A column tells how many rows there are.
        return [name for name in columns if name not in extra] or tables.schema.names[:1]

    def make(rows: pa.Table, columns: Sequence[str], row: int) -> dict[str, pa.Array | pa.ChunkedArray]:
        return {name: pa.repeat(extra[name], len(rows)) if name in extra else rows[name] for name in columns}

    return tables.derived(schema, sources, make) if extra else tables
