"""Threads: blocks side by side, and BLAS kept to one thread of its own in each."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Sums then have the same bits on every machine, and our threads do not crowd each other.

    The limit holds for the whole process, so blocks that overlap in several threads share it: the first one in sets it,
    the last one out puts back what was there before.
    """
    token = object()
    try:
        _one_thread.enter(token)
        yield
    finally:
        _one_thread.leave(token)


class _OneThread:
    """The limit, and which blocks need it at the moment; an interruption at any place costs nobody the threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: dict[object, int] = {}  # each with its thread
        self._before: list[tuple[Any, int]] = []

    def enter(self, token: object) -> None:
        with self._lock:
            first = not self._inside
            # What an interrupted leave did not put back still is what was there before.
            if first and not self._before:
                self._before = _threaded()
            self._inside[token] = threading.get_ident()
            if first:
                self._before = [(library, threads) for library, threads in self._before if _set(library, 1)]

    def leave(self, token: object) -> None:
        with self._lock:
            if self._inside.pop(token, None) is not None and not self._inside:
                self._restore()

    def _restore(self) -> None:
        for library, threads in self._before:
            _hand_over(library)
            _set(library, threads)
            _hand_over(library)
        self._before = []

    def forked(self) -> None:
        """In a child process only the thread that forked lives on; nobody else will ever leave."""
        self._lock = threading.Lock()
        own = threading.get_ident()
        self._inside = {token: thread for token, thread in self._inside.items() if thread == own}
        if not self._inside:
            self._restore()


_one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread.forked)


def _threaded() -> list[tuple[Any, int]]:
    """Every BLAS library that may use more than one thread, with how many."""
    libraries = _controller().select(user_api="blas").lib_controllers
    return [(library, library.num_threads) for library in libraries if library.num_threads != 1]


def _set(library: Any, threads: int) -> bool:
    """Whether it has them now: a host program that holds a limit in another thread keeps it."""
    if threads == 1 and library.num_threads == 1:
        return True
    library.set_num_threads(threads)
    return bool(library.num_threads == threads)


def _hand_over(library: Any) -> None:
    """From threadpoolctl 3.8 on only the thread that set a limit can lift it; ours is lifted by the last one out."""
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


@cache
def _controller() -> ThreadpoolController:
    # SciPy may bring a BLAS of its own, which can be limited once it is loaded.
    import_module("scipy.linalg")
    return ThreadpoolController()


def in_order(team: Workers | None, task: Callable[[S], T], items: Iterable[S]) -> Generator[T]:
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
