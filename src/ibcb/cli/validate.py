"""`ibcb validate`: what a log holds, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

import ibcb
from ibcb.cli.inputs import check_input, check_output, model_of, saved
from ibcb.cli.options import HOW_TO_READ, LogPath, Printed, prepared, takes
from ibcb.cli.printing import print_json, print_table, printable, say_notes, wrapped
from ibcb.log.option import FLAG, PATH, option


@dataclass(frozen=True, kw_only=True)
class _ValidateOptions(Printed):
    """What is checked and kept.

    Attributes
    ----------
    strict : bool
        Exit with code 1 on warnings, too.
    model : path
        Compare the log's propensities with those that this saved model recovers.
    save_options : path
        Save the options of reading to a TOML file, for --options.
    """

    strict: bool = option(False, FLAG)
    model: Path | None = option(None, PATH)
    save_options: Path | None = option(None, PATH)


@takes(how=_ValidateOptions, reading=HOW_TO_READ)
def validate(log: LogPath, *, how: _ValidateOptions, reading: dict[str, Any]) -> None:
    """Check a log: what it holds, and what would make a fit fail.

    Exits with code 1 if there are errors, with --strict also if there are warnings.
    With --model the log is read in the way the model's own log was read.

    Example: ibcb validate clicks.csv --column step=request --episode-every 1d
    """
    check_output(how.save_options, (".toml",), log, how.model)
    check_input(log, "a log")
    imitator = None if how.model is None else model_of(how.model)
    disk = ibcb.open_log(log, **(reading if imitator is None else prepared(imitator, reading, log)))
    validation = ibcb.validate(disk)
    calibrated, notes = (None, ()) if imitator is None else _calibrated(imitator, disk)
    notes = (*disk.notes, *notes)
    if how.save_options is not None:
        ibcb.io.save_options(reading, how.save_options)
        saved(how.save_options)
    if how.as_json:
        more = {} if calibrated is None else {"calibration": calibrated}
        print_json(validation.to_json() | {"log": str(log), "notes": notes, **more})
    else:
        print("\n".join(map(printable, validation.render().split("\n"))))
        if calibrated is not None:
            print(f"\n{wrapped(f'propensities: {calibrated}', 2)}\n")
            # Candidates with like recovered propensities, and the logged ones, of the policy in force.
            rows = [vars(each) for each in calibrated.curve]
            print_table(rows, {"recovered": "recovered", "logged": "logged, mean", "candidates": "candidates"})
        say_notes(notes)
    doubtful = any(note.severity == "warning" for note in (*validation.notes, *notes))
    if not validation.ok or (how.strict and doubtful):
        raise typer.Exit(1)


def _calibrated(model: Any, log: Any) -> tuple[Any, tuple[Any, ...]]:
    """Recovered propensities beside the logged ones, and notes on them."""
    from ibcb.cli.propensity_tables import of_another_log
    from ibcb.report import calibration

    if not isinstance(model, ibcb.IBCB) or model.forecast_model_ is None:
        raise typer.BadParameter("--model needs an IBCB model fitted with --forecast: others have no propensities.")
    calibrated = calibration(model, log)
    if calibrated is None:
        raise ibcb.LogFormatError(
            f"{log.name}: the log has no propensities to compare with the model's; name their column: "
            "--column propensity=NAME, or leave out --model."
        )
    return calibrated, () if calibrated.fitted else (of_another_log(),)
