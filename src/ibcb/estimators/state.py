"""One way to store what a model knows: frozen dataclasses and named tuples as named arrays and JSON, and back.

What a field may hold is said by its annotation: numbers, text, ``None``, tuples, arrays, notes, kinds of deciders, and
other records of these. An array's annotation also says its shape, ``Annotated[NDArray[np.float64], "K d d"]``: the same
letter means the same size within a record, and d everywhere the number of features. Loading checks all of it, so that a
damaged file is refused when it is read, and not met later.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import KINDS, Kind
from ibcb.log.notes import Note

__all__ = ["Arrays", "pack", "unpack"]

Arrays = dict[str, NDArray[Any]]
T = TypeVar("T")


def pack(value: Any, name: str, arrays: Arrays) -> Any:
    """The value as JSON; its arrays go into ``arrays``, as float64, under names that begin with ``name``."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        arrays[name] = value.astype(np.float64)
        return name
    if isinstance(value, Note):
        return value.to_json()
    if isinstance(value, Kind):
        return {"kind": value.name, "l2": value.l2, "top_k": value.top_k}
    if _names(type(value)):
        return {key: pack(getattr(value, key), f"{name}.{key}", arrays) for key in _names(type(value))}
    if isinstance(value, (tuple, list)):
        return [pack(item, f"{name}.{place}", arrays) for place, item in enumerate(value)]
    raise TypeError(f"{name} is a {type(value).__name__}, which has no place in a model file.")


def unpack(kind: type[T], stored: Any, arrays: Arrays, d: int) -> T:
    """The value of which `pack` made this; raises ValueError, with the place, where it does not fit the annotation."""
    found: T = _read(kind, stored, arrays, {"d": d}, "state")
    return found


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
        base, shape = arguments
        return _array(base, shape, stored, arrays, sizes, place)
    if origin is tuple or (isinstance(kind, type) and issubclass(kind, tuple) and not _names(kind)):
        return _tuple(kind, stored, arrays, sizes, place)
    if kind is Kind:
        return _kind(stored, place)
    if kind is Note:
        return _note(stored, place)
    if _names(kind):
        if not isinstance(stored, dict) or set(stored) != set(_names(kind)):
            raise ValueError(f"{place} does not hold the parts of a {kind.__name__}")
        hints, own = get_type_hints(kind, include_extras=True), {"d": sizes["d"]}
        return kind(**{name: _read(hints[name], stored[name], arrays, own, f"{place}.{name}") for name in stored})
    return _number(kind, stored, place)


def _tuple(kind: Any, stored: Any, arrays: Arrays, sizes: dict[str, int], place: str) -> Any:
    if not isinstance(stored, list):
        raise ValueError(f"{place} is no list")
    # A subclass of tuple says what it holds by its base, as Certificate(tuple[Contradiction, ...]).
    base = kind if get_origin(kind) is tuple else next(b for b in kind.__orig_bases__ if get_origin(b) is tuple)
    inner = get_args(base)[0]
    items = [_read(inner, item, arrays, dict(sizes), f"{place}[{n}]") for n, item in enumerate(stored)]
    return tuple(items) if base is kind else kind(items)


def _array(base: Any, shape: str, stored: Any, arrays: Arrays, sizes: dict[str, int], place: str) -> NDArray[Any]:
    if not isinstance(stored, str) or stored not in arrays:
        raise ValueError(f"{place}: its array is missing")
    array = arrays[stored]
    letters = shape.split()
    if array.ndim != len(letters):
        raise ValueError(f"{place} has shape {array.shape}, expected ({', '.join(letters)})")
    for letter, size in zip(letters, array.shape, strict=True):
        if sizes.setdefault(letter, size) != size:
            raise ValueError(f"{place} has shape {array.shape}, where {letter} is {sizes[letter]}")
    dtype = get_args(get_args(base)[1])[0]
    whole = np.issubdtype(dtype, np.integer)
    if whole and not (array == np.floor(array)).all():
        raise ValueError(f"{place} must hold whole numbers")
    return array.astype(dtype)


def _kind(stored: Any, place: str) -> Kind:
    if not isinstance(stored, dict) or stored.get("kind") not in KINDS:
        raise ValueError(f"{place} is {stored!r}, no kind of decider that is known")
    l2, top_k = _number(float, stored["l2"], f"{place}.l2"), _number(int, stored["top_k"], f"{place}.top_k")
    if l2 <= 0 or top_k < 1:
        raise ValueError(f"{place} has l2={l2} and top_k={top_k}; both are above 0")
    return KINDS[stored["kind"]](l2=l2, top_k=top_k)


def _note(stored: Any, place: str) -> Note:
    try:
        note = Note.from_json(stored)
    except (TypeError, KeyError, AttributeError):
        raise ValueError(f"{place} is no note") from None
    if not all(isinstance(text, str) for text in (note.code, note.severity, note.text)):
        raise ValueError(f"{place} is no note")
    return note


def _number(kind: Any, stored: Any, place: str) -> Any:
    if kind is Any:
        return stored
    accepted = {float: (int, float), int: (int,), str: (str,), bool: (bool,)}[kind]
    if not isinstance(stored, accepted) or (kind is not bool and isinstance(stored, bool)):
        raise ValueError(f"{place} is {stored!r}, expected a {kind.__name__}")
    return kind(stored)
