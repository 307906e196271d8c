"""`ibcb explain`: the choices of a log that most probably went astray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

import ibcb
from ibcb.cli.inputs import check_output, model_of, saved
from ibcb.cli.options import REMEMBERED, ModelPath, Printed, prepared, takes
from ibcb.cli.printing import Row, print_facts, print_json, print_table, say_notes, write_tables
from ibcb.log.option import COUNT, PATH, option, whole

#: characters of a step's id or time that fit beside the other columns
_WIDEST = 28


@dataclass(frozen=True, kw_only=True)
class _ExplainOptions(Printed):
    """What is listed.

    Attributes
    ----------
    log : path
        The log that the model was fitted to; it is needed.
    out : path
        Write all steps to this .csv or .parquet file.
    most : int
        Print the N most doubtful steps.
    """

    log: Path | None = option(None, PATH)
    out: Path | None = option(None, PATH, flags="-o --out")
    most: int = option(20, COUNT, whole(1, "it counts steps to print"))


@takes(how=_ExplainOptions, reading=REMEMBERED)
def explain(model: ModelPath, *, how: _ExplainOptions, reading: dict[str, Any]) -> None:
    """List the choices that do not fit, most doubtful first.

    Each row has the candidate chosen, the one that the policy of that episode
    preferred, and the probability that the choice went astray, judged by the other
    choices of the episode. Candidates, episodes and steps count from 0. Reads the
    log into memory.

    Example: ibcb explain model.safetensors --log log.parquet -o steps.csv --most 10
    """
    log, out = how.log, how.out
    if log is None:
        raise typer.BadParameter("name the log that the model was fitted to.", param_hint="'--log'")
    check_output(out, (".csv", ".parquet"), log, model)
    imitator = model_of(model, log, needs="explain needs")
    behaviour = ibcb.read_log(log, **prepared(imitator, reading, log))
    steps = ibcb.explain(imitator, behaviour)
    table, astray = steps.ranked(), int((steps.strayed > 0.5).sum())
    if out is not None:
        write_tables([table], out)
        saved(out)
    say_notes(behaviour.notes)
    rows: list[Row] = table.slice(0, how.most).to_pylist()
    if how.as_json:
        shown = [{name: _plain(value) for name, value in row.items()} for row in rows]
        print_json({"out": None if out is None else str(out), "steps": len(table), "astray": astray, "most": shown})
        return
    print_facts({"steps": f"{len(table)}, of which {astray} probably went astray", "saved": out})
    print()
    columns = {"episode": "episode", "step": "step"}
    # One of them tells which step it was; the file has both.
    label = next((name for name in ("step_id", "timestamp") if name in table.column_names), None)
    if label is not None:
        columns[label] = label.replace("_", " ")
        rows = [row | {label: _short(str(row[label]))} for row in rows]
    print_table(rows, columns | {"chosen": "chosen", "preferred": "preferred", "probability": "probability"})


def _plain(value: Any) -> Any:
    """A value as JSON has it: times as text."""
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def _short(text: str) -> str:
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
