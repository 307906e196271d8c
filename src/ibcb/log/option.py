"""Options, each declared once: command line, files of options, signatures, docstrings and checks are made from it.

A family of options is a dataclass, or the verb that takes them. Its docstring has their types and words, in the section
Attributes or Parameters: a command line says the first paragraph of each, other docstrings all of them. Its fields, or
defaults, made by `option`, have name, default, form and check; `declared` puts both together. Nothing here imports
numpy, so that help is shown at once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ibcb.numerics.printable import WrongTypeError, shown

#: raises ValueError or WrongTypeError, with value, reason and remedy, where an option called so cannot have this value
_Check = Callable[[str, Any], object]
#: what stands for all options in a docstring
_OPTIONS = re.compile(r"\*\*options\n    See .*")
_Documented = TypeVar("_Documented", bound=Callable[..., Any])
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Form:
    """How an option is written on a command line.

    Attributes
    ----------
    metavar : str
        What stands for its value in help texts; empty for one that is there or not.
    parse : callable
        The value that a text means; of a repeated option, that the texts mean.
    repeated : bool
        Whether it may be given several times.
    """

    metavar: str
    parse: Callable[[Any], Any]
    repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a user may say, under one name everywhere.

    Attributes
    ----------
    default : object
    form : Form, optional
        How the command line takes it; None: it does not, and no file holds it.
    check : callable, optional
        Raises an error for a value that it cannot have.
    flags : str
        How the command line calls it, if that is not the name with hyphens; for yes and no, with a slash between.
    heading : str
        Under which help texts list it: that of the option before it, where none is given.
    usual : bool
        Whether most people need it. Others are shown where all are asked for.
    kept : {"reading", "place", "features"}
        How a model keeps an option of reading for other data: as it was given; so, and for candidates without choices,
        too, because it says where things stand; or as a part of how features are made.
    name, help, entry : str
        Its name; what the command line says of it; what docstrings have.
    """

    default: Any = None
    form: Form | None = None
    check: _Check | None = None
    flags: str = ""
    heading: str = ""
    usual: bool = False
    kept: str = "reading"
    name: str = ""
    help: str = ""
    entry: str = ""

    @property
    def called(self) -> str:
        """How messages call it on the command line."""
        return self.flags.split()[-1].partition("/")[0] if self.flags else f"--{self.name.replace('_', '-')}"


def option(default: Any, form: Form | None = None, check: _Check | None = None, **more: Any) -> Any:
    """A field of a dataclass, which is an option; ``more`` as of `Option`."""
    metadata = {"option": Option(default=default, form=form, check=check, **more)}
    given = {"default_factory": default.copy} if isinstance(default, dict) else {"default": default}
    return field(**given, metadata=metadata)


def declared(family: Any) -> tuple[Option, ...]:
    """The options that the fields of a dataclass are, or defaults of a function's parameters."""
    entries, made = _entries(family), list[Option]()
    if isinstance(family, type):
        fields: dict[str, Any] = family.__dataclass_fields__  # type: ignore[attr-defined] # with those only passed on
    else:
        defaults = {name: each.default for name, each in inspect.signature(family).parameters.items()}
        fields = {name: each for name, each in defaults.items() if isinstance(each, Field)}
    for name, each in fields.items():
        own: Option = each.metadata["option"]
        heading = own.heading or (made[-1].heading if made else "")
        entry = entries.get(name, "")
        first = entry.partition("\n")[2].partition("\n\n")[0]
        made.append(replace(own, name=name, heading=heading, entry=entry, help=" ".join(first.split())))
    return tuple(made)


def _entries(family: Any) -> dict[str, str]:
    """What the docstrings of a class and its bases, or of a function, have of each option; nothing with python -OO."""
    texts = [inspect.cleandoc(each.__doc__ or "") for each in getattr(family, "__mro__", (family,))]
    sections = [re.split(r"(?:Attributes|Parameters)\n-{10}\n", text, maxsplit=1)[1:] for text in texts]
    parts = [part for section in sections for text in section for part in re.split(r"(?m)^(?=\S+ : )", text)]
    return {part.partition(" : ")[0]: part.strip() for part in parts}


