"""A fit either finishes or leaves the model as it was, wherever it is interrupted; an error is that error."""

import contextlib
import copy
import functools
import gc
import importlib
import sys

import numpy as np
import pytest
from conftest import small_run
from same import assert_same
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_info
from tqdm import tqdm
from views import flipped

import ibcb
from ibcb import IBCB
from ibcb.tracking import Track

SIZE = {"n_episodes": 4, "batch_size": 40, "n_candidates": 4, "n_features": 3, "warmup": 40}

#: every place at which a fit can be interrupted: (module, name of what is replaced there)
PLACES = {
    "settings": ("ibcb.estimators.ibcb", "IBCB._settings"),
    "exact solver": ("ibcb.inverse.solvers.cutting_plane", "Solution"),
    "robust solver": ("ibcb.inverse.solvers.hinge", "_newton"),
    "rows": ("ibcb.inverse.evolution", "EpisodeView"),
    "fingerprint": ("ibcb.engine.replay", "with_episode"),
    "tracker": ("ibcb.tracking.tracker", "Track.after"),
    "kind observes": ("ibcb.deciders.cone", "Best.observe"),
    "beliefs learn": ("ibcb.numerics.gaussians", "Beliefs.given"),
    "expectation propagation": ("ibcb.numerics.half_spaces", "_tilt"),
    "motion": ("ibcb.tracking.motions", "Learner.move"),
    "sample": ("ibcb.tracking.context_sample", "ContextSample.extend"),
    "logit observes": ("ibcb.deciders.softmax", "observed"),
    "selection judges": ("ibcb.tracking.contenders", "Comparison.of"),
    "selection chooses": ("ibcb.tracking.selection", "_believed"),
    "publishing": ("ibcb.estimators.ibcb", "published"),
    "what moves": ("ibcb.estimators.published", "how_it_moves"),
    "unidentified": ("ibcb.tracking", "unidentified"),
    "forecast": ("ibcb.estimators.published", "policy_ahead"),
}
#: only seen on the way when the kind is to be chosen, or when the exact solver fails
CHOOSING = {"logit observes", "selection judges", "selection chooses"}


def replaced(monkeypatch, place, error, after):
    """Let the function at a place raise at its call number ``after``; gives a list that grows with every call."""
    module, where = PLACES[place]
    owner = importlib.import_module(module)
    *path, name = where.split(".")
    for part in path:
        owner = getattr(owner, part)
    real, calls = getattr(owner, name), []

    def raising(*args, **kwargs):
        calls.append(1)
        if len(calls) > after:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, raising)
    return calls


def passed(call):
    """How often a call comes by each place."""
    with pytest.MonkeyPatch.context() as patch:
        calls = {place: replaced(patch, place, AssertionError("never"), np.inf) for place in PLACES}
        call()
    return {place: len(made) for place, made in calls.items()}


def interrupted(call, place, after):
    with pytest.MonkeyPatch.context() as patch:
        replaced(patch, place, KeyboardInterrupt(), after)
        with pytest.raises(KeyboardInterrupt):
            call()


