"""`ibcb explain`: the choices of a log that most probably went astray."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import LOG, Json, prepared, reads_logs
from ibcb.cli.outputs import check_output, saved
from ibcb.cli.printing import Row, print_json, print_table, say_notes

__all__ = ["EXAMPLE", "explain"]

EXAMPLE = "ibcb explain model.safetensors --log log.parquet -o steps.csv --most 10"
#: characters of a step's id or time that fit beside the other columns
_WIDEST = 28


@reports_errors
@reads_logs
def explain(
    model: Annotated[Path, typer.Argument(help="A saved IBCB model, as ibcb fit writes it.")],
    *,
    log: Annotated[Path, typer.Option("--log", help=f"The log that the model was fitted to: {LOG}", readable=False)],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write all steps to this .csv or .parquet file.")
    ] = None,
    most: Annotated[int, typer.Option(help="Print the N most doubtful steps.", min=1, metavar="N")] = 20,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """List the choices that do not fit, most doubtful first.

    Each row has the candidate chosen, the one that the policy of that episode
    preferred, and the probability that the choice went astray, judged by the other
    choices of the episode. Candidates, episodes and steps count from 0. Reads the
    log into memory.
    """
    from ibcb.io.tablefiles import table_file

    if out is not None:
        check_output(out, (".csv", ".parquet"), log, model)
    imitator = ibcb.load_model(model)
    if not isinstance(imitator, ibcb.IBCB):
        raise ValueError(
            f"{model} holds a {type(imitator).__name__}; explain needs an IBCB model, which has a policy per episode."
        )
    behaviour = ibcb.read_log(log, **prepared(imitator, reading, log))
    found = ibcb.explain(imitator, behaviour)
    table, astray = found.ranked(), int((found.strayed > 0.5).sum())
    if out is not None:
        with table_file(out) as file:
            file.write(table)
        saved(out)
    say_notes(behaviour.notes)
    rows: list[Row] = table.slice(0, most).to_pylist()
    if as_json:
        shown = [{name: _plain(value) for name, value in row.items()} for row in rows]
        print_json({"out": None if out is None else str(out), "steps": len(table), "astray": astray, "most": shown})
        return
    print(f"steps       {len(table)}, of which {astray} probably went astray")
    if out is not None:
        print(f"saved       {out}")
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
