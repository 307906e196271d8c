"""Ways to alter bytes, words, JSON and arrays at random: what `fuzz.py` and the tests damage files with."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Place = tuple[Any, ...]

#: closes a script, commands a terminal, turns text around, is filled in by a template
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\n\u202e{{7*7}}"
DEEP = json.loads("[" * 200 + "1" + "]" * 200)
NUMBERS = [0, 1, -1, 2, 7, 0.5, -7.5, 1e-320, 1e-9, 1e9, 1e155, -1e155, 1.7e308, 2**31, 2**53, 2**53 + 2, 10**400]
#: what may stand in the place of a value of JSON
VALUES: list[Any] = [
    *NUMBERS,
    float("nan"),
    float("inf"),
    None,
    True,
    False,
    "",
    "x",
    "sbucb",
    "auto",
    HOSTILE,
    "\ud800",
    [],
    {},
    DEEP,
]
#: what may stand in the place of a number of an array
CELLS = [0.0, 1.0, -1.0, 0.5, 1e-320, 1e-12, 1e12, 1e155, -1e155, 1.7e308, np.nan, np.inf]
#: what may stand in the place of a word of a text
WORDS = [
    *(str(number).encode() for number in NUMBERS[:-1]),
    *(word.encode() for word in ("nan", "NaN", "inf", "-Infinity", "NaT", "null", "true", "yes", "x", "é", "\u202e")),
    *(b"", b'"', b"'", b"[", b"]", b"{", b"}", b"=", b":", b"|", b",", b";", b"\t", b"\n", b"\r", b"\n\n", b"\0"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"9" * 30, b"9" * 5000, b"1_0", b"0x10", b"1e400", b"-0"),
    *(b"2024-01-01", b"2024-01-01T00:00:00+14:00", b"0001-01-01", b"99999-01-01", b"shared", b"episode", b"__proto__"),
]

# -- bytes and words ---------------------------------------------------------------------------------------------------

#: where as a share of the length, how, and bytes to do it with
Change = tuple[float, str, bytes]
WAYS = ("set", "cut", "insert", "repeat")


def mutated(content: bytes, changes: Sequence[Change]) -> bytes:
    """Bytes with some set, cut out, put in between, or repeated."""
    for share, what, more in changes:
        at = int(share * len(content))
        if what == "set":
            content = content[:at] + more + content[at + len(more) :]
        elif what == "cut":
            content = content[:at] + content[at + 7 * len(more) :]
        elif what == "insert":
            content = content[:at] + more + content[at:]
        else:
            content = content[:at] + content[max(0, at - 50) : at] * len(more) + content[at:]
    return content


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes with one to four of `mutated`'s changes."""
    changes = [
        (float(rng.random()), str(rng.choice(WAYS)), rng.bytes(int(rng.integers(1, 10))))
        for _ in range(rng.integers(1, 5))
    ]
    return mutated(content, changes)


def reworded(content: bytes, rng: np.random.Generator) -> bytes:
    """A text with one to four words or lines that stand elsewhere in it, are strange, twice, or missing."""
    for _ in range(rng.integers(1, 5)):
        parts = re.split(rb"(\n)" if rng.random() < 0.2 else rb"([\s,;:|=\"{}\[\]]+)", content)
        at, other = (2 * int(rng.integers((len(parts) + 1) // 2)) for _ in range(2))
        new = (parts[other], parts[at] * 2, b"", WORDS[int(rng.integers(len(WORDS)))])
        parts[at] = new[min(int(rng.integers(6)), 3)]
        content = b"".join(parts)
    return content


# -- JSON --------------------------------------------------------------------------------------------------------------


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """The keys that lead to every value within one."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def at(value: Any, path: Place) -> Any:
    """What stands at the end of some keys."""
    return functools.reduce(lambda inside, key: inside[key], path, value)


def alter_json(tree: Any, rng: np.random.Generator, kept: Sequence[str] = ()) -> str:
    """Alter one value of a tree, except those under the keys ``kept`` at its top; tells what was done."""
    found = [path for path in places(tree) if path[0] not in kept]
    if not found:
        return "nothing to alter"
    path = found[rng.integers(len(found))]
    owner, way = at(tree, path[:-1]), rng.integers(8)
    if way == 0:
        del owner[path[-1]]
    elif way == 1:
        # What stands elsewhere in the tree.
        owner[path[-1]] = copy.deepcopy(at(tree, found[rng.integers(len(found))]))
    elif way == 2 and isinstance(owner, list):
        owner.insert(path[-1], copy.deepcopy(owner[path[-1]]))
    elif way == 3 and isinstance(owner[path[-1]], (int, float)) and not isinstance(owner[path[-1]], bool):
        owner[path[-1]] = owner[path[-1]] + int(rng.choice([-1, 1]))
    else:
        owner[path[-1]] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return f"{path} {way}: {str(owner)[:60]!r}"


# -- arrays ------------------------------------------------------------------------------------------------------------


def _changed_cell(array: Array, rng: np.random.Generator) -> Array:
    found = array.copy()
    if found.size:
        found.flat[rng.integers(found.size)] = np.float64(rng.choice(CELLS)).astype(found.dtype)
    return found


_CHANGES: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "longer": lambda a, rng: np.concatenate([a, a[-1:]]),
    "shorter": lambda a, rng: a[:-1],
    "empty": lambda a, rng: a[:0],
    "turned": lambda a, rng: a.T,
    "flat": lambda a, rng: a.reshape(-1),
    "deeper": lambda a, rng: a[None],
    "shuffled": lambda a, rng: rng.permutation(a.reshape(-1)).reshape(a.shape),
    "negative": lambda a, rng: -a,
    "scaled": lambda a, rng: a * rng.choice([0.0, 1e-160, 1e-9, 1e9, 1e160]),
    "single": lambda a, rng: a.astype(np.float32),
    "whole": lambda a, rng: a.astype(np.int64),
    "cell": _changed_cell,
    "cells": lambda a, rng: np.full_like(a, rng.choice(CELLS)),
}


def alter_arrays(arrays: dict[str, Array], rng: np.random.Generator) -> str:
    """Alter one of some arrays, leave it out, or put another in its place; tells what was done."""
    if not arrays:
        return "nothing to alter"
    key = list(arrays)[rng.integers(len(arrays))]
    way = str(rng.choice([*_CHANGES, "dropped", "another"]))
    if way == "dropped":
        del arrays[key]
    elif way == "another":
        arrays[key] = arrays[list(arrays)[rng.integers(len(arrays))]]
    else:
        with np.errstate(all="ignore"):
            arrays[key] = _CHANGES[way](np.atleast_1d(arrays[key]), rng)
    return f"{key} {way}"
