"""`ibcb convert`: a log in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import LOG, Json, reads_logs
from ibcb.cli.outputs import check_output, saved
from ibcb.cli.printing import print_json, say, say_notes

__all__ = ["EXAMPLE", "convert"]

EXAMPLE = "ibcb convert clicks/ log.parquet --one-hot genre --episode-size 1000"


@reports_errors
@reads_logs
def convert(
    log: Annotated[Path, typer.Argument(help=f"The log to convert: {LOG}", readable=False)],
    out: Annotated[Path, typer.Argument(help="File to write: .parquet, .csv, .arrow, .npz, .vw or .dsjson.")],
    *,
    long: Annotated[bool, typer.Option("--long", help="Write Parquet with a row per candidate, not per step.")] = False,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Write a log in another format; Parquet keeps everything.

    Works part by part, so the log may be larger than memory.
    """
    check_output(out, ibcb.io.WRITABLE, log)
    disk = ibcb.open_log(log, **reading)
    ibcb.write_log(disk, out, long=long)
    saved(out)
    lost = ibcb.io.LOST.get(out.suffix.lower())
    say_notes(disk.notes)
    if lost is not None:
        say(f"note: {out.suffix} does not keep {lost}.")
    if as_json:
        print_json(
            {
                "out": str(out),
                "bytes": out.stat().st_size,
                "notes": [note.to_json() for note in disk.notes],
                "lost": lost,
            }
        )
    else:
        say(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
