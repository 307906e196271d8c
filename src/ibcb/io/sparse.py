"""Candidates as names with numbers: what Vowpal Wabbit text and dsjson have in common.

A candidate lists the features it has; those it does not list are 0. A first pass over the file collects the names, in
the order in which they appear, and meets every error that the file holds. `batches` makes the contexts dense.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.io.sources import BATCH_NUMBERS, asked_names, existing, refuse_keep, refuse_one_hot, some
from ibcb.log import BehaviorLog
from ibcb.log.arrays import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import ReadOptions, Steps

__all__ = ["MOST_FEATURES", "Decision", "SparseSource", "as_array", "names_to_write"]

#: contexts are dense: more features than this are words or hashes rather than features of a linear policy
MOST_FEATURES = 20_000
_MOST_NUMBERS = 2**28


class Decision(NamedTuple):
    """One step, each candidate a mapping of names to numbers."""

    place: str
    candidates: list[dict[str, float]]
    chosen: int
    episode: Any = None
    step_id: Any = None
    timestamp: Any = None


class SparseSource:
    """A `Source` over decisions whose candidates list the features that they have."""

    name: str
    preparation: Preparation | None
    feature_names: tuple[str, ...] | None
    notes: tuple[Note, ...]

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        self._path = existing(path)
        self.name = self._path.name
        self._options = options
        self.notes = ()
        refuse_one_hot(options, "a text is a feature of its own in this format, without being asked for. Leave it out")
        refuse_keep(options, "in this format rewards and costs stand apart, and every feature is read. Leave it out")
        asked = asked_names(options)
        names = self._all_names() if asked is None else self._of_those(asked)
        self._columns = {name: column for column, name in enumerate(names)}
        self.feature_names = tuple(names)
        preparation = options.preparation or Preparation(tuple(FeatureColumn(name, fill=0.0) for name in names))
        self.preparation = preparation.raw
        # A model may have been fitted to data where something else stood for missing numbers.
        fills = {column.name: column.fill or 0.0 for column in preparation.columns if column.categories is None}
        self._absent = np.array([fills.get(name, 0.0) for name in names])
        self.notes = (*self.notes, *self._remarks())

    # -- what a format provides ------------------------------------------------------------------------------------

    def _decisions(self) -> Iterator[Decision]:
        """All decisions in the order of the file, for the first pass; raises where one is broken."""
        raise NotImplementedError

    def _in_order(self) -> Iterator[Decision]:
        """All decisions in the order in which they are to be read."""
        return self._decisions()

    def _remarks(self) -> list[Note]:
        """What the first pass met that a reader should know."""
        return []

    # -- the first pass --------------------------------------------------------------------------------------------

    def _all_names(self) -> list[str]:
        """Every name in the file, in the order of appearance, but those to drop."""
        drop = set(self._options.drop)
        found: dict[str, None] = {}
        seen: set[str] = set()
        steps = 0
        for decision in self._decisions():
            steps += 1
            for candidate in decision.candidates:
                if seen >= candidate.keys():
                    continue
                seen.update(candidate)
                found.update((name, None) for name in candidate if name not in drop)
                if len(found) > MOST_FEATURES:
                    raise self._error(
                        decision.place,
                        f"{len(found)} different features so far, and contexts are dense: at most {MOST_FEATURES} can "
                        "be read. Words and ids do not make features of a linear policy; replace them by numbers, or "
                        "name the features to read: features=[...] (--features).",
                    )
        self._check_steps(steps)
        if not found:
            raise LogFormatError(f"{self.name}: no candidate has a feature; there is nothing to tell them apart.")
        absent = [name for name in self._options.drop if name not in seen and name not in self._own_keys()]
        if absent:
            raise LogFormatError(f"{self.name}: {some(absent)} was to be dropped but appears nowhere; check the name.")
        return list(found)

    def _own_keys(self) -> tuple[str, ...]:
        """What `drop` may name besides features."""
        return ()

    def _of_those(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The names asked for; what else is in the file is only counted."""
        wanted = set(asked)
        seen: set[str] = set()
        ignored: dict[str, None] = {}
        steps = 0
        for decision in self._decisions():
            steps += 1
            for candidate in decision.candidates:
                if seen >= candidate.keys():
                    continue
                seen.update(name for name in candidate if name in wanted)
                if len(ignored) < MOST_FEATURES:
                    ignored.update((name, None) for name in candidate if name not in wanted)
        self._check_steps(steps)
        if not seen:
            raise LogFormatError(
                f"{self.name}: none of the {plural(len(asked), 'feature')} asked for ({some(asked)}) appears in it; "
                f"it has {some(ignored) or 'no features'}. Are names spelt as in the log that the model was fitted to?"
            )
        notes = []
        if ignored:
            many = "more than " if len(ignored) >= MOST_FEATURES else ""
            text = f"{many}{plural(len(ignored), 'feature')} not asked for left out: {some(ignored)}."
            notes.append(Note("features-not-asked-for", "info", text, {"features": len(ignored)}))
        absent = [name for name in asked if name not in seen]
        if absent:
            text = f"{plural(len(absent), 'feature')} asked for appear nowhere: {some(absent)}."
            notes.append(Note("features-absent", "warning", text, {"features": tuple(absent)}))
        self.notes = tuple(notes)
        return asked

    def _check_steps(self, steps: int) -> None:
        if steps == 0:
            raise LogFormatError(f"{self.name}: the log is empty: it has no step. Is it the right file?")

    def _error(self, place: str, reason: str) -> LogFormatError:
        return LogFormatError(f"{self.name}, {place}: {reason}")

    # -- the second pass -------------------------------------------------------------------------------------------

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """All steps from the first on, dense, a few million numbers at a time."""
        d = len(self._columns)
        batch = _Batch(self._columns, self._absent)
        for decision in self._in_order():
            count = len(decision.candidates)
            if count * d > _MOST_NUMBERS:
                raise self._error(
                    decision.place,
                    f"{count} candidates of {d} features are {count * d} numbers in one step, too many to be read "
                    "densely; name the features to read: features=[...] (--features).",
                )
            if batch.rows and (batch.rows + count) * d > BATCH_NUMBERS:
                yield batch.steps()
                batch = _Batch(self._columns, self._absent)
            batch.add(decision)
        if batch.rows:
            yield batch.steps()


