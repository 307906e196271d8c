"""Rows of an episode on a Dask cluster: blocks stay on the workers, kernels travel to them, results come back in order.

Partitions are runs of blocks. Those of a log on disk are read by the workers, from a path that all of them can see, and
read again should a worker be lost; those of a log in memory are sent. Nothing is summed on a worker: every block's own
result comes back, so that sums are taken in the order of the blocks and have the bits of a fit in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ibcb.engine.block import Block, Workup, block_edges, blocks
from ibcb.engine.episode_rows import checked
from ibcb.engine.threads import one_blas_thread
from ibcb.log import BehaviorLog, Log
from ibcb.log.disk import gathered

T = TypeVar("T")

#: seconds after which a result that does not come is looked into (decision 0007); not tuned
_PATIENCE = 60.0
#: what all processes must have in the same version
_ALIKE = ("ibcb", "numpy")
#: workers whose versions have been looked at, by client
_CHECKED: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
#: numbers in a partition, 32 MB in double precision: many to a worker, few to the scheduler; not tuned finely
PARTITION_NUMBERS = 1 << 22


class ClusterError(RuntimeError):
    """The cluster was lost, or a task could not be finished on it."""


class _Connection:
    """A client, and what a lost cluster raises turned into one clear error."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # A client that has lost its scheduler no longer knows where that was.
        self._address = client.scheduler.address
        self._deserted = False
        with self._watched():
            self._check_versions()

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        with self._watched():
            # pure=False: a name of its own for every task, instead of one hashed from the arrays in the arguments.
            return self._client.submit(task, *arguments, pure=False)

    def result(self, future: Any) -> Any:
        with self._watched():
            # On the client's own loop, so that looking around does not cut off a result that is on its way.
            coming = asyncio.run_coroutine_threadsafe(
                self._client.gather(future, asynchronous=True), self._client.loop.asyncio_loop
            )
            try:
                while not wait([coming], timeout=_PATIENCE).done:
                    self._check_workers()
                return coming.result()
            except OSError as error:
                if future.status != "error":
                    raise
                raise ClusterError(
                    f"a worker at {self._address} could not read the log ({error}). The log must be at the same path "
                    "on all workers; put it where they see it, or fit it in memory."
                ) from error
            finally:
                coming.cancel()

    def _workers(self) -> dict[str, dict[str, Any]]:
        """All workers by their addresses, as the scheduler knows them.

        The client's own list is overwritten every two seconds by one without workers.
        """
        workers: dict[str, dict[str, Any]] = self._client.sync(self._client.scheduler.identity)["workers"]
        return workers

    def _check_versions(self) -> None:
        """Workers that have joined since the last time must have what we have: results would differ, or not come."""
        known = _CHECKED.setdefault(self._client, set())
        workers = set(self._workers())
        if workers <= known:
            return
        versions = self._client.get_versions(packages=list(_ALIKE))
        for worker, its in versions["workers"].items():
            for name in _ALIKE:
                ours, theirs = versions["client"]["packages"].get(name), its["packages"].get(name)
                if ours != theirs:
                    raise ClusterError(
                        f"the worker {worker} has {name} {theirs or '(none)'}, and this process {ours}; install the "
                        "same version on both, or results would differ."
                    )
        known |= workers

    def _check_workers(self) -> None:
        """Without workers, or with workers that have all paused for lack of memory, we would wait for ever."""
        states = [worker.get("status") for worker in self._workers().values()]
        # Seen twice: new ones may be on their way.
        if not states and self._deserted:
            raise ClusterError(
                f"no worker is left at {self._address}: they died or left. Start workers again "
                f"(dask worker {self._address}); what was finished before is kept where a checkpoint was asked for."
            )
        self._deserted = not states
        if states and all(state == "paused" for state in states):
            raise ClusterError(
                f"all workers at {self._address} have paused, because their memory is full; give them more (dask "
                "worker --memory-limit), or a disk to spill to (--local-directory)."
            )

    @contextmanager
    def _watched(self) -> Iterator[None]:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        try:
            yield
        except KilledWorker as error:
            raise ClusterError(
                f"a task at {self._address} was given up, because the workers that tried it died ({error}). Give the "
                "workers more memory, or write the log with smaller row groups."
            ) from error
        except RuntimeError as error:
            if "deserialization" not in str(error):
                raise
            raise ClusterError(
                f"the scheduler or a worker at {self._address} could not read what it was sent; they need the same "
                f"versions of ibcb, numpy and dask as this process ({str(error).splitlines()[0]})."
            ) from error
        except (CommClosedError, FutureCancelledError, CancelledError, asyncio.CancelledError, OSError) as error:
            raise ClusterError(
                f"the connection to the scheduler at {self._address} was lost ({type(error).__name__}: {error}). Start "
                "it again; what was finished before is kept where a checkpoint was asked for."
            ) from error


