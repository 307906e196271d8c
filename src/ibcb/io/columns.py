"""Which column of a table plays which part, and how those that play no other become features."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from ibcb.io.cells import as_text, is_number, is_quantity, is_text, plain_values, shown_type, value_counts
from ibcb.io.format import Tables
from ibcb.io.sources import MOST_FEATURES, shared_features
from ibcb.io.words import Problems, argument, listed, no_column, note, refusal, sentence, taken_back
from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.read_options import ROLES, ReadOptions
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.numerics.contexts import Contexts, ordered, sparse_pays
from ibcb.numerics.printable import shown

#: what came of a choice, by the names that it usually has: what a decider learned from, which it cannot have known
_OUTCOMES = "reward rewards click clicks clicked conversion converted purchase outcome label rating cost regret"
#: how a choice was drawn
_DRAWS = frozenset(ROLES["propensity"])
#: row numbers, as pandas writes them
ROW_NUMBERS = frozenset(["", "unnamed:_0", "rownames"])
#: what numbers or names something
_LABELS = ROW_NUMBERS.union(*ROLES.values()) - _DRAWS
_DECIMAL_COMMA = re.compile(r"\s*[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+\s*")
_BLOCK = 1 << 14


# -- roles -------------------------------------------------------------------------------------------------------------


def assign_roles(names: Sequence[str], options: ReadOptions) -> tuple[dict[str, str], list[str]]:
    """The column of every role that the table has, and the columns left for no role."""
    problems = Problems()
    for role, column in options.columns.items():
        if column not in names:
            problems.add(no_column(column, names, f" for {role}"))
    problems.settle()
    roles, own = dict(options.columns), named_features(options)
    taken = {*roles.values(), *own, *options.drop}
    free = {normal_name(name): name for name in reversed(names) if name not in taken}
    for role, known in ROLES.items():
        if role == "candidate":
            # It names rows in predictions, and may be a feature as well.
            taken -= own
            free |= {normal_name(name): name for name in reversed(names) if name in own - set(roles.values())}
        usual = next((name for name in known if name in free), None)
        if role in roles or usual is None:
            continue
        alike = {name for name in names if name not in taken and normal_name(name) == usual}
        if len(alike) > 1:
            raise refusal("role-of-several", columns=sorted(alike), role=role)
        roles[role] = free.pop(usual)
    rest = [name for name in names if name not in roles.values() or (name == roles.get("candidate") and name in own)]
    return roles, rest


def named_features(options: ReadOptions) -> set[str]:
    """The columns that are features because somebody said so, whatever they are called."""
    fitted = () if options.preparation is None else [column.name for column in options.preparation.columns]
    return {*(options.features or ()), *options.keep, *options.encoded, *options.crossed, *fitted}


def fitted_roles(names: Iterable[str], options: ReadOptions) -> dict[str, str]:
    """The columns that were named for a role, by the options or for the log of a model, and are there."""
    before = () if options.preparation is None else options.preparation.roles
    usable = set(names) - set(options.drop)
    return {role: name for role, name in before if name in usable} | dict(options.columns)


def check_roles(schema: pa.Schema, roles: dict[str, str]) -> None:
    """Refuse columns that hold what cannot name or mark anything."""
    for role, name in roles.items():
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise refusal("role-nested", name=name, kind=shown_type(kind), role=role)


def role_missing(role: str, names: Sequence[str], options: ReadOptions) -> str:
    """That no column plays a role that a table with a row per candidate needs."""
    what = {"step": "tells the steps apart", "chosen": "marks the chosen candidate of each step"}[role]
    named = (*(options.features or ()), *options.drop, *options.keep, *options.encoded, *options.crossed)
    taken = [name for name in named if name in names and normal_name(name) in ROLES[role]]
    if taken:
        return sentence("role-taken", what=what, column=taken[0], role=role)
    return sentence(
        "role-missing", what=what, usual=" or ".join(ROLES[role][:3]), role=role, columns=listed(names) or "none"
    )


def normal_name(name: str) -> str:
    """A name as roles are recognised by: in lower case, with _ for - and space."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


