"""Tables of steps and arms: one row per step, a column that names the arm chosen, and features of the step.

Every arm has weights of its own on the features of the step, and a constant; features of the arms themselves, from a
table with a row per arm, have weights that all arms share: see `ibcb.log.arms`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ibcb.io.cells import complete, is_list, one_array, values_of
from ibcb.io.columns import (
    Plan,
    as_text,
    assign_roles,
    check_roles,
    feature_matrix,
    is_number,
    listed,
    no_column,
    plan_features,
    shown_type,
)
from ibcb.io.propensities import Logged
from ibcb.io.sources import BATCH_NUMBERS, MOST_FEATURES
from ibcb.io.standardize import Moments, with_moments
from ibcb.log.arms import arm_rows, never_chosen
from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.notes import Note
from ibcb.log.recipe import Arms, Preparation
from ibcb.log.steps import ReadOptions, Steps
from ibcb.numerics.contexts import dense, sparse_pays

__all__ = ["ArmRows"]

#: roles that a table of arms may have
_ROLES = ("episode", "timestamp", "step", "step_id", "propensity")
_Reader = Callable[[Sequence[str]], Iterable[pa.Table]]


class ArmRows:
    """Steps from a table with a row per step and a column of arms; see `Source`.

    With ``options.choices=False`` the column of arms may be missing; ``chosen`` is 0 then.
    """

    def __init__(self, name: str, schema: pa.Schema, read: _Reader, options: ReadOptions, told: bool) -> None:
        self.name, self._read, self._options = name, read, options
        made = options.preparation
        known = None if made is None else made.arms
        self._column = options.arm or (known.column if known is not None else "")
        self._available = options.available or (None if known is None else known.available)
        for column, option in ((self._column, "arm"), (self._available, "available")):
            needed = column is not None and (option == "available" or options.choices)
            if needed and column not in schema.names:
                raise LogFormatError(no_column(str(column), schema.names, f" ({option}, --{option})"))
        if options.cross:
            raise LogFormatError(
                "cross (--cross) makes products with features of candidates, but every arm (arm, --arm) has weights of "
                "its own on the features of the step by now; leave it out."
            )
        if made is not None:
            options = replace(
                options, columns={r: c for r, c in made.roles if c in schema.names} | dict(options.columns)
            )
        own = [name for name in schema.names if name not in (self._column, self._available)]
        found, _ = assign_roles(own, replace(options, preparation=None))
        self._roles = {role: column for role, column in found.items() if role in _ROLES}
        check_roles(schema, self._roles)
        rest = [name for name in own if name not in self._roles.values()]
        logged = self._roles.get("propensity") if options.choices else None
        self._logged = None if logged is None else Logged(logged, told)
        self._plan: Plan = plan_features(schema, self._roles, rest, options, read, optional=True)
        self._notes = list(self._plan.notes)
        if made is None:
            self._arms = self._found_arms(schema, options)
            columns = self._standardized(options)
        else:
            assert known is not None
            self._arms, columns = known, made.columns
        self.preparation: Preparation | None = Preparation(columns, tuple(self._roles.items()), arms=self._arms)
        self.feature_names: tuple[str, ...] | None = self.preparation.feature_names
        whole = bool(self._arms.names) and all(re.fullmatch(r"-?\d{1,18}", name) for name in self._arms.names)
        self._names = np.array([int(name) for name in self._arms.names] if whole else self._arms.names)
        self._codes = pa.array(self._arms.names, pa.string())
        self._center, self._scale = self.preparation.moments
        d, filled = len(self.feature_names), 1 + len(self._center) + len(self._arms.features)
        if d > MOST_FEATURES:
            raise LogFormatError(
                f"{plural(len(self._arms.names), 'arm')} with {1 + len(self._center)} weights each are {d:,} features, "
                f"and at most {MOST_FEATURES:,} can be read; name fewer features (--features), or group the arms."
            )
        self._is_sparse = sparse_pays(d, filled / d)

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self._notes, *(() if self._logged is None else self._logged.notes))

    # -- arms ----------------------------------------------------------------------------------------------------------

    def _found_arms(self, schema: pa.Schema, options: ReadOptions) -> Arms:
        """All arms: those chosen, those that were available, those in the table of their features."""
        counts: Counter[str] = Counter()
        others: set[str] = set()
        columns = [self._column, *([self._available] if self._available is not None else [])]
        row = 0
        for table in self._read(columns):
            chosen = as_text(complete(table, self._column, row))
            counts.update({each["values"]: each["counts"] for each in chosen.value_counts().to_pylist()})
            if self._available is not None:
                texts, _ = _entries(table[self._available], self._available)
                others.update(pc.unique(texts).drop_null().to_pylist())
            row += table.num_rows
        if not row:
            raise LogFormatError("the log is empty: it has no step, which is a row. Is it the right file?")
        table, features = options.arm_features, dict[str, tuple[float, ...]]()
        if table is not None:
            names, features = self._features_of_arms(table, {*counts, *others}, options)
            others.update(names)
        kind = schema.field(self._column).type
        numeric = is_number(kind) and not pa.types.is_boolean(kind)
        every = sorted({*counts, *others}, key=_as_number if numeric else str)
        if len(every) > len(counts):
            self._notes.append(never_chosen(len(every) - len(counts), len(every)))
        if table is not None:
            order = {name: place for place, name in enumerate(names)}
            features = {name: tuple(values[order[arm]] for arm in every) for name, values in features.items()}
        return Arms(self._column, tuple(every), tuple(features.items()), self._available)

    def _features_of_arms(
        self, table: pa.Table, arms: set[str], options: ReadOptions
    ) -> tuple[list[str], dict[str, tuple[float, ...]]]:
        """The arms in the table of their features, and these by name."""
        if self._column not in table.column_names:
            raise LogFormatError(
                no_column(self._column, table.column_names, " in the table of arms (arm_features, --arm-features)")
            )
        names = as_text(complete(table, self._column, 0)).to_pylist()
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise LogFormatError(f"arm {shown(twice)} appears twice in the table of arms; keep one row for each.")
        absent = sorted(arms - set(names))
        if absent:
            raise LogFormatError(
                f"{listed(absent)} has no row in the table of arms (arm_features, --arm-features), which has "
                f"{listed(names)}; add {'it' if len(absent) == 1 else 'them'}."
            )
        own = ReadOptions(missing=options.missing, one_hot=True)
        rest = [name for name in table.column_names if name != self._column]
        plan = plan_features(table.schema, {"arm": self._column}, rest, own, lambda columns: [table.select(columns)])
        values = dense(feature_matrix(table, plan, 0)[0])
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            at, place = bad[0]
            raise LogFormatError(
                f"arm {shown(names[at])}: {plan.preparation.feature_names[place]} is {values[at, place]} in the table "
                "of arms; features must be finite. Correct it, or leave the column out."
            )
        return names, dict(zip(plan.preparation.feature_names, map(tuple, values.T.tolist()), strict=True))

    def _standardized(self, options: ReadOptions) -> Any:
        """The columns of the step's features, centred and scaled if that is asked for."""
        raw = self._plan.preparation
        if not options.standardize or not raw.columns:
            return raw.columns
        kinds = [column.categories is None for column in raw.columns for _ in column.feature_names]
        moments, row = Moments(sum(kinds)), 0
        for table in self._read([column.name for column in raw.columns]):
            moments.add(dense(feature_matrix(table, self._plan, row)[0][:, np.flatnonzero(kinds)]))
            row += table.num_rows
        moments.finish()
        if moments.rows == 0 or not np.isfinite([moments.low, moments.high]).all():
            return raw.columns
        found, notes = with_moments(raw, moments)
        self._notes += notes
        return found.columns

    # -- steps ---------------------------------------------------------------------------------------------------------

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time."""
        columns = [*self._roles.values(), *(column.name for column in self._plan.preparation.columns)]
        columns += [self._available] if self._available is not None else []
        columns += [self._column] if self._options.choices else []
        some = max(1, BATCH_NUMBERS // (len(self._arms.names) * (1 + len(self._center) + len(self._arms.features))))
        row = 0
        for table in self._read(list(dict.fromkeys(columns))):
            for first in range(0, table.num_rows, some):
                yield self._steps(table.slice(first, some), row + first)
            row += table.num_rows

    def _steps(self, table: pa.Table, row: int) -> Steps:
        n, labels = table.num_rows, {}
        for role, name in self._roles.items():
            if role != "propensity":
                labels[role] = values_of(complete(table, name, row, optional=role in ("timestamp", "step_id")))
        X = dense(feature_matrix(table, self._plan, row)[0]) if self._plan.preparation.columns else np.empty((n, 0))
        features = np.concatenate([np.ones((n, 1)), (X - self._center) / self._scale], axis=1)
        could = self._could(table, row)
        chosen = np.zeros(n, dtype=np.int64)
        if self._options.choices:
            chosen = self._chosen(table, could, row)
        shared = np.array([values for _, values in self._arms.features]).T if self._arms.features else None
        contexts, arms, counts = arm_rows(features, could, shared)
        propensities = None
        if self._logged is not None:
            rows = np.cumsum(counts) - counts + chosen
            propensities = self._logged.per_step(table, rows, len(arms), row)
        ids = labels.get("step_id", None if self._roles.get("step") == "step" else labels.get("step"))
        return Steps(
            contexts if self._is_sparse else dense(contexts),
            counts,
            chosen,
            labels.get("episode"),
            ids,
            labels.get("timestamp"),
            self._names[arms],
            propensities,
        )

    def _chosen(self, table: pa.Table, could: NDArray[np.bool_], row: int) -> NDArray[np.int64]:
        """The position of the chosen arm among the available ones."""
        texts = as_text(complete(table, self._column, row))
        codes = pc.fill_null(pc.index_in(texts, value_set=self._codes), -1).to_numpy().astype(np.int64)
        if (codes < 0).any():
            at = int(np.argmax(codes < 0))
            raise self._unknown(texts[at].as_py(), row + at)
        shut = ~could[np.arange(len(codes)), codes]
        if shut.any():
            at = int(np.argmax(shut))
            open_ = [self._arms.names[place] for place in np.flatnonzero(could[at])]
            raise LogFormatError(
                f"row {row + at} (from 0): arm {shown(self._arms.names[codes[at]])} was chosen but column "
                f"{shown(self._available)} does not have it among those available ({listed(open_)}); correct it, or "
                "leave the step out."
            )
        before: NDArray[np.int64] = np.cumsum(could, axis=1)[np.arange(len(codes)), codes] - 1
        return before

    def _could(self, table: pa.Table, row: int) -> NDArray[np.bool_]:
        """Which arms were available at each step, shape (steps, K); all where nothing is said."""
        n, K = table.num_rows, len(self._arms.names)
        if self._available is None:
            return np.ones((n, K), dtype=bool)
        column = table[self._available]
        texts, counts = _entries(column, self._available)
        codes = pc.fill_null(pc.index_in(texts, value_set=self._codes), -1).to_numpy(zero_copy_only=False)
        owner = np.repeat(np.arange(n), counts)
        if (codes < 0).any():
            at = int(np.argmax(codes < 0))
            raise self._unknown(texts[at].as_py(), row + int(owner[at]))
        could = np.zeros((n, K), dtype=bool)
        could[owner, codes] = True
        could[column.is_null().to_numpy()] = True
        empty = ~could.any(axis=1)
        if empty.any():
            raise LogFormatError(
                f"row {row + int(np.argmax(empty))} (from 0): column {shown(self._available)} names no arm; a step "
                "needs at least one. Leave the step out, or leave the cell empty if all were available."
            )
        return could

    def _unknown(self, arm: Any, row: int) -> LogFormatError:
        return LogFormatError(
            f"row {row} (from 0): arm {shown(arm)} is unknown; the arms are {listed(self._arms.names)}. Leave the step "
            "out, or fit a model to a log that has it."
        )


def _entries(column: pa.ChunkedArray, name: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """The arms in every cell, one after the other, and how many each has.

    Cells are lists, or texts whose arms are separated by | or ; or spaces.
    """
    if is_list(column.type):
        lists = one_array(column)
        return as_text(lists.flatten()), pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    if pa.types.is_nested(column.type):
        raise LogFormatError(
            f"column {shown(name)} holds {shown_type(column.type)}; the arms available (available, --available) are a "
            "list, or a text such as a|b|c."
        )
    encoded = one_array(as_text(column)).dictionary_encode()
    parts = [
        re.split(_separator(text), text.strip()) if text.strip() else [] for text in encoded.dictionary.to_pylist()
    ]
    sets = [[each.strip() for each in part if each.strip()] for part in parts]
    codes = encoded.indices.to_pylist()
    entries = [arm for code in codes if code is not None for arm in sets[code]]
    counts = np.array([0 if code is None else len(sets[code]) for code in codes], dtype=np.int64)
    return pa.array(entries, pa.string()), counts


def _separator(text: str) -> str:
    return r"\|" if "|" in text else ";" if ";" in text else r"\s+"


def _as_number(name: str) -> tuple[int, float, str]:
    try:
        return 0, float(name), ""
    except ValueError:
        return 1, 0.0, name
