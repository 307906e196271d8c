"""One estimate: whatever a model says of a policy or of rewards is the same number, stored and loaded too.

And only what choices determine is shown as known: groups, shared, constant and doubled features.
"""

import functools

import numpy as np
import pytest
from conftest import asked_for, ragged_log, slow, small_run
from numpy.testing import assert_allclose, assert_array_equal
from replayed import tracked
from same import assert_same_model

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.deciders import KINDS
from ibcb.tracking import rewards

SIZE = {"n_episodes": 5, "batch_size": 80}
EXPERTS = [*KINDS, "auto"]


def log_of(expert, ragged=False):
    if ragged:
        return ragged_log(np.random.default_rng(4), d=4, steps=60)
    how = {"topk": {"top_k": 2}, "sbts-episode": {"draws": "episode"}}.get(expert, {})
    return small_run("sbts" if expert.startswith("sbts") else "sbucb", **SIZE, **how).log


@functools.cache
def fitted(expert, l2="auto", alpha=1.0, forecast="auto", ragged=False):
    return IBCB(**asked_for(expert), l2=l2, alpha=alpha, forecast=forecast).fit(log_of(expert, ragged))


def again(model, tmp_path):
    ibcb.save_model(model, tmp_path / "m.safetensors")
    return ibcb.load_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize("expert", EXPERTS)
@pytest.mark.parametrize(("l2", "alpha"), [(0.3, 0.4), ("auto", 1.0), slow(0.3, 1.0), slow("auto", 0.4)])
def test_every_way_of_asking_has_the_same_answer(expert, l2, alpha, tmp_path):
    model = fitted(expert, l2, alpha)
    for each in (model, again(model, tmp_path)):
        for name in ("coef_", "intercept_", "policy_coefs_", "next_policy_coef_"):
            assert_array_equal(getattr(each, name), getattr(model, name))
        N = len(each.policy_coefs_)
        for n in range(N):
            assert_array_equal(each.policy_at(n), each.policy_coefs_[n])
        assert_array_equal(each.forecast(0), each.policy_coefs_[-1])
        assert_array_equal(each.forecast(1), each.next_policy_coef_)
        assert_array_equal(each.policy_at(N), each.next_policy_coef_)
        assert_array_equal(each.policy_at(N + 2), each.forecast(3))
        for level in (0.5, 0.9):
            found = each.policy_interval(level)
            assert_array_equal(found.estimate, each.policy_coefs_[-1])
            assert (found.lower <= found.estimate).all()
            assert (found.estimate <= found.upper).all()
        assert_allclose(
            each.policy_interval(direction=True).estimate, each.direction(each.policy_coefs_[-1]), rtol=1e-9, atol=1e-12
        )
        sets = np.random.default_rng(0).normal(size=(50, 5, 4))
        assert_array_equal(each.predict(sets), (sets @ each.next_policy_coef_).argmax(axis=1))
        if each.decider_.learns:
            found = each.reward_interval()
            assert_array_equal(found.estimate, np.append(each.coef_, each.intercept_))
        else:
            assert_array_equal(each.coef_, each.next_policy_coef_)
            assert each.intercept_ == 0.0
        assert_array_equal(each.policy_interval().lower, model.policy_interval().lower)


@pytest.mark.parametrize("expert", [name for name, kind in KINDS.items() if kind.learns])
def test_the_track_is_that_estimate(expert):
    """Per unit of alpha, with nothing added."""
    model = fitted(expert, 0.3, 0.4)
    track = tracked(log_of(expert), KINDS[expert](l2=0.3))
    assert_allclose(model.policy_coefs_, 0.4 * track.policies, rtol=1e-12)
    assert_allclose(model.next_policy_coef_, 0.4 * track.next_policy, rtol=1e-12)
    assert_allclose(model.coef_, 0.4 * rewards(track).theta, rtol=1e-12)
    assert model.intercept_ == pytest.approx(0.4 * rewards(track).c, rel=1e-12)


