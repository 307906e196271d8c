"""Rows of whole steps, as `ibcb.write_log` writes them: ``chosen``, and ``contexts`` as lists of numbers.

The lists are flat, with ``n_candidates`` beside them, or hold one list per candidate; of a sparse log they have the
numbers that are not 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ibcb.io.cells import flattened, is_list, one_array, shown_type, values_of, whole_column
from ibcb.io.columns import assign_roles, check_roles
from ibcb.io.format import Tables
from ibcb.io.logged import Logged
from ibcb.io.longrows import StepOrder, read_labels
from ibcb.io.sources import labelled, unlabelled_steps
from ibcb.io.words import refusal
from ibcb.io.written import metadata, selected
from ibcb.log.array_checks import LogFormatError, first_true, offsets_of
from ibcb.log.choice_propensities import of_chosen
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.steps import EpisodeIndex, Steps
from ibcb.numerics.contexts import Contexts

#: columns of this form that play no role
_OWN = ("contexts", "n_candidates", "columns", "sizes", "candidate_ids")


class StepRows:
    """Steps of a table with a row per step; see `Source`."""

    def __init__(self, tables: Tables, options: ReadOptions) -> None:
        self.name, self._tables, self._options = tables.name, tables, options
        self._unlabelled = 0
        schema, written = tables.schema, metadata(tables.schema)
        names = schema.names
        kind = schema.field("contexts").type if "contexts" in names else pa.list_(pa.float64())
        self._nested = is_list(kind) and is_list(kind.value_type)
        inner = kind.value_type.value_type if self._nested else kind.value_type if is_list(kind) else None
        if inner is None or not (pa.types.is_floating(inner) or pa.types.is_integer(inner) or pa.types.is_null(inner)):
            raise refusal("contexts-no-lists", kind=shown_type(kind))
        roles, _ = assign_roles([name for name in names if name not in _OWN], options)
        needed = ["contexts", *([] if self._nested else ["n_candidates"])]
        needed += ([] if options.cuts else ["episode"]) + (["chosen"] if options.choices else [])
        for column in needed:
            if column not in (*names, *roles):
                other = "; if it has a row per candidate, leave out n_candidates (--drop n_candidates)"
                raise refusal(
                    "steps-column-missing", column=column, columns=names, more=other if column == "contexts" else ""
                )
        self._roles = {role: column for role, column in roles.items() if role not in ("candidate", "propensity")}
        check_roles(schema, self._roles)
        # Lists and single numbers alike are of no other use here.
        self._logged = Logged(roles["propensity"], told=True) if options.choices and "propensity" in roles else None
        self._d, self._sparse = written.n_features, written.sparse
        listing = [name for name in _OWN[2:] if name in names and is_list(schema.field(name).type)]
        for column in ("columns", "sizes") if self._sparse else ():
            if column not in listing:
                raise LogFormatError(f"column {column!r} of a sparse log is missing; write the log again.")
        lists = ["columns", "sizes"] if self._sparse else []
        lists += [name for name in ("candidate_ids",) if name in listing]
        lists += [] if self._logged is None else [self._logged.column]
        counts = [name for name in ("n_candidates",) if name in names]
        self._columns = [*self._roles.values(), "contexts", *counts, *lists]
        self.feature_names, self._kept = selected(written.feature_names, options, names)
        self.preparation = written.recipe(self.feature_names)

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self._tables.notes(), *unlabelled_steps(self._unlabelled))

    def batches(self) -> Iterator[Steps]:
        """As the tables come."""
        self._unlabelled = 0
        return self._batches(self._tables.read(self._columns))

    # -- row groups ----------------------------------------------------------------------------------------------------

    def index(self) -> EpisodeIndex | None:
        """The row groups of every episode, where the file has none that two episodes share."""
        groups, options = self._tables.groups, self._options
        cut = options.cuts or options.warmup or options.sort or options.skip_unlabelled
        if groups is None or cut or "n_candidates" not in self._columns or "episode" not in self._roles:
            return None
        index: list[tuple[int, list[int]]] = []
        sizes = groups.sizes(self._roles["episode"])
        for place, (rows, number) in enumerate(sizes):
            if rows == 0:
                continue
            if not isinstance(number, int) or number >= 1 << 63 or (index and number < index[-1][0]):
                return None
            if not index or number != index[-1][0]:
                index.append((number, []))
            index[-1][1].append(place)

        def counts(row_groups: Sequence[int]) -> NDArray[np.int64]:
            tables = groups.read(["n_candidates"], row_groups)
            return np.concatenate([whole_column(table, "n_candidates", 0) for table in tables])

        def read(row_groups: Sequence[int]) -> Iterator[Steps]:
            return self._batches(groups.read(self._columns, row_groups))

        return EpisodeIndex(index, [rows for rows, _ in sizes], read, counts, self._d)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _batches(self, tables: Iterable[pa.Table]) -> Iterator[Steps]:
        d, row, order = self._d, 0, StepOrder()
        for table in tables:
            if table.num_rows == 0:
                continue
            steps, d = self._steps(table, row, d, order)
            row += table.num_rows
            yield steps

    def _steps(self, table: pa.Table, row: int, d: int | None, order: StepOrder) -> tuple[Steps, int]:
        labels = read_labels(table, self._roles, row)
        if "step" in labels and labels["step"].dtype.kind not in "iufM":
            labels.setdefault("step_id", labels["step"])
        chosen = np.zeros(table.num_rows, dtype=np.int64)
        if (name := self._roles.get("chosen")) is not None:
            known = pc.fill_null(table[name], -1) if self._options.skip_unlabelled else table[name]
            chosen = whole_column(table.set_column(table.column_names.index(name), name, known), name, row)
        contexts, counts = (self._sparse_contexts if self._sparse else self._contexts)(table, row, d)
        d = contexts.shape[1]
        if self._kept is not None:
            if self._kept.max() >= d:
                raise refusal("contexts-metadata", feature=self._kept.max(), features=d)
            contexts = contexts[:, self._kept] if self._sparse else np.ascontiguousarray(contexts[:, self._kept])
        if "step" in labels and "episode" in labels:
            order(labels)
        ids = self._candidate_ids(table, row, counts) if "candidate_ids" in self._columns else None
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
        there = (chosen >= 0) & (chosen < counts)
        chosen_rows = (np.cumsum(counts) - counts + chosen)[there]
        if is_list(table.schema.field(logged.column).type):
            return logged.per_list(table, counts, chosen_rows, row)
        values = logged.numbers(table[logged.column])
        logged.check(values, np.flatnonzero(chosen >= 0), row)
        return of_chosen(values[there], chosen_rows, int(counts.sum()))

    def _candidate_ids(self, table: pa.Table, row: int, counts: NDArray[np.int64]) -> NDArray[Any]:
        """The names of all candidates."""
        values, lengths = flattened(one_array(table["candidate_ids"]))
        if (at := first_true(lengths != counts)) is not None:
            raise refusal("ids-not-all", row=row + at, names=lengths[at], candidates=counts[at])
        return values_of(pa.chunked_array([values]))

    def _sparse_contexts(self, table: pa.Table, row: int, d: int | None) -> tuple[Contexts, NDArray[np.int64]]:
        """As `_contexts`, of a log that was written sparse."""
        assert d is not None  # a sparse log says how many
        counts, rows = whole_column(table, "n_candidates", row), row + np.arange(table.num_rows)
        values, each = zip(*(_flat(table[name], rows) for name in ("contexts", "columns", "sizes")), strict=True)
        data, columns, sizes = (part.to_numpy(zero_copy_only=False) for part in values)
        sound = np.array_equal(each[0], each[1]) and np.array_equal(counts, each[2])
        if sound and len(sizes):
            owner = np.repeat(np.arange(len(counts)), counts)
            sound = bool((sizes >= 0).all()) and np.array_equal(np.bincount(owner, sizes, len(counts)), each[0])
        if not sound or (len(columns) and not (columns.min() >= 0 and columns.max() < d)):
            raise LogFormatError(f"rows {row} to {row + table.num_rows - 1}: lists of a sparse log do not match.")
        return csr_array((data, columns, offsets_of(sizes)), shape=(len(sizes), d)), counts

    def _contexts(self, table: pa.Table, row: int, d: int | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Contexts (rows, d), and how many of the rows each step has; ``row`` is the table's first."""
        rows = row + np.arange(table.num_rows)
        values, lengths = _flat(table["contexts"], rows)
        counts = whole_column(table, "n_candidates", row) if "n_candidates" in self._columns else lengths
        if self._nested:
            if (at := first_true(counts != lengths)) is not None:
                raise refusal("contexts-lists", row=row + at, candidates=counts[at], lists=lengths[at])
            rows = np.repeat(rows, lengths)
            values, sizes = _flat(values, rows)
            d = int(sizes[0] if len(sizes) else 0) if d is None else d
            if (at := first_true(sizes != d)) is not None:
                raise refusal("contexts-ragged", row=rows[at], features=sizes[at], first=d)
        else:
            d = _width(lengths, counts, row, d)
        if d == 0:
            raise LogFormatError(f"row {row}: contexts is empty; every candidate needs at least one feature.")
        if values.type == pa.float16():
            values = values.cast(pa.float32())
        return values.to_numpy(zero_copy_only=False).reshape(-1, d), counts


