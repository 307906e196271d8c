"""What the sources of steps share: files that must be there, their names in messages, features that were asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.io.opened import Opened, regular
from ibcb.io.words import note, refusal, sentence
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import Preparation
from ibcb.log.steps import EpisodeIndex, Source, Steps, index_of
from ibcb.numerics.printable import shown

#: contexts are handed on in batches of about so many numbers
BATCH_NUMBERS = 4_000_000
#: more are words or hashes rather than features of a linear policy, and their Gram matrix does not fit in memory
MOST_FEATURES = 20_000
#: names in messages are cut after so many characters
_LONG = 100


class MappedSource:
    """A source whose steps are made of those of another, some at a time."""

    def __init__(
        self,
        source: Source,
        preparation: Preparation | None,
        feature_names: tuple[str, ...] | None,
        notes: tuple[Note, ...],
    ) -> None:
        self._source, self._notes = source, notes
        self.name = source.name
        self.preparation = preparation
        self.feature_names = feature_names
        # Of formats with namespaces: see `ibcb.io.sparse`.
        self.separator = getattr(source, "separator", None)
        self.step_features = getattr(source, "step_features", None)

    def _mapped(self, batches: Iterable[Steps]) -> Iterator[Steps]:
        raise NotImplementedError

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self._source.notes, *self._notes)

    def batches(self) -> Iterator[Steps]:
        """As those of the source."""
        return self._mapped(self._source.batches())

    def index(self) -> EpisodeIndex | None:
        """As that of the source, if it has one."""
        index = index_of(self._source)
        return None if index is None else index._replace(read=lambda groups: self._mapped(index.read(groups)))


class Watched(MappedSource):
    """The steps of a source whose files are looked at before and after every pass, so that all meet the same rows.

    A log may be gone through several times, while somebody still writes it. Rows that are added meanwhile are left out;
    where its files are others by now, it is refused: a verdict would be of other rows than those that were fitted.
    """

    def __init__(self, source: Source, files: Sequence[Opened], now: Callable[[], Sequence[Path]]) -> None:
        """``now``: the paths that would be read today."""
        super().__init__(source, source.preparation, source.feature_names, ())
        self._files, self._now = tuple(files), now

    @property
    def notes(self) -> tuple[Note, ...]:
        """With what has become of the files since."""
        return (*super().notes, *self._told())

    def _mapped(self, batches: Iterable[Steps]) -> Iterator[Steps]:
        for file in self._files:
            file.check()
        yield from batches
        for file in self._files:
            file.check(at_end=True)

    def _told(self) -> Iterator[Note]:
        yield from filter(None, [file.told() for file in self._files])
        new = [path for path in self._now() if path not in {file.path for file in self._files}]
        if new:
            text = f"{plural(len(new), 'file')} came into the folder since it was opened, such as {shown(new[0].name)}"
            yield Note("log-grew", "info", f"{text}; left out.", {"files": len(new)})


def source_name(source: Any) -> str:
    """What to call a source in messages."""
    return source.name if isinstance(source, Path) else f"the {type(source).__name__}"


def asked_names(options: ReadOptions, names: Iterable[str] = ()) -> tuple[str, ...] | None:
    """The features that were asked for, in order: those of a model, else those of a user; None where nobody asked.

    Of a model with products, those that are to be multiplied, unless the log with these ``names`` has the products.
    Where a user asks for products, all: `ibcb.io.transforms.crossed` leaves out the others.
    """
    if options.preparation is not None:
        every = options.preparation.feature_names
        return every if set(every) <= set(names) else options.preparation.column_features
    if options.features is None or options.cross:
        return None
    names = tuple(str(name) for name in options.features if name not in options.drop)
    if not names:
        raise LogFormatError("features names no feature; name at least one, or leave it out to read all of them.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LogFormatError(f"features has {shown(twice)} twice; names must differ.")
    return names


def kept_features(names: tuple[str, ...], options: ReadOptions) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    """Of a log's features those that were asked for or not dropped, and their columns; None: all of them, in order."""
    asked = asked_names(options, names)
    absent = [name for name in (*(asked or ()), *options.drop) if name not in names]
    if absent:
        raise LogFormatError(f"no feature is named {some(absent)}; the file has {some(names, 10)}.")
    kept = asked if asked is not None else tuple(name for name in names if name not in options.drop)
    if not kept:
        raise LogFormatError("every feature was dropped; keep at least one.")
    position = {name: column for column, name in enumerate(names)}
    return kept, None if kept == names else np.array([position[name] for name in kept])


def refuse_roles(options: ReadOptions, name: str, known: tuple[str, ...] = ()) -> None:
    """Raise where a column was named for a role that this format has no columns for."""
    if options.arm is not None:
        raise LogFormatError(f"{name}: {shown(options.arm)} was named as the column of arms; only tables have one.")
    for role, column in options.columns.items():
        if role not in known:
            takes = f"it takes {', '.join(known)}" if known else "it has no columns to name"
            raise LogFormatError(f"{name}: {shown(column)} was named as column {role!r}, but in this format {takes}.")


def refuse_one_hot(options: ReadOptions, reason: str) -> None:
    """Raise where a column was to be encoded in a log whose features are numbers by now."""
    for name in options.encoded:
        raise LogFormatError(f"there is no column {shown(name)} to encode (one_hot, --one-hot): {reason}.")
    if options.min_count > 1:
        raise LogFormatError(f"there are no categories to pool (min_count, --min-count): {reason}.")


def refuse_keep(options: ReadOptions, reason: str) -> None:
    """Raise where a column was to be kept in a log of which no feature is left out because of its name."""
    for name in options.keep:
        raise LogFormatError(f"there is no column {shown(name)} to keep (keep, --keep): {reason}.")