def documented(options: Sequence[Option]) -> Callable[[_Documented], _Documented]:
    """Put options in place of ``**options``: in the signature of a function, and in a docstring, of an entry See."""

    def document(target: _Documented) -> _Documented:
        entries = "\n".join(each.entry for each in options)
        target.__doc__ = _OPTIONS.sub(lambda see: entries, inspect.cleandoc(target.__doc__ or ""))
        if inspect.isfunction(target):
            whole = inspect.signature(target)
            own = [each for each in whole.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
            named = [inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default) for o in options]
            target.__signature__ = whole.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return target

    return document


# -- forms -----------------------------------------------------------------------------------------------------------


def text(metavar: str) -> Form:
    """A text as it is."""
    return Form(metavar, str)


def names(text: str) -> list[str]:
    """Those in ``a, b,c``."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _parsed(kind: Callable[[str], _Number], what: str) -> Callable[[str], _Number]:
    """What gives the number that a text is."""

    def parse(text: str) -> _Number:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{shown(text)} is not {what}.") from None

    return parse


whole_number, number = _parsed(int, "a whole number"), _parsed(float, "a number")
COUNT, NUMBER = Form("N", whole_number), Form("NUMBER", number)
FLAG, PATH = Form("", bool), Form("FILE", Path)


# -- checks ----------------------------------------------------------------------------------------------------------


def check_all(options: Iterable[Option], value: Callable[[str], Any], *more: Callable[[], object]) -> None:
    """Check the value of every option, and whatever else there is to check; all problems are in one error."""
    problems, checks = list[Exception](), list[Callable[[], object]]()
    checks += [partial(each.check, each.name, value(each.name)) for each in options if each.check is not None]
    for check in (*checks, *more):
        try:
            check()
        except (ValueError, WrongTypeError) as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        told = " ".join(f"({place}) {problem}" for place, problem in enumerate(problems, start=1))
        raise ValueError(f"{len(problems)} problems. {told}")


def nearest(value: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """Of those known the name that comes next to a wrong one, or that is ``meant`` by it; empty where none does."""
    aliases = dict(meant or {})
    near = get_close_matches(value.lower(), [*aliases, *known], 1)
    return aliases.get(near[0], near[0]) if near else ""


def did_you_mean(value: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """Behind a wrong name, in brackets: that which comes next to it; empty where none does."""
    near = nearest(value, known, meant)
    return f" (did you mean {near}?)" if near else ""


def one_of(known: Callable[[], Sequence[str]], meant: Mapping[str, str] | None = None) -> _Check:
    """That a value is one of some names; ``meant`` has what other names mean."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in known():
            near = nearest(str(value), known(), meant)
            hint = f"did you mean {near}? Choose" if near else "choose"
            raise ValueError(f"{name}={shown(value)} is unknown; {hint} one of {', '.join(map(repr, known()))}.")

    return check


def _checked(kind: str, *told: Any, unless: Sequence[str | int | None] = ()) -> _Check:
    """What `ibcb.numerics.checks` has under that name; ``unless`` has other values that it may be."""

    def check(name: str, value: Any) -> None:
        from ibcb.numerics import checks

        if not (isinstance(value, (str, int, type(None))) and value in unless):
            getattr(checks, kind)(name, value, *told)

    return check


def whole(least: int, why: str, *, unless: Sequence[str | int | None] = (None,)) -> _Check:
    """That a value is a whole number of at least so much; ``unless`` has other values that it may be."""
    return _checked("whole", least, why, unless=unless)


def positive(why: str, *, unless: Sequence[str] = ()) -> _Check:
    """That a value is a number above 0; ``unless`` has words that it may be."""
    return _checked("positive", why, unless=unless)


#: that a value is True or False
boolean = _checked("boolean")
