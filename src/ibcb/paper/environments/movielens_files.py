"""The files of MovieLens 100K: where they are, and what they say.

Read from the publisher's folder or zip, or downloaded from the publisher; the licence forbids shipping them. The data
become five plain tables, checked row by row: a wrong number in them would only show as a strange result much later.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
VARIABLE = "IBCB_ML100K"
N_GENRES, N_OCCUPATIONS = 19, 21

_ZIP, _INSIDE = "ml-100k.zip", "ml-100k/"
_NAMES = ("u.data", "u.user", "u.item", "u.genre", "u.occupation")
_DATA_MD5 = "6e47046882bad158b0efbb84cd5cb987"
_DATE = re.compile(r"\d{1,2}-(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)-(\d{4})")


class MovieLensFormatError(ValueError):
    """A file that is not what the publisher describes; the message names file, row, what was expected and found."""


class Ratings(NamedTuple):
    """MovieLens 100K. Users, items, occupations and genres are counted from 0.

    Attributes
    ----------
    users, items, stars, timestamps : ndarray of shape (rows,)
        Who rated what, with 1 to 5 stars and when, in the order of u.data.
    ages, genders, occupations : ndarray of shape (n_users,)
        Gender is 0 for F and 1 for M.
    years : ndarray of shape (n_items,)
        Year of release; NaN where the publisher has no date.
    genres : ndarray of shape (n_items, 19)
        1 where the item is of the genre, else 0.
    """

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    stars: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    ages: NDArray[np.int64]
    genders: NDArray[np.int64]
    occupations: NDArray[np.int64]
    years: NDArray[np.float64]
    genres: NDArray[np.int64]


def find_files(folder: str | os.PathLike[str] | None = None) -> MovieLensFiles:
    """The files in ``folder`` (or zip), else where IBCB_ML100K points, else from the publisher by way of the cache."""
    if folder is not None:
        return MovieLensFiles.open(folder, f"folder={os.fspath(folder)!r}")
    named = os.environ.get(VARIABLE)
    return MovieLensFiles.open(named, f"{VARIABLE}={named!r}") if named else download()


def download(url: str | None = None, cache: str | os.PathLike[str] | None = None) -> MovieLensFiles:
    """The publisher's zip, fetched once into the cache of this machine and checked every time it is read."""
    url = URL if url is None else url
    ungiven = f"MovieLens 100K was given neither as folder= nor in {VARIABLE},"
    by_hand = (
        f"To supply the data by hand, get {URL} on any machine and set {VARIABLE} to that zip or to the folder "
        "unpacked from it, or pass it as folder=."
    )
    try:
        pooch = importlib.import_module("pooch")
    except ModuleNotFoundError:
        why = "and downloading it needs pooch, which is not installed: pip install 'ibcb[data]'."
        raise ModuleNotFoundError(f"{ungiven} {why} {by_hand}", name="pooch") from None
    where = Path(cache if cache is not None else pooch.os_cache("ibcb"))
    try:
        # No hash of the zip, which the publisher may repack: what must not change is u.data inside, checked below.
        zips = pooch.create(path=where, base_url="", registry={_ZIP: None}, urls={_ZIP: url})
        path = Path(zips.fetch(_ZIP))
    except OSError as error:  # requests' own errors are OSErrors too
        why = f"is not in the cache {where}, and could not be downloaded from {url} ({error})."
        raise ConnectionError(f"{ungiven} {why} {by_hand}") from error
    try:
        files = MovieLensFiles.open(path, str(path))
        digest = hashlib.md5(files.contents["u.data"], usedforsecurity=False).hexdigest()
        if digest != _DATA_MD5:
            files.refuse("u.data", None, f"md5 {_DATA_MD5}", digest)
    except (MovieLensFormatError, FileNotFoundError) as error:
        # A bad copy in the cache would be met again by every later run.
        path.unlink(missing_ok=True)
        why = f"the download from {url} is not MovieLens 100K: {error} It was removed from the cache; try again."
        raise MovieLensFormatError(f"{why} {by_hand}") from error
    return files


class _Column(NamedTuple):
    """A column of a file: what it has, what is expected of a field of some row, and the field's value or None."""

    name: str
    expected: str
    value: Callable[[str, int], Any] = lambda text, row: text


def _whole(name: str, expected: str, least: int, most: int) -> _Column:
    return _Column(name, expected, lambda text, row: number if least <= (number := _number(text)) <= most else None)


def _counted(name: str, first: int) -> _Column:
    """One more in every row."""
    expected = f"{name}s in order, counting from {first}"
    return _Column(name, expected, lambda text, row: row if _number(text) == row - 1 + first else None)


def _one_of(name: str, expected: str, known: Sequence[str]) -> _Column:
    return _Column(name, expected, lambda text, row: known.index(text) if text in known else None)


