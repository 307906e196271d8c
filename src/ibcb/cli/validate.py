"""`ibcb validate`: what a log holds, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import LOG, Json, prepared, reads_logs
from ibcb.cli.outputs import check_output, reads, saved
from ibcb.cli.printing import print_json, print_table, printable, say_notes, wrapped

__all__ = ["EXAMPLE", "validate"]

EXAMPLE = "ibcb validate clicks.csv --column step=request --episode-every 1d"


@reports_errors
@reads_logs
def validate(
    log: Annotated[Path, typer.Argument(help=f"The log to check: {LOG}", readable=False)],
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 on warnings, too.")] = False,
    model: Annotated[
        Path | None,
        typer.Option(help="Compare the log's propensities with those that this saved model recovers.", metavar="FILE"),
    ] = None,
    save_options: Annotated[
        Path | None, typer.Option(help="Save the options below to a TOML file, for --options.", metavar="FILE")
    ] = None,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Check a log: what it holds, and what would make a fit fail.

    Exits with code 1 if there are errors, with --strict also if there are warnings.
    With --model the log is read in the way the model's own log was read.
    """
    reads(log, model)
    if save_options is not None:
        check_output(save_options, (".toml",))
    imitator = None if model is None else ibcb.load_model(model)
    disk = ibcb.open_log(log, **(reading if imitator is None else prepared(imitator, reading, log)))
    found = ibcb.validate(disk)
    calibrated, notes = (None, ()) if imitator is None else _calibrated(imitator, disk)
    notes = (*disk.notes, *notes)
    if save_options is not None:
        ibcb.io.save_options(reading, save_options)
        saved(save_options)
    if as_json:
        more = {} if calibrated is None else {"calibration": calibrated.to_json()}
        print_json(found.to_json() | {"log": str(log), "notes": [note.to_json() for note in notes], **more})
    else:
        print("\n".join(map(printable, found.render().split("\n"))))
        if calibrated is not None:
            print(f"\n{wrapped(f'propensities: {calibrated}', 2)}\n")
            _print_curve(calibrated)
        say_notes(notes)
    doubtful = any(note.severity == "warning" for note in (*found.notes, *notes))
    if not found.ok or (strict and doubtful):
        raise typer.Exit(1)


def _calibrated(model: Any, log: Any) -> tuple[Any, tuple[Any, ...]]:
    """Recovered propensities beside the logged ones, and notes on them."""
    from ibcb.cli.propensity_tables import of_another_log
    from ibcb.log.fingerprint import log_fingerprint
    from ibcb.report import calibration

    if not isinstance(model, ibcb.IBCB) or model.forecast_model_ is None:
        raise typer.BadParameter("--model needs an IBCB model fitted with --forecast: others have no propensities.")
    found = calibration(model, log)
    if found is None:
        raise ibcb.LogFormatError(
            f"{log.name}: the log has no propensities to compare with the model's; name their column: "
            "--column propensity=NAME, or leave out --model."
        )
    return found, () if log_fingerprint(log) == model.log_fingerprint_ else (of_another_log(),)


def _print_curve(found: Any) -> None:
    """The calibration curve of the policy in force: candidates with like recovered propensities, and the logged."""
    rows = [vars(each) for each in found.curve]
    print_table(rows, {"recovered": "recovered", "logged": "logged, mean", "candidates": "candidates"})
