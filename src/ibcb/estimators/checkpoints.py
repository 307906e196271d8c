"""Fitting a long log so that an interruption loses no more than the episode under way.

Where something is left open the log is gone through twice. Until the choice is made a checkpoint is a `Choosing`, which
holds what every candidate kind believes; then it is the model so far, whose track is that of the kind chosen and has
seen the whole log.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ibcb.estimators.fitting import Settings, choose
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.models import load_model, save_model
from ibcb.estimators.reduction import WIDE
from ibcb.estimators.state import number, pack, unpack
from ibcb.log.disk import DiskLog
from ibcb.log.fingerprint import log_fingerprint
from ibcb.tracking.contenders import Tracks
from ibcb.tracking.selection import Selection

__all__ = ["Choosing", "checkpoint_of", "fit_in_steps"]

#: parameters that do not change the result
_HOW = ("verbose", "n_jobs")
#: bytes of a model's name that stay within that of its checkpoint, of which file systems take 255
_LONGEST = 230


class Choosing(IBCB):
    """An IBCB that is not fitted yet, because its kind is being chosen; it can be stored."""

    tracks: Tracks
    n_features: int

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tracks")

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What has been found so far, as named arrays and JSON."""
        arrays: dict[str, NDArray[Any]] = {}
        return arrays, {"n_features": self.n_features, "tracks": pack(self.tracks, "tracks", arrays)}

    def set_state(self, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> None:
        """Go on from what `get_state` gave."""
        self._check_parameters()
        self.n_features = number(int, state["n_features"], "n_features")
        self.tracks = unpack(Tracks, state["tracks"], arrays, self.n_features)


def checkpoint_of(out: str | os.PathLike[str]) -> Path:
    """Where a fit keeps the episodes finished so far: beside the model to be written."""
    stem = Path(out).stem
    if len(os.fsencode(stem)) > _LONGEST:
        stem = f"{stem[:50]}-{blake2b(os.fsencode(stem), digest_size=8).hexdigest()}"
    return Path(out).with_name(f"{stem}.checkpoint.safetensors")


def fit_in_steps(
    model: IBCB,
    log: DiskLog,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    client: Any = None,
    progress: bool = False,
    accept: Callable[[IBCB], None] | None = None,
) -> IBCB:
    """As ``model.fit(log, client=client)``, to the same bits, and saved; until then it is stored after every episode.

    Parameters
    ----------
    out : path
        Where to save the model, a .safetensors file. The checkpoint beside it goes only once the model is on disk.
    resume : bool
        Go on from the checkpoint if there is one, made with the same parameters on the same log.
    accept : callable, optional
        Called with the fitted model before it is saved; if it raises, the checkpoint stays and no model is written.
    """
    if model.forecasts is not None and log.n_features > WIDE:
        # What is left of its features is fitted in seconds.
        model.fit(log, client=client)
        if accept is not None:
            accept(model)
        save_model(model, out)
        return model
    settings = model._settings(log, log, client)
    model._check_whole(log, settings)
    if not model.incremental:
        raise ValueError(
            "incremental=False (--full) solves all episodes at once, so nothing can be stored on the way; leave out "
            "--stream, --resume and --scheduler, or call fit."
        )
    checkpoint = checkpoint_of(out)
    stored = _resumed(model, log, settings, checkpoint) if resume and checkpoint.exists() else None
    found, done = None, 0
    if stored is not None and not isinstance(stored, Choosing):
        model, done = stored, len(stored.diagnostics_)
    elif settings.chooses and len(log) > 1:
        found = _chosen(model, log, settings, stored, checkpoint)
    hidden = None if progress else True
    rest = islice(log, done, None)
    with tqdm(total=len(log), initial=done, desc="fit", unit="episode", delay=1, leave=False, disable=hidden) as bar:
        for episode in rest:
            if found is not None:
                model._begin([episode], settings, found)
                found = None
            else:
                model.partial_fit(episode, client=client)
            save_model(model, checkpoint)
            bar.update()
    if accept is not None:
        accept(model)
    save_model(model, out)
    _sync(Path(out).resolve())
    checkpoint.unlink(missing_ok=True)
    return model


def _chosen(model: IBCB, log: DiskLog, settings: Settings, begun: Choosing | None, checkpoint: Path) -> Selection:
    """What is left open, chosen by the whole log; the tracks are stored after every episode."""
    choosing = Choosing(**model.get_params())
    choosing.n_features = log.n_features

    def store(tracks: Tracks) -> None:
        choosing.tracks = tracks
        save_model(choosing, checkpoint)

    return choose([log], settings, None if begun is None else begun.tracks, store)


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


def _resumed(model: IBCB, log: DiskLog, settings: Settings, path: Path) -> IBCB:
    """What a checkpoint holds, if it belongs to this model and log."""
    stored = load_model(path)
    if not isinstance(stored, IBCB):
        raise ValueError(f"{path} holds a {type(stored).__name__}; a checkpoint of a fit holds an IBCB.")
    asked, made = model.get_params(), stored.get_params()
    other = [name for name in asked if name not in _HOW and not np.array_equal(asked[name], made[name])]
    if other:
        raise ValueError(
            f"{path} was made with {other[0]}={made[other[0]]!r}, now {other[0]} is {asked[other[0]]!r}; use the same "
            "options, or start again without --resume."
        )
    if not isinstance(stored, Choosing):
        stored.recall(log)
        return stored
    tracks = stored.tracks
    if log_fingerprint(*islice(log, tracks.episodes)) != tracks.fingerprint:
        raise ValueError(
            f"{path} was made on another log: the first {tracks.episodes} episodes of this one are not those of which "
            "it holds the tracks; give the same log, or start again without --resume."
        )
    if list(tracks.kinds) != settings.candidates():
        raise ValueError(
            f"{path} was made by a version of ibcb that chooses between other kinds; start again without --resume."
        )
    return stored
