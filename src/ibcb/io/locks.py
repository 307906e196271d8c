"""Who writes a file: one process at a time, which others are told of.

A lock is a hidden file beside the one that it guards. The system holds it as long as the process lives, so that what a
process that died leaves behind is taken over; where a file system has no locks, the process's number tells.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
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


_SUFFIX = ".ibcb-lock"


class HeldError(OSError):
    """Another process writes the file."""


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
def made_folders(folder: Path) -> Iterator[None]:
    """A folder that is there, with those above it; in the end those that were made go where nothing is in them."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


@contextlib.contextmanager
def _held(target: Path) -> Iterator[None]:
    """The lock file, locked, with who has it; gone in the end."""
    # Room for what is put around it: names may be 255 bytes long.
    lock = target.with_name(f".{target.name.encode()[:200].decode(errors='ignore')}{_SUFFIX}")
    with made_folders(target.parent):
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
        try:
            if system_lock is None:
                raise NotImplementedError
            system_lock(handle)
            free = True
        except BlockingIOError:
            free = False
        except (OSError, NotImplementedError):
            free = not _lives(holder)
        if not free:
            # Once more: it may have been written since.
            holder = _holder(handle) or holder
            os.close(handle)
            raise HeldError(_in_words(target, holder))
        if _is_at(lock, handle):
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)
            return handle
        # Whoever had it has just let go of it, and of the name.
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def _holder(handle: int) -> dict[str, Any]:
    """Who has a lock file, as far as it is written."""
    with contextlib.suppress(ValueError, OSError):
        os.lseek(handle, 0, os.SEEK_SET)
        holder = json.loads(os.read(handle, 4096) or b"null")
        if isinstance(holder, dict):
            return holder
    return {}


def _lives(holder: dict[str, Any]) -> bool:
    """Whether a process still runs, as far as can be known here."""
    if not holder or holder.get("host") != socket.gethostname() or not isinstance(holder.get("pid"), int):
        return bool(holder)
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _in_words(target: Path, holder: dict[str, Any]) -> str:
    who = "another process"
    if holder:
        who = f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"
    return f"{target} is being written by {who}; wait until it has finished, or give another file with -o."
