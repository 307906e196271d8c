"""Checks of parameters and arrays: the value itself, or an error that names value, reason and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.numerics.printable import WrongTypeError, shown

_NUMBERS = "give real numbers, float32 or float64"

_LARGEST_WHOLE = 2**63 - 1
#: of sums of squares of features, the largest of which is 1e140
_LARGEST_SQUARE = 1e300


def finite(name: str, value: Any) -> float:
    """The value as a finite float."""
    return _number(name, value, -np.inf, "finite", "")


def positive(name: str, value: Any, why: str) -> float:
    """The value as a finite float above 0."""
    return _number(name, value, np.nextafter(0.0, 1.0), "finite and above 0", f": {why}")


def at_least_zero(name: str, value: Any, why: str) -> float:
    """The value as a finite float that is 0 or above."""
    return _number(name, value, 0.0, "finite and at least 0", f": {why}")


def probability(name: str, value: Any, why: str) -> float:
    """The value as a float between 0 and 1."""
    share = at_least_zero(name, value, why)
    if share > 1:
        raise ValueError(f"{name}={shown(value)} must be at most 1: {why}.")
    return share


def _number(name: str, value: Any, least: float, rule: str, why: str) -> float:
    if isinstance(value, (bool, np.bool_, np.complexfloating)) or not isinstance(value, (int, float, np.number)):
        raise WrongTypeError(f"{name}={shown(value)} must be a number.")
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    if not (np.isfinite(number) and number >= least):
        raise ValueError(f"{name}={shown(value)} must be {rule}{why}.")
    return number


def whole(name: str, value: Any, least: int, why: str, *, most: int | None = _LARGEST_WHOLE) -> int:
    """The value as an int that is at least ``least``, and at most ``most``; None: however large."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise WrongTypeError(f"{name}={shown(value)} must be a whole number: {why}.")
    if value < least:
        raise ValueError(f"{name}={shown(value)} must be at least {least}: {why}.")
    if most is not None and value > most:
        raise ValueError(f"{name}={shown(value)} must be at most {most}: {why}.")
    return int(value)


def boolean(name: str, value: Any) -> bool:
    """The value as a bool; text such as "no" would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise WrongTypeError(f"{name}={shown(value)} must be True or False.")
    return bool(value)


def one_of(name: str, value: Any, known: Sequence[str]) -> str:
    """The value, one of the known names."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={shown(value)} is unknown; choose one of {', '.join(map(repr, known))}.")
    return value


def unmasked(values: Any, what: str, rule: str = _NUMBERS) -> NDArray[Any]:
    """Any array-like as an array; ValueError for what is masked, since the mask would be lost, or not rectangular.

    ``rule`` says in messages what is expected; so it does below.
    """
    mask = _mask(values)
    if mask is not None:
        raise ValueError(f"{what}{mask} is masked; impute it or leave it out, then give the array without its mask.")
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"{what} is not rectangular: its rows differ in length; {rule}.") from None


def _mask(values: Any) -> str | None:
    """Where something is masked, as an index; None where nothing is. Lists may hold masked arrays."""
    if isinstance(values, np.ma.MaskedArray):
        places = np.argwhere(np.ma.getmaskarray(values))
        return None if not len(places) else str(places[0].tolist()) if values.ndim else ""
    if isinstance(values, (list, tuple)) and values and not isinstance(values[0], (int, float, str)):
        for place, value in enumerate(values):
            inner = _mask(value)
            if inner is not None:
                return f"[{place}, {inner[1:]}" if inner else f"[{place}]"
    return None


def number_array(values: Any, what: str, rule: str = _NUMBERS) -> NDArray[Any]:
    """Any array-like of real numbers as an array of floats, whole numbers or booleans; objects become float64.

    Raises ValueError for what is masked, missing or not rectangular, and TypeError for what is no real number.
    """
    array = unmasked(values, what, rule)
    if array.dtype.kind in "fiub":
        return array
    if array.dtype.kind != "O":
        raise WrongTypeError(f"{what if array.ndim else f'{what}={values!r}'} has dtype {array.dtype}; {rule}.")
    # Python's numbers, and those of pandas' nullable columns.
    numbers = np.empty(array.shape)
    for place, value in np.ndenumerate(array):
        where = f"{what}{list(place) or ''}"
        # pandas.NA and NaT are of types that only pandas has.
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            raise ValueError(f"{where} is missing ({value}); impute it or leave it out.")
        if not isinstance(value, Real):
            raise WrongTypeError(f"{where} is {type(value).__name__}, the dtype object; {rule}.")
        try:
            numbers[place] = value
        except OverflowError:
            raise ValueError(f"{where} is beyond the range of floating point. Rescale it to about 1.") from None
    return numbers


def finite_array(values: Any, what: str, rule: str = "give finite real numbers") -> NDArray[np.float64]:
    """Any array-like of finite real numbers as float64."""
    array = number_array(values, what, rule).astype(np.float64, copy=False)
    bad = ~np.isfinite(array)
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        raise ValueError(f"{what}{list(place) or ''} is {array[place]}; {rule}.")
    return array


def gram_matrix(name: str, value: ArrayLike, d: int) -> NDArray[np.float64]:
    """The value as S'S of some contexts of d features: finite, symmetric, no negative eigenvalue; shape (d, d)."""
    rule = f"it must be S'S, numbers of shape ({d}, {d})"
    phi = number_array(value, name, rule).astype(np.float64, copy=False)
    if phi.shape != (d, d):
        raise ValueError(f"{name} has shape {phi.shape}; S'S of contexts of {d} features has ({d}, {d}).")
    if not np.isfinite(phi).all() or not np.allclose(phi, phi.T, rtol=1e-6, atol=1e-9 * np.abs(phi).max(initial=0)):
        raise ValueError(f"{name} must be finite and symmetric: S'S of the contexts chosen before.")
    if np.abs(phi).max(initial=0) > _LARGEST_SQUARE:
        raise ValueError(f"{name} has numbers beyond {_LARGEST_SQUARE:g}, whose sums overflow. Rescale the contexts.")
    if np.linalg.eigvalsh(phi)[0] < -1e-6 * np.abs(phi).max(initial=0):
        raise ValueError(f"{name} has a negative eigenvalue; S'S of the contexts chosen before has none.")
    return phi


def generator(random_state: Any) -> np.random.Generator:
    """A fresh generator: the same bits for the same whole number, other bits every time for None."""
    why = "it seeds the random numbers"
    seed = None if random_state is None else whole("random_state", random_state, 0, why, most=None)
    # A fifth faster at normal numbers than the default generator, and they are what a sweep waits for.
    return np.random.Generator(np.random.SFC64(seed))
