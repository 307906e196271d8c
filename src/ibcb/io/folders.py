"""A folder of table files as one table: the same columns in all, numbers wide enough for all, parts of the path."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ibcb.io.cells import shown_type
from ibcb.io.format import Format, has_suffix
from ibcb.io.rows import Tables
from ibcb.io.written import metadata
from ibcb.log.array_checks import LogFormatError
from ibcb.log.disk import named, short_message
from ibcb.log.read_options import ReadOptions
from ibcb.numerics.printable import shown


def folder_format(formats: Sequence[Format]) -> Format:
    """Folders of files of one of these formats, which are tables."""
    return Format(
        name="folder of tables",
        tables=lambda folder, options: _folder_tables(folder, formats, options),
        looks_like=lambda source: isinstance(source, Path) and source.is_dir(),
    )


def _folder_tables(folder: Path, formats: Sequence[Format], options: ReadOptions) -> Tables:
    """The rows of all files, one file after the other; parts of the path such as day=3 become columns."""
    files, format = _files(folder, formats, any_name=options.format is not None)
    assert format.tables is not None
    paths, tables = [path.relative_to(folder) for path in files], list[Tables]()
    for path, place in zip(files, paths, strict=True):
        with named(str(place), format.name):
            tables.append(_partitioned(format.tables(path, options), place))
            _check_like(tables[0], tables[-1], str(paths[0]), options)
    schema = _common_schema([table.schema for table in tables])

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        target = pa.schema([schema.field(name) for name in columns])
        for place, table in zip(paths, tables, strict=True):
            with named(str(place), format.name):
                for rows in table.read(columns, whole):
                    yield _cast(rows, target)

    def joined(columns: Sequence[str], whole: bool) -> Iterable[pa.Table]:
        return [pa.concat_tables(read(columns, whole))] if whole else read(columns, whole)

    return Tables(folder.name, schema, joined)


def _files(folder: Path, formats: Sequence[Format], any_name: bool) -> tuple[list[Path], Format]:
    """All files of the one format that a folder holds, in the order of their names.

    Whatever their names are, if the format was named.
    """
    suffixes = {suffix: format for format in formats for suffix in format.suffixes}
    kinds: dict[Path, str] = {}
    for path in sorted(folder.rglob("*"), key=_natural):
        suffix = next((suffix for suffix in suffixes if any_name or has_suffix(path, suffix)), None)
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if suffix is not None and not hidden and path.is_file():
            kinds[path] = suffix
    if not kinds:
        raise LogFormatError(f"the folder holds no log; files must end in one of {', '.join(suffixes)}.")
    several = sorted(set(kinds.values()))
    if len(several) > 1:
        raise LogFormatError(f"the folder holds files of several formats ({', '.join(several)}); keep one of them.")
    return list(kinds), suffixes[several[0]]


def _natural(path: Path) -> list[Any]:
    """part-2 before part-10."""
    return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in re.split(r"(\d+)", str(path))]


def _check_like(first: Tables, table: Tables, name: str, options: ReadOptions) -> None:
    """Raise if a file cannot belong to the same log as the first, called ``name``."""
    lacking = [column for column in first.schema.names if column not in table.schema.names]
    if lacking:
        raise LogFormatError(
            f"it has no column {shown(lacking[0])}, which {name} has; all files of a log need the same columns."
        )
    more = [column for column in table.schema.names if column not in first.schema.names]
    if more and options.features is None and options.preparation is None:
        raise LogFormatError(
            f"it has a column {shown(more[0])}, which {name} does not have; all files of a log need the same columns. "
            "Or name the features to read: features=[...] (--features)."
        )
    # The number of features is compared with the data in any case.
    if metadata(first.schema)._replace(n_features=None) != metadata(table.schema)._replace(n_features=None):
        raise LogFormatError(
            f"its features have other names than those of {name}, or were made otherwise; convert all files together."
        )


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
            raise LogFormatError(
                f"column {shown(field.name)} holds {shown_type(column.type)}, but {shown_type(field.type)} in the "
                f"files before it ({short_message(error)}); write all files with the same types."
            ) from None
    return pa.Table.from_arrays(columns, schema=target)


def _partitioned(tables: Tables, path: Path) -> Tables:
    """Columns from the path: of key=value folders."""
    pairs = dict(part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    extra = {
        key: pa.scalar(int(value) if re.fullmatch(r"-?\d{1,18}", value) else value)
        for key, value in pairs.items()
        if key not in tables.schema.names
    }
    if not extra:
        return tables
    schema = tables.schema
    for key, value in extra.items():
        schema = schema.append(pa.field(key, value.type))

    def sources(columns: Sequence[str]) -> list[str]:
        # A column tells how many rows there are.
        return [name for name in columns if name not in extra] or schema.names[:1]

    def make(rows: pa.Table, columns: Sequence[str], row: int) -> dict[str, pa.Array | pa.ChunkedArray]:
        return {name: pa.repeat(extra[name], len(rows)) if name in extra else rows[name] for name in columns}

    return tables.derived(schema, sources, make)