class _Batch:
    """Decisions on their way into dense steps: where each number will stand, and the number."""

    def __init__(self, columns: dict[str, int], absent: NDArray[np.float64]) -> None:
        self.rows = 0
        self._columns, self._absent = columns, absent
        # Plain arrays: a few million numbers as Python objects would be many times as large.
        self._places, self._values = array("q"), array("d")
        self._counts: list[int] = []
        self._chosen: list[int] = []
        self._extras: list[tuple[Any, Any, Any]] = []

    def add(self, decision: Decision) -> None:
        columns, places, values = self._columns, self._places, self._values
        for row, candidate in enumerate(decision.candidates, start=self.rows):
            start = row * len(columns)
            for name, value in candidate.items():
                column = columns.get(name)
                if column is not None:
                    places.append(start + column)
                    values.append(value)
        self.rows += len(decision.candidates)
        self._counts.append(len(decision.candidates))
        self._chosen.append(decision.chosen)
        self._extras.append((decision.episode, decision.step_id, decision.timestamp))

    def steps(self) -> Steps:
        d = len(self._columns)
        flat = np.tile(self._absent, self.rows)
        # Assigned, not added: -0.0 stays what it is.
        flat[np.asarray(self._places)] = np.asarray(self._values)
        episode, step_ids, timestamps = (as_array(list(values)) for values in zip(*self._extras, strict=True))
        counts, chosen = (np.array(values, dtype=np.int64) for values in (self._counts, self._chosen))
        return Steps(flat.reshape(-1, d), counts, chosen, episode, step_ids, timestamps)


def as_array(values: list[Any]) -> NDArray[Any] | None:
    """One entry per step as an array: whole numbers, numbers, times, or text as objects; None where there are none."""
    if not values or values[0] is None:
        return None
    if isinstance(values[0], np.datetime64):
        return np.array(values, dtype="datetime64[ns]")
    if all(type(value) is int for value in values):
        whole = np.array(values)
        return whole if whole.dtype.kind in "iu" else np.array(values, dtype=object)
    if all(isinstance(value, (int, float)) for value in values):
        return np.array(values, dtype=np.float64)
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


def names_to_write(part: BehaviorLog) -> tuple[str, ...]:
    """The names of a log's features; x0, x1, ... where they have none."""
    names = part.feature_names or tuple(f"x{column}" for column in range(part.n_features))
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise LogFormatError(f"feature name {name!r} is no text that UTF-8 can hold; rename the feature.") from None
    return names
