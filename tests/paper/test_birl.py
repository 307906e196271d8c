"""B-IRL: the chain is plain Metropolis-Hastings, its bounds hold, and it finds the posterior."""

import numpy as np
import pytest
from conftest import ragged_log, small_run
from plain import arrays, birl_chain, log_likelihood
from sklearn.base import clone

import ibcb
from ibcb import BehaviorLog
from ibcb.numerics.checks import generator
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.paper.rivals import BIRL
from ibcb.paper.rivals.birl import Target, init


def loss_of(log, scale=20.0):
    return ChoiceLoss(*log.step_arrays(log.policy_steps), scale)


def softmax_log(rng, rho, *, steps=300, candidates=3, scale=20.0, spread=0.2):
    """Choices drawn from the model itself."""
    contexts = spread * rng.normal(size=(steps, candidates, len(rho)))
    scores = scale * contexts @ rho + rng.gumbel(size=(steps, candidates))
    return BehaviorLog.from_episodes([(contexts, scores.argmax(axis=1))])


# -- the chain -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_the_chain_is_that_of_the_plain_algorithm(expert):
    """Same random numbers, same decisions: every state equal to the last bit."""
    log = small_run(expert).log
    states, accepted = birl_chain(*arrays(log), generator(3), 1_500)
    model = BIRL(burn_in=0, n_samples=1_500, thin=1, random_state=3).fit(log)
    np.testing.assert_array_equal(model.samples_, states)
    assert model.acceptance_rate_ == accepted.mean()
    assert 20 < accepted.sum() < 1_400


def test_most_decisions_need_no_pass_over_the_log():
    log = ibcb.simulate("synthetic", noise=0.03, n_episodes=4, batch_size=500, seed=1).log
    model = BIRL(burn_in=0, n_samples=3_000, thin=1, random_state=0).fit(log)
    states, _ = birl_chain(*arrays(log), generator(0), 300)
    np.testing.assert_array_equal(model.samples_[:300], states)
    assert model.n_passes_ < 3_000 / 3


def test_samples_are_every_tenth_state_after_the_burn_in():
    log = small_run().log
    states, _ = birl_chain(*arrays(log), generator(0), 260)
    model = BIRL(burn_in=60, n_samples=20, thin=10, normalise=False, random_state=0).fit(log)
    np.testing.assert_array_equal(model.samples_, states[60::10])
    np.testing.assert_allclose(model.coef_, states[60::10].mean(axis=0))


@pytest.mark.parametrize("size", [1e-4, 1e-2, 0.1, 1.0, 10.0])
def test_the_bounds_enclose_the_loss(size, rng):
    log = small_run().log
    loss = loss_of(log)
    target = Target(loss, loss.reach())
    bounds = init(0.2 * rng.normal(size=4), target).bounds
    for direction in rng.normal(size=(40, 4)):
        rho = bounds.centre + size * direction
        low, high = bounds.at(rho)
        assert low <= -log_likelihood(rho, *arrays(log)) <= high
        if size == 1e-4:
            assert high - low < 0.1


def test_features_that_candidates_share_do_not_matter(rng):
    """The chain wanders freely in their weights, as plain Metropolis-Hastings does."""
    contexts = rng.normal(size=(60, 4, 3))
    contexts[:, :, 1] = rng.normal(size=(60, 1))
    log = BehaviorLog.from_episodes([(contexts, contexts[:, :, 0].argmax(axis=1))])
    states, _ = birl_chain(*arrays(log), generator(0), 400)
    model = BIRL(burn_in=0, n_samples=400, thin=1, random_state=0).fit(log)
    np.testing.assert_array_equal(model.samples_, states)


def test_reach_bounds_the_range_of_every_steps_scores(rng):
    log = ragged_log(rng)
    B = loss_of(log, 2.0).reach()
    for w in rng.normal(size=(50, 3)):
        ranges = [np.ptp(2 * log.candidates(t) @ w) for t in range(log.policy_steps.start, log.n_steps)]
        assert max(ranges) <= np.linalg.norm(B @ w) <= 4 * max(ranges)


