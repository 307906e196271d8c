"""Steps on their way into a log: batches of whole steps from any format, before they are cut into episodes.

A `Source` is a place to read steps from, again and again, a bounded number at a time. `Reading` holds what a user may
say about how to read it. `numbered` cuts the steps into episodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcb.intake import LogFormatError
from ibcb.preparation import Preparation

__all__ = ["Reading", "Source", "Steps", "numbered", "window_seconds"]


class Steps(NamedTuple):
    """Some consecutive steps, whole, in the order of the log.

    ``contexts`` (rows, d) has the candidates of all of them, ``counts`` says how many each has, ``chosen`` the position
    of the chosen one. ``episode`` is a label per step of whatever kind the log has, ``step_ids`` and ``timestamps``
    likewise; None where the log has none.
    """

    contexts: NDArray[Any]
    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]
    episode: NDArray[Any] | None = None
    step_ids: NDArray[Any] | None = None
    timestamps: NDArray[Any] | None = None


class Source(Protocol):
    """Somewhere to read steps from."""

    @property
    def name(self) -> str:
        """For messages: the file's name."""
        ...

    @property
    def preparation(self) -> Preparation | None:
        """How the features were made of raw columns; None where the contexts are stored as they are."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...] | None: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: columns left out, values imputed."""
        ...

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time. May be called again.

        ``whole``: all of them will be in memory anyway, so do what is fastest.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a user may say about how to read a log; see `ibcb.read_log`."""

    columns: Mapping[str, str] = field(default_factory=dict)
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    one_hot: Sequence[str] | bool = ()
    missing: str = "refuse"
    delimiter: str | None = None
    decimal: str = "."
    episode_every: str | None = None
    episode_size: int | None = None
    warmup: int | None = None
    sort: bool = False
    choices: bool = True
    preparation: Preparation | None = None


_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def window_seconds(text: str) -> int:
    """Such as "1d", as seconds."""
    match = re.fullmatch(r"(\d+)\s*(s|min|h|d|w)", text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"episode_every={text!r} is no length of time; give a number and s, min, h, d or w: 1d, 6h.")
    return int(match[1]) * _UNITS[match[2]]


def numbered(batches: Iterable[Steps], reading: Reading) -> Iterator[tuple[NDArray[np.int64], Steps]]:
    """Each batch with the number of every step's episode: rising, from 0, negative for the warm-up."""
    count = _Episodes(reading)
    for batch in batches:
        if len(batch.counts):
            yield count(batch), batch


class _Episodes:
    """Numbers episodes from their labels, from windows of time, or by counting steps."""

    def __init__(self, reading: Reading) -> None:
        if reading.episode_every is not None and reading.episode_size is not None:
            raise ValueError("episode_every and episode_size exclude each other; give one of them.")
        self._window = None if reading.episode_every is None else window_seconds(reading.episode_every)
        self._size = reading.episode_size
        if self._size is not None and self._size < 1:
            raise ValueError(f"episode_size={self._size} is below 1; it is the number of steps in an episode.")
        self._warmup, self._choices = reading.warmup, reading.choices
        self._steps = 0
        self._last: Any = None
        self._number = -1
        self._seen: set[Any] = set()

    def __call__(self, steps: Steps) -> NDArray[np.int64]:
        n = len(steps.counts)
        if self._size is not None:
            numbers = (self._steps + np.arange(n)) // self._size
        else:
            labels = steps.episode if self._window is None else _windows(steps.timestamps, self._window)
            if labels is None and not self._choices:
                labels = np.zeros(n, dtype=np.int64)
            if labels is None:
                raise LogFormatError(
                    "nothing says where one episode ends and the next begins; name the column that does "
                    "(episode), or cut by time (episode_every, such as 1d) or by count (episode_size, such as 1000)."
                )
            if labels.dtype.kind in "iu" and self._window is None and self._warmup is None:
                numbers = self._given(labels.astype(np.int64))
            else:
                numbers = self._relabelled(labels)
        self._steps += n
        return numbers - (self._warmup or 0)

    def _given(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole numbers stay as they are; they must not fall."""
        before = labels[:1] if self._last is None else np.array([self._last])
        falls = np.flatnonzero(np.diff(labels, prepend=before) < 0)
        if len(falls):
            at = int(falls[0])
            other = before[0] if at == 0 else labels[at - 1]
            raise LogFormatError(
                f"step {self._steps + at} of the log: episode {labels[at]} follows {other}; sort the rows by episode, "
                "or read with sort=True (--sort)."
            )
        self._last = int(labels[-1])
        return labels

    def _relabelled(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Any labels become 0, 1, ... in the order in which they appear; none may come back."""
        changes = np.flatnonzero(labels[1:] != labels[:-1]) + 1
        starts = np.concatenate([[0], changes])
        numbers = np.empty(len(labels), dtype=np.int64)
        for first, end in zip(starts, [*changes, len(labels)], strict=True):
            label = labels[first].item() if isinstance(labels[first], np.generic) else labels[first]
            if self._number < 0 or label != self._last:
                if label in self._seen:
                    raise LogFormatError(
                        f"step {self._steps + int(first)} of the log: episode {label!r} comes back after "
                        f"{self._last!r}; sort the rows by episode, or read with sort=True (--sort)."
                    )
                self._seen.add(label)
                self._last = label
                self._number += 1
            numbers[first:end] = self._number
        return numbers


def _windows(timestamps: NDArray[Any] | None, seconds: int) -> NDArray[np.int64]:
    """Which window of time each step falls in, counted from 1970."""
    if timestamps is None:
        raise LogFormatError(
            "episodes were to be cut by time, but no column holds times; name it: columns={'timestamp': ...} "
            "(--column timestamp=NAME)."
        )
    if timestamps.dtype.kind == "M":
        whole: NDArray[np.int64] = timestamps.astype("datetime64[s]").astype(np.int64)
    elif timestamps.dtype.kind in "iuf":
        whole = np.floor(timestamps).astype(np.int64)
    else:
        raise LogFormatError(
            f"the timestamps hold {timestamps.dtype}; give times or numbers of seconds to cut episodes by time."
        )
    return whole // seconds
