"""Saving and loading fitted estimators: arrays and JSON, never pickle."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ibcb.deciders import KINDS, experts
from ibcb.estimators.imitator import Imitator
from ibcb.estimators.model_file import ModelFileError, read_model_file, write_model_file
from ibcb.estimators.state import Named, parameters
from ibcb.numerics.printable import shown
from ibcb.numerics.refusals import WrongTypeError
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
