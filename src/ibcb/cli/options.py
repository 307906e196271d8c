"""Options that several verbs take, and what they must be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ibcb.cli.outputs import reads, reads_tables

__all__ = [
    "LOG",
    "ExpertKind",
    "Json",
    "above_zero",
    "above_zero_or_auto",
    "at_least_zero",
    "kind_of_decider",
    "kind_of_expert",
    "name_of_solver",
    "prepared",
    "reads_logs",
    "share",
]

#: what a log can be
LOG = "a Parquet, CSV, JSON lines, Arrow, npz, VW text or dsjson file, or a folder of them."

#: ways to cut episodes, of which one will do
_CUTS = ("episode_every", "episode_size", "episodes")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
ExpertKind = Literal["sbucb", "sbts"]


def kind_of_decider(value: str) -> str:
    """Refuse an option that names no kind of decider."""
    from ibcb.deciders import experts

    return _known(value, (*experts(), "auto"), "kind of decider")


def kind_of_expert(value: str) -> str:
    """Refuse an option that names no kind of decider that can be simulated."""
    from ibcb.deciders import POLICIES

    return _known(value, tuple(POLICIES), "kind of decider")


def name_of_solver(value: str) -> str:
    """Refuse an option that names no solver."""
    from ibcb.inverse.solvers import SOLVERS

    return _known(value, ("auto", *SOLVERS), "solver")


def _known(value: str, known: tuple[str, ...], what: str) -> str:
    if value not in known:
        near = get_close_matches(value, known, 1)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise typer.BadParameter(f"{value!r} is not a {what}. {meant}Known: {', '.join(known)}.")
    return value


def above_zero(value: float | None) -> float | None:
    """Refuse an option that is not above 0."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"must be above 0, not {value:g}.")
    return value


def above_zero_or_auto(value: str) -> str:
    """Refuse an option that is neither a number above 0 nor "auto"."""
    try:
        if value != "auto":
            above_zero(float(value))
    except ValueError:
        raise typer.BadParameter(f"{value} is neither a number nor 'auto'.") from None
    return value


def at_least_zero(value: float | None) -> float | None:
    """Refuse an option below 0."""
    if value is not None and not (value >= 0 and math.isfinite(value)):
        raise typer.BadParameter(f"must be 0 or more, not {value:g}.")
    return value


def share(value: float) -> float:
    """Refuse an option that is no share: above 0, at most 1."""
    if not 0 < value <= 1:
        raise typer.BadParameter(f"{value:g} is not a share; give a number above 0 and up to 1, such as 0.1.")
    return value


