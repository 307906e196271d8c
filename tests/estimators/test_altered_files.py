"""Altered model files, with a digest that fits: refused by name when they are loaded, or models that work."""

import contextlib
import copy
import functools
import json
import math
import time

import numpy as np
import pandas
import pytest
from conftest import small_run
from safetensors.numpy import save_file

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.estimators import checkpoints
from ibcb.estimators.checkpoints import Choosing, checkpoint_of, fit_in_steps
from ibcb.estimators.model_file import ModelFileError, content_digest, read_model_file
from ibcb.estimators.reduction import WIDE, Reduction
from ibcb.tracking import Interval

# What it warns of is not looked at here.
pytestmark = pytest.mark.filterwarnings("ignore")
SIZE = {"n_episodes": 3, "batch_size": 30, "n_candidates": 4, "n_features": 3, "warmup": 30}
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\n\u202e{{7*7}}"
KINDS = {
    "sbucb": {"expert": "sbucb"},
    "sbts": {"expert": "sbts", "l2": 0.3},
    "other": {"expert": "other"},
    "topk": {"expert": "topk", "top_k": 2},
    "auto": {"expert": "auto", "l2": 0.3, "top_k": 2},
    "alone": {"expert": "sbucb", "forecast": None},
    "late": {"expert": "sbucb", "prior_gram": 50 * np.eye(3)},
}


@functools.cache
def log_of(name):
    if name == "wide":
        rng = np.random.default_rng(0)
        sets = rng.normal(size=(3, 12, 3, WIDE + 1))
        return BehaviorLog.from_episodes([(each, each[:, :, :5].sum(axis=2).argmax(axis=1)) for each in sets])
    if name == "prepared":
        return prepared()
    return small_run("sbts" if name == "sbts" else "sbucb", **SIZE).log


@functools.cache
def raw_table():
    """Numbers, and categories."""
    rng = np.random.default_rng(0)
    steps = np.repeat(np.arange(90), 3)
    table = {
        "step": steps,
        "episode": steps // 30,
        "price": rng.normal(size=len(steps)),
        "genre": rng.choice(["a", "b"], size=len(steps)),
    }
    score = table["price"] + (table["genre"] == "a")
    best = score.reshape(-1, 3).argmax(axis=1)
    table["chosen"] = (np.tile(np.arange(3), 90) == np.repeat(best, 3)).astype(int)
    return pandas.DataFrame(table)


@functools.cache
def prepared():
    """A log with names, ids, categories, products and standardised numbers."""
    return ibcb.read_log(raw_table(), one_hot=["genre"], cross=[("price", "genre")], standardize=True)


@functools.cache
def stored(name, folder):
    """Arrays and JSON of a saved model."""
    path = folder / f"{name}.safetensors"
    if name == "choosing":
        ibcb.write_log(log_of("auto"), folder / "log.parquet")
        with pytest.MonkeyPatch.context() as patch:
            real = checkpoints.save_model

            def save(model, where):
                real(model, where)
                if model.tracks.episodes == 2:
                    raise KeyboardInterrupt

            patch.setattr(checkpoints, "save_model", save)
            with pytest.raises(KeyboardInterrupt):
                fit_in_steps(IBCB(**KINDS["auto"]), ibcb.open_log(folder / "log.parquet"), path)
        return read_model_file(checkpoint_of(path))
    models = {
        "wide": lambda: IBCB(expert="sbucb", l2=1.0),
        "prepared": lambda: IBCB(expert="sbucb"),
        "choice": lambda: ibcb.ChoiceModel(width=True),
        "svc": ibcb.BaseSVC,
        "birl": lambda: ibcb.BIRL(n_samples=20, burn_in=5, random_state=0),
        "bicb": lambda: ibcb.BICB(sample=0.2, n_iterations=2, n_sweeps=20, n_dropped=10, random_state=0),
    }
    model = models[name]() if name in models else IBCB(**KINDS[name])
    ibcb.save_model(model.fit(log_of(name)), path)
    return read_model_file(path)


NAMES = [*KINDS, "choosing", "wide", "prepared", "choice", "svc", "birl", "bicb"]

# -- alterations ---------------------------------------------------------------------------------------------------

