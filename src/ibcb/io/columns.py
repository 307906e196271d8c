"""Which column of a table plays which part, and how the rest becomes features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ibcb.intake import LogFormatError, plural
from ibcb.io.steps import Reading
from ibcb.preparation import FeatureColumn, Preparation

__all__ = ["ROLES", "Plan", "assign_roles", "feature_matrix", "plan_features"]

#: names that are recognised, the likelier first; compared in lower case with _ for - and space
ROLES: dict[str, tuple[str, ...]] = {
    "episode": ("episode", "episode_id", "batch", "batch_id", "policy_version", "model_version"),
    "step": ("step", "step_id", "request_id", "decision_id", "impression_id", "event_id", "round"),
    "chosen": ("chosen", "is_chosen", "selected", "is_selected", "picked", "action_taken"),
    "timestamp": ("timestamp", "time", "ts", "datetime", "event_time", "logged_at"),
    "step_id": ("step_id", "request_id", "decision_id", "impression_id", "event_id"),
    "candidate": ("candidate", "candidate_id", "item", "item_id", "arm", "arm_id", "action", "action_id"),
}
#: what a decider learned from, or how it drew: never a feature of a candidate
_NOT_FEATURES = frozenset(
    [
        "reward",
        "rewards",
        "click",
        "clicks",
        "clicked",
        "conversion",
        "converted",
        "purchase",
        "outcome",
        "label",
        "rating",
        "cost",
        "regret",
        "propensity",
        "propensity_score",
        "pscore",
        "probability",
        "prob",
    ]
)
_MAX_CATEGORIES = 1000
_BLOCK = 1 << 14


def assign_roles(names: Sequence[str], reading: Reading) -> tuple[dict[str, str], list[str]]:
    """The column of every role that the table has, and the columns left for no role."""
    for role, column in reading.columns.items():
        if role not in ROLES:
            raise ValueError(f"columns has a role {role!r}; the roles are {', '.join(ROLES)}.")
        if column not in names:
            raise LogFormatError(f"there is no column {column!r} for {role}; the columns are {_listed(names)}.")
    roles = dict(reading.columns)
    taken = set(roles.values()) | set(reading.features or ()) | set(reading.drop)
    free = {_normal(name): name for name in reversed(names) if name not in taken}
    for role, known in ROLES.items():
        found = [free[name] for name in known if name in free]
        if role not in roles and found:
            roles[role] = found[0]
            free.pop(_normal(found[0]))
    rest = [name for name in names if name not in roles.values()]
    return roles, rest


class Plan(NamedTuple):
    """How a table becomes features, its float type, and what a reader should know about it."""

    preparation: Preparation
    dtype: np.dtype[Any]
    notes: tuple[str, ...]


def plan_features(
    schema: pa.Schema,
    roles: dict[str, str],
    rest: Sequence[str],
    reading: Reading,
    tables: Callable[[Sequence[str]], Iterable[pa.Table]],
) -> Plan:
    """Decide on the features; looks through the data only where categories or means must be found."""
    if reading.preparation is not None:
        return _follow(schema, reading.preparation, rest)
    _check_options(schema, reading)
    notes: list[str] = []
    names = list(reading.features) if reading.features is not None else _guess(rest, reading, notes)
    if not names:
        raise LogFormatError(
            f"no column is left for the features; the columns are {_listed(schema.names)}, of which "
            f"{', '.join(f'{column} is the {role}' for role, column in roles.items())}. Name them with features."
        )
    text = [name for name in names if _is_text(schema.field(name).type)]
    one_hot = text if reading.one_hot is True else [] if reading.one_hot is False else list(reading.one_hot)
    for name in names:
        _check_type(name, schema.field(name).type, name in one_hot)
    numbers = [name for name in names if name not in one_hot]
    fill = _fill_values(numbers, reading.missing, tables, notes)
    categories = _categories(one_hot, reading.missing, tables)
    columns = tuple(
        FeatureColumn(name, categories[name]) if name in categories else FeatureColumn(name, fill=fill.get(name))
        for name in names
    )
    return Plan(Preparation(columns, tuple(roles.items())), _dtype(schema, numbers), tuple(notes))


def feature_matrix(table: pa.Table, plan: Plan) -> tuple[NDArray[Any], dict[str, int]]:
    """The features of a table's rows, shape (rows, d); and how many values of each column no category knew."""
    X = np.empty((table.num_rows, len(plan.preparation.feature_names)), dtype=plan.dtype)
    columns = plan.preparation.columns
    for column in columns:
        if column.categories is None and column.fill is None and table[column.name].null_count:
            raise LogFormatError(_missing(column.name, table[column.name].null_count))
    strange: dict[str, int] = {}
    row = 0
    # A few rows of all columns at a time: whole columns would leave the cache between one and the next.
    for batch in table.select([column.name for column in columns]).to_batches(max_chunksize=_BLOCK):
        rows, place = slice(row, row + batch.num_rows), 0
        for column, values in zip(columns, batch.columns, strict=True):
            if column.categories is None:
                numbers = _plain(values, plan.dtype)
                X[rows, place] = numbers if column.fill is None else np.where(np.isnan(numbers), column.fill, numbers)
                place += 1
                continue
            end = place + len(column.categories)
            X[rows, place:end], unknown = _indicators(values, column.categories)
            if unknown:
                strange[column.name] = strange.get(column.name, 0) + unknown
            place = end
        row = rows.stop
    return X, strange


def _indicators(values: pa.Array, categories: tuple[str, ...]) -> tuple[NDArray[Any], int]:
    """1 in the column of each value's category, and how many values have none; missing ones are all 0."""
    codes = pc.index_in(_text(values), value_set=pa.array(categories, pa.string()))
    found = pc.fill_null(codes, len(categories)).to_numpy(zero_copy_only=False)
    return np.eye(len(categories) + 1)[found, :-1], codes.null_count - values.null_count


