"""A folder of table files as one table: the same columns in all, numbers wide enough for all, parts of the path."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ibcb.io.cells import metadata
from ibcb.io.columns import shown_type
from ibcb.io.format import Format, has_suffix
from ibcb.io.tables import Tables, table_source
from ibcb.log.arrays import LogFormatError, shown
from ibcb.log.disk import named, short_message
from ibcb.log.steps import ReadOptions, Source

__all__ = ["folder_format"]


def folder_format(formats: Sequence[Format]) -> Format:
    """Folders of files of one of these formats, as far as they are tables."""
    known = [format for format in formats if format.tables is not None]

    def steps(folder: Path, options: ReadOptions) -> Source:
        return table_source(_folder_tables(folder, known, options), options)

    return Format(
        name="folder of tables", open=steps, looks_like=lambda source: isinstance(source, Path) and source.is_dir()
    )


def _folder_tables(folder: Path, formats: Sequence[Format], options: ReadOptions) -> Tables:
    """The rows of all files, one file after the other; parts of the path such as day=3 become columns."""
    files, format = _files(folder, formats, any_name=options.format is not None)
    assert format.tables is not None
    tables = []
    for path in files:
        with named(str(path.relative_to(folder)), format.name):
            tables.append(_partitioned(format.tables(path, options), path.relative_to(folder)))
            _check_like(tables[0], tables[-1], str(files[0].relative_to(folder)), options)
    schema = _common_schema([table.schema for table in tables])

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        target = pa.schema([schema.field(name) for name in columns])
        for path, table in zip(files, tables, strict=True):
            with named(str(path.relative_to(folder)), format.name):
                for rows in table.read(columns, whole):
                    yield _cast(rows, target)

    def joined(columns: Sequence[str], whole: bool) -> Iterable[pa.Table]:
        return [pa.concat_tables(read(columns, whole))] if whole else read(columns, whole)

    return Tables(folder.name, schema, joined)


def _files(folder: Path, formats: Sequence[Format], any_name: bool) -> tuple[list[Path], Format]:
    """All files of the one format that a folder holds, in the order of their names.

    Whatever their names are, if the format was named.
    """
    suffixes = [suffix for format in formats for suffix in format.suffixes]
    found: dict[Path, str] = {}
    for path in sorted(folder.rglob("*"), key=_natural):
        suffix = next((suffix for suffix in suffixes if any_name or has_suffix(path, suffix)), None)
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if suffix is not None and not hidden and path.is_file():
            found[path] = suffix
    if not found:
        raise LogFormatError(f"the folder holds no log; files must end in one of {', '.join(suffixes)}.")
    kinds = sorted(set(found.values()))
    if len(kinds) > 1:
        raise LogFormatError(f"the folder holds files of several formats ({', '.join(kinds)}); keep one of them.")
    return list(found), next(format for format in formats if kinds[0] in format.suffixes)


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
    extra = {key: int(value) if re.fullmatch(r"-?\d{1,18}", value) else value for key, value in pairs.items()}
    extra = {key: value for key, value in extra.items() if key not in tables.schema.names}
    if not extra:
        return tables
    schema = tables.schema
    for key, value in extra.items():
        schema = schema.append(pa.field(key, pa.int64() if isinstance(value, int) else pa.string()))

    def read(columns: Sequence[str], whole: bool) -> Iterator[pa.Table]:
        for rows in tables.read([name for name in columns if name not in extra], whole):
            full = rows
            for key, value in extra.items():
                full = full.append_column(schema.field(key), pa.array([value] * rows.num_rows, schema.field(key).type))
            yield full.select(list(columns))

    return Tables(tables.name, schema, read)
