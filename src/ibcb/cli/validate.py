"""`ibcb validate`: what a log holds, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import LOG, Json, prepared, reads_logs
from ibcb.cli.printing import print_json, printable, say_notes, wrapped

__all__ = ["EXAMPLE", "validate"]

EXAMPLE = "ibcb validate clicks.csv --column step=request --episode-every 1d"


@reports_errors
@reads_logs
def validate(
    log: Annotated[Path, typer.Argument(help=f"The log: {LOG}", readable=False)],
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings, too, make the command fail.")] = False,
    model: Annotated[
        Path | None,
        typer.Option(help="A saved model: compare the log's propensities with those it recovers.", metavar="FILE"),
    ] = None,
    save_options: Annotated[
        Path | None, typer.Option(help="Keep the options below in a file, for --options.", metavar="FILE")
    ] = None,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Explain a log: what it holds, what is wrong, what would fail.

    Exit code 1 if something is wrong, with --strict also if something is doubtful.
    With --model the log is read as the one that the model was fitted on.
    """
    imitator = None if model is None else ibcb.load_model(model)
    disk = ibcb.open_log(log, **(reading if imitator is None else prepared(imitator, reading, log)))
    found = ibcb.validate(disk)
    calibrated = None if imitator is None else _calibrated(imitator, disk)
    if save_options is not None:
        ibcb.io.save_options(reading, save_options)
    if as_json:
        more = {} if calibrated is None else {"calibration": calibrated.to_json()}
        print_json(found.to_json() | {"log": str(log), "notes": [note.to_json() for note in disk.notes], **more})
    else:
        print("\n".join(map(printable, found.render().split("\n"))))
        if calibrated is not None:
            print(f"\n{wrapped(f'propensities: {calibrated}', 2)}")
        say_notes(disk.notes)
    doubtful = any(note.severity == "warning" for note in (*found.notes, *disk.notes))
    if not found.ok or (strict and doubtful):
        raise typer.Exit(1)


def _calibrated(model: Any, log: Any) -> Any:
    """Recovered propensities beside the logged ones."""
    from ibcb.report.calibration import calibration

    if not isinstance(model, ibcb.IBCB) or model.forecast_model_ is None:
        raise typer.BadParameter(
            "--model needs an IBCB model that was fitted with --forecast: others have no propensities."
        )
    found = calibration(model, log)
    if found is None:
        raise ibcb.LogFormatError(
            f"{log.name}: no propensities were logged, with which to compare those of the model; name their column: "
            "--column propensity=NAME, or leave out --model."
        )
    return found
