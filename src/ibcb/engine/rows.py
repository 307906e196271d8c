"""The rows of one episode, in memory; and what any home of rows must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from ibcb.engine.block import Block

__all__ = ["MemoryRows", "Rows"]

T = TypeVar("T")


class Rows(Protocol):
    """The rows of one episode, wherever they live, as blocks in order.

    Kernels are functions of a block that can be sent elsewhere: module-level, or `functools.partial` of such.
    """

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        """The kernel of every block, in order."""
        ...

    def prepared(self, kernel: Callable[[Block], Block]) -> Rows:
        """The same rows with every block worked up by a kernel, where they live."""
        ...


class MemoryRows:
    """Blocks that lie in memory; with an executor they are worked on side by side, and still come in order."""

    def __init__(self, blocks: Sequence[Block], executor: Executor | None = None) -> None:
        self._blocks, self._executor = blocks, executor

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        if self._executor is None or len(self._blocks) == 1:
            return map(kernel, self._blocks)
        return self._executor.map(kernel, self._blocks)

    def prepared(self, kernel: Callable[[Block], Block]) -> MemoryRows:
        return MemoryRows(list(self.map(kernel)), self._executor)
