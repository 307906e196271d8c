"""Steps on their way into a log: batches of whole steps from any format, before they are cut into episodes.

A `Source` is a place to read steps from, again and again, a bounded number at a time. `numbered` cuts the steps into
episodes, as `ibcb.log.read_options.ReadOptions` say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcb.log.array_checks import LogFormatError, first_steps, first_true, joined_arrays, runs
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions, window_seconds
from ibcb.log.recipe import Preparation
from ibcb.numerics.contexts import Contexts, nbytes, stacked
from ibcb.numerics.printable import shown

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
        return nbytes(self.contexts) + sum(int(array.nbytes) for array in self[1:] if array is not None)

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

    @property
    def preparation(self) -> Preparation | None:
        """What was done to raw columns to make the features; None where the contexts are stored as they are.

        Its centres and scales are those that the features have been through, not those that are asked for.
        """

    @property
    def feature_names(self) -> tuple[str, ...] | None: ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a reader should know: columns left out, values imputed."""

    def batches(self) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time. May be called again."""


class EpisodeIndex(NamedTuple):
    """Where episodes stand in a source whose rows come in groups, of which no two episodes share one.

    ``episodes`` has the number of each and its row groups, ``sizes`` how many steps every row group has. Of some row
    groups ``read`` gives the steps, ``counts`` only how many candidates each step has. ``n_features`` is None where
    only reading would tell.
    """

    episodes: list[tuple[int, list[int]]]
    sizes: list[int]
    read: Callable[[Sequence[int]], Iterator[Steps]]
    counts: Callable[[Sequence[int]], NDArray[np.int64]]
    n_features: int | None


def index_of(source: Source) -> EpisodeIndex | None:
    """Where the episodes of a source stand, if it knows: only some sources have a method ``index``."""
    index: Callable[[], EpisodeIndex | None] = getattr(source, "index", lambda: None)
    return index()


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
        self._edges: NDArray[np.int64] | None = None
        if options.episodes is not None and options.choices:
            assert not isinstance(options.episodes, str)  # `open_log` has found them
            self._edges = first_steps(options.episodes)
        self._size, self._warmup, self._choices = options.episode_size, options.warmup, options.choices
        self._steps = self._recut = 0
        #: what must not fall, of the last step, and how messages call it
        self._last: tuple[Any, Any] | None = None
        self._label: Any = None
        self._number = -1
        self._seen: set[Any] = set()

    def __call__(self, steps: Steps) -> NDArray[np.int64]:
        n, warmup = len(steps.counts), self._warmup or 0
        numbers = np.zeros(n, dtype=np.int64)
        if self._size is not None:
            numbers = (self._steps + np.arange(n)) // self._size
        elif self._edges is not None:
            if steps.episode is not None:
                numbers, warmup = self._labelled(steps.episode) - warmup, 0
            chosen = numbers >= 0
            place = self._recut + np.arange(np.count_nonzero(chosen))
            numbers[chosen] = np.searchsorted(self._edges, place, side="right") - 1
            self._recut += len(place)
        elif self._window is not None:
            numbers = self._relabelled(self._windows(steps.timestamps, self._window))
        elif steps.episode is not None:
            numbers = self._labelled(steps.episode)
        elif self._choices:
            raise LogFormatError(
                "the log does not say where episodes begin; name the column that does (episode), or cut by time "
                "(episode_every='1d', --episode-every 1d) or by count (episode_size=1000, "
                "--episode-size 1000). If nobody knows when the policy was updated, have it found from the choices: "
                "episodes='auto' (--episodes auto)."
            )
        self._steps += n
        return numbers - warmup

    def finish(self) -> None:
        """The end of the log: no edge may be beyond it."""
        if self._edges is not None and self._recut:
            first_steps(self._edges, self._recut)

    def _labelled(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Numbers from the log's own labels."""
        kind = labels.dtype.kind
        if kind == "u":
            remedy = f"is above {_LARGEST}; number the episodes 0, 1, 2, ..."
            self._refuse(labels > _LARGEST, lambda at: f"episode {labels[at]} {remedy}")
        if kind in "fM":
            rule = "give the step the number of its episode, or leave it out."
            self._refuse(~np.isfinite(labels), lambda at: f"episode is {labels[at]}; {rule}")
        # Numbers below 0 say warm-up; fractions are labels like any other, which say nothing of the kind.
        if kind == "f" and self._warmup is None:
            remedy = (
                "store the numbers as integers, or say how many leading episodes were random: warmup=1 (--warmup 1)."
            )
            self._refuse(labels < 0, lambda at: f"episode {labels[at]} is below 0 and not a whole number; {remedy}")
        if kind in "iu" and self._warmup is None:
            remedy = "sort the rows by episode, or read with sort=True (--sort)."
            labels = labels.astype(np.int64)
            self._check_rising(labels, labels, lambda this, before: f"episode {this} follows {before}; {remedy}")
            return labels
        return self._relabelled(labels)

    def _relabelled(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Any labels become 0, 1, ... in the order in which they appear; none may come back."""
        numbers = np.empty(len(labels), dtype=np.int64)
        for first, end in pairwise(runs(labels)):
            label = labels[first]
            if self._number < 0 or label != self._label:
                if label in self._seen:
                    raise LogFormatError(
                        f"step {self._steps + first} of the log: episode {shown(label)} comes back after "
                        f"{shown(self._label)}; sort the rows by episode, or read with sort=True (--sort)."
                    )
                self._seen.add(label)
                self._label, self._number = label, self._number + 1
            numbers[first:end] = self._number
        return numbers

    def _windows(self, timestamps: NDArray[Any] | None, seconds: int) -> NDArray[np.int64]:
        """Which window of time each step falls in, counted from 1970."""
        if timestamps is None:
            raise LogFormatError(
                "cannot cut episodes by time: no column holds times; name it: columns={'timestamp': ...} "
                "(--column timestamp=NAME)."
            )
        times = _times(timestamps)
        if times.dtype.kind == "M":
            known = ~np.isnat(times)
            seen: NDArray[np.int64] = times.astype("datetime64[s]").astype(np.int64)
        elif times.dtype.kind in "iuf":
            known = (times > -_FAR) & (times < _FAR)
            seen = np.floor(np.where(known, times, 0)).astype(np.int64)
        else:
            rule = "to cut episodes by time it must be a time, such as 2024-03-01 12:00:00, or a number of seconds."
            alone = (_times(np.array([str(text)])).dtype.kind for text in times.tolist())
            wrong = next((place for place, kind in enumerate(alone) if kind != "M"), 0)
            self._refuse(np.arange(len(times)) == wrong, lambda at: f"the time is {shown(times[at])}; {rule}")
        rule = (
            "it must be a time, or a number of seconds since 1970 (divide milliseconds by 1000). Or leave the step out."
        )
        self._refuse(~known, lambda at: f"the time is {times[at]}; {rule}")
        windows = seen // seconds
        # What comes later was chosen later.
        remedy = "of the step before it; sort the rows by time, or read with sort=True (--sort)."
        self._check_rising(windows, times, lambda this, before: f"its time {this} is before {before} {remedy}")
        return windows

    def _check_rising(self, values: NDArray[np.int64], named: NDArray[Any], words: Callable[[Any, Any], str]) -> None:
        """That values do not fall, from one batch to the next; ``words`` of one that does, and of that before it."""
        last, name = self._last or (values[0], named[0])
        falls = values < np.concatenate([[last], values[:-1]])
        self._refuse(falls, lambda at: words(named[at], named[at - 1] if at else name))
        self._last = values[-1], named[-1]

    def _refuse(self, wrong: NDArray[np.bool_], words: Callable[[int], str]) -> None:
        """Refuse the first of the steps that are marked."""
        if (at := first_true(wrong)) is not None:
            raise LogFormatError(f"step {self._steps + at} of the log: {words(at)}")


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