def when(count):
    """The first, a middle and the last of so many calls."""
    return sorted({0, count // 2, count - 1})


def answers(model, sets):
    """Everything that a model tells."""
    told = [model.predict(sets), model.decision_function(sets), model.forecast(3), model.policy_at(1), model.notes_]
    return [*told, model.certainty(sets), *model.policy_interval(), *model.policy_interval(direction=True)]


def twin(model):
    """Another model with all that one has."""
    other = IBCB()
    vars(other).update(vars(model))
    return other


def assert_untouched(call, model, place, sets, counts=None):
    """Interrupted at several calls of a place, a model stays what it was; ``counts`` are those of the call."""
    before, told = copy.deepcopy(vars(model)), answers(model, sets)
    count = (counts or passed(lambda: call(twin(model))))[place]
    assert count, f"nothing comes by {place}"
    for after in when(count):
        interrupted(lambda: call(model), place, after)
        assert_same(vars(model), before)
        assert_same(answers(model, sets), told)


@pytest.fixture(scope="module")
def log():
    return small_run(**SIZE).log


@pytest.fixture(scope="module")
def sets():
    return np.random.default_rng(1).normal(size=(20, 4, 3))


NAMED = {"expert": "sbucb", "l2": 0.3}
AUTO = {"expert": "auto", "l2": 0.3, "top_k": 2}
GIVEN = {"named": NAMED, "auto": AUTO}
#: with a named kind at every place that it comes by, with "auto" where that goes another way
CASES = [
    *(("named", place) for place in PLACES if place not in CHOOSING),
    *(("auto", place) for place in (*sorted(CHOOSING), "tracker", "rows", "publishing")),
]


@functools.cache
def log_for(place, seed=0):
    """A contradicting choice brings the robust solver in."""
    log = small_run(seed=seed, **SIZE).log
    return flipped(log, 2, 7) if place == "robust solver" else log


@functools.cache
def fit_passes(kind, robust, seed=0):
    """How often a fit comes by each place."""
    return passed(lambda: IBCB(**GIVEN[kind]).fit(log_for("robust solver" if robust else "", seed)))


@functools.cache
def fitted(kind):
    """Of it, twins are given out."""
    return IBCB(**GIVEN[kind]).fit(log_for(""))


@functools.cache
def begun(expert):
    """Of it, twins are given out."""
    return IBCB(**NAMED | {"expert": expert}).fit(log_for("")[:3])


@pytest.mark.parametrize(("kind", "place"), CASES)
def test_a_fresh_model_stays_unfitted(kind, place):
    given = log_for(place)
    count = fit_passes(kind, place == "robust solver")[place]
    assert count
    for after in when(count):
        model = IBCB(**GIVEN[kind])
        before = dict(vars(model))
        interrupted(lambda model=model: model.fit(given), place, after)
        assert vars(model) == before
        with pytest.raises(NotFittedError):
            check_is_fitted(model)
        for ask in (model.predict, model.certainty, model.direction):
            with pytest.raises(NotFittedError):
                ask(np.zeros((2, 3)))
        with pytest.raises(NotFittedError):
            model.forecast()


@pytest.mark.parametrize(("kind", "place"), CASES)
def test_refitting_a_fitted_model_changes_all_or_nothing(sets, kind, place):
    other, counts = log_for(place, 1), fit_passes(kind, place == "robust solver", 1)
    assert_untouched(lambda model: model.fit(other), twin(fitted(kind)), place, sets, counts)


@pytest.mark.parametrize("place", [place for place in PLACES if place not in CHOOSING])
def test_one_more_episode_changes_all_or_nothing(log, sets, place):
    more = flipped(log, 3, 5)[3] if place == "robust solver" else log[3]
    assert_untouched(lambda model: model.partial_fit(more), twin(begun("sbucb")), place, sets)


@pytest.mark.parametrize("place", ["tracker", "logit observes", "robust solver", "publishing"])
def test_one_more_episode_of_a_decider_that_is_tracked_changes_all_or_nothing(log, sets, place):
    assert_untouched(lambda model: model.partial_fit(log[3]), twin(begun("other")), place, sets)


def test_after_an_interruption_the_fit_is_what_it_would_have_been(log, sets):
    model = IBCB(**NAMED).fit(log[:3])
    for place in ("tracker", "exact solver", "publishing"):
        interrupted(lambda: model.partial_fit(log[3]), place, 0)
    assert_same(answers(model.partial_fit(log[3]), sets), answers(IBCB(**NAMED).fit(log), sets))
    refitted = IBCB(**AUTO).fit(log[:2])
    interrupted(lambda: refitted.fit(log), "selection chooses", 0)
    assert_same(answers(refitted.fit(log), sets), answers(IBCB(**AUTO).fit(log), sets))


@pytest.mark.parametrize("place", ["kind observes", "robust solver", "exact solver"])
def test_an_interruption_in_a_thread_of_ours_is_one_too(place):
    """Blocks that threads share, and BLAS as it was before."""
    before = [library["num_threads"] for library in threadpool_info()]
    log = flipped(small_run(**SIZE).log, 2, 7)
    model = IBCB(**NAMED, n_jobs=2)
    interrupted(lambda: model.fit(log), place, 0)
    assert not hasattr(model, "coef_")
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_a_progress_bar_that_is_interrupted_while_it_is_made_says_nothing(log, monkeypatch):
    """What it was to become has nothing to close."""

    def interrupt(*_):
        raise KeyboardInterrupt

    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    monkeypatch.setattr(tqdm, "get_lock", interrupt)
    with contextlib.suppress(KeyboardInterrupt):
        IBCB(**NAMED).fit(log)
        pytest.fail("nothing was interrupted")
    gc.collect()
    assert said == []


def test_asking_computes_nothing_that_an_interruption_could_spoil(log, sets):
    """No answer changes the model: whatever is interrupted while it is asked, it stays what it was."""
    for params in (NAMED, AUTO, {"expert": "other"}):
        model = IBCB(**params).fit(log)
        before, told = copy.deepcopy(vars(model)), answers(model, sets)
        places = ("tracking.certainty", "tracking.interval", "tracking.identified", "estimators.answers.policy_ahead")
        for name in places:
            with pytest.MonkeyPatch.context() as patch:

                def stop(*args, **kwargs):
                    raise KeyboardInterrupt

                patch.setattr(f"ibcb.{name}", stop)
                with contextlib.suppress(KeyboardInterrupt):
                    answers(model, sets)
                    model.direction(model.coef_)
        assert_same(vars(model), before)
        assert_same(answers(model, sets), told)


def test_another_log_in_the_second_pass_is_noticed(log, monkeypatch):
    from ibcb.estimators import fitting

    replay, passes = fitting.replay, []

    def changing(logs, *subscribers, **how):
        passes.append(1)
        return replay(logs if len(passes) == 1 else [flipped(log, 2, 7)], *subscribers, **how)

    monkeypatch.setattr(fitting, "replay", changing)
    with pytest.raises(ibcb.LogFormatError, match="the log changed while it was fitted.*Fit it again"):
        IBCB(expert="auto").fit(log)


# -- errors of the tracker -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("singular"), OverflowError("too large")])
@pytest.mark.parametrize("after", [0, 2, 4])
@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_where_numbers_cannot_hold_the_track_coef_predicts(monkeypatch, log, sets, expert, error, after, tmp_path):
    plain = IBCB(expert=expert, l2=0.3, forecast=None).fit(log)
    real = Track.after

    def fails(track, episode):
        if episode.before.stored == after:
            raise error
        return real(track, episode)

    with monkeypatch.context() as patch:
        patch.setattr(Track, "after", fails)
        model = IBCB(expert=expert, l2=0.3).fit(log)
    check_is_fitted(model)
    (note,) = (note for note in model.notes_ if note.code == "not-tracked")
    assert note.figures["episode"] == after
    assert str(error) in str(note)
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(plain, name), strict=True)
        assert np.isfinite(getattr(model, name)).all()
    np.testing.assert_array_equal(model.predict(sets), plain.predict(sets))
    assert model.forecast_model_ is None
    for ask in (model.forecast, model.policy_interval, lambda: model.certainty(sets)):
        with pytest.raises(ValueError, match="there is nothing to go by.*could not be tracked"):
            ask()
    # It can be stored, and goes on without a track.
    ibcb.save_model(model, tmp_path / "m.safetensors")
    assert ibcb.load_model(tmp_path / "m.safetensors").notes_ == model.notes_
    more = small_run(expert, seed=1, **SIZE).log[2]
    if model.solver_ == "hard":
        more = log[3]
    assert [note.code for note in model.partial_fit(more).notes_].count("not-tracked") == 1


def test_a_later_episode_that_cannot_be_tracked_leaves_a_model_that_predicts(monkeypatch, log, sets):
    model = IBCB(**NAMED).fit(log[:3])
    with monkeypatch.context() as patch:
        replaced(patch, "tracker", np.linalg.LinAlgError("singular"), 0)
        model.partial_fit(log[3])
    assert "not-tracked" in [note.code for note in model.notes_]
    np.testing.assert_array_equal(model.coef_, IBCB(**NAMED, forecast=None).fit(log).coef_)
    assert np.isfinite(model.decision_function(sets)).all()


@pytest.mark.parametrize("place", ["tracker", "kind observes", "motion", "exact solver", "publishing"])
@pytest.mark.parametrize(
    "error", [RuntimeError("disk on fire"), ValueError("odd"), MemoryError("full"), AttributeError("no such thing")]
)
def test_any_other_error_is_that_error(monkeypatch, log, place, error):
    model = IBCB(**NAMED)
    with monkeypatch.context() as patch:
        replaced(patch, place, error, 0)
        with pytest.raises(type(error)) as caught:
            model.fit(log)
    assert caught.value is error
    assert not isinstance(caught.value, NotFittedError)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)


def test_an_error_while_a_kind_is_chosen_counts_against_that_kind_alone(monkeypatch, log, sets):
    """Numbers that cannot be held are that kind's fault; any other error is raised."""
    with monkeypatch.context() as patch:
        replaced(patch, "kind observes", np.linalg.LinAlgError("singular"), 0)
        model = IBCB(**AUTO).fit(log)
    assert model.expert_ != "sbucb"
    assert np.isfinite(model.decision_function(sets)).all()
    with monkeypatch.context() as patch:
        replaced(patch, "kind observes", RuntimeError("disk on fire"), 0)
        with pytest.raises(RuntimeError, match="disk on fire"):
            IBCB(**AUTO).fit(log)


def test_a_named_kind_that_cannot_be_tracked_at_all_says_so(monkeypatch, log):
    with monkeypatch.context() as patch:
        replaced(patch, "logit observes", np.linalg.LinAlgError("singular"), 0)
        model = IBCB(expert="other")
        with pytest.raises(ValueError, match="cannot be tracked as those of other.*Rescale"):
            model.fit(log)
    assert not hasattr(model, "coef_")
