"""`ibcb validate`: what a log holds, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import ibcb
from ibcb.cli.options import HOW_TO_READ, LogPath, Result, prepared, verb
from ibcb.cli.printing import print_table, printable, say_notes, wrapped
from ibcb.cli.running import check_input, check_output, model_of, saved
from ibcb.log.option import FLAG, PATH, option


@verb(reading=HOW_TO_READ)
def validate(
    log: LogPath,
    *,
    strict: bool = option(False, FLAG),
    model: Path | None = option(None, PATH),
    save_options: Path | None = option(None, PATH),
    reading: dict[str, Any],
) -> Result:
    """Check a log: what it holds, and what would make a fit fail.

    Exits with code 1 if there are errors, with --strict also if there are warnings.
    With --model the log is read in the way the model's own log was read.

    Example: ibcb validate clicks.csv --column step=request --episode-every 1d

    Parameters
    ----------
    strict : bool
        Exit with code 1 on warnings, too.
    model : path
        Compare the log's propensities with those that this saved model recovers.
    save_options : path
        Save the options of reading to a TOML file, for --options.
    """
    check_output(save_options, (".toml",), log, model)
    check_input(log, "a log")
    imitator = None if model is None else model_of(model)
    disk = ibcb.open_log(log, **(reading if imitator is None else prepared(imitator, reading, log)))
    validation = ibcb.validate(disk)
    calibrated, notes = (None, ()) if imitator is None else _calibrated(imitator, disk)
    notes = (*disk.notes, *notes)
    if save_options is not None:
        ibcb.io.save_options(reading, save_options)
        saved(save_options)

    def show() -> None:
        print("\n".join(map(printable, validation.render().split("\n"))))
        if calibrated is not None:
            print(f"\n{wrapped(f'propensities: {calibrated}', 2)}\n")
            # Candidates with like recovered propensities, and the logged ones, of the policy in force.
            rows = [vars(each) for each in calibrated.curve]
            print_table(rows, {"recovered": "recovered", "logged": "logged, mean", "candidates": "candidates"})
        say_notes(notes)

    doubtful = any(note.severity == "warning" for note in (*validation.notes, *notes))
    told = validation.to_json() | {"log": str(log), "notes": notes}
    told |= {} if calibrated is None else {"calibration": calibrated}
    return Result(told, show, not validation.ok or (strict and doubtful))


def _calibrated(model: Any, log: Any) -> tuple[Any, tuple[Any, ...]]:
    """Recovered propensities beside the logged ones, and notes on them."""
    from ibcb.cli.choice_tables import of_another_log
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