def _width(lengths: NDArray[np.int64], counts: NDArray[np.int64], row: int, d: int | None) -> int:
    """The number of features, where a step's list holds those of one candidate after the other."""
    if (at := first_true(counts < 0)) is not None:
        raise LogFormatError(f"row {row + at}: n_candidates is {counts[at]}; a step has at least one. Leave it out.")
    if d is None:
        first = int(np.argmax(counts > 0))
        d = int(lengths[first]) // max(int(counts[first]), 1)
    # More candidates than numbers are wrong in any case, and keep the product from overflowing.
    if d and (at := first_true((counts > lengths) | (lengths != counts * d))) is not None:
        needed = int(counts[at]) * d
        raise refusal("contexts-numbers", row=row + at, numbers=lengths[at], of=f"{counts[at]}", d=d, needed=needed)
    return d


def _flat(column: pa.ChunkedArray | pa.Array, rows: NDArray[np.int64]) -> tuple[pa.Array, NDArray[np.int64]]:
    """All entries of the lists in a column, and each list's length; nothing may be missing.

    ``rows`` has the row that each list belongs to.
    """
    lists = one_array(column) if isinstance(column, pa.ChunkedArray) else column
    values, lengths = flattened(lists)
    holes = lists.is_null().to_numpy(zero_copy_only=False)
    if values.null_count:
        holes[np.repeat(np.arange(len(lengths)), lengths)[values.is_null().to_numpy(zero_copy_only=False)]] = True
    if holes.any():
        raise refusal("contexts-missing", row=rows[np.argmax(holes)])
    return values, lengths
