"""The files of MovieLens 100K: where they are, and what they say.

Read from the publisher's folder or zip, or downloaded from the publisher; the licence forbids shipping them. The data
become five plain tables, checked row by row: a wrong number in them would only show as a strange result much later.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
VARIABLE = "IBCB_ML100K"
N_GENRES, N_OCCUPATIONS = 19, 21

_ZIP, _INSIDE = "ml-100k.zip", "ml-100k"
_NAMES = ("u.data", "u.user", "u.item", "u.genre", "u.occupation")
_DATA_MD5 = "6e47046882bad158b0efbb84cd5cb987"
_DATE = re.compile(r"\d{1,2}-(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)-(\d{4})")


class MovieLensFormatError(ValueError):
    """A file that is not what the publisher describes; the message names file, row, what was expected and found."""


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
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

    @property
    def n_users(self) -> int:
        return len(self.ages)

    @property
    def n_items(self) -> int:
        return len(self.years)


def find_files(folder: str | os.PathLike[str] | None = None) -> MovieLensFiles:
    """The files in ``folder`` (or zip), else where IBCB_ML100K points, else from the publisher by way of the cache."""
    if folder is not None:
        return MovieLensFiles.open(folder, f"folder={os.fspath(folder)!r}")
    named = os.environ.get(VARIABLE)
    if named:
        return MovieLensFiles.open(named, f"{VARIABLE}={named!r}")
    return download()


def download(url: str | None = None, cache: str | os.PathLike[str] | None = None) -> MovieLensFiles:
    """The publisher's zip, fetched once into the cache of this machine and checked every time it is read."""
    url = URL if url is None else url
    by_hand = (
        f"To supply the data by hand, get {URL} on any machine and set {VARIABLE} to that zip or to the folder "
        "unpacked from it, or pass it as folder=."
    )
    try:
        pooch = importlib.import_module("pooch")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"MovieLens 100K was given neither as folder= nor in {VARIABLE}, and downloading it needs pooch, which is "
            f"not installed: pip install 'ibcb[data]'. {by_hand}",
            name="pooch",
        ) from None
    where = Path(cache if cache is not None else pooch.os_cache("ibcb"))
    try:
        # No hash of the zip, which the publisher may repack: what must not change is u.data inside, checked below.
        zips = pooch.create(path=where, base_url="", registry={_ZIP: None}, urls={_ZIP: url})
        path = Path(zips.fetch(_ZIP))
    except OSError as error:  # requests' own errors are OSErrors too
        raise ConnectionError(
            f"MovieLens 100K was given neither as folder= nor in {VARIABLE}, is not in the cache {where}, and could "
            f"not be downloaded from {url} ({error}). {by_hand}"
        ) from error
    try:
        files = MovieLensFiles.open(path, str(path))
        digest = hashlib.md5(files.contents["u.data"], usedforsecurity=False).hexdigest()
        if digest != _DATA_MD5:
            raise MovieLensFormatError(f"{files.place('u.data')}: expected md5 {_DATA_MD5}, found {digest}.")
    except (MovieLensFormatError, FileNotFoundError) as error:
        # A bad copy in the cache would be met again by every later run.
        path.unlink(missing_ok=True)
        raise MovieLensFormatError(
            f"the download from {url} is not MovieLens 100K: {error} It was removed from the cache; try again. "
            f"{by_hand}"
        ) from error
    return files


