"""What we wrote about a file ourselves, in the metadata of its schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.sources import kept_features, refuse_keep, refuse_one_hot
from ibcb.io.words import listed, note, refusal
from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.read_options import ROLES, ReadOptions
from ibcb.log.recipe import Preparation
from ibcb.numerics.printable import shown

#: schema metadata of files that we wrote
KEY = b"ibcb"
VERSION = 1
_MOST_FEATURES = 2**31


class Written(NamedTuple):
    """What we wrote about a file; None where nothing was."""

    n_features: int | None = None
    feature_names: tuple[str, ...] | None = None
    preparation: Preparation | None = None
    #: with a row per candidate: the columns of the features, and of the roles
    features: tuple[str, ...] | None = None
    roles: tuple[tuple[str, str], ...] = ()
    #: with a row per step: whether only the numbers that are not 0 are there
    sparse: bool = False
    #: what a reader should know of it
    notes: tuple[Note, ...] = ()

    def recipe(self, names: tuple[str, ...] | None) -> Preparation | None:
        """How these of the features were made, if that was stored."""
        return None if self.preparation is None or names is None else self.preparation.only(names)


def metadata(schema: pa.Schema) -> Written:
    """What we wrote about the file, or nothing; also where its columns are others by now."""
    try:
        meta = json.loads((schema.metadata or {}).get(KEY, b"{}"))
    except (ValueError, RecursionError):
        meta = {"version": None}
    meta = meta if isinstance(meta, dict) else {"version": None}
    for key, (usual, is_sound) in _PARTS.items():
        if not is_sound(meta.setdefault(key, usual)):
            raise _damaged(f"{key} {shown(meta[key])}")
        if key == "version" and meta[key] > VERSION:
            raise refusal("written-later", version=meta[key], known=VERSION)
    if meta["sparse"] and meta["n_features"] is None:
        raise _damaged("sparse True")
    names, features = (None if meta[key] is None else tuple(meta[key]) for key in ("feature_names", "features"))
    absent = [name for name in (*(features or ()), *meta["roles"].values()) if name not in schema.names]
    if absent:
        return Written(notes=(note("rewritten-columns", "warning", columns=tuple(absent)),))
    try:
        made = meta.get("preparation")
        preparation = None if made is None else Preparation.from_json(made)
    except ValueError:
        raise _damaged("preparation") from None
    if preparation is not None and names is not None and preparation.feature_names != names:
        raise _damaged("preparation makes other features than feature_names has")
    count = meta["n_features"] if features is None else len(features)
    if names is not None and count is not None and len(names) != count:
        raise _damaged(f"{plural(len(names), 'name')} of {plural(count, 'feature')}")
    return Written(meta["n_features"], names, preparation, features, tuple(meta["roles"].items()), meta["sparse"])


def _are_names(names: Any) -> bool:
    return names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))


def _are_roles(roles: Any) -> bool:
    return isinstance(roles, dict) and all(role in ROLES and isinstance(name, str) for role, name in roles.items())


def _is_count(number: Any) -> bool:
    return number is None or (type(number) is int and 0 < number < _MOST_FEATURES)


#: what stands in the metadata: its usual value, and whether another can be right
_PARTS: dict[str, tuple[Any, Callable[[Any], bool]]] = {
    "version": (VERSION, lambda version: type(version) is int),
    "n_features": (None, _is_count),
    "feature_names": (None, _are_names),
    "features": (None, _are_names),
    "roles": ({}, _are_roles),
    "sparse": (False, lambda sparse: type(sparse) is bool),
}


def _damaged(what: str) -> LogFormatError:
    return LogFormatError(f"the metadata under the key 'ibcb' is damaged ({what}); write the log again.")


def selected(
    names: tuple[str, ...] | None, options: ReadOptions, columns: Sequence[str]
) -> tuple[tuple[str, ...] | None, NDArray[np.int64] | None]:
    """Names and places of the features to read of a log that we wrote; None: all of them.

    What is to be dropped may also be one of the other ``columns``.
    """
    drop = [name for name in options.drop if name not in columns]
    unnamed = " and have no names" if names is None else f" ({listed(names)})"
    refuse_one_hot(options, f"the features of this log are numbers{unnamed}. Encode columns when the log is converted")
    refuse_keep(options, f"every feature of this log is read{unnamed}. Keep columns when the log is converted")
    if names is not None:
        return kept_features(names, replace(options, drop=drop))
    if drop:
        raise refusal("written-no-drop", name=drop[0], unnamed=unnamed)
    if options.features is not None:
        raise refusal("written-no-names", features=options.features)
    return None, None
