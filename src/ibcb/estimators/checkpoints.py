"""Fitting a long log so that an interruption loses no more than the episode under way.

A checkpoint is an `Unfinished` model, which holds how far fitting has come (`Progress`). Who goes on reads the log from
its beginning: episodes that were finished pass by, named, and are not fitted again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Subscriber
from ibcb.estimators.fitting import AnotherLogError, Progress
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.models import load_model, save_model
from ibcb.estimators.state import number, pack, unpack
from ibcb.io.files import sole_writer
from ibcb.log import Log

#: parameters that do not change the result
_HOW = ("verbose", "n_jobs")
#: bytes of a model's name that stay within that of its checkpoint, of which file systems take 255
_LONGEST = 230


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