def reads_logs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how to read a log; it gets them as one argument, ``reading``."""
    own = inspect.signature(command, eval_str=True)
    plain = [parameter for parameter in own.parameters.values() if parameter.name != "reading"]
    names = list(_READING)

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in names}
        command(*args, reading=_reading(given), **kwargs)

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _READING.items()
    ]
    json_last = [parameter for parameter in plain if parameter.name == "as_json"]
    first = [parameter for parameter in plain if parameter.name != "as_json"]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*first, *options, *json_last)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


_READING: dict[str, tuple[Any, Any]] = {
    "options": (
        Annotated[
            Path | None,
            typer.Option(
                help="Read the options below from a TOML file; those on the command line win.", metavar="FILE"
            ),
        ],
        None,
    ),
    "column": (
        Annotated[
            list[str] | None,
            typer.Option(
                help="Which column plays a role, as in chosen=shown. Roles: "
                "episode, step, chosen, candidate, timestamp, propensity. Repeatable.",
                metavar="ROLE=NAME",
            ),
        ],
        None,
    ),
    "features": (
        Annotated[
            str | None,
            typer.Option(
                help="Columns to use as features. Default: all columns without another role.", metavar="A,B,C"
            ),
        ],
        None,
    ),
    "drop": (
        Annotated[list[str] | None, typer.Option(help="Ignore this column. Repeatable.", metavar="NAME")],
        None,
    ),
    "keep": (
        Annotated[
            list[str] | None,
            typer.Option(
                help="Use this column as a feature though its name suggests a reward or a probability. Repeatable.",
                metavar="NAME",
            ),
        ],
        None,
    ),
    "one_hot": (
        Annotated[
            list[str] | None,
            typer.Option(
                help="Encode this column, text or ids, as one feature per value; "
                "'all' encodes every text column. Repeatable.",
                metavar="NAME",
            ),
        ],
        None,
    ),
    "min_count": (
        Annotated[
            int,
            typer.Option(
                help="With --one-hot: values with fewer rows share one feature, NAME=other.", min=1, metavar="N"
            ),
        ],
        1,
    ),
    "cross": (
        Annotated[
            list[str] | None,
            typer.Option(
                help="Multiply these columns, as VW's -q does with namespaces; * stands for any letters. Repeatable.",
                metavar="'USER_*,ITEM_*'",
            ),
        ],
        None,
    ),
    "arm": (
        Annotated[
            str | None,
            typer.Option(
                help="For a log with a row per step: the column with the arm chosen. Each arm gets weights of its own.",
                metavar="NAME",
            ),
        ],
        None,
    ),
    "available": (
        Annotated[
            str | None,
            typer.Option(help="With --arm: the column that lists the arms available, as in a|b|c.", metavar="NAME"),
        ],
        None,
    ),
    "arm_features": (
        Annotated[
            str | None,
            typer.Option(help="With --arm: a table with a row per arm, whose features all arms share.", metavar="FILE"),
        ],
        None,
    ),
    "missing": (
        Annotated[
            Literal["refuse", "mean", "zero"],
            typer.Option(help="Missing numbers: stop with an error, or fill in the column's mean or 0."),
        ],
        "refuse",
    ),
    "standardize": (
        Annotated[
            bool,
            typer.Option(
                "--standardize",
                help="Centre each feature and scale it to spread 1; the model does the same to new data.",
            ),
        ],
        False,
    ),
    "episode_every": (
        Annotated[str | None, typer.Option(help="Start an episode every 1d, 6h or 30min.", metavar="TIME")],
        None,
    ),
    "episode_size": (
        Annotated[int | None, typer.Option(help="Start an episode every N steps.", min=1, metavar="N")],
        None,
    ),
    "episodes": (
        Annotated[
            str | None,
            typer.Option(
                help="First step of every episode, as in 0,400,800; 'auto' finds from the choices when the policy "
                "was updated.",
                metavar="auto|STEPS",
            ),
        ],
        None,
    ),
    "warmup": (
        Annotated[
            int | None,
            typer.Option(help="The first N episodes were chosen at random, not by the policy.", min=0, metavar="N"),
        ],
        None,
    ),
    "sort": (
        Annotated[
            bool, typer.Option("--sort", help="Sort the rows by episode, time and step first; needs the log in memory.")
        ],
        False,
    ),
    "max_memory": (
        Annotated[
            str | None,
            typer.Option(
                help="Memory that reading may take, as in 2GB. Default: half of the machine's.", metavar="SIZE"
            ),
        ],
        None,
    ),
    "delimiter": (
        Annotated[
            str | None, typer.Option(help="CSV separator, as in ';'. Default: guessed from the header.", metavar="CHAR")
        ],
        None,
    ),
    "decimal": (Annotated[str, typer.Option(help="Decimal mark in CSV: . or ,", metavar="CHAR")], "."),
    "format": (
        Annotated[
            str | None,
            typer.Option(
                help="File format, if the name does not tell: parquet, csv, arrow, jsonl, npz, vw, dsjson, openbandit.",
                metavar="NAME",
            ),
        ],
        None,
    ),
    "alternatives": (
        Annotated[
            str | None,
            typer.Option(
                help="For a log with a row per step: names of the alternatives. "
                "With car,bus the columns price_car and price_bus are the feature price.",
                metavar="A,B,C",
            ),
        ],
        None,
    ),
    "items": (
        Annotated[
            str | None,
            typer.Option(
                help="Take the items' features from this table, joined on the candidate's id.", metavar="FILE"
            ),
        ],
        None,
    ),
    "date_format": (
        Annotated[
            str | None,
            typer.Option(help="How times are written, as in '%d.%m.%Y %H:%M'. Default: ISO 8601.", metavar="PATTERN"),
        ],
        None,
    ),
    "deduplicate": (
        Annotated[bool, typer.Option("--deduplicate", help="Drop repeated rows; needs the log in memory.")],
        False,
    ),
    "skip_unlabelled": (
        Annotated[bool, typer.Option("--skip-unlabelled", help="Drop steps without a chosen candidate.")],
        False,
    ),
}


def _reading(given: dict[str, Any]) -> dict[str, Any]:
    """The options as `ibcb.read_log` takes them."""
    from ibcb.io import load_options
    from ibcb.io.formats import format_called
    from ibcb.log.steps import ReadOptions

    columns = {}
    for pair in given.pop("column") or ():
        role, equals, name = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--column {pair}: write ROLE=NAME, such as step=request_id.")
        columns[role] = name
    features, one_hot = given["features"], given["one_hot"] or []
    path = given.pop("options")
    reads(path)
    options = given | {
        "columns": columns,
        "features": None if features is None else [name.strip() for name in features.split(",")],
        "drop": given["drop"] or [],
        "keep": given["keep"] or [],
        "one_hot": True if one_hot == ["all"] else one_hot,
        "alternatives": [name.strip() for name in (given["alternatives"] or "").split(",") if name.strip()],
        "cross": [tuple(name.strip() for name in names.split(",")) for names in given["cross"] or []],
        "episodes": _first_steps(given["episodes"]),
    }
    if path is not None:
        options = _overruled(load_options(path), options)
    reads_tables(options)
    try:
        ReadOptions(**options)
        if given["format"] is not None:
            format_called(given["format"])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return options


def _first_steps(text: str | None) -> str | list[int] | None:
    """The first step of every episode, or "auto"."""
    if text is None or text == "auto":
        return text
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"--episodes {text}: write auto, or the first step of every episode, such as 0,400,800."
        ) from None


def _overruled(before: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Options from elsewhere, and those given: what is given wins, a role of a column by itself."""
    from ibcb.log.steps import ReadOptions

    usual = ReadOptions()
    own = {name: value for name, value in given.items() if value not in (getattr(usual, name, None), [], None)}
    if any(name in own for name in _CUTS):
        before = {name: value for name, value in before.items() if name not in _CUTS}
    own["columns"] = {**before.get("columns", {}), **given.get("columns", {})}
    return given | dict(before) | own


def prepared(model: Any, reading: dict[str, Any], log: Path, *, choices: bool = True) -> dict[str, Any]:
    """Options that read new data as the log that the model was fitted on was read.

    A log that we wrote says all of it itself, and a file whose name tells its format need not have that of the other.
    """
    from ibcb.io.cells import is_ours
    from ibcb.io.formats import known_by_name

    if model.preparation_ is not None:
        kept = {} if is_ours(log) else model.preparation_.reading_again(choices=choices)
        if known_by_name(log):
            kept.pop("format", None)
        options = _overruled(kept, reading) | {"preparation": model.preparation_}
        reads_tables(options)
        return options
    if model.feature_names_in_ is not None and reading.get("features") is None:
        return reading | {"features": list(model.feature_names_in_)}
    return reading