def _number(text: str) -> int:
    """-1 where it is none: int() would also take "+1", " 1" and "1_0"; no number of the format has 20 digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1


def _year(text: str, row: int) -> float | None:
    date = _DATE.fullmatch(text)
    return float(date[1]) if date else None if text else np.nan


class MovieLensFiles(NamedTuple):
    """The five files as they lie in a folder or zip.

    Attributes
    ----------
    source : Path
        Folder that holds them, perhaps one inside a zip.
    contents : dict of str to bytes
        By file name.
    """

    source: Path
    contents: dict[str, bytes]

    @classmethod
    def open(cls, source: str | os.PathLike[str], called: str) -> MovieLensFiles:
        """Read the files; ``called`` says in an error where the path came from."""
        path = Path(source).expanduser()
        if not path.exists():
            raise FileNotFoundError(
                f"{called}: no such folder or zip; give the publisher's {_ZIP}, or the folder unpacked from it, which "
                f"holds {', '.join(_NAMES)}."
            )
        try:
            with contextlib.ExitStack() as stack:
                root = path if path.is_dir() else zipfile.Path(stack.enter_context(zipfile.ZipFile(path)))
                # Unpacking the zip into a folder makes a folder in it; either may be given.
                inside = _INSIDE if (root / _INSIDE).is_dir() and not (root / "u.data").exists() else ""
                for name in _NAMES:
                    if not (root / f"{inside}{name}").exists():
                        there = _listed(sorted(f"{inside}{each.name}" for each in (root / inside).iterdir()))
                        raise FileNotFoundError(
                            f"{path}: expected the file {inside}{name}, found {there or 'nothing'}."
                        )
                return cls(path / inside, {name: (root / f"{inside}{name}").read_bytes() for name in _NAMES})
        # RuntimeError is what zipfile raises for an encrypted member or an unknown compression.
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise MovieLensFormatError(
                f"{path}: expected a zip like the publisher's {_ZIP}, found a damaged or other file ({error})."
            ) from error

    def genre_names(self) -> tuple[str, ...]:
        """Of u.genre, in the order of the columns of u.item."""
        return self._distinct("u.genre", N_GENRES, _counted("number", 0))

    def occupation_names(self) -> tuple[str, ...]:
        """Of u.occupation, in its order."""
        return self._distinct("u.occupation", N_OCCUPATIONS)

    def ratings(self) -> Ratings:
        """Everything that the files say, checked."""
        genders = _one_of("gender", "gender F or M", ("F", "M"))
        occupations = _one_of("occupation", "an occupation of u.occupation", self.occupation_names())
        ages = _whole("age", "an age from 0 to 150", 0, 150)
        users = self._table("u.user", "|", _counted("user", 1), ages, genders, occupations, _Column("zip code", ""))
        unread = (_Column(name, "") for name in ("video release date", "address"))
        dates = _Column("release date", "a release date like 01-Jan-1995, or none", _year)
        genres = [_whole(name, f"0 or 1 for genre {name}", 0, 1) for name in self.genre_names()]
        items = self._table("u.item", "|", _counted("item", 1), _Column("title", ""), dates, *unread, *genres)
        years = np.array(items[2])
        if np.all(np.isnan(years)):
            self.refuse("u.item", None, "release dates", f"none in {len(years)} rows")
        n_users, n_items = len(users[0]), len(years)
        who, what, stars, when = self._table(
            "u.data",
            "\t",
            _whole("user", f"a user of u.user, 1 to {n_users}", 1, n_users),
            _whole("item", f"an item of u.item, 1 to {n_items}", 1, n_items),
            _whole("rating", "a rating from 1 to 5", 1, 5),
            _whole("timestamp", "a timestamp in seconds since 1970", 0, 2**63 - 1),
        )
        rated = np.array([who, what, stars, when], dtype=np.int64)
        rated[:2] -= 1
        self._check_rated_once(rated[0] * n_items + rated[1], n_items)
        people = np.array(users[1:4], dtype=np.int64)
        return Ratings._make([*rated, *people, years, np.array(items[5:], dtype=np.int64).T])

    def refuse(self, name: str, row: int | None, expected: str, what: str) -> NoReturn:
        """Raise; rows count from 1, as editors show them."""
        where = self.source / name if row is None else f"{self.source / name}, row {row}"
        raise MovieLensFormatError(f"{where}: expected {expected}, found {what}.")

    def _check_rated_once(self, pairs: NDArray[np.int64], n_items: int) -> None:
        again = np.setdiff1d(np.arange(len(pairs)), np.unique(pairs, return_index=True)[1])
        if len(again):
            row = int(again[0])
            user, item = divmod(int(pairs[row]), n_items)
            first = int(np.argmax(pairs == pairs[row]))
            which = f"(user {user + 1} rated item {item + 1} in row {first + 1})"
            self.refuse("u.data", row + 1, f"one rating of an item by a user {which}", "a second one")

    def _distinct(self, name: str, count: int, *others: _Column) -> tuple[str, ...]:
        """The first column of a file, names of which no two are equal."""
        names = list[str]()

        def new(text: str, row: int) -> str | None:
            names.append(text)
            return text if text and text not in names[:-1] else None

        self._table(name, "|", _Column(name.removeprefix("u."), "a name that no row before it has", new), *others)
        if len(names) != count:
            self.refuse(name, None, f"{count} rows", str(len(names)))
        return tuple(names)

    def _table(self, name: str, separator: str, *columns: _Column) -> list[tuple[Any, ...]]:
        """The columns of a file."""
        # All files are Latin-1, and decoding it cannot fail: damage shows in the fields.
        text = self.contents[name].decode("latin-1").replace("\r\n", "\n")
        titles = _listed([column.name for column in columns])
        lines = text.rstrip("\n").split("\n")
        if not text.strip():
            self.refuse(name, None, f"rows of {titles}", "an empty file")
        if not text.endswith("\n"):
            # A cut through the last number would leave a row that looks whole.
            self.refuse(name, len(lines), "a line break at the end of the file", _short(f"{lines[-1]} (cut off?)"))
        rows = []
        for row, line in enumerate(lines, 1):
            fields = line.split(separator)
            if len(fields) != len(columns):
                kind = "tab" if separator == "\t" else repr(separator)
                expected = f"{len(columns)} fields separated by {kind} ({titles})"
                self.refuse(name, row, expected, f"{len(fields)} in {_short(line)}")
            values = [column.value(field, row) for column, field in zip(columns, fields, strict=True)]
            if None in values:
                wrong = values.index(None)
                self.refuse(name, row, columns[wrong].expected, _short(fields[wrong]))
            rows.append(values)
        return list(zip(*rows, strict=True))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:6])}, ... ({len(names)} in all)"
