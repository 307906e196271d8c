"""A log whose files are looked at before and after every pass, so that all passes meet the same rows.

A log may be gone through several times, while somebody still writes it. Rows that are added meanwhile are left out;
where its files are others by now, it is refused: a verdict would be of other rows than those that were fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ibcb.io.opened import Opened
from ibcb.io.sources import MappedSource
from ibcb.log.array_checks import plural
from ibcb.log.notes import Note
from ibcb.log.steps import Source, Steps
from ibcb.numerics.printable import shown


class Watched(MappedSource):
    """The steps of a source whose files are looked at before and after every pass."""

    def __init__(self, source: Source, files: Sequence[Opened], now: Callable[[], Sequence[Path]]) -> None:
        """``now``: the paths that would be read today."""
        super().__init__(source, source.preparation, source.feature_names, ())
        self._files, self._now = tuple(files), now

    @property
    def notes(self) -> tuple[Note, ...]:
        """With what has become of the files since."""
        return (*super().notes, *self._told())

    def _mapped(self, batches: Iterable[Steps]) -> Iterator[Steps]:
        for file in self._files:
            file.check()
        yield from batches
        for file in self._files:
            file.check(at_end=True)

    def _told(self) -> Iterator[Note]:
        for file in self._files:
            code, text = file.told()
            if code:
                yield Note(code, "info", text, {"file": file.path.name})
        new = [path for path in self._now() if path not in {file.path for file in self._files}]
        if new:
            text = f"{plural(len(new), 'file')} came into the folder since it was opened, such as {shown(new[0].name)}"
            yield Note("log-grew", "info", f"{text}; left out.", {"files": len(new)})
