"""Words for columns, which messages share; and all problems of a table in one message, repaired in one round."""

from __future__ import annotations

import contextlib
import difflib
import functools
import shlex
import string
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any, Literal

from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.numerics.printable import shown

#: names and problems in a message
_MOST = 12


def name_it(role: str) -> str:
    """How to name the column of a role, within a sentence."""
    return f"columns={{'{role}': ...}} (--column {role}=NAME)"


def taken_back(name: str) -> str:
    """How to make a column a feature, within a sentence."""
    return f"take it back with keep=[{shown(name)}] (--keep {argument(name)})"


def dropped(name: str) -> str:
    """How to leave a column out, within a sentence."""
    return f"drop=[{shown(name)}] (--drop {argument(name)})"


def argument(name: str) -> str:
    """A name as it is written on a command line."""
    return shlex.quote(name) if name.isprintable() and len(name) < 60 else "NAME"


def no_column(name: str, names: Sequence[str], purpose: str = "") -> str:
    """That a column is not there, which is most like it, and which there are."""
    near = difflib.get_close_matches(str(name), names, n=1)
    meant = f" (did you mean {shown(near[0])}?)" if near else ""
    return f"there is no column {shown(name)}{purpose}{meant}; the columns are {listed(names)}."


def listed(names: Iterable[str]) -> str:
    """At most a dozen names."""
    return enumerated(map(shown, names))


def enumerated(texts: Iterable[str]) -> str:
    """At most a dozen texts."""
    every = list(texts)
    more = f" and {len(every) - _MOST} more" if len(every) > _MOST else ""
    return ", ".join(every[:_MOST]) + more


#: by the letters of `refusals.toml`
_FORMS: dict[str, Callable[[Any], str]] = {"q": shown, "l": listed, "n": name_it}
_FORMS |= {"d": dropped, "t": taken_back, "a": argument}


class _Sentence(string.Formatter):
    """Sentences of `refusals.toml`, which says what stands behind the names of their figures."""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        forms: dict[str, Callable[[Any], str]] = {
            "q": shown,
            "l": listed,
            "n": name_it,
            "d": dropped,
            "t": taken_back,
            "a": argument,
        }
        return forms[conversion](value) if conversion else value

    def format_field(self, value: Any, spec: str) -> str:
        return plural(int(value), spec) if spec.isalpha() or " " in spec else format(value, spec)


def sentence(name: str, /, **figures: Any) -> str:
    """What stands in `refusals.toml` under a name, with figures."""
    return _Sentence().vformat(_sentences()[name], (), figures)


def refusal(name: str, /, **figures: Any) -> LogFormatError:
    """That a table cannot be read, in the words that stand in `refusals.toml` under a name."""
    return LogFormatError(sentence(name, **figures))


@functools.cache
def _sentences() -> dict[str, str]:
    text = files("ibcb.io").joinpath("refusals.toml").read_text(encoding="utf-8")
    return {name: words for section in tomllib.loads(text).values() for name, words in section.items()}


def note(code: str, severity: Literal["info", "warning"], **figures: Any) -> Note:
    """What a reader should know, in the words that stand there under its code."""
    return Note(code, severity, sentence(code, **figures), figures)


class Problems:
    """Messages on their way into one error.

    >>> problems = Problems()
    >>> for name in ("a", "b"):
    ...     with problems.noted():
    ...         raise LogFormatError(f"column {name!r} is empty.")
    >>> try:
    ...     problems.settle()
    ... except LogFormatError as error:
    ...     print(error)
    2 problems. (1) column 'a' is empty. (2) column 'b' is empty.
    """

    def __init__(self) -> None:
        self._messages: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, message: str) -> None:
        """One more."""
        self._messages[message] = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Keep what is raised for later."""
        try:
            yield
        except _SeveralError as error:
            for message in error.messages:
                self.add(message)
        except LogFormatError as error:
            self.add(str(error))

    def each(self, names: Iterable[str], check: Callable[[str], None]) -> None:
        """Keep what a check raises of some columns."""
        for name in names:
            with self.noted():
                check(name)

    def settle(self) -> None:
        """Raise what was noted: a single problem as it is, several with numbers."""
        messages = list(self._messages)
        if len(messages) == 1:
            raise LogFormatError(messages[0])
        if messages:
            each = " ".join(f"({place}) {message}" for place, message in enumerate(messages[:_MOST], start=1))
            more = f" And {len(messages) - _MOST} more." if len(messages) > _MOST else ""
            raise _SeveralError(f"{len(messages)} problems. {each}{more}", messages)


class _SeveralError(LogFormatError):
    def __init__(self, text: str, messages: list[str]) -> None:
        super().__init__(text)
        self.messages = messages
