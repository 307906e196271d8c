"""How to read a log, kept in a TOML file: the options of `ibcb.read_log` by name.

::

    one_hot = ["genre"]
    episode_every = "1d"

    [columns]
    chosen = "shown"
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ibcb.io.files import atomic, regular
from ibcb.log.option import did_you_mean
from ibcb.log.read_options import READING, ReadOptions
from ibcb.numerics.printable import shown
from ibcb.numerics.refusals import WrongTypeError

#: those with a form in writing: not whether choices are needed, nor how another log was made
_KNOWN = {each.name: each.default for each in READING if each.form is not None}


def load_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a file, as `ibcb.read_log` takes them."""
    name = Path(path).name
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a file of options (options, --options).")
    regular(Path(path))
    try:
        options = tomllib.loads(Path(path).read_text(encoding="utf-8"))
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
    plain = {name: value for name, value in given.items() if not isinstance(value, Mapping)}
    lines = [f"{name} = {_written(name, value)}" for name, value in plain.items() if value not in ([], ())]
    for name, table in given.items():
        if isinstance(table, Mapping) and table:
            lines += ["", f"[{name}]", *(f"{_key(key)} = {_written(name, value)}" for key, value in table.items())]
    with atomic(path) as temporary:
        temporary.write_text("\n".join(lines).strip() + "\n", encoding="utf-8")


def _written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        signs = (sign if sign.isprintable() and sign not in '"\\' else _escape(sign) for sign in os.fspath(value))
        return f'"{"".join(signs)}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_written(name, each) for each in value)}]"
    raise ValueError(f"{name} is a {type(value).__name__}, which a file of options cannot hold; give a path instead.")


def _escape(sign: str) -> str:
    return f"\\{sign}" if sign in '"\\' else f"\\U{ord(sign):08x}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _written("", name)