# -- features ----------------------------------------------------------------------------------------------------------


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
    tables: Tables,
    roles: dict[str, str],
    rest: Sequence[str],
    options: ReadOptions,
    *,
    optional: bool = False,
    problems: Problems | None = None,
) -> Plan:
    """Decide on the features, which may be none if they are optional.

    Looks through the data only where categories or means must be found. Columns of the step are features only where
    they are named. Raises all ``problems`` at once, those found before included.
    """
    problems, schema = Problems() if problems is None else problems, tables.schema
    if options.preparation is not None:
        with problems.noted():
            check_followed(options, options.preparation, schema.names)
        problems.settle()
        return _follow(tables, options.preparation, rest)
    for name in (*(options.features or ()), *options.drop):
        if name not in schema.names:
            problems.add(no_column(name, schema.names))
    kept_roles = {role: name for role, name in roles.items() if role != "candidate"}
    for name in options.keep:
        reason = _no_use(name, options, {} if name in (options.features or ()) else kept_roles)
        if reason or name not in schema.names:
            problems.add(str(_cannot(name, "keep", schema.names, reason)))
    notes: list[Note] = []
    asked = None if options.features is None else [name for name in options.features if name in schema.names]
    names = asked if asked is not None else _guess(rest, options, notes, tables.of_step)
    if not names and not optional and not problems:
        taken = ", ".join(f"{shown(column)} is the {role}" for role, column in roles.items())
        problems.add(sentence("no-features", columns=schema.names, taken=taken))
    if options.cross and options.features is not None:
        # Features of others, which are read for products alone.
        usable = _guess(rest, options, [], tables.of_step)
        names += [name for name in usable if name not in names and matches(name, options.crossed)]
    problems.each(options.encoded, lambda name: check_one_hot(name, options, names, schema.names, roles))
    text = [name for name in names if is_text(schema.field(name).type)]
    one_hot = text if options.one_hot is True else [name for name in options.encoded if name in names]
    one_hot += [name for name in text if name not in one_hot and matches(name, options.crossed)]
    problems.each(names, lambda name: _check_type(name, name in one_hot, tables))
    numbers = [name for name in names if name not in one_hot]
    if problems and options.missing == "refuse":
        _add_holes([name for name in numbers if is_number(schema.field(name).type)], tables, problems)
    problems.settle()
    fill = _fill_values(numbers, options.missing, tables, notes)
    columns = {name: FeatureColumn(name, fill=fill.get(name)) for name in names}
    for name, counts in _categories(one_hot, options, tables).items():
        kept, pooled = kept_categories(name, counts, options)
        order = float if is_quantity(schema.field(name).type) else str
        columns[name] = FeatureColumn(name, tuple(sorted(kept, key=order)), pooled=pooled)
    return Plan(Preparation(tuple(columns.values()), tuple(roles.items())), _dtype(schema, numbers), tuple(notes))


def feature_matrix(table: pa.Table, plan: Plan, row: int) -> tuple[Contexts, dict[str, int]]:
    """The features of a table's rows, shape (rows, d); and how many values of each column no category knew.

    The table's first row is number ``row`` of the log.
    """
    columns = plan.preparation.columns
    d = sum(len(column.feature_names) for column in columns)
    problems = Problems()
    needed = [column.name for column in columns if column.categories is None and column.fill is None]
    problems.each(needed, lambda name: _refuse_missing(name, table[name], row))
    problems.settle()
    X: Any = np.zeros((table.num_rows, d), dtype=plan.dtype) if not plan.is_sparse else _Entries(plan.dtype)
    strange: dict[str, int] = {}
    done = 0
    # A few rows of all columns at a time: whole columns would leave the cache between one and the next.
    for batch in table.select([column.name for column in columns]).to_batches(max_chunksize=_BLOCK):
        rows, place = slice(done, done + batch.num_rows), 0
        for column, values in zip(columns, batch.columns, strict=True):
            if column.categories is None:
                numbers = plain_values(values, plan.dtype)
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
    known = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    if column.pooled:
        known[(known < 0) & values.is_valid().to_numpy(zero_copy_only=False)] = len(categories)
        return known, 0
    return known, codes.null_count - values.null_count


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
    free = {name: normal_name(name) for name in ordinary if name not in options.keep}
    outcomes = [name for name, normal in free.items() if normal in _OUTCOMES.split()]
    draws = [name for name, normal in free.items() if normal in _DRAWS]
    named = {*options.encoded, *options.crossed}
    labels = [name for name, normal in free.items() if normal in _LABELS and name not in named]
    if outcomes or draws:
        reasons = ((outcomes, "an outcome"), (draws, "a probability of the choice"))
        each = "; ".join(f"{listed(names)} (the name suggests {reason})" for names, reason in reasons if names)
        columns = (*outcomes, *draws)
        text = sentence("reward-like-columns", each=each, first=columns[0])
        notes.append(Note("reward-like-columns", "warning", text, {"columns": columns}))
    if labels:
        notes.append(note("label-columns", "info", columns=tuple(labels)))
    return [name for name in ordinary if name not in (*outcomes, *draws, *labels)]


