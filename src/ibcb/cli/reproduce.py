"""`ibcb reproduce`: the paper's tables, computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcb.cli.errors import reports_errors
from ibcb.cli.options import Json
from ibcb.cli.outputs import check_output, saved
from ibcb.cli.printing import print_json, say

__all__ = ["EXAMPLE", "reproduce"]

EXAMPLE = "ibcb reproduce --table 3 --table 17 --seeds 5 --jobs 2"


@reports_errors
def reproduce(
    table: Annotated[
        list[int] | None, typer.Option(help="Compute this table of the paper, 1 to 20. Repeatable.", metavar="N")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Compute all 20 tables.")] = False,
    seeds: Annotated[int, typer.Option(help="Number of seeds per cell.", min=1, metavar="N")] = 5,
    jobs: Annotated[int, typer.Option(help="Processes to run at once.", min=1, metavar="N")] = 1,
    smoke: Annotated[
        bool, typer.Option(help="Only test that it runs: tiny data, recorded in files of its own.")
    ] = False,
    results: Annotated[Path, typer.Option(help="File to record finished cells in.")] = Path("results.jsonl"),
    page: Annotated[Path, typer.Option(help="Markdown page to write.")] = Path("results.md"),
    as_json: Json = False,
) -> None:
    """Compute the paper's tables again, beside its own figures.

    Each finished cell is recorded at once and never computed twice: after an
    interruption, run the same command again. Takes hours with --all, minutes with
    --smoke.
    """
    from ibcb.paper import tables

    wanted = list(tables.TABLES) if every else table or []
    unknown = [number for number in wanted if number not in tables.TABLES]
    if unknown or not wanted:
        reason = f"table {unknown[0]} does not exist" if unknown else "no table was named"
        raise typer.BadParameter(f"{reason}; the paper has tables 1 to 20. Use --table N, or --all.")
    if smoke:
        results, page = results.with_suffix(".smoke.jsonl"), page.with_suffix(".smoke.md")
    check_output(page, (), results)
    done = tables.reproduce(tables.cells(wanted, seeds), results, jobs=jobs, smoke=smoke, progress=True)
    if done.torn:
        say(f"note: {results} ended in a torn line, left by an interruption; that cell was computed again.")
    tables.write_page(results, page)
    saved(page)
    for failure in done.failed:
        say(f"failed: {failure}")
    if as_json:
        print_json({"recorded": done.done_before, "computed": done.computed, "failed": list(done.failed)})
    else:
        print(f"{page}: {done.computed} cells computed, {done.done_before} recorded before, {len(done.failed)} failed")
    if done.failed:
        raise typer.Exit(1)
