"""Fitting a long log so that an interruption loses no more than the episode under way."""

from __future__ import annotations

import contextlib
import os
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.models import load_model, save_model
from ibcb.log.disk import DiskLog

__all__ = ["checkpoint_of", "fit_in_steps"]


def checkpoint_of(out: str | os.PathLike[str]) -> Path:
    """Where a fit keeps the episodes finished so far: beside the model to be written."""
    return Path(out).with_name(f"{Path(out).stem}.checkpoint.safetensors")


def fit_in_steps(
    model: IBCB,
    log: DiskLog,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    client: Any = None,
    progress: bool = False,
) -> IBCB:
    """As ``model.fit(log, client=client)``, to the same bits, and saved; until then it is stored after every episode.

    Parameters
    ----------
    out : path
        Where to save the model, a .safetensors file. The checkpoint beside it goes only once the model is on disk.
    resume : bool
        Go on from the checkpoint if there is one, made with the same parameters on the same log.
    """
    checkpoint = checkpoint_of(out)
    done = 0
    if resume and checkpoint.exists():
        model = _resumed(model, log, checkpoint)
        done = len(model.policy_coefs_)
    hidden = None if progress else True
    rest = islice(log, done, None)
    with tqdm(total=len(log), initial=done, desc="fit", unit="episode", delay=1, leave=False, disable=hidden) as bar:
        for episode in rest:
            model.partial_fit(episode, client=client)
            save_model(model, checkpoint)
            bar.update()
    save_model(model, out)
    _sync(Path(out).resolve())
    checkpoint.unlink(missing_ok=True)
    return model


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


def _resumed(model: IBCB, log: DiskLog, path: Path) -> IBCB:
    """The model of a checkpoint, if it belongs to this model and log."""
    stored = load_model(path)
    if not isinstance(stored, IBCB):
        raise ValueError(f"{path} holds a {type(stored).__name__}; a checkpoint of a fit holds an IBCB.")
    asked, made = model.get_params(), stored.get_params()
    other = [name for name in asked if name not in ("verbose", "n_jobs", "prior_gram") and asked[name] != made[name]]
    if other:
        raise ValueError(
            f"{path} was made with {other[0]}={made[other[0]]!r}, now {other[0]} is {asked[other[0]]!r}; use the same "
            "options, or start again without --resume."
        )
    stored.recall(log)
    return stored
