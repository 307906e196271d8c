"""`ibcb report`: a page that shows what a model found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.doubts import Strict, known_of, refuse_doubts, told_once
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import LOG, Json, prepared, reads_logs
from ibcb.cli.outputs import check_output, saved
from ibcb.cli.printing import print_json, print_verdict, say, say_notes

__all__ = ["EXAMPLE", "report"]

EXAMPLE = "ibcb report model.safetensors --log log.parquet -o report.html"


@reports_errors
@reads_logs
def report(
    model: Annotated[Path, typer.Argument(help="A saved IBCB model, as ibcb fit writes it.")],
    *,
    log: Annotated[Path, typer.Option("--log", help=f"The log that the model was fitted to: {LOG}", readable=False)],
    out: Annotated[Path, typer.Option("-o", "--out", help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the report, as in 'Offers in March'.", metavar="TEXT")] = "",
    no_steps: Annotated[
        bool,
        typer.Option(
            "--no-steps", help="Leave out single steps, with their features and ids, so that the report can be shared."
        ),
    ] = False,
    strict: Strict = False,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Write a report: what a model found, and how far to trust it.

    The report is one HTML file that needs no network. The log is read part by part,
    so it may be larger than memory. --json prints all that the report shows, under
    "facts", for pages of your own.
    """
    from ibcb.report import facts, write_page
    from ibcb.report.scanning import Validating

    check_output(out, (".html", ".htm"), log, model)
    imitator = ibcb.load_model(model)
    if not isinstance(imitator, ibcb.IBCB):
        raise ValueError(
            f"{model} holds a {type(imitator).__name__}; a report needs an IBCB model, which has a policy per episode."
        )
    disk = ibcb.open_log(log, **prepared(imitator, reading, log))
    scanning = Validating()
    found = facts(imitator, disk, steps=not no_steps, title=title, also=[scanning])
    known = told_once(known_of(disk, scanning), imitator)
    refuse_doubts([*known, *imitator.notes_], strict)
    write_page(found, out, (*disk.notes, *known))
    saved(out)
    say_notes(known)
    for text in found.notes:
        say(f"note: {text}")
    if as_json:
        judged = {"verdict": found.verdict.to_json(), "notes": list(found.notes)}
        of_log = {"log_notes": [note.to_json() for note in known]}
        print_json({"out": str(out), "bytes": out.stat().st_size, **judged, **of_log, "facts": found.to_json()})
    else:
        print_verdict(found.verdict)
        print(f"report      {out}, {out.stat().st_size / 1e6:.1f} MB")
