"""`ibcb report`: a page that shows what a model found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.options import REMEMBERED, Result, opened, verb
from ibcb.cli.printing import known_of, print_facts, refuse_doubts, say, say_notes
from ibcb.cli.running import check_input, check_output, is_model, saved
from ibcb.log.option import FLAG, PATH, option, text


@verb(reading=REMEMBERED)
def report(
    model: Annotated[
        Path,
        typer.Argument(
            help="A saved IBCB model, as ibcb fit writes it; or a log alone, which is fitted with --expert auto.",
            metavar="MODEL|LOG",
            readable=False,
        ),
    ],
    *,
    log: Path | None = option(None, PATH),
    out: Path = option(Path("report.html"), PATH, flags="-o --out"),
    title: str = option("", text("TEXT")),
    no_steps: bool = option(False, FLAG),
    strict: bool = option(False, FLAG),
    reading: dict[str, Any],
) -> Result:
    """Write a report: what a model found, and how far to trust it.

    The report is one HTML file that needs no network. The log is read part by part,
    so it may be larger than memory; a log without a model is read whole. --json
    prints all that the report shows, under "facts", for pages of your own.

    Example: ibcb report model.safetensors --log log.parquet -o report.html

    Parameters
    ----------
    log : path
        The log that the model was fitted to.
    out : path
        HTML file to write.
    title : str
        Title of the report, as in 'Offers in March'.
    no_steps : bool
        Leave out single steps, with their features and ids, so that the report can be shared.
    strict : bool
        Treat warnings as errors: exit with code 1 and save nothing.
    """
    from ibcb.report import facts, write_page
    from ibcb.report.facts import Validating

    suffixes = (".html", ".htm")
    disk: Any
    if log is not None:
        imitator, disk = opened(model, log, reading, out=out, suffixes=suffixes, needs="a report needs")
    elif is_model(model):
        raise typer.BadParameter(f"a report needs the log that {model} was fitted to, too: --log LOG.")
    else:
        check_output(out, suffixes, model)
        check_input(model, "a saved model or a log")
        disk = ibcb.open_log(model, **reading).read()
        say("Fitting the log; ibcb fit saves a model, for predictions and for the next report ...")
        imitator = ibcb.IBCB(expert="auto", verbose=True).fit(disk, judge=True)
    scanning = Validating()
    page = facts(imitator, disk, steps=not no_steps, title=title, also=[scanning])
    known = known_of(disk, scanning, imitator)
    refuse_doubts([*known, *imitator.notes_], strict)
    write_page(page, out, (*disk.notes, *known))
    saved(out)
    say_notes(known)
    for sentence in page.notes:
        say(f"note: {sentence}")
    size = out.stat().st_size

    def show() -> None:
        print_facts({}, page.verdict)
        print_facts({"report": f"{out}, {size / 1e6:.1f} MB"})

    told = {"verdict": page.verdict, "notes": page.notes, "log_notes": known, "facts": page}
    return Result({"out": str(out), "bytes": size, **told}, show)
