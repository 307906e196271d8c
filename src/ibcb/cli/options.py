"""Options that several verbs take, and what they must be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Annotated, Any, Literal

import typer

__all__ = [
    "LOG",
    "ExpertKind",
    "Json",
    "above_zero",
    "above_zero_or_auto",
    "at_least_zero",
    "kind_of_decider",
    "name_of_solver",
    "prepared",
    "reads_logs",
    "share",
]

#: what a log can be
LOG = "Parquet, CSV, Arrow or npz, VW text or dsjson, or a folder of such files."

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ExpertKind = Literal["sbucb", "sbts"]


def kind_of_decider(value: str) -> str:
    """Refuse an option that names no kind of decider."""
    from ibcb.deciders import KINDS

    return _known(value, (*KINDS, "auto"), "kind of decider")


def name_of_solver(value: str) -> str:
    """Refuse an option that names no solver."""
    from ibcb.inverse.solvers import SOLVERS

    return _known(value, ("auto", *SOLVERS), "solver")


def _known(value: str, known: tuple[str, ...], what: str) -> str:
    if value not in known:
        near = get_close_matches(value, known, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise typer.BadParameter(f"{value!r} is no {what}; {meant}There are {', '.join(known)}.")
    return value


def above_zero(value: float | None) -> float | None:
    """Refuse an option that is not above 0."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"{value:g} is not above 0.")
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
        raise typer.BadParameter(f"{value:g} is not 0 or above.")
    return value


def share(value: float) -> float:
    """Refuse an option that is no share: above 0, at most 1."""
    if not 0 < value <= 1:
        raise typer.BadParameter(f"{value:g} is no share; it is above 0 and at most 1.")
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
    "column": (
        Annotated[
            list[str] | None,
            typer.Option(help="Which column is the episode, step, chosen, timestamp; repeatable.", metavar="ROLE=NAME"),
        ],
        None,
    ),
    "features": (
        Annotated[str | None, typer.Option(help="The feature columns; all that are left.", metavar="A,B,C")],
        None,
    ),
    "drop": (
        Annotated[list[str] | None, typer.Option(help="A column that is no feature; repeatable.", metavar="NAME")],
        None,
    ),
    "keep": (
        Annotated[
            list[str] | None,
            typer.Option(help="A feature though its name says reward or cost; repeatable.", metavar="NAME"),
        ],
        None,
    ),
    "one_hot": (
        Annotated[
            list[str] | None, typer.Option(help="A column of text to encode, or 'all'; repeatable.", metavar="NAME")
        ],
        None,
    ),
    "missing": (
        Annotated[Literal["refuse", "mean", "zero"], typer.Option(help="What to do about missing numbers.")],
        "refuse",
    ),
    "standardize": (
        Annotated[bool, typer.Option("--standardize", help="Centre and scale features; kept with the model.")],
        False,
    ),
    "episode_every": (Annotated[str | None, typer.Option(help="Cut episodes by time: 1d, 6h.", metavar="TIME")], None),
    "episode_size": (Annotated[int | None, typer.Option(help="Cut episodes by number of steps.", min=1)], None),
    "episodes": (
        Annotated[
            str | None,
            typer.Option(
                help="auto: find from the choices when the policy was updated. Or the first step of every episode.",
                metavar="auto|0,400,800",
            ),
        ],
        None,
    ),
    "warmup": (Annotated[int | None, typer.Option(help="Leading episodes that were random.", min=0)], None),
    "sort": (Annotated[bool, typer.Option("--sort", help="Sort by episode, time, step; in memory.")], False),
    "delimiter": (
        Annotated[str | None, typer.Option(help="CSV separator; guessed from the header unless given.")],
        None,
    ),
    "decimal": (Annotated[str, typer.Option(help="Decimal point of CSV.")], "."),
}


def _reading(given: dict[str, Any]) -> dict[str, Any]:
    """The options as `ibcb.read_log` takes them."""
    from ibcb.log.steps import ReadOptions

    columns = {}
    for pair in given.pop("column") or ():
        role, equals, name = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--column {pair}: say ROLE=NAME, such as step=request_id.")
        columns[role] = name
    features, one_hot = given["features"], given["one_hot"] or []
    options = given | {
        "columns": columns,
        "features": None if features is None else [name.strip() for name in features.split(",")],
        "drop": given["drop"] or [],
        "keep": given["keep"] or [],
        "one_hot": True if one_hot == ["all"] else one_hot,
        "episodes": _first_steps(given["episodes"]),
    }
    try:
        ReadOptions(**options)
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
            f"--episodes {text}: say auto, or the first step of every episode, such as 0,400,800."
        ) from None


def prepared(model: Any, reading: dict[str, Any]) -> dict[str, Any]:
    """Options that make the features of new data as for the log that the model was fitted on."""
    if model.preparation_ is not None:
        return reading | {"preparation": model.preparation_}
    if model.feature_names_in_ is not None and reading.get("features") is None:
        return reading | {"features": list(model.feature_names_in_)}
    return reading
