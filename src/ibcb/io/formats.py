"""Reading and writing logs: the formats there are, and one way through for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ibcb.io import csvfiles, dsjson, frames, ipc, npz, openbandit, parquet, vw
from ibcb.io.files import atomic
from ibcb.io.folders import folder_format
from ibcb.io.format import Format
from ibcb.io.sources import source_name
from ibcb.io.standardize import standardized
from ibcb.log import BehaviorLog
from ibcb.log.arrays import LogFormatError, warmup_count
from ibcb.log.behavior_log import dense_pieces
from ibcb.log.disk import DiskLog, named
from ibcb.log.notes import Note
from ibcb.log.steps import ReadOptions, Source
from ibcb.log.validation.updates import find_updates

__all__ = ["FORMATS", "LOST", "WRITABLE", "open_log", "read_log", "write_log"]

_TABLES = (parquet.FORMAT, csvfiles.FORMAT, ipc.FORMAT)
#: what is read and written; the first that recognises a source opens it
FORMATS = (
    frames.FORMAT,
    openbandit.FORMAT,
    folder_format(_TABLES),
    *_TABLES,
    npz.FORMAT,
    vw.FORMAT,
    dsjson.FORMAT,
)
_WRITTEN = {format.suffixes[0]: format for format in FORMATS if format.write is not None}
WRITABLE = tuple(_WRITTEN)
#: what a format that is written cannot carry
LOST = {suffix: format.loses for suffix, format in _WRITTEN.items() if format.loses}


def read_log(source: Any, **options: Any) -> BehaviorLog:
    """Read a log from a file, a folder of files, or a table in memory.

    Parameters
    ----------
    source : path, or DataFrame
        Parquet, CSV or TSV (also gzipped) or Arrow IPC, or a folder of such files, read in the order of their names;
        or any object with the Arrow interface: a table of pandas, polars, DuckDB or pyarrow. Also NumPy archives
        (``.npz``), Vowpal Wabbit text (``.vw``), dsjson, and folders of the Open Bandit Dataset: see `ibcb.io.npz`,
        `ibcb.io.vw`, `ibcb.io.dsjson`, `ibcb.io.openbandit`.

        Two forms are understood. *One row per candidate* (long): columns that name the step and mark the chosen
        candidate, and the features. *One row per step*, as `write_log` writes: ``episode``, ``step``, ``chosen`` (the
        position, from 0), ``n_candidates`` and ``contexts``, a list of all candidates' features one after the other,
        or a list of such lists. Rows of a step stand together, steps in the order of time.
    columns : dict, optional
        Which column plays which role, where its name does not tell: episode, step, chosen, timestamp, step_id,
        candidate. ``{"step": "request"}``.
    features : list of str, optional
        The features to read, in this order; by default all columns that are left, but those without a name and those
        whose name says reward or propensity. ``log.notes`` has what was left out.
    drop : list of str
        Columns that are no features.
    keep : list of str
        Columns that are features though their names say otherwise: a ``cost`` that was known before the choice is no
        outcome. Of tables with a row per candidate; elsewhere no feature is left out because of its name.
    one_hot : list of str, or True
        Columns of text to encode as one feature per value; True: all of them.
    missing : {"refuse", "mean", "zero"}
        What to do about missing numbers.
    standardize : bool
        Centre and scale each feature by its mean and standard deviation, of all candidates' rows; one-hot features stay
        0 and 1. Means and scales are kept with the log and its model, so that new data goes the same way
        (``preparation=``); weights are per standard deviation then. Goes through the log once more.
    episode_every : str, optional
        Cut episodes by time: "1d", "6h", "30min". Windows are counted from midnight, 1 January 1970, UTC; the steps
        of one stand before those of the next.
    episode_size : int, optional
        Cut episodes by number of steps.
    episodes : "auto", or list of int, optional
        "auto": find the updates of the policy from the choices (`ibcb.find_updates`), in one more pass over the log,
        and cut there; ``log.notes`` says what was found. Or the first step of every episode, beginning with 0. Steps
        are counted after the warm-up that the log's own episodes tell; the rest of these do not matter then.
    warmup : int, optional
        How many leading episodes were random. By default those with negative numbers.
    sort : bool
        Sort the rows by episode, time and step first; needs all of them in memory.
    delimiter, decimal : str
        Of CSV files; by default the delimiter is found in the header, and the decimal point is a point.
    choices : bool
        False: candidate sets without choices, for `predict`.
    preparation : Preparation, optional
        Make the features as for another log: ``model.preparation_``. A log that does not say how its features were made
        is taken to hold raw numbers, to be centred and scaled where those of the other were.

    Examples
    --------
    >>> import ibcb, pyarrow as pa
    >>> table = pa.table({
    ...     "batch": [0, 0, 0, 0, 1, 1], "request_id": ["a", "a", "b", "b", "c", "c"],
    ...     "picked": [True, False, False, True, True, False], "price": [1.0, 2.0, 3.0, 1.5, 2.5, 4.0],
    ... })
    >>> ibcb.read_log(table)
    BehaviorLog(2 episodes, 3 steps, 2 candidates each, 1 feature, float64)
    """
    return open_log(source, **options).read()


def open_log(source: Any, **options: Any) -> DiskLog:
    """A log that stays on disk: `ibcb.validate` and `write_log` go through it part by part.

    Takes what `read_log` takes. Nothing but the header is read yet.
    """
    unknown = [name for name in options if name not in ReadOptions.__dataclass_fields__]
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; see help(ibcb.read_log).")
    how = ReadOptions(**options)
    source = Path(source) if isinstance(source, (str, os.PathLike)) else source
    format = _path_format(source) if isinstance(source, Path) else _object_format(source)
    with named(source_name(source), format.name):
        steps = standardized(format.open(source, how), how)
        if how.standardize:
            # Whoever opens it again need not find the means again.
            options = options | {"preparation": steps.preparation, "standardize": False}
        notes: tuple[Note, ...] = ()
        if how.episodes == "auto":
            found, notes = _found_episodes(steps, how, format.name)
            # Nor the updates.
            options, how = options | {"episodes": found}, replace(how, episodes=found)
        where = (source.absolute(), options) if isinstance(source, Path) else None
        return DiskLog(steps, how, where, format.name, notes)


def _found_episodes(steps: Source, how: ReadOptions, kind: str) -> tuple[list[int], tuple[Note, ...]]:
    """The first step of every episode, found from the choices."""
    if not how.choices:
        return [0], ()
    first = next(iter(steps.batches()), None)
    # Without labels the warm-up is the beginning of a cut that is yet to be found.
    warmup = None if first is None or first.episode is None else how.warmup
    updates = find_updates(DiskLog(steps, replace(how, episodes=[0], warmup=warmup), None, kind))
    return updates.edges.tolist(), updates.notes


def write_log(log: BehaviorLog | DiskLog, path: str | os.PathLike[str], *, long: bool = False) -> None:
    """Write a log; the file appears whole or not at all. A log on disk goes through part by part.

    Parameters
    ----------
    log : BehaviorLog, or what `open_log` gave
    path : path
        The suffix tells the format. ``.parquet`` carries everything and is read fastest: one row per step, or with
        ``long=True`` one per candidate. ``.arrow`` and ``.csv`` have one row per candidate; CSV does not keep the float
        type, nor whether the features had names. ``.npz`` carries everything. ``.dsjson`` and ``.vw`` are for Vowpal
        Wabbit; `ibcb.io.LOST` tells what a format loses.
    """
    if not isinstance(log, (BehaviorLog, DiskLog)):
        raise TypeError(f"write_log takes a BehaviorLog or what open_log gave, got {type(log).__name__}.")
    format = _WRITTEN.get(Path(path).suffix.lower())
    write = None if format is None else (format.write_long if long else None) or format.write
    if format is None or write is None:
        raise LogFormatError(
            f"{Path(path).name}: a log cannot be written under that name; it must end in one of {', '.join(WRITABLE)}."
        )
    with atomic(path) as temporary:
        parts = _some_chosen(log)
        write(parts if write is format.write and format.keeps_sparse else _dense(parts), temporary)


def _dense(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[tuple[int, BehaviorLog]]:
    for number, part in parts:
        for piece in dense_pieces(part):
            yield number, piece


def _some_chosen(log: BehaviorLog | DiskLog) -> Iterator[tuple[int, BehaviorLog]]:
    """The parts of a log; all episodes cannot be warm-up, which is known at the end only."""
    numbers: set[int] = set()
    for number, part in log.parts():
        numbers.add(number)
        yield number, part
    if max(numbers) < 0:
        with named(log.name if isinstance(log, DiskLog) else "the log"):
            warmup_count(len(numbers), len(numbers))


def _object_format(source: Any) -> Format:
    found = next((format for format in FORMATS if format.recognises(source)), None)
    if found is None:
        lazy = "; collect it first: read_log(frame.collect())" if callable(getattr(source, "collect", None)) else ""
        raise TypeError(
            "expected a path, or a table with the Arrow interface (pandas 2.2 or newer, polars, DuckDB, pyarrow); got "
            f"{type(source).__name__}{lazy}."
        )
    return found


def _path_format(path: Path) -> Format:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a log.")
    if not path.is_file() and not path.is_dir():
        raise LogFormatError(
            f"{path.name}: a pipe or device, which can be read only once; save what it gives to a file first."
        )
    if not os.access(path, os.R_OK):
        raise PermissionError(f"{path} cannot be read: no permission. Ask its owner for it.")
    found = next((format for format in FORMATS if format.recognises(path)), None)
    if found is None:
        known = ", ".join(suffix for format in FORMATS for suffix in format.suffixes)
        raise LogFormatError(f"{path.name}: the format is not known by the name; it must end in one of {known}.")
    return found
