"""Logs in tables, one row per candidate (long) or one row per step, wherever the table comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ibcb.io.armtables import ArmRows
from ibcb.io.cells import (
    KEY,
    Stored,
    check_digits,
    check_size,
    complete,
    flattened,
    is_list,
    marked,
    metadata,
    named_by,
    names_of,
    one_array,
    values_of,
    whole_column,
)
from ibcb.io.columns import (
    Plan,
    assign_roles,
    check_roles,
    feature_matrix,
    listed,
    normal_name,
    plan_features,
    shown_type,
)
from ibcb.io.layouts import arranged
from ibcb.io.problems import Problems
from ibcb.io.propensities import Logged, of_every_candidate
from ibcb.io.rows import RowGroups, Tables, distinct_columns, whole_table
from ibcb.io.sources import kept_features, labelled, refuse_keep, refuse_one_hot, unlabelled_steps
from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.propensities import of_chosen
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import ROLES, ReadOptions, Source, Steps
from ibcb.numerics.contexts import Contexts

__all__ = ["RowGroups", "StepRows", "Tables", "table_source"]

#: steps without an episode column are looked for among the last so many, to find one that comes back
_REMEMBERED = 1 << 20
#: copies of the rows of a step that are made until a policy is fitted to it
_STEP_COPIES = 16
#: roles that a log can do without
_OPTIONAL = ("timestamp", "step_id")


def table_source(tables: Tables, options: ReadOptions) -> Source:
    """The steps in some tables; their columns tell in which of the two forms."""
    distinct_columns(tables.schema.names)
    tables = _bounded(tables, options.memory)
    # Where features were named, nobody need be told that it is none.
    told = "propensity" in options.columns or options.features is not None or options.preparation is not None
    tables, options = arranged(tables, options)
    names = tables.schema.names
    if options.sort:
        tables = _sorted(tables, options)
    made = options.preparation
    if options.arm is not None or (
        made is not None and made.arms is not None and KEY not in (tables.schema.metadata or {})
    ):
        return ArmRows(tables.name, tables.schema, lambda columns: tables.read(columns, False), options, told)
    # A row per candidate may have a feature of that name.
    ours = {"contexts", "n_candidates"}.intersection(names).difference(options.features or (), options.drop)
    return StepRows(tables, options) if ours else _CandidateRows(tables, options, told)


def _bounded(tables: Tables, memory: int) -> Tables:
    """The same tables, each of them refused where its rows would take more memory than there is."""

    def checked(found: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for table in found:
            check_size(table, memory)
            yield table

    groups = tables.groups
    if groups is not None:
        some = groups.read
        groups = groups._replace(read=lambda columns, numbers: checked(some(columns, numbers)))
    return tables._replace(read=lambda columns, whole: checked(tables.read(columns, whole)), groups=groups)


def _sorted(tables: Tables, options: ReadOptions) -> Tables:
    """The same rows by episode, time and step; equal ones stay in order. Needs the memory for all of them."""
    roles, _ = assign_roles(tables.schema.names, options)
    check_roles(tables.schema, roles)
    whole = whole_table(tables, options.memory)
    keys = [roles[role] for role in ("episode", "timestamp", "step") if role in roles]
    row = "ibcb row"
    order = whole.select(keys).append_column(row, pa.array(np.arange(whole.num_rows)))
    whole = whole.take(pc.sort_indices(order, sort_keys=[(key, "ascending") for key in (*keys, row)]))
    return tables._replace(read=lambda columns, _: iter([whole.select(list(columns))]), groups=None)


# -- one row per candidate -------------------------------------------------------------------------------------------


class _CandidateRows:
    """Long form: consecutive rows with the same step (and episode) are the candidates of one step."""

    def __init__(self, tables: Tables, options: ReadOptions, told: bool) -> None:
        self.name, self._tables, self._options = tables.name, tables, options
        stored = metadata(tables.schema)
        names: tuple[str, ...] | None = None
        if stored.features is not None:  # written by us: nothing is left to guess
            made, names = _as_written(stored.features, stored, tables.schema.names, options)
            options = replace(options, preparation=made, features=None)
        if options.preparation is not None:
            usable = set(tables.schema.names) - set(options.drop)
            before = {role: name for role, name in options.preparation.roles if name in usable}
            options = replace(options, columns=before | dict(options.columns))
        roles, rest = assign_roles(tables.schema.names, options)
        problems = Problems()
        for role in ("step", *(("chosen",) if options.choices else ())):
            if role not in roles:
                problems.add(_role_missing(role, tables.schema.names, options))
        if not roles:  # nothing in it is understood, so that more would mislead
            problems.settle()
        with problems.noted():
            check_roles(tables.schema, roles)
        self._roles = roles
        self._logged: Logged | None = None
        # Written by us it has those of all candidates, whatever they are.
        self._logged_of_every: bool | None = True if stored.features is not None else None
        if "propensity" in roles and options.choices:
            self._logged = Logged(roles["propensity"], told or stored.features is not None)
            self._logged_of_every = False if roles["propensity"] in tables.of_step else self._logged_of_every
        try:
            self._plan: Plan = plan_features(
                tables.schema,
                roles,
                rest,
                options,
                lambda columns: tables.read(columns, False),
                of_step=tables.of_step,
                problems=problems,
            )
        except LogFormatError:
            nested = any(pa.types.is_nested(tables.schema.field(name).type) for name in roles.values())
            if problems and roles.keys() >= {"step", "chosen"} and not nested:
                with problems.noted():
                    self._check_marks()
                problems.settle()
            raise
        self.preparation: Preparation | None = self._plan.preparation
        self.feature_names: tuple[str, ...] | None = self._plan.preparation.feature_names
        if stored.features is not None:
            self.preparation, self.feature_names = _recipe(stored, names), names
        self._strange: dict[str, int] = {}
        self._unlabelled = 0

    @property
    def notes(self) -> tuple[Note, ...]:
        strange = tuple(
            Note(
                "unknown-categories",
                "warning",
                f"column {name!r} has {plural(count, 'value')} that the fitted log did not have; they count as none of "
                "its categories.",
                {"column": name, "values": count},
            )
            for name, count in self._strange.items()
        )
        logged = () if self._logged is None else self._logged.notes
        return (*self._tables.notes(), *self._plan.notes, *logged, *strange, *unlabelled_steps(self._unlabelled))

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """Whole steps; one that a table cuts in two waits for the next table."""
        self._strange, self._unlabelled = {}, 0
        if self._logged is not None and self._logged_of_every is None:
            self._logged_of_every = of_every_candidate(self._logged_values(self._logged))
        features = [column.name for column in self._plan.preparation.columns]
        columns = list(dict.fromkeys([*self._roles.values(), *features]))
        order = _Order()
        for rows, starts, row in self._whole_steps(columns, whole):
            yield self._steps(rows, starts, order, row)

    def _whole_steps(self, columns: Sequence[str], whole: bool) -> Iterator[tuple[pa.Table, NDArray[np.int64], int]]:
        """Rows of whole steps, where each of them begins, and the number of the first row."""
        held: list[pa.Table] = []  # rows of a step that may go on in the next table
        row = size = 0
        for table, is_last in _with_end(self._tables.read(columns, whole)):
            if table.num_rows == 0:
                continue
            waiting = sum(part.num_rows for part in held)
            # With the last row that is held, to see whether its step goes on.
            last = [held[-1].slice(held[-1].num_rows - 1)] if held else []
            starts = self._starts(pa.concat_tables([*last, table]), row + waiting - len(last)) - len(last)
            starts = starts[starts >= 0]
            begins = np.concatenate([[0] * bool(held), waiting + starts]).astype(np.int64)
            if is_last:
                yield pa.concat_tables([*held, table]), begins, row
                return
            if len(starts):
                rows = pa.concat_tables([*held, table.slice(0, int(starts[-1]))])
                held, size = [table.slice(int(starts[-1]))], 0
                if len(begins) > 1:
                    yield rows, begins[:-1], row
                row += rows.num_rows
            else:
                held.append(table)
            size += held[-1].nbytes
            if _STEP_COPIES * size > self._options.memory:
                rows = sum(part.num_rows for part in held)
                raise beyond(
                    f"the step that begins in row {row} (from 0) has {rows} rows or more; with all copies made of "
                    f"them they take {amount(_STEP_COPIES * size)}",
                    self._options.memory,
                    f"are steps told apart by the column {shown(self._roles['step'])}? Name another, ",
                )
        if held:
            yield pa.concat_tables(held), np.zeros(1, dtype=np.int64), row

    def _used(self) -> list[str]:
        return [role for role in self._roles if role not in ("candidate", "propensity")]

    def _starts(self, rows: pa.Table, row: int) -> NDArray[np.int64]:
        """Where every step begins in some rows, of which the first is number ``row`` of the log."""
        new = np.zeros(rows.num_rows, dtype=bool)
        new[0] = True
        for role in ("episode", "step"):
            if role in self._roles:
                column = (named_by if role == "step" else complete)(rows, self._roles[role], row)
                new[1:] |= pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1)).to_numpy()
        return np.flatnonzero(new)

    def _steps(self, rows: pa.Table, starts: NDArray[np.int64], order: _Order, row: int) -> Steps:
        first = pa.array(starts)
        at_start = {
            role: values_of(_read(rows, role, self._roles[role], row).take(first))
            for role in self._used()
            if role != "chosen"
        }
        order(at_start["step"], at_start.get("episode"))
        counts = np.diff(starts, append=rows.num_rows)
        problems = Problems()
        with problems.noted():
            chosen = self._chosen(rows, starts, row)
        with problems.noted():
            contexts, strange = feature_matrix(rows, self._plan, row)
        problems.settle()
        logged = None if self._logged is None else self._propensities(self._logged, rows, starts, chosen, row)
        if "candidate" in self._roles:
            check_digits(rows[self._roles["candidate"]], self._roles["candidate"], row)
        for name, count in strange.items():
            self._strange[name] = self._strange.get(name, 0) + count
        steps = Steps(
            contexts,
            counts,
            chosen,
            at_start.get("episode"),
            at_start.get("step_id", None if _counts_steps(self._roles["step"]) else at_start["step"]),
            at_start.get("timestamp"),
            names_of(rows[self._roles["candidate"]]) if "candidate" in self._roles else None,
            logged,
        )
        self._unlabelled += int((chosen < 0).sum())
        return labelled(steps)

    def _propensities(
        self, logged: Logged, rows: pa.Table, starts: NDArray[np.int64], chosen: NDArray[np.int64], row: int
    ) -> NDArray[np.float64]:
        """What was logged of every row."""
        values, chosen_rows = logged.numbers(rows[logged.column]), (starts + chosen)[chosen >= 0]
        logged.check(values, chosen_rows, row)
        return values if self._logged_of_every else of_chosen(values[chosen_rows], chosen_rows, len(values))

    def _logged_values(
        self, logged: Logged
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]]:
        """All that was logged, where each step begins, and which rows were chosen."""
        columns = [self._roles[role] for role in ("episode", "step", "chosen", "propensity") if role in self._roles]
        for rows, starts, row in self._whole_steps(columns, False):
            yield logged.numbers(rows[logged.column]), starts, self._marks(rows, starts, row)[0]

    def _chosen(self, rows: pa.Table, starts: NDArray[np.int64], row: int) -> NDArray[np.int64]:
        """The position of the chosen candidate of every step; -1 where none is and such steps are to be left out."""
        if "chosen" not in self._roles:
            return np.zeros(len(starts), dtype=np.int64)
        marks, found = self._marks(rows, starts, row)
        if (found > 1).any() or ((found == 0).any() and not self._options.skip_unlabelled):
            self._check_marks()
        chosen = np.full(len(starts), -1)
        chosen[found == 1] = np.flatnonzero(marks) - starts[found == 1]
        return chosen

    def _marks(
        self, rows: pa.Table, starts: NDArray[np.int64], row: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which rows are marked, and how many of each step."""
        marks = marked(rows, self._roles["chosen"], row)
        return marks, np.add.reduceat(marks.astype(np.int64), starts)

    def _check_marks(self) -> None:
        """Refuse steps without a chosen candidate, or with several: how many of the log, and the first few."""
        columns = [self._roles[role] for role in ("episode", "step", "chosen") if role in self._roles]
        wrong: list[tuple[str, int]] = []
        for rows, starts, row in self._whole_steps(columns, False):
            found = self._marks(rows, starts, row)[1]
            bad = np.flatnonzero((found > 1) | ((found == 0) & (not self._options.skip_unlabelled)))
            first = rows.take(pa.array(starts[bad]))
            labels = {role: values_of(first[name]) for role, name in self._roles.items() if role in ("episode", "step")}
            wrong += [(_place(labels, at), int(found[step])) for at, step in enumerate(bad)]
        if not wrong:
            return
        place, count = wrong[0]
        what = "no candidate is" if count == 0 else f"{count} candidates are"
        others = ""
        if len(wrong) > 1:
            none = sum(count == 0 for _, count in wrong)
            some = "; ".join(place for place, _ in wrong[1:4]) + ("; ..." if len(wrong) > 4 else "")
            others = (
                f" {len(wrong)} steps have that problem: {none} without a mark, {len(wrong) - none} with several "
                f"({some})."
            )
        skip = ", or leave such steps out with skip_unlabelled=True (--skip-unlabelled)" if count == 0 else ""
        raise LogFormatError(
            f"{place}: {what} marked in column {shown(self._roles['chosen'])}; every step needs exactly one chosen "
            f"candidate. Leave the step out, or mark one{skip}.{others}"
        )


