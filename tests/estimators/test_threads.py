"""Many threads on one model, and many fits at once: the bits of one thread, and BLAS left as it was."""

import functools
import itertools
import sys
import threading

import numpy as np
import pytest
from conftest import small_run
from same import assert_same
from threadpoolctl import threadpool_info, threadpool_limits

import ibcb
from ibcb import IBCB
from ibcb.engine import one_blas_thread, threads

THREADS = 8
SIZE = {"n_episodes": 4, "batch_size": 40, "n_candidates": 4, "n_features": 3, "warmup": 40}
KINDS = {
    "sbucb": {"expert": "sbucb", "l2": 0.3},
    "sbts": {"expert": "sbts", "l2": 0.3},
    "topk": {"expert": "topk", "top_k": 2},
    "other": {"expert": "other"},
    "auto": {"expert": "auto", "l2": 0.3, "top_k": 2},
    "alone": {"expert": "sbucb", "l2": 0.3, "forecast": None},
}


@pytest.fixture(autouse=True)
def often():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(calls):
    """What the calls give, each from a thread of its own, all started together; the first error is raised."""
    barrier, found, errors = threading.Barrier(len(calls)), [None] * len(calls), []

    def run(place, call):
        barrier.wait()
        try:
            found[place] = call()
        except BaseException as error:  # it is raised below, where it is seen
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def questions(model, sets):
    """All that can be asked of a model, by name."""
    asked = {
        "predict": lambda: model.predict(sets),
        "decision_function": lambda: model.decision_function(sets),
        "notes_": lambda: model.notes_,
        "policy_at": lambda: model.policy_at(1),
        "direction": lambda: model.direction(model.policy_coefs_),
        "get_state": lambda: model.get_state(),
    }
    if model.forecasts is None:
        return asked
    return asked | {
        "certainty": lambda: model.certainty(sets),
        "policy_interval": lambda: model.policy_interval(),
        "direction interval": lambda: model.policy_interval(0.8, direction=True),
        "forecast": lambda: model.forecast(1),
        "forecast further": lambda: model.forecast(4),
        "policy after": lambda: model.policy_at(9),
    }


@functools.cache
def sets():
    return np.random.default_rng(1).normal(size=(30, 4, 3))


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loaded", [False, True], ids=["fitted", "loaded"])
def test_many_threads_are_told_what_one_is_told(kind, loaded, tmp_path):
    """Everything at once, and the same at once, of a model that nobody has asked anything yet."""
    log = small_run("sbts" if kind == "sbts" else "sbucb", **SIZE).log
    model = IBCB(**KINDS[kind]).fit(log)
    alone = {name: ask() for name, ask in questions(model, sets()).items()}
    ibcb.save_model(model, tmp_path / "m.safetensors")

    def fresh():
        return ibcb.load_model(tmp_path / "m.safetensors") if loaded else IBCB(**KINDS[kind]).fit(log)

    before = blas_threads()
    model = fresh()
    asked = questions(model, sets())
    for name, told in zip(asked, at_once(list(asked.values())), strict=True):
        assert_same(told, alone[name])
    model = fresh()
    for name in ("predict", "policy_interval", "certainty", "forecast further"):
        if name in alone:
            for told in at_once([questions(model, sets())[name]] * THREADS):
                assert_same(told, alone[name])
    # And the model is no worse for it.
    for name, ask in questions(model, sets()).items():
        assert_same(ask(), alone[name])
    assert blas_threads() == before


def test_fits_in_threads_give_the_bits_of_fits_one_after_the_other(tmp_path):
    logs = {kind: small_run("sbts" if kind == "sbts" else "sbucb", seed=3, **SIZE).log for kind in KINDS}
    path = tmp_path / "log.npz"
    ibcb.write_log(logs["sbucb"], path)
    disk = ibcb.open_log(path)
    calls = [lambda kind=kind: IBCB(**KINDS[kind]).fit(logs[kind]) for kind in KINDS]
    # The same log on disk for two of them, and threads of our own inside a third.
    calls += [lambda: IBCB(**KINDS["sbucb"]).fit(disk), lambda: IBCB(**KINDS["other"]).fit(disk)]
    calls += [lambda: IBCB(**KINDS["sbucb"], n_jobs=2).fit(logs["sbucb"])]
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        alone = [call() for call in calls]
        assert blas_threads() == before
        disk = ibcb.open_log(path)
        together = at_once(calls)
        assert blas_threads() == before
    for one, other in zip(alone, together, strict=True):
        assert_same(one.get_state(), other.get_state())
        assert_same(one.notes_, other.notes_)


def test_whoever_looks_while_a_model_is_fitted_again_sees_one_fit():
    """The old one or the new one: what belongs together changes at once."""
    logs = [small_run(seed=seed, **SIZE).log for seed in (0, 1)]
    known = {model.log_fingerprint_: model for model in (IBCB(l2=0.3).fit(log) for log in logs)}
    model, stop, seen = IBCB(l2=0.3).fit(logs[0]), threading.Event(), []

    def look():
        while not stop.wait(1e-4):
            seen.append(vars(model))

    def refit():
        try:
            for log in [*reversed(logs)] * 2:
                model.fit(log)
                looked = len(seen)
                while len(seen) == looked:
                    stop.wait(1e-4)
        finally:
            stop.set()

    at_once([look, refit])
    assert len({each["log_fingerprint_"] for each in seen}) == 2
    for each in seen:
        one = known[each["log_fingerprint_"]]
        for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
            np.testing.assert_array_equal(each[name], getattr(one, name))
        assert each["notes_"] == one.notes_
        np.testing.assert_array_equal(each["_fit"].track.policies, one._fit.track.policies)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["_threaded", "_set", "_hand_over"])
def test_ctrl_c_at_any_call_costs_nobody_the_threads_of_blas(monkeypatch, name, late):
    def block():
        with one_blas_thread():
            pass

    real = getattr(threads, name)
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        for last in itertools.count():
            calls = itertools.count()

            def stopping(*given, calls=calls, last=last):
                stops = next(calls) == last
                if stops and not late:
                    raise KeyboardInterrupt
                found = real(*given)
                if stops:
                    raise KeyboardInterrupt
                return found

            with monkeypatch.context() as patch:
                patch.setattr(threads, name, stopping)
                try:
                    block()
                except KeyboardInterrupt:
                    pass
                else:
                    break
            # What an interruption kept it from putting back, the next one puts back.
            block()
            assert blas_threads() == before
            assert not threads._one_thread._inside
    assert last > 0
