"""Long rows, one per candidate, become steps: consecutive rows with the same step (and episode) are one step's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.cells import changes, check_digits, complete, marked, named_by, names_of, values_of
from ibcb.io.columns import assign_roles, check_roles, feature_matrix, fitted_roles, plan_features, role_missing
from ibcb.io.format import Tables
from ibcb.io.logged import Logged, of_every_candidate
from ibcb.io.sources import labelled, unlabelled_steps
from ibcb.io.words import Problems, note, refusal, sentence
from ibcb.io.written import metadata, selected
from ibcb.log.array_checks import LogFormatError
from ibcb.log.choice_propensities import of_chosen
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import Steps
from ibcb.numerics.printable import shown

#: copies of the rows of a step that are made until a policy is fitted to it
_STEP_COPIES = 16
#: steps without an episode column are looked for among the last so many, to find one that comes back
_REMEMBERED = 1 << 20
#: the roles of columns that steps are called by, and whether a log can do without
_ROLES = {"episode": False, "step": False, "step_id": True, "timestamp": True}


class Labels(dict[str, NDArray[Any]]):
    """The values of such columns, one per step, by their roles."""

    def of_steps(
        self, roles: Mapping[str, str]
    ) -> tuple[NDArray[Any] | None, NDArray[Any] | None, NDArray[Any] | None]:
        """Episodes, names and times of the steps, as `ibcb.log.steps.Steps` takes them.

        A column called step counts the steps of an episode; any other has names of steps worth keeping.
        """
        names = self.get("step_id", None if roles.get("step") == "step" else self.get("step"))
        return self.get("episode"), names, self.get("timestamp")


def read_labels(rows: pa.Table, roles: Mapping[str, str], row: int, first: pa.Array | None = None) -> Labels:
    """What the steps in some rows are called; ``first`` has the first row of each, where a step has several.

    ``row`` is the number of the first of the rows.
    """
    labels = Labels()
    for role, optional in _ROLES.items():
        if role in roles:
            # What names steps must have kept all its digits.
            read = named_by if role in ("step", "step_id") else complete
            column = read(rows, roles[role], row, optional=optional)
            labels[role] = values_of(column if first is None else column.take(first))
    return labels


class StepOrder:
    """Steps must rise within an episode, or, where that cannot be said of them, not come back."""

    def __init__(self) -> None:
        self._last: tuple[Any, Any] | None = None
        self._seen: set[Any] = set()

    def __call__(self, labels: Labels) -> None:
        steps, episodes = labels["step"], labels.get("episode")
        if episodes is not None and steps.dtype.kind in "iufM":
            self._rising(episodes, steps)
        else:
            self._distinct(episodes, steps)

    def _rising(self, episodes: NDArray[Any], steps: NDArray[Any]) -> None:
        last = self._last or (None, None)
        same = np.concatenate([[episodes[0] == last[0]], episodes[1:] == episodes[:-1]])
        still = np.concatenate([[same[0] and steps[0] <= last[1]], steps[1:] <= steps[:-1]])
        if (same & still).any():
            at = int(np.argmax(same & still))
            raise refusal(
                "step-falls", step=steps[at], episode=plain_label(episodes[at]), before=steps[at - 1] if at else last[1]
            )
        self._last = episodes[-1], steps[-1]

    def _distinct(self, episodes: NDArray[Any] | None, steps: NDArray[Any]) -> None:
        for place, step in enumerate(steps.tolist()):
            episode = None if episodes is None else episodes[place]
            if self._last is not None and episode != self._last[0]:
                self._seen.clear()
            if step in self._seen:
                where = "" if episode is None else f" of episode {plain_label(episode)}"
                raise refusal("step-comes-back", step=step, where=where)
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen.add(step)
            self._last = episode, step


def plain_label(value: Any) -> str:
    """A label within a sentence: as it is if it is plain and short."""
    text = str(value)
    return text if text.isprintable() and len(text) <= 60 else shown(value)


class CandidateRows:
    """Steps of a table with a row per candidate; see `Source`."""

    def __init__(self, tables: Tables, options: ReadOptions, told: bool) -> None:
        self.name, self._tables, self._options = tables.name, tables, options
        schema, written = tables.schema, metadata(tables.schema)
        names: tuple[str, ...] | None = None
        if written.features is not None:  # nothing is left to guess
            # A model may know names for features that have none here.
            known = written.features if written.feature_names is None and options.preparation is None else None
            others = [name for name in schema.names if name not in written.features]
            names, kept = selected(known or written.feature_names, options, others)
            names = written.feature_names if kept is None else names
            some = written.features if kept is None else [written.features[place] for place in kept]
            made = Preparation(tuple(map(FeatureColumn, some)), written.roles)
            options = replace(options, preparation=made, features=None)
        if options.preparation is not None:
            options = replace(options, columns=fitted_roles(schema.names, options))
        self._roles, rest = assign_roles(schema.names, options)
        problems = Problems()
        for role in ("step", *(("chosen",) if options.choices else ())):
            if role not in self._roles:
                problems.add(role_missing(role, schema.names, options))
        if not self._roles:  # nothing in it is understood, so that more would mislead
            problems.settle()
        with problems.noted():
            check_roles(schema, self._roles)
        self._guessed_time = "timestamp" in self._roles and "timestamp" not in options.columns
        self._logged: Logged | None = None
        if "propensity" in self._roles and options.choices:
            self._logged = Logged(self._roles["propensity"], told or written.features is not None)
        # Written by us it has those of all candidates, whatever they are.
        self._logged_of_every = True if written.features is not None else None
        if self._roles.get("propensity") in tables.of_step:
            self._logged_of_every = False
        try:
            self._plan = plan_features(tables, self._roles, rest, options, problems=problems)
        except LogFormatError:
            nested = any(pa.types.is_nested(schema.field(name).type) for name in self._roles.values())
            if problems and self._roles.keys() >= {"step", "chosen"} and not nested:
                with problems.noted():
                    self._check_marks()
                problems.settle()
            raise
        self.preparation: Preparation | None = self._plan.preparation
        self.feature_names: tuple[str, ...] | None = self._plan.preparation.feature_names
        if written.features is not None:
            self.preparation, self.feature_names = written.recipe(names), names
        self._notes = (*written.notes, *self._plan.notes, *(() if self._logged is None else self._logged.notes))
        self._strange, self._unlabelled, self._times = Counter[str](), 0, 0

    @property
    def notes(self) -> tuple[Note, ...]:
        strange = (
            note("unknown-categories", "warning", column=name, values=count) for name, count in self._strange.items()
        )
        varying: tuple[Note, ...] = ()
        if self._times:
            varying = (note("varying-times", "warning", column=self._roles["timestamp"], steps=self._times),)
        return (*self._tables.notes(), *self._notes, *varying, *strange, *unlabelled_steps(self._unlabelled))

    def batches(self) -> Iterator[Steps]:
        """Whole steps; one that a table cuts in two waits for the next table."""
        self._strange, self._unlabelled, self._times = Counter(), 0, 0
        logged = self._logged
        if logged is not None and self._logged_of_every is None:
            parts = self._whole_steps(self._columns("episode", "step", "chosen", "propensity"))
            self._logged_of_every = of_every_candidate(
                (logged.numbers(rows[logged.column]), starts, self._marks(rows, starts, row)[0])
                for rows, starts, row in parts
            )
        features = [column.name for column in self._plan.preparation.columns]
        order = StepOrder()
        for rows, starts, row in self._whole_steps(list(dict.fromkeys([*self._roles.values(), *features]))):
            yield self._steps(rows, starts, order, row)

    def _whole_steps(self, columns: Sequence[str]) -> Iterator[tuple[pa.Table, NDArray[np.int64], int]]:
        """Rows of whole steps, where each of them begins, and the number of the first row."""
        held: list[pa.Table] = []  # rows of a step that may go on in the next table
        row = 0
        for table, following in pairwise(chain(filter(len, self._tables.read(columns)), [None])):
            waiting = sum(map(len, held))
            # With the last row that is held, to see whether its step goes on.
            last = [held[-1].slice(len(held[-1]) - 1)] if held else []
            starts = self._starts(pa.concat_tables([*last, table]), row + waiting - len(last)) - len(last)
            starts = starts[starts >= 0]
            begins = np.concatenate([[0] * bool(held), waiting + starts]).astype(np.int64)
            if following is None:
                yield pa.concat_tables([*held, table]), begins, row
            elif len(starts):
                rows = pa.concat_tables([*held, table.slice(0, int(starts[-1]))])
                held = [table.slice(int(starts[-1]))]
                if len(begins) > 1:
                    yield rows, begins[:-1], row
                row += rows.num_rows
            else:
                held.append(table)
            size = _STEP_COPIES * sum(part.nbytes for part in held)
            if size > self._options.memory:
                words = sentence("step-endless", row=row, rows=sum(map(len, held)), size=amount(size))
                remedy = f"are steps told apart by the column {shown(self._roles['step'])}? Name another, "
                raise beyond(words, self._options.memory, remedy)

    def _starts(self, rows: pa.Table, row: int) -> NDArray[np.int64]:
        """Where every step begins in some rows, of which the first is number ``row`` of the log."""
        new = np.zeros(rows.num_rows, dtype=bool)
        new[0] = True
        for role in ("episode", "step"):
            if role in self._roles:
                new[1:] |= changes((named_by if role == "step" else complete)(rows, self._roles[role], row))
        return np.flatnonzero(new)

    def _steps(self, rows: pa.Table, starts: NDArray[np.int64], order: StepOrder, row: int) -> Steps:
        labels = read_labels(rows, self._roles, row, pa.array(starts))
        order(labels)
        counts = np.diff(starts, append=rows.num_rows)
        problems = Problems()
        with problems.noted():
            chosen = self._chosen(rows, starts, row)
        with problems.noted():
            contexts, strange = feature_matrix(rows, self._plan, row)
        problems.settle()
        logged: NDArray[np.float64] | None = None
        if self._logged is not None:
            chosen_rows, logged = (starts + chosen)[chosen >= 0], self._logged.numbers(rows[self._logged.column])
            self._logged.check(logged, chosen_rows, row)
            if not self._logged_of_every:
                logged = of_chosen(logged[chosen_rows], chosen_rows, len(logged))
        candidate = self._roles.get("candidate")
        if candidate is not None:
            check_digits(rows[candidate], candidate, row)
        self._strange.update(strange)
        if self._guessed_time:
            changed = np.setdiff1d(np.flatnonzero(changes(complete(rows, self._roles["timestamp"], row))) + 1, starts)
            self._times += len(np.unique(np.searchsorted(starts, changed, side="right")))
        ids = names_of(rows[candidate]) if candidate is not None else None
        steps = Steps(contexts, counts, chosen, *labels.of_steps(self._roles), ids, logged)
        self._unlabelled += int((chosen < 0).sum())
        return labelled(steps)

    def _columns(self, *roles: str) -> list[str]:
        return [self._roles[role] for role in roles if role in self._roles]

    def _chosen(self, rows: pa.Table, starts: NDArray[np.int64], row: int) -> NDArray[np.int64]:
        """The position of the chosen candidate of every step; -1 where none is and such steps are to be left out."""
        if "chosen" not in self._roles:
            return np.zeros(len(starts), dtype=np.int64)
        marks, number = self._marks(rows, starts, row)
        if self._wrong(number).any():
            self._check_marks()
        chosen = np.full(len(starts), -1)
        chosen[number == 1] = np.flatnonzero(marks) - starts[number == 1]
        return chosen

    def _marks(
        self, rows: pa.Table, starts: NDArray[np.int64], row: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which rows are marked, and how many of each step."""
        marks = marked(rows, self._roles["chosen"], row)
        return marks, np.add.reduceat(marks.astype(np.int64), starts)

    def _wrong(self, number: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which steps have so many marks that they are refused."""
        wrong: NDArray[np.bool_] = (number > 1) | ((number == 0) & (not self._options.skip_unlabelled))
        return wrong

    def _check_marks(self) -> None:
        """Refuse steps without a chosen candidate, or with several: how many of the log, and the first few."""
        wrong: list[tuple[str, int]] = []
        for rows, starts, row in self._whole_steps(self._columns("episode", "step", "chosen")):
            number = self._marks(rows, starts, row)[1]
            bad = np.flatnonzero(self._wrong(number))
            first = rows.take(pa.array(starts[bad]))
            labels = {role: values_of(first[self._roles[role]]) for role in ("episode", "step") if role in self._roles}
            wrong += [
                (", ".join(f"{role} {plain_label(values[at])}" for role, values in labels.items()), int(number[step]))
                for at, step in enumerate(bad)
            ]
        if not wrong:
            return
        place, count = wrong[0]
        what = "no candidate is" if count == 0 else f"{count} candidates are"
        skip = ", or leave such steps out with skip_unlabelled=True (--skip-unlabelled)" if count == 0 else ""
        others = ""
        if len(wrong) > 1:
            none = sum(count == 0 for _, count in wrong)
            some = "; ".join(place for place, _ in wrong[1:4]) + ("; ..." if len(wrong) > 4 else "")
            others = " " + sentence("marks-not-one", steps=len(wrong), none=none, several=len(wrong) - none, some=some)
        raise refusal("mark-not-one", place=place, what=what, column=self._roles["chosen"], skip=skip, others=others)
