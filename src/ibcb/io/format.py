"""What a format of logs declares of itself, in its own module; `ibcb.io.formats` lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibcb.io.rows import Tables, sound_columns
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError
from ibcb.log.read_options import ReadOptions
from ibcb.log.steps import Source

_Writer = Callable[[Iterable[tuple[int, BehaviorLog]], Path], None]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of logs: how it is recognised, opened and written. It has either ``tables`` or ``open``.

    Attributes
    ----------
    name : str
        As messages have it: "not a readable Parquet file".
    tables : callable, optional
        The rows of a source that is a table: of a path that exists, or of an object in memory. Which layout they have
        is no matter of a format. A folder may hold many files of it.
    open : callable, optional
        The steps of a source that is no table.
    suffixes : tuple of str
        How the names of its files end; a log is written under the first.
    short : str
        What users call it, as in ``--format csv``; by default its first suffix without the point.
    looks_like : callable
        Whether a source that has none of these suffixes has the format.
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
    tables: Callable[[Any, ReadOptions], Tables] | None = None
    open: Callable[[Any, ReadOptions], Source] | None = None
    suffixes: tuple[str, ...] = ()
    short: str = ""
    looks_like: Callable[[Any], bool] = lambda source: False
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

    def rows(self, source: Any, options: ReadOptions) -> Tables:
        """The rows of a source that is a table."""
        assert self.tables is not None
        if isinstance(source, Path) and any(0xD800 <= ord(sign) < 0xE000 for sign in str(source)):
            raise LogFormatError("the path has a character that is not UTF-8; rename the file.")
        return sound_columns(self.tables(source, options))


def has_suffix(source: Any, *suffixes: str) -> bool:
    """Whether a source is a path that ends so, in small letters or capitals."""
    return isinstance(source, Path) and source.name.lower().endswith(suffixes)
