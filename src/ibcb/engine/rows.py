"""The rows of one episode, in memory; and what any home of rows must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from ibcb.engine.block import Block
from ibcb.engine.threads import Workers, in_order

__all__ = ["MemoryRows", "Rows"]

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


class MemoryRows:
    """Blocks that lie in memory; with a team they are worked on side by side, and still come in order."""

    def __init__(self, blocks: Sequence[Block], team: Workers | None = None) -> None:
        self._blocks, self._team = blocks, team if len(blocks) > 1 else None

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        return in_order(self._team, kernel, self._blocks)

    def head(self, kernel: Callable[[Block], T]) -> T:
        return kernel(self._blocks[0])

    def prepared(self, kernel: Callable[[Block], Block]) -> MemoryRows:
        return MemoryRows(list(self.map(kernel)), self._team)
