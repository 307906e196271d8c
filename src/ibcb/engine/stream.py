"""Rows of an episode on disk: read part by part for every pass, ahead of the computation; small ones are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, repeat
from typing import TypeVar

from ibcb.engine.block import Block, Workup, blocks, reblocked
from ibcb.engine.threads import Workers, in_order
from ibcb.log import BehaviorLog, Log
from ibcb.log.disk import gathered
from ibcb.numerics.contexts import nbytes

T = TypeVar("T")

#: an episode of fewer bytes stays in memory after its first pass, and so does what was worked out for its rows;
#: 256 MB, which any machine has to spare; not tuned
KEPT_BYTES = 1 << 28


class StreamedRows:
    """Blocks of an episode on disk: read once where it stays in memory, else again for every pass.

    Parameters
    ----------
    episode : Log
        Of one episode.
    keep : int
        Bytes that may stay in memory.
    team : Workers, optional
        To work on several blocks at a time.
    """

    def __init__(self, episode: Log, *, keep: int | None = None, team: Workers | None = None) -> None:
        self._episode, self._keep, self._team = episode, KEPT_BYTES if keep is None else keep, team
        self._kept: BehaviorLog | None = None
        self._kept_blocks: list[Block] = []
        self._head: Block | None = None

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        return in_order(self._team, kernel, self._blocks())

    def head(self, kernel: Callable[[Block], T]) -> T:
        return kernel(self._first())

    def prepared(self, kernel: Callable[[Block], Block]) -> _PreparedRows:
        return _PreparedRows(self, (kernel,))

    def parts(self) -> Iterator[BehaviorLog]:
        """Those that were read, where they are kept; else read anew."""
        if self._kept is not None:
            yield self._kept
            return
        coming, some, size = ahead(checked(part for _, part in self._episode.parts())), list[BehaviorLog](), 0
        with contextlib.closing(coming):
            for part in coming:
                some.append(part)
                size += nbytes(part.contexts)
                if size > self._keep:
                    break
            else:
                self._kept = some[0] if len(some) == 1 else gathered(some, sum(part.n_rows for part in some), tuple)
                self._kept_blocks = blocks(self._kept)
                yield self._kept
                return
            yield from some
            yield from coming

    def _first(self) -> Block:
        if self._head is None:
            self._head = next(self._blocks())
        return self._head

    def _blocks(self) -> Iterator[Block]:
        parts = self.parts()
        some = list(islice(parts, 1))
        if self._kept is not None:
            yield from self._kept_blocks
            return
        for block in reblocked(chain(some, parts)):
            self._head = self._head or block
            yield block


class _PreparedRows:
    """Streamed rows worked up by kernels; the work is kept where that takes little room, else done again."""

    def __init__(self, rows: StreamedRows, kernels: tuple[Callable[[Block], Block], ...]) -> None:
        self._rows, self._kernels = rows, kernels
        self._work: list[Workup | None] = []
        self._size = 0

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        known = [*self._work]

        def task(item: tuple[int, Block]) -> tuple[Workup | None, T]:
            place, block = item
            if place < len(known) and known[place] is not None:
                return None, kernel(block.with_work(known[place]))
            for prepare in self._kernels:
                block = prepare(block)
            return block.work, kernel(block)

        for place, (work, result) in enumerate(in_order(self._rows._team, task, enumerate(self._rows._blocks()))):
            if work is not None and place == len(self._work):
                self._size += work.nbytes
                self._work.append(work if self._size <= self._rows._keep else None)
            yield result

    def head(self, kernel: Callable[[Block], T]) -> T:
        block = self._rows._first()
        if self._work and self._work[0] is not None:
            return kernel(block.with_work(self._work[0]))
        for prepare in self._kernels:
            block = prepare(block)
        return kernel(block)

    def prepared(self, kernel: Callable[[Block], Block]) -> _PreparedRows:
        return _PreparedRows(self._rows, (*self._kernels, kernel))

    def parts(self) -> Iterator[BehaviorLog]:
        return self._rows.parts()


def checked(parts: Iterable[BehaviorLog]) -> Iterator[BehaviorLog]:
    """The parts, as long as their numbers can be reckoned with."""
    for part in parts:
        part.check_sizes()
        yield part


def ahead(items: Iterable[T]) -> Generator[T]:
    """The same items, made by a thread that is a few of them ahead."""
    iterator, end = iter(items), object()
    with (
        ThreadPoolExecutor(1, thread_name_prefix="ibcb reader") as reader,
        contextlib.closing(in_order(Workers(reader, 1), lambda each: next(each, end), repeat(iterator))) as made,
    ):
        for item in made:
            if item is end:
                return
            yield item  # type: ignore[misc]
