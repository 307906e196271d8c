"""Reading what people pass for a log: arrays of the right kind, or an error that says what to do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ibcb.numerics.arrays import plain
from ibcb.numerics.checks import WrongTypeError, number_array, unmasked
from ibcb.numerics.contexts import Contexts, is_sparse, ordered, stacked
from ibcb.numerics.printable import printable, shown

__all__ = [
    "EpisodeArrays",
    "LogFormatError",
    "candidate_array",
    "checked",
    "distinct_names",
    "float_array",
    "first_steps",
    "frozen",
    "per_step",
    "plural",
    "read_episode",
    "rising_offsets",
    "shown",
    "sparse_array",
    "warmup_count",
    "whole_numbers",
]

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class LogFormatError(ValueError):
    """A log that is not one; the message names value, place, reason and remedy, on one line."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class EpisodeArrays(NamedTuple):
    """One episode's arrays on their way into a log."""

    contexts: Contexts
    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]


def read_episode(pair: Any, place: str, first: EpisodeArrays | None) -> EpisodeArrays:
    """One ``(contexts, chosen)`` pair, checked against the first one."""
    try:
        contexts, chosen = pair
    except (TypeError, ValueError):
        raise WrongTypeError(
            f"{place}: expected a pair (contexts, chosen), got {_describe(pair)}; from_episodes takes a list of such "
            "pairs. Rewards do not belong in a log."
        ) from None
    picks = whole_numbers(chosen, f"{place}: chosen")
    if isinstance(contexts, memoryview):
        contexts = np.asarray(contexts)
    if isinstance(contexts, np.ndarray) and contexts.dtype != object:
        rows, counts = _dense(contexts, place)
    elif is_sparse(contexts):
        rows, counts = _sparse(contexts, len(picks), place)
    else:
        rows, counts = _ragged(contexts, place)
    if len(counts) == 0:
        raise LogFormatError(f"{place} has no steps; leave it out or give it the steps it had.")
    if len(counts) != len(picks):
        raise LogFormatError(f"{place}: contexts has {len(counts)} steps but chosen has {len(picks)} entries.")
    if first is not None:
        _check_same("features", rows.shape[1], first.contexts.shape[1], place)
        _check_same("dtype", rows.dtype, first.contexts.dtype, place)
        _check_same("contexts", _stored(rows), _stored(first.contexts), place)
    return EpisodeArrays(rows, counts, picks)