class _Partition(NamedTuple):
    """On a worker: some steps of an episode, in whole blocks; the first step and row of them."""

    steps: BehaviorLog
    first_step: int
    first_row: int

    def blocks(self, work: list[Workup] | None) -> list[Block]:
        """Its blocks, with what was worked out for them."""
        own = blocks(self.steps, (self.first_step, self.first_row))
        return own if work is None else [block.with_work(its) for block, its in zip(own, work, strict=True)]


class DaskRows:
    """Partitions of an episode on the workers of a cluster, and what has been worked out for their rows.

    ``here``: the episode, if it is in memory here.
    """

    def __init__(
        self,
        connection: _Connection,
        here: BehaviorLog | None,
        partitions: Sequence[Any],
        work: Sequence[Any] | None = None,
    ) -> None:
        self._connection, self._partitions = connection, partitions
        self._here = here
        self._work = work if work is not None else [None] * len(partitions)

    def map(self, kernel: Callable[[Block], T]) -> Iterator[T]:
        for future in self._submitted(kernel):
            yield from self._connection.result(future)

    def head(self, kernel: Callable[[Block], T]) -> T:
        submitted = self._connection.submit(_results, kernel, self._partitions[0], self._work[0], 1)
        (result,) = self._connection.result(submitted)
        return cast(T, result)

    def prepared(self, kernel: Callable[[Block], Block]) -> DaskRows:
        work = self._submitted(partial(_work_of, kernel=kernel))
        return DaskRows(self._connection, self._here, self._partitions, work)

    def parts(self) -> Iterator[BehaviorLog]:
        """Those that are here; else what the workers have read, one partition after the other."""
        if self._here is not None:
            yield self._here
            return
        for partition in self._partitions:
            yield self._connection.result(self._connection.submit(_steps, partition))

    def _submitted(self, kernel: Callable[[Block], Any]) -> list[Any]:
        pairs = zip(self._partitions, self._work, strict=True)
        return [self._connection.submit(_results, kernel, partition, work) for partition, work in pairs]


def _results(
    kernel: Callable[[Block], T], partition: _Partition, work: list[Workup] | None, most: int | None = None
) -> list[T]:
    """Of each block, or of the first few."""
    with one_blas_thread():
        return [kernel(block) for block in partition.blocks(work)[:most]]


def _work_of(block: Block, *, kernel: Callable[[Block], Block]) -> Workup | None:
    """Without the contexts: they are there already."""
    return kernel(block).work


def _steps(partition: _Partition) -> BehaviorLog:
    return partition.steps


# -- where partitions come from --------------------------------------------------------------------------------------


def distributed_rows(log: Log, client: Any) -> Iterator[tuple[int, DaskRows]]:
    """Every stored episode's number, and its rows on the cluster."""
    connection, where = _Connection(client), log.elsewhere
    for _, episode in log.episodes():
        ((number, counts),) = episode.step_counts()
        runs = _runs(counts, log.n_features)
        if where is None:
            here = episode.read()
            partitions = [connection.submit(_partition, list(here.steps(number, *run[:2])), *run) for run in runs]
        else:
            here, partitions = None, [connection.submit(_read, where, number, *run) for run in runs]
        yield number, DaskRows(connection, here, partitions)


def _runs(counts: NDArray[np.int64], d: int) -> list[tuple[int, int, int]]:
    """First step, end and first row of every partition: consecutive blocks, put together until they fill one."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    edges, runs, first = block_edges(offsets), list[tuple[int, int, int]](), 0
    for last, following in zip_longest(edges[1:], edges[2:]):
        row = int(offsets[first])
        if following is None or (int(offsets[following]) - row) * d > PARTITION_NUMBERS:
            runs.append((first, last, row))
            first = last
    return runs


def _read(where: tuple[Any, dict[str, Any]], number: int, first: int, last: int, first_row: int) -> _Partition:
    """On a worker: some steps of an episode, read from disk."""
    from ibcb.io import open_log

    path, options = where
    parts = open_log(path, **options).steps(number, first, last)
    return _partition(list(checked(parts)), first, last, first_row)


def _partition(parts: list[BehaviorLog], first: int, last: int, first_row: int) -> _Partition:
    """Steps first to last - 1, in one piece."""
    steps = parts[0] if len(parts) == 1 else gathered(parts, sum(part.n_rows for part in parts), tuple)
    return _Partition(steps, first, first_row)
