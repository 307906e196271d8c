"""`ibcb validate`: what a log holds, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import LOG, Json, reads_logs
from ibcb.cli.printing import print_json, say_notes

__all__ = ["EXAMPLE", "validate"]

EXAMPLE = "ibcb validate clicks.csv --column step=request --episode-every 1d"


@reports_errors
@reads_logs
def validate(
    log: Annotated[Path, typer.Argument(help=f"The log: {LOG}", readable=False)],
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings, too, make the command fail.")] = False,
    save_options: Annotated[
        Path | None, typer.Option(help="Keep the options below in a file, for --options.", metavar="FILE")
    ] = None,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Explain a log: what it holds, what is wrong, what would fail.

    Exit code 1 if something is wrong, with --strict also if something is doubtful.
    """
    disk = ibcb.open_log(log, **reading)
    found = ibcb.validate(disk)
    if save_options is not None:
        ibcb.io.save_options(reading, save_options)
    if as_json:
        print_json(found.to_json() | {"log": str(log), "notes": [note.to_json() for note in disk.notes]})
    else:
        print(found.render())
        say_notes(disk.notes)
    doubtful = any(note.severity == "warning" for note in (*found.notes, *disk.notes))
    if not found.ok or (strict and doubtful):
        raise typer.Exit(1)
