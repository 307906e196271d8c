"""Words for columns, which messages share."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence

from ibcb.log.arrays import shown

__all__ = ["argument", "dropped", "enumerated", "listed", "name_it", "no_column", "taken_back"]


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
    more = f" and {len(every) - 12} more" if len(every) > 12 else ""
    return ", ".join(every[:12]) + more
