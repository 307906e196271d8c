"""Files to write: a reader never meets half of one, and one process at a time writes it, which others are told of.

A lock is a hidden file beside the one that it guards. The system holds it as long as the process lives, so that what a
process that died leaves behind is taken over; where a file system has no locks, the process's number tells.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:
    # Windows: what a killed process leaves behind stays there.
    system_lock: Callable[[int], None] | None = None
else:

    def system_lock(file: int) -> None:
        """Lock an open file as long as the process lives, or raise OSError at once."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_LOCK, _PARTIAL = ".ibcb-lock", ".ibcb-partial"
#: what the system says when there is no more room
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class HeldError(OSError):
    """Another process writes the file."""


# -- whole or not at all -----------------------------------------------------------------------------------------------


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
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_made_folders(target.parent))
            _remove_leftovers(target)
            lock, temporary = _begun(target)
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


@contextlib.contextmanager
def _made_folders(folder: Path) -> Iterator[None]:
    """A folder that is there, with those above it; in the end those that were made go where nothing is in them."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


def _hidden(target: Path) -> str:
    """How the names of what is put beside a file begin; there is room for more, as they may be 255 bytes long."""
    return f".{target.name.encode()[:200].decode(errors='ignore')}"


def _begun(target: Path) -> tuple[contextlib.ExitStack, Path]:
    """A new temporary file, and what keeps it locked: as long as we live, or until that is closed."""
    while True:
        lock = contextlib.ExitStack()
        handle, name = tempfile.mkstemp(prefix=f"{_hidden(target)}.", suffix=_PARTIAL, dir=target.parent)
        lock.callback(os.close, handle)
        if system_lock is None:
            lock.close()
            return lock, Path(name)
        if _has_locked(handle) is not False and _is_at(Path(name), handle):
            return lock, Path(name)
        # Somebody who cleans up was quicker.
        lock.close()


def _remove_leftovers(target: Path) -> None:
    """Temporary files of writers that live no more: those hold no lock."""
    for name in os.listdir(target.parent):
        if system_lock is None or not (name.startswith(f"{_hidden(target)}.") and name.endswith(_PARTIAL)):
            continue
        # In use, not ours to open, or gone by now.
        with contextlib.suppress(OSError):
            handle = os.open(target.with_name(name), os.O_RDWR)
            try:
                if _has_locked(handle):
                    os.unlink(target.with_name(name))
            finally:
                os.close(handle)


def _permissions(target: Path) -> int:
    """Those of the file that is replaced, or those that a plain open would give."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


# -- by one process ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def sole_writer(*paths: str | os.PathLike[str]) -> Iterator[None]:
    """Nobody else who asks writes these files meanwhile; raises `HeldError`, which names who does.

    What is no regular file, such as a pipe, is not guarded.
    """
    with contextlib.ExitStack() as stack:
        for target in dict.fromkeys(Path(path).resolve() for path in paths):
            if not target.exists() or target.is_file():
                stack.enter_context(_held(target))
        yield


@contextlib.contextmanager
def _held(target: Path) -> Iterator[None]:
    """The lock file, locked, with who has it; gone in the end."""
    lock = target.with_name(f"{_hidden(target)}{_LOCK}")
    with _made_folders(target.parent):
        handle = _locked(lock, target)
        try:
            since = datetime.now().astimezone().isoformat(" ", "seconds")
            holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
            # On a full disk it is a lock all the same.
            with contextlib.suppress(OSError):
                os.write(handle, holder.encode())
            yield
        finally:
            # While it is still locked: whoever waits for the name finds none, or another file.
            with contextlib.suppress(OSError):
                lock.unlink()
            os.close(handle)


def _locked(lock: Path, target: Path) -> int:
    """The open lock file, which nobody else has."""
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise type(error)(f"{target} cannot be written ({error.strerror}).") from None
        holder = _holder(handle)
        has_locked = _has_locked(handle)
        free = not _lives(holder) if has_locked is None else has_locked
        if not free:
            # Once more: it may have been written since.
            holder = _holder(handle) or holder
            os.close(handle)
            who = "process {pid} on {host}, since {since}".format_map(holder) if holder else "another process"
            raise HeldError(
                f"{target} is being written by {who}; wait until it has finished, or give another file with -o."
            )
        if _is_at(lock, handle):
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)
            return handle
        # Whoever had it has just let go of it, and of the name.
        os.close(handle)


def _has_locked(handle: int) -> bool | None:
    """Lock an open file; False where somebody else has it, None where there are no locks."""
    try:
        if system_lock is not None:
            system_lock(handle)
            return True
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return None


def _is_at(path: Path, handle: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def _holder(handle: int) -> dict[str, Any]:
    """Who has a lock file; empty where that is not written, or not by us."""
    with contextlib.suppress(ValueError, OSError):
        os.lseek(handle, 0, os.SEEK_SET)
        holder = json.loads(os.read(handle, 4096) or b"null")
        if isinstance(holder, dict) and holder.keys() >= {"pid", "host", "since"}:
            return holder
    return {}


def _lives(holder: dict[str, Any]) -> bool:
    """Whether a process still runs, as far as can be known here."""
    if not holder or holder["host"] != socket.gethostname() or not isinstance(holder["pid"], int):
        return bool(holder)
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
