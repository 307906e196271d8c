"""Checks of parameters: the value itself, or an error that names value, reason and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "at_least_zero",
    "boolean",
    "finite",
    "generator",
    "gram_matrix",
    "one_of",
    "positive",
    "probability",
    "whole",
]


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
    found = at_least_zero(name, value, why)
    if found > 1:
        raise ValueError(f"{name}={value!r} must be at most 1: {why}.")
    return found


def _number(name: str, value: Any, least: float, rule: str, why: str) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name}={value!r} must be a number.")
    if not (np.isfinite(value) and value >= least):
        raise ValueError(f"{name}={value!r} must be {rule}{why}.")
    return float(value)


def whole(name: str, value: Any, least: int, why: str) -> int:
    """The value as an int that is at least ``least``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={value!r} must be a whole number: {why}.")
    if value < least:
        raise ValueError(f"{name}={value!r} must be at least {least}: {why}.")
    return int(value)


def boolean(name: str, value: Any) -> bool:
    """The value as a bool; text such as "no" would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}={value!r} must be True or False.")
    return bool(value)


def one_of(name: str, value: Any, known: Sequence[str]) -> str:
    """The value, one of the known names."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, known))}.")
    return value


def gram_matrix(name: str, value: ArrayLike, d: int) -> NDArray[np.float64]:
    """The value as S'S of some contexts of d features: finite, symmetric, no negative eigenvalue; shape (d, d)."""
    try:
        phi = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r} is not a matrix; it must be S'S, numbers of shape ({d}, {d}).") from None
    if phi.shape != (d, d):
        raise ValueError(f"{name} has shape {phi.shape}; S'S of contexts of {d} features has ({d}, {d}).")
    if not np.isfinite(phi).all() or not np.allclose(phi, phi.T, rtol=1e-6, atol=1e-9 * np.abs(phi).max(initial=0)):
        raise ValueError(f"{name} must be finite and symmetric: S'S of the contexts chosen before.")
    if np.linalg.eigvalsh(phi)[0] < -1e-6 * np.abs(phi).max(initial=0):
        raise ValueError(f"{name} has a negative eigenvalue; S'S of the contexts chosen before has none.")
    return phi


def generator(random_state: Any) -> np.random.Generator:
    """A fresh generator: the same bits for the same whole number, other bits every time for None."""
    seed = None if random_state is None else whole("random_state", random_state, 0, "it seeds the random numbers")
    # A fifth faster at normal numbers than the default generator, and they are what a sweep waits for.
    return np.random.Generator(np.random.SFC64(seed))