class _Order:
    """Steps must rise within an episode, or, where that cannot be said of them, not come back."""

    def __init__(self) -> None:
        self._last: tuple[Any, Any] | None = None
        self._seen: set[Any] = set()

    def __call__(self, steps: NDArray[Any], episodes: NDArray[Any] | None) -> None:
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
            raise LogFormatError(
                f"step {steps[at]} of episode {_label(episodes[at])} follows step {steps[at - 1] if at else last[1]}; "
                "sort the rows by episode and step and keep each step together, or read with sort=True (--sort). "
                "Every step needs a number of its own."
            )
        self._last = episodes[-1], steps[-1]

    def _distinct(self, episodes: NDArray[Any] | None, steps: NDArray[Any]) -> None:
        for place, step in enumerate(steps.tolist()):
            episode = None if episodes is None else episodes[place]
            if self._last is not None and episode != self._last[0]:
                self._seen.clear()
            if step in self._seen:
                where = "" if episode is None else f" of episode {_label(episode)}"
                raise LogFormatError(
                    f"step {shown(step)}{where} comes back after other steps; keep the rows of a step together and "
                    "give every step a name of its own, or read with sort=True (--sort)."
                )
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen.add(step)
            self._last = episode, step


# -- one row per step ------------------------------------------------------------------------------------------------


