"""One way to store what a model knows: frozen dataclasses and named tuples as named arrays and JSON, and back.

What a field may hold is said by its annotation: numbers, text, ``None``, tuples, arrays, notes, kinds of deciders, and
other records of these. An array's annotation also says its shape, ``Annotated[NDArray[np.float64], "K d d"]``: the same
letter means the same size within a record, and d everywhere the number of features. Numbers are finite, and whole ones
count something. Loading checks all of it, parameters as ``__init__`` annotates them included, and that the parts of a
fit belong together, so that a damaged file is refused when it is read, and not met later.
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

from ibcb.deciders import KINDS, RANDOM_SHARES, Kind, experts
from ibcb.estimators.fitting import Fit
from ibcb.inverse.solvers import SOLVERS
from ibcb.log.arrays import shown
from ibcb.log.notes import Note
from ibcb.numerics.checks import gram_matrix
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Chosen, Frame
from ibcb.tracking import Track
from ibcb.tracking.contenders import Tracks
from ibcb.tracking.context_sample import ContextSample
from ibcb.tracking.rewards import RewardFit
from ibcb.tracking.selection import Candidate

__all__ = ["Arrays", "number", "pack", "parameters", "unpack"]

Arrays = dict[str, NDArray[Any]]
T = TypeVar("T")

#: whole numbers beyond this are not exact as float64, in which arrays are stored
_LARGEST = 2**53
#: squares of numbers up to this can be weighed and summed
_SQUARED = 1e150
#: sums of single precision, which are taken in another order, agree within
_ROUNDED = 1.001


def pack(value: Any, name: str, arrays: Arrays) -> Any:
    """The value as JSON; its arrays go into ``arrays``, as float64, under names that begin with ``name``.

    An array that several records hold is stored once.
    """
    return _pack(value, name, arrays, {})


def _pack(value: Any, name: str, arrays: Arrays, known: dict[int, str]) -> Any:
    """``known``: names of arrays by identity."""
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
        frame = _pack(value.frame, f"{name}.frame", arrays, known)
        name = next(name for name, kind in KINDS.items() if type(value) is kind)
        return {"kind": name, "l2": value.l2, "top_k": value.top_k, "frame": frame, "rate": value.rate}
    if _names(type(value)):
        return {key: _pack(getattr(value, key), f"{name}.{key}", arrays, known) for key in _names(type(value))}
    if isinstance(value, (tuple, list)):
        return [_pack(item, f"{name}.{place}", arrays, known) for place, item in enumerate(value)]
    raise TypeError(f"{name} is a {type(value).__name__}, which has no place in a model file.")


def unpack(kind: type[T], stored: Any, arrays: Arrays, d: int) -> T:
    """The value of which `pack` made this; raises ValueError, with the place, where it does not fit the annotation."""
    found: T = _read(kind, stored, dict(arrays), {"d": d}, "state")
    return found


def parameters(kind: type[Any], stored: Any, arrays: Arrays) -> dict[str, Any]:
    """Parameters of an estimator of this class, as its ``__init__`` annotates them; its arrays are numbers."""
    if not isinstance(stored, dict):
        raise ValueError("the parameters are not a mapping")
    hints = get_type_hints(kind.__init__)
    for name, value in (stored | arrays).items():
        allowed = get_args(hints[name]) or (hints[name],)
        scalars = [each for each in allowed if each in _SCALARS]
        fits = any(_SCALARS[each][1](value) for each in scalars)
        if not fits and (name not in arrays or len(scalars) == len(allowed)):
            raise ValueError(f"parameter {name} is {shown(value)}, which it cannot be")
    return stored | arrays


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
        return _kind(stored, arrays, sizes, place)
    if kind is Note:
        return _note(stored, place)
    if _names(kind):
        if not isinstance(stored, dict) or set(stored) != set(_names(kind)):
            raise ValueError(f"{place} does not hold the parts of a {kind.__name__}")
        hints, own = get_type_hints(kind, include_extras=True), {"d": sizes["d"]}
        record = kind(**{name: _read(hints[name], stored[name], arrays, own, f"{place}.{name}") for name in stored})
        _check(record, place)
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
    if np.issubdtype(dtype, np.integer):
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
    try:
        note = Note.from_json(stored)
    except (TypeError, KeyError, AttributeError):
        raise ValueError(f"{place} is not a note") from None
    listed = [value if isinstance(value, tuple) else (value,) for value in note.figures.values()]
    known = all(isinstance(each, str) or _finite(each) for each in itertools.chain(*listed))
    texts = isinstance(note.code, str) and isinstance(note.text, str) and note.severity in ("info", "warning")
    if not known or not texts:
        raise ValueError(f"{place} is not a note")
    return note


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


# -- what types and shapes do not say --------------------------------------------------------------------------------


def _check(record: Any, place: str) -> None:
    """Raise ValueError where the parts of a record do not belong together."""
    wrong = ""
    if isinstance(record, ContextSample):
        if record.counts.sum() != len(record.contexts) or not record.counts.all():
            wrong = "its counts do not add up to its contexts"
    elif isinstance(record, Frame):
        squares = np.where(record.scale > 0, record.scale, 0.0) ** 2
        wrong = "" if ((squares > 0) & (squares < np.inf)).all() else "its scales are not above 0, or their squares"
    elif isinstance(record, RewardFit):
        least = min(float(record.normal.diagonal().min(initial=0.0)), record.squares)
        wrong = "" if least >= 0 else "its sums of squares are negative"
        gram_matrix(f"{place}.phi", record.phi, len(record.moment))
        if max(np.abs(record.moment).max(), np.abs(record.total).max()) > _SQUARED:
            wrong = f"its sums are beyond {_SQUARED:g}"
    elif isinstance(record, Chosen):
        # Sums of the same contexts, by Cauchy and Schwarz.
        most = np.sqrt(record.count) * np.sqrt(np.maximum(record.phi.diagonal(), 0))
        if record.total is not None and (np.abs(record.total) > _ROUNDED * most).any():
            wrong = "its total is larger than its Gram matrix allows"
    elif isinstance(record, Metric):
        wrong = "" if (record.matrix.diagonal() > 0).all() else "its diagonal is not above 0"
    elif isinstance(record, Candidate):
        wrong = "" if record.expert in experts() else f"{record.expert!r} is not a known kind of decider"
    elif isinstance(record, Track):
        wrong = _mismatch(record)
    elif isinstance(record, Tracks):
        wrong = _unlike(record)
    elif isinstance(record, Fit):
        wrong = _inconsistent(record)
    if wrong:
        raise ValueError(f"{place}: {wrong}")


def _inconsistent(fit: Fit) -> str:
    """Why the parts of a fit cannot be of one and the same, or nothing."""
    evolution, kind = fit.evolution, fit.kind
    gram_matrix("gram", evolution.chosen.phi, len(evolution.theta))
    # Raises where what was chosen cannot be weighed against l2.
    evolution.ridge()
    if evolution.regularization != kind.regularization:
        return f"its evolution has another l2, or other units of it, than {kind.label}"
    if (evolution.margin is None) != kind.adds_bonus or not (evolution.margin is None or evolution.margin > 0):
        return f"its margin is {evolution.margin}, which is none of {kind.name}"
    if len(evolution.policies) != len(evolution.diagnostics):
        return f"there are {len(evolution.policies)} policies but {len(evolution.diagnostics)} diagnostics"
    if fit.scale <= 0 or fit.solver not in SOLVERS:
        return f"its scale is {fit.scale} and its solver {fit.solver!r}"
    if fit.track is not None and fit.track.kind != kind:
        return f"its track is that of {fit.track.kind.label}, not of {kind.label}"
    return ""


def _unlike(held: Tracks) -> str:
    """Why tracks cannot be those of their kinds, or nothing."""
    count = len(held.kinds)
    parts = (held.tracks, held.failures, held.changes, held.out)
    if not count or {len(each) for each in parts} != {count} or not held.running:
        return f"{count} kinds do not go with {len(held.tracks)} tracks"
    if any(len(each.hits) != count for each in held.judged):
        return f"its judgements are not of {count} kinds"
    for kind, track in zip(held.kinds, held.tracks, strict=True):
        if track is not None and track.kind != kind:
            return f"the track of {kind.label} is that of {track.kind.label}"
        if track is not None and (track.stored, len(track.policies)) != (held.stored, held.episodes):
            return f"the track of {kind.label} has seen {track.stored} of {held.stored} episodes"
    return ""


def _mismatch(track: Track) -> str:
    """Why a track cannot be one of its kind, or nothing."""
    d, episodes = track.d, len(track.policies)
    gram_matrix("the track's gram", track.chosen.phi, d)
    # Raises where what was chosen cannot be weighed against l2.
    track.kind.regularization.ridge(track.chosen)
    if {len(track.predicted), len(track.ahead)} != {episodes} or (track.now is None) != (episodes == 0):
        return f"{episodes} policies do not go with {len(track.predicted)} predictions"
    if track.now is None:
        return ""
    now, alpha = track.now, int(track.kind.scales.alpha > 0)
    known = [{*family.models, *family.few} for family in track.kind.motions.families]
    if len(now.models) != len(known) or not all(own and known[n].issuperset(own) for n, own in enumerate(now.models)):
        return f"its models are not those of {track.kind.name}"
    early = [family.early in own for family, own in zip(track.kind.motions.families, now.models, strict=True)]
    if episodes < 2 and not all(early):
        return f"its models are not those that {track.kind.name} begins with"
    models = [len(motion.names) for motion in track.motions]
    sizes = [d + alpha + motion.beside(d) for motion in track.motions]
    if [each.mean.shape for each in now.families] != list(zip(models, sizes, strict=True)):
        return f"its beliefs are not those of the motions of {track.kind.name}"
    if [each.mean.shape for each in now.last] != [(K, d + alpha) for K in models]:
        return f"its beliefs of the last policy are not those of {track.kind.name}"
    if {len(now.evidence), len(now.whole_evidence)} != {len(track.names)} or now.best >= len(track.names):
        return f"its evidence is not of the {len(track.names)} models of {track.kind.name}"
    if len(now.random_share) != len(RANDOM_SHARES):
        return f"its evidence of random choices is not of {len(RANDOM_SHARES)} shares"
    if not len(now.sample.counts):
        return "it has no candidate sets"
    gram_matrix("the track's unit", now.unit, d)
    gram_matrix("the track's within", now.within, d)
    if (now.information.diagonal() < 0).any():
        return "its information is negative"
    if (now.rewards is not None) != track.kind.learns:
        return f"a decider of the kind {track.kind.name} {'has' if track.kind.learns else 'has no'} rewards"
    if now.rewards is not None and len(now.rewards.right) != d + 1:
        return f"its rewards have {len(now.rewards.right)} unknowns, expected {d + 1}"
    if alpha and not all((each.covariance[:, d, d] > 0).all() for each in (*now.last, *now.families)):
        return "a variance of alpha is not above 0"
    return ""
