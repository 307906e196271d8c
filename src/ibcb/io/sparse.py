"""Candidates as names with numbers: what Vowpal Wabbit text and dsjson have in common.

A candidate lists the features it has; those it does not list are 0. A first pass over the file collects the names, in
the order in which they appear, and meets every error that the file holds. What a step says of itself, rather than of
a candidate, is added to all of its candidates where products are asked for, and left out elsewhere.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.io.files import text_lines
from ibcb.io.opened import Opened
from ibcb.io.sources import (
    BATCH_NUMBERS,
    MOST_FEATURES,
    asked_names,
    existing,
    refuse_keep,
    refuse_one_hot,
    some,
)
from ibcb.log import BehaviorLog
from ibcb.log.arrays import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.propensities import wrong_propensity
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import ReadOptions, Steps
from ibcb.numerics.contexts import Contexts, ordered, sparse_pays

__all__ = ["Decision", "SparseSource", "as_array", "names_to_write"]

_MOST_NUMBERS = 2**28


class Decision(NamedTuple):
    """One step, each candidate a mapping of names to numbers."""

    place: str
    candidates: list[dict[str, float]]
    chosen: int
    episode: Any = None
    step_id: Any = None
    timestamp: Any = None
    #: what the step says of itself
    shared: dict[str, float] = {}  # noqa: RUF012 - never changed
    #: the logged propensities, by the position of the candidate; those that are not known are not there
    propensities: dict[int, float] = {}  # noqa: RUF012 - never changed

    def whole_candidates(self) -> list[dict[str, float]]:
        """The candidates, each with what the step says of itself; what both have is added up."""
        return [
            self.shared | {name: value + self.shared.get(name, 0.0) for name, value in candidate.items()}
            for candidate in self.candidates
        ]


class SparseSource:
    """A `Source` over decisions whose candidates list the features that they have."""

    name: str
    preparation: Preparation | None
    feature_names: tuple[str, ...] | None
    notes: tuple[Note, ...]
    #: what stands between the name of a namespace and that of a feature in it
    separator: str
    #: the features that only steps have; None where they are left out
    step_features: frozenset[str] | None = None

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        self._opened = Opened(existing(path))
        self.name = self._opened.path.name
        self._options = options
        self.notes = ()
        self._with_shared = bool(options.cross or (options.preparation is not None and options.preparation.crosses))
        self._rows = self._numbers = 0
        self._told: set[float] = set()
        self._wrong: LogFormatError | None = None
        refuse_one_hot(options, "a text is a feature of its own in this format, without being asked for. Leave it out")
        refuse_keep(options, "in this format rewards and costs stand apart, and every feature is read. Leave it out")
        asked = asked_names(options)
        names = self._all_names() if asked is None else self._of_those(asked)
        # Whoever does not know a probability writes 1 or 0 everywhere, and so does whoever draws nothing.
        self._has_propensities = bool(self._told) and self._told not in ({0.0}, {1.0})
        if self._has_propensities and self._wrong is not None:
            raise self._wrong
        self._columns = {name: column for column, name in enumerate(names)}
        self.feature_names = tuple(names)
        columns = tuple(FeatureColumn(name, fill=0.0) for name in names)
        preparation = options.preparation or Preparation(columns, tuple(options.columns.items()))
        if preparation.feature_names != self.feature_names:
            preparation = preparation.uncrossed
        self.preparation = preparation.raw
        # A model may have been fitted to data where something else stood for missing numbers.
        fills = {column.name: column.fill or 0.0 for column in preparation.columns if column.categories is None}
        self._absent = np.array([fills.get(name, 0.0) for name in names])
        share = self._numbers / (self._rows * len(names))
        self._is_sparse = sparse_pays(len(names), share) and not self._absent.any()
        self.notes = (*self.notes, *self._remarks())

    # -- what a format provides ------------------------------------------------------------------------------------

    def _decisions(self) -> Iterator[Decision]:
        """All decisions in the order of the file, for the first pass; raises where one is broken."""
        raise NotImplementedError

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines of the file, with their numbers from 1."""
        try:
            yield from text_lines(self._opened, self._options.memory)
        except LogFormatError as error:
            raise LogFormatError(f"{self.name}, {error}") from None

    def _in_order(self) -> Iterator[Decision]:
        """All decisions in the order in which they are to be read."""
        return self._decisions()

    def _remarks(self) -> list[Note]:
        """What the first pass met that a reader should know."""
        return []

    # -- the first pass --------------------------------------------------------------------------------------------

    def _first_pass(self) -> Iterator[Decision]:
        """All decisions; what they say of propensities is looked at on the way."""
        for decision in self._decisions():
            logged = decision.propensities
            if decision.chosen in logged and len(self._told) < 2:
                self._told.add(logged[decision.chosen])
            if logged and self._wrong is None:
                values = np.array([logged.get(place, np.nan) for place in range(len(decision.candidates))])
                found = wrong_propensity(values, np.array([decision.chosen]))
                if found is not None:
                    self._wrong = self._error(
                        decision.place,
                        f"candidate {found[0]}: {found[1]}. Correct it, or read without: {self._without_propensities}.",
                    )
            yield decision

    @property
    def _without_propensities(self) -> str:
        """How to leave them out, within a sentence."""
        raise NotImplementedError

    def _whole(self, decisions: Iterator[Decision]) -> Iterator[Decision]:
        """The decisions with what candidates share, if products are asked for."""
        if not self._with_shared:
            return decisions
        return (decision._replace(candidates=decision.whole_candidates()) for decision in decisions)

    def _all_names(self) -> list[str]:
        """Every name in the file, in the order of appearance, but those to drop."""
        drop = set(self._options.drop)
        found: dict[str, None] = {}
        seen: set[str] = set()
        of_steps: set[str] = set()
        of_candidates: set[str] = set()
        steps = 0
        for decision in self._first_pass():
            steps += 1
            self._rows += len(decision.candidates)
            if self._with_shared:
                of_steps.update(decision.shared)
                of_candidates.update(*decision.candidates)
                decision = decision._replace(candidates=decision.whole_candidates())
            for candidate in decision.candidates:
                self._numbers += len(candidate)
                if seen >= candidate.keys():
                    continue
                seen.update(candidate)
                found.update((name, None) for name in candidate if name not in drop)
                if len(found) > MOST_FEATURES:
                    raise self._error(
                        decision.place,
                        f"{len(found)} different features so far: at most {MOST_FEATURES} can be read. That many words "
                        "and ids do not make features of a linear policy; replace them by numbers, or name the "
                        "features to read: features=[...] (--features).",
                    )
        self._check_steps(steps)
        if self._with_shared:
            self.step_features = frozenset(of_steps - of_candidates)
        if not found:
            raise LogFormatError(f"{self.name}: no candidate has a feature; there is nothing to tell them apart.")
        absent = [name for name in self._options.drop if name not in seen and name not in self._own_keys()]
        if absent:
            raise LogFormatError(f"{self.name}: {some(absent)} cannot be dropped: it appears nowhere; check the name.")
        return list(found)

    def _own_keys(self) -> tuple[str, ...]:
        """What `drop` may name besides features."""
        return ()

    def _of_those(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The names asked for; what else is in the file is only counted."""
        made = self._options.preparation
        # A log that was written with the products of a model has those instead.
        products = set() if made is None else set(made.feature_names) - set(asked)
        wanted = {*asked, *products}
        seen: set[str] = set()
        ignored: dict[str, None] = {}
        steps = 0
        for decision in self._whole(self._first_pass()):
            steps += 1
            self._rows += len(decision.candidates)
            for candidate in decision.candidates:
                self._numbers += sum(name in wanted for name in candidate)
                if seen >= candidate.keys():
                    continue
                seen.update(name for name in candidate if name in wanted)
                if len(ignored) < MOST_FEATURES:
                    ignored.update((name, None) for name in candidate if name not in wanted)
        self._check_steps(steps)
        if made is not None and products & seen:
            asked = made.feature_names
        if not seen:
            raise LogFormatError(
                f"{self.name}: none of the {plural(len(asked), 'feature')} asked for ({some(asked)}) appears in it; "
                f"it has {some(ignored) or 'no features'}. Are the names spelt as in the log that the model was "
                "fitted to?"
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
        """All steps from the first on, a few million numbers at a time."""
        d = len(self._columns)
        batch = self._batch()
        for decision in self._whole(self._in_order()):
            count = len(decision.candidates)
            if count * d > _MOST_NUMBERS and not self._is_sparse:
                raise self._error(
                    decision.place,
                    f"{count} candidates of {d} features are {count * d} numbers in one step, too many to be read "
                    "densely; name the features to read: features=[...] (--features).",
                )
            if batch.rows and batch.numbers + (0 if self._is_sparse else count * d) > BATCH_NUMBERS:
                yield batch.steps()
                batch = self._batch()
            batch.add(decision)
        if batch.rows:
            yield batch.steps()

    def _batch(self) -> _Batch:
        return _Batch(self._columns, None if self._is_sparse else self._absent, self._has_propensities)


class _Batch:
    """Decisions on their way into steps: where each number will stand, and the number; ``absent`` None: sparsely."""

    def __init__(self, columns: dict[str, int], absent: NDArray[np.float64] | None, propensities: bool) -> None:
        self.rows = 0
        self._propensities: array[float] | None = array("d") if propensities else None
        self._columns, self._absent = columns, absent
        # Plain arrays: a few million numbers as Python objects would be many times as large.
        self._places, self._values = array("q"), array("d")
        self._counts: list[int] = []
        self._chosen: list[int] = []
        self._extras: list[tuple[Any, Any, Any]] = []

    @property
    def numbers(self) -> int:
        """How many are held."""
        return len(self._places) if self._absent is None else self.rows * len(self._columns)

    def add(self, decision: Decision) -> None:
        columns, places, values = self._columns, self._places, self._values
        for row, candidate in enumerate(decision.candidates, start=self.rows):
            start = row * len(columns)
            for name, value in candidate.items():
                column = columns.get(name)
                if column is not None:
                    places.append(start + column)
                    values.append(value)
        if self._propensities is not None:
            logged = decision.propensities
            self._propensities.extend(logged.get(place, np.nan) for place in range(len(decision.candidates)))
        self.rows += len(decision.candidates)
        self._counts.append(len(decision.candidates))
        self._chosen.append(decision.chosen)
        self._extras.append((decision.episode, decision.step_id, decision.timestamp))

    def steps(self) -> Steps:
        d = len(self._columns)
        places, values = np.asarray(self._places, dtype=np.int64), np.asarray(self._values, dtype=np.float64)
        if self._absent is None:
            contexts: Contexts = ordered(sparse.csr_array((values, np.divmod(places, d)), shape=(self.rows, d)))
        else:
            # Assigned, not added: -0.0 stays what it is.
            flat = np.tile(self._absent, self.rows)
            flat[places] = values
            contexts = flat.reshape(-1, d)
        episode, step_ids, timestamps = (as_array(list(values)) for values in zip(*self._extras, strict=True))
        counts, chosen = (np.array(values, dtype=np.int64) for values in (self._counts, self._chosen))
        logged = None if self._propensities is None else np.asarray(self._propensities, dtype=np.float64)
        return Steps(contexts, counts, chosen, episode, step_ids, timestamps, propensities=logged)


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
            raise LogFormatError(f"feature name {name!r} cannot be written as UTF-8; rename the feature.") from None
    return names
