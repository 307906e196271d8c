"""`ibcb convert`: a log in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.options import HOW_TO_READ, LogPath, Result, verb
from ibcb.cli.printing import say, say_notes
from ibcb.cli.running import check_input, check_output, saved
from ibcb.log.option import FLAG, option


@verb(reading=HOW_TO_READ)
def convert(
    log: LogPath,
    out: Annotated[Path, typer.Argument(help="File to write: .parquet, .csv, .arrow, .npz, .vw or .dsjson.")],
    *,
    long: bool = option(False, FLAG),
    reading: dict[str, Any],
) -> Result:
    """Write a log in another format; Parquet keeps everything.

    Works part by part, so the log may be larger than memory.

    Example: ibcb convert clicks/ log.parquet --one-hot genre --episode-size 1000

    Parameters
    ----------
    long : bool
        Write Parquet with a row per candidate, not per step.
    """
    check_input(log, "a log")
    check_output(out, ibcb.io.WRITABLE, log)
    disk = ibcb.open_log(log, **reading)
    ibcb.write_log(disk, out, long=long)
    saved(out)
    size, lost = out.stat().st_size, ibcb.io.LOST.get(out.suffix.lower())
    say_notes(disk.notes)
    if lost is not None:
        say(f"note: {out.suffix} does not keep {lost}.")
    told = {"out": str(out), "bytes": size, "notes": disk.notes, "lost": lost}
    return Result(told, lambda: say(f"{out}: {size / 1e6:.1f} MB"))
