"""A log that stays on disk and is read part by part, again for every pass."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.log.array_checks import LogFormatError, joined_arrays, offsets_of, plural, runs
from ibcb.log.behavior_log import BehaviorLog
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.protocol import Log
from ibcb.log.read_options import ReadOptions
from ibcb.log.steps import EpisodeIndex, Source, Steps, index_of, numbered
from ibcb.numerics.arrays import lazy
from ibcb.numerics.contexts import Contexts, is_sparse, nbytes, stacked
from ibcb.numerics.printable import WrongTypeError, shown

#: what is raised where a file is cut off, damaged, or of another kind
DAMAGE = (pa.ArrowException, UnicodeDecodeError, OSError, EOFError, zlib.error)
#: bytes of a file that is read part by part
_LARGE = 1 << 28
_PART_BY_PART = "read it part by part (validate, convert, fit --stream), "
_EMPTY = "the log is empty: it has no step. Is it the right file?"


class DiskLog(Log):
    """A log on disk, read part by part, again for every pass; `open_log` makes it.

    Attributes
    ----------
    name : str
    feature_names : tuple of str or None
    preparation : Preparation or None
    notes : tuple of Note
        What a reader should know of how it is read: columns left out, values imputed. Complete once it has been read to
        the end.
    """

    in_memory = False

    def __init__(
        self,
        source: Source,
        options: ReadOptions,
        where: tuple[Path, dict[str, Any]] | None,
        kind: str = "log",
        notes: tuple[Note, ...] = (),
    ) -> None:
        self._source, self._options, self._kind, self._notes = source, options, kind, notes
        self._where = where
        self._is_part = False
        self.name = source.name
        self.feature_names = source.feature_names
        made = source.preparation
        self.preparation = None if made is None else replace(made, reading=options.kept())

    @property
    def notes(self) -> tuple[Note, ...]:
        return self._source.notes + self._notes

    def parts(self) -> Iterator[tuple[int, BehaviorLog]]:
        if self._index is not None:
            for number, row_groups in self._index.episodes:
                yield from ((number, part) for part in self._episode(number, row_groups))
            return
        with self._named():
            episode: int | None = None
            first = 0
            for numbers, steps in numbered(self._source.batches(), self._options):
                rows = offsets_of(steps.counts)
                for start, end in pairwise(runs(numbers)):
                    number = int(numbers[start])
                    first = first if number == episode else 0
                    some = steps.taken(slice(start, end), slice(rows[start], rows[end]))
                    yield number, self._part(some, number, first)
                    episode, first = number, first + int(end - start)
            if episode is None:
                raise LogFormatError(_EMPTY)

    def episodes(self) -> Iterator[tuple[bool, DiskLog | BehaviorLog]]:
        """Every stored episode in order as ``(the policy chose it, episode)``; the warm-up comes first.

        In a file with row groups of their own for every episode, as `write_log` makes it, episodes stay on disk, and
        are read anew by whoever goes through them. Of others one after the other comes into memory.
        """
        if self._index is not None:
            for place, (number, _) in enumerate(self._index.episodes):
                yield number >= 0, self._some(place, place + 1)
            return
        most = self._options.memory
        remedy = "convert the log to Parquet (ibcb convert), whose episodes are read part by part, "
        for number, parts in self.parts_by_episode():
            held, size = list[BehaviorLog](), 0
            for part in parts:
                held.append(part)
                size += nbytes(part.contexts)
                if size > most:
                    with self._named():
                        raise beyond(f"episode {number} takes more than {amount(size)} at once", most, remedy)
            yield number >= 0, held[0] if len(held) == 1 else self._gathered(held)

    def __iter__(self) -> Iterator[DiskLog | BehaviorLog]:
        """Each episode that the policy chose as a log of its own; the first carries the warm-up.

        Of an indexed log these stay on disk.
        """
        if self._index is not None:
            warmup = self.warmup
            for place in range(len(self)):
                yield self._some(0 if place == 0 else place + warmup, place + warmup + 1)
            return
        waiting = list[BehaviorLog]()
        for number, parts in self.parts_by_episode():
            waiting += parts
            if number >= 0:
                yield self._gathered(waiting)
                waiting = []

    def _gathered(self, parts: list[BehaviorLog]) -> BehaviorLog:
        return gathered(parts, sum(part.n_rows for part in parts), lambda: self.notes)

    def _some(self, first: int, last: int) -> DiskLog:
        """Stored episodes first to last - 1 of an indexed log."""
        index = self._index
        assert index is not None
        some = DiskLog(self._source, self._options, self._where, self._kind, self._notes)
        some._index, some._is_part = index._replace(episodes=index.episodes[first:last]), True
        some.n_features = self.n_features
        return some

    def _episode(self, number: int, row_groups: list[int], first: int = 0) -> Iterator[BehaviorLog]:
        """An episode of an indexed log, from the step ``first`` on."""
        assert self._index is not None
        with self._named():
            for steps in self._index.read(row_groups):
                yield self._part(steps, number, first)
                first += len(steps.counts)

    @property
    def number(self) -> int:
        """Of its first episode; where only reading it would tell, it is that of a whole log without a warm-up, 0."""
        return self._index.episodes[0][0] if self._index else 0

    @property
    def elsewhere(self) -> tuple[Path, dict[str, Any]] | None:
        return None if self._index is None else self._where

    def step_counts(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Every episode's number, and the candidates of each of its steps; of an indexed log nothing else is read."""
        if self._index is None:
            yield from super().step_counts()
            return
        for number, row_groups in self._index.episodes:
            with self._named():
                counts = self._index.counts(row_groups)
            yield number, counts

    def steps(self, number: int, first: int, last: int) -> Iterator[BehaviorLog]:
        """Of an indexed log: steps first to last - 1 of an episode, in parts; other row groups are not touched."""
        assert self._index is not None
        row_groups = dict(self._index.episodes)[number]
        edges = offsets_of([self._index.sizes[group] for group in row_groups])
        wanted = np.flatnonzero((edges[:-1] < last) & (edges[1:] > first))
        start = int(edges[wanted[0]]) if len(wanted) else 0
        for part in self._episode(number, [row_groups[place] for place in wanted], start):
            low, high = max(first - start, 0), min(last - start, part.n_steps)
            if low < high:
                yield part if (low, high) == (0, part.n_steps) else part._steps(low, high)
            start += part.n_steps

    @lazy
    def _index(self) -> EpisodeIndex | None:
        with self._named():
            index = index_of(self._source)
        return index if index is not None and index.episodes else None

    @lazy
    def _numbers(self) -> list[int]:
        """The numbers of all episodes; without an index this reads the log once."""
        pairs: Iterable[tuple[int, Any]] = self.parts() if self._index is None else self._index.episodes
        return list(dict.fromkeys(number for number, _ in pairs))

    @property
    def n_episodes(self) -> int | None:
        return None if self._index is None else len(self._index.episodes)

    @property
    def warmup(self) -> int:
        return sum(number < 0 for number in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers) - self.warmup

    @lazy
    def n_features(self) -> int:
        if self.feature_names is not None:
            return len(self.feature_names)
        if self._index is not None and self._index.n_features is not None:
            return self._index.n_features
        with self._named():
            return int(next(iter(self._source.batches())).contexts.shape[1])

    def _part(self, steps: Steps, number: int, first: int) -> BehaviorLog:
        return BehaviorLog.part(steps, (number, first), feature_names=self.feature_names, preparation=self.preparation)

    def _named(self) -> AbstractContextManager[None]:
        return named(self.name, self._kind)

    def read(self) -> BehaviorLog:
        where = None if self._where is None else self._where[0]
        large = where is not None and where.is_file() and where.stat().st_size > _LARGE
        # Of a large file a second copy, however short-lived, would be too much.
        if self._is_part or (large and self._index is not None):
            rows = sum(int(counts.sum()) for _, counts in self.step_counts())
            with self._named():
                return gathered((part for _, part in self.parts()), rows, lambda: self.notes, self._options.memory)
        with self._named():
            pairs, size, steps = list[tuple[NDArray[np.int64], Steps]](), 0, 0
            try:
                for pair in numbered(self._source.batches(), self._options):
                    pairs.append(pair)
                    size, steps = size + pair[1].nbytes, steps + len(pair[0])
                    # In parts, and then in one piece.
                    needed = size if len(pairs) == 1 else 2 * size
                    if needed > self._options.memory:
                        words = f"the first {plural(steps, 'step')} take {amount(needed)} to read whole"
                        raise beyond(words, self._options.memory, _PART_BY_PART)
            except DAMAGE:
                self._refuse_a_part()
                raise
            if not pairs:
                raise LogFormatError(_EMPTY)
            numbers = joined_arrays(pair[0] for pair in pairs)
            edges = runs(numbers)
            warmup = int(np.count_nonzero(numbers[edges[:-1]] < 0))
            same = {"feature_names": self.feature_names, "preparation": self.preparation, "notes": self.notes}
            try:
                return BehaviorLog.of_steps([pair[1] for pair in pairs], edges, warmup=warmup, **same)
            except LogFormatError:
                self._refuse_a_part()
                raise

    def _refuse_a_part(self) -> None:
        """Raise as going through the parts does: they are numbered as in the file, and damage is met in their order."""
        for _ in self.parts():
            pass

    def __repr__(self) -> str:
        known = "" if self._index is None else f", {plural(len(self), 'episode')}"
        return f"DiskLog({self.name!r}{known})"


