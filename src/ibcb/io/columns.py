"""Which column of a table plays which part, and how the rest becomes features."""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from ibcb.io.problems import Problems
from ibcb.io.sources import MOST_FEATURES, shared_features
from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.notes import Note
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import ROLES, ReadOptions
from ibcb.numerics.contexts import Contexts, ordered, sparse_pays

__all__ = [
    "ROW_NUMBERS",
    "Plan",
    "as_text",
    "assign_roles",
    "category_codes",
    "check_followed",
    "check_one_hot",
    "check_roles",
    "dropped",
    "feature_matrix",
    "is_number",
    "kept_categories",
    "listed",
    "matches",
    "named_features",
    "no_column",
    "normal_name",
    "plan_features",
    "shown_type",
    "taken_back",
]

#: what came of a choice, by the names that it usually has: what a decider learned from, which it cannot have known
_OUTCOMES = frozenset(
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
    ]
)
#: how a choice was drawn
_DRAWS = frozenset(ROLES["propensity"])
#: row numbers, as pandas writes them
ROW_NUMBERS = frozenset(["", "unnamed:_0", "rownames"])
_AS_FEATURE = "if it is a feature as well, name it among them: features=[...] (--features)"
_DECIMAL_COMMA = re.compile(r"\s*[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+\s*")
_BLOCK = 1 << 14
_Reader = Callable[[Sequence[str]], Iterable[pa.Table]]


def assign_roles(names: Sequence[str], options: ReadOptions) -> tuple[dict[str, str], list[str]]:
    """The column of every role that the table has, and the columns left for no role."""
    problems = Problems()
    for role, column in options.columns.items():
        if column not in names:
            problems.add(no_column(column, names, f" for {role}"))
    problems.settle()
    roles = dict(options.columns)
    own = named_features(options)
    taken = {*roles.values(), *own, *options.drop}
    free = {normal_name(name): name for name in reversed(names) if name not in taken}
    for role, known in ROLES.items():
        if role == "candidate":
            # It names rows in predictions, and may be a feature as well.
            taken -= own
            free |= {normal_name(name): name for name in reversed(names) if name in own - set(roles.values())}
        found = [free[name] for name in known if name in free]
        if role not in roles and found:
            alike = {name for name in names if name not in taken and normal_name(name) == normal_name(found[0])}
            if len(alike) > 1:
                raise LogFormatError(
                    f"the columns {listed(sorted(alike))} could each be the {role}; name one of them: "
                    f"columns={{'{role}': ...}} (--column {role}=NAME)."
                )
            roles[role] = found[0]
            free.pop(normal_name(found[0]))
    rest = [name for name in names if name not in roles.values() or (name == roles.get("candidate") and name in own)]
    return roles, rest


def named_features(options: ReadOptions) -> set[str]:
    """The columns that are features because somebody said so, whatever they are called."""
    fitted = () if options.preparation is None else [column.name for column in options.preparation.columns]
    return {*(options.features or ()), *options.keep, *options.encoded, *options.crossed, *fitted}


def check_roles(schema: pa.Schema, roles: dict[str, str]) -> None:
    """Refuse columns that hold what cannot name or mark anything."""
    for role, name in roles.items():
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise LogFormatError(
                f"column {shown(name)} holds {shown_type(kind)}, which cannot be the {role}: that is a number, a text "
                f"or a time. Name another one: columns={{'{role}': ...}} (--column {role}=NAME)."
            )


class Plan(NamedTuple):
    """How a table becomes features, its float type, and what a reader should know about it."""

    preparation: Preparation
    dtype: np.dtype[Any]
    notes: tuple[Note, ...]

    @property
    def is_sparse(self) -> bool:
        """Whether the features are mostly the zeros of categories."""
        d = sum(len(column.feature_names) for column in self.preparation.columns)
        return sparse_pays(d, len(self.preparation.columns) / max(d, 1))


