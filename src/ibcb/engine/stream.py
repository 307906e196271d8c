"""Rows of an episode on disk: read part by part for every pass, ahead of the computation; small ones are kept."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ibcb.engine.block import Block, Workup, block_edges
from ibcb.log import BehaviorLog

__all__ = ["StreamedRows", "ahead", "reblocked"]

T = TypeVar("T")

#: an episode of fewer bytes stays in memory after its first pass, and so does what was worked out for its rows
KEPT_BYTES = 1 << 28
_AHEAD = 2


class StreamedRows:
    """Blocks that are made anew from the parts of an episode for every pass.

    Parameters
    ----------
    parts : callable
        Gives an iterator over the parts of the episode, in order; called for every pass.
    keep : int
        Bytes that may stay in memory.
    """

    def __init__(self, parts: Callable[[], Iterable[BehaviorLog]], *, keep: int | None = None) -> None:
        self._parts, self._keep = parts, KEPT_BYTES if keep is None else keep
        self._kept: list[Block] | None = None

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        return map(kernel, self._blocks())

    def prepared(self, kernel: Callable[[Block], Block]) -> _PreparedRows:
        return _PreparedRows(self, kernel, self._keep)

    def _blocks(self) -> Iterator[Block]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Block] | None = []
        size = 0
        for block in ahead(reblocked(self._parts())):
            size += block.contexts.nbytes
            if kept is not None:
                kept = [*kept, block] if size <= self._keep else None
            yield block
        self._kept = kept


class _PreparedRows:
    """Streamed rows worked up by a kernel; the work is kept where that takes little room, else done again."""

    def __init__(self, rows: StreamedRows | _PreparedRows, kernel: Callable[[Block], Block], keep: int) -> None:
        self._rows, self._kernel, self._keep = rows, kernel, keep
        self._work: list[Workup | None] = []
        self._size = 0

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        return map(kernel, self._blocks())

    def prepared(self, kernel: Callable[[Block], Block]) -> _PreparedRows:
        return _PreparedRows(self, kernel, self._keep)

    def _blocks(self) -> Iterator[Block]:
        for place, block in enumerate(self._rows._blocks()):
            if place < len(self._work) and self._work[place] is not None:
                yield block.with_work(self._work[place])
                continue
            worked_up = self._kernel(block)
            assert worked_up.work is not None
            if place == len(self._work):
                self._size += worked_up.work.nbytes
                self._work.append(worked_up.work if self._size <= self._keep else None)
            yield worked_up


def reblocked(parts: Iterable[BehaviorLog]) -> Iterator[Block]:
    """The blocks of an episode from parts of any size."""
    contexts: NDArray[Any] | None = None
    counts = chosen = np.empty(0, dtype=np.int64)
    first_step = first_row = 0

    def cut(last: bool) -> Iterator[Block]:
        """Blocks that are complete; what remains waits for the next part."""
        nonlocal contexts, counts, chosen, first_step, first_row
        assert contexts is not None
        offsets = np.concatenate([[0], np.cumsum(counts)])
        edges = block_edges(offsets, None)
        for first, end in pairwise(edges if last else edges[:-1]):
            start, stop = int(offsets[first]), int(offsets[end])
            own = counts[first:end]
            yield Block(
                contexts=contexts[start:stop],
                chosen_rows=offsets[first:end] + chosen[first:end] - start,
                offsets=offsets[first : end + 1] - start,
                width=int(own[0]) if (own == own[0]).all() else None,
                first_step=first_step + first,
                first_row=first_row + start,
            )
        rest = edges[-1] if last else edges[-2]
        first_step, first_row = first_step + rest, first_row + int(offsets[rest])
        contexts, counts, chosen = contexts[int(offsets[rest]) :], counts[rest:], chosen[rest:]

    for part in parts:
        contexts = part.contexts if contexts is None or not len(contexts) else np.concatenate([contexts, part.contexts])
        counts = np.concatenate([counts, np.diff(part.step_offsets)])
        chosen = np.concatenate([chosen, part.chosen])
        yield from cut(last=False)
    if contexts is not None and len(counts):
        yield from cut(last=True)


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, made by a thread that is a few of them ahead."""
    made: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=_AHEAD)
    stopped = threading.Event()

    def put(kind: str, value: Any) -> bool:
        while not stopped.is_set():
            try:
                made.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, name="ibcb reader", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = made.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        stopped.set()
        thread.join()
