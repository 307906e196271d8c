"""The serialiser of model state: there and back to the bit, and nothing damaged becomes a model that misleads."""

import functools
import json
import sys
import types
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, NamedTuple

import numpy as np
import pytest
from conftest import asked_for, ragged_log, small_run
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as random_arrays
from numpy.typing import NDArray
from safetensors.numpy import save_file
from same import assert_same
from strategies import reproducible
from views import flipped

import ibcb
from ibcb import IBCB
from ibcb.deciders import KINDS, Kind
from ibcb.estimators.models import ModelFileError, content_digest, read_model_file
from ibcb.estimators.state import pack, unpack
from ibcb.inverse.evolution import EpisodeDiagnosis
from ibcb.inverse.solvers.cutting_plane import Certificate, Contradiction
from ibcb.log.notes import Note
from ibcb.numerics.arrays import Stored
from ibcb.numerics.gaussians import Beliefs
from ibcb.tracking import Predicted, Track
from ibcb.tracking.context_sample import ContextSample
from ibcb.tracking.look import Tracked
from ibcb.tracking.selection import Candidate

SIZE = {"n_episodes": 3, "batch_size": 30, "n_candidates": 4, "n_features": 3, "warmup": 30}
PARAMS = {
    **{name: asked_for(name) for name in KINDS},
    "auto": {"expert": "auto", "l2": 0.3, "top_k": 2},
    "alone": {"expert": "sbucb", "forecast": None},
    "late": {"expert": "sbucb", "prior_gram": 50 * np.eye(3)},
}


@functools.cache
def fitted(name):
    log = small_run("sbts" if name == "sbts" else "sbucb", **SIZE).log
    if name == "contradicting":
        return IBCB(l2=0.3).fit(flipped(log, 2, 5))
    if name == "ragged":
        return IBCB(expert="other").fit(ragged_log(np.random.default_rng(0)))
    return IBCB(**PARAMS[name]).fit(log)


MODELS = [*PARAMS, "contradicting", "ragged"]


def there_and_back(kind, value, d):
    arrays = {}
    stored = json.loads(json.dumps(pack(value, "x", arrays), allow_nan=False))
    assert all(array.dtype == np.float64 for array in arrays.values())
    return unpack(kind, stored, arrays, d)


# -- records that models hold ----------------------------------------------------------------------------------------


def records(value):
    """The value and all that it holds, as far as these are records."""
    if isinstance(value, Kind | Note) or is_dataclass(value) or hasattr(value, "_fields"):
        yield value
    if isinstance(value, Kind | Note):
        return
    if is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from records(each)


def held(model):
    """All records of a model's fit."""
    fit = model._fit
    parts = (fit.kind, fit.track, fit.solving, fit.choosing, fit.tracking, fit.evidence, fit.evolution.diagnostics)
    return list(records(list(parts)))


@pytest.mark.parametrize("name", MODELS)
def test_every_record_of_a_model_goes_there_and_back(name):
    model = fitted(name)
    for record in held(model):
        kind = next(base for base in (Kind, Note, type(record)) if isinstance(record, base))
        assert_same(there_and_back(kind, record, model.n_features_in_), record, type(record).__name__)


def test_the_models_hold_every_kind_of_record():
    every = [record for name in MODELS for record in held(fitted(name))]
    found = {type(record) for record in every}
    assert {record.key for record in every if isinstance(record, Kind)} == {*KINDS}
    assert {Kind, Note, Candidate, Track, Tracked, Beliefs, ContextSample, Predicted} <= found
    assert {EpisodeDiagnosis, Contradiction} <= found


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_one_that_was_saved(name, tmp_path):
    model = fitted(name)
    ibcb.save_model(model, tmp_path / "m.safetensors")
    again = ibcb.load_model(tmp_path / "m.safetensors")
    assert_same(again.get_state(), model.get_state())
    assert_same(answers(again), answers(model))
    published = {key for key in vars(model) if key.endswith("_") and not key.startswith("_")}
    assert {key for key in vars(again) if key.endswith("_") and not key.startswith("_")} == published
    for key in published:
        assert_same(vars(again)[key], vars(model)[key], key)
    # What is loaded is stored as the very same file.
    ibcb.save_model(again, tmp_path / "again.safetensors")
    one, other = (read_model_file(tmp_path / f"{file}.safetensors") for file in ("m", "again"))
    assert_same(one, other)


