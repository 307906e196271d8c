"""Saving and loading fitted estimators: named arrays and JSON in one safetensors file, with a digest over both.

The digest finds damage: safetensors itself has no checksum. It is no signature; whoever can write the file can write
the digest too. Nothing in a file is executed, whoever wrote it.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from sklearn.utils.validation import check_is_fitted

from ibcb.deciders import KINDS, experts
from ibcb.estimators.imitator import Imitator
from ibcb.estimators.state import Named, parameters
from ibcb.io.files import atomic
from ibcb.numerics.printable import WrongTypeError, shown
from ibcb.version import __version__

#: where each class that can be stored lives; the paper's baselines are named, not imported, because they live above
_HOMES = {
    "IBCB": "ibcb.estimators.ibcb",
    "Unfinished": "ibcb.estimators.checkpoints",
    "ChoiceModel": "ibcb.estimators.choice_model",
    **dict.fromkeys(("BaseSVC", "BIRL", "BICB"), "ibcb.paper.rivals"),
}

#: arrays that are parameters of the model begin with it
_PARAMETER = "parameter."
#: in the metadata of a file: the JSON, and the digest
_KEY = "ibcb"
_DIGEST = "blake2b"
_VERSION = 3


class ModelFileError(ValueError):
    """A file that is not a model of ours, or not one that this version can read."""


def save_model(model: Imitator, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a safetensors file, which also names the library's version and the log.

    A model with solver="auto" is stored without the logs it has seen; see `IBCB.partial_fit`.
    """
    if type(model).__name__ not in _HOMES:
        raise WrongTypeError(f"save_model takes {', '.join(_HOMES)}; got {type(model).__name__}.")
    check_is_fitted(model)
    arrays, state = model.get_state()
    scalars = {}
    for name, value in model.get_params(deep=False).items():
        if value is not None and not isinstance(value, (str, bool, int, float, np.number)):
            arrays[f"{_PARAMETER}{name}"] = np.asarray(value, dtype=np.float64)
        else:
            scalars[name] = value.item() if isinstance(value, np.generic) else value
    meta = {
        "class": type(model).__name__,
        "library_version": __version__,
        "parameters": scalars,
        "state": state,
    }
    write_model_file(path, arrays, meta)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a fitted estimator; `partial_fit` continues where it stopped. Nothing in the file is executed."""
    arrays, meta = read_model_file(path)
    name, kind, written_by = Path(path).name, meta.get("class"), meta.get("library_version")
    remedy = "save the model again."
    if written_by != __version__:
        remedy = f"it was written by ibcb {written_by} and this is {__version__}; upgrade, or {remedy}"
    if not isinstance(kind, str) or kind not in _HOMES:
        raise ModelFileError(f"{name}: holds a {kind!r}, which this version does not know; {remedy}")
    own = _unregistered(meta)
    if own is not None:
        raise ModelFileError(
            f"{name}: its decider is of the kind {own!r}, which is not known here; if that is a rule of your own, "
            "register it first (ibcb.deciders.register)."
        )
    try:
        if not isinstance(written_by, str):
            raise ValueError(f"library_version is {written_by!r}")
        for key, array in arrays.items():
            if array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError(f"array {key!r} of {array.dtype} must hold finite float64 numbers")
        given = {key: arrays.pop(key) for key in [*arrays] if key.startswith(_PARAMETER)}
        known = {key.removeprefix(_PARAMETER): array for key, array in given.items()}
        made = getattr(import_module(_HOMES[kind]), kind)
        model: Imitator = made(**parameters(made, meta.get("parameters"), known))
        # What overflows is found, and refused, by the check of the answers.
        with np.errstate(all="ignore"):
            model.set_state(Named(arrays), Named(meta.get("state")))
    # Whatever else is raised is a mistake of ours, and says nothing of the file.
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name}: damaged or tampered with ({shown(error, 400)}); {remedy}") from None
    return model


def _unregistered(meta: Any) -> str | None:
    """A kind that a model file's JSON names, as a parameter or in its state, and nobody has registered."""
    names, keys, left = {*experts(), "auto"}, {*KINDS}, [meta]
    # However deep the file nests.
    while left:
        value = left.pop()
        if isinstance(value, dict):
            key = value.get("kind") if "top_k" in value else None
            for name, known in ((value.get("expert"), names), (key, keys)):
                if isinstance(name, str) and name.isidentifier() and name not in known:
                    return name
            left += value.values()
        elif isinstance(value, list):
            left += value
    return None


# -- the file --------------------------------------------------------------------------------------------------------


def write_model_file(path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
    """Write arrays and JSON metadata; the file appears whole or not at all."""
    if Path(path).suffix != ".safetensors":
        raise ModelFileError(
            f"{Path(path).name}: models are kept as safetensors; give a path that ends in .safetensors."
        )
    content = json.dumps({"version": _VERSION, **meta}, allow_nan=False)
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic(path) as temporary:
        # Not save_file: its error where the disk is full is none of the system's.
        temporary.write_bytes(_ordered(save(whole, {_KEY: content, _DIGEST: content_digest(whole, content)})))


def _ordered(file: bytes) -> bytes:
    """The same file with its header in the order of the names: safetensors writes metadata in any order."""
    end = 8 + int.from_bytes(file[:8], "little")
    header = json.dumps(json.loads(file[8:end]), sort_keys=True, separators=(",", ":")).encode()
    # What follows begins at a multiple of 8 bytes.
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + file[end:]


def content_digest(arrays: dict[str, NDArray[Any]], content: str) -> str:
    """blake2b over the JSON and, in the order of their names, over the arrays with type and shape."""
    digest = blake2b(json.dumps(content).encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def read_model_file(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `write_model_file` wrote. Nothing is executed."""
    name = Path(path).name
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a saved model.")
    if not Path(path).is_file():
        raise ModelFileError(f"{path} is not a file; give the path of a saved model.")
    with Path(path).open("rb") as file:
        if file.read(4) == b"PAR1":
            raise ModelFileError(f"{name}: a Parquet file, not a saved model; are the arguments swapped?")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFileError(f"{name}: not a readable model file ({error}).") from None
    content = header.get(_KEY)
    if content is None:
        raise ModelFileError(f"{name}: a safetensors file, but not one written by ibcb.")
    try:
        meta = json.loads(content)
    except (ValueError, RecursionError):
        meta = None
    if not isinstance(meta, dict) or not isinstance(meta.get("version"), int):
        raise ModelFileError(f"{name}: the metadata is damaged; save the model again.")
    if meta["version"] != _VERSION:
        remedy = "Upgrade ibcb." if meta["version"] > _VERSION else "Its state has changed since: fit the model again."
        raise ModelFileError(
            f"{name}: written by ibcb {meta.get('library_version')} in format version {meta['version']}; this ibcb "
            f"reads version {_VERSION}. {remedy}"
        )
    if header.get(_DIGEST) != content_digest(arrays, content):
        raise ModelFileError(
            f"{name}: damaged: its digest is {header.get(_DIGEST)}, that of its content "
            f"{content_digest(arrays, content)}. Copy the file again, or save the model again."
        )
    return arrays, meta
