"""Reading what people pass for a log: arrays of the right kind, or an error that says what to do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ibcb.numerics.arrays import plain
from ibcb.numerics.checks import number_array, unmasked
from ibcb.numerics.contexts import Contexts, is_sparse, ordered
from ibcb.numerics.printable import WrongTypeError, printable, shown

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class LogFormatError(ValueError):
    """A log that is not one; the message names value, place, reason and remedy, on one line."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def float_array(values: Any, what: str) -> NDArray[Any]:
    """An array of float32 or float64; whole numbers and booleans become float64."""
    rule = "use float32 or float64, the same features for every candidate"
    array = checked(number_array, values, what, rule)
    if array.dtype.newbyteorder("=") in _FLOATS:
        return plain(array)
    if array.dtype.kind in "iub":
        return array.astype(np.float64, order="C")
    raise WrongTypeError(f"{what} has dtype {array.dtype}; {rule}.")


def context_array(values: Any, what: str) -> Contexts:
    """The same, of contexts: they may be sparse, and then are rows with their columns in order."""
    if not is_sparse(values):
        return float_array(values, what)
    if values.ndim != 2:
        raise LogFormatError(f"{what} is sparse and has shape {values.shape}; expected (rows, features).")
    if values.dtype.kind in "iub":
        values = values.astype(np.float64)
    if values.dtype.newbyteorder("=") not in _FLOATS:
        raise WrongTypeError(f"{what} has dtype {values.dtype}; use float32 or float64.")
    return ordered(values)


def checked(read: Callable[[Any, str, str], NDArray[Any]], values: Any, what: str, rule: str) -> NDArray[Any]:
    """What a check of `ibcb.numerics.checks` makes of values; ``rule`` says what is expected."""
    try:
        return read(values, what, rule)
    except ValueError as error:
        raise LogFormatError(str(error)) from None


def whole_numbers(values: Any, what: str, meaning: str = "the position of the chosen candidate") -> NDArray[np.int64]:
    """A vector of int64; floats only where every one of them is whole."""
    rule = f"use whole numbers, each {meaning}"
    array = checked(unmasked, values, what, rule)
    if array.ndim != 1:
        raise LogFormatError(
            f"{what} has shape {array.shape}; expected whole numbers: one whole number per step, {meaning}."
        )
    if array.dtype.kind == "O":
        array = checked(number_array, array, what, rule)
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and (place := first_true(array > np.iinfo(np.int64).max)) is not None:
            raise LogFormatError(f"{what}[{place}] is {array[place]}; it must be {meaning}.")
        return plain(array.astype(np.int64, copy=False))
    if array.dtype.kind == "f":
        bad = ~(np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) < 2.0**53))
        if (place := first_true(bad)) is not None:
            raise LogFormatError(f"{what} of step {place} is {array[place]}; it must be a whole number, {meaning}.")
        return array.astype(np.int64)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    raise WrongTypeError(f"{what} has dtype {array.dtype}; {rule}.")


def rising_offsets(values: Any, total: int, what: str, unit: str) -> NDArray[np.int64]:
    """Offsets that rise from 0 to ``total``."""
    offsets = whole_numbers(values, what, f"a position among the {unit}")
    if len(offsets) == 0:
        return offsets
    rule = f"{what} must rise from 0 to the number of {unit}, {total}"
    if offsets[0] != 0 or offsets[-1] != total:
        raise LogFormatError(f"{rule}; it runs from {offsets[0]} to {offsets[-1]}.")
    if (place := first_true(np.diff(offsets) < 0)) is not None:
        raise LogFormatError(f"{rule}; {what}[{place + 1}] is {offsets[place + 1]}, below {offsets[place]} before it.")
    return offsets


def offsets_of(counts: ArrayLike) -> NDArray[np.int64]:
    """Where each of some runs of so many begins, and the end."""
    offsets: NDArray[np.int64] = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return offsets


