"""The layout of the Open Bandit Dataset: a folder with a table of impressions beside ``item_context.csv``.

Impressions, such as ``bts/all/all.csv``: ``timestamp``, ``item_id`` (what was shown), ``position``, ``click``,
``propensity_score``, ``user_feature_0`` to ``3``, and ``user-item_affinity_0``, ``_1``, ... for the items. Items:
``item_id``, ``item_feature_0`` (a number) and ``item_feature_1`` to ``3`` (hashed categories). Both are CSV, as in the
dataset, or any other format of tables.

Each impression is a step, its candidates are all items in the order of their ids. Their features are the numbers and
categories (one feature for each) of ``item_context.csv``, and ``user-item_affinity``: that of the user of the step to
the item; ``one_hot=["item_id"]`` adds one feature for every item. User features are the same for all candidates of a
step, so that no linear policy can depend on them; they are left out, but for products: with ``cross=[("user_feature_*",
"item_id")]`` their categories are features, multiplied with those of the items. ``propensity_score``, which may be
missing, is the logged propensity of the item shown, kept beside the log; clicks are never read. Nothing says where an
episode ends: cut by time, as in ``episode_every="1d"``.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ibcb.io import csvfiles, ipc, jsonlines, parquet
from ibcb.io.cells import as_text, as_texts, is_quantity, shown_type, value_counts
from ibcb.io.columns import check_followed, check_one_hot, kept_categories, matches
from ibcb.io.format import Format, Tables, has_suffix
from ibcb.io.logged import Logged
from ibcb.io.longrows import CandidateRows
from ibcb.io.opened import regular
from ibcb.io.sources import BATCH_NUMBERS, MappedSource, refuse_keep, refuse_roles, shared_features, some
from ibcb.io.words import refusal
from ibcb.log.array_checks import LogFormatError, first_true, plural
from ibcb.log.choice_propensities import wrong_propensity
from ibcb.log.disk import DAMAGE, named
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import Steps
from ibcb.numerics.printable import shown

_TABLES = (csvfiles.FORMAT, parquet.FORMAT, ipc.FORMAT, jsonlines.FORMAT)
_ITEMS = "item_context"
_AFFINITY = "user-item_affinity"
_USER = "user_feature"
_PROPENSITY = "propensity_score"
#: the column of the rows' numbers
_ROW = "ibcb row"
#: columns of the long rows that play a part
_ROLES = {"step": "step", "chosen": "chosen", "timestamp": "timestamp", "propensity": _PROPENSITY}


class OpenBanditSource(MappedSource):
    """Steps from a folder of the Open Bandit Dataset, or from the table of impressions in it; see `Source`.

    ``options.features`` and ``options.drop`` name columns of ``item_context.csv`` and ``user-item_affinity``,
    ``options.one_hot`` columns of numbers that are categories. Rows must be in the order of time; ``sort`` puts them
    so, in memory. ``options.drop`` may name ``propensity_score``, too. ``missing`` says what stands for missing numbers
    of items; "zero" also for missing affinities. With ``choices=False`` the column ``item_id`` may be missing;
    ``chosen`` is 0 then.
    """

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        impressions, beside = _files(Path(path))
        self.name, self._items_name = impressions.name, beside.name
        refuse_roles(options, self.name)
        refuse_keep(
            options, f"every column of {_ITEMS} is read, and an impression's are not of its items. Leave it out"
        )
        self._tables = _opened(impressions, options)
        names = self._tables.schema.names
        dropped_propensities = _PROPENSITY in options.drop
        self._options = options = replace(options, drop=[name for name in options.drop if name != _PROPENSITY])
        with named(beside.name):
            items = self._read_items(beside)
        users = [name for name in names if name.startswith(_USER)]
        self._users = [name for name in users if matches(name, options.crossed)]
        if options.preparation is not None:
            check_followed(options, options.preparation, [*items.column_names[:-1], *users])
            self._users = [c.name for c in options.preparation.columns if c.name.startswith(_USER)]
        needed = ["timestamp", *self._users, *(["item_id"] if options.choices else [])]
        self._check_there(needed)
        recipe = (options.preparation or Preparation(self._columns(items))).uncrossed.raw
        columns = {column.name: column for column in recipe.columns}
        numbers = len(self._ids) * len(recipe.feature_names)
        if 16 * numbers > options.memory:
            raise beyond(
                f"{beside.name}: {plural(len(self._ids), 'item')} of {plural(len(recipe.feature_names), 'feature')} "
                f"take {amount(16 * numbers)} at each step",
                options.memory,
                "pool categories (min_count, --min-count), ",
            )
        own = [column for name, column in columns.items() if name != _AFFINITY and name not in self._users]
        notes = self._check_items(items, own)
        #: the columns of the items at each row, and those of impressions that have an item's number each
        self._items = {c.name: items[c.name].cast(pa.string() if c.categories else pa.float64()) for c in own}
        self._affinities = [
            replace(columns[_AFFINITY], name=f"{_AFFINITY}_{item}") for item in self._ids if _AFFINITY in columns
        ]
        needed += [column.name for column in self._affinities]
        self._check_there(needed, f" drop=['{_AFFINITY}'] (--drop {_AFFINITY}) reads without.")
        left_out = [name for name in users if name not in self._users]
        if left_out:
            notes.append(shared_features(left_out, "user features", (f"{_USER}_*", next(iter(columns)))))
        if _PROPENSITY in names and options.choices and not dropped_propensities:
            needed.append(_PROPENSITY)
        fields = [field for field in self._tables.schema if field.name in {*needed, "item_id"}]
        self._tables = self._tables._replace(schema=pa.schema(fields))
        self._most = max(1, min(BATCH_NUMBERS, options.memory // 64) // numbers)
        with named(self.name):
            schema = self._unfolded(_numbered(self._tables.schema.empty_table(), 0), np.empty(0, "M8[ns]")).schema
        how = ReadOptions(
            preparation=replace(recipe, roles=()),
            columns={role: name for role, name in _ROLES.items() if name in schema.names},
            choices=options.choices,
            max_memory=options.max_memory,
        )
        rows = Tables(self.name, schema, self._long_rows, of_step=(_PROPENSITY,))
        super().__init__(CandidateRows(rows, how, told=True), recipe, recipe.feature_names, tuple(notes))
        self.step_features = frozenset(name for each in self._users for name in columns[each].feature_names)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What is known of the items; their categories are not counted at each step."""
        return self._notes

    def _mapped(self, batches: Iterable[Steps]) -> Iterator[Steps]:
        """Without names of the candidates, also where ``item_id`` is a feature."""
        return (steps._replace(candidate_ids=None) for steps in batches)

    # -- items -----------------------------------------------------------------------------------------------------

    def _read_items(self, path: Path) -> pa.Table:
        """The items by their ids, rising, with the columns that may be features."""
        items, options = _opened(path, self._options).whole(self._options.memory), self._options
        if "item_id" not in items.column_names:
            raise LogFormatError(f"column 'item_id' is missing; it has {some(items.column_names, 10)}.")
        if items.num_rows == 0:
            raise LogFormatError("no items; a step needs at least one candidate.")
        items = _numbered(items, 0)
        ids = _ids(items)
        order = np.argsort(ids)
        self._ids = ids[order]
        again = np.flatnonzero(self._ids[1:] == self._ids[:-1])
        if len(again):
            raise LogFormatError(f"item_id {self._ids[again[0]]} appears twice; keep one row for each item.")
        # The first column of the dataset's files is a row number without a name.
        names = [name for name in items.column_names if name not in ("", "item_id", _ROW)]
        made = () if options.preparation is None else options.preparation.columns
        asked = {*options.encoded, *options.crossed, *(options.features or ())}
        if "item_id" in ({column.name for column in made} if made else asked):
            names.insert(0, "item_id")
        return items.select([*names, _ROW]).take(order)

    def _columns(self, items: pa.Table) -> tuple[FeatureColumn, ...]:
        """What is made of each column: a number, or a feature for each category."""
        options, known = self._options, (*items.column_names[:-1], _AFFINITY)
        absent = [name for name in (*(options.features or ()), *options.drop) if name not in known]
        if absent:
            raise LogFormatError(f"no feature column {some(absent)}; there are {some(known, 20)}.")
        names = [name for name in options.features or known if name not in options.drop]
        if options.features is not None:
            names += [name for name in known if name not in names and matches(name, options.crossed)]
        if not names:
            raise LogFormatError("every feature was dropped; keep at least one.")
        for name in options.encoded:
            check_one_hot(name, options, [*names, *self._users], (*known, *self._users), {})
        if _AFFINITY in options.encoded:
            raise refusal("affinity-encoded", name=_AFFINITY)
        rows, of_users = self._user_values()
        columns = []
        for name in names:
            values = None if name == _AFFINITY else items[name]
            fill = 0.0 if options.missing == "zero" else None
            if values is not None and (name in (*options.encoded, "item_id") or not is_quantity(values.type)):
                # Every item is a candidate at every step.
                counts = Counter(text for text in as_text(values).to_pylist() if text is not None)
                columns.append(self._encoded(name, {text: count * rows for text, count in counts.items()}))
                continue
            numbers = [] if values is None else values.drop_null().cast(pa.float64()).to_pylist()
            mean = sum(numbers) / len(numbers) if options.missing == "mean" and numbers else fill
            columns.append(FeatureColumn(name, fill=mean))
        return (*columns, *(self._encoded(name, dict(sorted(of_users[name].items()))) for name in self._users))

    def _encoded(self, name: str, counts: dict[str, int]) -> FeatureColumn:
        categories, pooled = kept_categories(name, counts, self._options)
        return FeatureColumn(name, tuple(categories), pooled=pooled)

    def _user_values(self) -> tuple[int, dict[str, Counter[str]]]:
        """How many impressions there are, if that matters, and how many have each value of a user's feature."""
        if not self._users and self._options.min_count == 1:
            return 1, {}
        rows, counts = 0, {name: Counter[str]() for name in self._users}
        for table in self._tables.read(self._users or ["timestamp"]):
            rows += table.num_rows
            for name in self._users:
                counts[name].update(value_counts(as_text(table[name])))
        return rows, counts

    def _check_items(self, items: pa.Table, columns: Sequence[FeatureColumn]) -> list[Note]:
        """Refuse columns that are not as they are needed; what a reader should know of categories."""
        notes = []
        with named(self._items_name):
            for column in columns:
                if column.name not in items.column_names:
                    raise LogFormatError(f"column {shown(column.name)} is missing; the model was fitted with it.")
            _check_numbers(items, columns)
        for column in columns:
            texts = dict.fromkeys(as_text(items[column.name]).drop_null().to_pylist())
            unknown = [text for text in texts if text not in (column.categories or texts)]
            if unknown and not column.pooled:
                text = f"{column.name}: categories unknown to the model count as none: {some(unknown)}."
                notes.append(Note("unknown-categories", "warning", text, {"column": column.name}))
        return notes

    # -- impressions -----------------------------------------------------------------------------------------------

    def _check_there(self, names: list[str], remedy: str = "") -> None:
        """Refuse impressions that lack columns."""
        there = self._tables.schema.names
        absent = [name for name in names if name not in there]
        if absent:
            missing, beside = f"{plural(len(absent), 'column')} missing: {some(absent)}", self._items_name
            items = plural(len(self._ids), "item")
            raise refusal(
                "impressions-lack", missing=missing, there=some(there, 10), file=beside, items=items, remedy=remedy
            )

    def _long_rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """A row for each item at each impression, a bounded number at a time."""
        last = np.datetime64("NaT", "ns")
        for table in filter(len, self._impressions()):
            times = _times(table)
            before = np.concatenate([[last], times[:-1]])
            if (at := first_true(times < before)) is not None:
                raise refusal("impressions-unsorted", row=_row(table, at), time=times[at], before=before[at])
            last = times[-1]
            for first in range(0, len(times), self._most):
                yield self._unfolded(table.slice(first, self._most), times[first : first + self._most]).select(columns)

    def _impressions(self) -> Iterator[pa.Table]:
        """Rows with their numbers, some at a time; all at once to sort them."""
        if self._options.sort:
            every = _numbered(self._tables.whole(self._options.memory), 0)
            yield every.take(pa.array(np.argsort(_times(every), kind="stable")))
            return
        for table, row in self._tables.numbered(self._tables.schema.names):
            yield _numbered(table, row)

    def _unfolded(self, table: pa.Table, times: NDArray[Any]) -> pa.Table:
        n, k = len(table), len(self._ids)
        owner, item = np.repeat(np.arange(n), k), np.tile(np.arange(k), n)
        _check_numbers(table, self._affinities)
        cells: dict[str, Any] = {"step": table[_ROW].take(owner), "timestamp": times[owner]}
        if "item_id" in table.column_names:
            cells["chosen"] = item == self._positions(table)[owner]
        if _PROPENSITY in table.column_names:
            logged = Logged(_PROPENSITY, told=True).numbers(table[_PROPENSITY])
            if (wrong := wrong_propensity(logged, np.arange(n))) is not None:
                raise refusal("impression-propensity", row=_row(table, wrong[0]), reason=wrong[1], name=_PROPENSITY)
            cells[_PROPENSITY] = logged[owner]
        if self._affinities:
            each = [table[column.name].cast(pa.float64()).to_numpy() for column in self._affinities]
            cells[_AFFINITY] = np.column_stack(each).ravel()
        cells |= {name: column.take(item) for name, column in self._items.items()}
        return pa.table(cells | {name: as_text(table[name]).take(owner) for name in self._users})

    def _positions(self, table: pa.Table) -> NDArray[np.int64]:
        """Which item was shown at each step."""
        ids = _ids(table)
        positions = np.searchsorted(self._ids, ids)
        if (at := first_true(self._ids[np.minimum(positions, len(self._ids) - 1)] != ids)) is not None:
            items = f"{plural(len(self._ids), 'item')} are {self._ids[0]} to {self._ids[-1]}"
            raise refusal("item-unknown", row=_row(table, at), item=ids[at], file=self._items_name, items=items)
        return positions


