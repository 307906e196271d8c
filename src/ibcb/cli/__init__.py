"""The command line: parses, delegates, prints. Data goes to stdout, messages to stderr.

One file per verb. What a verb needs is imported when it runs, so that help is quick.
"""

from __future__ import annotations

import signal
import sys
import warnings
from importlib import import_module
from typing import Annotated

import typer

import ibcb
from ibcb.cli.options import Verb

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
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(ibcb.__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


#: in the order of the help; each is a file with a command of that name and an example of its use
_VERBS = (
    *("demo", "simulate", "validate", "convert", "fit", "predict", "propensities", "evaluate", "report", "explain"),
    "reproduce",
)
for _name in _VERBS:
    _command = getattr(import_module(f"ibcb.cli.{_name}"), _name)
    _help, _, _rest = (_command.__doc__ or "").partition("Example: ")
    app.command(cls=Verb, help=_help, epilog=f"Example: {_rest.partition(chr(10))[0]}")(_command)
