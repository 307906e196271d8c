"""`ibcb convert`: a log in another format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.inputs import check_input, check_output, saved
from ibcb.cli.options import HOW_TO_READ, LogPath, Printed, takes
from ibcb.cli.printing import print_json, say, say_notes
from ibcb.log.option import FLAG, option


@dataclass(frozen=True, kw_only=True)
class _ConvertOptions(Printed):
    """How a log is converted.

    Attributes
    ----------
    long : bool
        Write Parquet with a row per candidate, not per step.
    """

    long: bool = option(False, FLAG)


@takes(how=_ConvertOptions, reading=HOW_TO_READ)
def convert(
    log: LogPath,
    out: Annotated[Path, typer.Argument(help="File to write: .parquet, .csv, .arrow, .npz, .vw or .dsjson.")],
    *,
    how: _ConvertOptions,
    reading: dict[str, Any],
) -> None:
    """Write a log in another format; Parquet keeps everything.

    Works part by part, so the log may be larger than memory.

    Example: ibcb convert clicks/ log.parquet --one-hot genre --episode-size 1000
    """
    check_input(log, "a log")
    check_output(out, ibcb.io.WRITABLE, log)
    disk = ibcb.open_log(log, **reading)
    ibcb.write_log(disk, out, long=how.long)
    saved(out)
    size, lost = out.stat().st_size, ibcb.io.LOST.get(out.suffix.lower())
    say_notes(disk.notes)
    if lost is not None:
        say(f"note: {out.suffix} does not keep {lost}.")
    if how.as_json:
        print_json({"out": str(out), "bytes": size, "notes": disk.notes, "lost": lost})
    else:
        say(f"{out}: {size / 1e6:.1f} MB")