DEEP = functools.reduce(lambda inside, _: [inside], range(200), 1)
NUMBERS = [0, 1, -1, 2, 7, 0.5, -7.5, 1e-320, 1e-9, 1e9, 1e155, -1e155, 1.7e308, 2**31, 2**53, 2**53 + 2, 10**400]
VALUES = [
    *NUMBERS,
    float("nan"),
    float("inf"),
    None,
    True,
    False,
    "",
    "x",
    "sbucb",
    "auto",
    HOSTILE,
    "\ud800",
    [],
    {},
    DEEP,
]
#: what may become of a number of an array
CELLS = [0.0, 1.0, -1.0, 0.5, 1e-320, 1e-12, 1e12, 1e155, -1e155, 1.7e308, np.nan, np.inf]
CHANGES = {
    "longer": lambda a, rng: np.concatenate([a, a[-1:]]),
    "shorter": lambda a, rng: a[:-1],
    "empty": lambda a, rng: a[:0],
    "turned": lambda a, rng: a.T,
    "flat": lambda a, rng: a.reshape(-1),
    "deeper": lambda a, rng: a[None],
    "shuffled": lambda a, rng: rng.permutation(a.reshape(-1)).reshape(a.shape),
    "negative": lambda a, rng: -a,
    "scaled": lambda a, rng: a * rng.choice([0.0, 1e-160, 1e-9, 1e9, 1e160]),
    "single": lambda a, rng: a.astype(np.float32),
    "whole": lambda a, rng: a.astype(np.int64),
    "cell": lambda a, rng: changed_cell(a, rng),
    "cells": lambda a, rng: np.full_like(a, rng.choice(CELLS)),
}


def changed_cell(array, rng):
    found = array.copy()
    if found.size:
        with np.errstate(invalid="ignore"):
            found.flat[rng.integers(found.size)] = np.float64(rng.choice(CELLS)).astype(found.dtype)
    return found


def places(value, path=()):
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def at(value, path):
    return functools.reduce(lambda inside, key: inside[key], path, value)


def altered(arrays, meta, rng):
    """One to three random alterations, and their names."""
    arrays, meta, done = dict(arrays), copy.deepcopy(meta), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if arrays and rng.random() < 0.5:
            key = list(arrays)[rng.integers(len(arrays))]
            way = str(rng.choice([*CHANGES, "dropped", "another"]))
            if way == "dropped":
                del arrays[key]
            elif way == "another":
                arrays[key] = arrays[list(arrays)[rng.integers(len(arrays))]]
            else:
                with np.errstate(all="ignore"):
                    arrays[key] = CHANGES[way](np.atleast_1d(arrays[key]), rng)
            done.append(f"{key} {way}")
            continue
        found = [path for path in places(meta) if path[0] not in ("version", "library_version")]
        path = found[rng.integers(len(found))]
        owner, way = at(meta, path[:-1]), rng.integers(8)
        if way == 0:
            del owner[path[-1]]
        elif way == 1:
            # What stands elsewhere in the file.
            owner[path[-1]] = copy.deepcopy(at(meta, found[rng.integers(len(found))]))
        elif way == 2 and isinstance(owner, list):
            owner.insert(path[-1], copy.deepcopy(owner[path[-1]]))
        elif way == 3 and isinstance(owner[path[-1]], (int, float)) and not isinstance(owner[path[-1]], bool):
            owner[path[-1]] = owner[path[-1]] + int(rng.choice([-1, 1]))
        else:
            owner[path[-1]] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
        done.append(f"{path} {way}: {str(owner)[:60]!r}")
    return arrays, meta, done


# -- what a model that was loaded must do --------------------------------------------------------------------------


