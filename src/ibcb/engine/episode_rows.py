"""The rows of an episode: what any home of them must be able to do, and those in this process, in memory or on disk.

What is on disk is read part by part for every pass, ahead of the computation; small episodes are kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import chain, islice, repeat
from typing import Protocol, TypeVar

from ibcb.engine.block import Block, Workup, blocks, reblocked
from ibcb.engine.threads import Workers, in_order
from ibcb.log import BehaviorLog, Log
from ibcb.log.disk import gathered
from ibcb.numerics.contexts import nbytes

T = TypeVar("T")

#: an episode of fewer bytes stays in memory after its first pass, and so does what was worked out for its rows;
#: 256 MB, which any machine has to spare; not tuned
KEPT_BYTES = 1 << 28


class Rows(Protocol):
    """The rows of one episode, wherever they live, as blocks in order.

    Kernels are functions of a block that can be sent elsewhere: module-level, or `functools.partial` of such.
    """

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        """The kernel of every block, in order."""
        ...

    def head(self, kernel: Callable[[Block], T]) -> T:
        """The kernel of the first block alone."""
        ...

    def prepared(self, kernel: Callable[[Block], Block]) -> Rows:
        """The same rows with every block worked up by a kernel, where they live."""
        ...

    def parts(self) -> Iterator[BehaviorLog]:
        """The steps with all that stands beside them (times, ids, propensities), in parts that fit in memory here."""
        ...


class LocalRows:
    """Rows in this process; what was worked out for them is kept where that takes little room, else done again.

    Parameters
    ----------
    episode : Log
        Of one episode.
    keep : int
        Bytes of an episode on disk that may stay in memory, and of what is worked out for its rows.
    team : Workers, optional
        To work on several blocks at a time; they still come in order.
    """

    def __init__(self, episode: Log, *, keep: int | None = None, team: Workers | None = None) -> None:
        self._source = _Source(episode, KEPT_BYTES if keep is None else keep)
        self._team = None if episode.in_memory and len(self._source.known) == 1 else team
        self._begin(())

    def _begin(self, kernels: tuple[Callable[[Block], Block], ...]) -> None:
        self._kernels = kernels
        self._work: list[Workup | None] = []
        self._size = 0

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        known = [*self._work]

        def task(item: tuple[int, Block]) -> tuple[Workup | None, T]:
            place, block = item
            block = self._worked_up(block, known[place] if place < len(known) else None)
            return block.work, kernel(block)

        for place, (work, result) in enumerate(in_order(self._team, task, enumerate(self._source.blocks()))):
            if work is not None and place == len(self._work):
                self._size += work.nbytes
                self._work.append(work if self._size <= self._source.keep else None)
            yield result

    def head(self, kernel: Callable[[Block], T]) -> T:
        return kernel(self._worked_up(self._source.first(), self._work[0] if self._work else None))

    def prepared(self, kernel: Callable[[Block], Block]) -> LocalRows:
        other = copy(self)
        other._begin((*self._kernels, kernel))
        return other

    def parts(self) -> Iterator[BehaviorLog]:
        return self._source.parts()

    def _worked_up(self, block: Block, work: Workup | None) -> Block:
        if work is not None:
            return block.with_work(work)
        for prepare in self._kernels:
            block = prepare(block)
        return block


class _Source:
    """Blocks of an episode: read once where it stays in memory, else again for every pass.

    ``known``: the blocks of what is in memory.
    """

    def __init__(self, episode: Log, keep: int) -> None:
        self._episode, self.keep = episode, float(keep)
        self._kept: BehaviorLog | None = None
        self.known: list[Block] = []
        self._head: Block | None = None
        if episode.in_memory:
            self.keep = float("inf")
            # Of a file that was read whole nobody has looked yet; of any other log it is known.
            self._keep([*checked([episode.read()])])

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
                if size > self.keep:
                    break
            else:
                yield self._keep(some)
                return
            yield from some
            yield from coming

    def _keep(self, parts: list[BehaviorLog]) -> BehaviorLog:
        self._kept = parts[0] if len(parts) == 1 else gathered(parts, sum(part.n_rows for part in parts), tuple)
        self.known = blocks(self._kept)
        return self._kept

    def first(self) -> Block:
        if self._head is None:
            self._head = next(self.blocks())
        return self._head

    def blocks(self) -> Iterator[Block]:
        parts = self.parts()
        some = list(islice(parts, 1))
        if self._kept is not None:
            yield from self.known
            return
        for block in reblocked(chain(some, parts)):
            self._head = self._head or block
            yield block


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
