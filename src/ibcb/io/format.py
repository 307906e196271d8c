"""What a format of logs declares of itself, in its own module; `ibcb.io.formats` lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibcb.io.tables import Tables, table_source
from ibcb.log import BehaviorLog
from ibcb.log.arrays import LogFormatError
from ibcb.log.steps import ReadOptions, Source

__all__ = ["Format", "has_suffix", "table_format"]

_Writer = Callable[[Iterable[tuple[int, BehaviorLog]], Path], None]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of logs: how it is recognised, opened and written.

    Attributes
    ----------
    name : str
        As messages have it: "not a readable Parquet file".
    open : callable
        The steps of a source: of a path that exists, or of an object in memory.
    suffixes : tuple of str
        How the names of its files end; a log is written under the first.
    short : str
        What users call it, as in ``--format csv``; by default its first suffix without the point.
    looks_like : callable
        Whether a source that has none of these suffixes has the format.
    tables : callable, optional
        The rows of a file, where a file is a table; a folder may hold many of these.
    write : callable, optional
        Writes the parts of a log to a path.
    write_long : callable, optional
        Likewise, with one row per candidate, where the format has both forms.
    keeps_sparse : bool
        Whether sparse contexts are written as such; others are made dense, a few at a time.
    loses : str
        What a written log no longer has.
    """

    name: str
    open: Callable[[Any, ReadOptions], Source]
    suffixes: tuple[str, ...] = ()
    short: str = ""
    looks_like: Callable[[Any], bool] = lambda source: False
    tables: Callable[[Path, ReadOptions], Tables] | None = None
    write: _Writer | None = None
    write_long: _Writer | None = None
    keeps_sparse: bool = False
    loses: str = ""

    @property
    def key(self) -> str:
        """What users call it; empty where it goes without saying."""
        return self.short or "".join(self.suffixes[:1]).removeprefix(".")

    def recognises(self, source: Any) -> bool:
        """Whether a source has this format."""
        return has_suffix(source, *self.suffixes) or self.looks_like(source)


def has_suffix(source: Any, *suffixes: str) -> bool:
    """Whether a source is a path that ends so, in small letters or capitals."""
    return isinstance(source, Path) and source.name.lower().endswith(suffixes)


def table_format(*, tables: Callable[[Path, ReadOptions], Tables], **declared: Any) -> Format:
    """A format whose files are tables that Arrow reads."""

    def checked(path: Path, options: ReadOptions) -> Tables:
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise LogFormatError("the path has a character that is not UTF-8; rename the file.") from None
        return tables(path, options)

    def steps(path: Path, options: ReadOptions) -> Source:
        return table_source(checked(path, options), options)

    return Format(open=steps, tables=checked, **declared)
