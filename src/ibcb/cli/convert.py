"""`ibcb convert`: a log in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import check_output, reports_errors
from ibcb.cli.inputs import check_input
from ibcb.cli.options import HOW_TO_READ, LOG, Json, takes
from ibcb.cli.printing import print_json, say, say_notes

__all__ = ["EXAMPLE", "convert"]

EXAMPLE = "ibcb convert clicks/ log.parquet --one-hot genre --episode-size 1000"


@reports_errors
@takes(reading=HOW_TO_READ)
def convert(
    log: Annotated[Path, typer.Argument(help=f"The log to convert: {LOG}", readable=False)],
    out: Annotated[Path, typer.Argument(help="File to write: .parquet, .csv, .arrow, .npz, .vw or .dsjson.")],
    *,
    long: Annotated[bool, typer.Option("--long", help="Write Parquet with a row per candidate, not per step.")] = False,
    as_json: Json = False,
    reading: dict[str, Any],
) -> None:
    """Write a log in another format; Parquet keeps everything.

    Works part by part, so the log may be larger than memory.
    """
    check_input(log, "a log")
    check_output(out, ibcb.io.WRITABLE, log)
    disk = ibcb.open_log(log, **reading)
    ibcb.write_log(disk, out, long=long)
    size, lost = out.stat().st_size, ibcb.io.LOST.get(out.suffix.lower())
    say_notes(disk.notes)
    if lost is not None:
        say(f"note: {out.suffix} does not keep {lost}.")
    if as_json:
        print_json({"out": str(out), "bytes": size, "notes": [note.to_json() for note in disk.notes], "lost": lost})
    else:
        say(f"{out}: {size / 1e6:.1f} MB")
