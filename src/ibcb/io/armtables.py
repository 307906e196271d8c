"""Tables of steps and arms: one row per step, a column that names the arm chosen, and features of the step.

Every arm has weights of its own on the features of the step, and a constant; features of the arms themselves, from a
table with a row per arm, have weights that all arms share: see `ibcb.log.pairs`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ibcb.io.cells import as_text, complete, flattened, is_list, is_number, is_quantity, one_array, shown_type
from ibcb.io.columns import ROW_NUMBERS, assign_roles, check_roles, feature_matrix, normal_name, plan_features
from ibcb.io.format import Tables, in_memory
from ibcb.io.logged import Logged
from ibcb.io.longrows import read_labels
from ibcb.io.sources import BATCH_NUMBERS, MOST_FEATURES
from ibcb.io.transforms import with_moments
from ibcb.io.words import no_column, note, refusal
from ibcb.log.array_checks import LogFormatError, first_true
from ibcb.log.notes import Note
from ibcb.log.pairs import arm_rows, never_chosen
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import ArmSet, Preparation
from ibcb.log.steps import Steps
from ibcb.numerics.contexts import dense, sparse_pays
from ibcb.numerics.printable import shown

#: roles that a table of arms may have
_ROLES = ("episode", "timestamp", "step", "step_id", "propensity")


class ArmRows:
    """Steps from a table with a row per step and a column of arms; see `Source`.

    With ``options.choices=False`` the column of arms may be missing; ``chosen`` is 0 then.
    """

    def __init__(self, tables: Tables, options: ReadOptions, told: bool) -> None:
        self.name, self._tables, self._options = tables.name, tables, options
        schema, made = tables.schema, options.preparation
        known = None if made is None else made.arms
        self._column = options.arm or (known.column if known is not None else "")
        self._available = options.available or (None if known is None else known.available)
        #: the column of the arms that were available, if there is one
        self._sets = [] if self._available is None else [self._available]
        needed = [("arm", self._column)] if options.choices else []
        for option, column in (*needed, *(("available", name) for name in self._sets)):
            if column not in schema.names:
                raise LogFormatError(no_column(column, schema.names, f" ({option}, --{option})"))
        if options.cross:
            raise refusal("arms-cross")
        if made is not None:
            columns = {role: name for role, name in made.roles if name in schema.names}
            options = replace(options, columns=columns | dict(options.columns))
        own = [name for name in schema.names if name not in (self._column, self._available)]
        roles, _ = assign_roles(own, replace(options, preparation=None))
        self._roles = {role: column for role, column in roles.items() if role in _ROLES}
        check_roles(schema, self._roles)
        rest = [name for name in own if name not in self._roles.values()]
        logged = self._roles.get("propensity") if options.choices else None
        self._logged = None if logged is None else Logged(logged, told)
        self._plan = plan_features(tables, self._roles, rest, options, optional=True)
        self._notes = list(self._plan.notes)
        time = self._roles.get("timestamp")
        if time is not None and "timestamp" not in options.columns and is_number(schema.field(time).type):
            self._notes.append(note("times-read", "info", column=time))
        self._arms = known or self._all_arms(options)
        recipe = self._plan.preparation if made is None or known is None else made
        if known is None and options.standardize and recipe.columns:
            parts = self._tables.numbered([column.name for column in recipe.columns])
            recipe, notes = with_moments(recipe, (self._features(table, row) for table, row in parts))
            self._notes += notes
        self.preparation: Preparation | None = Preparation(recipe.columns, tuple(self._roles.items()), arms=self._arms)
        self.feature_names: tuple[str, ...] | None = self.preparation.feature_names
        names = self._arms.names
        whole = bool(names) and all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
        self._names = np.array([int(name) for name in names] if whole else names)
        self._codes = pa.array(names, pa.string())
        self._center, self._scale = self.preparation.moments
        d, self._filled = len(self.feature_names), 1 + len(self._center) + len(self._arms.features)
        if d > MOST_FEATURES:
            weights = 1 + len(self._center)
            raise refusal("arms-too-many", arms=len(names), weights=weights, features=d, most=MOST_FEATURES)
        self._is_sparse = sparse_pays(d, self._filled / d)

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self._tables.notes(), *self._notes, *(() if self._logged is None else self._logged.notes))

    # -- arms ----------------------------------------------------------------------------------------------------------

    def _all_arms(self, options: ReadOptions) -> ArmSet:
        """All arms: those chosen, those that were available, those in the table of their features."""
        chosen, others = set[str](), set[str]()
        for table, row in self._tables.numbered([self._column, *self._sets]):
            chosen.update(as_text(complete(table, self._column, row)).unique().to_pylist())
            for name in self._sets:
                others.update(_entries(table[name], name)[0].unique().drop_null().to_pylist())
        if not chosen:
            raise LogFormatError("the log is empty: it has no step, which is a row. Is it the right file?")
        table, features = options.arm_features, dict[str, dict[str, float]]()
        if table is not None:
            features = self._features_of_arms(table, chosen | others, options)
            others.update(as_text(table[self._column]).to_pylist())
        numeric = is_quantity(self._tables.schema.field(self._column).type)
        every = sorted(chosen | others, key=_as_number if numeric else str)
        if len(every) > len(chosen):
            self._notes.append(never_chosen(len(every) - len(chosen), len(every)))
        shared = tuple((name, tuple(values[arm] for arm in every)) for name, values in features.items())
        return ArmSet(self._column, tuple(every), shared, self._available)

    def _features_of_arms(self, table: pa.Table, arms: set[str], options: ReadOptions) -> dict[str, dict[str, float]]:
        """Features of arms, from the table of them: of each the numbers of all arms in the table, by name."""
        if self._column not in table.column_names:
            where = " in the table of arms (arm_features, --arm-features)"
            raise LogFormatError(no_column(self._column, table.column_names, where))
        names = as_text(complete(table, self._column, 0)).to_pylist()
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise LogFormatError(f"arm {shown(twice)} appears twice in the table of arms; keep one row for each.")
        absent = sorted(arms - set(names))
        if absent:
            raise refusal("arms-without-features", absent=absent, arms=names)
        rest = [name for name in table.column_names if name != self._column and normal_name(name) not in ROW_NUMBERS]
        # What every arm has is no outcome of a choice, whatever it is called, nor does it name a step.
        own = ReadOptions(missing=options.missing, one_hot=True, keep=rest)
        plan = plan_features(in_memory("arms", table), {"arm": self._column}, rest, own)
        values, features = dense(feature_matrix(table, plan, 0)[0]), plan.preparation.feature_names
        if not np.isfinite(values).all():
            at, place = np.argwhere(~np.isfinite(values))[0]
            raise refusal("arms-not-finite", arm=names[at], feature=features[place], value=values[at, place])
        return {
            name: dict(zip(names, column, strict=True))
            for name, column in zip(features, values.T.tolist(), strict=True)
        }

    # -- steps ---------------------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time."""
        columns = [*self._roles.values(), *(column.name for column in self._plan.preparation.columns), *self._sets]
        columns += [self._column] if self._options.choices else []
        some = max(1, BATCH_NUMBERS // (len(self._arms.names) * self._filled))
        for table, row in self._tables.numbered(list(dict.fromkeys(columns))):
            for first in range(0, table.num_rows, some):
                yield self._steps(table.slice(first, some), row + first)

    def _features(self, table: pa.Table, row: int) -> NDArray[Any]:
        """Those of some steps, of which there may be none; ``row`` is the number of the first."""
        if not self._plan.preparation.columns:
            return np.empty((table.num_rows, 0))
        return dense(feature_matrix(table, self._plan, row)[0])

    def _steps(self, table: pa.Table, row: int) -> Steps:
        n = table.num_rows
        labels = read_labels(table, self._roles, row)
        X = self._features(table, row)
        features = np.concatenate([np.ones((n, 1)), (X - self._center) / self._scale], axis=1)
        could = self._could(table, row)
        chosen = self._chosen(table, could, row) if self._options.choices else np.zeros(n, dtype=np.int64)
        shared = np.array([values for _, values in self._arms.features]).T if self._arms.features else None
        contexts, arms, counts = arm_rows(features, could, shared)
        propensities = None
        if self._logged is not None:
            rows = np.cumsum(counts) - counts + chosen
            propensities = self._logged.per_step(table, rows, len(arms), row)
        contexts = contexts if self._is_sparse else dense(contexts)
        return Steps(contexts, counts, chosen, *labels.of_steps(self._roles), self._names[arms], propensities)

    def _chosen(self, table: pa.Table, could: NDArray[np.bool_], row: int) -> NDArray[np.int64]:
        """The position of the chosen arm among the available ones."""
        steps = np.arange(table.num_rows)
        codes = self._places(as_text(complete(table, self._column, row)), steps, row)
        if (at := first_true(~could[steps, codes])) is not None:
            available = [self._arms.names[place] for place in np.flatnonzero(could[at])]
            arm = self._arms.names[codes[at]]
            raise refusal("arm-not-available", row=row + at, arm=arm, column=self._available, available=available)
        before: NDArray[np.int64] = np.cumsum(could, axis=1)[steps, codes] - 1
        return before

    def _could(self, table: pa.Table, row: int) -> NDArray[np.bool_]:
        """Which arms were available at each step, shape (steps, K); all where nothing is said."""
        n, K = table.num_rows, len(self._arms.names)
        if self._available is None:
            return np.ones((n, K), dtype=bool)
        column = table[self._available]
        texts, counts = _entries(column, self._available)
        owner = np.repeat(np.arange(n), counts)
        could = np.zeros((n, K), dtype=bool)
        could[owner, self._places(texts, owner, row)] = True
        could[column.is_null().to_numpy()] = True
        empty = ~could.any(axis=1)
        if empty.any():
            raise refusal("arm-none-available", row=row + int(np.argmax(empty)), column=self._available)
        return could

    def _places(self, texts: pa.Array | pa.ChunkedArray, steps: NDArray[np.int64], row: int) -> NDArray[np.int64]:
        """Which arms some names are; each stands at one of the steps."""
        codes: NDArray[Any] = pc.fill_null(pc.index_in(texts, value_set=self._codes), -1).to_numpy()
        if (at := first_true(codes < 0)) is not None:
            raise refusal("arm-unknown", row=row + int(steps[at]), arm=texts[at].as_py(), arms=self._arms.names)
        return codes


def _entries(column: pa.ChunkedArray, name: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """The arms in every cell, one after the other, and how many each has.

    Cells are lists, or texts whose arms are separated by | or ; or spaces.
    """
    if is_list(column.type):
        arms, counts = flattened(one_array(column))
        return as_text(arms), counts
    if pa.types.is_nested(column.type):
        raise refusal("arms-no-list", name=name, kind=shown_type(column.type))
    encoded = one_array(as_text(column)).dictionary_encode()
    sets = []
    for text in encoded.dictionary.to_pylist():
        separator = next((sign for sign in "|;" if sign in text), None)
        sets.append([arm.strip() for arm in text.split(separator) if arm.strip()])
    codes = encoded.indices.to_pylist()
    entries = [arm for code in codes if code is not None for arm in sets[code]]
    counts = np.array([0 if code is None else len(sets[code]) for code in codes], dtype=np.int64)
    return pa.array(entries, pa.string()), counts


def _as_number(name: str) -> tuple[int, float, str]:
    try:
        return 0, float(name), ""
    except ValueError:
        return 1, 0.0, name