def runs(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Offsets of the runs of equal labels."""
    edges: NDArray[np.int64] = np.concatenate([[0], np.flatnonzero(labels[1:] != labels[:-1]) + 1, [len(labels)]])
    return edges


def first_true(marks: Any) -> int | None:
    """Where the first of some marks stands; None where there is none."""
    return int(np.argmax(marks)) if marks.any() else None


def joined_arrays(arrays: Iterable[NDArray[Any] | None]) -> Any:
    """Consecutive arrays as one, without a copy of a single one; None where there are none."""
    known = [array for array in arrays if array is not None]
    return np.concatenate(known) if len(known) > 1 else next(iter(known), None)


def first_steps(values: Any, total: int | None = None) -> NDArray[np.int64]:
    """Edges of episodes: the first step of each, rising from 0 to below ``total``, where that is known."""
    remedy = "give the first step of every episode, counted after the warm-up: [0, 400, 800]"
    if np.ndim(values) != 1:
        raise LogFormatError(f"edges is {shown(values)}; {remedy}.")
    edges = whole_numbers(values, "edges", "the first step of an episode, counted after the warm-up")
    if len(edges) == 0:
        raise LogFormatError(f"edges is empty; {remedy}, or [0] for a single episode.")
    if edges[0] != 0:
        raise LogFormatError(f"edges begins with {edges[0]}; the first episode begins with step 0: {remedy}.")
    if (place := first_true(np.diff(edges) <= 0)) is not None:
        before, here = edges[place : place + 2]
        raise LogFormatError(f"edges[{place + 1}] is {here}, after {before}; edges must rise: {remedy}.")
    if total is not None and (place := first_true(edges >= total)) is not None:
        raise LogFormatError(
            f"edges[{place}] is {edges[place]}, but after the warm-up the log has {plural(total, 'step')}, 0 to "
            f"{total - 1}; leave it out."
        )
    return edges


def warmup_count(value: Any, episodes: int) -> int:
    """The number of warm-up episodes, less than all of them."""
    try:
        warmup = operator.index(value)
    except TypeError:
        raise WrongTypeError(
            f"warmup is {value!r}; it is the number of leading random episodes, a whole number."
        ) from None
    if not 0 <= warmup < max(episodes, 1):
        raise LogFormatError(
            f"warmup is {warmup} but the log has {plural(episodes, 'episode')}; at least one must have been chosen "
            "by the policy."
        )
    return warmup


def distinct_names(names: Sequence[str] | None, d: int) -> tuple[str, ...] | None:
    """d feature names, no two alike."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise WrongTypeError(f"feature_names is {names!r}; it must be a list of {d} names.")
    result = tuple(str(name) for name in names)
    if len(result) != d:
        raise LogFormatError(f"feature_names has {len(result)} names but the contexts have {d} features.")
    if len(set(result)) != d:
        twice = next(name for name in result if result.count(name) > 1)
        raise LogFormatError(f"feature_names has {twice!r} twice; names must differ.")
    return result


def per_step(values: ArrayLike | None, steps: int, what: str, unit: str = "step") -> NDArray[Any] | None:
    """One entry per step, or per row, read-only."""
    if values is None:
        return None
    array = checked(unmasked, values, what, f"give one entry per {unit}")
    if array.shape != (steps,):
        raise LogFormatError(f"{what} has shape {array.shape}; expected one entry per {unit}, ({steps},).")
    unit = np.datetime_data(array.dtype)[0] if array.dtype.kind == "M" else ""
    if unit in ("ps", "fs", "as"):
        raise LogFormatError(f"{what} has dtype {array.dtype}; give times in nanoseconds: astype('datetime64[ns]').")
    # Files know whole minutes, hours, weeks, months and years as seconds.
    entries: NDArray[Any] = frozen(array.astype("datetime64[s]") if unit in ("Y", "M", "W", "h", "m") else array)
    return entries


def frozen(array: Any) -> Any:
    """A read-only view: slices share memory, so nobody may write through one."""
    if is_sparse(array):
        parts = (frozen(array.data), frozen(array.indices), frozen(array.indptr))
        return sparse.csr_array(parts, shape=array.shape)
    view = array.view()
    view.flags.writeable = False
    return view


def candidate_array(candidates: Any) -> Contexts:
    """Candidate sets without choices: finite floats of shape (M, d) or (steps, M, d), or sparse ones of (M, d)."""
    if is_sparse(candidates):
        matrix = context_array(candidates, "candidates")
        if not np.isfinite(matrix.data).all():
            raise ValueError("candidates has a number that is not finite; features must be.")
        return matrix
    array = unmasked(
        candidates, "candidates", "give every step a set of its own: a list of arrays (candidates, features)"
    )
    if array.dtype.kind not in "fiubO" or array.ndim not in (2, 3) or 0 in array.shape:
        raise WrongTypeError(
            "expected a BehaviorLog, or numbers of shape (candidates, features) or (steps, candidates, features); got "
            f"{type(candidates).__name__} with shape {array.shape} and dtype {array.dtype}."
        )
    array = float_array(array, "candidates")
    for place in np.argwhere(~np.isfinite(array))[:1].tolist():
        raise ValueError(f"candidates{place} is {array[tuple(place)]}; features must be finite.")
    return array


def plural(count: int, noun: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def step_place(episode: int, first: int, step: int) -> str:
    """The name of a step, for messages, counted from the ``first`` one of a part of an episode."""
    return f"episode {episode}{' (warm-up)' if episode < 0 else ''}, step {first + step}"
