"""JSON lines: an object a line, each a candidate, or a step with a list of candidates.

Objects within objects give columns with a dot, ``item.price``. What a line does not have is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pajson

from ibcb.io.cells import flat
from ibcb.io.format import Format, Tables
from ibcb.io.opened import Opened, beginning, refuse_disguise, text_blocks
from ibcb.io.words import refusal
from ibcb.log.array_checks import LogFormatError
from ibcb.log.read_options import ReadOptions
from ibcb.numerics.printable import shown

#: lines are parsed in blocks of about so many bytes
_BLOCK = 1 << 24
#: a line that does not begin an object, or a null after one
_NO_OBJECT = re.compile(rb"^[^\S\n]*[^\s{]|\}\s*null", re.MULTILINE)


def _tables(path: Path, options: ReadOptions) -> Tables:
    """The lines of a file, a block at a time; a first pass finds the keys and their types."""
    head = beginning(path)
    if not head.startswith(b"\x1f\x8b"):
        refuse_disguise(head, "a JSON lines file")
    opened, schema = Opened(path), pa.schema([])
    for block, line in text_blocks(opened, _BLOCK, options.memory):
        keys = _parsed(block, line, None).schema
        try:
            schema = pa.unify_schemas([schema, keys], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise refusal("json-types", line=line, error=shown(str(error), 200)) from None
    if not schema.names:
        raise LogFormatError("the file is empty; a log has a line of JSON for each candidate, or for each step.")
    if "_multi" in schema.names:
        raise refusal("json-of-vw")
    every = flat(schema.empty_table()).schema

    def read(columns: Sequence[str]) -> Iterator[pa.Table]:
        tops = {name.partition(".")[0] for name in columns} | set(columns)
        wanted = pa.schema([field for field in schema if field.name in tops])
        target = pa.schema([every.field(name) for name in columns])
        for block, line in text_blocks(opened, _BLOCK, options.memory):
            yield flat(_parsed(block, line, wanted)).select(list(columns)).cast(target)

    return Tables(path.name, every, read)


def _parsed(block: bytes, line: int, schema: pa.Schema | None) -> pa.Table:
    """A block of lines as a table; ``line`` is the number of the first."""
    how = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore" if schema else "infer")
    size = pajson.ReadOptions(block_size=max(len(block) + 1, 1024), use_threads=False)
    block = block.removeprefix(b"\xef\xbb\xbf")
    # Of a line that is null Arrow makes a row without values, and of a first one a crash.
    wrong = _wrong_line(block, line)[0] if _NO_OBJECT.search(block) else None
    if wrong is not None:
        raise wrong
    try:
        return pajson.read_json(pa.BufferReader(block), size, how)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _explained(block, line, str(error)) from None


def _wrong_line(block: bytes, line: int) -> tuple[LogFormatError | None, list[int]]:
    """What is wrong with the first line of a block that is no object, and the numbers of those before it that are."""
    numbers: list[int] = []
    for number, raw in enumerate(block.split(b"\n"), start=line):
        if not raw.strip():
            continue
        try:
            value = json.loads(raw)
            if isinstance(value, dict):
                numbers.append(number)
                continue
            reason = f'{shown(value, 40)} is not an object; every line must be one, as in {{"step": 1, "price": 2.5}}.'
        except UnicodeDecodeError as error:
            reason = f"byte {error.start} is not UTF-8; save the file as UTF-8."
        except (ValueError, RecursionError) as error:
            reason = f"not a line of JSON ({error}); every line must be one whole object."
        return LogFormatError(f"line {number}: {reason}"), numbers
    return None, numbers


def _explained(block: bytes, line: int, message: str) -> LogFormatError:
    """What is wrong with a block, with its place."""
    wrong, numbers = _wrong_line(block, line)
    if wrong is not None:
        return wrong
    change = re.search(r"Column\(/(.*?)\) changed from (\w+) to (\w+) in row (\d+)", message)
    if change:
        key, before, after, row = change.groups()
        key = key.replace("/[]", "").replace("/", ".")
        place = numbers[min(int(row), len(numbers) - 1)]
        return refusal("json-type-changed", line=place, key=key, after=after, before=before)
    return LogFormatError(f"line {line} or one after it: not readable ({shown(message, 200)}); write the file again.")


FORMAT = Format(
    name="JSON lines file",
    suffixes=(".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"),
    tables=_tables,
)