def _follow(tables: Tables, preparation: Preparation, rest: Sequence[str]) -> Plan:
    """Do as was done before."""
    encoded = {column.name: column.categories is not None for column in preparation.columns}
    schema = tables.schema
    missing = [name for name in encoded if name not in schema.names]
    if missing:
        raise refusal("columns-of-model", missing=missing, columns=schema.names)
    for name, one_hot in encoded.items():
        _check_type(name, one_hot, tables)
    ignored = tuple(name for name in rest if name not in encoded)
    notes = (note("columns-not-fitted", "info", columns=ignored),) if ignored else ()
    numbers = [name for name, one_hot in encoded.items() if not one_hot]
    return Plan(preparation.uncrossed.raw, _dtype(schema, numbers), notes)


# -- what cannot be ----------------------------------------------------------------------------------------------------


def _no_use(name: str, options: ReadOptions, roles: Mapping[str, str]) -> str | None:
    """Why a column is no feature, if something else was said of it."""
    role = next((role for role, column in roles.items() if column == name), None)
    if name in options.drop:
        return f"it is to be dropped as well; leave it out of one of them (--drop {argument(name)})"
    if options.features is not None and name not in options.features:
        return "it is not among the features asked for; add it to features (--features)"
    if role is not None:
        return f"it is the {role}; if it is a feature as well, name it among them: features=[...] (--features)"
    return None


def check_one_hot(
    name: str, options: ReadOptions, features: Sequence[str], columns: Sequence[str], roles: Mapping[str, str]
) -> None:
    """Refuse to encode a column that is not one of the features."""
    if name not in features:
        guessed = f"its name suggests that it is not a feature; if it is one, {taken_back(name)}"
        reason = _no_use(name, options, roles) or guessed
        raise _cannot(name, "one_hot", columns, f"{reason}. The features are {listed(features)}")


def check_followed(options: ReadOptions, preparation: Preparation, columns: Sequence[str]) -> None:
    """Refuse to encode or keep a column otherwise than for the log that the features are made as for."""
    known = {column.name: column.categories is not None for column in preparation.columns}
    for option, names in (("one_hot", options.encoded), ("keep", options.keep)):
        for name in names:
            if known.get(name) or (option == "keep" and name in known):
                continue
            how = "took it as a number" if name in known else f"was not fitted on it, but on {listed(known)}"
            reason = f"the features are made as for the model, which {how}. Leave it out of {option}"
            raise _cannot(name, option, [*columns, name] if name in known else columns, reason)


def _cannot(name: str, option: str, columns: Sequence[str], reason: str | None) -> LogFormatError:
    """Why a column that there may be cannot be used as it was asked for."""
    verb, done = ("keep", "kept") if option == "keep" else ("encode", "encoded")
    how = f"({option}, --{option.replace('_', '-')})"
    if name not in columns:
        return LogFormatError(no_column(name, columns, f" to {verb} {how}"))
    return LogFormatError(f"column {shown(name)} cannot be {done} {how}: {reason}.")


def _check_type(name: str, one_hot: bool, tables: Tables) -> None:
    kind = tables.schema.field(name).type
    odd = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if is_number(kind) or (one_hot and not odd):
        return
    if not is_text(kind):
        raise refusal("no-feature", name=name, kind=shown_type(kind))
    example = _no_number(name, tables)
    comma = example is not None and _DECIMAL_COMMA.fullmatch(example)
    such = "" if example is None else f", such as {shown(example)}"
    more = " A decimal comma? Read CSV with decimal=',' (--decimal ,)." if comma else ""
    raise refusal("text-no-feature", name=name, example=such, comma=more)


