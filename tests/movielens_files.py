"""A small invented data set in the format of MovieLens 100K, whose own files may not be redistributed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NAMES = ("u.data", "u.user", "u.item", "u.genre", "u.occupation")
GENRES = [f"genre{number:02}" for number in range(19)]
OCCUPATIONS = [f"trade{number:02}" for number in range(21)]
#: Not ASCII, not UTF-8 as Latin-1 bytes; the last is a line break to Unicode but not to the format.
ODD_TITLES = ("Zoë", "Señor Ångström", "Æon \x85 ø")


def write_movielens(
    folder: Path, *, users: int = 60, items: int = 80, ratings: int = 2000, tied: int = 5, seed: int = 0
) -> Path:
    """Write the five files into ``folder``.

    Tastes are of rank two, so that a factorisation has something to find. ``tied`` rows share the timestamp at the
    middle. The last user and the last item are never rated; item 3 is called unknown and has no date.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "u.genre", [f"{name}|{number}" for number, name in enumerate(GENRES)] + [""])
    _write(folder / "u.occupation", OCCUPATIONS)
    ages = rng.integers(7, 80, users)
    ages[:8] = [17, 18, 24, 25, 49, 50, 55, 56]
    people = zip(ages, rng.choice(["F", "M"], users), rng.choice(OCCUPATIONS, users), strict=True)
    _write(folder / "u.user", [f"{id}|{age}|{sex}|{job}|Z{id:04}" for id, (age, sex, job) in enumerate(people, 1)])
    _write(folder / "u.item", [_item(id, rng) for id in range(1, items + 1)])
    _write(folder / "u.data", _ratings(users - 1, items - 1, ratings, tied, rng))
    return folder


def _item(id: int, rng: np.random.Generator) -> str:
    genres = "|".join(map(str, rng.integers(2, size=len(GENRES))))
    if id == 3:
        return f"{id}|unknown||||{genres}"
    day, year = "4" if id == 4 else f"{rng.integers(1, 29):02}", rng.integers(1922, 1999)
    title = ODD_TITLES[id % 3] if id < 20 else f"Film {id}"
    return f"{id}|{title} ({year})|{day}-Mar-{year}||http://films.example/{id}|{genres}"


def _ratings(users: int, items: int, count: int, tied: int, rng: np.random.Generator) -> list[str]:
    who, what = np.divmod(rng.choice(users * items, count, replace=False), items)
    taste = np.sum(rng.normal(size=(users, 2))[who] * rng.normal(size=(items, 2))[what], axis=1)
    stars = np.clip(np.round(3.5 + taste + 0.5 * rng.normal(size=count)), 1, 5).astype(int)
    when = 880_000_000 + np.cumsum(rng.integers(1, 100, count))
    middle = count // 2 - tied // 2
    when[middle : middle + tied] = when[middle]
    order = rng.permutation(count)
    return [f"{who[r] + 1}\t{what[r] + 1}\t{stars[r]}\t{when[r]}" for r in order]


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("latin-1"))