def plan_features(
    schema: pa.Schema,
    roles: dict[str, str],
    rest: Sequence[str],
    options: ReadOptions,
    tables: _Reader,
    *,
    optional: bool = False,
    of_step: Sequence[str] = (),
    problems: Problems | None = None,
) -> Plan:
    """Decide on the features, which may be none if they are optional.

    Looks through the data only where categories or means must be found. Columns in ``of_step`` are the same for all
    candidates of a step, and features only where they are named. Raises all ``problems`` at once, those found before
    included.
    """
    problems = Problems() if problems is None else problems
    if options.preparation is not None:
        with problems.noted():
            check_followed(options, options.preparation, schema.names)
        problems.settle()
        return _follow(schema, options.preparation, rest, tables)
    for name in (*(options.features or ()), *options.drop):
        if name not in schema.names:
            problems.add(no_column(name, schema.names))
    for name in options.keep:
        with problems.noted():
            _check_keep(replace(options, keep=[name]), schema.names, roles)
    notes: list[Note] = []
    asked = None if options.features is None else [name for name in options.features if name in schema.names]
    names = asked if asked is not None else _guess(rest, options, notes, of_step)
    if not names and not optional and not problems:
        problems.add(
            f"no column is left for the features; the columns are {listed(schema.names)}, of which "
            f"{', '.join(f'{shown(column)} is the {role}' for role, column in roles.items())}. Name them with features."
        )
    if options.cross and options.features is not None:
        # Features of others, which are read for products alone.
        usable = _guess(rest, options, [], of_step)
        names += [name for name in usable if name not in names and matches(name, options.crossed)]
    for name in options.encoded:
        with problems.noted():
            check_one_hot(replace(options, one_hot=[name]), names, schema.names, roles)
    text = [name for name in names if _is_text(schema.field(name).type)]
    one_hot = text if options.one_hot is True else [name for name in options.encoded if name in names]
    one_hot += [name for name in text if name not in one_hot and matches(name, options.crossed)]
    for name in names:
        with problems.noted():
            _check_type(name, schema.field(name).type, name in one_hot, tables)
    numbers = [name for name in names if name not in one_hot]
    if problems:
        known = [name for name in numbers if is_number(schema.field(name).type)]
        _add_holes(known if options.missing == "refuse" else (), tables, problems)
    problems.settle()
    fill = _fill_values(numbers, options.missing, tables, notes)
    found = _categories(one_hot, options, tables)
    encoded = {name: _encoded(name, counts, schema.field(name).type, options) for name, counts in found.items()}
    columns = tuple(encoded.get(name) or FeatureColumn(name, fill=fill.get(name)) for name in names)
    return Plan(Preparation(columns, tuple(roles.items())), _dtype(schema, numbers), tuple(notes))


def feature_matrix(table: pa.Table, plan: Plan, row: int) -> tuple[Contexts, dict[str, int]]:
    """The features of a table's rows, shape (rows, d); and how many values of each column no category knew.

    The table's first row is number ``row`` of the log.
    """
    columns = plan.preparation.columns
    d = sum(len(column.feature_names) for column in columns)
    problems = Problems()
    for column in columns:
        if column.categories is None and column.fill is None and table[column.name].null_count:
            problems.add(str(_missing(column.name, table[column.name], row)))
    problems.settle()
    X: Any = np.zeros((table.num_rows, d), dtype=plan.dtype) if not plan.is_sparse else _Entries(plan.dtype)
    strange: dict[str, int] = {}
    done = 0
    # A few rows of all columns at a time: whole columns would leave the cache between one and the next.
    for batch in table.select([column.name for column in columns]).to_batches(max_chunksize=_BLOCK):
        rows, place = slice(done, done + batch.num_rows), 0
        for column, values in zip(columns, batch.columns, strict=True):
            if column.categories is None:
                numbers = _plain(values, plan.dtype)
                X[rows, place] = numbers if column.fill is None else np.where(np.isnan(numbers), column.fill, numbers)
            else:
                codes, unknown = category_codes(values, column)
                known = np.flatnonzero(codes >= 0)
                X[rows.start + known, place + codes[known]] = 1.0
                if unknown:
                    strange[column.name] = strange.get(column.name, 0) + unknown
            place += len(column.feature_names)
        done = rows.stop
    return (X.matrix((done, d)) if plan.is_sparse else X), strange


