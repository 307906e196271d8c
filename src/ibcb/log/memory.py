"""How much memory reading a log may take, and the refusal of what would take more, before it is taken."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from ibcb.log.array_checks import LogFormatError
from ibcb.numerics.printable import shown

#: of the machine's memory, what reading may take where nobody says
_SHARE = 0.5
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
#: where a container's limit stands
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """Bytes of memory that this machine has, or the container."""
    limits = [2**40]
    with contextlib.suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _LIMITS:
        with contextlib.suppress(ValueError, OSError):
            limits.append(int(Path(path).read_text()))
    return min(limits)


def memory_budget(asked: int | str | None) -> int:
    """Bytes that reading may take: as asked, or half of what the machine has.

    >>> memory_budget("2GB"), memory_budget("1.5 MiB"), memory_budget(1000)
    (2000000000, 1572864, 1000)
    """
    if asked is None:
        return int(_SHARE * machine_memory())
    match = re.fullmatch(r"([\d_]{1,20}(?:\.\d{1,9})?)\s*([kmgt]?i?b?)", str(asked).strip().lower())
    size = 0
    if match is not None and match[2] in _UNITS and not isinstance(asked, bool):
        with contextlib.suppress(ValueError):
            size = int(float(match[1]) * _UNITS[match[2]])
    if size < 1:
        raise ValueError(
            f"max_memory={shown(asked)} is not an amount of memory; write 500MB, 2GB, or a number of bytes."
        )
    return size


def beyond(what: str, limit: int, remedy: str = "") -> LogFormatError:
    """That something takes more memory than there is to take: what was found, the limit, and what to do."""
    return LogFormatError(
        f"{what}, and reading may take {amount(limit)} of memory; {remedy}raise max_memory (--max-memory), or is the "
        "file damaged?"
    )


def amount(size: int) -> str:
    """So many bytes, in words.

    >>> amount(1_500_000_000)
    '1.5 GB'
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size} bytes"
