"""`ibcb propensities`: with which probability the decider chose each candidate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import check_output, reports_errors
from ibcb.cli.options import LOG, Json, prepared, reads_logs
from ibcb.cli.printing import print_json, say, say_notes

__all__ = ["EXAMPLE", "propensities"]

EXAMPLE = "ibcb propensities model.safetensors log.parquet -o propensities.parquet"
_TABLES, _FEEDBACK, _LABELS = (".csv", ".parquet"), ".npz", (".vw", ".dsjson")


@reports_errors
@reads_logs
def propensities(
    model: Annotated[Path, typer.Argument(help="A saved IBCB model, as ibcb fit writes it.")],
    log: Annotated[Path, typer.Argument(help=f"The fitted log, or another: {LOG}", readable=False)],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="File to write: a table (.csv, .parquet), feedback of the Open Bandit Pipeline (.npz), or the log "
            "with Vowpal Wabbit's labels (.vw, .dsjson). Default: CSV on stdout.",
        ),
    ] = None,
    ahead: Annotated[
        bool,
        typer.Option(
            "--ahead",
            help="Predict one episode ahead: a column beside the other; in .npz, .vw and .dsjson in its place.",
        ),
    ] = False,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Compute the probability of every candidate of every step.

    For the log that the model was fitted on, the policy in force in each episode
    counts; for any other log, the policy right after the fitted one. Writes a row
    per candidate with the columns episode, step, candidate, chosen and propensity;
    ahead with --ahead; logged where the log has propensities of its own. At each
    step they sum to 1.

    A .npz file holds the arrays of a feedback dict (context, action, pscore, pi_b,
    position, n_rounds, n_actions, and action_context where features belong to the
    candidate). Add the rewards yourself: the log has none. For the same reason the
    labels of Vowpal Wabbit, action:cost:probability, have cost 0.

    Messages tell the effective sample size for evaluating two policies, and how
    rare the rarest choices were.
    """
    from ibcb.estimators.predictions import csv_writer
    from ibcb.estimators.propensities import not_drawn, of_another_log, overlap, propensity_tables

    if out is not None:
        check_output(out, (*_TABLES, _FEEDBACK, *_LABELS), log, model)
    imitator = ibcb.load_model(model)
    if not isinstance(imitator, ibcb.IBCB):
        raise typer.BadParameter(f"propensities need an IBCB model; {model} holds a {type(imitator).__name__}.")
    steps = ibcb.open_log(log, **prepared(imitator, reading, log))
    columns = {"propensity": imitator.propensities(steps)}
    if ahead:
        columns["ahead"] = imitator.propensities(steps, ahead=True)
    kind, another = imitator.decider_, of_another_log(imitator, steps)
    notes = (*steps.notes, *another, *((not_drawn(kind.label),) if kind.deterministic else ()))
    used = columns["ahead" if ahead else "propensity"]
    found = overlap(imitator, steps, used)
    if out is None and not as_json:
        write = csv_writer(sys.stdout.buffer)
        for table in propensity_tables(steps, **columns):
            write(table)
    elif out is not None:
        _write(steps, columns, used, out)
    if as_json:
        told: dict[str, Any] = {
            "steps": found.steps,
            "rows": len(used),
            "fitted_log": not another,
            "overlap": found.to_json(),
            "notes": [note.to_json() for note in notes],
        }
        if out is None:
            tables = list(propensity_tables(steps, **columns))
            names = tables[0].column_names
            told |= {name: [v for table in tables for v in table[name].to_pylist()] for name in names}
        print_json(told | ({} if out is None else {"out": str(out)}))
    elif out is not None:
        say(f"{out}: {len(used)} propensities")
    say_notes(notes)
    say(f"overlap: {found}")


def _write(log: Any, columns: dict[str, Any], used: Any, out: Path) -> None:
    """A table goes through the log part by part; the other forms need it in memory."""
    import numpy as np

    from ibcb.estimators.predictions import write_tables
    from ibcb.estimators.propensities import propensity_tables

    suffix = out.suffix.lower()
    if suffix in _TABLES:
        write_tables(propensity_tables(log, **columns), out)
        return
    whole = log.read().with_propensities(used)
    if suffix in _LABELS:
        ibcb.write_log(whole, out)
        return
    feedback = ibcb.io.to_feedback(whole)
    with ibcb.io.atomic(out) as temporary, temporary.open("wb") as file:
        np.savez(file, **feedback)
