"""The register of kinds: those that are known, and rules of one's own.

A rule of one's own becomes a kind of its name, by `register` or by an entry point of the group ``ibcb.deciders`` that
gives the rule, or a kind. Entry points are loaded once, when a kind is first asked for.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import MutableMapping
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

from ibcb.deciders.kind import Kind
from ibcb.deciders.kinds import ROWS, usual
from ibcb.deciders.parameter import Parameter
from ibcb.deciders.rule import PARTS, Rule, Words
from ibcb.engine import ALL, Past

_GROUP = "ibcb.deciders"
#: what stands for no kind where one is named
_TAKEN = ("auto",)


class Register(UserDict[str, Kind]):
    """Kinds by the name under which a model file has them, in the order in which they are tried."""

    def __init__(self) -> None:
        self._rows = {row.key: row for row in ROWS}
        self._loaded = False

    @property
    def data(self) -> dict[str, Kind]:  # type: ignore[override]
        """All of them, entry points loaded."""
        if not self._loaded:
            # First, so that a rule that asks for kinds while it is loaded does not load all of them again.
            self._loaded, rows = True, dict(self._rows)
            for point in entry_points(group=_GROUP):
                try:
                    _add(rows, _kind_of(point.load()))
                except Exception as error:
                    self._loaded = False
                    error.add_note(f"ibcb met this in the entry point {point.name} = {point.value} of {_GROUP}.")
                    raise
            self._rows = rows
        return self._rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


#: in the order in which they are tried, by the name under which a model file has them
KINDS = Register()


def experts() -> tuple[str, ...]:
    """What users call the kinds: whether a Thompson sampler draws at every step or once an episode is a parameter."""
    return tuple(dict.fromkeys(kind.name for kind in KINDS.values()))


def register(rule: Rule | type[Rule] | Kind, *, name: str | None = None, past: Past = ALL) -> None:
    """Make a choice rule a kind of decider: named in ``IBCB(expert=...)``, tried by "auto", stored by its name.

    Parameters
    ----------
    rule : Rule, or a class that makes one, or Kind
        A rule is tracked with the usual motions: those that assume nothing of how policies move, and the learner. A
        kind, such as ``KINDS["sbucb"]``, keeps its own.
    name : str, optional
        Of the new kind; that of the rule unless given.
    past : Past
        What it has learned from.

    Raises
    ------
    TypeError
        If it lacks a part, which is named.
    ValueError
        If its name is taken.
    """
    if not isinstance(past, Past):
        raise TypeError(f"past is {past!r}; it must be a Past, such as ibcb.deciders.ALL.")
    kind = _kind_of(rule)
    own = kind.name if name is None else name
    _add(KINDS, replace(kind, name=own, key=own, past=past))


def _add(kinds: MutableMapping[str, Kind], kind: Kind) -> None:
    """Add a kind whose name is not taken."""
    if not (isinstance(kind.name, str) and kind.name.isidentifier()):
        raise TypeError(f"{kind.name!r} is no name of a kind; it must be a word, such as 'softucb'.")
    if kind.name in (*kinds, *_TAKEN) or kind.name in {known.name for known in kinds.values()}:
        raise ValueError(f"a kind of decider is called {kind.name!r} already; give it another name.")
    kinds[kind.name] = kind


def _kind_of(rule: Any) -> Kind:
    """A kind itself; that of a rule, after checking it."""
    if isinstance(rule, Kind):
        return rule
    made = rule() if isinstance(rule, type) and not getattr(rule, "__abstractmethods__", None) else rule
    who = rule.__name__ if isinstance(rule, type) else type(rule).__name__
    abstract = getattr(made, "__abstractmethods__", ()) if isinstance(made, type) else ()
    for part in PARTS:
        if not hasattr(made, part) or part in abstract:
            raise TypeError(f"{who} is no choice rule: it has no {part!r}. A rule has {', '.join(PARTS)}.")
    for part, wrong in _wrong(made).items():
        if wrong:
            raise TypeError(f"{who}.{part} is {getattr(made, part)!r}; {wrong}.")
    return usual(made)


def _wrong(rule: Any) -> dict[str, str]:
    """What is wrong with each part of a rule; empty where nothing is."""
    parameters = rule.parameters
    listed = isinstance(parameters, tuple) and all(isinstance(each, Parameter) for each in parameters)
    named = isinstance(rule.name, str) and rule.name.isidentifier()
    values = {
        "name": "" if named else "it must be a word, such as 'softucb'",
        "parameters": "" if listed else "it must be a tuple of Parameter",
        "words": "" if isinstance(rule.words, Words) else "it must be a Words",
    }
    methods = (part for part in PARTS if part not in values)
    return values | {part: "" if callable(getattr(rule, part)) else "it must be a method" for part in methods}