def gathered(
    parts: Iterable[BehaviorLog], rows: int, notes: Callable[[], tuple[Note, ...]], memory: int | None = None
) -> BehaviorLog:
    """Consecutive parts of a log with so many rows in all, in memory as one.

    One part after the other finds its place: of the contexts only one of them is there beside the whole. ``notes`` is
    asked at the end, when all has been read. What takes more than ``memory`` is refused.
    """
    parts = iter(parts)
    head = next(parts)
    d, dtype, is_dense = head.n_features, head.contexts.dtype, not is_sparse(head.contexts)
    size = rows * d * dtype.itemsize if is_dense else 0
    if memory is not None and size > memory:
        raise beyond(f"{rows} rows of {plural(d, 'feature')} take {amount(size)}", memory, _PART_BY_PART)
    contexts, at = np.empty((rows if is_dense else 0, d), dtype=dtype), 0
    sparse_parts, light = list[Contexts](), list[BehaviorLog]()
    for part in chain([head], parts):
        if is_sparse(part.contexts):
            sparse_parts.append(part.contexts)
        else:
            contexts = contexts.astype(np.result_type(contexts, part.contexts), copy=False)
            contexts[at : at + part.n_rows] = part.contexts
            at += part.n_rows
        light.append(part.without_contexts())
    return BehaviorLog.joined(light, stacked(sparse_parts) if sparse_parts else contexts, notes())


@contextlib.contextmanager
def named(name: str, kind: str = "log") -> Iterator[None]:
    """Errors of a file begin with its name; one that a library cannot read is no readable file of its ``kind``."""
    try:
        yield
    except (LogFormatError, WrongTypeError) as error:
        message = str(error)
        named_before = isinstance(error, LogFormatError) and message.startswith((f"{name}: ", f"{name}, "))
        raise LogFormatError(message if named_before else f"{name}: {message}") from None
    except (*DAMAGE, MemoryError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)) or getattr(error, "filename", None) is not None:
            raise
        reason = f"not a readable {kind} ({short_message(error)})"
        remedy = "it is cut off, damaged, or of another kind. Copy it again, or write it again."
        if isinstance(error, MemoryError):
            reason = f"not enough memory ({short_message(error)})"
            remedy = "read it part by part (validate, convert), or is the file damaged?"
        raise LogFormatError(f"{name}: {reason}; {remedy}") from None


def short_message(error: Exception) -> str:
    """The beginning of a message of another library, on one line."""
    lines = str(error).strip().splitlines()
    return shown(lines[0] if lines else type(error).__name__, 160)[1:-1]
