"""`ibcb explain`: the choices of a log that most probably went astray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import ibcb
from ibcb.cli.options import REMEMBERED, ModelPath, Result, opened, verb
from ibcb.cli.printing import Row, print_facts, print_table, say_notes, write_tables
from ibcb.cli.running import saved
from ibcb.log.option import COUNT, PATH, option, whole

#: characters of a step's id or time that fit beside the other columns
_WIDEST = 28
_COLUMNS = ("chosen", "preferred", "probability")


@verb(reading=REMEMBERED)
def explain(
    model: ModelPath,
    *,
    log: Path | None = option(None, PATH),
    out: Path | None = option(None, PATH, flags="-o --out"),
    most: int = option(20, COUNT, whole(1, "it counts steps to print")),
    reading: dict[str, Any],
) -> Result:
    """List the choices that do not fit, most doubtful first.

    Each row has the candidate chosen, the one that the policy of that episode
    preferred, and the probability that the choice went astray, judged by the other
    choices of the episode. Candidates, episodes and steps count from 0. Reads the
    log into memory.

    Example: ibcb explain model.safetensors --log log.parquet -o steps.csv --most 10

    Parameters
    ----------
    log : path
        The log that the model was fitted to; it is needed.
    out : path
        Write all steps to this .csv or .parquet file.
    most : int
        Print the N most doubtful steps.
    """
    if log is None:
        raise typer.BadParameter("name the log that the model was fitted to.", param_hint="'--log'")
    suffixes = (".csv", ".parquet")
    imitator, disk = opened(model, log, reading, out=out, suffixes=suffixes, needs="explain needs")
    behaviour = disk.read()
    steps = ibcb.explain(imitator, behaviour)
    table, astray = steps.ranked(), int((steps.strayed > 0.5).sum())
    if out is not None:
        write_tables([table], out)
        saved(out)
    say_notes(behaviour.notes)
    rows: list[Row] = table.slice(0, most).to_pylist()

    def show() -> None:
        print_facts({"steps": f"{len(table)}, of which {astray} probably went astray", "saved": out})
        print()
        # One of them tells which step it was; the file has both.
        label = [name for name in ("step_id", "timestamp") if name in table.column_names][:1]
        columns = {name: name.replace("_", " ") for name in ("episode", "step", *label, *_COLUMNS)}
        print_table([row | {name: _short(str(row[name])) for name in label} for row in rows], columns)

    shown = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return Result({"out": out and str(out), "steps": len(table), "astray": astray, "most": shown}, show)


def _plain(value: Any) -> Any:
    """A value as JSON has it: times as text."""
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def _short(text: str) -> str:
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
