"""Numbers far from 1: the same answer in other units, or an error that names the feature."""

import functools
import re
from itertools import product

import numpy as np
import pytest
from conftest import slow, small_run
from numpy.testing import assert_array_equal

import ibcb
from ibcb import IBCB, BaseSVC, BehaviorLog, ChoiceModel, LogFormatError, SolverError
from ibcb.estimators.remarks import largest_outlier
from ibcb.numerics.contexts import LARGEST, SMALLEST

#: powers of two change no digit; about 1e135 and 1e-100
POWERS = [2.0**450, 2.0**-332]
NAMES = ["price", "age", "stars", "clicks"]
SIZE = {"n_episodes": 4, "batch_size": 50, "warmup": 60, "n_candidates": 4}


def in_units(log, factors):
    return log.with_contexts(log.contexts * factors, NAMES)


def spoilt(value, *, chosen=False):
    """One number of a candidate of episode 1 is another."""
    log = small_run(**SIZE).log
    step = int(log.episode_offsets[2]) + 3
    candidate = int(log.chosen[step]) if chosen else (int(log.chosen[step]) + 1) % 4
    contexts = log.contexts.copy()
    contexts[log.step_offsets[step] + candidate, 1] = value
    return log.with_contexts(contexts, NAMES), f"episode 1, step 3, candidate {candidate}: feature 'age' is {value}; "


def fitted(model, log):
    """The model, or None and why it was refused."""
    try:
        return model.fit(log), ""
    except (ValueError, SolverError) as error:
        return None, str(error)


@functools.cache
def plain(expert):
    return IBCB(expert=expert).fit(in_units(small_run(**SIZE).log, np.ones(4)))


@pytest.mark.parametrize("factor", POWERS)
@pytest.mark.parametrize("expert", ["sbucb", "sbts", "softmax"])
def test_units_do_not_matter_however_far_from_one(expert, factor):
    log, own = small_run(**SIZE).log, plain(expert)
    for factors in (np.full(4, factor), np.array([1.0, factor, 1.0, 1 / factor])):
        rescaled = in_units(log, factors)
        model = IBCB(expert=expert).fit(rescaled)
        np.testing.assert_allclose(model.next_policy_coef_ * factors, own.next_policy_coef_, rtol=1e-6)
        np.testing.assert_allclose(model.policy_coefs_ * factors, own.policy_coefs_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.forecast(3) * factors, own.forecast(3), rtol=1e-4)
        assert (model.expert_, model.l2_, model.units_) == (own.expert_, own.l2_, own.units_)
        assert_array_equal(model.predict(rescaled), own.predict(log))
        np.testing.assert_allclose(model.certainty(rescaled), own.certainty(log), atol=0.005)
        np.testing.assert_allclose(model.propensities(rescaled), own.propensities(log), atol=1e-6)


@pytest.mark.parametrize("factor", POWERS)
def test_what_is_found_in_a_log_does_not_depend_on_its_unit(factor):
    log = small_run(**SIZE).log
    found, own = (ibcb.validate(in_units(log, unit * np.ones(4))) for unit in (factor, 1.0))
    assert [finding.code for finding in found.findings] == [finding.code for finding in own.findings]


@pytest.mark.parametrize("value", [1e155, -1e300, 1e308])
@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("make", [IBCB, lambda: IBCB(forecast=None, solver="robust"), ChoiceModel, BaseSVC])
def test_a_number_too_large_to_square_is_refused_by_its_place(make, value, chosen):
    log, place = spoilt(value, chosen=chosen)
    with pytest.raises(LogFormatError, match=re.escape(place) + f".*{LARGEST:g}.*Rescale it".replace("+", r"\+")):
        make().fit(log)


def test_the_same_is_said_of_a_log_on_disk(tmp_path):
    log, _ = spoilt(1e155)
    for name in ("log.npz", "log.parquet", "log.csv"):
        ibcb.write_log(log, tmp_path / name)
        stored = ibcb.open_log(tmp_path / name)
        with pytest.raises(LogFormatError) as whole:
            IBCB().fit(log)
        with pytest.raises(LogFormatError) as streamed:
            IBCB().fit(stored)
        assert str(streamed.value) == str(whole.value)


@pytest.mark.parametrize("factor", [1e-155, 1e-200, 1e-300])
def test_a_feature_too_small_to_square_is_refused_by_its_name(tmp_path, factor):
    log = in_units(small_run(**SIZE).log, np.array([1.0, 1.0, factor, 1.0]))
    ibcb.write_log(log, tmp_path / "log.npz")
    for given in (log, ibcb.open_log(tmp_path / "log.npz")):
        with pytest.raises(ValueError, match=rf"feature 'stars' is .*{SMALLEST:g} vanish. Rescale it"):
            IBCB().fit(given)


def test_behaviour_cloning_ends_on_any_log():
    """Beyond this liblinear never ended."""
    log = small_run(**SIZE).log
    assert np.isfinite(BaseSVC().fit(in_units(log, np.full(4, 1e50))).coef_).all()
    for far in (1e90, 1e130):
        with pytest.raises(LogFormatError, match=r"feature 'price' is .*Rescale it to about 1"):
            BaseSVC().fit(in_units(log, np.full(4, far)))
    assert np.isfinite(BaseSVC().fit(in_units(log, np.full(4, 1e-130))).coef_).all()


