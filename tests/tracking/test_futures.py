"""Forecasts as laws: draws of a decider rolled forward, their intervals, and what is made of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import ibcb
from ibcb.estimators.answers import _FUTURES


@pytest.fixture(scope="module", params=["sbucb", "sbts", "egreedy", "softmax"])
def fitted(request):
    run = ibcb.simulate("synthetic", expert=request.param, n_episodes=5, batch_size=150, n_features=4, seed=3)
    return run, ibcb.IBCB(expert=request.param, l2=0.3).fit(run.log)


@pytest.fixture(scope="module")
def steady():
    """A decider that does not learn."""
    rng = np.random.default_rng(0)
    sets = rng.normal(size=(6, 200, 4, 3))
    chosen = (sets @ [1.0, -2.0, 0.5] + rng.gumbel(scale=0.3, size=(6, 200, 4))).argmax(axis=2)
    return ibcb.BehaviorLog.from_episodes(list(zip(sets, chosen, strict=True)))


@pytest.mark.parametrize("direction", [False, True])
def test_an_interval_holds_the_forecast_and_narrower_levels_lie_within(fitted, direction):
    _, model = fitted
    for updates in (1, 4):
        wide, narrow = (model.forecast_interval(updates, level, direction=direction) for level in (0.9, 0.5))
        forecast = model.forecast(updates)
        assert_allclose(wide.estimate, model.direction(forecast) if direction else forecast, rtol=1e-9)
        assert (wide.lower <= narrow.lower).all()
        assert (narrow.upper <= wide.upper).all()
        assert (narrow.lower <= wide.estimate).all()
        assert (wide.estimate <= narrow.upper).all()
        assert (wide.lower < wide.upper).all()


def test_one_update_ahead_is_the_next_policy(fitted):
    run, model = fitted
    assert_array_equal(model.forecast_interval(1).estimate, model.next_policy_coef_)
    assert_array_equal(model.predict(run.test_log, updates=1), model.predict(run.test_log))
    assert_array_equal(model.certainty(run.test_log, updates=1), model.certainty(run.test_log))


def test_predict_further_on_is_by_the_forecast(fitted):
    run, model = fitted
    sets = run.test_log.contexts.reshape(-1, 10, 4)
    for updates in (0, 3):
        assert_array_equal(model.predict(sets, updates=updates), (sets @ model.forecast(updates)).argmax(axis=1))
    sure = model.certainty(run.test_log, updates=3)
    assert ((sure >= 0) & (sure <= 1)).all()
    # As often as the draws like the one that is picked best.
    picked, scores = model.predict(sets, updates=3), sets @ model.sample(_FUTURES, updates=3).policies.T
    assert_allclose(sure, (scores.argmax(axis=1) == picked[:, None]).mean(axis=1), atol=1e-9)


def test_the_same_seed_gives_the_same_bits_however_the_log_was_learned(fitted, tmp_path):
    run, model = fitted
    ibcb.save_model(model, tmp_path / "m.safetensors")
    again = ibcb.IBCB(expert=model.expert, l2=0.3)
    for episode in run.log:
        again.partial_fit(episode)
    for other in (ibcb.load_model(tmp_path / "m.safetensors"), again):
        assert_array_equal(np.array(other.forecast_interval(3)), np.array(model.forecast_interval(3)))
        assert_array_equal(other.sample(5, updates=2).policies, model.sample(5, updates=2).policies)
    assert (model.sample(5, updates=2, random_state=1).policies != model.sample(5, updates=2).policies).any()


def test_a_sample_is_joint_and_named(fitted):
    _, model = fitted
    sample = model.sample(7, updates=2)
    assert sample.policies.shape == (7, 4)
    assert sample.rewards.shape == (7, 5)
    assert sample.rules == (model.decider_.rule.name,) * 7
    assert len(sample.motions) == 7
    assert {each.partition("(")[0] for each in sample.motions} <= {
        *("walk", "learner", "settling", "restless", "reverting", "still")
    }
    learners = np.array([each.startswith("learner") for each in sample.motions])
    assert_array_equal(np.isfinite(sample.rewards).all(axis=1), learners)


def test_a_sampler_that_draws_once_an_episode_draws_in_every_future():
    run = ibcb.simulate("synthetic", expert="sbts", draws="episode", n_episodes=6, batch_size=300, seed=3)
    model = ibcb.IBCB(expert="sbts", draws="episode", l2=0.3).fit(run.log)
    sample = model.sample(16, updates=4)
    assert np.isfinite(sample.policies).all()
    assert_array_equal(np.isfinite(sample.rewards).all(axis=1), [each.startswith("sampler") for each in sample.motions])
    spread = [np.std(model.direction(model.sample(64, updates=each).policies), axis=0).mean() for each in (1, 4)]
    assert min(spread) > 0


def test_draws_are_rolled_once_and_forgotten_with_the_fit(fitted, monkeypatch):
    run, model = fitted
    model.forecast_interval(2)
    monkeypatch.setattr("ibcb.tracking.futures", None)
    model.forecast_interval(2, 0.5)
    monkeypatch.undo()
    one = ibcb.IBCB(expert=model.expert, l2=0.3).fit(run.log)
    one.forecast_interval(2)
    assert "_futures" in vars(one)
    assert "_futures" not in one.__getstate__()
    assert "_futures" not in vars(one.fit(run.log))


def test_a_policy_that_stays_is_as_sure_further_on_and_one_that_walks_less(steady):
    still = ibcb.IBCB(expert="stationary").fit(steady)
    one, later = (still.sample(4, updates=updates) for updates in (1, 50))
    assert_array_equal(one.policies, later.policies)
    assert np.isnan(one.rewards).all()
    assert set(one.motions) == {"still"}
    other = ibcb.IBCB(expert="other").fit(steady)
    near, far = (other.forecast_interval(updates) for updates in (1, 200))
    assert_array_equal(near.estimate, far.estimate)
    if "still" not in other.forecast_model_:
        assert ((far.upper - far.lower) >= (near.upper - near.lower)).all()


def test_many_updates_are_imagined_in_bounded_time(fitted):
    _, model = fitted
    assert np.isfinite(model.sample(2, updates=10_000).policies).all()


def test_what_cannot_be_drawn_is_named_with_its_remedy(fitted):
    run, model = fitted
    with pytest.raises(ValueError, match=r"n=0 must be at least 1: it is a number of draws"):
        model.sample(0)
    for ask in (model.forecast_interval, lambda updates: model.sample(3, updates=updates)):
        with pytest.raises(ValueError, match=r"updates=1000000000 must be at most 10000: .* imagined"):
            ask(updates=10**9)
        with pytest.raises(ValueError, match=r"updates=0 must be at least 1: .* policy_interval\(\)"):
            ask(updates=0)
    for ask in (model.predict, model.certainty):
        with pytest.raises(ValueError, match="updates=1000000000 must be at most 10000"):
            ask(run.test_log, updates=10**9)
        with pytest.raises(TypeError, match="updates=True must be a whole number"):
            ask(run.test_log, updates=True)
    with pytest.raises(ValueError, match="level=1"):
        model.forecast_interval(2, 1.0)
    plain = ibcb.IBCB(expert=model.expert, l2=0.3, forecast=None).fit(run.log)
    for ask in (plain.forecast_interval, lambda: plain.sample(1), lambda: plain.predict(run.test_log, updates=2)):
        with pytest.raises(ValueError, match="forecast='auto'"):
            ask()


def gaussian(expert, seed, updates):
    """A world of normal contexts and linear rewards with noise: a log of 6 episodes, and the policies."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=6)
    policy = (
        ibcb.SBUCB(6, alpha=1.0, l2=1.0) if expert == "sbucb" else ibcb.SBTS(6, alpha=1.0, l2=1.0, random_state=seed)
    )
    episodes, policies = [], []
    for number in range(6 + updates):
        X = rng.normal(size=(200, 5, 6))
        chosen = rng.integers(5, size=200) if number == 0 else policy.act(X)
        policies.append(policy.coef_)
        episodes.append((X, chosen))
        S = X[np.arange(200), chosen]
        policy.update(S, S @ w / np.linalg.norm(w) + 0.3 + rng.normal(size=200))
    return ibcb.BehaviorLog.from_episodes(episodes[:6], warmup=1), np.array(policies)


@pytest.mark.slow
@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
@pytest.mark.parametrize("world", ["gaussian", "synthetic"])
def test_nine_in_ten_intervals_hold_the_policies_to_come(expert, world):
    held = {5: [], 10: []}
    for seed in range(400, 412):
        if world == "gaussian":
            log, policies = gaussian(expert, seed, 10)
            seen = len(log)
        else:
            run = ibcb.simulate("synthetic", expert=expert, noise=0.03, n_episodes=15, batch_size=500, seed=seed)
            log, policies, seen = run.log.head(5 / 15), run.policy_coefs, 5
        model = ibcb.IBCB(expert=expert, l2=1.0 if world == "gaussian" else 0.3).fit(log)
        for updates, each in held.items():
            truth = model.direction(policies[seen - 1 + updates])
            bounds = model.forecast_interval(updates, direction=True)
            each.append((bounds.lower <= truth) & (truth <= bounds.upper))
    for updates, each in held.items():
        assert 0.75 < np.mean(each) <= 1.0, updates
