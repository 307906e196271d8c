"""The layout of the Open Bandit Dataset: a folder with a CSV file of impressions beside ``item_context.csv``.

Impressions, such as ``bts/all/all.csv``: ``timestamp``, ``item_id`` (what was shown), ``position``, ``click``,
``propensity_score``, ``user_feature_0`` to ``3``, and ``user-item_affinity_0``, ``_1``, ... for the items. Items:
``item_id``, ``item_feature_0`` (a number) and ``item_feature_1`` to ``3`` (hashed categories).

Each impression is a step, its candidates are all items in the order of their ids. Their features are the numbers and
categories (one feature for each) of ``item_context.csv``, and ``user-item_affinity``: that of the user of the step to
the item; ``one_hot=["item_id"]`` adds one feature for every item. User features are the same for all candidates of a
step, so that no linear policy can depend on them; they are left out, but for products: with ``cross=[("user_feature_*",
"item_id")]`` their categories are features, multiplied with those of the items. ``propensity_score``, which may be
missing, is the logged propensity of the item shown, kept beside the log; clicks are never read. Nothing says where an
episode ends: cut by time, as in ``episode_every="1d"``.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray
from scipy import sparse

from ibcb.io.columns import category_codes, check_followed, check_one_hot, dropped, kept_categories, matches
from ibcb.io.files import regular
from ibcb.io.format import Format
from ibcb.io.opened import Opened
from ibcb.io.sources import BATCH_NUMBERS, refuse_keep, refuse_roles, shared_features, some
from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.propensities import of_chosen, wrong_propensity
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import ReadOptions, Steps
from ibcb.numerics.contexts import Contexts, ordered, sparse_pays

__all__ = ["FORMAT", "OpenBanditSource", "looks_like_openbandit"]

_ITEMS = "item_context.csv"
_AFFINITY = "user-item_affinity"
_USER = "user_feature"
_PROPENSITY = "propensity_score"
#: bytes that a byte of CSV takes as texts of Python
_ROW_SHARE = 16


class OpenBanditSource:
    """Steps from a folder of the Open Bandit Dataset, or from the CSV file of impressions in it; see `Source`.

    ``options.features`` and ``options.drop`` name columns of ``item_context.csv`` and ``user-item_affinity``,
    ``options.one_hot`` columns of numbers that are categories. Rows must be in the order of time; ``sort`` puts them
    so, in memory. ``options.drop`` may name ``propensity_score``, too. ``missing`` says what stands for missing numbers
    of items; "zero" also for missing affinities. With ``choices=False`` the column ``item_id`` may be missing;
    ``chosen`` is 0 then.
    """

    name: str
    preparation: Preparation | None
    feature_names: tuple[str, ...] | None
    notes: tuple[Note, ...]
    step_features: frozenset[str] | None = None

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        self._path = _impressions(Path(path))
        self._opened = Opened(self._path)
        self.name = self._path.name
        refuse_roles(options, self.name)
        refuse_keep(
            options, f"every column of {_ITEMS} is read, and an impression's are not of its items. Leave it out"
        )
        self._options = options
        ids, raw = self._items()
        self._ids = np.array(ids, dtype=np.int64)
        notes: list[Note] = []
        header = self._header_names = self._header()
        self._has_choices = "item_id" in header
        self._has_propensities = _PROPENSITY in header and options.choices and _PROPENSITY not in options.drop
        options = self._options = replace(options, drop=[name for name in options.drop if name != _PROPENSITY])
        self._wanted: list[str] = []
        users = [column for column in header if column.startswith(_USER)]
        self._users = [name for name in users if matches(name, options.crossed)]
        if options.preparation is not None:
            check_followed(options, options.preparation, [*raw, *users])
            columns = options.preparation.columns
            self._users = [column.name for column in columns if column.name.startswith(_USER)]
        self._check_columns(header)
        self.preparation = (options.preparation or Preparation(self._columns(raw))).uncrossed.raw
        columns = self.preparation.columns
        self.feature_names = self.preparation.feature_names
        self.step_features = frozenset(
            name for column in columns if column.name in self._users for name in column.feature_names
        )
        size = 16 * len(ids) * len(self.feature_names)
        if size > options.memory:
            raise beyond(
                f"{_ITEMS}: {plural(len(ids), 'item')} of {plural(len(self.feature_names), 'feature')} take "
                f"{amount(size)} at each step",
                options.memory,
                "pool categories (min_count, --min-count), ",
            )
        self._template, self._affinity = self._features(raw, columns, notes)
        self._affinity_fill = next((column.fill for column in columns if column.name == _AFFINITY), None)
        self._wanted = [f"{_AFFINITY}_{item}" for item in ids] if self._affinity is not None else []
        self._check_columns(header)
        of_row = np.count_nonzero(self._template) / len(ids) + (self._affinity is not None) + len(self._users)
        self._is_sparse = sparse_pays(len(self.feature_names), of_row / len(self.feature_names))
        left_out = [name for name in users if name not in self._users]
        if left_out:
            notes.append(shared_features(left_out, "user features", (f"{_USER}_*", columns[0].name)))
        self.notes = tuple(notes)

    # -- items -----------------------------------------------------------------------------------------------------

    def _items(self) -> tuple[list[int], dict[str, list[str]]]:
        """Ids of the items, rising, and their columns as text."""
        path = self._path.parent / _ITEMS
        if not path.is_file():
            raise LogFormatError(
                f"{self.name}: {_ITEMS} is missing beside it; the items' features are there. Copy it from the dataset."
            )
        size = _ROW_SHARE * path.stat().st_size
        if size > self._options.memory:
            raise beyond(f"{_ITEMS}: to read its items takes {amount(size)}", self._options.memory)
        with path.open(encoding="utf-8-sig", newline="") as file:
            try:
                header, *rows = [row for row in csv.reader(file, strict=True) if row] or [[]]
            except (csv.Error, UnicodeDecodeError) as error:
                raise LogFormatError(f"{_ITEMS}: not a readable CSV file in UTF-8 ({error}).") from None
        if "item_id" not in header:
            raise LogFormatError(f"{_ITEMS}: column 'item_id' is missing; it has {some(header, 10) or 'no columns'}.")
        _check_distinct(header, _ITEMS)
        if not rows:
            raise LogFormatError(f"{_ITEMS}: no items; a step needs at least one candidate.")
        for number, row in enumerate(rows, start=2):
            if len(row) != len(header):
                raise LogFormatError(f"{_ITEMS}, line {number}: {len(row)} fields, but the header has {len(header)}.")
        at = header.index("item_id")
        ids = [_item_id(row[at], f"{_ITEMS}, line {number}") for number, row in enumerate(rows, start=2)]
        if len(set(ids)) < len(ids):
            twice = next(item for item in ids if ids.count(item) > 1)
            raise LogFormatError(f"{_ITEMS}: item_id {twice} appears twice; keep one row for each item.")
        order = np.argsort(ids)
        # The first column of the dataset's files is a row number without a name.
        names = [column for column in header if column not in ("", "item_id")]
        options, made = self._options, self._options.preparation
        asked = {*options.encoded, *options.crossed, *(options.features or ())}
        if "item_id" in (asked if made is None else {column.name for column in made.columns}):
            names.insert(0, "item_id")
        return sorted(ids), {name: [rows[i][header.index(name)].strip() for i in order] for name in names}

    def _columns(self, raw: dict[str, list[str]]) -> tuple[FeatureColumn, ...]:
        """What is made of each column: a number, or a feature for each category."""
        options = self._options
        known = (*raw, _AFFINITY)
        absent = [name for name in (*(options.features or ()), *options.drop) if name not in known]
        if absent:
            raise LogFormatError(f"{self.name}: no feature column {some(absent)}; there are {some(known, 20)}.")
        names = [name for name in options.features or known if name not in options.drop]
        if options.features is not None:
            names += [name for name in known if name not in names and matches(name, options.crossed)]
        if not names:
            raise LogFormatError(f"{self.name}: every feature was dropped; keep at least one.")
        check_one_hot(options, [*names, *self._users], (*known, *self._users))
        if _AFFINITY in options.encoded:
            raise LogFormatError(
                f"{self.name}: column {_AFFINITY!r} cannot be encoded (one_hot, --one-hot): it holds numbers, one for "
                "each user and item. Leave it out of one_hot."
            )
        rows, of_users = self._user_values()
        columns = []
        for name in names:
            encode = name in options.encoded or name == "item_id"
            if name == _AFFINITY or (not encode and all(_is_number(text) for text in raw[name] if text)):
                columns.append(FeatureColumn(name, fill=self._fill(name, raw)))
            else:
                items = Counter(text for text in raw[name] if text)
                # Every item is a candidate at every step.
                columns.append(self._encoded(name, {text: count * rows for text, count in items.items()}))
        return (*columns, *(self._encoded(name, of_users[name]) for name in self._users))

    def _encoded(self, name: str, counts: dict[str, int]) -> FeatureColumn:
        categories, pooled = kept_categories(name, counts, self._options)
        return FeatureColumn(name, tuple(categories), pooled=pooled)

    def _user_values(self) -> tuple[int, dict[str, dict[str, int]]]:
        """How many impressions there are, if that matters, and how many have each value of a user's feature."""
        if not self._users and self._options.min_count == 1:
            return 1, {}
        rows, found = 0, {name: Counter[str]() for name in self._users}
        for table in self._tables():
            rows += len(table)
            for name in self._users:
                found[name].update({each["values"]: each["counts"] for each in table[name].value_counts().to_pylist()})
        return rows, {name: dict(sorted((text, n) for text, n in c.items() if text)) for name, c in found.items()}

    def _fill(self, name: str, raw: dict[str, list[str]]) -> float | None:
        """What stands for a missing number."""
        if self._options.missing == "zero":
            return 0.0
        known = [float(text) for text in raw.get(name, ()) if text]
        return sum(known) / len(known) if self._options.missing == "mean" and known else None

    def _features(
        self, raw: dict[str, list[str]], columns: tuple[FeatureColumn, ...], notes: list[Note]
    ) -> tuple[NDArray[np.float64], int | None]:
        """The items' features (items, d), 0 where the affinity will stand, and the column where it will."""
        blocks: list[NDArray[np.float64]] = []
        affinity: int | None = None
        for column in columns:
            if column.name == _AFFINITY:
                affinity = sum(block.shape[1] for block in blocks)
            if column.name == _AFFINITY or column.name in self._users:
                blocks.append(np.zeros((len(self._ids), len(column.feature_names))))
                continue
            if column.name not in raw:
                raise LogFormatError(f"{_ITEMS}: column {shown(column.name)} is missing; the model was fitted with it.")
            texts = raw[column.name]
            if column.categories is None:
                numbers = [self._number(text, column, item) for text, item in zip(texts, self._ids, strict=True)]
                blocks.append(np.array(numbers)[:, None])
            else:
                at = {category: place for place, category in enumerate(column.categories)}
                rest = len(at) if column.pooled else None
                codes = [at.get(text, rest) if text else None for text in texts]
                block = np.zeros((len(texts), len(column.feature_names)))
                for item, code in enumerate(codes):
                    block[item, [] if code is None else code] = 1.0
                blocks.append(block)
                unknown = dict.fromkeys(text for text, code in zip(texts, codes, strict=True) if text and code is None)
                if unknown:
                    text = f"{column.name}: categories unknown to the model count as none: {some(unknown)}."
                    notes.append(Note("unknown-categories", "warning", text, {"column": column.name}))
        return np.concatenate(blocks, axis=1), affinity

    def _number(self, text: str, column: FeatureColumn, item: np.int64) -> float:
        if not text and column.fill is not None:
            return column.fill
        if not _is_number(text) or not np.isfinite(float(text)):
            what = shown(text) if text else "missing"
            raise LogFormatError(
                f"{_ITEMS}, item {item}: {column.name} is {what}; expected a finite number. Impute it (--missing mean "
                f"or zero), or leave the column out: drop=['{column.name}'] (--drop {column.name})."
            )
        return float(text)

    # -- impressions -----------------------------------------------------------------------------------------------

    def _header(self) -> list[str]:
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            try:
                header = next(csv.reader(file, strict=True), [])
            except (csv.Error, UnicodeDecodeError) as error:
                raise LogFormatError(f"{self.name}: not a readable CSV file in UTF-8 ({error}).") from None
        if not header:
            raise LogFormatError(f"{self.name}: the file is empty; it needs a header and a row for each impression.")
        return header

    def _check_columns(self, header: list[str]) -> None:
        _check_distinct(header, self.name)
        needed = ["timestamp", *self._users, *(["item_id"] if self._options.choices else [])]
        for column in needed:
            if column not in header:
                raise LogFormatError(f"{self.name}: column {shown(column)} is missing; it has {some(header, 10)}.")
        absent = [column for column in self._wanted if column not in header]
        if absent:
            raise LogFormatError(
                f"{self.name}: {plural(len(absent), 'column')} of affinity missing: {some(absent)}; {_ITEMS} has "
                f"{plural(len(self._ids), 'item')}. Do the two files belong together? drop=['{_AFFINITY}'] (--drop "
                f"{_AFFINITY}) reads without."
            )

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time."""
        numbers = np.count_nonzero(self._template) if self._is_sparse else self._template.size
        most = max(1, min(BATCH_NUMBERS, self._options.memory // 64) // numbers)
        last: Any = None
        for table in self._tables():
            for first in range(0, len(table), most):
                part = table.slice(first, most)
                times, lines = self._times(part), part["line"].to_numpy()
                before = np.concatenate([times[:1] if last is None else [last], times[:-1]])
                falls = np.flatnonzero(times < before)
                if len(falls):
                    at = int(falls[0])
                    raise LogFormatError(
                        f"{self.name}, line {lines[at]}: timestamp {times[at]} follows {before[at]}; sort the rows by "
                        "timestamp, or read with sort=True (--sort)."
                    )
                yield self._steps(part, times, lines)
                last = times[-1]
        if last is None:
            raise LogFormatError(f"{self.name}: the log is empty: it has no impression.")

    def _tables(self) -> Iterator[pa.Table]:
        """The columns that are needed and the line of each row, block by block.

        Where asked to sort, all at once and in the order of time.
        """
        types = {name: pa.float64() for name in self._wanted} | {"timestamp": pa.string()}
        types |= dict.fromkeys(self._users, pa.string())
        if self._has_choices:
            types["item_id"] = pa.string()
        if self._has_propensities:
            types[_PROPENSITY] = pa.float64()
        how = {
            "read_options": pacsv.ReadOptions(use_threads=False, block_size=2**22),
            "convert_options": pacsv.ConvertOptions(include_columns=list(types), column_types=types),
        }
        try:
            with self._opened.read() as opened:
                file, line = pa.PythonFile(opened, "r"), 2
                if self._options.sort:
                    table = _with_lines(pacsv.read_csv(file, **how), line)
                    yield table.take(pa.array(np.argsort(self._times(table), kind="stable")))
                    return
                with pacsv.open_csv(file, **how) as reader:
                    for batch in reader:
                        yield _with_lines(pa.Table.from_batches([batch]), line)
                        line += len(batch)
        except pa.ArrowInvalid as error:
            at = self._header_names.index(_PROPENSITY) if self._has_propensities else None
            without = f" Or read without {_PROPENSITY}: {dropped(_PROPENSITY)}."
            remedy = without if f"column #{at}:" in str(error) else ""
            raise LogFormatError(f"{self.name}: not a readable CSV file ({error}).{remedy}") from None

    def _times(self, table: pa.Table) -> NDArray[Any]:
        """Times in UTC; those without a zone are taken for UTC."""
        whole = _utc(table["timestamp"])
        if whole is not None:
            return whole
        # Some have a zone and some have not, or one is no time: one by one.
        result = np.empty(len(table), dtype="datetime64[ns]")
        for at, text in enumerate(table["timestamp"].to_pylist()):
            time = _utc(pa.chunked_array([[text]], pa.string()))
            if time is None:
                raise LogFormatError(
                    f"{self.name}, line {table['line'][at]}: timestamp is {shown(text)}; expected a time such as "
                    "2019-11-24 00:00:22.579000+00:00."
                )
            result[at] = time[0]
        return result

    def _steps(self, table: pa.Table, times: NDArray[Any], lines: NDArray[np.int64]) -> Steps:
        n, items = len(table), len(self._ids)
        chosen = np.zeros(n, dtype=np.int64)
        if self._has_choices:
            chosen = self._positions(table["item_id"].to_pylist(), lines)
        contexts = self._contexts(table, self._affinities(table, lines))
        logged = self._propensities(table, chosen, lines) if self._has_propensities else None
        return Steps(contexts, np.full(n, items, dtype=np.int64), chosen, timestamps=times, propensities=logged)

    def _contexts(self, table: pa.Table, affinities: NDArray[np.float64]) -> Contexts:
        n, (items, d) = len(table), self._template.shape
        if not self._is_sparse:
            contexts = np.broadcast_to(self._template, (n, items, d)).copy()
            if self._affinity is not None:
                contexts[:, :, self._affinity] = affinities
            for steps, column in self._user_codes(table):
                contexts[steps, :, column] = 1.0
            return contexts.reshape(n * items, d)
        rows, columns = (np.tile(places, n) for places in np.nonzero(self._template))
        rows += items * np.repeat(np.arange(n), np.count_nonzero(self._template))
        found = [(np.tile(self._template[np.nonzero(self._template)], n), rows, columns)]
        if self._affinity is not None:
            every = np.arange(n * items)
            found.append((affinities.ravel(), every, np.full(len(every), self._affinity)))
        for steps, column in self._user_codes(table):
            of_steps = (items * steps[:, None] + np.arange(items)).ravel()
            found.append((np.ones(len(of_steps)), of_steps, np.repeat(column, items)))
        values, rows, columns = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return ordered(sparse.csr_array((values, (rows, columns)), shape=(n * items, d)))

    def _propensities(
        self, table: pa.Table, chosen: NDArray[np.int64], lines: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """What was logged of every row: of the item shown alone."""
        values, items = table[_PROPENSITY].to_numpy().astype(np.float64), len(self._ids)
        found = wrong_propensity(values, np.arange(len(values)))
        if found is not None:
            raise LogFormatError(
                f"{self.name}, line {lines[found[0]]}: {found[1]}. Correct it, or read without: {dropped(_PROPENSITY)}."
            )
        return of_chosen(values, items * np.arange(len(values)) + chosen, items * len(values))

    def _user_codes(self, table: pa.Table) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For every feature of users: the steps that have a category, and the column where it stands."""
        place = 0
        for column in self.preparation.columns if self.preparation is not None else ():
            if column.name in self._users:
                texts = table[column.name]
                codes, _ = category_codes(pc.if_else(pc.equal(texts, ""), None, texts), column)
                known = np.flatnonzero(codes >= 0)
                yield known, place + codes[known]
            place += len(column.feature_names)

    def _affinities(self, table: pa.Table, lines: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of the user of every step to every item, shape (steps, items)."""
        found = np.empty((len(table), len(self._wanted)))
        for position, name in enumerate(self._wanted):
            values = table[name].to_numpy()
            if self._affinity_fill is not None and table[name].null_count:
                values = np.where(table[name].is_null().to_numpy(), self._affinity_fill, values)
            bad = ~np.isfinite(values)
            if bad.any():
                at = int(np.argmax(bad))
                what = values[at] if table[name][at].is_valid else "missing"
                raise LogFormatError(
                    f"{self.name}, line {lines[at]}: {name} is {what}; contexts must be finite. Impute the value "
                    "(--missing zero) or drop the row."
                )
            found[:, position] = values
        return found

    def _positions(self, texts: list[str], lines: NDArray[np.int64]) -> NDArray[np.int64]:
        ids = np.array([_item_id(text, f"{self.name}, line {line}") for text, line in zip(texts, lines, strict=True)])
        positions = np.searchsorted(self._ids, ids)
        unknown = self._ids[np.minimum(positions, len(self._ids) - 1)] != ids
        if unknown.any():
            at = int(np.argmax(unknown))
            raise LogFormatError(
                f"{self.name}, line {lines[at]}: item_id is {ids[at]}, which {_ITEMS} does not have; its "
                f"{plural(len(self._ids), 'item')} are {self._ids[0]} to {self._ids[-1]}. Do the files belong together?"
            )
        return positions.astype(np.int64)


def looks_like_openbandit(path: str | os.PathLike[str]) -> bool:
    """Whether a folder, or a CSV file with what is beside it, is laid out as the Open Bandit Dataset."""
    found = Path(path)
    if found.is_dir():
        return (found / _ITEMS).is_file()
    if found.suffix.lower() != ".csv" or not (found.parent / _ITEMS).is_file():
        return False
    try:
        with found.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return found.name == _ITEMS or {"item_id", "timestamp"} <= set(header)


def _impressions(path: Path) -> Path:
    """The file of impressions: the one given, or the only one in a folder."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; give a folder of the Open Bandit Dataset, or a CSV file in it."
        )
    if path.name == _ITEMS:
        path = path.parent
    if not path.is_dir():
        return regular(path)
    if not (path / _ITEMS).is_file():
        raise LogFormatError(
            f"{path.name}: no {_ITEMS} in this folder; give one that has it beside the impressions, such as bts/all."
        )
    files = sorted(file.name for file in path.glob("*.csv") if file.name != _ITEMS)
    if len(files) != 1:
        raise LogFormatError(
            f"{path.name}: {'several CSV files' if files else 'no CSV file'} beside {_ITEMS}"
            f"{f' ({some(files)})' if files else ''}; give the path of the file of impressions."
        )
    return regular(path / files[0])


