"""Verbs made of functions: their options, declared there or elsewhere, and what help shows of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

import ibcb
from ibcb.cli.printing import print_json
from ibcb.cli.running import check_input, check_output, model_of, reads, reads_tables, reports_errors
from ibcb.log.option import FLAG, Option, check_all, declared, option
from ibcb.log.read_options import CUTS, OPTIONS_FILE, READING
from ibcb.numerics.printable import WrongTypeError

_LOG = "The log: a Parquet, CSV, JSON lines, Arrow, npz, VW text or dsjson file, or a folder of them."
LogPath = Annotated[Path, typer.Argument(help=_LOG, readable=False)]
ModelPath = Annotated[Path, typer.Argument(help="A saved model, as ibcb fit writes it.", readable=False)]
#: options of verbs that read a log
HOW_TO_READ = (OPTIONS_FILE, *(each for each in READING if each.form is not None))
#: of verbs that are given a model, which knows how its log was read
REMEMBERED = (OPTIONS_FILE, *(replace(each, usual=False) for each in HOW_TO_READ[1:]))


@dataclass
class _Everywhere:
    """Options of every verb.

    Attributes
    ----------
    as_json : bool
        Print the result as JSON on stdout.
    """

    as_json: bool = option(False, FLAG, flags="--json")


_JSON = declared(_Everywhere)


class Result(NamedTuple):
    """What a verb found: with --json ``data`` is printed, else ``show`` prints it; ``failed``: the exit code is 1."""

    data: Any
    show: Callable[[], None] = lambda: None
    failed: bool = False


def verb(**families: Sequence[Option]) -> Callable[[Callable[..., Result]], Callable[..., None]]:
    """Make a command of a function. Its options are the parameters that `option` made; it gets their values, checked.

    Of every other family it gets the values that were given, by name; and ``as_json``, if it asks for it.
    """

    def extend(command: Callable[..., Result]) -> Callable[..., None]:
        own = declared(command)
        options = [*own, *_JSON, *(each for family in families.values() for each in family)]
        # Where no option is more usual than the others, help shows all of them.
        several = [family for family in families.values() if any(each.usual for each in family)]
        seldom = {each.name for family in several for each in family if not each.usual}
        arguments = inspect.signature(command, eval_str=True).parameters
        places = [arguments[name] for name in arguments if name not in {each.name for each in options} | {*families}]

        @wraps(command)
        def run(*, help_all: bool = False, **values: Any) -> None:
            texts = {each.name: values.pop(each.name) for each in options}
            asked: dict[str, Any] = {name: given(family, texts) for name, family in families.items()}
            asked |= {each.name: each.default for each in own} | given(own, texts)
            if "as_json" in arguments:
                asked["as_json"] = bool(texts["as_json"])
            data, show, failed = command(**values, **asked)
            if texts["as_json"]:
                print_json(data)
            else:
                show()
            if failed:
                raise typer.Exit(1)

        parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in places]
        parameters += [_parameter(each, hidden=each.name in seldom) for each in options]
        parameters += [_HELP_ALL] if seldom else []
        shown = reports_errors(run)
        shown.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        shown.__annotations__ = {each.name: each.annotation for each in parameters}
        return shown

    return extend


def given(family: Iterable[Option], texts: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that were given, checked; reading has those of its file, too."""
    values: dict[str, Any] = {}
    for each in family:
        if (text := texts[each.name]) is not None and each.form is not None:
            try:
                values[each.name] = each.form.parse(text)
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint=f"'{each.called}'") from None
    if (path := values.pop("options", None)) is not None:
        from ibcb.io import load_options

        check_input(Path(path), "a file of options")
        reads(Path(path))
        values = _overruled(load_options(path), values)
    try:
        check_all([each for each in family if each.name in values], values.__getitem__)
        if OPTIONS_FILE in family:
            _check_together(values)
    except (ValueError, WrongTypeError) as error:
        raise bad_usage(error, family) from None
    return values