class StepRows:
    """One row per step: ``chosen``, and ``contexts`` as lists of numbers, flat or one list per candidate.

    `ibcb.write_log` writes this form, with ``n_candidates`` and flat lists.
    """

    def __init__(self, tables: Tables, options: ReadOptions) -> None:
        self.name, self._tables, self._options = tables.name, tables, options
        self._unlabelled = 0
        stored = metadata(tables.schema)
        names = tables.schema.names
        kind = tables.schema.field("contexts").type if "contexts" in names else pa.list_(pa.float64())
        self._nested = is_list(kind) and is_list(kind.value_type)
        inner = kind.value_type.value_type if self._nested else kind.value_type if is_list(kind) else None
        if inner is None or not (pa.types.is_floating(inner) or pa.types.is_integer(inner) or pa.types.is_null(inner)):
            raise LogFormatError(
                f"column 'contexts' holds {shown_type(kind)}; it must hold lists of numbers, all features of a step's "
                "candidates. CSV cannot hold lists: give it a row per candidate and a column per feature."
            )
        own = ("contexts", "n_candidates", "columns", "sizes", "candidate_ids")
        roles, _ = assign_roles([name for name in names if name not in own], options)
        cut = options.cuts
        needed = ["contexts", *([] if self._nested else ["n_candidates"])]
        needed += ([] if cut else ["episode"]) + (["chosen"] if options.choices else [])
        for column in needed:
            if column not in (*names, *roles):
                other = "; if it has a row per candidate, leave out n_candidates (--drop n_candidates)"
                raise LogFormatError(
                    f"column {column!r} is missing; a log with a row per step has episode, step, chosen, "
                    f"n_candidates, contexts and this one has {listed(names)}{other if column == 'contexts' else ''}."
                )
        self._roles = {role: column for role, column in roles.items() if role not in ("candidate", "propensity")}
        check_roles(tables.schema, self._roles)
        # Lists and single numbers alike are of no other use here.
        self._logged = Logged(roles["propensity"], told=True) if options.choices and "propensity" in roles else None
        self._counted = "n_candidates" in names
        self._d, self._sparse = stored.n_features, stored.sparse
        self._named = "candidate_ids" in names and is_list(tables.schema.field("candidate_ids").type)
        for column in ("columns", "sizes") if self._sparse else ():
            if column not in names or not is_list(tables.schema.field(column).type):
                raise LogFormatError(f"column {column!r} of a sparse log is missing; write the log again.")
        self.feature_names, self._kept = _selected(stored.feature_names, options, names)
        self.preparation = _recipe(stored, self.feature_names)

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self._tables.notes(), *unlabelled_steps(self._unlabelled))

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """As the tables come."""
        self._unlabelled = 0
        return self._batches(self._tables.read(self._columns(), whole))

    def _columns(self) -> list[str]:
        optional = {"n_candidates": self._counted, "candidate_ids": self._named}
        optional |= {"columns": self._sparse, "sizes": self._sparse}
        optional |= {} if self._logged is None else {self._logged.column: True}
        return [*self._roles.values(), "contexts", *(name for name, there in optional.items() if there)]

    def index(self) -> list[tuple[int, list[int]]] | None:
        """The number of every episode and its row groups, where the file has none that two episodes share."""
        groups = self._tables.groups
        options = self._options
        cut = options.cuts or options.warmup or options.sort or options.skip_unlabelled
        if groups is None or cut or not self._counted or "episode" not in self._roles:
            return None
        found: list[tuple[int, list[int]]] = []
        for place, (rows, number) in enumerate(groups.sizes(self._roles["episode"])):
            if rows == 0:
                continue
            if not isinstance(number, int) or number >= 1 << 63 or (found and number < found[-1][0]):
                return None
            if not found or number != found[-1][0]:
                found.append((number, []))
            found[-1][1].append(place)
        return found

    def step_counts(self, row_groups: Sequence[int]) -> NDArray[np.int64]:
        """How many candidates each step of some row groups has; their contexts are not read."""
        assert self._tables.groups is not None
        tables = self._tables.groups.read(["n_candidates"], row_groups)
        return np.concatenate([whole_column(table, "n_candidates", 0) for table in tables])

    def group_sizes(self) -> list[int]:
        """How many steps each row group has."""
        assert self._tables.groups is not None
        return [rows for rows, _ in self._tables.groups.sizes(self._roles["episode"])]

    def episode(self, row_groups: Sequence[int]) -> Iterator[Steps]:
        """The steps of some row groups."""
        assert self._tables.groups is not None
        return self._batches(self._tables.groups.read(self._columns(), row_groups))

    def _batches(self, tables: Iterable[pa.Table]) -> Iterator[Steps]:
        d, row, order = self._d, 0, _Order()
        for table in tables:
            if table.num_rows == 0:
                continue
            steps, d = self._steps(table, row, d, order)
            row += table.num_rows
            yield steps

    def _steps(self, table: pa.Table, row: int, d: int | None, order: _Order) -> tuple[Steps, int]:
        labels = {
            role: values_of(_read(table, role, name, row)) for role, name in self._roles.items() if role != "chosen"
        }
        if "step" in labels and labels["step"].dtype.kind not in "iufM":
            labels.setdefault("step_id", labels["step"])
        if "chosen" in self._roles and self._options.skip_unlabelled:
            name = self._roles["chosen"]
            known = pc.fill_null(table[name], -1)
            chosen = whole_column(table.set_column(table.column_names.index(name), name, known), name, row)
        elif "chosen" in self._roles:
            chosen = whole_column(table, self._roles["chosen"], row)
        else:
            chosen = np.zeros(table.num_rows, dtype=np.int64)
        contexts, counts = (self._sparse_contexts if self._sparse else self._contexts)(table, row, d)
        d = contexts.shape[1]
        if self._kept is not None:
            if self._kept.max() >= d:
                raise LogFormatError(
                    f"the metadata names a feature {self._kept.max()} (from 0) but contexts has {d}; write it again."
                )
            contexts = contexts[:, self._kept] if self._sparse else np.ascontiguousarray(contexts[:, self._kept])
        if "step" in labels and "episode" in labels:
            order(labels["step"], labels["episode"])
        ids = self._candidate_ids(table, row, counts) if self._named else None
        logged = None if self._logged is None else self._propensities(self._logged, table, counts, chosen, row)
        more = (labels.get("episode"), labels.get("step_id"), labels.get("timestamp"), ids, logged)
        steps = Steps(contexts, counts, chosen, *more)
        if self._options.skip_unlabelled:
            self._unlabelled += int((chosen < 0).sum())
            steps = labelled(steps)
        return steps, d

    def _propensities(
        self, logged: Logged, table: pa.Table, counts: NDArray[np.int64], chosen: NDArray[np.int64], row: int
    ) -> NDArray[np.float64]:
        """What was logged of every row, as lists or as one number per step: that of the chosen candidate."""
        # A position that is wrong is refused with its place later on.
        chosen_rows = (np.cumsum(counts) - counts + chosen)[(chosen >= 0) & (chosen < counts)]
        if is_list(table.schema.field(logged.column).type):
            return logged.per_list(table, counts, chosen_rows, row)
        values = logged.numbers(table[logged.column])
        logged.check(values, np.flatnonzero(chosen >= 0), row)
        return of_chosen(values[(chosen >= 0) & (chosen < counts)], chosen_rows, int(counts.sum()))

    def _candidate_ids(self, table: pa.Table, row: int, counts: NDArray[np.int64]) -> NDArray[Any]:
        """The names of all candidates."""
        values, lengths = flattened(one_array(table["candidate_ids"]))
        if (lengths != counts).any():
            at = int(np.argmax(lengths != counts))
            raise LogFormatError(
                f"row {row + at}: candidate_ids has {plural(int(lengths[at]), 'name')} but the step has "
                f"{plural(int(counts[at]), 'candidate')}; give each one, or leave the column out (--drop "
                "candidate_ids)."
            )
        return values_of(pa.chunked_array([values]))

    def _sparse_contexts(self, table: pa.Table, row: int, d: int | None) -> tuple[Contexts, NDArray[np.int64]]:
        """As `_contexts`, of a log that was written sparse."""
        assert d is not None  # a sparse log says how many
        counts = whole_column(table, "n_candidates", row)
        parts = {name: flattened(one_array(table[name])) for name in ("contexts", "columns", "sizes")}
        for name, (values, lengths) in parts.items():
            _refuse_holes(one_array(table[name]), lengths, values, row)
        data, columns, sizes = (values.to_numpy(zero_copy_only=False) for values, _ in parts.values())
        each = parts["contexts"][1]
        sound = np.array_equal(each, parts["columns"][1]) and np.array_equal(counts, parts["sizes"][1])
        if sound and len(sizes):
            owner = np.repeat(np.arange(len(counts)), counts)
            sound = bool((sizes >= 0).all()) and np.array_equal(np.bincount(owner, sizes, len(counts)), each)
        if not sound or (len(columns) and not (columns.min() >= 0 and columns.max() < d)):
            raise LogFormatError(f"rows {row} to {row + table.num_rows - 1}: lists of a sparse log do not match.")
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        return csr_array((data, columns, offsets), shape=(len(sizes), d)), counts

    def _contexts(self, table: pa.Table, row: int, d: int | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Contexts (rows, d), and how many of the rows each step has; ``row`` is the table's first."""
        lists = one_array(table["contexts"])
        values, lengths = flattened(lists)
        counts = whole_column(table, "n_candidates", row) if self._counted else lengths
        _refuse_holes(lists, lengths, values, row)
        if self._nested:
            values, d = _candidates(values, lengths, counts, row, d)
        else:
            d = _width(lengths, counts, row, d)
        if d == 0:
            raise LogFormatError(f"row {row}: contexts is empty; every candidate needs at least one feature.")
        if values.type == pa.float16():
            values = values.cast(pa.float32())
        return values.to_numpy(zero_copy_only=False).reshape(-1, d), counts


def _candidates(
    lists: pa.Array, lengths: NDArray[np.int64], counts: NDArray[np.int64], row: int, d: int | None
) -> tuple[pa.Array, int]:
    """The numbers in the candidates' lists, all of the same length, and that length."""
    wrong = np.flatnonzero(counts != lengths)
    if len(wrong):
        at = int(wrong[0])
        raise LogFormatError(
            f"row {row + at}: n_candidates is {counts[at]} but contexts has {plural(int(lengths[at]), 'list')}; give "
            "it one list for each candidate."
        )
    owner = np.repeat(np.arange(len(lengths)), lengths)
    values, sizes = flattened(lists)
    _refuse_holes(lists, sizes, values, row, owner)
    if d is None:
        d = int(sizes[0]) if len(sizes) else 0
    wrong = np.flatnonzero(sizes != d)
    if len(wrong):
        raise LogFormatError(
            f"row {row + int(owner[wrong[0]])}: a candidate has {plural(int(sizes[wrong[0]]), 'feature')} but the "
            f"first one has {d}; every candidate needs the same features."
        )
    return values, d


def _width(lengths: NDArray[np.int64], counts: NDArray[np.int64], row: int, d: int | None) -> int:
    """The number of features, where a step's list holds those of one candidate after the other."""
    if (counts < 0).any():
        at = int(np.argmax(counts < 0))
        raise LogFormatError(f"row {row + at}: n_candidates is {counts[at]}; a step has at least one. Leave it out.")
    if d is None:
        first = int(np.argmax(counts > 0))
        d = int(lengths[first]) // max(int(counts[first]), 1)
        if d == 0:
            return 0
    # More candidates than numbers are wrong in any case, and keep the product from overflowing.
    wrong = np.flatnonzero((counts > lengths) | (lengths != counts * d))
    if len(wrong):
        at = int(wrong[0])
        raise LogFormatError(
            f"row {row + at}: contexts has {plural(int(lengths[at]), 'number')} but {counts[at]} candidates of {d} "
            f"features need {int(counts[at]) * d}; every candidate needs the same features."
        )
    return d


def _refuse_holes(
    lists: pa.Array, lengths: NDArray[np.int64], values: pa.Array, row: int, owner: NDArray[np.int64] | None = None
) -> None:
    """Raise where a list is missing, or something in one; ``owner`` has the row that each list belongs to."""
    holes = lists.is_null().to_numpy(zero_copy_only=False)
    if values.null_count:
        inside = np.repeat(np.arange(len(lengths)), lengths)[values.is_null().to_numpy(zero_copy_only=False)]
        holes[inside] = True
    if holes.any():
        at = int(np.argmax(holes))
        raise LogFormatError(
            f"row {row + (at if owner is None else int(owner[at]))}: column 'contexts' has missing values; impute them "
            "or drop the step."
        )


# -- helpers ---------------------------------------------------------------------------------------------------------


def _recipe(stored: Stored, names: tuple[str, ...] | None) -> Preparation | None:
    """How these features of a log that we wrote were made, if that was stored."""
    return None if stored.preparation is None or names is None else stored.preparation.only(names)


def _as_written(
    features: tuple[str, ...], stored: Stored, columns: Sequence[str], options: ReadOptions
) -> tuple[Preparation, tuple[str, ...] | None]:
    """The columns of features to read of a file that we wrote, and the features' names."""
    names = stored.feature_names
    # A model may know names for features that have none here.
    known = features if names is None and options.preparation is None else names
    selected, kept = _selected(known, options, [name for name in columns if name not in features])
    some = features if kept is None else tuple(features[place] for place in kept)
    made = Preparation(tuple(FeatureColumn(name) for name in some), stored.roles)
    return made, names if kept is None else selected


def _selected(
    names: tuple[str, ...] | None, options: ReadOptions, columns: Sequence[str]
) -> tuple[tuple[str, ...] | None, NDArray[np.int64] | None]:
    """Names and places of the features to read of a log that we wrote; None: all of them.

    What is to be dropped may also be one of the other ``columns``.
    """
    drop = [name for name in options.drop if name not in columns]
    unnamed = " and have no names" if names is None else f" ({listed(names)})"
    refuse_one_hot(options, f"the features of this log are numbers{unnamed}. Encode columns when the log is converted")
    refuse_keep(options, f"every feature of this log is read{unnamed}. Keep columns when the log is converted")
    if drop and names is None:
        raise LogFormatError(
            f"there is no column {shown(drop[0])}: the features of this log are numbers{unnamed}. Drop columns when "
            "the log is converted."
        )
    if names is None and options.features is not None:
        raise LogFormatError(
            f"features asks for {listed(options.features)}: the features of this log are numbers and have no names. "
            "Leave features out to read all of them."
        )
    return (None, None) if names is None else kept_features(names, replace(options, drop=drop))


def _role_missing(role: str, names: Sequence[str], options: ReadOptions) -> str:
    what = {"step": "tells the steps apart", "chosen": "marks the chosen candidate of each step"}[role]
    named = (*(options.features or ()), *options.drop, *options.keep, *options.encoded, *options.crossed)
    taken = [name for name in named if name in names and normal_name(name) in ROLES[role]]
    if taken:
        return (
            f"no column {what}: {shown(taken[0])} would, but was named among the features or to be dropped. Leave it "
            f"out there, or name another one with columns={{'{role}': ...}} (--column {role}=NAME)."
        )
    return (
        f"no column {what}: none is called {' or '.join(ROLES[role][:3])}. Name it with columns={{'{role}': ...}} "
        f"(--column {role}=NAME); the columns are {listed(names) or 'none'}."
    )


def _counts_steps(name: str) -> bool:
    """A column of this very name counts the steps of an episode; any other has names of steps worth keeping."""
    return name == "step"


def _read(table: pa.Table, role: str, name: str, row: int) -> pa.ChunkedArray:
    """The column of a role, which must have a value everywhere; what names steps, with all digits."""
    return (named_by if role in ("step", "step_id") else complete)(table, name, row, optional=role in _OPTIONAL)


def _with_end(tables: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, bool]]:
    """Each table, and whether it is the last."""
    before = None
    for table in tables:
        if before is not None:
            yield before, False
        before = table
    if before is not None:
        yield before, True


def _place(labels: dict[str, NDArray[Any]], step: int) -> str:
    episode = f"episode {_label(labels['episode'][step])}, " if "episode" in labels else ""
    return f"{episode}step {_label(labels['step'][step])}"


def _label(value: Any) -> str:
    """A label within a sentence: as it is if it is plain and short."""
    text = str(value)
    return text if text.isprintable() and len(text) <= 60 else shown(value)