@pytest.mark.parametrize("expert", [name for name, kind in KINDS.items() if kind.learns])
def test_without_a_forecast_all_weights_are_those_of_algorithm_2(expert):
    model = fitted(expert, 0.3, forecast=None)
    S = (log := log_of(expert)).contexts[log.chosen_rows]
    shrunk = np.linalg.solve(S.T @ S + 0.3 * np.eye(4), S.T @ S @ model.coef_)
    assert_allclose(model.next_policy_coef_, shrunk, rtol=1e-9)
    assert model.intercept_ == 0.0
    assert model.forecast_model_ is None
    for n, policy in enumerate(model.policy_coefs_):
        assert_array_equal(model.policy_at(n), policy)
    for ask in (model.forecast, model.policy_interval, model.reward_interval):
        with pytest.raises(ValueError, match="forecast=None"):
            ask()
    # What Algorithm 2 has to say stays a statement beside the one estimate.
    assert fitted(expert, 0.3).diagnostics_ == model.diagnostics_
    assert fitted(expert, 0.3).solver_ == model.solver_
    assert not np.allclose(fitted(expert, 0.3).coef_, model.coef_, rtol=0.1)


@pytest.mark.parametrize("expert", ["topk", "stationary", "other"])
def test_a_decider_that_is_only_tracked_has_one_estimate_without_a_forecast_too(expert):
    assert_same_model(fitted(expert), fitted(expert, forecast=None))


def test_directions_have_the_length_at_which_scores_of_a_step_have_deviation_1():
    for ragged in (False, True):
        model = fitted("sbucb", ragged=ragged)
        first = next(episode for by_policy, episode in log_of("sbucb", ragged).episodes() if by_policy)
        sets = [first.candidates(t) for t in range(first.n_steps)]
        centred = np.vstack([each - each.mean(axis=0) for each in sets])
        for weights in (model.coef_, model.next_policy_coef_, np.array([1.0, 0.0, -2.0, 0.3])):
            found = model.direction(weights)
            assert np.sqrt(np.mean((centred @ found) ** 2)) == pytest.approx(1.0)
            assert_allclose(found / np.linalg.norm(found), weights / np.linalg.norm(weights), atol=1e-9)
        assert_array_equal(model.direction(np.zeros((2, 4))), np.zeros((2, 4)))


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_ol_fitness_replays_rewards_with_their_intercept(expert):
    run = small_run(expert, **SIZE)
    model = fitted(expert, 0.3, 0.4)
    own = run.log.chosen[run.log.policy_steps]
    assert model.intercept_ != 0.0
    assert ibcb.metrics.ol_fitness(model, run) == np.mean(run.replay(model.coef_, model.intercept_) == own)
    blind = fitted(expert, 0.3, 0.4, None)
    assert ibcb.metrics.ol_fitness(blind, run) == np.mean(run.replay(blind.coef_) == own)


# -- only what choices determine -------------------------------------------------------------------------------------

#: of a log: a one-hot group, what all candidates share, a constant, a feature twice, and one alone
NAMES = ("kind=a", "kind=b", "kind=c", "user", "constant", "price", "twin", "other")
TRUTH = np.array([1.0, 0.0, -0.5, 0.3, 0.7, -0.8, -0.8, 0.5])


def tangled(expert, seed=0, steps=150, episodes=6):
    rng = np.random.default_rng(seed)
    d, alpha = len(NAMES), 0.4
    live = {"sbts": lambda: ibcb.SBTS(d, alpha=alpha, l2=1.0, random_state=seed)}.get(
        expert, lambda: ibcb.SBUCB(d, alpha=alpha, l2=1.0)
    )()
    pairs = []
    for number in range(episodes + 1):
        X = np.empty((steps, 5, d))
        X[:, :, :3] = np.eye(3)[rng.integers(3, size=(steps, 5))]
        X[:, :, 3] = rng.normal(size=(steps, 1))
        X[:, :, 4] = 2.0
        X[:, :, 5] = X[:, :, 6] = rng.normal(size=(steps, 5))
        X[:, :, 7] = rng.normal(size=(steps, 5))
        if expert in ("sbucb", "sbts", "sbts-episode", "auto"):
            chosen = rng.integers(5, size=steps) if number == 0 else live.act(X)
        elif expert == "egreedy":
            random = rng.random(steps) < 0.1
            chosen = np.where(random, rng.integers(5, size=steps), (X @ TRUTH).argmax(axis=1))
        else:
            chosen = (2 * X @ TRUTH + rng.gumbel(size=(steps, 5))).argmax(axis=1)
        S = X[np.arange(steps), chosen]
        live.update(S, S @ TRUTH)
        pairs.append((X, chosen))
    return BehaviorLog.from_episodes(pairs, warmup=1, feature_names=NAMES)