def bad_usage(error: Exception, family: Iterable[Option]) -> typer.BadParameter:
    """The same said to somebody who has written options as the command line calls them."""
    text = str(error)
    for each in family:
        # Names that are words of English are those of options where something is said of their values.
        name = rf"'?{each.name}'?(?!\w)" if "_" in each.name else rf"{each.name}(?==| has a | is about )"
        text = re.sub(rf"(?<![\w-]){name}", each.called, text)
    return typer.BadParameter(text)


def _check_together(reading: dict[str, Any]) -> None:
    for name in ("items", "arm_features"):
        if isinstance(path := reading.get(name), str):
            check_input(Path(path), "a table")
    reads_tables(reading)
    if not reading:
        return
    from ibcb.io.formats import format_called
    from ibcb.log.read_options import ReadOptions

    ReadOptions(**reading)
    if "format" in reading:
        format_called(reading["format"])


def _overruled(before: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Options from elsewhere, and those given: what is given wins, a role of a column by itself."""
    if any(name in given for name in CUTS):
        before = {name: value for name, value in before.items() if name not in CUTS}
    return {**before, **given, "columns": {**before.get("columns", {}), **given.get("columns", {})}}


def opened(
    model: Path, log: Path, reading: dict[str, Any], *, out: Path | None, suffixes: Sequence[str], **more: Any
) -> tuple[Any, Any]:
    """A saved model and a log on disk, read as its own; ``out`` and ``suffixes``: what is to be written of them.

    ``more``: what the model must be, see `model_of`; ``choices``: whether the log must have them.
    """
    choices = more.pop("choices", True)
    check_output(out, suffixes, log, model)
    imitator = model_of(model, log, **more)
    return imitator, ibcb.open_log(log, **prepared(imitator, reading, log, choices=choices), choices=choices)


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


# -- help ------------------------------------------------------------------------------------------------------------

#: in their order
_HEADINGS = (
    *("Arguments", "Options", "Decider", "Expert", "World", "Reading: file", "Reading: columns", "Reading: layout"),
    *("Reading: episodes", "Algorithm 2", "Large logs"),
)


class Verb(TyperCommand):
    """A command whose help lists options under headings, with the same margin below each."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Sections in their order, and in each the options as they come."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is not None:
                heading = getattr(each, "rich_help_panel", None) or f"{each.param_type_name.capitalize()}s"
                sections.setdefault(heading, []).append(record)
        margin = min(max(len(first) for records in sections.values() for first, _ in records), 28)
        for heading, records in sorted(sections.items(), key=lambda section: _HEADINGS.index(section[0])):
            with formatter.section(heading):
                formatter.write_dl([(first.ljust(margin), text) for first, text in records], col_max=margin)


def _show_all(context: typer.Context, asked: bool) -> None:
    """Help with the options that few people need."""
    if asked:
        for each in context.command.params:
            each.hidden = False  # type: ignore[attr-defined]
        print(context.get_help())
        raise typer.Exit


_HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--help-all", help="Show every option and exit.", is_eager=True, callback=_show_all)
    ],
)


def _parameter(each: Option, *, hidden: bool) -> inspect.Parameter:
    """An option as a parameter of a command: text as it was written, None where it was not."""
    form = each.form
    assert form is not None  # others are not for the command line
    flag = not form.metavar
    says = re.sub(r"``(\w+)``", lambda name: f"--{name[1].replace('_', '-')}", each.help)
    says += " Repeatable." if form.repeated else ""
    if not (flag and "/" not in each.flags) and each.default not in (None, (), {}, "") and "Default:" not in says:
        on, _, off = each.flags.replace("--", "").partition("/")
        default = (on if each.default else off) if flag else each.default
        says += f"  [default: {default}]"
    kind = bool if flag else list[str] if form.repeated else str
    made = typer.Option(
        *(each.flags.split() or [each.called]),
        metavar=form.metavar or None,
        help=says,
        hidden=hidden,
        rich_help_panel=each.heading or None,
        show_default=False,
    )
    annotation = Annotated[kind | None, made]  # type: ignore[valid-type]
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