def answers(model):
    """All that a model tells of candidate sets and policies."""
    sets = np.random.default_rng(1).normal(size=(6, 4, 3))
    told = [model.coef_, model.policy_coefs_, model.predict(sets), model.decision_function(sets), model.notes_]
    told += [model.policy_at(episode) for episode in range(len(model.policy_coefs_) + 1)]
    told += [model.direction(model.policy_coefs_)]
    if model._fit.track is None:
        return told
    told += [*(model.forecast(updates) for updates in (0, 1, 3)), model.policy_at(5), model.certainty(sets)]
    return [*told, model.policy_interval(), model.policy_interval(0.5, direction=True)]


def test_a_loaded_model_goes_on_as_the_one_that_was_saved(tmp_path):
    log = small_run(seed=2, **SIZE).log
    for params in ({"l2": 0.3, "solver": "robust"}, {"expert": "other"}):
        model = IBCB(**params).fit(log[:2])
        ibcb.save_model(model, tmp_path / "m.safetensors")
        again = ibcb.load_model(tmp_path / "m.safetensors").partial_fit(log[2])
        assert_same(again.get_state(), model.partial_fit(log[2]).get_state())


# -- random records ------------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """A record of plain values."""

    name: str
    share: float
    count: int
    yes: bool
    maybe: float | None
    notes: tuple[Note, ...]
    decider: Kind
    certificate: Certificate | None


@dataclass(frozen=True)
class Tree:
    """A record of arrays, whose letters are sizes, and of other records."""

    square: Annotated[NDArray[np.float64], Stored("d d")]
    long: Annotated[NDArray[np.float64], Stored("K d")]
    counts: Annotated[NDArray[np.int64], Stored("K", np.int64)]
    light: Annotated[NDArray[np.float32], Stored("N", np.float32)]
    maybe: Annotated[NDArray[np.float64], Stored("K")] | None
    leaves: tuple[Leaf, ...]
    beliefs: tuple[Beliefs, ...]
    sample: ContextSample


numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**53)
figures = numbers | st.integers(-9, 9) | st.text(max_size=3)
notes = st.builds(
    Note,
    st.text(max_size=4),
    st.sampled_from(["info", "warning"]),
    st.text(max_size=8),
    st.dictionaries(st.text(max_size=3), figures | st.lists(figures, max_size=3).map(tuple), max_size=3),
)
deciders = st.builds(
    lambda kind, l2, top_k: kind(l2=l2, top_k=top_k),
    st.sampled_from(list(KINDS.values())),
    st.floats(1e-6, 1e6),
    st.integers(1, 9),
)
rows = st.builds(Contradiction, counts, counts, counts, counts, numbers)
leaves = st.builds(
    Leaf,
    st.text(max_size=5),
    numbers,
    counts,
    st.booleans(),
    st.none() | numbers,
    st.lists(notes, max_size=2).map(tuple),
    deciders,
    st.none() | st.lists(rows, max_size=2).map(Certificate),
)


