"""How to read a log, kept in a TOML file: the options of `ibcb.read_log` by name.

::

    one_hot = ["genre"]
    episode_every = "1d"

    [columns]
    chosen = "shown"
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ibcb.io.files import atomic
from ibcb.io.opened import regular
from ibcb.log.option import did_you_mean
from ibcb.log.read_options import READING, ReadOptions
from ibcb.numerics.printable import WrongTypeError, shown

#: those with a form in writing: not whether choices are needed, nor how another log was made
_KNOWN = {each.name: each.default for each in READING if each.form is not None}


def load_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a file, as `ibcb.read_log` takes them."""
    file = regular(Path(path), "a file of options (options, --options)")
    name = file.name
    try:
        options = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{name}: not a readable TOML file ({error}); ibcb validate --save-options writes one."
        ) from None
    for key in options:
        if key not in _KNOWN:
            meant = did_you_mean(key, _KNOWN)
            raise ValueError(f"{name}: there is no option {shown(key)}{meant}; the options are {', '.join(_KNOWN)}.")
    try:
        ReadOptions(**options)
    except (WrongTypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
    return options


def save_options(options: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write those of the options that are not the usual ones; the file appears whole or not at all."""
    if Path(path).suffix.lower() != ".toml":
        raise ValueError(f"{path}: options are kept as TOML; give a path that ends in .toml.")
    given = {name: options[name] for name, usual in _KNOWN.items() if name in options and options[name] != usual}
    lines, tables = list[str](), list[str]()
    for name, value in given.items():
        if isinstance(value, Mapping):
            tables += ["", f"[{name}]", *(f"{_key(key)} = {_written(name, each)}" for key, each in value.items())]
        elif value not in ([], ()):
            lines.append(f"{name} = {_written(name, value)}")
    with atomic(path) as temporary:
        temporary.write_text("\n".join(lines + tables).strip() + "\n", encoding="utf-8")


def _written(name: str, value: Any) -> str:
    """As JSON, of which TOML has the numbers, lists and texts, but for one sign."""

    def plain(value: Any) -> str:
        if isinstance(value, os.PathLike):
            return str(os.fspath(value))
        kind = type(value).__name__
        raise ValueError(f"{name} is a {kind}, which a file of options cannot hold; give a path instead.")

    return json.dumps(value, ensure_ascii=False, default=plain).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _written("", name)
