"""The recovered decider as a live policy: it chooses as the decider did, and learns on."""

import numpy as np
import pytest
from conftest import paper_run, small_run
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

import ibcb
from ibcb import IBCB
from ibcb.paper.environments import Phase


def chosen_contexts(log):
    return log.contexts[log.chosen_rows]


@pytest.fixture(scope="module")
def model():
    return IBCB(alpha=0.4, l2=0.3).fit(small_run().log)


def test_the_state_is_that_of_the_decider_after_the_log(model):
    log, policy = small_run().log, model.to_policy()
    S = chosen_contexts(log)
    assert isinstance(policy, ibcb.SBUCB)
    np.testing.assert_allclose(policy.gram_, S.T @ S, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(policy.gram_, small_run().expert.gram_, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(policy.coef_, model.next_policy_coef_, rtol=1e-9)
    assert (policy.alpha, policy.l2, policy.n_features) == (0.4, 0.3, 4)


@pytest.mark.parametrize("scale", [1.0, 0.01, 30.0])
def test_it_takes_the_largest_bound_whatever_the_scale(model, rng, scale):
    S = chosen_contexts(small_run().log)
    psi_inverse = np.linalg.inv(0.3 * np.eye(4) + S.T @ S)
    policy = model.to_policy(scale=scale)
    assert policy.alpha == pytest.approx(0.4 * scale)
    for candidates in rng.normal(size=(200, 6, 4)):
        bounds = [s @ model.next_policy_coef_ + 0.4 * np.sqrt(s @ psi_inverse @ s) for s in candidates]
        assert policy.act(candidates) == int(np.argmax(bounds))


@pytest.mark.parametrize("rate", [1.0, 0.25])
@pytest.mark.parametrize("expert", ["sbucb", "sbts", "egreedy", "softmax", "topk", "stationary", "other"])
def test_it_draws_as_the_model_says_whatever_the_unit_of_the_rewards(expert, rate):
    sizes = {"n_episodes": 4, "batch_size": 100, "n_candidates": 5, "n_features": 4, "warmup": 100}
    run = ibcb.simulate("synthetic", expert=expert, noise=0.03, seed=3, **sizes)
    known = {"top_k": 2} if expert == "topk" else {}
    model = IBCB(expert=expert, alpha=0.5, l2=0.3, sampling_rate=rate, **known).fit(run.log)
    candidates = run.test_log.contexts.reshape(-1, 5, 4)[:100]
    told = model.propensities(candidates)
    plain, scaled = (model.to_policy(scale=s, random_state=0).propensities(candidates) for s in (1.0, 20.0))
    np.testing.assert_allclose(scaled, plain, atol=1e-6)
    assert np.abs(plain - told).sum(axis=1).mean() / 2 < 0.03


def test_it_chooses_as_the_decider_itself_would_next():
    run = paper_run()
    policy = IBCB(alpha=0.4, l2=0.3).fit(run.log).to_policy()
    candidates = run.test_log.contexts.reshape(-1, 10, 10)
    assert np.mean(policy.act(candidates) == run.expert.act(candidates)) > 0.98


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_learning_on_is_ridge_regression_on_the_expected_rewards_and_the_new_ones(model, rng, scale):
    """The log's choices enter as if each had earned scale * <coef_, s>."""
    before = chosen_contexts(small_run().log)
    new, rewards = rng.normal(size=(50, 4)), rng.normal(size=50)
    model = clone(model).set_params(forecast=None).fit(small_run().log)
    policy = model.to_policy(scale=scale)
    policy.update(new[:20], rewards[:20])
    policy.update(new[20:], rewards[20:])
    S, R = np.vstack([before, new]), np.concatenate([scale * before @ model.coef_, rewards])
    expected = Ridge(alpha=0.3, fit_intercept=False).fit(S, R)
    np.testing.assert_allclose(policy.coef_, expected.coef_, rtol=1e-8)
    np.testing.assert_allclose(policy.gram_, S.T @ S, rtol=1e-12, atol=1e-9)


def test_learning_on_leaves_the_model_alone(model, rng):
    coef, first = model.coef_.copy(), model.to_policy()
    first.update(rng.normal(size=(30, 4)), rng.normal(size=30))
    second = model.to_policy()
    np.testing.assert_array_equal(model.coef_, coef)
    np.testing.assert_allclose(second.coef_, model.next_policy_coef_, rtol=1e-9)
    assert not np.allclose(first.coef_, second.coef_)


def test_what_happened_before_the_log_is_kept(rng):
    log = small_run().log
    S = chosen_contexts(log[:3])
    model = IBCB(l2=0.3, prior_gram=S.T @ S).fit(log[3:])
    everything = chosen_contexts(log)
    np.testing.assert_allclose(model.to_policy().gram_, everything.T @ everything, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(model.to_policy().coef_, model.next_policy_coef_, rtol=1e-9)


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_a_loaded_model_gives_the_same_policy(tmp_path, rng, expert):
    fitted = IBCB(expert=expert, l2=0.3).fit(small_run(expert).log)
    ibcb.save_model(fitted, tmp_path / "m.safetensors")
    loaded = ibcb.load_model(tmp_path / "m.safetensors")
    one, other = (each.to_policy(alpha=0.5, scale=2.0, random_state=7) for each in (fitted, loaded))
    np.testing.assert_array_equal(one.gram_, other.gram_)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    batch = rng.normal(size=(60, 5, 4))
    np.testing.assert_array_equal(one.act(batch), other.act(batch))


def test_settings_changed_after_the_fit_do_not_change_the_policy(rng):
    fitted = IBCB(alpha=0.4, l2=0.3).fit(small_run().log)
    fitted.set_params(alpha=9.0, l2=70.0, expert="sbts")
    policy = fitted.to_policy()
    assert isinstance(policy, ibcb.SBUCB)
    assert (policy.alpha, policy.l2) == (0.4, 0.3)


def test_a_thompson_sampler_draws_around_the_recovered_policy():
    model = IBCB(expert="sbts", l2=0.3).fit(small_run("sbts").log)
    S = chosen_contexts(small_run("sbts").log)
    policy = model.to_policy(alpha=0.2, scale=3.0, random_state=0)
    assert isinstance(policy, ibcb.SBTS)
    np.testing.assert_allclose(policy.coef_, 3 * model.next_policy_coef_, rtol=1e-9)
    # The scores of the unit vectors are the draws themselves.
    draws = policy.scores(np.broadcast_to(np.eye(4), (40_000, 4, 4)))
    covariance = 0.04 * np.linalg.inv(0.3 * np.eye(4) + S.T @ S)
    spread = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((draws.mean(axis=0) - policy.coef_) / spread, 0, atol=5 / np.sqrt(40_000))
    np.testing.assert_allclose(
        np.cov(draws.T) / np.outer(spread, spread), covariance / np.outer(spread, spread), atol=0.05
    )
    steady = model.to_policy(alpha=0.2, draws="episode", random_state=0)
    assert len({steady.act(np.eye(4)) for _ in range(20)}) == 1


def test_the_exploration_of_a_thompson_sampler_is_a_guess_unless_given():
    model = IBCB(expert="sbts", l2=0.3, alpha=0.7).fit(small_run("sbts").log)
    assert model.to_policy().alpha == 0.7
    assert model.to_policy(scale=3.0).alpha == pytest.approx(2.1)
    assert model.to_policy(alpha=0.4, scale=3.0).alpha == 0.4


def earned(policy, phase, batch_size):
    """Mean reward of a policy that acts on the steps of a phase and learns after every batch."""
    total = 0.0
    for first in range(0, len(phase.contexts), batch_size):
        batch = slice(first, first + batch_size)
        contexts = phase.contexts[batch]
        picks = policy.act(contexts)
        rewards = phase.rewards(picks, batch)
        total += rewards.sum()
        policy.update(contexts[np.arange(len(picks)), picks], rewards)
    return total / len(phase.contexts)


def test_a_warm_start_earns_more_than_a_cold_one():
    """Over the next episodes of the same world: the log tells what to take, though it holds no reward."""
    gains = []
    for seed in range(5):
        run = ibcb.simulate("synthetic", noise=0.03, n_episodes=6, batch_size=200, seed=seed)
        warm = IBCB(alpha=0.4, l2=0.3).fit(run.log).to_policy()
        cold = ibcb.SBUCB(10, alpha=0.4, l2=0.3)
        gains.append(earned(warm, run.world.test, 200) - earned(cold, run.world.test, 200))
    assert min(gains) > 0
    assert np.mean(gains) > 0.2


def linear_world(steps, theta, rng):
    contexts = rng.normal(size=(steps, 8, len(theta)))
    return Phase(contexts, contexts @ theta, 0.5 * rng.normal(size=steps))


def expert_of(kind, seed):
    if kind == "sbucb":
        return ibcb.SBUCB(6, alpha=0.5, l2=0.3)
    return ibcb.SBTS(6, alpha=0.5, l2=0.3, random_state=seed)


@pytest.mark.parametrize("forecast", ["auto", None])
@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
def test_a_few_rewards_tell_the_length_of_the_decider_s_policy(kind, forecast):
    rng, decider, episodes = np.random.default_rng(1), expert_of(kind, 1), []
    theta = rng.normal(size=6)
    for _ in range(6):
        past = linear_world(150, theta, rng)
        chosen = decider.act(past.contexts)
        S, R = past.contexts[np.arange(150), chosen], past.rewards(chosen)
        decider.update(S, R)
        episodes.append((past.contexts, chosen))
    model = IBCB(expert=kind, l2=0.3, forecast=forecast).fit(ibcb.BehaviorLog.from_episodes(episodes))
    expected = S @ model.next_policy_coef_
    policy = model.to_policy(scale=expected @ R / (expected @ expected))
    assert np.linalg.norm(policy.coef_) == pytest.approx(np.linalg.norm(decider.coef_), rel=0.03)


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        ({"scale": 0.0}, ValueError, r"scale=0\.0 must be finite and above 0: it is the unit of the rewards"),
        ({"scale": "1"}, TypeError, "scale='1' must be a number"),
        ({"alpha": -1.0}, ValueError, r"alpha=-1\.0"),
        ({"draws": "always"}, ValueError, "draws='always' is unknown"),
    ],
)
def test_wrong_arguments_are_refused(model, wrong, error, words):
    with pytest.raises(error, match=words):
        model.to_policy(**wrong)


def test_an_unfitted_model_has_no_policy():
    with pytest.raises(NotFittedError, match="not fitted"):
        IBCB().to_policy()