@dataclass(frozen=True, slots=True, eq=False)
class MovieLensFiles:
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
        if path.is_dir():
            return cls(*_from_folder(path))
        if path.is_file():
            return cls(*_from_zip(path))
        raise FileNotFoundError(
            f"{called}: no such folder or zip; give the publisher's ml-100k.zip, or the folder unpacked from "
            f"it, which holds {', '.join(_NAMES)}."
        )

    def place(self, name: str, row: int | None = None) -> str:
        """Where something stands, for an error; rows count from 1, as editors show them."""
        return f"{self.source / name}" if row is None else f"{self.source / name}, row {row}"

    def genre_names(self) -> tuple[str, ...]:
        """Of u.genre, in the order of the columns of u.item."""
        names = []
        for row, (name, number) in self._rows("u.genre", "|", ("genre", "number")):
            if number != str(row - 1):
                self._refuse("u.genre", row, f"number {row - 1}, counting from 0", number)
            names.append(name)
        return self._distinct("u.genre", names, N_GENRES)

    def occupation_names(self) -> tuple[str, ...]:
        """Of u.occupation, in its order."""
        names = [name for _, (name,) in self._rows("u.occupation", "|", ("occupation",))]
        return self._distinct("u.occupation", names, N_OCCUPATIONS)

    def ratings(self) -> Ratings:
        """Everything that the files say, checked."""
        ages, genders, occupations = self._users()
        years, genres = self._items()
        users, items, stars, timestamps = self._ratings(len(ages), len(years))
        return Ratings(users, items, stars, timestamps, ages, genders, occupations, years, genres)

    def _ratings(self, n_users: int, n_items: int) -> NDArray[np.int64]:
        rows = []
        for row, fields in self._rows("u.data", "\t", ("user", "item", "rating", "timestamp")):
            user = self._whole("u.data", row, f"a user of u.user, 1 to {n_users}", fields[0], 1, n_users)
            item = self._whole("u.data", row, f"an item of u.item, 1 to {n_items}", fields[1], 1, n_items)
            stars = self._whole("u.data", row, "a rating from 1 to 5", fields[2], 1, 5)
            when = self._whole("u.data", row, "a timestamp in seconds since 1970", fields[3], 0, 2**63 - 1)
            rows.append((user - 1, item - 1, stars, when))
        table = np.array(rows, dtype=np.int64).T
        self._check_rated_once(table[0] * n_items + table[1], n_items)
        return table

    def _check_rated_once(self, pairs: NDArray[np.int64], n_items: int) -> None:
        again = np.setdiff1d(np.arange(len(pairs)), np.unique(pairs, return_index=True)[1])
        if len(again):
            row = int(again[0])
            user, item = divmod(int(pairs[row]), n_items)
            first = int(np.argmax(pairs == pairs[row]))
            expected = f"one rating of an item by a user (user {user + 1} rated item {item + 1} in row {first + 1})"
            self._refuse("u.data", row + 1, expected, "a second one")

    def _users(self) -> NDArray[np.int64]:
        known = {name: number for number, name in enumerate(self.occupation_names())}
        rows = []
        for row, fields in self._rows("u.user", "|", ("user", "age", "gender", "occupation", "zip code")):
            self._whole("u.user", row, f"user {row}, counting from 1", fields[0], row, row)
            age = self._whole("u.user", row, "an age from 0 to 150", fields[1], 0, 150)
            if fields[2] not in ("F", "M"):
                self._refuse("u.user", row, "gender F or M", fields[2])
            if fields[3] not in known:
                self._refuse("u.user", row, "an occupation of u.occupation", fields[3])
            rows.append((age, int(fields[2] == "M"), known[fields[3]]))
        return np.array(rows, dtype=np.int64).T

    def _items(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        names = self.genre_names()
        columns = ("item", "title", "release date", "video release date", "address", *names)
        years, genres = [], []
        for row, fields in self._rows("u.item", "|", columns):
            self._whole("u.item", row, f"item {row}, counting from 1", fields[0], row, row)
            date = _DATE.fullmatch(fields[2])
            if fields[2] and date is None:
                self._refuse("u.item", row, "a release date like 01-Jan-1995, or none", fields[2])
            years.append(float(date[1]) if date else np.nan)
            flags = zip(names, fields[5:], strict=True)
            genres.append([self._whole("u.item", row, f"0 or 1 for genre {name}", flag, 0, 1) for name, flag in flags])
        if np.all(np.isnan(years)):
            raise MovieLensFormatError(f"{self.place('u.item')}: expected release dates, found none in {row} rows.")
        return np.array(years), np.array(genres, dtype=np.int64)

    def _rows(self, name: str, separator: str, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
        """Row number, from 1, and fields of every row."""
        # All files are Latin-1, and decoding it cannot fail: damage shows in the fields.
        text = self.contents[name].decode("latin-1").replace("\r\n", "\n")
        lines = text.rstrip("\n").split("\n")
        if not text.strip():
            raise MovieLensFormatError(f"{self.place(name)}: expected rows of {_listed(columns)}, found an empty file.")
        if not text.endswith("\n"):
            # A cut through the last number would leave a row that looks whole.
            self._refuse(name, len(lines), "a line break at the end of the file", f"{lines[-1]} (cut off?)")
        for row, line in enumerate(lines, 1):
            fields = line.split(separator)
            if len(fields) != len(columns):
                kind = "tab" if separator == "\t" else repr(separator)
                expected = f"{len(columns)} fields separated by {kind} ({_listed(columns)})"
                self._refuse(name, row, expected, line, f"{len(fields)} in ")
            yield row, fields

    def _distinct(self, name: str, names: list[str], count: int) -> tuple[str, ...]:
        for row, value in enumerate(names, 1):
            if not value or value in names[: row - 1]:
                self._refuse(name, row, "a name that no row before it has", value)
        if len(names) != count:
            raise MovieLensFormatError(f"{self.place(name)}: expected {count} rows, found {len(names)}.")
        return tuple(names)

    def _whole(self, name: str, row: int, expected: str, text: str, low: int, high: int) -> int:
        # int() would also take "+1", " 1" and "1_0"; no number of the format has 20 digits.
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            self._refuse(name, row, expected, text)
        return int(text)

    def _refuse(self, name: str, row: int, expected: str, text: str, how: str = "") -> NoReturn:
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise MovieLensFormatError(f"{self.place(name, row)}: expected {expected}, found {how}{shown!r}.")


def _from_folder(folder: Path) -> tuple[Path, dict[str, bytes]]:
    # Unpacking the zip into a folder makes a folder in it; either may be given.
    inside = folder / _INSIDE
    where = inside if inside.is_dir() and not (folder / "u.data").exists() else folder
    contents = {}
    for name in _NAMES:
        try:
            contents[name] = (where / name).read_bytes()
        except FileNotFoundError:
            raise _missing(where, name, sorted(each.name for each in where.iterdir())) from None
    return where, contents


def _from_zip(path: Path) -> tuple[Path, dict[str, bytes]]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            inside = "" if "u.data" in members else f"{_INSIDE}/"
            for name in _NAMES:
                if inside + name not in members:
                    raise _missing(path, inside + name, members)
            return path / inside, {name: archive.read(inside + name) for name in _NAMES}
    # RuntimeError is what zipfile raises for an encrypted member or an unknown compression.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise MovieLensFormatError(
            f"{path}: expected a zip like the publisher's {_ZIP}, found a damaged or other file ({error})."
        ) from error


def _missing(where: Path, name: str, files: list[str]) -> FileNotFoundError:
    return FileNotFoundError(f"{where}: expected the file {name}, found {_listed(files) or 'nothing'}.")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:6])}, ... ({len(names)} in all)"
