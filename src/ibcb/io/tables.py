"""Logs in tables, one row per candidate (long) or one row per step, wherever the table comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ibcb.intake import LogFormatError, plural
from ibcb.io.columns import ROLES, Plan, assign_roles, feature_matrix, plan_features
from ibcb.io.steps import Reading, Source, Steps
from ibcb.preparation import FeatureColumn, Preparation

__all__ = ["KEY", "VERSION", "Tables", "table_source"]

#: schema metadata of files that we wrote
KEY = b"ibcb"
VERSION = 1

_FLAGS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False, "t": True, "f": False}
#: steps without an episode column are looked for among the last so many, to find one that comes back
_REMEMBERED = 1 << 20


class Tables(NamedTuple):
    """Arrow tables to be read again and again: ``read(columns, whole)`` gives all rows in order.

    A bounded number at a time, or, if they are wanted whole, all at once where that is faster.
    """

    name: str
    schema: pa.Schema
    read: Callable[[Sequence[str], bool], Iterable[pa.Table]]


def table_source(tables: Tables, reading: Reading) -> Source:
    """The steps in some tables; their columns tell in which of the two forms."""
    names = tables.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LogFormatError(f"column {twice[0]!r} is there twice; names must differ.")
    if reading.sort:
        tables = _sorted(tables, reading)
    one_row_per_step = "contexts" in names or "n_candidates" in names
    return _StepRows(tables, reading) if one_row_per_step else _CandidateRows(tables, reading)


def _sorted(tables: Tables, reading: Reading) -> Tables:
    """The same rows by episode, time and step; equal ones stay in order. Needs the memory for all of them."""
    roles, _ = assign_roles(tables.schema.names, reading)
    whole = pa.concat_tables(tables.read(tables.schema.names, True))
    keys = [roles[role] for role in ("episode", "timestamp", "step") if role in roles]
    row = "ibcb row"
    order = whole.select(keys).append_column(row, pa.array(np.arange(whole.num_rows)))
    whole = whole.take(pc.sort_indices(order, sort_keys=[(key, "ascending") for key in (*keys, row)]))
    return Tables(tables.name, tables.schema, lambda columns, _: iter([whole.select(list(columns))]))


# -- one row per candidate -------------------------------------------------------------------------------------------


class _CandidateRows:
    """Long form: consecutive rows with the same step (and episode) are the candidates of one step."""

    def __init__(self, tables: Tables, reading: Reading) -> None:
        self.name, self._tables, self._reading = tables.name, tables, reading
        meta = metadata(tables.schema)
        if "features" in meta:  # written by us: nothing is left to guess
            columns = tuple(FeatureColumn(name) for name in meta["features"])
            reading = replace(reading, preparation=Preparation(columns, tuple(meta["roles"].items())))
        if reading.preparation is not None:
            before = {role: name for role, name in reading.preparation.roles if name in tables.schema.names}
            reading = replace(reading, columns=before | dict(reading.columns))
        roles, rest = assign_roles(tables.schema.names, reading)
        for role in ("step", *(("chosen",) if reading.choices else ())):
            if role not in roles:
                raise LogFormatError(_role_missing(role, tables.schema.names))
        self._roles = roles
        self._plan: Plan = plan_features(
            tables.schema, roles, rest, reading, lambda columns: tables.read(columns, False)
        )
        self.preparation: Preparation | None = self._plan.preparation
        self.feature_names: tuple[str, ...] | None = self._plan.preparation.feature_names
        if "features" in meta:
            self.preparation = None
            self.feature_names = None if meta["feature_names"] is None else tuple(meta["feature_names"])
        self._strange: dict[str, int] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        strange = tuple(
            f"column {name!r} has {plural(count, 'value')} that the fitted log did not have; they count as none of "
            "its categories."
            for name, count in self._strange.items()
        )
        return (*self._plan.notes, *strange)

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """Whole steps; one that a table cuts in two waits for the next table."""
        self._strange = {}
        features = [column.name for column in self._plan.preparation.columns]
        columns = list(dict.fromkeys([*(self._roles[role] for role in self._used()), *features]))
        order = _Order(self._roles)
        held: pa.Table | None = None
        for table, is_last in _with_end(self._tables.read(columns, whole)):
            rows = table if held is None else pa.concat_tables([held, table])
            held = None
            if rows.num_rows == 0:
                continue
            starts = self._starts(rows)
            if not is_last:
                held = rows.slice(int(starts[-1]))
                rows, starts = rows.slice(0, int(starts[-1])), starts[:-1]
            if len(starts):
                yield self._steps(rows, starts, order)
        if held is not None:
            yield self._steps(held, self._starts(held), order)

    def _used(self) -> list[str]:
        return [role for role in self._roles if role != "candidate"]

    def _starts(self, rows: pa.Table) -> NDArray[np.int64]:
        """First row of every step."""
        new = np.zeros(rows.num_rows, dtype=bool)
        new[0] = True
        for role in ("episode", "step"):
            if role in self._roles:
                column = _complete(rows, self._roles[role])
                new[1:] |= pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1)).to_numpy()
        return np.flatnonzero(new)

    def _steps(self, rows: pa.Table, starts: NDArray[np.int64], order: _Order) -> Steps:
        at_start = {role: _values(rows[self._roles[role]].take(pa.array(starts))) for role in self._used()}
        order(at_start)
        counts = np.diff(starts, append=rows.num_rows)
        contexts, strange = feature_matrix(rows, self._plan)
        for name, count in strange.items():
            self._strange[name] = self._strange.get(name, 0) + count
        return Steps(
            contexts,
            counts,
            self._chosen(rows, starts, at_start),
            at_start.get("episode"),
            at_start.get("step_id", None if _counts_steps(self._roles["step"]) else at_start["step"]),
            at_start.get("timestamp"),
        )

    def _chosen(self, rows: pa.Table, starts: NDArray[np.int64], labels: dict[str, Any]) -> NDArray[np.int64]:
        if "chosen" not in self._roles:
            return np.zeros(len(starts), dtype=np.int64)
        name = self._roles["chosen"]
        flags = _flags(_complete(rows, name), name)
        marked = np.add.reduceat(flags.astype(np.int64), starts)
        wrong = np.flatnonzero(marked != 1)
        if len(wrong):
            step = int(wrong[0])
            found = "no candidate is" if marked[step] == 0 else f"{marked[step]} candidates are"
            raise LogFormatError(
                f"{_place(labels, step)}: {found} marked in column {name!r}; every step needs exactly one chosen "
                "candidate. Leave the step out, or mark one."
            )
        return np.flatnonzero(flags) - starts


class _Order:
    """Steps must rise within an episode, or, where that cannot be said of them, not come back."""

    def __init__(self, roles: dict[str, str]) -> None:
        self._has_episodes = "episode" in roles
        self._last: tuple[Any, Any] | None = None
        self._seen: set[Any] = set()

    def __call__(self, labels: dict[str, NDArray[Any]]) -> None:
        steps = labels["step"]
        episodes = labels.get("episode")
        if episodes is not None and steps.dtype.kind in "iufM":
            self._rising(episodes, steps)
        else:
            self._distinct(episodes, steps)

    def _rising(self, episodes: NDArray[Any], steps: NDArray[Any]) -> None:
        at, before = _first_fall(self._last, episodes, steps)
        if at is not None:
            raise LogFormatError(
                f"step {steps[at]} of episode {episodes[at]} follows step {before}; sort the rows by episode and step "
                "and keep the candidates of a step together, or read with sort=True (--sort)."
            )
        self._last = episodes[-1], steps[-1]

    def _distinct(self, episodes: NDArray[Any] | None, steps: NDArray[Any]) -> None:
        for place, step in enumerate(steps.tolist()):
            episode = None if episodes is None else episodes[place]
            if self._last is not None and episode != self._last[0]:
                self._seen.clear()
            if step in self._seen:
                where = "" if episode is None else f" of episode {episode}"
                raise LogFormatError(
                    f"step {step!r}{where} comes back after other steps; keep the candidates of a step together and "
                    "give every step a name of its own, or read with sort=True (--sort)."
                )
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen.add(step)
            self._last = episode, step


# -- one row per step ------------------------------------------------------------------------------------------------


class _StepRows:
    """One row per step: ``chosen``, and ``contexts`` as lists of numbers, flat or one list per candidate.

    `ibcb.write_log` writes this form, with ``n_candidates`` and flat lists.
    """

    preparation: Preparation | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, tables: Tables, reading: Reading) -> None:
        self.name, self._tables, self._reading = tables.name, tables, reading
        self._meta = metadata(tables.schema)
        names = tables.schema.names
        kind = tables.schema.field("contexts").type if "contexts" in names else pa.list_(pa.float64())
        if not _is_list(kind):
            raise LogFormatError(f"column 'contexts' holds {kind}; it must hold lists of numbers.")
        self._nested = _is_list(kind.value_type)
        needed = ["contexts", *([] if self._nested else ["n_candidates"])]
        roles, _ = assign_roles([name for name in names if name not in ("contexts", "n_candidates")], reading)
        cut = reading.episode_every is not None or reading.episode_size is not None
        needed += ([] if cut else ["episode"]) + (["chosen"] if reading.choices else [])
        for column in needed:
            if column not in (*names, *roles):
                raise LogFormatError(
                    f"column {column!r} is missing; a log with a row per step has episode, step, chosen, "
                    f"n_candidates, contexts and this one has {', '.join(names)}."
                )
        self._roles = {role: column for role, column in roles.items() if role != "candidate"}
        stored = self._meta.get("feature_names")
        self.feature_names = None if stored is None else tuple(map(str, stored))
        if self._meta.get("preparation") is not None:
            self.preparation = Preparation.from_json(self._meta["preparation"])

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """As the tables come."""
        columns = [*self._roles.values(), "contexts", *(() if self._nested else ("n_candidates",))]
        d: int | None = self._meta.get("n_features")
        row, last = 0, None
        for table in self._tables.read(columns, whole):
            if table.num_rows == 0:
                continue
            steps, d = self._steps(table, row, d)
            last = self._check_order(table, steps, row, last)
            row += table.num_rows
            yield steps

    def _steps(self, table: pa.Table, row: int, d: int | None) -> tuple[Steps, int]:
        labels = {role: _values(_complete(table, name)) for role, name in self._roles.items() if role != "chosen"}
        if "step" in labels and labels["step"].dtype.kind not in "iufM":
            labels.setdefault("step_id", labels["step"])
        if "chosen" in self._roles:
            chosen = _whole(table, self._roles["chosen"])
        else:
            chosen = np.zeros(table.num_rows, dtype=np.int64)
        values, counts, d = self._contexts(table, row, d)
        steps = Steps(
            values.reshape(-1, d),
            counts,
            chosen,
            labels.get("episode"),
            labels.get("step_id"),
            labels.get("timestamp"),
        )
        return steps, d

    def _contexts(self, table: pa.Table, row: int, d: int | None) -> tuple[NDArray[Any], NDArray[np.int64], int]:
        lists = _one_array(table["contexts"])
        values, lengths = _flatten(lists)
        if self._nested:
            counts = lengths
            values, inner = _flatten(values)
            d = int(inner[0]) if d is None and len(inner) else (d or 0)
            wrong = np.flatnonzero(inner != d)
            if len(wrong):
                at = int(np.searchsorted(np.cumsum(counts), wrong[0], side="right"))
                raise LogFormatError(
                    f"row {row + at}: a candidate has {inner[wrong[0]]} features but the first one has {d}; every "
                    "candidate needs the same features."
                )
        else:
            counts = _whole(table, "n_candidates")
            if d is None:
                d = int(lengths[0]) // max(int(counts[0]), 1)
            wrong = np.flatnonzero(lengths != counts * d)
            if len(wrong):
                at = int(wrong[0])
                raise LogFormatError(
                    f"row {row + at}: contexts has {lengths[at]} numbers but {counts[at]} candidates of {d} features "
                    f"need {counts[at] * d}."
                )
        if values.type == pa.float16():
            values = values.cast(pa.float32())
        if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            raise LogFormatError(f"column 'contexts' holds {lists.type}; it must hold lists of float32 or float64.")
        if lists.null_count or values.null_count:
            raise LogFormatError("column 'contexts' has missing values; impute them or drop the steps.")
        if d == 0:
            raise LogFormatError(f"row {row}: contexts is empty; every candidate needs at least one feature.")
        return values.to_numpy(zero_copy_only=False), counts, d

    def _check_order(self, table: pa.Table, steps: Steps, row: int, last: Any) -> Any:
        if "step" not in self._roles or steps.episode is None:
            return None
        episode, step = steps.episode, _values(_complete(table, self._roles["step"]))
        if step.dtype.kind not in "iufM":
            return None
        at, before = _first_fall(last, episode, step)
        if at is not None:
            raise LogFormatError(
                f"row {row + at}: step {step[at]} of episode {episode[at]} follows step {before}; sort the rows by "
                "episode and step, or read with sort=True (--sort), and keep one row per step."
            )
        return episode[-1], step[-1]


def _first_fall(last: Any, episodes: NDArray[Any], steps: NDArray[Any]) -> tuple[int | None, Any]:
    """The first step that does not rise within its episode, and the one before it; ``last`` came before all."""
    same, still = episodes[1:] == episodes[:-1], steps[1:] <= steps[:-1]
    bad = np.flatnonzero(same & still)
    if last is not None and episodes[0] == last[0] and steps[0] <= last[1]:
        return 0, last[1]
    return (int(bad[0]) + 1, steps[bad[0]]) if len(bad) else (None, None)


# -- values ----------------------------------------------------------------------------------------------------------


def metadata(schema: pa.Schema) -> dict[str, Any]:
    """What we wrote about the file, or nothing."""
    try:
        meta = json.loads((schema.metadata or {}).get(KEY, b"{}"))
    except ValueError:
        meta = None
    version = meta.get("version", VERSION) if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(version, int):
        raise LogFormatError(
            f"the metadata under the key 'ibcb' is damaged (version {version!r}); write the log again."
        )
    if version > VERSION:
        raise LogFormatError(f"written in format version {version}; this ibcb reads up to {VERSION}. Upgrade ibcb.")
    return meta


def _role_missing(role: str, names: Sequence[str]) -> str:
    what = {"step": "tells the steps apart", "chosen": "marks the chosen candidate of each step"}[role]
    return (
        f"no column {what}: none is called {' or '.join(ROLES[role][:3])}. Name it with columns={{'{role}': ...}} "
        f"(--column {role}=NAME); the columns are {', '.join(names) or 'none'}."
    )


def _counts_steps(name: str) -> bool:
    """A column of this very name counts the steps of an episode; any other has names of steps worth keeping."""
    return name == "step"


def _with_end(tables: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, bool]]:
    """Each table, and whether it is the last."""
    before = None
    for table in tables:
        if before is not None:
            yield before, False
        before = table
    if before is not None:
        yield before, True


def _complete(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = table[name]
    if column.null_count:
        raise LogFormatError(f"column {name!r} has {plural(column.null_count, 'missing value')}.")
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _values(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column as numpy, texts as str and times without zone, in UTC."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    array: NDArray[Any] = column.to_numpy()
    if array.dtype == object and all(isinstance(value, str) for value in array):
        return array.astype(np.str_)
    return array


def _whole(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = _complete(table, name)
    if not pa.types.is_integer(column.type):
        raise LogFormatError(f"column {name!r} holds {column.type}; it must hold whole numbers.")
    values: NDArray[Any] = column.to_numpy()
    if values.dtype == np.uint64 and len(values) and int(values.max()) > np.iinfo(np.int64).max:
        raise LogFormatError(f"column {name!r} holds {values.max()}, which is too large to be a position or number.")
    return values.astype(np.int64)


def _flags(column: pa.ChunkedArray, name: str) -> NDArray[np.bool_]:
    """True where a candidate is marked as chosen."""
    values: NDArray[Any] = _values(column)
    if values.dtype == bool:
        return values
    if values.dtype.kind == "U":
        lower = np.char.lower(np.char.strip(values))
        wrong = ~np.isin(lower, list(_FLAGS))
        flags = np.isin(lower, [text for text, flag in _FLAGS.items() if flag])
    elif values.dtype.kind in "iuf":
        wrong, flags = ~np.isin(values, (0, 1)), values == 1
    else:
        wrong, flags = np.ones(len(values), dtype=bool), np.zeros(len(values), dtype=bool)
    if wrong.any():
        raise LogFormatError(
            f"column {name!r} holds {values[int(np.argmax(wrong))]!r}; with a row per candidate it marks the chosen "
            "one: 1 or true there, 0 or false at the others."
        )
    return np.asarray(flags)


def _place(labels: dict[str, NDArray[Any]], step: int) -> str:
    episode = f"episode {labels['episode'][step]}, " if "episode" in labels else ""
    return f"{episode}step {labels['step'][step]}"


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _flatten(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """All entries of all lists, and each list's length."""
    return lists.flatten(), pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
