"""Fits in steps: whatever is left open, the model has the bits of a fit in memory, wherever the fit was killed."""

import functools

import numpy as np
import pytest
from conftest import ragged_log, slow, small_run
from same import assert_same
from sklearn.exceptions import NotFittedError
from views import flipped

import ibcb
from ibcb import IBCB
from ibcb.deciders import KINDS
from ibcb.estimators import models
from ibcb.estimators.models import (
    ModelFileError,
    Unfinished,
    checkpoint_of,
    fit_in_steps,
    read_model_file,
    write_model_file,
)
from ibcb.log.fingerprint import log_fingerprint
from ibcb.tracking import selection

SIZE = {"n_episodes": 4, "batch_size": 40, "n_candidates": 4, "n_features": 3, "warmup": 40}
#: everything that may be left open, and the kinds that are only tracked
OPEN = {
    "auto": {"expert": "auto", "l2": "auto"},
    "l2": {"expert": "sbts", "l2": "auto"},
    "top_k": {"expert": "topk", "top_k": "auto"},
    "topk": {"expert": "topk", "top_k": 2},
    "stationary": {"expert": "stationary"},
    "other": {"expert": "other"},
    "kind": {"expert": "auto", "l2": 0.3, "top_k": 2, "forecast": None},
}


@functools.cache
def logs(name):
    return {
        "plain": lambda: small_run(**SIZE).log,
        "contradicting": lambda: flipped(small_run(**SIZE).log, 2, 7),
        "drawing": lambda: small_run(top_k=2, **SIZE).log,
        "ragged": lambda: ragged_log(np.random.default_rng(0), warmup=0),
        "single": lambda: single(small_run(**SIZE).log),
        "two": lambda: small_run(**SIZE).log[:2],
    }[name]()


def single(log):
    """The log with contexts in single precision."""
    episodes = [
        (episode.contexts.reshape(-1, 4, 3).astype(np.float32), episode.chosen) for _, episode in log.episodes()
    ]
    return ibcb.BehaviorLog.from_episodes(episodes, warmup=log.warmup)


@functools.cache
def in_memory(options, name):
    return IBCB(**OPEN[options]).fit(logs(name))


def on_disk(name, folder, suffix=".parquet"):
    path = folder / f"log{suffix}"
    if not path.exists():
        ibcb.write_log(logs(name), path)
    return ibcb.open_log(path)


def assert_same_fit(model, expected, out):
    """All that is stored, and all that is told, of the model and of its file."""
    assert_same(model.get_state(), expected.get_state())
    assert_same(ibcb.load_model(out).get_state(), expected.get_state())
    for name in (name for name in vars(expected) if name.endswith("_")):
        assert_same(getattr(model, name), getattr(expected, name), name)
    assert not checkpoint_of(out).exists()


#: of every log one that is chosen, of everything left open one log; where the kind is, all kinds are tracked
PAIRS = {
    "plain": ("auto", "l2", "stationary", "other"),
    "contradicting": ("kind",),
    "drawing": ("top_k", "topk"),
    "ragged": ("kind", "other"),
    "single": ("kind", "l2"),
    "two": ("auto",),
}


@pytest.mark.parametrize(
    ("options", "name"),
    [(pytest.param if options in PAIRS[name] else slow)(options, name) for options in OPEN for name in PAIRS],
)
def test_a_fit_in_steps_has_the_bits_of_a_fit_in_memory(tmp_path, options, name):
    out = tmp_path / "m.safetensors"
    model = fit_in_steps(IBCB(**OPEN[options]), on_disk(name, tmp_path), out)
    assert_same_fit(model, in_memory(options, name), out)


def test_a_log_without_an_index_too(tmp_path):
    """Its episodes are found only by reading it."""
    out = tmp_path / "m.safetensors"
    disk = on_disk("plain", tmp_path, ".npz")
    model = fit_in_steps(IBCB(**OPEN["auto"]), disk, out)
    assert_same_fit(model, IBCB(**OPEN["auto"]).fit(disk.read()), out)


def phase_of(model):
    """What a checkpoint was stored in the midst of."""
    if not isinstance(model, Unfinished):
        return "done"
    return "fitting" if model.progress.fit else "choosing"


# -- killed on the way -----------------------------------------------------------------------------------------------


def killed(monkeypatch, disk, options, out, after, *, stored, resume=False):
    """Interrupt a fit in steps at a checkpoint: once it is stored, or before; gives what had been stored."""
    kept, real = [], models.save_model

    def save(model, path):
        if len(kept) == after and not stored:
            raise KeyboardInterrupt
        real(model, path)
        kept.append(phase_of(model))
        if len(kept) > after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(models, "save_model", save)
        with pytest.raises(KeyboardInterrupt):
            fit_in_steps(IBCB(**OPEN[options]), disk, out, resume=resume)
    return kept