def finite(value):
    """Whether all numbers are; of notes and records too."""
    if isinstance(value, (float, np.floating)):
        return math.isfinite(value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    return not isinstance(value, (tuple, list)) or all(map(finite, value))


def assert_harmless(page):
    """No name closes an element of the page or opens one; its scripts are its own."""
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")


def use(model, log, folder):
    """All that can be asked of a model; what it tells is finite, or what the documentation says it may be."""
    if isinstance(model, Choosing):
        again = folder / "used.safetensors"
        ibcb.save_model(model, checkpoint_of(again))
        with contextlib.suppress(ValueError, ibcb.SolverError):
            fit_in_steps(IBCB(**KINDS["auto"]), ibcb.open_log(folder / "log.parquet"), again, resume=True)
        return
    d = model.n_features_in_
    sets = np.random.default_rng(1).normal(size=(4, 3, d))
    assert finite([model.coef_, model.next_policy_coef_, model.decision_function(sets)])
    assert np.isin(model.predict(sets), range(3)).all()
    assert len(repr(model)) > 0
    assert HOSTILE[:20] not in model._repr_html_inner()
    ibcb.save_model(model, folder / "used.safetensors")
    model.weights(as_frame=False)
    if d == log.n_features and (model.feature_names_in_ in (None, log.feature_names) or log.feature_names is None):
        model.score(log)
    if model.preparation_ is not None:
        table = raw_table().drop(columns="chosen")
        # Read with other options, it may not be a log.
        with contextlib.suppress(ValueError, TypeError):
            assert model.predict(table).shape == (90,)
    if not isinstance(model, IBCB):
        return
    count = len(model.policy_coefs_)
    assert finite([model.policy_coefs_, model.intercept_, *(model.policy_at(n) for n in range(count + 1))])
    assert finite(model.direction(model.coef_))
    assert [str(told) for told in (*model.notes_, *model.diagnostics_, *model.evidence_)]
    if model._fit.track is not None:
        assert finite([model.forecast(n) for n in (0, 1, 3)])
        certain = model.certainty(sets)
        assert ((certain >= 0) & (certain <= 1)).all() or not model.next_policy_coef_.any()
        for direction in (False, True):
            estimate, lower, upper = model.policy_interval(direction=direction)
            assert finite(estimate)
            assert (lower <= upper).all()
        p = model.propensities(sets)
        assert finite(p)
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
        if model.decider_.learns:
            estimate, lower, upper = model.reward_interval()
            assert finite(estimate)
            assert (lower <= upper).all()
    if model._reduction is None:
        policy = model.to_policy(random_state=0)
        assert policy.act(sets[0]) in range(3)
        assert finite(policy.update(sets[0][:1], [0.5]) or 0.0)
    with contextlib.suppress(ValueError):
        ibcb.report.write_report(model, log, folder / "page.html", title=HOSTILE)
        assert_harmless((folder / "page.html").read_text(encoding="utf-8"))
    try:
        model.partial_fit(log[1])
    except (ValueError, ibcb.SolverError):
        return
    assert finite([model.coef_, model.next_policy_coef_])


def outcome(name, folder, seed):
    """What becomes of one altered file: "refused", "sound", or what went wrong."""
    rng = np.random.default_rng(seed)
    arrays, meta, done = altered(*stored(name, folder), rng)
    path = folder / "altered.safetensors"
    content = json.dumps(meta)
    whole = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    try:
        save_file(whole, path, {"ibcb": content, "blake2b": content_digest(whole, content)})
    except Exception:  # not a text that the container can hold
        return "refused"
    began, told = time.perf_counter(), ""
    try:
        with np.errstate(all="ignore"):
            try:
                model = ibcb.load_model(path)
            except ModelFileError as error:
                told = str(error)
            else:
                use(model, log_of(name if name in ("wide", "prepared", "sbts") else "auto"), folder)
    except Exception as error:
        return f"{name} {seed}: {done}: {error!r}"
    assert time.perf_counter() - began < 20, done
    assert not told or (path.name in told and len(told) < 2000), told
    return "refused" if told else "sound"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("altered")


def assert_refused_or_sound(name, folder, seeds):
    found = [outcome(name, folder, seed) for seed in seeds]
    assert [each for each in found if each not in ("refused", "sound")] == []
    return found


@pytest.mark.parametrize("name", NAMES)
def test_altered_files_are_refused_or_work(name, folder):
    found = assert_refused_or_sound(name, folder, range(8 if name in ("wide", "choosing") else 25))
    assert "refused" in found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_altered_files_are_refused_or_work(name, folder):
    assert_refused_or_sound(name, folder, range(100_000, 100_000 + (300 if name == "wide" else 2000)))


def rewritten(path, change):
    arrays, meta = read_model_file(path)
    change(meta)
    content = json.dumps(meta)
    save_file(arrays, path, {"ibcb": content, "blake2b": content_digest(arrays, content)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        # 10^30 products of three features: nothing waits for them
        (lambda made: made.update(crosses=[[[0, 1, 2] * 10] * 20]), "products"),
        (lambda made: made["columns"][0].update(name=None), "not a name"),
        (lambda made: made["columns"][0].update(name="another"), "not those that its recipe makes"),
        (lambda made: made["columns"][1].update(categories="ab"), "not a list"),
        (lambda made: made["columns"][0].update(fill=float("nan")), "not finite"),
    ],
)
def test_an_altered_recipe_is_refused(folder, change, words):
    stored("prepared", folder)
    path = folder / "recipe.safetensors"
    path.write_bytes((folder / "prepared.safetensors").read_bytes())
    rewritten(path, lambda meta: change(meta["state"]["preparation"]))
    with pytest.raises(ModelFileError, match=words):
        ibcb.load_model(path)


def test_bounds_that_are_not_known_of_all_other_features_leave_the_kept_ones_theirs():
    """Of very many features, those tracked one by one have their own bounds."""
    reduction = Reduction(np.array([1]), np.array([2.0, 0.0, -1.0]))
    bounds = Interval(np.array([3.0, 0.5]), np.array([2.0, -np.inf]), np.array([4.0, np.inf]))
    estimate, lower, upper = reduction.expanded_interval(bounds)
    np.testing.assert_array_equal(estimate, [1.0, 3.0, -0.5])
    np.testing.assert_array_equal(lower, [-np.inf, 2.0, -np.inf])
    np.testing.assert_array_equal(upper, [np.inf, 4.0, np.inf])


@pytest.mark.parametrize("name", ["unit", "within"])
def test_moments_whose_sums_overflow_are_refused(folder, name):
    stored("sbts", folder)
    arrays, meta = read_model_file(folder / "sbts.safetensors")
    arrays = {key: array.copy() for key, array in arrays.items()}
    arrays[f"fit.track.now.{name}"][1, 1] = 1.7e308
    path, content = folder / "moments.safetensors", json.dumps(meta)
    save_file(arrays, path, {"ibcb": content, "blake2b": content_digest(arrays, content)})
    with pytest.raises(ModelFileError, match=rf"{name} has numbers beyond 1e\+300"):
        ibcb.load_model(path)
