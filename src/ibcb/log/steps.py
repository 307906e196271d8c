"""Steps on their way into a log: batches of whole steps from any format, before they are cut into episodes.

A `Source` is a place to read steps from, again and again, a bounded number at a time. `ReadOptions` holds what a user
may say about how to read it. `numbered` cuts the steps into episodes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcb.log.arrays import LogFormatError, first_steps, joined_arrays, shown
from ibcb.log.memory import memory_budget
from ibcb.log.notes import Note
from ibcb.log.recipe import Preparation
from ibcb.numerics.checks import WrongTypeError, whole
from ibcb.numerics.contexts import Contexts, is_sparse, stacked

__all__ = ["ROLES", "ReadOptions", "Source", "Steps", "numbered", "seconds_since_1970", "window_seconds"]

#: what a column can be, and names that are recognised, the likelier first; in lower case with _ for - and space
ROLES: dict[str, tuple[str, ...]] = {
    "episode": ("episode", "episode_id", "batch", "batch_id", "policy_version", "model_version"),
    "step": ("step", "step_id", "request_id", "decision_id", "impression_id", "event_id", "round"),
    "chosen": ("chosen", "is_chosen", "selected", "is_selected", "picked", "action_taken", "choice"),
    "timestamp": ("timestamp", "time", "ts", "datetime", "event_time", "logged_at"),
    "step_id": ("step_id", "request_id", "decision_id", "impression_id", "event_id"),
    "propensity": (
        *("propensity", "propensity_score", "pscore", "probability", "prob"),
        *("propensities", "propensity_scores", "pscores", "probabilities"),
    ),
    "candidate": ("candidate", "candidate_id", "item", "item_id", "arm", "arm_id", "action", "action_id"),
}
#: options that a `Preparation` keeps in its own way, or that are of no use to another log
_OF_FEATURES = frozenset(
    [
        *("columns", "features", "drop", "keep", "one_hot", "min_count", "cross", "missing", "standardize"),
        *("arm", "available", "arm_features", "choices", "preparation", "max_memory"),
    ]
)
_LARGEST = int(np.iinfo(np.int64).max)
#: the year 5138: numbers beyond it are no seconds since 1970 but milliseconds or less
_FAR = 10**11


class Steps(NamedTuple):
    """Some consecutive steps, whole, in the order of the log.

    ``contexts`` (rows, d), dense or sparse, has the candidates of all of them, ``counts`` says how many each has,
    ``chosen`` the position of the chosen one. ``episode`` is a label per step of whatever kind the log has,
    ``step_ids`` and ``timestamps`` likewise; ``candidate_ids`` has a name per row, ``propensities`` what was logged of
    each row, NaN where nothing was. None where the log has none.
    """

    contexts: Contexts
    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]
    episode: NDArray[Any] | None = None
    step_ids: NDArray[Any] | None = None
    timestamps: NDArray[Any] | None = None
    candidate_ids: NDArray[Any] | None = None
    propensities: NDArray[np.float64] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the arrays take."""
        X = self.contexts
        arrays = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
        return sum(int(array.nbytes) for array in (*arrays, *self[1:]) if array is not None)

    @classmethod
    def joined(cls, batches: Sequence[Steps]) -> Steps:
        """Consecutive ones as one."""
        contexts, *others = zip(*batches, strict=True)
        return cls(stacked(contexts), *map(joined_arrays, others))

    def taken(self, steps: slice | NDArray[np.int64], rows: slice | NDArray[np.int64]) -> Steps:
        """Some of the steps; ``rows`` are theirs."""
        of_rows = ("contexts", "candidate_ids", "propensities")
        pairs = ((name, values, rows if name in of_rows else steps) for name, values in self._asdict().items())
        parts: dict[str, Any] = {name: None if values is None else values[some] for name, values, some in pairs}
        return Steps(**parts)


