"""The command line: parses, delegates, prints. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Annotated

import typer

import ibcb
from ibcb.cli import logs, runs

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    help="Recover what a learning decision-maker values from a log of its choices, without its rewards.\n\n"
    "Start with: ibcb demo",
)


def main() -> None:
    """Run the command line: exit 0, 1 for a failure, 2 for bad usage, 130 when interrupted."""
    # Warnings come again as notes of the fitted model, with the rest of what a reader should know.
    warnings.simplefilter("ignore", UserWarning)
    # So that a polite kill, too, runs the clean-up of half-written files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    app()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        print(ibcb.__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


_VERBS = {
    runs.demo: "ibcb demo --seed 1 --out my-demo",
    runs.simulate: "ibcb simulate run/ --expert sbts --noise 0.1 --seed 3",
    logs.validate: "ibcb validate clicks.csv --column step=request --episode-every 1d",
    logs.convert: "ibcb convert clicks/ log.parquet --one-hot genre --episode-size 1000",
    logs.fit: "ibcb fit log.parquet -o model.safetensors --expert sbucb --l2 0.3 --no-forecast",
    logs.predict: "ibcb predict model.safetensors candidates.parquet --at-episode 30 -o choices.csv",
    runs.evaluate: "ibcb evaluate model.safetensors run/",
    logs.report: "ibcb report model.safetensors --log log.parquet -o report.html",
    runs.reproduce: "ibcb reproduce --table 3 --table 17 --seeds 5 --jobs 2",
}
for _verb, _example in _VERBS.items():
    app.command(epilog=f"Example: {_example}")(_verb)