@functools.cache
def untangled(expert, l2="auto"):
    return IBCB(**asked_for(expert), l2=l2, top_k=2).fit(tangled(expert))


@pytest.mark.parametrize("expert", EXPERTS)
@pytest.mark.parametrize("l2", [1.0, "auto"])
def test_what_choices_do_not_determine_is_named_and_not_shown(expert, l2):
    model = untangled(expert, l2)
    track = model._fit.track
    assert set(model.unidentified_features_) == set(NAMES) - {"other"}
    told = track.seen.information.diagonal()
    for weights in (model.coef_, model.next_policy_coef_, *model.policy_coefs_, model.forecast(3)):
        size = np.abs(weights).max()
        # Shared by all candidates of a step, or of all steps: nothing.
        assert_allclose(weights[[3, 4]], 0.0, atol=1e-9 * size)
        # Against the group's mean, each weighed by what was told of it.
        assert told[:3] @ weights[:3] == pytest.approx(0.0, abs=1e-5 * size * told[:3].sum())
        # One of two that are alike has half of both.
        assert weights[5] == pytest.approx(weights[6], abs=1e-5 * size)
    intervals = [model.policy_interval(), model.policy_interval(direction=True)]
    intervals += [model.reward_interval()] if model.decider_.learns else []
    for found in intervals:
        assert np.isfinite(found.estimate).all()
        assert (found.lower[:7] == -np.inf).all()
        assert (found.upper[:7] == np.inf).all()
        assert np.isfinite([found.lower[7:], found.upper[7:]]).all()


@pytest.mark.parametrize("expert", EXPERTS)
def test_no_sign_is_wrong_all_the_same(expert):
    """Contrasts of the group, both twins, and the feature that is alone, as the decider has them."""
    p = untangled(expert).next_policy_coef_
    assert p[0] > p[1] > p[2]
    assert p[5] < 0
    assert p[6] < 0
    assert p[7] > 0
    contrasts = np.array([p[0] - p[1], p[1] - p[2], p[5] + p[6], p[7]])
    truth = np.array([1.0, 0.5, -1.6, 0.5])
    assert contrasts @ truth > 0.97 * np.linalg.norm(contrasts) * np.linalg.norm(truth)


@pytest.mark.parametrize("expert", EXPERTS)
def test_what_is_not_shown_makes_no_choice(expert):
    """Predictions are those of the policy believed, its hidden part included."""
    model, track = untangled(expert), untangled(expert)._fit.track
    log = tangled(expert)
    scores = (log.contexts @ track.next_policy).reshape(-1, 5)
    lead = np.sort(scores, axis=1)[:, -1] - np.sort(scores, axis=1)[:, -2]
    clear = lead > 1e-6 * np.abs(scores).max()
    assert clear.mean() > 0.95
    assert_array_equal(model.predict(log)[clear], scores.argmax(axis=1)[clear])


@pytest.mark.parametrize("expert", EXPERTS)
def test_fewer_steps_than_features_give_finite_weights_and_are_said(expert):
    rng = np.random.default_rng(3)
    theta = rng.normal(size=12)
    episodes = [(X := rng.normal(size=(3, 4, 12)), (X @ theta).argmax(axis=1)) for _ in range(3)]
    model = IBCB(**asked_for(expert)).fit(BehaviorLog.from_episodes(episodes, warmup=1))
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        assert np.isfinite(getattr(model, name)).all()
    assert np.isfinite(model.policy_interval().estimate).all()
    (note,) = (note for note in model.notes_ if note.code == "few-steps")
    assert note.figures == {"steps": 6, "features": 12}