class _Entries:
    """Numbers on their way into a sparse matrix, each assigned once."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]] = []

    def __setitem__(self, key: tuple[slice | NDArray[np.int64], int | NDArray[np.int64]], value: Any) -> None:
        rows = np.arange(key[0].start, key[0].stop) if isinstance(key[0], slice) else key[0]
        self._found.append((rows, np.broadcast_to(key[1], len(rows)), np.broadcast_to(value, len(rows))))

    def matrix(self, shape: tuple[int, int]) -> Contexts:
        if not self._found:
            return sparse.csr_array(shape, dtype=self._dtype)
        rows, columns, values = (np.concatenate(parts) for parts in zip(*self._found, strict=True))
        return ordered(sparse.csr_array((values.astype(self._dtype), (rows, columns)), shape=shape))


def category_codes(values: pa.Array | pa.ChunkedArray, column: FeatureColumn) -> tuple[NDArray[np.int64], int]:
    """Which of its features is 1 for every value, -1: none; and how many values no category knew."""
    categories = column.categories or ()
    codes = pc.index_in(as_text(values), value_set=pa.array(categories, pa.string()))
    found = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    if column.pooled:
        found[(found < 0) & values.is_valid().to_numpy(zero_copy_only=False)] = len(categories)
        return found, 0
    return found, codes.null_count - values.null_count


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of some, or fits one with the wildcards of a shell."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _guess(rest: Sequence[str], options: ReadOptions, notes: list[Note], of_step: Sequence[str]) -> list[str]:
    """All columns that are free, but those that look like rewards, row numbers or second names of a role.

    Those of the step are left to crosses.
    """
    own = (*options.keep, *options.encoded, *options.drop)
    shared = [name for name in rest if name in of_step and name not in own and not matches(name, options.crossed)]
    if shared:
        other = next((name for name in rest if name not in of_step), "item_*")
        notes.append(shared_features(shared, "columns of the step", (shared[0], other)))
    ordinary = [name for name in rest if name not in options.drop and name not in shared]
    free = [name for name in ordinary if name not in options.keep]
    outcomes = [name for name in free if normal_name(name) in _OUTCOMES]
    draws = [name for name in free if normal_name(name) in _DRAWS]
    if outcomes or draws:
        notes.append(_reward_like(outcomes, draws))
    labels = {name for known in ROLES.values() for name in known} - _DRAWS
    named = {*options.encoded, *options.crossed}
    plain = [name for name in free if name not in named and normal_name(name) in labels | ROW_NUMBERS]
    if plain:
        names = f"{listed(plain)} (the name suggests an id or a number of the row)"
        text = f"left out: {names}. If it is a feature, {taken_back(plain[0])}."
        notes.append(Note("label-columns", "info", text, {"columns": tuple(plain)}))
    return [name for name in ordinary if name not in (*outcomes, *draws, *plain)]


def _reward_like(outcomes: Sequence[str], draws: Sequence[str]) -> Note:
    """That columns were left out because of what their names say."""
    reasons = ((outcomes, "an outcome"), (draws, "a probability of the choice"))
    each = "; ".join(f"{listed(names)} (the name suggests {reason})" for names, reason in reasons if names)
    columns = (*outcomes, *draws)
    return Note(
        "reward-like-columns",
        "warning",
        f"left out: {each}. A decider does not know this before it chooses. If yours did, as with the cost of a "
        f"journey, {taken_back(columns[0])}; {dropped(columns[0])} confirms that it is not a feature.",
        {"columns": columns},
    )


def taken_back(name: str) -> str:
    """How to make a column a feature, within a sentence."""
    return f"take it back with keep=[{shown(name)}] (--keep {_argument(name)})"


def dropped(name: str) -> str:
    """How to leave a column out, within a sentence."""
    return f"drop=[{shown(name)}] (--drop {_argument(name)})"


def _follow(schema: pa.Schema, preparation: Preparation, rest: Sequence[str], tables: _Reader) -> Plan:
    """Do as was done before."""
    names = [column.name for column in preparation.columns]
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise LogFormatError(
            f"the columns {listed(missing)} are missing, which the model was fitted on; the columns are "
            f"{listed(schema.names)}."
        )
    for column in preparation.columns:
        _check_type(column.name, schema.field(column.name).type, column.categories is not None, tables)
    numbers = [column.name for column in preparation.columns if column.categories is None]
    ignored = [name for name in rest if name not in names]
    text = f"{listed(ignored)} left out: not among the features that the model was fitted on."
    notes = (Note("columns-not-fitted", "info", text, {"columns": tuple(ignored)}),) if ignored else ()
    return Plan(preparation.uncrossed.raw, _dtype(schema, numbers), notes)


def _check_keep(options: ReadOptions, columns: Sequence[str], roles: Mapping[str, str]) -> None:
    """Refuse to keep what cannot be a feature as well."""
    for name in options.keep:
        role = next((role for role, column in roles.items() if column == name), None)
        if name not in columns:
            raise LogFormatError(no_column(name, columns, " to keep (keep, --keep)"))
        if name in options.drop:
            reason = f"it is to be dropped as well; leave it out of one of them (--drop {_argument(name)})"
        elif options.features is not None and name not in options.features:
            reason = "it is not among the features asked for; add it to features (--features)"
        elif role not in (None, "candidate") and name not in (options.features or ()):
            reason = f"it is the {role}; {_AS_FEATURE}"
        else:
            continue
        raise LogFormatError(f"column {shown(name)} cannot be kept (keep, --keep): {reason}.")


def check_one_hot(
    options: ReadOptions, features: Sequence[str], columns: Sequence[str], roles: Mapping[str, str] | None = None
) -> None:
    """Refuse to encode a column that is not one of the features."""
    for name in options.encoded:
        if name in features:
            continue
        if name not in columns:
            raise LogFormatError(no_column(name, columns, " to encode (one_hot, --one-hot)"))
        role = next((role for role, column in (roles or {}).items() if column == name), None)
        if role is not None:
            reason = f"it is the {role}; {_AS_FEATURE}"
        elif options.features is not None:
            reason = "it is not among the features asked for; add it to features (--features)"
        elif name in options.drop:
            reason = f"it is to be dropped as well; leave it out of one of them (--drop {_argument(name)})"
        else:
            reason = f"its name suggests that it is not a feature; if it is one, {taken_back(name)}"
        raise _not_encoded(name, f"{reason}. The features are {listed(features)}")


def check_followed(options: ReadOptions, preparation: Preparation, columns: Sequence[str]) -> None:
    """Refuse to encode or keep a column otherwise than for the log that the features are made as for."""
    known = {column.name: column.categories is not None for column in preparation.columns}
    for name in options.encoded:
        if name not in (*columns, *known):
            raise LogFormatError(no_column(name, columns, " to encode (one_hot, --one-hot)"))
        if not known.get(name, False):
            how = "took it as a number" if name in known else f"was not fitted on it, but on {listed(known)}"
            raise _not_encoded(name, f"the features are made as for the model, which {how}. Leave it out of one_hot")
    for name in options.keep:
        if name not in columns:
            raise LogFormatError(no_column(name, columns, " to keep (keep, --keep)"))
        if name not in known:
            raise LogFormatError(
                f"column {shown(name)} cannot be kept (keep, --keep): the features are made as for the model, which "
                f"was not fitted on it, but on {listed(known)}. Leave it out of keep."
            )


def _not_encoded(name: str, reason: str) -> LogFormatError:
    return LogFormatError(f"column {shown(name)} cannot be encoded (one_hot, --one-hot): {reason}.")


def _check_type(name: str, kind: pa.DataType, one_hot: bool, tables: _Reader) -> None:
    if is_number(kind) or (one_hot and not _is_odd(kind)):
        return
    drop = dropped(name)
    if not _is_text(kind):
        raise LogFormatError(
            f"column {shown(name)} holds {shown_type(kind)}, which cannot be a feature; leave it out with {drop}, or "
            "turn it into numbers first."
        )
    example = _no_number(name, tables)
    comma = ""
    if example is not None and _DECIMAL_COMMA.fullmatch(example):
        comma = " A decimal comma? Read CSV with decimal=',' (--decimal ,)."
    raise LogFormatError(
        f"column {shown(name)} holds text{'' if example is None else f', such as {shown(example)}'}; encode it with "
        f"one_hot=[{shown(name)}] (--one-hot {_argument(name)}), or leave it out with {drop}.{comma}"
    )


def _no_number(name: str, tables: _Reader) -> str | None:
    """The first text of a column that is no number, if one of the first rows has it."""
    for table in tables([name]):
        for value in as_text(table[name].slice(0, _BLOCK)).to_pylist():
            try:
                float(value or 0)
            except ValueError:
                return str(value)
        if table.num_rows:
            break
    return None


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type is a feature as it is."""
    known = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in known)