def _check_distinct(header: list[str], name: str) -> None:
    if len(set(header)) < len(header):
        twice = next(column for column in header if header.count(column) > 1)
        raise LogFormatError(f"{name}: column {shown(twice)} appears twice; keep one of them.")


def _item_id(text: str | None, place: str) -> int:
    if text is not None and re.fullmatch(r"\s*[+-]?\d{1,25}\s*", text) and abs(int(text)) < 2**63:
        return int(text)
    raise LogFormatError(
        f"{place}: item_id is {shown(text or 'missing')}; expected a whole number of at most 18 digits."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _with_lines(table: pa.Table, first: int) -> pa.Table:
    return table.append_column("line", pa.array(np.arange(first, first + len(table))))


def _utc(texts: pa.ChunkedArray) -> NDArray[Any] | None:
    """Times in UTC, if all texts are times, with a zone or without one."""
    for kind in (pa.timestamp("ns", tz="UTC"), pa.timestamp("ns")):
        try:
            times = pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
        if times.null_count == 0:
            return np.asarray(times.to_numpy(), dtype="datetime64[ns]")
    return None


def beside(path: Path) -> list[Path]:
    """The files that are read with a file of impressions."""
    items = path.parent / _ITEMS
    return [items] if path != items and looks_like_openbandit(path) else []


FORMAT = Format(
    name="log of the Open Bandit Dataset",
    short="openbandit",
    open=OpenBanditSource,
    looks_like=lambda source: isinstance(source, Path) and looks_like_openbandit(source),
)
