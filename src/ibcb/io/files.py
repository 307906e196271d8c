"""Writing files so that a reader never meets half of one; and files that are not what their name says."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import tempfile
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from ibcb.io.locks import made_folders, system_lock
from ibcb.io.opened import Opened
from ibcb.log.array_checks import LogFormatError
from ibcb.log.disk import DAMAGE
from ibcb.log.memory import amount, beyond

#: blank lines one after the other
_MOST_BLANK = 1_000_000
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

#: how the names of temporary files end
_SUFFIX = ".ibcb-partial"
#: what the system says when there is no more room
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def regular(path: Path) -> Path:
    """The path, unless it leads to a pipe or device, which gives what it has once, never, or for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise LogFormatError(
            f"{path.name}: a pipe or device, which can be read only once; save what it gives to a file first."
        )
    return path


def beginning(path: Path) -> bytes:
    """The first bytes of a file, as `refuse_disguise` takes them."""
    with path.open("rb") as file:
        return file.read(16)


def binary(path: Path) -> BufferedIOBase:
    """A file of lines to read, through gzip where it is one."""
    return gzip.open(path, "rb") if beginning(path).startswith(b"\x1f\x8b") else path.open("rb")


def first_lines(path: Path, count: int, longest: int) -> list[bytes]:
    """The first few lines of a file, as far as they can be read; what is longer is cut."""
    try:
        with binary(path) as file:
            return [line for line in (file.readline(longest) for _ in range(count)) if line]
    except DAMAGE:
        return []


def text_lines(file: Opened, memory: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, through gzip where it is one, with their numbers from 1.

    A line that never ends is refused before it fills the memory, and so are lines that never hold anything.
    """
    most, number, blank = _longest_line(memory), 0, 0
    with file.unpacked() as lines:
        while raw := lines.readline(most + 1):
            number += 1
            if len(raw) > most:
                raise _endless(number, memory)
            blank = blank + 1 if raw.isspace() else 0
            if blank > _MOST_BLANK:
                raise _blank(number - blank + 1)
            yield number, raw


def text_blocks(file: Opened, size: int, memory: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines of a file, about ``size`` bytes at a time, and the number of the first; blank blocks are left out."""
    number, blank, rest = 1, 0, b""
    with file.unpacked() as opened:
        while piece := opened.read(size):
            text, newline, left = piece.rpartition(b"\n")
            if not newline:
                rest += piece
                if len(rest) > max(_longest_line(memory), 2 * size):
                    raise _endless(number, memory)
                continue
            text, rest = rest + text + newline, left
            lines = text.count(b"\n")
            blank = 0 if text.strip() else blank + lines
            if blank > _MOST_BLANK + size:
                raise _blank(number + lines - blank)
            if not blank:
                yield text, number
            number += lines
        if rest.strip():
            yield rest, number


def _longest_line(memory: int) -> int:
    """A line makes many objects, each larger than its text."""
    return memory // 64


def _endless(number: int, memory: int) -> LogFormatError:
    return beyond(f"line {number}: it is longer than {amount(_longest_line(memory))}", memory)


def _blank(number: int) -> LogFormatError:
    return LogFormatError(
        f"line {number}: more than {_MOST_BLANK} blank lines follow each other; is it the right file? Leave them out."
    )


def refuse_disguise(head: bytes, kind: str) -> None:
    """Raise if the first bytes of a file are those of another kind; ``kind`` is the one that it should be."""
    for beginning, other in _BEGINNINGS.items():
        if head.startswith(beginning) and other != kind:
            raise LogFormatError(
                f"not a readable {kind.split(maxsplit=1)[1]}: by its first bytes it is {other}. Convert it, or give it "
                "the right name."
            )


@contextlib.contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; it takes the name of ``path`` only if the block succeeds.

    If it does not, folders that were made for it are gone, too. What a process that was killed left behind is removed
    by the next one that writes the same file.

    Symbolic links are followed. What is no regular file (a pipe, /dev/stdout) is written directly. A file that is
    replaced passes its permissions on.
    """
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a file.")
    if target.exists() and not target.is_file():
        with _explained(path):
            yield target
        return
    # Room for what is put around it: names may be 255 bytes long.
    prefix = f".{target.name.encode()[:200].decode(errors='ignore')}."
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(made_folders(target.parent))
            _remove_leftovers(target.parent, prefix)
            lock, temporary = _begun(target.parent, prefix)
        except OSError as error:
            raise type(error)(f"{path} cannot be written ({error.strerror}).") from None
        stack.enter_context(lock)
        # Gone by then, where all went well.
        stack.callback(temporary.unlink, missing_ok=True)
        with _explained(path):
            yield temporary
            temporary.chmod(_permissions(target))
            os.replace(temporary, target)


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    """Where the disk is full, say so, and for which file."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        told = OSError(f"{path} cannot be written ({os.strerror(error.errno)}); make room, or give another folder.")
        told.errno = error.errno
        raise told from None


def _begun(folder: Path, prefix: str) -> tuple[contextlib.ExitStack, Path]:
    """A new temporary file, and what keeps it locked: as long as we live, or until that is closed."""
    while True:
        lock = contextlib.ExitStack()
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=_SUFFIX, dir=folder)
        lock.callback(os.close, handle)
        if system_lock is None:
            lock.close()
            return lock, Path(name)
        try:
            system_lock(handle)
            mine = bool(os.fstat(handle).st_nlink)
        except BlockingIOError:
            mine = False
        except OSError:
            mine = True  # a file system without locks
        if mine:
            return lock, Path(name)
        # Somebody who cleans up was quicker.
        lock.close()


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Temporary files of writers that live no more: those hold no lock."""
    for name in os.listdir(folder):
        if system_lock is None or not (name.startswith(prefix) and name.endswith(_SUFFIX)):
            continue
        # In use, not ours to open, or gone by now.
        with contextlib.suppress(OSError):
            handle = os.open(folder / name, os.O_RDWR)
            try:
                system_lock(handle)
                os.unlink(folder / name)
            finally:
                os.close(handle)


def _permissions(target: Path) -> int:
    """Those of the file that is replaced, or those that a plain open would give."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
