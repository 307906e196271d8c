"""The container of a saved model: named arrays and JSON in one safetensors file, with a digest over both.

The digest finds damage: safetensors itself has no checksum. It is no signature; whoever can write the file can write
the digest too. Nothing in a file is executed, whoever wrote it.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ibcb.io.files import atomic

_KEY = "ibcb"
_DIGEST = "blake2b"
_VERSION = 3


class ModelFileError(ValueError):
    """A file that is not a model of ours, or not one that this version can read."""


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