def looks_like_openbandit(path: str | os.PathLike[str]) -> bool:
    """Whether a folder, or a table with what is beside it, is laid out as the Open Bandit Dataset."""
    place = Path(path)
    if place.is_dir():
        return _items_in(place) is not None
    format, items = _format_of(place), _items_in(place.parent)
    if format is None or format.tables is None or items is None:
        return False
    try:
        return place == items or {"item_id", "timestamp"} <= set(format.tables(place, ReadOptions()).schema.names)
    except (LogFormatError, *DAMAGE):
        return False


def beside(path: Path) -> list[Path]:
    """The files that are read with a file of impressions."""
    items = _items_in(path.parent)
    return [items] if items not in (None, path) and looks_like_openbandit(path) else []


def _format_of(path: Path) -> Format | None:
    """The format of a table, by its name."""
    return next((format for format in _TABLES if has_suffix(path, *format.suffixes)), None)


def _items_in(folder: Path) -> Path | None:
    return next((path for path in sorted(folder.glob(f"{_ITEMS}.*")) if _format_of(path) and path.is_file()), None)


def _files(path: Path) -> tuple[Path, Path]:
    """The files of impressions and of items: impressions are those that were given, or the only ones in the folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give a folder of the Open Bandit Dataset, or a table in it.")
    items = _items_in(path if path.is_dir() else path.parent)
    if items is None:
        raise refusal("items-missing", items=_ITEMS)
    if path != items and not path.is_dir():
        return regular(path), regular(items)
    files = sorted(file for file in items.parent.iterdir() if file != items and _format_of(file))
    if len(files) != 1:
        names = f" ({some(file.name for file in files)})" if files else ""
        raise refusal(
            "impressions-unclear", tables="several tables" if files else "no table", items=items.name, names=names
        )
    return regular(files[0]), regular(items)


def _opened(path: Path, options: ReadOptions) -> Tables:
    """The rows of a table file."""
    format = _format_of(path) or csvfiles.FORMAT
    how = {name: getattr(options, name) for name in ("delimiter", "decimal", "max_memory")}
    with named(path.name, format.name):
        return format.rows(path, ReadOptions(**how))


def _check_numbers(table: pa.Table, columns: Sequence[FeatureColumn]) -> None:
    """Refuse columns of other than numbers, and missing ones, where numbers are to be read."""
    for column in columns:
        values, name = table[column.name], _AFFINITY if column.name.startswith(_AFFINITY) else column.name
        if column.categories is not None:
            continue
        if not is_quantity(values.type):
            raise refusal("number-needed", column=column.name, kind=shown_type(values.type), name=name)
        if values.null_count and column.fill is None:
            place = _row(table, pc.index(values.is_null(), True).as_py())
            raise refusal("number-missing", place=place, column=some([column.name]), name=name)


def _numbered(table: pa.Table, first: int) -> pa.Table:
    return table.append_column(_ROW, pa.array(np.arange(first, first + len(table))))


def _row(table: pa.Table, at: int) -> str:
    """Where a row stands in its file."""
    return f"row {table[_ROW][at]} (from 0)"


def _ids(table: pa.Table) -> NDArray[np.int64]:
    texts = as_texts(table["item_id"])
    sound = pc.fill_null(pc.match_substring_regex(texts, r"^\s*-?\d{1,18}\s*$"), False)
    at = pc.index(sound, False).as_py()
    if at >= 0:
        raise refusal("item-id-wrong", row=_row(table, at), value=texts[at].as_py() or "missing")
    ids: NDArray[np.int64] = pc.utf8_trim_whitespace(texts).cast(pa.int64()).to_numpy()
    return ids


def _times(table: pa.Table) -> NDArray[Any]:
    """Times in UTC; those without a zone are taken for UTC."""
    column = table["timestamp"]
    column = column if pa.types.is_temporal(column.type) else as_texts(column)
    times = _utc(column)
    if times is not None:
        return times
    # Some have a zone and some have not, or one is no time: one by one.
    result = np.empty(len(table), dtype="datetime64[ns]")
    for at, text in enumerate(as_texts(column).to_pylist()):
        time = _utc(pa.chunked_array([[text]], pa.string()))
        if time is None:
            raise refusal("impression-time", row=_row(table, at), text=text or "missing")
        result[at] = time[0]
    return result


def _utc(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Times in UTC, if all are times, with a zone or without one."""
    for kind in (pa.timestamp("ns", tz="UTC"), pa.timestamp("ns")):
        with contextlib.suppress(pa.ArrowInvalid):
            times = pc.cast(column, kind)
            if times.null_count == 0:
                return np.asarray(times.to_numpy(), dtype="datetime64[ns]")
    return None


FORMAT = Format(
    name="log of the Open Bandit Dataset",
    short="openbandit",
    open=OpenBanditSource,
    looks_like=lambda source: isinstance(source, Path) and looks_like_openbandit(source),
)
