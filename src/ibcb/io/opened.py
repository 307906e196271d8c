"""A file as it was when it was opened: what is added to it later is left out, and another in its place is noticed."""

from __future__ import annotations

import gzip
import io
import os
from hashlib import blake2b
from io import BufferedIOBase
from pathlib import Path

from ibcb.log.array_checks import LogFormatError, plural

#: bytes at both ends of a file by which one that was added to is told from one that was written anew; not tuned
_ENDS = 4096
_BUFFER = 1 << 20


class Opened:
    """A file as it was when it was opened.

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

    def read(self) -> BufferedIOBase:
        """Its bytes up to the size that it had."""
        raw = _UpTo(self.path, self.size)
        if _identity(os.fstat(raw.fileno())) != self._identity:
            raw.close()
            raise self._changed("another file has its name now")
        return io.BufferedReader(raw, _BUFFER)

    def unpacked(self, packed: bool | None = None) -> BufferedIOBase:
        """The same, through gzip where it is one, by its first bytes unless ``packed`` tells."""
        file = self.read()
        if packed is None:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        return _Unpacked(file) if packed else file

    def check(self, *, at_end: bool = False) -> None:
        """Raise LogFormatError where it does not hold what it held; ``at_end`` of a pass, which had it open, another
        file may have its name.
        """
        reason = self._since()
        if reason and not (at_end and not self._is_there()):
            raise self._changed(reason)

    def told(self) -> tuple[str, str]:
        """What has become of it, a code and words; both empty where nothing has."""
        if self._since():
            return "log-replaced", f"{self.path.name} is not the file that was read any more: {self._since()}."
        grown = self.path.stat().st_size - self.size
        if not grown:
            return "", ""
        return "log-grew", (
            f"{self.path.name} has grown by {plural(grown, 'byte')} since it was opened; what was added is left out. "
            "Run it again to take it in."
        )

    def _is_there(self) -> bool:
        return self.path.exists() and _identity(self.path.stat()) == self._identity

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
        return LogFormatError(
            f"{self.path.name}: it changed while it was read: {reason}. What was read and what is there now do not "
            "belong together; run it again, or give a copy that nobody writes."
        )


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


class _Unpacked(gzip.GzipFile):
    """By Python's gzip, as Arrow's loses memory with every damaged file; what it reads is closed with it."""

    def __init__(self, packed: BufferedIOBase) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._packed.close()


def _identity(known: os.stat_result) -> tuple[int, int]:
    return known.st_dev, known.st_ino


def _digest(file: io.BufferedReader, size: int) -> bytes:
    """Of the first bytes of a file, and of the last before ``size``."""
    file.seek(0)
    first = file.read(min(_ENDS, size))
    file.seek(max(0, size - _ENDS))
    return blake2b(first + file.read(min(_ENDS, size)), digest_size=16).digest()