def _dense(contexts: NDArray[Any], place: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if contexts.ndim != 3 or contexts.shape[2] == 0:
        raise LogFormatError(
            f"{place}: contexts has shape {contexts.shape}; expected (steps, candidates, features), "
            "or a list of (candidates, features) arrays where the number of candidates varies."
        )
    steps, candidates, d = contexts.shape
    rows = float_array(contexts, f"{place}: contexts").reshape(steps * candidates, d)
    return rows, np.full(steps, candidates, dtype=np.int64)


def _sparse(contexts: Any, steps: int, place: str) -> tuple[Contexts, NDArray[np.int64]]:
    """All candidates of an episode in one sparse matrix, those of a step together."""
    rows, d = contexts.shape
    if d == 0 or steps == 0 or rows == 0 or rows % steps:
        raise LogFormatError(
            f"{place}: contexts is a sparse matrix of shape {contexts.shape}, for {plural(steps, 'step')}; expected "
            "equally many rows for every step, or a list of sparse (candidates, features) matrices, one per step."
        )
    return sparse_array(contexts, f"{place}: contexts"), np.full(steps, rows // steps, dtype=np.int64)


def sparse_array(contexts: Any, what: str) -> Contexts:
    """Any sparse matrix in rows of float32 or float64; whole numbers and booleans become float64."""
    if contexts.ndim != 2:
        raise LogFormatError(f"{what} is sparse and has shape {contexts.shape}; expected (rows, features).")
    if contexts.dtype.kind in "iub":
        contexts = contexts.astype(np.float64)
    if contexts.dtype.newbyteorder("=") not in _FLOATS:
        raise WrongTypeError(f"{what} has dtype {contexts.dtype}; use float32 or float64.")
    return ordered(contexts)


def _ragged(contexts: Any, place: str) -> tuple[Contexts, NDArray[np.int64]]:
    try:
        steps = list(contexts)
    except TypeError:
        raise WrongTypeError(
            f"{place}: contexts is {type(contexts).__name__}; expected an array (steps, candidates, features) "
            "or a list of (candidates, features) arrays."
        ) from None
    rows: list[Contexts] = []
    for step, candidates in enumerate(steps):
        read = sparse_array if is_sparse(candidates) else float_array
        array = read(candidates, f"{place}, step {step}: contexts")
        if array.ndim != 2 or array.shape[1] == 0:
            raise LogFormatError(
                f"{place}, step {step}: contexts has shape {array.shape}; expected (candidates, features)."
            )
        if rows:
            _check_same("features", array.shape[1], rows[0].shape[1], f"{place}, step {step}", "the step before it")
            _check_same("dtype", array.dtype, rows[0].dtype, f"{place}, step {step}", "the step before it")
            _check_same("contexts", _stored(array), _stored(rows[0]), f"{place}, step {step}", "the step before it")
        rows.append(array)
    counts = np.array([array.shape[0] for array in rows], dtype=np.int64)
    return (stacked(rows) if rows else np.empty((0, 1))), counts


def _stored(contexts: Contexts) -> str:
    return "sparse" if is_sparse(contexts) else "dense"


def _check_same(what: str, found: Any, expected: Any, place: str, other: str = "the first episode") -> None:
    if found != expected:
        remedy = {
            "dtype": "convert them with astype to one of the two",
            "contexts": "convert them with scipy.sparse.csr_array or toarray to one of the two",
        }.get(what, "every step needs the same features")
        raise LogFormatError(f"{place}: {what} is {found} but {other} has {expected}; {remedy}.")


def float_array(values: Any, what: str) -> NDArray[Any]:
    """An array of float32 or float64; whole numbers and booleans become float64."""
    rule = "use float32 or float64, the same features for every candidate"
    array = checked(number_array, values, what, rule)
    if array.dtype.newbyteorder("=") in _FLOATS:
        return plain(array)
    if array.dtype.kind in "iub":
        return array.astype(np.float64, order="C")
    raise WrongTypeError(f"{what} has dtype {array.dtype}; {rule}.")


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
        if array.dtype == np.uint64 and len(array) and int(array.max()) > np.iinfo(np.int64).max:
            raise LogFormatError(f"{what}[{int(array.argmax())}] is {array.max()}; it must be {meaning}.")
        return plain(array.astype(np.int64, copy=False))
    if array.dtype.kind == "f":
        bad = ~(np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) < 2.0**53))
        if bad.any():
            place = int(np.argmax(bad))
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
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if len(falls):
        place = int(falls[0])
        raise LogFormatError(f"{rule}; {what}[{place + 1}] is {offsets[place + 1]}, below {offsets[place]} before it.")
    return offsets


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
    falls = np.flatnonzero(np.diff(edges) <= 0)
    if len(falls):
        place = int(falls[0]) + 1
        raise LogFormatError(f"edges[{place}] is {edges[place]}, after {edges[place - 1]}; edges must rise: {remedy}.")
    if total is not None and edges[-1] >= total:
        place = int(np.argmax(edges >= total))
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
    found: NDArray[Any] = frozen(_storable_times(array, what) if array.dtype.kind == "M" else array)
    return found


def _storable_times(times: NDArray[Any], what: str) -> NDArray[Any]:
    """The same times in a unit that files know: whole minutes, hours, weeks, months and years in seconds."""
    unit = np.datetime_data(times.dtype)[0]
    if unit in ("ps", "fs", "as"):
        raise LogFormatError(f"{what} has dtype {times.dtype}; give times in nanoseconds: astype('datetime64[ns]').")
    return times.astype("datetime64[s]") if unit in ("Y", "M", "W", "h", "m") else times


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
        matrix = sparse_array(candidates, "candidates")
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
    bad = ~np.isfinite(array)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"candidates{list(place)} is {array[place]}; features must be finite.")
    return array


def plural(count: int, noun: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _describe(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, (tuple, list)) else type(value).__name__
