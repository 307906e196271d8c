"""One way to store what a model knows: frozen dataclasses and named tuples as named arrays and JSON, and back.

What a field may hold is said by its annotation: numbers, text, ``None``, tuples, arrays, notes, kinds of deciders, and
other records of these. An array's annotation says the shape and type in which it is `Stored`: the same letter means the
same size within a record, and d everywhere the number of features. Numbers are finite, and whole ones count something.
Loading checks all of it, parameters as ``__init__`` annotates them included, and that the parts of a record belong
together where it has a method ``check``, so that a damaged file is refused when it is read, and not met later.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import KINDS, Kind
from ibcb.log.notes import Note
from ibcb.numerics.arrays import Stored
from ibcb.numerics.printable import shown
from ibcb.numerics.ridge import Frame

Arrays = dict[str, NDArray[Any]]
T = TypeVar("T")

#: whole numbers beyond this are not exact as float64, in which arrays are stored
_LARGEST = 2**53


def pack(value: Any, name: str, arrays: Arrays) -> Any:
    """The value as JSON; its arrays go into ``arrays``, as float64, under names that begin with ``name``.

    An array that several records hold is stored once.
    """
    known: dict[int, str] = {}

    def packed(value: Any, name: str) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.ndarray):
            if id(value) not in known:
                known[id(value)] = name
                arrays[name] = value.astype(np.float64)
            return known[id(value)]
        if isinstance(value, Note):
            return value.to_json()
        if isinstance(value, Kind):
            frame = packed(value.frame, f"{name}.frame")
            return {"kind": value.key, "l2": value.l2, "top_k": value.top_k, "frame": frame, "rate": value.rate}
        if _names(type(value)):
            return {key: packed(getattr(value, key), f"{name}.{key}") for key in _names(type(value))}
        if isinstance(value, (tuple, list)):
            return [packed(item, f"{name}.{place}") for place, item in enumerate(value)]
        raise TypeError(f"{name} is a {type(value).__name__}, which has no place in a model file.")

    return packed(value, name)


def unpack(kind: type[T], stored: Any, arrays: Arrays, d: int) -> T:
    """The value of which `pack` made this; raises ValueError, with the place, where it does not fit the annotation."""
    value: T = _read(kind, stored, dict(arrays), {"d": d}, "state")
    return value


class Named(dict[str, Any]):
    """What a file holds by name; ValueError for what it lacks, and where it is no mapping."""

    def __init__(self, stored: Any) -> None:
        if not isinstance(stored, dict):
            raise ValueError(f"{shown(stored)} is not a mapping")
        super().__init__(stored)

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"{name!r} is missing")


def parameters(kind: type[Any], stored: Any, arrays: Arrays) -> dict[str, Any]:
    """Parameters of an estimator of this class, as its ``__init__`` annotates them; its arrays are numbers."""
    given, hints = Named(stored) | arrays, get_type_hints(kind.__init__)
    for name, value in given.items():
        if name not in hints:
            raise ValueError(f"{kind.__name__} has no parameter {shown(name)}")
        allowed = get_args(hints[name]) or (hints[name],)
        if all(each in _SCALARS for each in allowed):
            fits = any(_SCALARS[each][1](value) for each in allowed)
            # In place of a number there is one word.
            fits = fits and not (isinstance(value, str) and {int, float} & {*allowed} and value != "auto")
        else:
            fits = name in arrays or value is None
        if not fits:
            raise ValueError(f"parameter {name} is {shown(value)}, which it cannot be")
    return given


def _names(kind: Any) -> tuple[str, ...]:
    """Of the fields of a record; none of anything else."""
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind))
    return tuple(getattr(kind, "_fields", ()))


def _read(kind: Any, stored: Any, arrays: Arrays, sizes: dict[str, int], place: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if stored is None:
            if NoneType not in arguments:
                raise ValueError(f"{place} is missing")
            return None
        (inner,) = (each for each in arguments if each is not NoneType)
        return _read(inner, stored, arrays, sizes, place)
    if origin is Annotated:
        return _array(arguments[1], stored, arrays, sizes, place)
    if origin is tuple or (isinstance(kind, type) and issubclass(kind, tuple) and not _names(kind)):
        return _tuple(kind, stored, arrays, sizes, place)
    if kind is Kind:
        return _kind(stored, arrays, sizes, place)
    if kind is Note:
        return _note(stored, place)
    if _names(kind):
        if not isinstance(stored, dict) or set(stored) != set(_names(kind)):
            raise ValueError(f"{place} does not hold the parts of a {kind.__name__}")
        hints, own = get_type_hints(kind, include_extras=True), {"d": sizes["d"]}
        record = kind(**{name: _read(hints[name], stored[name], arrays, own, f"{place}.{name}") for name in stored})
        if hasattr(record, "check"):
            try:
                record.check()
            except ValueError as error:
                raise ValueError(f"{place}: {error}") from None
        return record
    return number(kind, stored, place)


def _tuple(kind: Any, stored: Any, arrays: Arrays, sizes: dict[str, int], place: str) -> Any:
    if not isinstance(stored, list):
        raise ValueError(f"{place} is not a list")
    # A subclass of tuple says what it holds by its base, as Certificate(tuple[Contradiction, ...]).
    base = kind if get_origin(kind) is tuple else next(b for b in kind.__orig_bases__ if get_origin(b) is tuple)
    inner = get_args(base)[0]
    items = [_read(inner, item, arrays, dict(sizes), f"{place}[{n}]") for n, item in enumerate(stored)]
    return tuple(items) if base is kind else kind(items)


def _array(declared: Stored, stored: Any, arrays: Arrays, sizes: dict[str, int], place: str) -> NDArray[Any]:
    if not isinstance(stored, str) or stored not in arrays:
        raise ValueError(f"{place}: its array is missing")
    array = arrays[stored]
    letters, dtype = declared.shape.split(), declared.dtype
    if array.ndim != len(letters):
        raise ValueError(f"{place} has shape {array.shape}, expected ({', '.join(letters)})")
    for letter, size in zip(letters, array.shape, strict=True):
        if sizes.setdefault(letter, size) != size:
            raise ValueError(f"{place} has shape {array.shape}, where {letter} is {sizes[letter]}")
    if issubclass(dtype, np.integer):
        if not ((array == np.floor(array)) & (array >= 0) & (array <= _LARGEST)).all():
            raise ValueError(f"{place} must hold whole numbers from 0 on")
    else:
        with np.errstate(over="ignore"):
            if dtype is np.floating:  # of either precision: single where it holds all that was stored
                dtype = np.float32 if (array.astype(np.float32) == array).all() else np.float64
            if not (np.abs(array) <= np.finfo(dtype).max).all():
                raise ValueError(f"{place} must hold finite numbers")
    # Kept: whoever else holds it holds the same one.
    arrays[stored] = array.astype(dtype, copy=False)
    return arrays[stored]


def _kind(stored: Any, arrays: Arrays, sizes: dict[str, int], place: str) -> Kind:
    parts = {"kind", "l2", "top_k", "frame", "rate"}
    if not isinstance(stored, dict) or set(stored) != parts or str(stored["kind"]) not in KINDS:
        raise ValueError(f"{place} is {stored!r}, not a known kind of decider")
    l2, top_k = number(float, stored["l2"], f"{place}.l2"), number(int, stored["top_k"], f"{place}.top_k")
    rate = number(float, stored["rate"], f"{place}.rate")
    if l2 <= 0 or top_k < 1 or not 0 < rate <= 1:
        raise ValueError(f"{place} has l2={l2}, top_k={top_k} and rate={rate}; all are above 0, the rate at most 1")
    frame = _read(Frame | None, stored["frame"], arrays, sizes, f"{place}.frame")
    return KINDS[stored["kind"]](l2=l2, top_k=top_k, frame=frame, rate=rate)


def _note(stored: Any, place: str) -> Note:
    parts = {"code", "severity", "text", "figures"}
    if isinstance(stored, dict) and set(stored) == parts and isinstance(stored["figures"], dict):
        note = Note.from_json(stored)
        listed = [value if isinstance(value, tuple) else (value,) for value in note.figures.values()]
        known = all(isinstance(each, str) or _finite(each) for each in itertools.chain(*listed))
        texts = isinstance(note.code, str) and isinstance(note.text, str) and note.severity in ("info", "warning")
        if known and texts:
            return note
    raise ValueError(f"{place} is not a note")


def number(kind: Any, stored: Any, place: str) -> Any:
    """A number, a truth value or text; raises ValueError, with the place, for anything else."""
    words, accepts = _SCALARS[kind]
    if not accepts(stored) or (kind is int and stored < 0):
        raise ValueError(f"{place} is {stored!r}, expected {words}")
    return kind(stored)


def _finite(value: Any) -> bool:
    # By comparison: a whole number may be too large to be made a float.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


#: what stands for a scalar in JSON, in words and as a check
_SCALARS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    float: ("a finite number", _finite),
    int: ("a whole number from 0 on", lambda value: type(value) is int and abs(value) <= _LARGEST),
    str: ("text", lambda value: isinstance(value, str)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    NoneType: ("null", lambda value: value is None),
}