def file_without_columns(
    path: str | os.PathLike[str], options: ReadOptions, one_hot: str, keep: str, roles: tuple[str, ...] = ()
) -> Path:
    """The path of a file that is there, in a format without columns; options for columns are refused, with reasons."""
    file = Path(path)
    if file.is_dir():
        raise LogFormatError(f"{file.name}: a folder; give the path of a file.")
    refuse_roles(options, file.name, roles)
    refuse_one_hot(options, one_hot)
    refuse_keep(options, keep)
    return regular(file)


#: Vowpal Wabbit's other kinds of decisions, by the word that begins their labels, and what could be read of each
OTHER_KINDS = {
    "ccb": ("a conditional contextual bandit (ccb)", "one choice for each slot", "each slot"),
    "slates": ("a slate (slates)", "one choice for each slot, with one outcome for all", "each slot"),
    "ca": ("a continuous action (cats)", "a number chosen from a range", "each, with bins of the range as candidates,"),
}


def refused(kind: str) -> str:
    """Why a decision of one of `OTHER_KINDS` cannot be read, and what to do."""
    name, what, how = OTHER_KINDS[kind]
    return (
        f"is of {name}: {what}. ibcb reads one choice among candidates per step; write {how} as a step of its own, as "
        "in --cb_adf."
    )


def in_order(batches: Iterable[Steps], memory: int) -> Iterator[Steps]:
    """The steps by episode and time, in batches; what is equal stays as it is. All of them are held in memory."""
    parts, size = list[Steps](), 0
    for part in batches:
        parts.append(part)
        size += 2 * part.nbytes
        if size > memory:
            raise beyond(f"the steps, which are sorted all at once, take {amount(size)} or more", memory)
    every = Steps.joined(parts)
    order = _sorted_steps(every.episode, every.timestamps)
    starts, counts = np.cumsum(every.counts) - every.counts, every.counts[order]
    begins = np.repeat(starts[order] - np.cumsum(counts) + counts, counts)
    places = begins + np.arange(len(begins))
    for steps, rows in cuts(counts, BATCH_NUMBERS // every.contexts.shape[1]):
        yield every.taken(order[steps], places[rows])


def _sorted_steps(episode: NDArray[Any] | None, timestamps: NDArray[Any] | None) -> NDArray[np.int64]:
    """The order of the steps by episode and time; what is equal stays as it is.

    Episodes that are no numbers have no order of their own: they are ordered by time, and where there is no time by
    their first appearance.
    """
    keys = []
    if timestamps is not None:
        # Text has no place in lexsort; its ranks do.
        text = timestamps.dtype.kind not in "iufM"
        keys.append(np.unique(timestamps, return_inverse=True)[1] if text else timestamps)
    if episode is not None and episode.dtype.kind in "iu":
        keys.append(episode)
    elif episode is not None and timestamps is None:
        first: dict[Any, int] = {}
        keys.append(np.array([first.setdefault(label, len(first)) for label in episode.tolist()], dtype=np.int64))
    if not keys:
        raise LogFormatError("nothing to sort by: the log holds neither times nor episodes; read it without sort.")
    return np.lexsort(keys)


def cuts(counts: NDArray[np.int64], most: int) -> Iterator[tuple[slice, slice]]:
    """Consecutive steps of at most so many rows, or a single one, and their rows.

    >>> list(cuts(np.array([2, 1, 9]), 4))
    [(slice(0, 2, None), slice(0, 3, None)), (slice(2, 3, None), slice(3, 12, None))]
    """
    ends = np.cumsum(counts)
    first = row = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, row + most, side="right")), first + 1)
        yield slice(first, last), slice(row, int(ends[last - 1]))
        first, row = last, int(ends[last - 1])


def same_features(parts: Iterable[tuple[int, BehaviorLog]]) -> Iterator[tuple[int, BehaviorLog]]:
    """The parts of a log as they come; every one must have the features and the extras of the first."""
    first: tuple[Any, ...] | None = None
    for number, part in parts:
        extras = (part.timestamps, part.step_ids, part.propensities)
        shape = (part.n_features, part.feature_names, *(values is None for values in extras))
        if first is None:
            first = shape
        elif shape != first:
            raise refusal("parts-differ", episode=number)
        yield number, part
    if first is None:
        raise LogFormatError("The log is empty: there is no step to write; it needs at least one.")


def shared_features(names: Iterable[str], what: str, example: tuple[str, str]) -> Note:
    """That features of a step, rather than of its candidates, were left out; and a cross that would use them."""
    every = tuple(names)
    text = sentence("shared-features", what=what, some=some(every), first=example[0], second=example[1])
    return Note("shared-features", "info", text, {"features": every})


def labelled(steps: Steps) -> Steps:
    """The steps of which one candidate was chosen; those where ``chosen`` is below 0 are left out."""
    kept = steps.chosen >= 0
    if kept.all():
        return steps
    return steps.taken(np.flatnonzero(kept), np.flatnonzero(np.repeat(kept, steps.counts)))


def unlabelled_steps(count: int) -> tuple[Note, ...]:
    """That steps without a choice were left out, if there were any."""
    return (note("unlabelled-steps", "info", steps=count),) if count else ()


def some(names: Iterable[str], most: int = 5) -> str:
    """The first few names, for a note; those that are long or unprintable as `shown` has them."""
    listed = list(names)
    rest = f" and {len(listed) - most} more" if len(listed) > most else ""
    each = (name if name.isprintable() and len(name) <= _LONG else shown(name, _LONG) for name in listed[:most])
    return ", ".join(each) + rest