def _is_odd(kind: pa.DataType) -> bool:
    """What no category can be read from."""
    return any(test(kind) for test in (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _dtype(schema: pa.Schema, numbers: Sequence[str]) -> np.dtype[Any]:
    """float32 where nothing is lost by it: all numbers are stored so."""
    single = numbers and all(schema.field(name).type == pa.float32() for name in numbers)
    return np.dtype(np.float32 if single else np.float64)


def _add_holes(names: Sequence[str], tables: _Reader, problems: Problems) -> None:
    """Note the columns of numbers in which some are missing, each with their number and the first."""
    holes: dict[str, tuple[int, int]] = {}
    row = 0
    for table in tables(names) if names else ():
        for name in names:
            if table[name].null_count:
                first = row + pc.index(table[name].is_null(), True).as_py()
                count, before = holes.get(name, (0, first))
                holes[name] = count + table[name].null_count, before
        row += table.num_rows
    for name, (count, first) in holes.items():
        problems.add(str(_holes(name, count, first)))


def _fill_values(
    names: Sequence[str],
    missing: str,
    tables: _Reader,
    notes: list[Note],
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
                with np.errstate(over="ignore", invalid="ignore"):
                    total[place] += known.sum()
                count[place] += len(known)
    holes = {name: int(rows - n) for name, n in zip(names, count, strict=True) if n < rows}
    if holes:
        each = ", ".join(f"{shown(name)} ({plural(n, 'value')})" for name, n in holes.items())
        text = f"missing numbers replaced by the {'mean' if missing == 'mean' else 'number 0'}: {each}."
        notes.append(Note("missing-replaced", "info", text, {"columns": tuple(holes), "values": tuple(holes.values())}))
    for name, n in zip(names, count, strict=True):
        if missing == "mean" and n == 0:
            raise LogFormatError(
                f"column {shown(name)} has no values, so no mean; leave it out (--drop {_argument(name)})."
            )
    means = total / np.maximum(count, 1) if missing == "mean" else np.zeros(len(names))
    for name, mean in zip(names, means, strict=True):
        if not np.isfinite(mean):
            raise LogFormatError(
                f"the mean of column {shown(name)} is {mean}; correct the values that are not finite or too large to "
                f"be added up, or leave it out (--drop {_argument(name)})."
            )
    return {name: float(mean) for name, mean in zip(names, means, strict=True)}


def _categories(names: Sequence[str], options: ReadOptions, tables: _Reader) -> dict[str, Counter[str]]:
    """The distinct values of each column, and how many rows have each."""
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    row = 0
    for table in tables(names) if names else ():
        for name in names:
            values = as_text(table[name])
            if values.null_count and options.missing == "refuse":
                raise _missing(name, values, row)
            for each in pc.value_counts(values).to_pylist():
                if each["values"] is not None:
                    found[name][each["values"]] += each["counts"]
        row += table.num_rows
    return found


def _encoded(name: str, counts: Mapping[str, int], kind: pa.DataType, options: ReadOptions) -> FeatureColumn:
    numeric = is_number(kind) and not pa.types.is_boolean(kind)
    kept, pooled = kept_categories(name, counts, options)
    return FeatureColumn(name, tuple(sorted(kept, key=float if numeric else str)), pooled=pooled)


def kept_categories(name: str, counts: Mapping[str, int], options: ReadOptions) -> tuple[list[str], bool]:
    """The values that get a feature of their own, and whether the others, being rare, share one."""
    kept = [value for value, count in counts.items() if count >= options.min_count]
    if len(kept) > MOST_FEATURES:
        common = sorted(counts.values())[-MOST_FEATURES]
        raise LogFormatError(
            f"column {shown(name)} has {len(kept)} different values, of at most {MOST_FEATURES} that can be features "
            f"(one_hot, --one-hot); pool the rare ones with min_count={common + 1} (--min-count {common + 1}), or "
            f"leave it out (--drop {_argument(name)})."
        )
    return kept, len(kept) < len(counts)


def _plain(values: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Some values of a column as floats, nan where one is missing."""
    if pa.types.is_boolean(values.type) or pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array.astype(dtype, copy=False)


def as_text(values: pa.Array | pa.ChunkedArray) -> Any:
    """Some values of a column as texts."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(pa.string())


def _missing(name: str, values: pa.ChunkedArray, row: int) -> LogFormatError:
    return _holes(name, values.null_count, row + pc.index(values.is_null(), True).as_py())


def _holes(name: str, count: int, first: int) -> LogFormatError:
    return LogFormatError(
        f"column {shown(name)} has {plural(count, 'missing value')}, the first in row {first} (from 0); "
        "impute them with missing='mean' or 'zero' (--missing mean), drop these steps, or leave the column out, as one "
        "that is filled in for chosen candidates alone should be (--drop "
        f"{_argument(name)})."
    )


def _argument(name: str) -> str:
    """A name as it is written on a command line."""
    return shlex.quote(name) if name.isprintable() and len(name) < 60 else "NAME"


def normal_name(name: str) -> str:
    """A name as roles are recognised by: in lower case, with _ for - and space."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def shown_type(kind: pa.DataType) -> str:
    """A type as messages show it."""
    return shown(str(kind))[1:-1]


def no_column(name: str, names: Sequence[str], purpose: str = "") -> str:
    """That a column is not there, which is most like it, and which there are."""
    near = difflib.get_close_matches(str(name), names, n=1)
    meant = f" (did you mean {shown(near[0])}?)" if near else ""
    return f"there is no column {shown(name)}{purpose}{meant}; the columns are {listed(names)}."


def listed(names: Iterable[str]) -> str:
    """At most a dozen names."""
    every = [shown(name) for name in names]
    more = f" and {len(every) - 12} more" if len(every) > 12 else ""
    return ", ".join(every[:12]) + more
