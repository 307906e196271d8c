"""Saved models of every kind, altered at random with a digest that fits, and all that can be asked of them.

What a file says is then checked by loading it: it is refused with a `ModelFileError`, or the model works.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from mutations import HOSTILE, Array, alter_arrays, alter_json
from safetensors.numpy import save_file

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.estimators.models import (
    ModelFileError,
    Unfinished,
    checkpoint_of,
    content_digest,
    fit_in_steps,
    read_model_file,
)
from ibcb.estimators.reduction import WIDE

_SIZE: dict[str, Any] = {
    "n_episodes": 3,
    "batch_size": 30,
    "n_candidates": 4,
    "n_features": 3,
    "warmup": 30,
    "noise": 0.03,
}
_KINDS: dict[str, dict[str, Any]] = {
    "sbucb": {"expert": "sbucb"},
    "sbts": {"expert": "sbts", "l2": 0.3},
    "other": {"expert": "other"},
    "topk": {"expert": "topk", "top_k": 2},
    "auto": {"expert": "auto", "l2": 0.3, "top_k": 2},
    "alone": {"expert": "sbucb", "forecast": None},
    "late": {"expert": "sbucb", "prior_gram": 50 * np.eye(3)},
}
_OTHERS: dict[str, Callable[[], Any]] = {
    "wide": lambda: IBCB(expert="sbucb", l2=1.0),
    "prepared": lambda: IBCB(expert="sbucb"),
    "choice": lambda: ibcb.ChoiceModel(width=True),
    "svc": ibcb.BaseSVC,
    "birl": lambda: ibcb.BIRL(n_samples=20, burn_in=5, random_state=0),
    "bicb": lambda: ibcb.BICB(sample=0.2, n_iterations=2, n_sweeps=20, n_dropped=10, random_state=0),
}
#: checkpoints of a fit that was interrupted while it was choosing a kind, and of one later on
_CHECKPOINTS = ("choosing", "fitting")
#: the models
NAMES = (*_KINDS, *_CHECKPOINTS, *_OTHERS)
#: what altered files end in
GOOD = ("refused", "sound")
_SLOW = 20.0


# -- the models --------------------------------------------------------------------------------------------------------


@functools.cache
def _log_of(name: str) -> BehaviorLog:
    if name == "wide":
        rng = np.random.default_rng(0)
        sets = rng.normal(size=(3, 12, 3, WIDE + 1))
        return BehaviorLog.from_episodes([(each, each[:, :, :5].sum(axis=2).argmax(axis=1)) for each in sets])
    if name == "prepared":
        return ibcb.read_log(_raw_table(), one_hot=["genre"], cross=[("price", "genre")], standardize=True)
    return ibcb.simulate("synthetic", expert="sbts" if name == "sbts" else "sbucb", seed=0, **_SIZE).log


@functools.cache
def _raw_table() -> pa.Table:
    """Numbers, and categories."""
    rng = np.random.default_rng(0)
    steps = np.repeat(np.arange(90), 3)
    price, genre = rng.normal(size=len(steps)), rng.choice(["a", "b"], size=len(steps))
    best = (price + (genre == "a")).reshape(-1, 3).argmax(axis=1)
    chosen = (np.tile(np.arange(3), 90) == np.repeat(best, 3)).astype(int)
    return pa.table({"step": steps, "episode": steps // 30, "price": price, "genre": genre, "chosen": chosen})


@functools.cache
def stored(name: str, folder: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and JSON of a saved model."""
    path = folder / f"{name}.safetensors"
    if name in _CHECKPOINTS:
        ibcb.write_log(_log_of("auto"), folder / "log.parquet")
        with _interrupted(name), contextlib.suppress(KeyboardInterrupt):
            fit_in_steps(IBCB(**_KINDS["auto"]), ibcb.open_log(folder / "log.parquet"), path)
        return read_model_file(checkpoint_of(path))
    model = _OTHERS[name]() if name in _OTHERS else IBCB(**_KINDS[name])
    ibcb.save_model(model.fit(_log_of(name)), path)
    return read_model_file(path)


def _interrupted(phase: str) -> Any:
    """Interrupts a fit in steps after the second episode of a phase."""

    def save(model: Unfinished, where: Any) -> None:
        ibcb.save_model(model, where)
        held = model.progress
        assert held.last is not None
        if held.last.episodes == 2 and phase == ("choosing" if held.fit is None else "fitting"):
            raise KeyboardInterrupt

    return mock.patch("ibcb.estimators.models.save_model", save)


def write(path: Path, arrays: dict[str, Array], meta: dict[str, Any]) -> None:
    """A model file of this content, with the digest of it."""
    whole, content = {key: np.ascontiguousarray(array) for key, array in arrays.items()}, json.dumps(meta)
    save_file(whole, path, {"ibcb": content, "blake2b": content_digest(whole, content)})