@pytest.mark.parametrize("stored", [slow(True), False], ids=["after it is stored", "before it is stored"])
@pytest.mark.parametrize("options", [slow("auto"), "top_k", slow("other"), "kind"])
@pytest.mark.parametrize("name", ["plain", slow("contradicting")])
def test_killed_at_any_episode_of_either_phase_it_goes_on_to_the_same_bits(
    tmp_path, monkeypatch, options, name, stored
):
    disk, out = on_disk(name, tmp_path), tmp_path / "m.safetensors"
    phases = set()
    for after in range(2 * len(logs(name))):
        kept = killed(monkeypatch, disk, options, out, after, stored=stored)
        phases |= set(kept)
        assert checkpoint_of(out).exists() == bool(kept)
        model = fit_in_steps(IBCB(**OPEN[options]), disk, out, resume=True)
        assert_same_fit(model, in_memory(options, name), out)
    assert phases == {"choosing", "fitting"}


def test_killed_again_and_again_it_gets_there(tmp_path, monkeypatch):
    """One episode further each time; none is tracked or solved twice."""
    disk, out = on_disk("plain", tmp_path), tmp_path / "m.safetensors"
    for done in range(2 * len(disk)):
        kept = killed(monkeypatch, disk, "auto", out, 0, stored=True, resume=True)
        assert kept == ["choosing" if done < len(disk) else "fitting"]
        held = ibcb.load_model(checkpoint_of(out)).progress
        seen = held.tracks.episodes if held.fit is None else len(held.fit.evolution.policies) + len(disk)
        assert seen == done + 1
    model = fit_in_steps(IBCB(**OPEN["auto"]), disk, out, resume=True)
    assert_same_fit(model, in_memory("auto", "plain"), out)


def test_a_kind_that_could_not_be_tracked_stays_out_after_a_resumption(tmp_path, monkeypatch):
    from ibcb.deciders.topk import OneOfBest

    disk, out = on_disk("drawing", tmp_path), tmp_path / "m.safetensors"
    real = OneOfBest.observe

    def fail(self, block, columns, belief, parameters):
        seen = real(self, block, columns, belief, parameters)
        if parameters.top_k == 2 and seen.sites[0].information.trace() > 0:
            raise np.linalg.LinAlgError("singular")
        return seen

    monkeypatch.setattr(OneOfBest, "observe", fail)
    expected = IBCB(**OPEN["top_k"]).fit(logs("drawing"))
    assert expected.top_k_ != 2
    killed(monkeypatch, disk, "top_k", out, 2, stored=True)
    held = ibcb.load_model(checkpoint_of(out)).progress.tracks
    assert held.failures == ("singular", "", "")
    assert_same_fit(fit_in_steps(IBCB(**OPEN["top_k"]), disk, out, resume=True), expected, out)


# -- what a checkpoint is --------------------------------------------------------------------------------------------


def test_a_checkpoint_of_a_choice_goes_there_and_back_and_is_no_fitted_model(tmp_path, monkeypatch):
    disk, out = on_disk("drawing", tmp_path), tmp_path / "m.safetensors"
    killed(monkeypatch, disk, "auto", out, 2, stored=True)
    first = ibcb.load_model(checkpoint_of(out))
    assert phase_of(first) == "choosing"
    assert first.get_params() == IBCB(**OPEN["auto"]).get_params()
    assert first.progress.tracks.fingerprint == log_fingerprint(logs("drawing")[:3])
    for ask in (first.predict, first.certainty, first.direction):
        with pytest.raises(NotFittedError):
            ask(np.zeros((2, 3)))
    ibcb.save_model(first, tmp_path / "again.safetensors")
    assert_same(read_model_file(tmp_path / "again.safetensors"), read_model_file(checkpoint_of(out)))
    assert_same(ibcb.load_model(tmp_path / "again.safetensors").progress, first.progress)


