"""A model's choices on new candidate sets, as tables: a part at a time, so that the sets may be larger than memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ibcb.estimators.imitator import Imitator
from ibcb.io import atomic
from ibcb.log import Log, argmax_per_step

__all__ = ["csv_writer", "predictions", "write_predictions", "write_tables"]


def predictions(
    model: Imitator,
    log: Log,
    *,
    scores: bool = False,
    certainty: bool = False,
    policy: NDArray[np.float64] | None = None,
) -> Iterator[pa.Table]:
    """Tables of episode, step, step_id (where there is one), chosen, candidate_id (likewise) and score.

    A row for every step, with the position of the chosen candidate, its name and its score; with ``scores`` a row for
    every candidate, with its position, whether it is chosen, and its score; with ``certainty``, of an IBCB model, the
    probability of each choice. Another ``policy`` than the model's next, such as `IBCB.policy_at` gives, is used for
    the scores.
    """
    before, first = None, 0
    for number, part in log.parts():
        first = first if number == before else 0
        values = model.decision_function(part)
        if policy is not None:
            values = part.contexts @ policy.astype(part.contexts.dtype, copy=False)
        best = argmax_per_step(values, part)
        owner = np.repeat(np.arange(part.n_steps), np.diff(part.step_offsets)) if scores else np.arange(part.n_steps)
        columns: dict[str, Any] = {"episode": np.full(len(owner), number), "step": first + owner}
        if part.step_ids is not None:
            columns["step_id"] = part.step_ids[owner]
        if scores:
            position = np.arange(part.n_rows) - part.step_offsets[owner]
            columns |= {"candidate": position, "chosen": position == best[owner]}
        else:
            columns["chosen"] = best
        rows = slice(None) if scores else part.step_offsets[:-1] + best
        if part.candidate_ids is not None:
            columns["candidate_id"] = part.candidate_ids[rows]
        columns["score"] = values[rows]
        if certainty:
            columns["certainty"] = model.certainty(part)
        yield pa.table(columns)
        before, first = number, first + part.n_steps


def write_predictions(
    model: Imitator, log: Log, path: str | os.PathLike[str], *, scores: bool = False, **how: Any
) -> int:
    """Write `predictions` as CSV or Parquet, by the suffix, whole or not at all; gives the number of steps."""
    steps = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal steps
        for table in predictions(model, log, scores=scores, **how):
            steps += int(np.count_nonzero(table["chosen"])) if scores else len(table)
            yield table

    write_tables(counted(), path)
    return steps


def write_tables(tables: Iterable[pa.Table], path: str | os.PathLike[str]) -> None:
    """Write tables of one schema as CSV or Parquet, by the suffix, whole or not at all."""
    with atomic(path) as temporary, table_writer(temporary, Path(path).suffix.lower()) as begin:
        write = begin()
        for table in tables:
            write(table)


@contextlib.contextmanager
def table_writer(path: Path, suffix: str) -> Iterator[Callable[[], Callable[[pa.Table], None]]]:
    """Gives what begins a file, .csv or .parquet, and with it what writes tables of one schema; whoever begins again
    writes the file anew.
    """
    with contextlib.ExitStack() as stack:

        def begin() -> Callable[[pa.Table], None]:
            stack.close()
            if suffix != ".parquet":
                return csv_writer(stack.enter_context(path.open("wb")))
            opened: list[Any] = []

            def write(table: pa.Table) -> None:
                if not opened:
                    opened.append(stack.enter_context(pq.ParquetWriter(path, table.schema)))
                opened[0].write_table(table)

            return write

        yield begin


class Spool:
    """A file aside for CSV that may have to be begun anew, before it goes to stdout."""

    def __enter__(self) -> Spool:
        self._file = tempfile.TemporaryFile()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def begin(self) -> Callable[[pa.Table], None]:
        """What writes tables, from the start."""
        self._file.seek(0)
        self._file.truncate()
        return csv_writer(self._file)

    def copy_to(self, file: IO[bytes]) -> None:
        """All of it."""
        self._file.seek(0)
        shutil.copyfileobj(self._file, file)


def csv_writer(file: IO[bytes]) -> Callable[[pa.Table], None]:
    """Writes tables one after the other, the header once."""
    started = False

    def write(table: pa.Table) -> None:
        nonlocal started
        if not started:
            file.write((",".join(table.column_names) + "\n").encode())
            started = True
        pacsv.write_csv(table, file, pacsv.WriteOptions(include_header=False, quoting_style="needed"))

    return write