def _altered(
    arrays: dict[str, Array], meta: dict[str, Any], rng: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Any], list[str]]:
    """One to three random alterations, and their names."""
    arrays, meta, done = dict(arrays), copy.deepcopy(meta), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if arrays and rng.random() < 0.5:
            done.append(alter_arrays(arrays, rng))
        else:
            done.append(alter_json(meta, rng, kept=("version", "library_version")))
    return arrays, meta, done


# -- what a model that was loaded must do ------------------------------------------------------------------------------


def _finite(value: Any) -> bool:
    """Whether all numbers are; of notes and records too."""
    if isinstance(value, (float, np.floating)):
        return math.isfinite(value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return not isinstance(value, (tuple, list)) or all(map(_finite, value))


def _assert_harmless(page: str) -> None:
    """No name closes an element of the page or opens one; its scripts are its own."""
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")


def _use(model: Any, log: BehaviorLog, folder: Path) -> None:
    """All that can be asked of a model; what it tells is finite, or what the documentation says it may be."""
    if isinstance(model, Unfinished):
        again = folder / "used.safetensors"
        ibcb.save_model(model, checkpoint_of(again))
        with contextlib.suppress(ValueError, ibcb.SolverError):
            fit_in_steps(IBCB(**_KINDS["auto"]), ibcb.open_log(folder / "log.parquet"), again, resume=True)
        return
    d = model.n_features_in_
    sets = np.random.default_rng(1).normal(size=(4, 3, d))
    assert _finite([model.coef_, model.next_policy_coef_, model.decision_function(sets)])
    assert np.isin(model.predict(sets), range(3)).all()
    assert len(repr(model)) > 0
    assert HOSTILE[:20] not in model._repr_html_inner()
    ibcb.save_model(model, folder / "used.safetensors")
    model.weights(as_frame=False)
    if d == log.n_features and (model.feature_names_in_ in (None, log.feature_names) or log.feature_names is None):
        model.score(log)
    if model.preparation_ is not None:
        # Read with other options, it may not be a log.
        with contextlib.suppress(ValueError, TypeError):
            assert model.predict(_raw_table().drop_columns("chosen")).shape == (90,)
    if isinstance(model, IBCB):
        _use_tracked(model, log, sets, folder)


def _use_tracked(model: IBCB, log: BehaviorLog, sets: Array, folder: Path) -> None:
    count = len(model.policy_coefs_)
    assert _finite([model.policy_coefs_, model.intercept_, *(model.policy_at(n) for n in range(count + 1))])
    assert _finite(model.direction(model.coef_))
    assert [str(told) for told in (*model.notes_, *model.diagnostics_, *model.evidence_)]
    if model._fit.track is not None:
        assert _finite([model.forecast(n) for n in (0, 1, 3)])
        certain = model.certainty(sets)
        assert ((certain >= 0) & (certain <= 1)).all() or not model.next_policy_coef_.any()
        intervals = [model.policy_interval(direction=direction) for direction in (False, True)]
        for estimate, lower, upper in (*intervals, *([model.reward_interval()] if model.decider_.learns else [])):
            assert _finite(estimate)
            assert (lower <= upper).all()
        p = model.propensities(sets)
        assert _finite(p)
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    if not model._lens.reduces:
        policy = model.to_policy(random_state=0)
        assert policy.act(sets[0]) in range(3)
        policy.update(sets[0][:1], [0.5])
    with contextlib.suppress(ValueError):
        ibcb.report.write_report(model, log, folder / "page.html", title=HOSTILE)
        _assert_harmless((folder / "page.html").read_text(encoding="utf-8"))
    try:
        model.partial_fit(log[1])
    except (ValueError, ibcb.SolverError):
        return
    assert _finite([model.coef_, model.next_policy_coef_])


def outcome(name: str, folder: Path, seed: int) -> str:
    """What becomes of one altered file: "refused", "sound", or what went wrong."""
    arrays, meta, done = _altered(*stored(name, folder), np.random.default_rng(seed))
    path = folder / "altered.safetensors"
    try:
        write(path, arrays, meta)
    except Exception:  # not a text that the container can hold
        return "refused"
    began, told = time.process_time(), ""
    try:
        with np.errstate(all="ignore"):
            try:
                model = ibcb.load_model(path)
            except ModelFileError as error:
                told = str(error)
            else:
                _use(model, _log_of(name if name in ("wide", "prepared", "sbts") else "auto"), folder)
    except Exception as error:
        return f"{name} {seed}: {done}: {error!r}"
    if time.process_time() - began > _SLOW:
        return f"{name} {seed}: {done}: took {time.process_time() - began:.0f} s"
    if told and (path.name not in told or len(told) >= 2000):
        return f"{name} {seed}: {done}: {told!r}"
    return "refused" if told else "sound"
