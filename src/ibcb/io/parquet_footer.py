"""What a Parquet file says of its columns, read by ourselves.

Arrow ends the process where numbers of a damaged footer contradict each other, and takes as much memory as the header
of a page asks for: docs/decisions/0020-damaged-parquet.md has what was measured. Both are in Thrift's compact protocol,
of which a few lines are enough here.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ibcb.log.array_checks import LogFormatError

T = TypeVar("T")

#: structures in structures; those of Parquet have five
_DEEPEST = 16
#: bytes of the header of a page that are read at first, and at most, as Arrow does
_HEADERS = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
#: some files count the header of a dictionary not among the bytes of its column
_SLACK = 128
#: kinds of whole numbers in Thrift, and of what is not read here but skipped, with its bytes
_WHOLE, _SKIPPED = (4, 5, 6), {1: 1, 2: 1, 3: 1, 7: 8}
_TEXT, _LISTS, _STRUCT = 8, (9, 10), 12
#: numbers of the encodings by a dictionary
_DICTIONARIES = (2, 8)


class Chunk(NamedTuple):
    """One column of a row group, as the footer has it.

    Attributes
    ----------
    values : int
        How many there are, lists unfolded.
    by_dictionary : bool
        Whether some are encoded by a dictionary.
    start, length : int
        Where its pages are, in bytes.
    """

    values: int
    by_dictionary: bool
    start: int
    length: int


class RowGroup(NamedTuple):
    """How many rows it has, and its columns."""

    rows: int
    chunks: list[Chunk]


class Pages(NamedTuple):
    """What the pages of a chunk say themselves: how many values they have, and the bytes of the largest, unpacked."""

    values: int
    largest: int


def row_groups(file: BinaryIO) -> list[RowGroup]:
    """All of a file whose footer Arrow has read."""
    file.seek(-8, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(-8 - length, os.SEEK_END)
    try:
        footer = _Thrift(file.read(length)).struct()
    except (IndexError, RecursionError):
        raise _damaged() from None
    groups = _part(footer, 4, list)
    return [RowGroup(_part(group, 3, int), [_chunk(column) for column in _part(group, 1, list)]) for group in groups]


def _chunk(column: Any) -> Chunk:
    told = _part(column, 3, dict)
    start = _part(told, 9, int)
    start = min(start, _part(told, 11, int)) if told.get(11) else start
    dictionary = any(encoding in _DICTIONARIES for encoding in _part(told, 2, list))
    return Chunk(_part(told, 5, int), dictionary, start, _part(told, 7, int))


def _part(struct: Any, number: int, kind: type[T]) -> T:
    """A field of a structure, if it is what it should be."""
    value = struct.get(number) if isinstance(struct, dict) else None
    if not isinstance(value, kind):
        raise _damaged()
    return value


def _damaged() -> LogFormatError:
    return LogFormatError("the footer is damaged. Copy the file again, or write it again.")


def pages(file: BinaryIO, chunk: Chunk) -> Pages | None:
    """By the headers of the pages; None where one is damaged."""
    at, end, seen, largest = chunk.start, chunk.start + chunk.length, 0, 0
    while at < end and seen < chunk.values:
        header, place = _header(file, at) if at >= 0 else ({}, at)
        # Dictionaries have no values of the column.
        told = header.get(5, header.get(8, {}))
        numbers: list[Any] = [header.get(2), header.get(3), told.get(1, 0) if isinstance(told, dict) else None]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            return None
        size, packed, values = numbers
        at, seen, largest = place + packed, seen + values, max(largest, size)
        if at > end + _SLACK:
            return None
    return Pages(seen, largest)


def _header(file: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """The header of the page at a place, empty where none is, and where it ends."""
    for size in _HEADERS:
        file.seek(at)
        thrift = _Thrift(content := file.read(size))
        try:
            return thrift.struct(), at + thrift.at
        except RecursionError:
            break
        except IndexError:
            if len(content) < size:
                break
    return {}, at


class _Thrift:
    """Thrift's compact protocol: a structure is a dict by the numbers of its fields.

    Raises IndexError where bytes are missing, RecursionError where structures are too deep.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self.at = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise RecursionError("structures in structures")
        fields, field = dict[int, Any](), 0
        while head := self._byte():
            kind = head & 15
            field = field + (head >> 4) if head > 15 else self._signed()
            # Of a field that is a truth value the kind says which.
            fields[field] = kind == 1 if kind < 3 else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _WHOLE:
            return self._signed()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _TEXT or kind in _SKIPPED:
            return self._take(self._unsigned() if kind == _TEXT else _SKIPPED[kind])
        if kind not in _LISTS:
            raise IndexError(f"no kind {kind} in Parquet")
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        return [self._value(head & 15, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def _take(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self._content):
            raise IndexError(self.at)
        return self._content[self.at - count : self.at]

    def _unsigned(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise IndexError("a number without end")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