@st.composite
def trees(draw):
    d, K, N, D = (draw(st.integers(0 if place else 1, 3)) for place in range(4))
    sizes = draw(st.lists(st.integers(1, 3), max_size=3))

    def array(*shape, dtype=np.float64):
        wide = np.dtype(dtype).itemsize * 8
        elements = st.floats(width=wide, allow_nan=False, allow_infinity=False)
        return draw(random_arrays(dtype, shape, elements=elements if np.dtype(dtype).kind == "f" else counts))

    beliefs = tuple(Beliefs(array(k, D), array(k, D, D)) for k in draw(st.lists(st.integers(1, 2), max_size=2)))
    return Tree(
        array(d, d),
        array(K, d),
        array(K, dtype=np.int64),
        array(N, dtype=np.float32),
        array(K) if draw(st.booleans()) else None,
        tuple(draw(st.lists(leaves, max_size=2))),
        beliefs,
        ContextSample(array(sum(sizes), d, dtype=np.float32), np.array(sizes, dtype=np.int64), array(len(sizes))),
    )


@reproducible
@given(trees())
def test_any_record_goes_there_and_back(tree):
    assert_same(there_and_back(Tree, tree, tree.square.shape[0]), tree)


@reproducible
@given(trees(), st.data())
def test_sizes_must_agree_within_a_record(tree, data):
    arrays, d = {}, tree.square.shape[0]
    stored = pack(tree, "x", arrays)
    name = data.draw(st.sampled_from(["square", "long", "counts"]))
    grown = arrays[f"x.{name}"]
    arrays[f"x.{name}"] = np.zeros((len(grown) + 1, *grown.shape[1:]))
    with pytest.raises(ValueError, match="state.*has shape"):
        unpack(Tree, stored, arrays, d)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"counts": np.array([0.5])}, "state.counts must hold whole numbers"),
        ({"counts": np.array([-1.0])}, "state.counts must hold whole numbers from 0 on"),
        ({"counts": np.array([1e300])}, "state.counts must hold whole numbers"),
        ({"counts": np.array([np.nan])}, "state.counts must hold whole numbers"),
        ({"light": np.array([1e300])}, "state.light must hold finite"),
        ({"long": np.full((1, 2), np.inf)}, "state.long must hold finite"),
        ({"square": np.zeros(2)}, r"state.square has shape \(2,\), expected \(d, d\)"),
        ({"sample.counts": np.array([2.0])}, "state.sample: its counts do not add up"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_place(change, words):
    sample = ContextSample(np.zeros((1, 2), dtype=np.float32), np.ones(1, dtype=np.int64), np.zeros(1))
    tree = Tree(np.eye(2), np.zeros((1, 2)), np.ones(1, int), np.zeros(1, np.float32), None, (), (), sample)
    arrays = {}
    stored = pack(tree, "x", arrays)
    arrays.update({f"x.{name}": array for name, array in change.items()})
    with pytest.raises(ValueError, match=words):
        unpack(Tree, stored, arrays, 2)


NOTE = {"code": "a", "severity": "info", "text": "b", "figures": {}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"share": float("nan")}, "state.share is nan, expected a finite number"),
        ({"share": 10**400}, "state.share is 10+, expected a finite number"),
        ({"share": True}, "state.share is True"),
        ({"count": -1}, "state.count is -1, expected a whole number"),
        ({"count": 1.0}, r"state.count is 1\.0"),
        ({"yes": 1}, "state.yes is 1, expected true or false"),
        ({"name": None}, "state.name is None, expected text"),
        ({"maybe": "x"}, "state.maybe is 'x'"),
        ({"decider": {"kind": "sbucb", "l2": 1.0}}, "state.decider is .*not a known kind of decider"),
        ({"decider": {"kind": "sbucb", "l2": 1.0, "top_k": 1}}, "state.decider is .*not a known kind of decider"),
        (
            {"decider": {"kind": ["sbucb"], "l2": 1.0, "top_k": 1, "frame": None, "rate": 1.0}},
            "not a known kind of decider",
        ),
        ({"decider": {"kind": "sbucb", "l2": 0.0, "top_k": 1, "frame": None, "rate": 1.0}}, "l2=0.0"),
        ({"decider": {"kind": "sbucb", "l2": 1.0, "top_k": 1, "frame": "scaled", "rate": 1.0}}, "state.decider.frame"),
        ({"decider": {"kind": "sbucb", "l2": 1.0, "top_k": 1, "frame": None, "rate": 2.0}}, "rate=2.0"),
        ({"notes": {}}, "state.notes is not a list"),
        ({"notes": ["all is well"]}, r"state.notes\[0\] is not a note"),
        ({"notes": [{**NOTE, "text": 3}]}, r"state.notes\[0\] is not a note"),
        ({"notes": [{**NOTE, "severity": "fatal"}]}, r"state.notes\[0\] is not a note"),
        ({"notes": [{**NOTE, "figures": {"a": {}}}]}, r"state.notes\[0\] is not a note"),
        ({"notes": [{**NOTE, "figures": {"a": [float("inf")]}}]}, r"state.notes\[0\] is not a note"),
        ({"certificate": [[]]}, r"state.certificate\[0\] does not hold the parts of a Contradiction"),
        ({"more": 1}, "state does not hold the parts of a Leaf"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_place(change, words):
    stored = pack(Leaf("a", 0.5, 1, True, None, (), KINDS["sbucb"](), None), "x", {})
    with pytest.raises(ValueError, match=words):
        unpack(Leaf, stored | change, {}, 2)


def test_what_has_no_place_in_a_file_is_not_stored():
    with pytest.raises(TypeError, match="x.share is a object, which has no place in a model file"):
        pack(Leaf("a", object(), 1, True, None, (), KINDS["sbucb"](), None), "x", {})


# -- damage --------------------------------------------------------------------------------------------------------


def test_a_track_must_be_one_of_its_kind(tmp_path):
    path = tmp_path / "model.safetensors"
    ibcb.save_model(fitted("sbucb"), path)
    arrays, meta = read_model_file(path)
    for kind in set(KINDS) - {"sbucb"}:
        meta["state"]["fit"]["track"]["kind"]["kind"] = kind
        content = json.dumps(meta)
        save_file(arrays, path, {"ibcb": content, "blake2b": content_digest(arrays, content)})
        name = KINDS[kind].name
        words = f"(models|beliefs) are not those of (the motions of )?{name}|{name} adds [02] columns, not 1"
        with pytest.raises(ModelFileError, match=words):
            ibcb.load_model(path)


# -- saving computes nothing -----------------------------------------------------------------------------------------


def forbidden(patch, rooms):
    """Let every function, method and property of some rooms raise; gives how many there are."""

    def stop(*args, **kwargs):
        raise AssertionError("saving computes nothing")

    count = 0
    for name, module in list(sys.modules.items()):
        if not name.startswith(tuple(f"ibcb.{room}" for room in rooms)):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType):
                patch.setattr(module, key, stop)
                count += 1
            elif isinstance(value, type) and value.__module__ == name and not issubclass(value, Exception):
                for part, inner in list(vars(value).items()):
                    if part.startswith("__"):
                        continue
                    if isinstance(inner, types.FunctionType | classmethod | staticmethod):
                        patch.setattr(value, part, stop)
                        count += 1
                    elif isinstance(inner, property | functools.cached_property):
                        patch.setattr(value, part, property(stop))
                        count += 1
    return count


@pytest.mark.parametrize("name", MODELS)
def test_saving_computes_nothing(name, tmp_path, monkeypatch):
    model = fitted(name)
    ibcb.save_model(model, tmp_path / "before.safetensors")
    with monkeypatch.context() as patch:
        assert forbidden(patch, ("tracking", "deciders", "inverse", "engine", "numerics")) > 100
        for function in ("inv", "solve", "eigh", "cholesky", "qr"):
            patch.setattr(np.linalg, function, None)
        ibcb.save_model(model, tmp_path / "after.safetensors")
    before, after = (read_model_file(tmp_path / f"{when}.safetensors") for when in ("before", "after"))
    assert_same(before, after)