@pytest.mark.parametrize("solver", ["auto", "hard", "soft", "robust", "paper"])
@pytest.mark.parametrize("value", [1e20, slow(1e80), 1e139])
def test_solved_means_proved(solver, value):
    """One number that is far larger than the rest: a solution has finite residuals, or it is none."""
    log, _ = spoilt(value)
    model, message = fitted(IBCB(solver=solver, forecast=None), log)
    if model is None:
        assert re.search(r"Rescale the contexts|robust", message)
        return
    for entry in model.diagnostics_:
        assert np.isfinite([entry.max_violation, entry.gap]).all()
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("given", [{"alpha": 1e308}, {"l2": 1e308}, {"alpha": 5e-324}, {"l2": 5e-324}])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_parameters_that_leave_the_range_are_refused(given, noise):
    ((name, value),) = given.items()
    model, message = fitted(IBCB(**given), small_run(**SIZE, noise=noise).log)
    if model is None:
        assert re.search(rf"{name}(=| is ){value:g}".replace("+", r"\+"), message)
        return
    for name in ("coef_", "intercept_", "policy_coefs_", "next_policy_coef_"):
        assert np.isfinite(getattr(model, name)).all()


def test_candidates_beyond_the_range_are_refused():
    model, sets = plain("sbucb"), small_run(**SIZE).log.contexts[:8].reshape(2, 4, 4)
    for take in (model.certainty, model.propensities):
        with pytest.raises(ValueError, match="Rescale"):
            take(sets * 1e200)
    for take in (model.predict, model.decision_function):
        with pytest.raises(ValueError, match="features reach .*Rescale"):
            take(sets * 1e308)


@pytest.mark.parametrize("power", [-900, -300, 300, 900])
def test_a_direction_does_not_depend_on_the_length_of_weights(power):
    model = plain("sbucb")
    weights = model.policy_coefs_[-2:]
    assert_array_equal(model.direction(np.ldexp(weights, power)), model.direction(weights))


# -- one number that is far from all others --------------------------------------------------------------------------


def with_an_outlier(value, *, ones, chosen, episode=2, seed=0):
    """Three episodes; at step 7 of one of them the feature "cost" of a candidate is what it is nowhere else."""
    rng = np.random.default_rng(seed)
    theta, episodes = rng.normal(size=4), []
    for number in range(3):
        X = rng.normal(size=(40, 5, 4))
        if ones:
            X[..., 1] = 1.0
        picks = (X @ theta).argmax(axis=1)
        place = int(picks[7] if chosen else (picks[7] + 1) % 5)
        if number == episode:
            X[7, place, 1], there = value, place
        episodes.append((X, picks))
    return BehaviorLog.from_episodes(episodes, feature_names=["a", "cost", "c", "d"]), there


@pytest.mark.filterwarnings("ignore:the (log seems to start|choices of the first episode)")
@pytest.mark.parametrize(
    ("expert", "ones", "chosen"),
    [
        *product(["sbucb", "choice model"], [True, False], [True, False]),
        *product(["softmax", "stationary", "other"], [True], [False]),
        *product(["softmax", "stationary", "other"], [False], [True]),
        *(slow(expert, same, same) for expert in ("softmax", "stationary", "other") for same in (True, False)),
    ],
)
def test_one_number_far_from_all_others_is_borne_or_named(tmp_path, expert, ones, chosen):
    for power in (12, 40, 139):
        for episode in (0, 2):
            log, place = with_an_outlier(10.0**power, ones=ones, chosen=chosen, episode=episode, seed=power)
            model = ChoiceModel(episodes=None) if expert == "choice model" else IBCB(expert=expert)
            try:
                model.fit(log)
            except (ValueError, SolverError) as error:
                named = f"episode {episode}, step 7, candidate {place}: feature 'cost' is 1e+{power:02d}, but about "
                assert named in str(error)  # noqa: PT017
                assert str(error).endswith("elsewhere. Correct it, or leave the step out.")  # noqa: PT017
                if expert != "choice model":
                    ibcb.write_log(log, tmp_path / "log.parquet")
                    with pytest.raises(type(error), match=re.escape(named)):
                        IBCB(expert=expert).fit(ibcb.open_log(tmp_path / "log.parquet"))
            else:
                assert np.isfinite(model.coef_).all()
                assert np.isfinite(np.asarray(model.decision_function(log))).all()


def test_an_outlier_among_sparse_contexts_is_found():
    """Arms that show now and then: its size is held against where its feature is not 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 30, 2))
    X[1, 11, 1] = -1e60
    log = BehaviorLog.from_arms([(x, rng.integers(4, size=30)) for x in X], n_arms=4)
    told = largest_outlier([log])
    assert "episode 1, step 11, candidate " in told
    assert " is -1e+60, but about 0." in told
    assert largest_outlier([log[:1]]) == ""
