"""The container of a saved model: named arrays and JSON in one safetensors file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ibcb.io.files import atomic

__all__ = ["ModelFileError", "read_model_file", "write_model_file"]

_KEY = "ibcb"
_VERSION = 1


class ModelFileError(ValueError):
    """A file that is not a model of ours, or not one that this version can read."""


def write_model_file(path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
    """Write arrays and JSON metadata; the file appears whole or not at all."""
    if Path(path).suffix != ".safetensors":
        raise ModelFileError(
            f"{Path(path).name}: models are kept as safetensors; give a path that ends in .safetensors."
        )
    content = json.dumps({"version": _VERSION, **meta}, allow_nan=False)
    with atomic(path) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, {_KEY: content})


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
            content = (file.metadata() or {}).get(_KEY)
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{name}: not a readable model file ({error}).") from None
    if content is None:
        raise ModelFileError(f"{name}: a safetensors file, but not one written by ibcb.")
    try:
        meta = json.loads(content)
    except ValueError:
        meta = None
    if not isinstance(meta, dict) or not isinstance(meta.get("version"), int):
        raise ModelFileError(f"{name}: the metadata is damaged; save the model again.")
    if meta["version"] > _VERSION:
        raise ModelFileError(
            f"{name}: written in format version {meta['version']}; this ibcb reads up to {_VERSION}. Upgrade ibcb."
        )
    return arrays, meta
