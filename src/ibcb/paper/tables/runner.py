"""Run cells and record them: each finished cell is one line of JSON, appended and never computed again."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ibcb.engine import one_blas_thread
from ibcb.io import atomic
from ibcb.io.locks import HeldError, sole_writer
from ibcb.paper import metrics
from ibcb.paper.simulation import Run
from ibcb.paper.tables.paper_cells import OURS, TABLES, Cell, PaperSetting, cells, make

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call of `reproduce` did."""

    done_before: int
    computed: int
    failed: tuple[str, ...]
    torn: bool


def reproduce(
    cells: Sequence[Cell],
    results: str | os.PathLike[str],
    *,
    jobs: int = 1,
    smoke: bool = False,
    progress: bool = False,
) -> Outcome:
    """Compute the cells that ``results`` does not hold yet, and append each as soon as it is finished.

    Killing this at any moment loses at most the cells under way. Cells that failed are recorded with their error and
    tried again by the next call. Once all are there, the records stand in the order of the paper's tables, whatever
    the order in which they were finished.
    """
    path = Path(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(sole_writer(path))
        except HeldError as held:
            raise BlockingIOError(f"{path} is being written by another run; wait, or give another path.") from held
        records, torn = read_results(path)
        if torn:
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        missing = [cell for cell in cells if "error" in records.get(cell.id, {"error": ""})]
        failed = []
        hidden = None if progress else True
        bar = tqdm(total=len(missing), desc="cells", unit="cell", disable=hidden, leave=False)
        with bar, path.open("a", encoding="utf-8", newline="\n") as file:
            for record in _compute(missing, jobs, smoke):
                file.write(json.dumps(record, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
                if "error" in record:
                    failed.append(f"{record['id']}: {record['error']}")
                bar.update()
        _put_in_order(path)
    return Outcome(len(cells) - len(missing), len(missing) - len(failed), tuple(failed), torn)


def read_results(path: str | os.PathLike[str]) -> tuple[dict[str, Record], bool]:
    """The last record of every cell by id, and whether the file ends in a torn line, which is left out."""
    records: dict[str, Record] = {}
    if not Path(path).exists():
        return records, False
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            records[record["id"]] = record
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}, line {number}: not a record of a cell; remove the line.") from None
    return records, bool(lines[-1])


def _put_in_order(path: Path) -> None:
    """The last record of every cell, in the order of the paper's tables; the file is replaced whole."""
    records, _ = read_results(path)
    place = {cell.id.rpartition("/")[0]: place for place, cell in enumerate(cells(TABLES, 1))}

    def key(record: Record) -> tuple[int, int, str]:
        return int(record.get("seed", 0)), place.get(record["id"].rpartition("/")[0], len(place)), record["id"]

    ordered = sorted(records.values(), key=key)
    content = "".join(json.dumps(record, allow_nan=False) + "\n" for record in ordered)
    if content == path.read_text(encoding="utf-8"):
        return
    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(content.encode())
        file.flush()
        os.fsync(file.fileno())


def _compute(cells: Sequence[Cell], jobs: int, smoke: bool) -> Iterator[Record]:
    if jobs == 1:
        for cell in cells:
            yield _cell(cell, smoke)
        return
    # Spawned, not forked: a forked child of a threaded BLAS may hang.
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with ours, theirs, ProcessPoolExecutor(jobs, context, _leave_with, (ours,)) as pool:
        futures = [pool.submit(_cell, cell, smoke) for cell in cells]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            # The workers leave, and what is left is given up; cancelled as well, it would be finished twice.
            theirs.close()
            raise


def _leave_with(connection: Connection) -> None:
    """In a worker: end at once when the process that started it closes its end, or is killed."""
    # Ctrl-C reaches all processes of a terminal; the one that was called answers for all.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            connection.recv()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _cell(cell: Cell, smoke: bool) -> Record:
    """Fit and measure one cell in one thread."""
    record: Record = {"id": cell.id, "setting": cell.setting.id, "algorithm": cell.algorithm, "seed": cell.seed}
    try:
        with one_blas_thread():
            run = _run(cell.setting, cell.seed, smoke)
            log = run.log if cell.setting.head is None else run.log.head(cell.setting.head)
            model: Any = make(cell.algorithm, run, smoke=smoke)
            if model is None:
                return record | {"seconds": None, "metrics": metrics.evaluate(run.expert, run)}
            start = time.process_time()
            model.fit(log)
            seconds = time.process_time() - start
            if cell.algorithm == OURS[0]:
                # Half a log: the expert to be imitated is the one after the whole of it.
                model.next_policy_coef_ = model.forecast(updates=1 + len(run.log) - len(log))
            figures = metrics.evaluate(model, run)
            json.dumps(figures, allow_nan=False)  # raises where a figure is no number
            return record | {"seconds": seconds, "metrics": figures}
    except Exception as error:
        return record | {"error": f"{type(error).__name__}: {error}"}


@functools.lru_cache(maxsize=2)
def _run(setting: PaperSetting, seed: int, smoke: bool) -> Run:
    return setting.simulate(seed, smoke=smoke)