def test_a_checkpoint_holds_no_scores_and_the_sample_of_candidates_once(tmp_path, monkeypatch):
    """It grows with the number of episodes by a few policies, not with the steps."""
    # Which candidates and models are given up depends on the choices, and so does what is left to store.
    monkeypatch.setattr(selection, "_RACES", ())
    for name, kind in [*KINDS.items()]:
        monkeypatch.setitem(KINDS, name, kind(hopeless=np.inf))
    sizes = {}
    for steps in (40, 160):
        log = small_run(**SIZE | {"batch_size": steps}).log
        ibcb.write_log(log, tmp_path / f"{steps}.parquet")
        out = tmp_path / f"{steps}.safetensors"
        killed(monkeypatch, ibcb.open_log(tmp_path / f"{steps}.parquet"), "auto", out, 3, stored=True)
        arrays, _ = read_model_file(checkpoint_of(out))
        samples = {name for name in arrays if ".sample." in name}
        assert len(samples) == 3
        # What choices say of a policy of 3 features and a bonus: as many rows as they tell directions.
        sites = {name for name in arrays if ".sites." in name}
        assert all(arrays[name].size <= 4 * 4 for name in sites)
        sizes[steps] = sum(array.size for name, array in arrays.items() if name not in samples | sites)
    assert sizes[40] == sizes[160]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(1, id="choosing"),
        pytest.param(5, id="fitting"),
    ],
)
def test_other_parameters_or_another_log_are_refused(tmp_path, monkeypatch, after):
    disk, out = on_disk("plain", tmp_path), tmp_path / "m.safetensors"
    killed(monkeypatch, disk, "auto", out, after, stored=True)
    held = checkpoint_of(out).read_bytes()
    for change, words in [
        ({"l2": 0.3}, "l2='auto', now l2 is 0.3"),
        ({"expert": "other"}, "expert='auto', now expert is 'other'"),
        ({"prior_gram": np.eye(3)}, "prior_gram=None"),
        ({"forecast": None}, "forecast='auto', now forecast is None"),
    ]:
        with pytest.raises(ValueError, match=words):
            fit_in_steps(IBCB(**OPEN["auto"] | change), disk, out, resume=True)
    others = {
        "seed": small_run(seed=1, **SIZE).log,
        "short": logs("plain")[:1],
        "features": small_run(**SIZE | {"n_features": 4}).log,
        "start": logs("plain")[1:],
    }
    for name, log in others.items():
        ibcb.write_log(log, tmp_path / f"{name}.parquet")
        with pytest.raises(ValueError, match="another log|not those|two or more"):
            fit_in_steps(IBCB(**OPEN["auto"]), ibcb.open_log(tmp_path / f"{name}.parquet"), out, resume=True)
    assert checkpoint_of(out).read_bytes() == held
    assert not out.exists()
    # How it is computed does not matter.
    model = fit_in_steps(IBCB(**OPEN["auto"], n_jobs=2, verbose=True), disk, out, resume=True)
    assert_same(model._fit, in_memory("auto", "plain")._fit)


def test_a_longer_log_that_begins_alike_goes_on_while_it_is_chosen(tmp_path, monkeypatch):
    """Nothing has been decided yet."""
    ibcb.write_log(logs("plain")[:3], tmp_path / "begun.parquet")
    out = tmp_path / "m.safetensors"
    killed(monkeypatch, ibcb.open_log(tmp_path / "begun.parquet"), "auto", out, 2, stored=True)
    model = fit_in_steps(IBCB(**OPEN["auto"]), on_disk("plain", tmp_path), out, resume=True)
    assert_same_fit(model, in_memory("auto", "plain"), out)


def _tracked_kind(state):
    """The first kind that has not been given up."""
    held = state["progress"]["tracks"]
    return next(kind for kind, track in zip(held["kinds"], held["tracks"], strict=True) if track is not None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state["progress"]["tracks"]["kinds"].pop(), "kinds do not go with"),
        (lambda state: state["progress"]["tracks"]["tracks"].pop(), "kinds do not go with"),
        (lambda state: state["progress"]["tracks"].update(stored=7), "has seen"),
        (lambda state: _tracked_kind(state).update(l2=0.2), "is that of"),
        (lambda state: state.update(n_features=4), "has shape"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, monkeypatch, change, words):
    disk, out = on_disk("plain", tmp_path), tmp_path / "m.safetensors"
    killed(monkeypatch, disk, "l2", out, 1, stored=True)
    arrays, meta = read_model_file(checkpoint_of(out))
    change(meta["state"])
    write_model_file(checkpoint_of(out), arrays, meta)
    with pytest.raises(ModelFileError, match=f"m.checkpoint.safetensors: damaged.*{words}"):
        fit_in_steps(IBCB(**OPEN["l2"]), disk, out, resume=True)


# -- errors are those of a fit in memory -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"expert": "sbucb"}, *OPEN.values()], ids=["named", *OPEN])
@pytest.mark.parametrize("warmup", [0, 1])
def test_a_log_of_one_episode_is_refused_alike(tmp_path, options, warmup):
    log = logs("plain")[:1] if warmup else logs("plain")[1]
    assert log.warmup == warmup
    ibcb.write_log(log, tmp_path / "log.parquet")
    disk, out = ibcb.open_log(tmp_path / "log.parquet"), tmp_path / "m.safetensors"
    if warmup and options["expert"] in ("sbucb", "sbts"):
        assert_same(fit_in_steps(IBCB(**options), disk, out)._fit, IBCB(**options).fit(log)._fit)
        return
    with pytest.raises(ValueError, match="one episode") as whole:
        IBCB(**options).fit(log)
    with pytest.raises(ValueError, match="one episode") as steps:
        fit_in_steps(IBCB(**options), disk, out)
    assert str(steps.value) == str(whole.value)
    assert not checkpoint_of(out).exists()


def test_all_at_once_is_no_step(tmp_path):
    with pytest.raises(ValueError, match="incremental=False"):
        fit_in_steps(IBCB(**OPEN["auto"], incremental=False), on_disk("plain", tmp_path), tmp_path / "m.safetensors")
    assert not checkpoint_of(tmp_path / "m.safetensors").exists()
