"""Reading and writing logs: the formats there are, and one way through for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ibcb.io import csvfiles, dsjson, feedback, ipc, jsonlines, npz, openbandit, parquet, vw
from ibcb.io.armtables import ArmRows
from ibcb.io.cells import plain_table
from ibcb.io.files import atomic
from ibcb.io.format import Format, folder_format, has_suffix, in_memory, is_hidden
from ibcb.io.layouts import table_source
from ibcb.io.opened import Opened, regular
from ibcb.io.optionfiles import load_options
from ibcb.io.sources import Watched, source_name
from ibcb.io.transforms import crossed, standardized
from ibcb.io.words import refusal
from ibcb.log import BehaviorLog, Log, is_log
from ibcb.log.array_checks import LogFormatError, warmup_count
from ibcb.log.behavior_log import dense_pieces
from ibcb.log.disk import DiskLog, named
from ibcb.log.notes import Note
from ibcb.log.option import did_you_mean, documented
from ibcb.log.read_options import OPTIONS_FILE, READING, ReadOptions
from ibcb.log.steps import Source
from ibcb.log.validation.updates import find_updates
from ibcb.numerics.printable import WrongTypeError, shown

#: tables in memory: of pandas, polars, DuckDB, pyarrow, or whatever else has the Arrow interface
_FRAMES = Format(
    name="table",
    tables=lambda source, _: in_memory(source_name(source), plain_table(pa.table(source))),
    looks_like=lambda source: hasattr(source, "__arrow_c_stream__"),
)
_TABLES = (parquet.FORMAT, csvfiles.FORMAT, ipc.FORMAT, jsonlines.FORMAT)
#: what is read and written; the first that recognises a source opens it
FORMATS = (
    _FRAMES,
    feedback.FORMAT,
    openbandit.FORMAT,
    folder_format(_TABLES),
    vw.FORMAT,
    dsjson.FORMAT,
    *_TABLES,
    npz.FORMAT,
)
_WRITTEN = {format.suffixes[0]: format for format in FORMATS if format.write is not None}
WRITABLE = tuple(_WRITTEN)
#: what a format that is written cannot carry
LOST = {suffix: format.loses for suffix, format in _WRITTEN.items() if format.loses}


@documented((*READING, OPTIONS_FILE))
def read_log(source: Any, **options: Any) -> BehaviorLog:
    """Read a log from a file, a folder of files, or a table in memory.

    Parameters
    ----------
    source : path, or DataFrame
        Parquet, CSV or TSV, JSON lines (also gzipped) or Arrow IPC, or a folder of such files, read in the order of
        their names; or any object with the Arrow interface: a table of pandas, polars, DuckDB or pyarrow. Also NumPy
        archives (``.npz``), Vowpal Wabbit text (``.vw``, ``.ldf``), dsjson, folders of the Open Bandit Dataset, and the
        feedback dicts of its pipeline: see `ibcb.io.npz`, `ibcb.io.vw`, `ibcb.io.dsjson`, `ibcb.io.openbandit`,
        `ibcb.io.feedback`.

        *One row per candidate* (long): columns that name the step and mark the chosen candidate, by 1, true, yes (in a
        few languages) or an x, and the features. *One row per step*, as `write_log` writes: ``episode``, ``step``,
        ``chosen`` (the position, from 0), ``n_candidates`` and ``contexts``, a list of all candidates' features one
        after the other, or a list of such lists. *One row per step* with a list of objects, the candidates
        (`ibcb.io.lists`), or with columns for each alternative (``alternatives``). Rows of a step stand together, steps
        in the order of time.
    **options
        See `ibcb.log.read_options.ReadOptions`.

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


@documented((*READING, OPTIONS_FILE))
def open_log(source: Any, **options: Any) -> DiskLog:
    """A log that stays on disk: `ibcb.validate` and `write_log` read it part by part.

    Takes what `read_log` takes. Nothing but the header is read yet.
    """
    if "options" in options:
        options = load_options(options.pop("options")) | options
    known = [each.name for each in READING]
    if unknown := [name for name in options if name not in known]:
        meant = did_you_mean(unknown[0], known)
        raise WrongTypeError(f"there is no option {shown(unknown[0])}{meant}; see help(ibcb.read_log).")
    asked = how = ReadOptions(**options)
    source = Path(source) if isinstance(source, (str, os.PathLike)) else source
    format = _format_of(source, how.format)
    files = [Opened(path) for path in log_files(source, how.format)] if isinstance(source, Path) else []
    for option in ("items", "arm_features"):
        if getattr(how, option) is not None:
            how = replace(how, **{option: _side_table(getattr(how, option), how)})
    with named(source_name(source), format.name):
        steps = table_source(format.rows(source, how), how) if format.open is None else format.open(source, how)
        has_arms = isinstance(steps, ArmRows)
        if isinstance(source, Path):
            steps = Watched(steps, files, partial(log_files, source, how.format))
        if not has_arms:
            steps = crossed(standardized(steps, how), how)
        if how.standardize or how.cross or how.arm is not None:
            # Whoever opens it again need not find the means, the arms, or what only steps have, again.
            again = {"standardize": False, "cross": (), "arm_features": None}
            options = options | again | {"preparation": steps.preparation}
        notes, cut = tuple[Note, ...](), asked
        if asked.episodes == "auto":
            edges, notes = _found_episodes(steps, asked, format.name)
            # Nor the updates.
            options, cut = options | {"episodes": edges}, replace(asked, episodes=edges)
        where = (source.absolute(), options) if isinstance(source, Path) else None
        log = DiskLog(steps, cut, where, format.name, notes)
        if log.preparation is not None:
            # Those of another log are its own.
            log.preparation = replace(log.preparation, reading=asked.kept())
        return log