def _no_number(name: str, tables: Tables) -> str | None:
    """The first text of a column that is no number, if one of the first rows has it."""
    table = next((table for table in tables.read([name]) if table.num_rows), tables.schema.empty_table())
    for value in as_text(table[name].slice(0, _BLOCK)).to_pylist():
        try:
            float(value or 0)
        except ValueError:
            return str(value)
    return None


# -- what the data must tell -------------------------------------------------------------------------------------------


def _dtype(schema: pa.Schema, numbers: Sequence[str]) -> np.dtype[Any]:
    """float32 where nothing is lost by it: all numbers are stored so."""
    single = numbers and all(schema.field(name).type == pa.float32() for name in numbers)
    return np.dtype(np.float32 if single else np.float64)


def _add_holes(names: Sequence[str], tables: Tables, problems: Problems) -> None:
    """Note the columns of numbers in which some are missing, each with their number and the first."""
    holes: dict[str, tuple[int, int]] = {}
    for table, row in tables.numbered(names) if names else ():
        for name in names:
            if table[name].null_count:
                count, first = holes.get(name, (0, row + pc.index(table[name].is_null(), True).as_py()))
                holes[name] = count + table[name].null_count, first
    for name, (count, first) in holes.items():
        problems.add(sentence("numbers-missing", name=name, holes=count, row=first))


def _refuse_missing(name: str, values: pa.ChunkedArray, row: int) -> None:
    """Refuse values of which some are missing; ``row`` is the number of the first."""
    if values.null_count:
        first = row + pc.index(values.is_null(), True).as_py()
        raise refusal("numbers-missing", name=name, holes=values.null_count, row=first)


def _fill_values(names: Sequence[str], missing: str, tables: Tables, notes: list[Note]) -> dict[str, float]:
    """What stands for a missing number of each column, where one is to be imputed."""
    if missing == "refuse" or not names:
        return {}
    total, count, rows = np.zeros(len(names)), np.zeros(len(names)), 0
    for table, row in tables.numbered(names):
        rows = row + table.num_rows
        for place, name in enumerate(names):
            for chunk in table[name].chunks:
                values = plain_values(chunk, np.dtype(np.float64))
                known = values[~np.isnan(values)]
                with np.errstate(over="ignore", invalid="ignore"):
                    total[place] += known.sum()
                count[place] += len(known)
    holes = {name: int(rows - n) for name, n in zip(names, count, strict=True) if n < rows}
    if holes:
        each = ", ".join(f"{shown(name)} ({plural(n, 'value')})" for name, n in holes.items())
        text = f"missing numbers replaced by the {'mean' if missing == 'mean' else 'number 0'}: {each}."
        notes.append(Note("missing-replaced", "info", text, {"columns": tuple(holes), "values": tuple(holes.values())}))
    if missing == "zero":
        return dict.fromkeys(names, 0.0)
    means = dict(zip(names, (total / np.maximum(count, 1)).tolist(), strict=True))
    for name, n in zip(names, count, strict=True):
        if n == 0:
            raise refusal("no-mean", name=name)
    for name, mean in means.items():
        if not np.isfinite(mean):
            raise refusal("mean-not-finite", name=name, mean=mean)
    return means


def _categories(names: Sequence[str], options: ReadOptions, tables: Tables) -> dict[str, Counter[str]]:
    """The distinct values of each column, and how many rows have each."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for table, row in tables.numbered(names) if names else ():
        for name in names:
            values = as_text(table[name])
            if options.missing == "refuse":
                _refuse_missing(name, values, row)
            counts[name].update(value_counts(values))
    return counts


def kept_categories(name: str, counts: Mapping[str, int], options: ReadOptions) -> tuple[list[str], bool]:
    """The values that get a feature of their own, and whether the others, being rare, share one."""
    kept = [value for value, count in counts.items() if count >= options.min_count]
    if len(kept) > MOST_FEATURES:
        common = sorted(counts.values())[-MOST_FEATURES]
        raise refusal("categories-too-many", name=name, values=len(kept), most=MOST_FEATURES, count=common + 1)
    return kept, len(kept) < len(counts)
