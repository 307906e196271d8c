"""Saving and loading estimators, fitted or on the way there: arrays and JSON in a safetensors file, with a digest.

The digest finds damage: safetensors itself has no checksum. It is no signature; whoever can write the file can write
the digest too. Nothing in a file is executed, whoever wrote it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
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
from ibcb.engine import Subscriber
from ibcb.estimators.fitting import AnotherLogError, Progress
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.imitator import Imitator
from ibcb.estimators.state import Named, number, pack, parameters, unpack
from ibcb.io.files import atomic, sole_writer
from ibcb.log import Log
from ibcb.numerics.printable import WrongTypeError, shown
from ibcb.version import __version__

#: where each class that can be stored lives; the paper's baselines are named, not imported, because they live above
_HOMES = {
    "IBCB": "ibcb.estimators.ibcb",
    "Unfinished": __name__,
    "ChoiceModel": "ibcb.estimators.choice_model",
    **dict.fromkeys(("BaseSVC", "BIRL", "BICB"), "ibcb.paper.rivals"),
}

#: arrays that are parameters of the model begin with it
_PARAMETER = "parameter."
#: in the metadata of a file: the JSON, and the digest
_KEY = "ibcb"
_DIGEST = "blake2b"
_VERSION = 3
#: parameters that do not change the result
_HOW = ("verbose", "n_jobs")
#: bytes of a model's name that stay within that of its checkpoint, of which file systems take 255
_LONGEST = 230


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


# -- fitting a long log so that an interruption loses no more than the episode under way ------------------------------
#
# A checkpoint is an `Unfinished` model, which holds how far fitting has come (`Progress`). Who goes on reads the log
# from its beginning: episodes that were finished pass by, named, and are not fitted again.


class Unfinished(IBCB):
    """An IBCB that is being fitted; it can be stored, and not asked anything."""

    progress: Progress

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "progress")

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What has been found so far, as named arrays and JSON."""
        arrays: dict[str, NDArray[Any]] = {}
        n_features = self.progress.n_features
        return arrays, {"n_features": n_features, "progress": pack(self.progress, "progress", arrays)}

    def set_state(self, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> None:
        """Go on from what `get_state` gave."""
        self._check_parameters()
        self.progress = unpack(Progress, state["progress"], arrays, number(int, state["n_features"], "n_features"))


def checkpoint_of(out: str | os.PathLike[str]) -> Path:
    """Where a fit keeps the episodes finished so far: beside the model to be written."""
    stem = Path(out).stem
    if len(os.fsencode(stem)) > _LONGEST:
        stem = f"{stem[:50]}-{blake2b(os.fsencode(stem), digest_size=8).hexdigest()}"
    return Path(out).with_name(f"{stem}.checkpoint.safetensors")


def fit_in_steps(
    model: IBCB,
    log: Log,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    client: Any = None,
    accept: Callable[[IBCB], None] | None = None,
    judge: bool = False,
    also: Sequence[Subscriber] = (),
) -> IBCB:
    """As ``model.fit(log, client=client)``, to the same bits, and saved; until then it is stored after every episode.

    Meanwhile nobody else fits to the same files: `ibcb.io.files.HeldError`.

    Parameters
    ----------
    out : path
        Where to save the model, a .safetensors file. The checkpoint beside it goes only once the model is on disk.
    resume : bool
        Go on from the checkpoint if there is one, made with the same parameters on the same log.
    accept : callable, optional
        Called with the fitted model before it is saved; if it raises, the checkpoint stays and no model is written.
    judge, also
        As of `IBCB.fit_along`.
    """
    if not model.incremental:
        raise ValueError(
            "incremental=False (--full) solves all episodes at once, so nothing can be stored on the way; leave out "
            "--stream, --resume and --scheduler, or call fit."
        )
    checkpoint, unfinished = checkpoint_of(out), Unfinished(**model.get_params())

    def store(progress: Progress) -> None:
        unfinished.progress = progress
        save_model(unfinished, checkpoint)

    with sole_writer(out, checkpoint):
        begun = _resumed(model, checkpoint) if resume and checkpoint.exists() else None
        try:
            model.fit_along(log, client=client, judge=judge, also=also, begun=begun, watch=store)
        except AnotherLogError as error:
            raise ValueError(
                f"{checkpoint} was made on another log: the first {error.episodes} episodes of this one are not those "
                "that were fitted; give the same log, or start again without --resume."
            ) from None
        if accept is not None:
            accept(model)
        save_model(model, out)
        # The model is there. Where it cannot be made to last, the checkpoint stays beside it.
        with contextlib.suppress(OSError):
            _sync(Path(out).resolve())
            checkpoint.unlink(missing_ok=True)
    return model


def _resumed(model: IBCB, path: Path) -> Progress:
    """What a checkpoint holds, if it was made with the same parameters."""
    stored = load_model(path)
    if not isinstance(stored, Unfinished):
        raise ValueError(
            f"{path} holds a finished {type(stored).__name__}, not a checkpoint of a fit; start without --resume."
        )
    asked, made = model.get_params(), stored.get_params()
    other = [name for name in asked if name not in _HOW and not _same(asked[name], made[name])]
    if other:
        raise ValueError(
            f"{path} was made with {other[0]}={made[other[0]]!r}, now {other[0]} is {asked[other[0]]!r}; use the same "
            "options, or start again without --resume."
        )
    return stored.progress


def _sync(path: Path) -> None:
    """Wait until a file is on disk, under its name."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
    # Some systems cannot sync a folder; they keep its names by themselves.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _same(one: Any, other: Any) -> bool:
    """Whether two values of a parameter are equal; unlike `np.array_equal` of NumPy 2.0, of text and numbers too."""
    return np.shape(one) == np.shape(other) and bool(np.all(one == other))