def _found_episodes(steps: Source, how: ReadOptions, kind: str) -> tuple[list[int], tuple[Note, ...]]:
    """The first step of every episode, found from the choices."""
    if not how.choices:
        return [0], ()
    first = next(iter(steps.batches()), None)
    # Without labels the warm-up is the beginning of a cut that is yet to be found.
    warmup = None if first is None or first.episode is None else how.warmup
    updates = find_updates(DiskLog(steps, replace(how, episodes=[0], warmup=warmup), None, kind))
    return updates.edges.tolist(), updates.notes


def write_log(log: Log, path: str | os.PathLike[str], *, long: bool = False) -> None:
    """Write a log; the file appears whole or not at all. A log on disk is copied part by part.

    Parameters
    ----------
    log : BehaviorLog, or what `open_log` gave
    path : path
        The suffix tells the format. ``.parquet`` keeps everything and is read fastest: one row per step, or with
        ``long=True`` one per candidate. ``.arrow`` and ``.csv`` have one row per candidate; CSV does not keep the float
        type, nor whether the features had names. ``.npz`` keeps everything. ``.dsjson`` and ``.vw`` are for Vowpal
        Wabbit, with logged propensities in the labels; `ibcb.io.LOST` says what a format loses.
    """
    if not is_log(log):
        raise WrongTypeError(f"write_log takes a BehaviorLog or what open_log gave, got {type(log).__name__}.")
    format = _WRITTEN.get(Path(path).suffix.lower())
    if format is None or format.write is None:
        raise refusal("write-no-format", name=Path(path).name, suffixes=", ".join(WRITABLE))
    write, parts = format.write, _some_chosen(log)
    if (long and format.write_long is not None) or not format.keeps_sparse:
        write = (format.write_long if long else None) or format.write
        parts = ((number, piece) for number, part in _some_chosen(log) for piece in dense_pieces(part))
    with atomic(path) as temporary:
        write(parts, temporary)


def _some_chosen(log: Log) -> Iterator[tuple[int, BehaviorLog]]:
    """The parts of a log; all episodes cannot be warm-up, which is known at the end only."""
    numbers: set[int] = set()
    for number, part in log.parts():
        numbers.add(number)
        yield number, part
    if max(numbers) < 0:
        with named(log.name or "the log"):
            warmup_count(len(numbers), len(numbers))


def _not_read(source: Any) -> WrongTypeError:
    lazy = "; collect it first: read_log(frame.collect())" if callable(getattr(source, "collect", None)) else ""
    return WrongTypeError(
        "expected a path, or a table with the Arrow interface (pandas 2.2 or newer, polars, DuckDB, pyarrow); got "
        f"{type(source).__name__}{lazy}."
    )


def _side_table(source: Any, options: ReadOptions) -> pa.Table:
    """A table beside the log, in memory."""
    format, own = _FRAMES, ReadOptions()
    if isinstance(source, (str, os.PathLike)):
        source = regular(Path(source), "a table")
        format = _by_name(source, _TABLES)
        own = ReadOptions(delimiter=options.delimiter, decimal=options.decimal, max_memory=options.max_memory)
    elif not format.recognises(source):
        raise _not_read(source)
    with named(source_name(source), format.name):
        return format.rows(source, own).whole(options.memory)


def log_files(path: Path, format: str | None = None) -> list[Path]:
    """The files that a path is read as: of a folder those that a format takes by name, or all where it was named."""
    if not path.is_dir():
        return [path, *openbandit.beside(path)]
    return [each for each in sorted(path.rglob("*")) if each.is_file() and is_member(path, each, format)]


def is_member(folder: Path, path: Path, format: str | None = None) -> bool:
    """Whether a file, there or not yet, is one of those that a folder is read as; hidden ones are not."""
    named = format is not None or has_suffix(path, *(suffix for each in FORMATS for suffix in each.suffixes))
    return named and not is_hidden(folder, path)


def known_by_name(path: Path) -> bool:
    """Whether the name of a file, or what is in it, tells its format."""
    return path.exists() and any(format.recognises(path) for format in FORMATS)


def _format_of(source: Any, name: str | None) -> Format:
    """The format of a path, which may be named, or of a table in memory."""
    if not isinstance(source, Path):
        format = next((format for format in FORMATS if format.recognises(source)), None)
        if format is None:
            raise _not_read(source)
        return format
    if not os.access(regular(source), os.R_OK):
        raise PermissionError(f"{source} cannot be read: no permission. Ask its owner for it.")
    if name is not None:
        called = format_called(name)
        return folder_format([called]) if source.is_dir() and called in _TABLES else called
    return _by_name(source, FORMATS, " Or name it: format='csv' (--format csv).")


def _by_name(path: Path, formats: Sequence[Format], more: str = "") -> Format:
    """The format that recognises a path."""
    format = next((format for format in formats if format.recognises(path)), None)
    if format is None:
        tables_first = sorted(formats, key=lambda format: format not in _TABLES)
        known = ", ".join(suffix for format in tables_first for suffix in format.suffixes)
        raise LogFormatError(f"{path.name}: the name does not tell the format; it must end in one of {known}.{more}")
    return format


def format_called(name: str) -> Format:
    """The format that users call so; ValueError where there is none."""
    known = {format.key: format for format in FORMATS if format.key}
    called = known.get(name.lower().removeprefix("."))
    if called is None:
        meant = did_you_mean(name, known)
        raise ValueError(f"format={shown(name)} is unknown{meant}; choose one of {', '.join(known)}.")
    return called
