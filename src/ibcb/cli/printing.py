"""What the verbs print: data on stdout, messages on stderr."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    import pyarrow as pa

    import ibcb
    from ibcb.log import Log
    from ibcb.log.notes import Note
    from ibcb.report.facts import Validating
    from ibcb.report.verdict import Verdict

Row = dict[str, Any]
#: how unencodable signs are handled, by the name that Python knows it by
_ESCAPED = "ibcb-escaped"
#: findings of `ibcb.validate` that are repeated though they are no warnings: units matter to an l2 that is a number
_REPEATED = ("scales",)
#: findings of `ibcb.validate` that say of features what a model's note on undetermined ones says
_UNDETERMINED = ("constant-within-steps", "collinear")


def print_table(rows: list[Row], columns: dict[str, str]) -> None:
    """Figures right-aligned under their headings, words left-aligned."""
    wordy = {name for name in columns if all(isinstance(row[name], str) for row in rows)}
    texts = [list(columns.values()), *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for line in texts:
        cells = zip(columns, line, widths, strict=True)
        padded = (text.ljust(width) if name in wordy else text.rjust(width) for name, text, width in cells)
        print("  ".join(padded).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return printable(str(value))
    return f"{value:.4g}" if 0 < abs(value) < 1e-3 else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3f}"


def size(log: ibcb.BehaviorLog) -> str:
    """A log's size in words."""
    return f"{len(log)} episodes, {log.n_steps} steps, {log.n_rows} candidate rows, {log.n_features} features"


def print_facts(facts: Mapping[str, object], verdict: Verdict | None = None) -> None:
    """What is known, each behind its name; nothing of what is empty. Last the verdict: headline, reasons, next step."""
    lines = [(name, fact) for name, fact in facts.items() if fact]
    if verdict is not None:
        lines += [("verdict", f"{verdict.level}: {verdict.headline}"), *(("", reason) for reason in verdict.reasons)]
        lines += [("next step", verdict.next_step)]
    for name, fact in lines:
        print(wrapped(f"{name:12}{fact}", 12))


def program() -> str:
    """How this program was called, for commands to copy."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "ibcb" and called.parent != Path(".") and not called.is_absolute() else "ibcb"


def print_json(value: Any) -> None:
    """One line of JSON on stdout; what JSON cannot hold is null, and a note says where."""
    lost: list[str] = []
    plain = _plain(value, "", lost)
    if lost:
        from ibcb.log.notes import Note

        some = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        text = f"{some}: not finite numbers, which JSON cannot hold; they are null."
        note = Note("not-finite", "info", text, {"places": tuple(lost[:100]), "values": len(lost)})
        if isinstance(plain, dict) and isinstance(plain.get("notes"), list):
            plain["notes"].append(_plain(note, "", lost))
        say_notes([note])
    print(json.dumps(plain, allow_nan=False))


def write_tables(tables: Iterable[pa.Table], out: Path | None = None) -> None:
    """Write tables of one schema to a .csv or .parquet file, which appears whole or not at all, or to stdout as CSV."""
    from ibcb.io.written import TableWriter, table_file

    with contextlib.nullcontext(TableWriter(sys.stdout.buffer)) if out is None else table_file(out) as writer:
        for table in tables:
            writer.write(table)


def columns_of(tables: Sequence[pa.Table]) -> dict[str, list[Any]]:
    """The values of each column, of all tables together."""
    return {name: [value for table in tables for value in table[name].to_pylist()] for name in tables[0].column_names}


def _plain(value: Any, place: str, lost: list[str]) -> Any:
    """A value as JSON has it: records as they say, times in the ISO form, null for what is no finite number."""
    if hasattr(value, "to_json"):
        return _plain(value.to_json(), place, lost)
    if isinstance(value, dict):
        return {str(key): _plain(each, f"{place}.{key}" if place else str(key), lost) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, f"{place}[{position}]", lost) for position, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        lost.append(place)
        return None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (date, time)):
        return value.isoformat()
    # Of NumPy, which need not be imported for that: times first, whose lists would have no zone or unit.
    if type(value).__name__ == "datetime64":
        return None if str(value) == "NaT" else str(value)
    return _plain(value.tolist(), place, lost) if hasattr(value, "tolist") else str(value)


def printable(text: str) -> str:
    """The text without line breaks, and without signs that a terminal acts on."""
    from ibcb.numerics.printable import printable as escaped

    return escaped(text)


def say(message: str) -> None:
    """A message on stderr, on one line: names in it may hold line breaks, or signs that a terminal acts on.

    Where nobody reads stderr, it is lost: what a command does, and prints, does not depend on it.
    """
    if sys.stderr is None:
        return
    try:
        print(wrapped(message, 2, sys.stderr), file=sys.stderr, flush=True)
    except OSError:
        let_go(sys.stderr)


def let_go(stream: TextIO) -> None:
    """Let a stream that cannot be written end nowhere: Python must not fail to flush the rest at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def escaping_stdout() -> Iterator[None]:
    """What the encoding of stdout cannot hold is written as escapes meanwhile, and a note says so."""
    if sys.stdout is None:
        # It was closed; what is printed goes nowhere.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    stdout = sys.stdout
    if not isinstance(stdout, io.TextIOWrapper):
        yield
        return
    lost = list[str]()

    def escaped(error: UnicodeError) -> tuple[str | bytes, int]:
        lost.append(stdout.encoding)
        return codecs.backslashreplace_errors(error)

    before = stdout.errors
    codecs.register_error(_ESCAPED, escaped)
    stdout.reconfigure(errors=_ESCAPED)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            stdout.reconfigure(errors=before)
        if lost:
            say(
                f"note: stdout is {lost[0]}, which has not all of its signs; set PYTHONIOENCODING=utf-8 for the others."
            )


def wrapped(text: str, indent: int, file: TextIO | None = None) -> str:
    """A text broken into the terminal's lines, all but the first indented; on one line where there is no terminal."""
    text = printable(text)
    if not (file or sys.stdout).isatty():
        return text
    width = max(shutil.get_terminal_size().columns, 2 * indent)
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def say_notes(notes: Iterable[Note]) -> None:
    """What a reader should know, on stderr; a note that makes answers doubtful is called a warning."""
    for note in notes:
        say(f"{'warning' if note.severity == 'warning' else 'note'}: {note}")


# -- doubts ----------------------------------------------------------------------------------------------------


def known_of(log: Log, scanning: Validating, model: ibcb.IBCB) -> list[Note]:
    """How a log was read, and the warnings of `ibcb.validate`, once it has been gone through.

    Its errors are among them: if a fit is possible all the same, it is in doubt. Without what the model says itself,
    from its own evidence.
    """
    validation = scanning.of(log)
    own = next((note for note in model.notes_ if note.code == "undetermined-features"), None)
    named = set() if own is None else _features(own)
    # The notes of a log on disk are complete when it has been gone through.
    told = (note for note in validation.notes if note.severity == "warning" or note.code in _REPEATED)
    return [note for note in (*log.notes, *told) if note.code not in _UNDETERMINED or not _features(note) <= named]


def _features(note: Note) -> set[float | int | str]:
    features = note.figures.get("features", ())
    return set(features) if isinstance(features, tuple) else set()


def refuse_doubts(notes: Iterable[Note], strict: bool) -> None:
    """With --strict, exit with code 1 where a note is a warning, and show each as an error."""
    doubts = [note for note in notes if strict and note.severity == "warning"]
    for note in doubts:
        say(f"error: {note}")
    if doubts:
        raise typer.Exit(1)
