"""B-ICB: every conditional against its dense form, the sampler against a plain one, the estimator's promises."""

import numpy as np
import plain
import pytest
from conftest import ragged_log, small_run
from scipy.special import logsumexp
from sklearn.base import clone

from ibcb import BehaviorLog
from ibcb.numerics.checks import generator
from ibcb.paper.rivals import BICB, gibbs
from ibcb.paper.rivals.bicb import expectation

B, SIGMA = 1.3, 0.1


def world(rng, T=40):
    """A small problem: steps, beliefs, chosen contexts, candidates, choices and reward parameters."""
    log = small_run().log
    picked = np.sort(rng.choice(np.arange(log.policy_steps.start, log.n_steps), size=T, replace=False))
    contexts, chosen = plain.arrays(log, picked)
    steps = gibbs.GibbsSteps(log, picked, 20.0)
    return steps, gibbs.GibbsBeliefs(steps, B, SIGMA), contexts, chosen, rng.normal(size=4)


# -- the rewards' conditional --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stretch", [256, 40, 7, 1])
def test_the_chain_factors_the_dense_precision(stretch, rng, monkeypatch):
    monkeypatch.setattr(gibbs, "_STRETCH", stretch)
    steps, beliefs, _, _, _ = world(rng)
    T, d = steps.x.shape
    _, covariance = plain.reward_conditional(steps.x, np.zeros((T, d)), np.zeros(d), B)
    found = np.array([beliefs.chain.solve(row) for row in np.eye(T)])
    np.testing.assert_allclose(found[1:, 1:], covariance, atol=1e-12)
    np.testing.assert_array_equal(found[0], 0)
    root = beliefs.chain.colour(np.eye(T))
    np.testing.assert_allclose(root[1:, 1:], np.linalg.cholesky(covariance), atol=1e-12)
    np.testing.assert_array_equal(root[0], 0)


def test_rewards_are_drawn_from_their_dense_conditional(rng):
    """Mean and covariance of the rewards given rho, from one sweep: no draw of rewards, then unit draws of them."""
    steps, beliefs, _, _, reward_coef = world(rng)
    T, d = steps.x.shape
    state = gibbs.init(np.r_[1.0, rng.normal(size=T - 1)], beliefs)
    means = (beliefs.inverse @ state.moments.T[:, :, None])[:, :, 0]
    (block,) = gibbs.draws(rng, 1, T, d)

    def drawn(white):
        (sweep,) = gibbs.prepare(block._replace(rewards=white[:, None]), beliefs, reward_coef)
        after, noise = gibbs.step(state, sweep, beliefs)
        return after.rewards, means + noise.T

    rewards, rho = drawn(np.zeros(T))
    mean, covariance = plain.reward_conditional(steps.x, rho, reward_coef, B)
    assert rewards[0] == 1
    np.testing.assert_allclose(rewards[1:], mean, atol=1e-10)
    root = np.array([drawn(unit)[0] - rewards for unit in np.eye(T)[1:]])[:, 1:]
    np.testing.assert_allclose(root.T @ root, SIGMA**2 * covariance, atol=1e-12)


# -- the draws of rho ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0.1, 5.0, 40.0, 300.0])
def test_second_wins_is_the_metropolis_hastings_test(size, rng):
    scores = size * rng.normal(size=(2, 6, 2_000))
    odds = np.exp(rng.standard_exponential(2_000))
    losses = logsumexp(np.concatenate([np.zeros((2, 1, 2_000)), scores], axis=1), axis=1)
    margin = np.log(odds) - (losses[1] - losses[0])
    clear = np.abs(margin) > 1e-4 * (1 + size)
    wins = gibbs.second_wins(scores.astype("f4"), odds.astype("f4"))
    np.testing.assert_array_equal(wins[clear], margin[clear] > 0)


def test_missing_candidates_never_count(rng):
    log = ragged_log(rng)
    picked = np.arange(log.policy_steps.start, log.n_steps)
    steps = gibbs.GibbsSteps(log, picked, 20.0)
    rho = rng.normal(size=3)
    scores = steps.leads @ rho + steps.missing.T
    for t, step in enumerate(picked):
        all_scores = 20 * log.candidates(step) @ rho
        expected = all_scores[log.chosen[step]] - logsumexp(all_scores)
        assert -np.logaddexp(0, logsumexp(scores[t])) == pytest.approx(expected)


# -- the whole sampler ---------------------------------------------------------------------------------------------


def test_sweeps_are_those_of_the_plain_sampler(rng):
    steps, beliefs, contexts, chosen, reward_coef = world(rng)
    T, d = steps.x.shape
    all_rho, all_rewards = plain.bicb_expectation(contexts, chosen, B, reward_coef, generator(5), 60, 0)
    random = generator(5)
    rewards = beliefs.chain.x @ reward_coef + SIGMA * random.standard_normal(T)
    rewards[0] = 1
    state = gibbs.init(rewards, beliefs)
    found = zip(all_rho, all_rewards, strict=True)
    for block in gibbs.draws(random, 60, T, d):
        for sweep in gibbs.prepare(block, beliefs, reward_coef):
            means = (beliefs.inverse @ state.moments.T[:, :, None])[:, :, 0]
            state, noise = gibbs.step(state, sweep, beliefs)
            rho, rewards = next(found)
            np.testing.assert_allclose(means + noise.T, rho, atol=1e-6)
            np.testing.assert_allclose(state.rewards[1:], rewards, atol=1e-6)


