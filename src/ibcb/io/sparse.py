"""Candidates as names with numbers: what Vowpal Wabbit text and dsjson have in common.

A candidate lists the features it has; those it does not list are 0. A first pass over the file collects the names, in
the order in which they appear, and meets every error that the file holds. What a step says of itself, rather than of
a candidate, is added to all of its candidates where products are asked for, and left out elsewhere.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.io.opened import Opened
from ibcb.io.sources import (
    BATCH_NUMBERS,
    MOST_FEATURES,
    asked_names,
    file_without_columns,
    in_order,
    same_features,
    shared_features,
    some,
    unlabelled_steps,
)
from ibcb.io.words import refusal
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.choice_propensities import wrong_propensity
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import Steps
from ibcb.numerics.contexts import Contexts, dense, ordered, sparse_pays

_MOST_NUMBERS = 2**28
#: examples that notes have
_MOST_SHOWN = 1000


class Decision(NamedTuple):
    """One step, each candidate a mapping of names to numbers."""

    place: str
    candidates: list[dict[str, float]]
    #: the position of the chosen candidate; None where nothing tells
    chosen: int | None
    episode: Any = None
    step_id: Any = None
    timestamp: Any = None
    #: what the step says of itself
    shared: dict[str, float] = {}  # noqa: RUF012 - never changed
    #: the logged propensities, by the position of the candidate; those that are not known are not there
    propensities: dict[int, float] = {}  # noqa: RUF012 - never changed

    def every_propensity(self) -> list[float]:
        """Of each candidate, NaN where it is not known."""
        return [self.propensities.get(place, np.nan) for place in range(len(self.candidates))]


class SparseSource:
    """A `Source` over decisions whose candidates list the features that they have."""

    # -- what a format provides ------------------------------------------------------------------------------------

    #: what stands between the name of a namespace and that of a feature in it
    separator: str
    #: what the format calls the features of steps
    _shared_words: str
    #: the roles that a column may be named for, and what `drop` may name besides features
    _roles: tuple[str, ...] = ()
    _own_keys: tuple[str, ...]
    #: how to leave propensities out, within a sentence
    _without_propensities: str
    #: what tells no choice, and what is left out on request then
    _no_choice: tuple[str, str]

    def _read(self) -> Iterator[Decision]:
        """All decisions in the order of the file; raises where one is broken."""
        raise NotImplementedError

    def _remarks(self) -> list[Note]:
        """What the first pass met that a reader should know."""
        return []

    # -- the first pass --------------------------------------------------------------------------------------------

    #: the features that only steps have; None where they are left out
    step_features: frozenset[str] | None = None

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        reason = "a text is a feature of its own in this format, without being asked for. Leave it out"
        keep = "in this format rewards and costs stand apart, and every feature is read. Leave it out"
        self._opened = Opened(file_without_columns(path, options, reason, keep, self._roles))
        self.name = self._opened.path.name
        preparation = options.preparation
        if preparation is not None:
            before = {role: key for role, key in preparation.roles if role in self._roles}
            options = replace(options, columns=before | dict(options.columns))
        self._options = options
        self._with_shared = bool(options.cross or (preparation is not None and preparation.crosses))
        self.notes: tuple[Note, ...] = ()
        #: features of steps, the first few, and how many steps or lines were left out, by the reason
        self._shared: dict[str, None] = {}
        self._left_out = Counter[str]()
        names, share = self._first_pass()
        self._columns = {name: column for column, name in enumerate(names)}
        self.feature_names: tuple[str, ...] | None = names
        columns = tuple(FeatureColumn(name, fill=0.0) for name in names)
        preparation = preparation or Preparation(columns, tuple(options.columns.items()))
        if preparation.feature_names != names:
            preparation = preparation.uncrossed
        self.preparation: Preparation | None = preparation.raw
        # A model may have been fitted to data where something else stood for missing numbers.
        fills = {column.name: column.fill or 0.0 for column in preparation.columns if column.categories is None}
        self._absent = np.array([fills.get(name, 0.0) for name in names])
        self._is_sparse = sparse_pays(len(names), share) and not self._absent.any()
        if self._shared and not self._with_shared:
            first, other = (next(iter(each)).partition(self.separator)[0] for each in (self._shared, names))
            self.notes += (shared_features(self._shared, self._shared_words, (first, other)),)
        self.notes += (*self._remarks(), *unlabelled_steps(self._left_out["no choice"]))

    def _decisions(self) -> Iterator[Decision]:
        """Those that are read."""
        self._left_out.clear()
        for decision in self._read():
            if decision.chosen is not None or not self._options.choices:
                yield decision
            elif self._options.skip_unlabelled:
                self._left_out["no choice"] += 1
            else:
                raise refusal(
                    "choice-untold", place=decision.place, reason=self._no_choice[0], steps=self._no_choice[1]
                )

    def _first_pass(self) -> tuple[tuple[str, ...], float]:
        """The names of the features to read, in order, and the share of their numbers that is there."""
        made, asked = self._options.preparation, asked_names(self._options)
        # A log that was written with the products of a model has those instead.
        products = set() if made is None else set(made.feature_names) - set(asked or ())
        wanted = None if asked is None else {*asked, *products}
        there, others = dict[str, None](), dict[str, None]()
        of_steps, of_candidates, probabilities = set[str](), set[str](), set[float]()
        steps = rows = numbers = 0
        wrong = ""
        for decision in self._decisions():
            steps, rows = steps + 1, rows + len(decision.candidates)
            if decision.propensities and not wrong:
                reason = wrong_propensity(np.array(decision.every_propensity()), np.array([decision.chosen]))
                wrong = "" if reason is None else f"{decision.place}: candidate {reason[0]}: {reason[1]}"
            if decision.chosen in decision.propensities and len(probabilities) < 2:
                probabilities.add(decision.propensities[decision.chosen])
            if self._with_shared:
                of_steps.update(decision.shared)
                of_candidates.update(*decision.candidates)
            for candidate in self._whole(decision):
                if there.keys() >= candidate.keys():
                    numbers += len(candidate)
                    continue
                own = [name for name in candidate if wanted is None or name in wanted]
                numbers += len(own)
                there.update(dict.fromkeys(own))
                if len(others) < MOST_FEATURES and len(own) < len(candidate):
                    others.update((name, None) for name in candidate if name not in there)
            if wanted is None and len(there) > MOST_FEATURES + len(self._options.drop):
                raise refusal("features-too-many", place=decision.place, count=len(there), most=MOST_FEATURES)
        if steps == 0:
            raise LogFormatError("the log is empty: it has no step. Is it the right file?")
        # Whoever does not know a probability writes 1 or 0 everywhere, and so does whoever draws nothing.
        self._has_propensities = bool(probabilities) and probabilities not in ({0.0}, {1.0})
        if self._has_propensities and wrong:
            raise LogFormatError(f"{wrong}. Correct it, or read without: {self._without_propensities}.")
        if self._with_shared:
            self.step_features = frozenset(of_steps - of_candidates)
        if made is not None and products & there.keys():
            asked = made.feature_names
        names = self._not_dropped(there) if asked is None else asked
        if asked is not None:
            self._compare(asked, there, others)
        return names, numbers / (rows * len(names))

    def _not_dropped(self, there: Mapping[str, None]) -> tuple[str, ...]:
        """Every name in the file, in the order of appearance, but those to drop."""
        drop = self._options.drop
        names = tuple(name for name in there if name not in drop)
        if not names:
            raise LogFormatError("no candidate has a feature; there is nothing to tell them apart.")
        absent = [name for name in drop if name not in there and name not in self._own_keys]
        if absent:
            raise LogFormatError(f"{some(absent)} cannot be dropped: it appears nowhere; check the name.")
        return names

    def _compare(self, asked: tuple[str, ...], there: Mapping[str, None], others: Mapping[str, None]) -> None:
        """Note what was asked for and is not there, and what is there and was not asked for."""
        if not there:
            raise refusal("features-nowhere", count=len(asked), asked=some(asked), there=some(others) or "no features")
        if others:
            many = "more than " if len(others) >= MOST_FEATURES else ""
            text = f"{many}{plural(len(others), 'feature')} not asked for left out: {some(others)}."
            self.notes += (Note("features-not-asked-for", "info", text, {"features": len(others)}),)
        absent = tuple(name for name in asked if name not in there)
        if absent:
            text = f"{plural(len(absent), 'feature')} asked for appear nowhere: {some(absent)}."
            self.notes += (Note("features-absent", "warning", text, {"features": absent}),)

    def _remember(self, names: dict[str, None], more: Iterable[str]) -> None:
        """The first few of some names, for a note."""
        if len(names) < _MOST_SHOWN:
            names.update(dict.fromkeys(more))

    # -- the second pass -------------------------------------------------------------------------------------------

    def _whole(self, decision: Decision) -> list[dict[str, float]]:
        """The candidates; where products are asked for, each with what the step says of itself, added up."""
        if not self._with_shared:
            return decision.candidates
        shared = decision.shared
        return [
            shared | {name: value + shared.get(name, 0.0) for name, value in candidate.items()}
            for candidate in decision.candidates
        ]

    def batches(self) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time."""
        held = batch = 0

        def number(decision: Decision) -> int:
            """Of the batch to which a decision belongs."""
            nonlocal held, batch
            count, d = len(decision.candidates), len(self._columns)
            if count * d > _MOST_NUMBERS and not self._is_sparse:
                raise refusal("step-too-wide", place=decision.place, count=count, d=d, numbers=count * d)
            size = count + sum(map(len, decision.candidates)) if self._is_sparse else count * d
            if held and held + size > BATCH_NUMBERS:
                held, batch = 0, batch + 1
            held += size
            return batch

        batches = (self._steps(decisions) for _, decisions in groupby(self._decisions(), number))
        return in_order(batches, self._options.memory) if self._options.sort else batches

    def _steps(self, decisions: Iterable[Decision]) -> Steps:
        columns, d, row = self._columns, len(self._columns), 0
        # Plain arrays: a few million numbers as Python objects would be many times as large.
        places, values, logged = array("q"), array("d"), array("d")
        each: list[tuple[int, int, Any, Any, Any]] = []
        for decision in decisions:
            for candidate in self._whole(decision):
                start = row * d
                for name, value in candidate.items():
                    column = columns.get(name)
                    if column is not None:
                        places.append(start + column)
                        values.append(value)
                row += 1
            if self._has_propensities:
                logged.extend(decision.every_propensity())
            each.append((len(decision.candidates), decision.chosen or 0, *decision[3:6]))
        where, numbers = np.asarray(places, dtype=np.int64), np.asarray(values)
        if self._is_sparse:
            contexts: Contexts = ordered(sparse.csr_array((numbers, np.divmod(where, d)), shape=(row, d)))
        else:
            # Assigned, not added: -0.0 stays what it is.
            flat = np.tile(self._absent, row)
            flat[where] = numbers
            contexts = flat.reshape(-1, d)
        counts, chosen, *extras = zip(*each, strict=True)
        episode, step_ids, timestamps = (_as_array(list(values)) for values in extras)
        told = np.asarray(logged) if self._has_propensities else None
        return Steps(contexts, np.array(counts), np.array(chosen), episode, step_ids, timestamps, propensities=told)


def _as_array(values: list[Any]) -> NDArray[Any] | None:
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
    return np.fromiter(values, dtype=object, count=len(values))


def steps_to_write(
    parts: Iterable[tuple[int, BehaviorLog]],
) -> Iterator[tuple[int, BehaviorLog, int, list[dict[str, float]]]]:
    """Every step: number of its episode, part of the log, its place there, and its candidates by names.

    Features are called x0, x1, ... where they have no names. The first candidate has all of them, so that their order
    comes back; the others leave out those that are 0.
    """
    names: tuple[str, ...] = ()
    for number, part in same_features(parts):
        every = not names
        names = names or part.feature_names or tuple(f"x{column}" for column in range(part.n_features))
        for name in names if every else ():
            try:
                name.encode()
            except UnicodeEncodeError:
                raise LogFormatError(f"feature name {name!r} cannot be written as UTF-8; rename the feature.") from None
        for step, (start, end) in enumerate(pairwise(part.step_offsets.tolist())):
            candidates = []
            for row in dense(part.contexts[start:end]).tolist():
                # Of the zeros, -0.0 is written.
                candidates.append({n: v for n, v in zip(names, row, strict=True) if v or every or repr(v) == "-0.0"})
                every = False
            yield number, part, step, candidates