# -- the posterior -------------------------------------------------------------------------------------------------


def test_samples_have_the_posteriors_mean_and_spread(rng):
    """Against the posterior integrated on a grid, in two dimensions."""
    log = softmax_log(rng, np.array([0.3, -0.2]))
    best = BIRL(burn_in=500, n_samples=50, random_state=0, normalise=False).fit(log).coef_
    contexts, chosen = arrays(log)
    axis = np.linspace(-0.3, 0.3, 49)
    grid = best + np.array(np.meshgrid(axis, axis)).reshape(2, -1).T
    posterior = np.array([log_likelihood(rho, contexts, chosen) for rho in grid])
    posterior = np.exp(posterior - posterior.max())
    posterior /= posterior.sum()
    mean = posterior @ grid
    covariance = (posterior[:, None] * (grid - mean)).T @ (grid - mean)

    model = BIRL(step_size=0.05, burn_in=500, n_samples=3_000, thin=8, normalise=False, random_state=1).fit(log)
    sd = np.sqrt(covariance.diagonal())
    np.testing.assert_allclose(model.coef_, mean, atol=0.12 * sd.min())
    np.testing.assert_allclose(np.cov(model.samples_.T), covariance, atol=0.15 * sd.max() ** 2)


# -- the estimator -------------------------------------------------------------------------------------------------

SHORT = {"burn_in": 50, "n_samples": 10, "thin": 2}


def test_the_same_seed_gives_the_same_bits():
    log = small_run().log
    one, two, other = (BIRL(**SHORT, random_state=seed).fit(log).coef_ for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_the_warm_up_teaches_nothing():
    log = small_run().log
    start = log.policy_steps.start
    chosen = log.chosen.copy()
    chosen[:start] = 0
    other = BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=1)
    model = BIRL(**SHORT, random_state=0)
    np.testing.assert_array_equal(model.fit(log).coef_, clone(model).fit(other).coef_)


def test_ragged_steps_and_steps_with_one_candidate(rng):
    log = ragged_log(rng, warmup=0)
    episodes = [([e.candidates(t) for t in range(e.n_steps)], e.chosen.tolist()) for e in log]
    for sets, chosen in episodes:
        sets.insert(1, rng.normal(size=(1, 3)))
        chosen.insert(1, 0)
    more = BehaviorLog.from_episodes(episodes)
    model = BIRL(**SHORT, random_state=0)
    np.testing.assert_array_equal(model.fit(more).samples_, clone(model).fit(log).samples_)


def test_huge_contexts_do_not_overflow(rng):
    contexts = 1e4 * rng.normal(size=(30, 4, 2))
    log = BehaviorLog.from_episodes([(contexts, contexts[:, :, 0].argmax(axis=1))])
    assert np.isfinite(BIRL(**SHORT, random_state=0).fit(log).coef_).all()


@pytest.mark.parametrize(
    "wrong, error, says",
    [
        ({"inverse_temperature": 0}, ValueError, "inverse_temperature=0 must be finite and above 0"),
        ({"step_size": -1.0}, ValueError, "step_size=-1.0 must be finite and above 0: the chain would stand still"),
        ({"thin": 2.5}, TypeError, "thin=2.5 must be a whole number"),
        ({"normalise": "no"}, TypeError, "normalise='no' must be True or False"),
        ({"random_state": -1}, ValueError, "random_state=-1 must be at least 0"),
    ],
)
def test_wrong_parameters_are_named(wrong, error, says):
    with pytest.raises(error, match=says):
        BIRL(**wrong).fit(small_run().log)


def test_logs_without_a_choice_are_refused(rng):
    for contexts in (rng.normal(size=(5, 1, 2)), np.ones((5, 3, 2))):
        log = BehaviorLog.from_episodes([(contexts, np.zeros(5, dtype=int))])
        with pytest.raises(ValueError, match="no step of the log has candidates that differ"):
            BIRL().fit(log)
    with pytest.raises(TypeError, match="expected a BehaviorLog, got ndarray"):
        BIRL().fit(np.zeros((3, 2)))
