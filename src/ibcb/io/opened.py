"""Files to read: as they were when they were opened, in lines or blocks, and refused where they are of another kind."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from hashlib import blake2b
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from ibcb.io.words import note, refusal
from ibcb.log.array_checks import LogFormatError
from ibcb.log.disk import DAMAGE
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note

#: bytes at both ends of a file by which one that was added to is told from one that was written anew; not tuned
_ENDS = 4096
_BUFFER = 1 << 20
#: bytes of blank lines one after the other
_MOST_BLANK = 1 << 24
#: how files of other kinds begin
_BEGINNINGS = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x93NUMPY": "a NumPy array",
    b"\x1f\x8b": "a gzip",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
    b"BZh91AY&SY": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"PK\x03\x04": "a zip archive, or an Excel workbook",
    **dict.fromkeys([b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"], "a pickle"),
    b"\x89PNG": "a PNG image",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "an SQLite database",
    **dict.fromkeys([b"\xff\xfe", b"\xfe\xff"], "text in UTF-16 (save it as UTF-8)"),
    **dict.fromkeys([b"<!DOCTYPE", b"<html"], "a web page"),
}


class Opened:
    """A file as it was when it was opened: what is added to it later is left out, another in its place is noticed.

    Attributes
    ----------
    path : Path
    size : int
        In bytes; further ones are not read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            known = os.fstat(file.fileno())
            self.size, self._modified, self._identity = known.st_size, known.st_mtime_ns, _identity(known)
            self._ends = _digest(file, self.size)

    def unpacked(self, packed: bool | None = None) -> BufferedIOBase:
        """Its bytes up to the size that it had, through gzip where it is one: by its first two unless ``packed`` tells.

        By Python's gzip, as Arrow's loses memory with every damaged file.
        """
        raw = _UpTo(self.path, self.size)
        if _identity(os.fstat(raw.fileno())) != self._identity:
            raw.close()
            raise self._changed("another file has its name now")
        file = io.BufferedReader(raw, _BUFFER)
        if packed is None:
            packed = file.peek(2).startswith(b"\x1f\x8b")
        if not packed:
            return file
        gzipped = gzip.GzipFile(fileobj=file)
        gzipped.myfileobj = file  # type: ignore[assignment]  # to be closed with it
        return gzipped

    def text(self, packed: bool | None = None) -> BufferedIOBase:
        """The same, of lines: those that are blank may not go on without end, for which any reader takes long."""
        return io.BufferedReader(_Text(self.unpacked(packed)), _BUFFER)

    def check(self, *, at_end: bool = False) -> None:
        """Raise LogFormatError where it does not hold what it held; ``at_end`` of a pass, which had it open, another
        file may have its name.
        """
        reason = self._since()
        is_there = self.path.exists() and _identity(self.path.stat()) == self._identity
        if reason and (is_there or not at_end):
            raise self._changed(reason)

    def told(self) -> Note | None:
        """What has become of it, if anything has."""
        if reason := self._since():
            return note("log-replaced", "info", file=self.path.name, reason=reason)
        grown = self.path.stat().st_size - self.size
        return note("log-grew", "info", file=self.path.name, grown=grown) if grown else None

    def _since(self) -> str:
        """What happened that cannot be read past; empty where nothing did, or it was only added to."""
        if not self.path.exists():
            return "it was removed or renamed"
        now = self.path.stat()
        if _identity(now) != self._identity:
            return "another file has its name now"
        if (now.st_size, now.st_mtime_ns) == (self.size, self._modified):
            return ""
        if now.st_size < self.size:
            return f"it was cut from {self.size} to {now.st_size} bytes"
        with self.path.open("rb") as file:
            same = _digest(file, self.size) == self._ends
        # Where it did not grow, nobody added to it: somebody wrote it.
        return "" if same and now.st_size > self.size else "it was written again"

    def _changed(self, reason: str) -> LogFormatError:
        return refusal("file-changed", name=self.path.name, reason=reason)


class _UpTo(io.FileIO):
    """A file that seems to end after so many bytes."""

    def __init__(self, path: Path, end: int) -> None:
        super().__init__(path)
        self._end = end

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        room = max(0, self._end - self.tell())
        return super().readinto(memoryview(buffer)[:room]) or 0

    def readall(self) -> bytes:
        return super().read(max(0, self._end - self.tell())) or b""


class _Text(io.RawIOBase):
    """Refuses blank lines without end."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file, self._size, self._blank = file, 0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        text = bytes(buffer[:count])
        self._size, blank = self._size + count, count - len(text.rstrip())
        self._blank = self._blank + blank if blank == count else blank
        if self._blank > _MOST_BLANK:
            raise refusal("file-blank", place=self._size - self._blank, most=_MOST_BLANK)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _identity(known: os.stat_result) -> tuple[int, int]:
    return known.st_dev, known.st_ino


def _digest(file: io.BufferedReader, size: int) -> bytes:
    """Of the first bytes of a file, and of the last before ``size``."""
    file.seek(0)
    first = file.read(min(_ENDS, size))
    file.seek(max(0, size - _ENDS))
    return blake2b(first + file.read(min(_ENDS, size)), digest_size=16).digest()


def regular(path: Path, what: str = "a log") -> Path:
    """The path of a file or folder that is there; pipes and devices give what they have once, never, or for ever."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of {what}.")
    if not path.is_file() and not path.is_dir():
        raise refusal("file-pipe", name=path.name)
    return path


def beginning(path: Path) -> bytes:
    """The first bytes of a file, as `refuse_disguise` takes them."""
    with path.open("rb") as file:
        return file.read(16)


def first_lines(path: Path, count: int, longest: int) -> list[bytes]:
    """The first few lines of a file, as far as they can be read; what is longer is cut."""
    try:
        with Opened(path).unpacked() as file:
            return [line for line in (file.readline(longest) for _ in range(count)) if line]
    except DAMAGE:
        return []


def refuse_disguise(head: bytes, kind: str) -> None:
    """Raise if the first bytes of a file are those of another kind; ``kind`` is the one that it should be."""
    for start, other in _BEGINNINGS.items():
        if head.startswith(start) and other != kind:
            raise refusal("file-of-another-kind", kind=kind.split(maxsplit=1)[1], other=other)


# -- lines -------------------------------------------------------------------------------------------------------------


def text_lines(file: Opened, memory: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, through gzip where it is one, with their numbers from 1.

    A line that never ends is refused before it fills the memory.
    """
    number, most = 0, _longest_line(memory)
    with file.text() as lines:
        while raw := lines.readline(most + 1):
            number += 1
            if len(raw) > most:
                raise _endless(number, memory)
            yield number, raw


def text_blocks(file: Opened, size: int, memory: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines of a file, about ``size`` bytes at a time, and the number of the first; blank blocks are left out."""
    number, rest = 1, b""
    with file.text() as opened:
        while piece := opened.read(size):
            text, newline, left = piece.rpartition(b"\n")
            if not newline:
                rest += piece
                if len(rest) > max(_longest_line(memory), 2 * size):
                    raise _endless(number, memory)
                continue
            text, rest = rest + text + newline, left
            if text.strip():
                yield text, number
            number += text.count(b"\n")
        if rest.strip():
            yield rest, number


def _longest_line(memory: int) -> int:
    """A line makes many objects, each larger than its text."""
    return memory // 64


def _endless(number: int, memory: int) -> LogFormatError:
    return beyond(f"line {number}: it is longer than {amount(_longest_line(memory))}", memory)