class Source(Protocol):
    """Somewhere to read steps from."""

    @property
    def name(self) -> str:
        """For messages: the file's name."""
        ...

    @property
    def preparation(self) -> Preparation | None:
        """What was done to raw columns to make the features; None where the contexts are stored as they are.

        Its centres and scales are those that the features have been through, not those that are asked for.
        """
        ...

    @property
    def feature_names(self) -> tuple[str, ...] | None: ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a reader should know: columns left out, values imputed."""
        ...

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time. May be called again.

        ``whole``: all of them will be in memory anyway, so do what is fastest.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a user may say about how to read a log; see `ibcb.read_log`."""

    columns: Mapping[str, str] = field(default_factory=dict)
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    one_hot: Sequence[str] | bool = ()
    min_count: int = 1
    cross: Sequence[Sequence[str]] = ()
    arm: str | None = None
    available: str | None = None
    arm_features: Any = None
    missing: str = "refuse"
    standardize: bool = False
    delimiter: str | None = None
    decimal: str = "."
    format: str | None = None
    alternatives: Sequence[str] = ()
    items: Any = None
    date_format: str | None = None
    deduplicate: bool = False
    skip_unlabelled: bool = False
    episode_every: str | None = None
    episode_size: int | None = None
    episodes: str | Sequence[int] | None = None
    warmup: int | None = None
    sort: bool = False
    max_memory: int | str | None = None
    choices: bool = True
    preparation: Preparation | None = None

    def __post_init__(self) -> None:
        for role in self.columns:
            if role not in ROLES:
                raise ValueError(f"columns has a role {shown(role)}; the roles are {', '.join(ROLES)}.")
        for option in ("features", "drop", "keep", "one_hot", "cross", "alternatives"):
            if isinstance(names := getattr(self, option), str):
                raise WrongTypeError(f"{option}={shown(names)} is text; give a list of names, [{shown(names)}].")
        for names in self.cross:
            if isinstance(names, str):
                raise WrongTypeError(
                    f"cross has {shown(names)}, a text; give the names of the columns to multiply: ('a', 'b')."
                )
            if not names or not all(isinstance(name, str) and name for name in names):
                raise ValueError(f"cross has {shown(names)}; give the names of the columns to multiply: ('a', 'b').")
        whole("min_count", self.min_count, 1, "it is the number of rows that a category needs for a feature of its own")
        for option in ("available", "arm_features"):
            if getattr(self, option) is not None and self.arm is None and self.preparation is None:
                raise ValueError(
                    f"{option} is about arms; name the column with the chosen arm, too: arm='arm' (--arm)."
                )
        memory_budget(self.max_memory)
        if self.missing not in ("refuse", "mean", "zero"):
            raise ValueError(f"missing={shown(self.missing)} is unknown; choose refuse, mean or zero.")
        for option in ("delimiter", "decimal"):
            sign = getattr(self, option)
            if sign is not None and (len(sign) != 1 or not sign.isascii() or sign.isalnum() or sign in "\r\n\"'"):
                raise ValueError(f"{option}={shown(sign)} cannot be used; give a single character, such as a comma.")
        if self.alternatives and len({name.casefold() for name in self.alternatives}) < max(2, len(self.alternatives)):
            raise ValueError(
                f"alternatives={shown(list(self.alternatives))} must be two or more different names; with fewer "
                "there is nothing to choose."
            )
        if self.date_format is not None and "%" not in self.date_format:
            raise ValueError(f"date_format={shown(self.date_format)} has no %; write it as in %d.%m.%Y %H:%M.")
        cuts = [name for name in ("episode_every", "episode_size", "episodes") if getattr(self, name) is not None]
        if len(cuts) > 1:
            raise ValueError(f"{cuts[0]} and {cuts[1]} exclude each other; give one of them.")
        if isinstance(self.episodes, str) and self.episodes != "auto":
            raise ValueError(
                f"episodes={shown(self.episodes)} is unknown; write 'auto' to find the edges, or give the first step "
                "of every episode: [0, 400, 800]."
            )
        if self.episodes is not None and self.episodes != "auto":
            first_steps(self.episodes)
        if self.episode_every is not None:
            window_seconds(self.episode_every)
        if self.episode_size is not None:
            why = "it is the number of steps in an episode"
            whole("episode_size", self.episode_size, 1, why)
        if self.warmup is not None:
            why = "it is the number of leading episodes that were random"
            whole("warmup", self.warmup, 0, why)

    @property
    def cuts(self) -> bool:
        """Whether episodes are cut here, rather than by labels of the log."""
        return any(cut is not None for cut in (self.episode_every, self.episode_size, self.episodes))

    @cached_property
    def memory(self) -> int:
        """Bytes of memory that reading may take."""
        return memory_budget(self.max_memory)

    @property
    def encoded(self) -> list[str]:
        """The columns that were named to be encoded."""
        return [] if isinstance(self.one_hot, bool) else list(self.one_hot)

    def kept(self) -> tuple[tuple[str, Any], ...]:
        """What the preparation of a log does not say of how it was read, for others like it."""
        before = {} if self.preparation is None else dict(self.preparation.reading)
        usual = ReadOptions()
        names = (name for name in self.__dataclass_fields__ if name not in _OF_FEATURES)
        given = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(usual, name)}
        for name, value in given.items():
            if isinstance(value, (list, tuple)) and value:
                before[name] = [int(each) if name == "episodes" else str(each) for each in value]
            elif isinstance(value, (bool, int, float, str, os.PathLike)):
                before[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
        return tuple(before.items())

    @property
    def crossed(self) -> list[str]:
        """The names in crosses, and the patterns."""
        return list(dict.fromkeys(name for names in self.cross for name in names))


_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def window_seconds(text: str) -> int:
    """Such as "1d", as seconds."""
    if not isinstance(text, str):
        raise WrongTypeError(f"episode_every={shown(text)} is not a duration; write it as text: '1d', '6h' or '30min'.")
    match = re.fullmatch(r"(\d+)\s*(s|min|h|d|w)", text.strip())
    seconds = 0 if match is None else int(match[1]) * _UNITS[match[2]]
    if not 0 < seconds < _LARGEST:
        raise ValueError(f"episode_every={shown(text)} is not a duration; write 1d, 6h or 30min.")
    return seconds


def numbered(batches: Iterable[Steps], options: ReadOptions) -> Iterator[tuple[NDArray[np.int64], Steps]]:
    """Each batch with the number of every step's episode: rising, from 0, negative for the warm-up."""
    count = _Episodes(options)
    for batch in batches:
        if len(batch.counts):
            yield count(batch), batch
    count.finish()


class _Episodes:
    """Numbers episodes from their labels, from windows of time, or by counting steps.

    Edges that were given are counted after the warm-up: the episodes that the labels have as such. Where there are no
    labels, the first episodes of the cut are the warm-up.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._window = None if options.episode_every is None else window_seconds(options.episode_every)
        self._size = options.episode_size
        self._edges: NDArray[np.int64] | None = None
        if options.episodes is not None and options.choices:
            assert not isinstance(options.episodes, str)  # `open_log` has found them
            self._edges = first_steps(options.episodes)
        self._recut = 0
        self._warmup, self._choices = options.warmup, options.choices
        self._steps = 0
        self._time: Any = None
        self._last: Any = None
        self._number = -1
        self._seen: set[Any] = set()

    def __call__(self, steps: Steps) -> NDArray[np.int64]:
        n = len(steps.counts)
        if self._size is not None:
            numbers = (self._steps + np.arange(n)) // self._size
        elif self._edges is not None:
            return self._cut(steps, self._edges)
        elif self._window is not None:
            numbers = self._relabelled(self._windows(steps.timestamps, self._window))
        elif steps.episode is not None:
            numbers = self._labelled(steps.episode)
        elif not self._choices:
            numbers = np.zeros(n, dtype=np.int64)
        else:
            raise LogFormatError(
                "the log does not say where episodes begin; name the column that does (episode), or cut by time "
                "(episode_every='1d', --episode-every 1d) or by count (episode_size=1000, "
                "--episode-size 1000). If nobody knows when the policy was updated, have it found from the choices: "
                "episodes='auto' (--episodes auto)."
            )
        self._steps += n
        return numbers - (self._warmup or 0)

    def _cut(self, steps: Steps, edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers from edges that were given."""
        warmup = self._warmup or 0
        numbers = np.zeros(len(steps.counts), dtype=np.int64)
        if steps.episode is not None:
            numbers, warmup = self._labelled(steps.episode) - warmup, 0
        chosen = numbers >= 0
        number = self._recut + np.arange(np.count_nonzero(chosen))
        numbers[chosen] = np.searchsorted(edges, number, side="right") - 1 - warmup
        self._recut += len(number)
        self._steps += len(numbers)
        return numbers

    def finish(self) -> None:
        """The end of the log: no edge may be beyond it."""
        if self._edges is not None and self._recut:
            first_steps(self._edges, self._recut)

    def _labelled(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Numbers from the log's own labels."""
        kind = labels.dtype.kind
        if kind == "u" and int(labels.max()) > _LARGEST:
            at = int(np.argmax(labels > _LARGEST))
            raise self._error(at, f"episode {labels[at]} is above {_LARGEST}; number the episodes 0, 1, 2, ...")
        if kind in "fM" and not np.isfinite(labels).all():
            at = int(np.argmin(np.isfinite(labels)))
            raise self._error(at, f"episode is {labels[at]}; give the step the number of its episode, or leave it out.")
        # Numbers below 0 say warm-up; fractions are labels like any other, which say nothing of the kind.
        if kind == "f" and self._warmup is None and (labels < 0).any():
            at = int(np.argmax(labels < 0))
            raise self._error(
                at,
                f"episode {labels[at]} is below 0 and not a whole number; store the numbers as integers, or say how "
                "many leading episodes were random: warmup=1 (--warmup 1).",
            )
        return (
            self._given(labels.astype(np.int64)) if kind in "iu" and self._warmup is None else self._relabelled(labels)
        )

    def _given(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole numbers stay as they are; they must not fall."""
        before = np.concatenate([labels[:1] if self._last is None else [self._last], labels[:-1]])
        falls = labels < before
        if falls.any():
            at = int(np.argmax(falls))
            raise self._error(
                at,
                f"episode {labels[at]} follows {before[at]}; sort the rows by episode, or read with sort=True "
                "(--sort).",
            )
        self._last = int(labels[-1])
        return labels

    def _relabelled(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Any labels become 0, 1, ... in the order in which they appear; none may come back."""
        changes = np.flatnonzero(labels[1:] != labels[:-1]) + 1
        starts = np.concatenate([[0], changes])
        numbers = np.empty(len(labels), dtype=np.int64)
        for first, end in zip(starts, [*changes, len(labels)], strict=True):
            label = labels[first]
            if self._number < 0 or label != self._last:
                if label in self._seen:
                    raise self._error(
                        int(first),
                        f"episode {shown(label)} comes back after {shown(self._last)}; sort the rows by episode, or "
                        "read with sort=True (--sort).",
                    )
                self._seen.add(label)
                self._last = label
                self._number += 1
            numbers[first:end] = self._number
        return numbers

    def _windows(self, timestamps: NDArray[Any] | None, seconds: int) -> NDArray[np.int64]:
        """Which window of time each step falls in, counted from 1970."""
        if timestamps is None:
            raise LogFormatError(
                "cannot cut episodes by time: no column holds times; name it: columns={'timestamp': ...} "
                "(--column timestamp=NAME)."
            )
        timestamps = _times(timestamps)
        if timestamps.dtype.kind not in "Miuf":
            at = next((place for place, text in enumerate(timestamps.tolist()) if not _is_time(text)), 0)
            raise self._error(
                at,
                f"the time is {shown(timestamps[at])}; to cut episodes by time it must be a time, such as "
                "2024-03-01 12:00:00, or a number of seconds.",
            )
        if timestamps.dtype.kind == "M":
            known = ~np.isnat(timestamps)
            seen: NDArray[np.int64] = timestamps.astype("datetime64[s]").astype(np.int64)
        else:
            known = (timestamps > -_FAR) & (timestamps < _FAR)
            seen = np.floor(np.where(known, timestamps, 0)).astype(np.int64)
        if not known.all():
            at = int(np.argmin(known))
            raise self._error(
                at,
                f"the time is {timestamps[at]}; it must be a time, or a number of seconds since 1970 (divide "
                "milliseconds by 1000). Or leave the step out.",
            )
        windows = seen // seconds
        # Windows must not fall: what comes later was chosen later.
        last = self._time or (windows[0], timestamps[0])
        falls = windows < np.concatenate([[last[0]], windows[:-1]])
        if falls.any():
            at = int(np.argmax(falls))
            raise self._error(
                at,
                f"its time {timestamps[at]} is before {timestamps[at - 1] if at else last[1]} of the step before it; "
                "sort the rows by time, or read with sort=True (--sort).",
            )
        self._time = windows[-1], timestamps[-1]
        return windows

    def _error(self, at: int, reason: str) -> LogFormatError:
        return LogFormatError(f"step {self._steps + at} of the log: {reason}")


def seconds_since_1970(timestamps: NDArray[Any]) -> NDArray[np.float64] | None:
    """Times as seconds since 1970, UTC; None if any of them is no time.

    Numbers beyond the year 5138 are milliseconds or less.
    """
    times = _times(timestamps)
    if times.dtype.kind == "M":
        return None if np.isnat(times).any() else times.astype("datetime64[us]").astype(np.int64) / 1e6
    if times.dtype.kind not in "iuf" or not np.isfinite(times).all():
        return None
    seconds = times.astype(np.float64)
    while np.abs(seconds).max() >= _FAR:
        seconds /= 1000
    return seconds


def _times(values: NDArray[Any]) -> NDArray[Any]:
    """Texts as times where all of them are, in the ISO form, with or without a zone; anything else as it is."""
    if values.dtype.kind != "U":
        return values
    # Imported here: arrays become a log without it.
    import pyarrow as pa

    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        with contextlib.suppress(pa.ArrowInvalid):
            times: NDArray[Any] = pa.array(values).cast(kind).to_numpy(zero_copy_only=False)
            return times
    return values


def _is_time(value: Any) -> bool:
    return _times(np.array([str(value)])).dtype.kind == "M"
