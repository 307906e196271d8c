"""The rows of one episode, in memory; and what any home of rows must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from ibcb.engine.block import Block, blocks
from ibcb.engine.threads import Workers, in_order
from ibcb.log import BehaviorLog

T = TypeVar("T")


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


class MemoryRows:
    """An episode in memory; with a team its blocks are worked on side by side, and still come in order."""

    def __init__(
        self, episode: BehaviorLog, team: Workers | None = None, blocks_of_it: Sequence[Block] | None = None
    ) -> None:
        # Of a file that was read whole nobody has looked yet; of any other log it is known.
        episode.check_sizes()
        self._episode, self._blocks = episode, blocks(episode) if blocks_of_it is None else blocks_of_it
        self._team = team if len(self._blocks) > 1 else None

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        return map(kernel, self._blocks) if self._team is None else in_order(self._team, kernel, self._blocks)

    def head(self, kernel: Callable[[Block], T]) -> T:
        return kernel(self._blocks[0])

    def prepared(self, kernel: Callable[[Block], Block]) -> MemoryRows:
        return MemoryRows(self._episode, self._team, list(self.map(kernel)))

    def parts(self) -> Iterator[BehaviorLog]:
        yield self._episode
