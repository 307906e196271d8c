"""Threads: blocks side by side, and BLAS kept to one thread of its own in each."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["Workers", "in_order", "one_blas_thread", "workers"]

S = TypeVar("S")
T = TypeVar("T")


class Workers(NamedTuple):
    """Threads, and how many."""

    executor: Executor
    size: int


@contextmanager
def workers(n_jobs: int | None) -> Iterator[Workers | None]:
    """That many threads, -1 for one per core; None where one is enough."""
    count = _cores() if n_jobs == -1 else n_jobs or 1
    if count == 1:
        yield None
        return
    with ThreadPoolExecutor(count, thread_name_prefix="ibcb") as executor:
        yield Workers(executor, count)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[Any]:
    """Sums then have the same bits on every machine, and our threads do not crowd each other."""
    limits: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limits


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def in_order(team: Workers | None, task: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """The task of every item, in order; with workers a few of them at a time."""
    if team is None:
        yield from map(task, items)
        return
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            waiting.append(team.executor.submit(task, item))
            if len(waiting) > 2 * team.size:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