def _guess(rest: Sequence[str], reading: Reading, notes: list[str]) -> list[str]:
    """All columns that are free, but those that look like rewards or second names of a role."""
    others = {name for known in ROLES.values() for name in known}
    ordinary = [name for name in rest if name not in reading.drop]
    left_out = [name for name in ordinary if _normal(name) in _NOT_FEATURES | others]
    if left_out:
        notes.append(
            f"{', '.join(map(repr, left_out))} left out: by name no feature of a candidate; "
            "name it among the features if it is one."
        )
    return [name for name in ordinary if name not in left_out]


def _follow(schema: pa.Schema, preparation: Preparation, rest: Sequence[str]) -> Plan:
    """Do as was done before."""
    names = [column.name for column in preparation.columns]
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise LogFormatError(
            f"the columns {_listed(missing)} are missing, which the model was fitted on; the columns are "
            f"{_listed(schema.names)}."
        )
    for column in preparation.columns:
        _check_type(column.name, schema.field(column.name).type, column.categories is not None)
    numbers = [column.name for column in preparation.columns if column.categories is None]
    ignored = [name for name in rest if name not in names]
    notes = (f"{_listed(ignored)} left out: not among the features that the model was fitted on.",) if ignored else ()
    return Plan(preparation, _dtype(schema, numbers), notes)


def _check_options(schema: pa.Schema, reading: Reading) -> None:
    if reading.missing not in ("refuse", "mean", "zero"):
        raise ValueError(f"missing={reading.missing!r} is unknown; choose refuse, mean or zero.")
    asked = [*(reading.features or ()), *reading.drop, *(() if isinstance(reading.one_hot, bool) else reading.one_hot)]
    for name in asked:
        if name not in schema.names:
            raise LogFormatError(f"there is no column {name!r}; the columns are {_listed(schema.names)}.")


def _check_type(name: str, kind: pa.DataType, one_hot: bool) -> None:
    if one_hot or _is_number(kind):
        return
    if _is_text(kind):
        raise LogFormatError(
            f"column {name!r} holds text; encode it with one_hot=[{name!r}] (--one-hot {name}), or leave it out with "
            f"drop=[{name!r}] (--drop {name})."
        )
    raise LogFormatError(
        f"column {name!r} holds {kind}, which is no feature; leave it out with drop=[{name!r}] (--drop {name}), or "
        "turn it into numbers first."
    )


def _is_number(kind: pa.DataType) -> bool:
    known = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in known)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _dtype(schema: pa.Schema, numbers: Sequence[str]) -> np.dtype[Any]:
    """float32 where nothing is lost by it: all numbers are stored so."""
    single = numbers and all(schema.field(name).type == pa.float32() for name in numbers)
    return np.dtype(np.float32 if single else np.float64)


def _fill_values(
    names: Sequence[str],
    missing: str,
    tables: Callable[[Sequence[str]], Iterable[pa.Table]],
    notes: list[str],
) -> dict[str, float]:
    """What stands for a missing number of each column, where one is to be imputed."""
    if missing == "refuse" or not names:
        return {}
    total, count, rows = np.zeros(len(names)), np.zeros(len(names)), 0
    for table in tables(names):
        rows += table.num_rows
        for place, name in enumerate(names):
            for chunk in table[name].chunks:
                values = _plain(chunk, np.dtype(np.float64))
                known = values[~np.isnan(values)]
                total[place] += known.sum()
                count[place] += len(known)
    holes = {name: int(rows - n) for name, n in zip(names, count, strict=True) if n < rows}
    if holes:
        each = ", ".join(f"{name!r} ({plural(n, 'value')})" for name, n in holes.items())
        notes.append(f"missing numbers replaced by the {'mean' if missing == 'mean' else 'number 0'}: {each}.")
    for name, n in zip(names, count, strict=True):
        if missing == "mean" and n == 0:
            raise LogFormatError(f"column {name!r} has no value at all, so no mean; leave it out (--drop {name}).")
    means = total / np.maximum(count, 1) if missing == "mean" else np.zeros(len(names))
    return {name: float(mean) for name, mean in zip(names, means, strict=True)}


def _categories(
    names: Sequence[str], missing: str, tables: Callable[[Sequence[str]], Iterable[pa.Table]]
) -> dict[str, tuple[str, ...]]:
    """The distinct values of each column, sorted."""
    if not names:
        return {}
    found: dict[str, set[str]] = {name: set() for name in names}
    for table in tables(names):
        for name in names:
            values = _text(table[name])
            if values.null_count and missing == "refuse":
                raise LogFormatError(_missing(name, values.null_count))
            found[name].update(value for value in pc.unique(values).to_pylist() if value is not None)
            if len(found[name]) > _MAX_CATEGORIES:
                raise LogFormatError(
                    f"column {name!r} has more than {_MAX_CATEGORIES} different values; that many features cannot be "
                    f"told apart by a log. Group its values, or leave it out (--drop {name})."
                )
    return {name: tuple(sorted(values)) for name, values in found.items()}


def _plain(values: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Some values of a column as floats, nan where one is missing."""
    if pa.types.is_boolean(values.type) or pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array.astype(dtype, copy=False)


def _text(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(pa.string())


def _missing(name: str, count: int) -> str:
    return (
        f"column {name!r} has {plural(count, 'missing value')}; impute them with missing='mean' or 'zero' "
        "(--missing mean), or drop these steps."
    )


def _normal(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _listed(names: Iterable[str]) -> str:
    """At most a dozen names."""
    every = [repr(name) for name in names]
    more = f" and {len(every) - 12} more" if len(every) > 12 else ""
    return ", ".join(every[:12]) + more
