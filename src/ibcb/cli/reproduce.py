"""`ibcb reproduce`: the paper's tables, computed again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from ibcb.cli.options import Result, verb
from ibcb.cli.printing import say
from ibcb.cli.running import check_output, saved
from ibcb.log.option import COUNT, FLAG, PATH, Form, option, whole, whole_number


def _numbers(texts: Sequence[str]) -> list[int]:
    return [whole_number(text) for text in texts]


@verb()
def reproduce(
    *,
    table: Sequence[int] = option((), Form("N", _numbers, repeated=True)),
    every: bool = option(False, FLAG, flags="--all"),
    seeds: int = option(5, COUNT, whole(1, "it counts seeds")),
    jobs: int = option(1, COUNT, whole(1, "it counts processes")),
    smoke: bool = option(False, FLAG),
    results: Path = option(Path("results.jsonl"), PATH),
    page: Path = option(Path("results.md"), PATH),
) -> Result:
    """Compute the paper's tables again, beside its own figures.

    Each finished cell is recorded at once and never computed twice: after an
    interruption, run the same command again. Takes hours with --all, minutes with
    --smoke.

    Example: ibcb reproduce --table 3 --table 17 --seeds 5 --jobs 2

    Parameters
    ----------
    table : list of int
        Compute this table of the paper, 1 to 20.
    every : bool
        Compute all 20 tables.
    seeds : int
        Number of seeds per cell.
    jobs : int
        Processes to run at once.
    smoke : bool
        Only test that it runs: tiny data, recorded in files of its own.
    results : path
        File to record finished cells in.
    page : path
        Markdown page to write.
    """
    from ibcb.paper import tables

    wanted = list(tables.TABLES) if every else table
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
    told = {"recorded": done.done_before, "computed": done.computed, "failed": list(done.failed)}
    words = f"{done.computed} cells computed, {done.done_before} recorded before, {len(done.failed)} failed"
    return Result(told, lambda: print(f"{page}: {words}"), bool(done.failed))