@pytest.mark.parametrize("determinant", [True, False])
def test_the_slope_in_the_prior_weight_against_finite_differences(determinant, rng):
    steps, beliefs, contexts, chosen, reward_coef = world(rng)
    rho, rewards = plain.bicb_expectation(contexts, chosen, B, reward_coef, generator(2), 30, 10)
    h = 1e-5
    up, down = (plain.prior_objective(steps.x, rho, rewards, B + s, determinant=determinant) for s in (h, -h))
    mean_rewards, slope = expectation(
        beliefs, reward_coef, generator(2), n_sweeps=30, n_dropped=10, determinant=determinant
    )
    assert slope == pytest.approx((up - down) / (2 * h), rel=1e-4)
    np.testing.assert_allclose(mean_rewards, rewards.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("pinv", [False, True])
def test_fit_is_the_plain_algorithm(pinv):
    log = small_run("sbts").log
    model = BICB(sample=0.05, n_iterations=4, n_sweeps=30, n_dropped=10, pinv=pinv, random_state=7).fit(log)
    random = generator(7)
    every = np.arange(log.policy_steps.start, log.n_steps)
    picked = np.sort(random.choice(every, size=round(0.05 * len(every)), replace=False))
    np.testing.assert_array_equal(model.steps_, picked)
    coef, b = plain.bicb_fit(*plain.arrays(log, picked), random, 4, 30, 10, determinant=not pinv)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-5)
    assert model.prior_weight_ == pytest.approx(b, rel=1e-5)


# -- the estimator -------------------------------------------------------------------------------------------------

SHORT = {"n_iterations": 2, "n_sweeps": 20, "n_dropped": 10}


def test_the_same_seed_gives_the_same_bits():
    log = small_run().log
    one, two, other = (BICB(sample=0.1, **SHORT, random_state=seed).fit(log).coef_ for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()
    assert np.abs(one).sum() == pytest.approx(1)


def test_the_sample_is_of_the_policys_steps_in_order():
    log = small_run().log
    steps = BICB(sample=0.1, **SHORT, random_state=0).fit(log).steps_
    assert len(steps) == 72
    assert (np.diff(steps) > 0).all()
    assert steps[0] >= log.policy_steps.start
    every = BICB(sample=None, **SHORT, random_state=0).fit(log[:1]).steps_
    np.testing.assert_array_equal(every, np.arange(200, 320))


def test_ragged_logs_and_single_candidates(rng):
    log = ragged_log(rng, warmup=0)
    episodes = [([e.candidates(t) for t in range(e.n_steps)], e.chosen.tolist()) for e in log]
    for sets, chosen in episodes:
        sets.insert(0, rng.normal(size=(1, 3)))
        chosen.insert(0, 0)
    model = BICB(sample=None, **SHORT, random_state=0).fit(BehaviorLog.from_episodes(episodes))
    assert np.isfinite(model.coef_).all()


def test_contexts_that_do_not_span_need_the_pseudo_inverse():
    log = small_run().log
    steps, one = (log.step_offsets, log.chosen, log.episode_offsets), np.ones(log.n_rows)
    flat = BehaviorLog(np.column_stack([log.contexts, one]), *steps)
    twice = BehaviorLog(np.column_stack([flat.contexts, one]), *steps)
    model = BICB(sample=0.1, **SHORT, random_state=0)
    assert model.fit(flat).coef_.shape == (5,)
    with pytest.raises(ValueError, match=r"span 5 of 6 directions.*Set pinv=True, raise sample"):
        clone(model).fit(twice)
    coef = clone(model).set_params(pinv=True).fit(twice).coef_
    assert coef[4] == pytest.approx(coef[5])


@pytest.mark.parametrize(
    "wrong, error, says",
    [
        ({"sample": 1.5}, ValueError, "sample=1.5 is above 1"),
        ({"sample": 0.001}, ValueError, "sample=0.001 of 720 steps leaves 1; the sampler needs two or more"),
        ({"sigma": 0.0}, ValueError, "sigma=0.0 must be finite and above 0"),
        ({"n_sweeps": 5, "n_dropped": 5}, ValueError, "n_sweeps=5 must be at least 6: the first n_dropped=5"),
        ({"pinv": 1}, TypeError, "pinv=1 must be True or False"),
    ],
)
def test_wrong_parameters_are_named(wrong, error, says):
    with pytest.raises(error, match=says):
        BICB(**wrong).fit(small_run().log)


def test_logs_that_say_nothing_are_refused(rng):
    lonely = BehaviorLog.from_episodes([(rng.normal(size=(5, 1, 2)), np.zeros(5, dtype=int))])
    with pytest.raises(ValueError, match="all 5 steps used have one candidate"):
        BICB(sample=None).fit(lonely)
    short = BehaviorLog.from_episodes([(rng.normal(size=(1, 3, 2)), [0])])
    with pytest.raises(ValueError, match="the log has one step of the policy"):
        BICB(sample=None).fit(short)
