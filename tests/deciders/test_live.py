"""Algorithm 1: what the experts choose and learn, recomputed; and Theorem 1."""

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.linear_model import Ridge

import ibcb
from ibcb.deciders import draw, top_k_softmax


def taught(expert, rng, batches=3):
    for _ in range(batches):
        S = rng.normal(size=(30, expert.n_features))
        expert.update(S, S @ np.arange(expert.n_features) + rng.normal(size=30))
    return expert


def test_batched_updates_give_the_ridge_estimate_of_all_rewards(rng):
    expert, S_all, R_all = ibcb.SBUCB(4, l2=0.6), [], []
    for _ in range(5):
        S, R = rng.normal(size=(20, 4)), rng.normal(size=20)
        expert.update(S, R)
        S_all.append(S)
        R_all.append(R)
    S, R = np.vstack(S_all), np.concatenate(R_all)
    np.testing.assert_allclose(expert.coef_, np.linalg.solve(S.T @ S + 0.6 * np.eye(4), S.T @ R), rtol=1e-10)
    np.testing.assert_allclose(expert.gram_, S.T @ S, rtol=1e-12)


def test_ucb_takes_the_largest_upper_confidence_bound(rng):
    expert = taught(ibcb.SBUCB(3, alpha=0.9, l2=0.5), rng)
    psi_inverse = np.linalg.inv(expert.gram_ + 0.5 * np.eye(3))
    for candidates in rng.normal(size=(50, 6, 3)):
        bounds = [s @ expert.coef_ + 0.9 * np.sqrt(s @ psi_inverse @ s) for s in candidates]
        assert expert.act(candidates) == int(np.argmax(bounds))


ORIGIN, SCALE = np.array([2.0, -1.0, 0.5]), np.array([10.0, 0.1, 3.0])


def test_an_expert_with_scales_and_an_origin_is_one_with_standardised_features(rng):
    """It learns, expects and explores as one does that is given the features centred and scaled."""
    own = ibcb.SBUCB(3, alpha=0.7, l2=0.4 * SCALE**2, origin=ORIGIN)
    plain = ibcb.SBUCB(3, alpha=0.7, l2=0.4)
    for _ in range(3):
        Z = rng.normal(size=(30, 3))
        R = Z @ [1.0, -2.0, 0.5] + 0.3 + 0.1 * rng.normal(size=30)
        own.update(ORIGIN + SCALE * Z, R)
        plain.update(Z, R)
        np.testing.assert_allclose(own.coef_ * SCALE, plain.coef_, rtol=1e-9)
        np.testing.assert_allclose(own.gram_ / SCALE / SCALE[:, None], plain.gram_, rtol=1e-9, atol=1e-9)
        sets = rng.normal(size=(50, 4, 3))
        mine, its = own.scores(ORIGIN + SCALE * sets), plain.scores(sets)
        np.testing.assert_allclose(mine - mine[:, :1], its - its[:, :1], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(
            own.decision_function(ORIGIN + SCALE * sets), plain.decision_function(sets), rtol=1e-8, atol=1e-10
        )
        np.testing.assert_array_equal(own.act(ORIGIN + SCALE * sets), plain.act(sets))
        S, rewards = own.pseudo_data()
        again = ibcb.SBUCB(3, alpha=0.7, l2=0.4 * SCALE**2, origin=ORIGIN)
        again.update(S + ORIGIN, rewards)
        np.testing.assert_allclose(again.coef_, own.coef_, rtol=1e-7)


def test_a_thompson_sampler_with_scales_draws_from_its_own_posterior(rng):
    expert = ibcb.SBTS(3, alpha=0.7, l2=0.4 * SCALE**2, origin=ORIGIN, random_state=1)
    S = ORIGIN + SCALE * rng.normal(size=(30, 3))
    expert.update(S, S @ (1 / SCALE))
    draws = expert.scores(np.broadcast_to(np.eye(3), (40_000, 3, 3)))
    covariance = 0.49 * np.linalg.inv(np.diag(0.4 * SCALE**2) + (S - ORIGIN).T @ (S - ORIGIN))
    spread = np.sqrt(covariance.diagonal())
    np.testing.assert_allclose((draws.mean(axis=0) - expert.coef_) / spread, 0, atol=5 / np.sqrt(40_000))
    unit = np.outer(spread, spread)
    np.testing.assert_allclose(np.cov(draws.T) / unit, covariance / unit, atol=0.05)


def test_an_expert_that_knows_nothing_takes_the_longest_candidate(rng):
    batch = rng.normal(size=(50, 6, 4))
    assert (ibcb.SBUCB(4).act(batch) == np.linalg.norm(batch, axis=2).argmax(axis=1)).all()


def test_theorem_1_holds_for_each_candidate_but_not_jointly(rng):
    """Scores of SBTS have the mean and variance of <theta, s> + alpha H(s) z, candidate by candidate.

    One z for all candidates, as the theorem reads, would make any two scores perfectly correlated; in truth their
    covariance is alpha^2 s' Psi^-1 t.
    """
    expert = taught(ibcb.SBTS(3, alpha=0.7, l2=0.5, random_state=2), rng)
    s, t = rng.normal(size=(2, 3))
    psi_inverse = np.linalg.inv(expert.gram_ + 0.5 * np.eye(3))
    draws = 200_000
    scores = expert.scores(np.broadcast_to(np.array([s, t]), (draws, 2, 3)))
    H = np.sqrt([s @ psi_inverse @ s, t @ psi_inverse @ t])
    error = 5 / np.sqrt(draws)  # five standard errors of a mean of unit variance
    np.testing.assert_allclose(scores.mean(axis=0), np.array([s, t]) @ expert.coef_, atol=error * 0.7 * H.max())
    standard = (scores - np.array([s, t]) @ expert.coef_) / (0.7 * H)
    np.testing.assert_allclose(np.mean(standard**2, axis=0), 1, atol=error * np.sqrt(2))
    np.testing.assert_allclose(np.mean(standard**4, axis=0), 3, atol=error * np.sqrt(96))
    correlation = s @ psi_inverse @ t / H.prod()
    assert abs(correlation) < 0.9
    assert np.mean(standard.prod(axis=1)) == pytest.approx(correlation, abs=error * 2)


def test_one_draw_per_episode_serves_until_the_next_update(rng):
    expert = taught(ibcb.SBTS(3, alpha=2.0, draws="episode", random_state=0), rng)
    candidates = rng.normal(size=(4, 3))
    before = {expert.act(candidates) for _ in range(20)}
    scores = expert.scores(candidates)
    expert.update(np.empty((0, 3)), np.empty(0))
    assert len(before) == 1
    assert not np.allclose(scores, expert.scores(candidates))


def test_top_k_softmax_is_a_softmax_cut_and_renormalised(rng):
    scores = rng.normal(size=(30, 7))
    probabilities = top_k_softmax(scores, 3)
    for row, found in zip(scores, probabilities, strict=True):
        best = set(np.argsort(-row)[:3].tolist())
        expected = np.array([np.exp(v) if i in best else 0.0 for i, v in enumerate(row)])
        np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-12)
    np.testing.assert_allclose(top_k_softmax(scores, 1).argmax(axis=1), scores.argmax(axis=1))
    np.testing.assert_allclose(top_k_softmax(1000 * scores, 7).sum(axis=1), 1)


def test_draw_inverts_the_cumulative_distribution(rng):
    probabilities = np.array([0.2, 0.0, 0.5, 0.3])
    picks = draw(np.broadcast_to(probabilities, (100_000, 4)), rng.random(100_000))
    np.testing.assert_allclose(np.bincount(picks, minlength=4) / 100_000, probabilities, atol=0.01)
    assert draw(probabilities, np.array(np.nextafter(1.0, 0.0))) == 3


def test_fairness_learns_as_the_expert_inside_does(rng):
    plain, fair = ibcb.SBUCB(3), ibcb.TopK(ibcb.SBUCB(3), 2, random_state=0)
    S, R = rng.normal(size=(25, 3)), rng.normal(size=25)
    plain.update(S, R)
    fair.update(S, R)
    np.testing.assert_array_equal(plain.coef_, fair.coef_)
    candidates = rng.normal(size=(6, 3))
    top = set(np.argsort(-plain.scores(candidates))[:2].tolist())
    assert {fair.act(candidates) for _ in range(200)} == top


# -- propensities --------------------------------------------------------------------------------------------------

POLICIES = {
    "sbucb": lambda: ibcb.SBUCB(3, alpha=0.7, l2=0.5),
    "sbucb, its origin": lambda: ibcb.SBUCB(3, l2=SCALE**2, origin=ORIGIN),
    "sbts": lambda: ibcb.SBTS(3, alpha=4.0, l2=0.5, random_state=5),
    "sbts, one draw": lambda: ibcb.SBTS(3, alpha=4.0, draws="episode", random_state=5),
    "sbucb, top 2": lambda: ibcb.TopK(ibcb.SBUCB(3), 2, random_state=5),
    "sbts, top 3": lambda: ibcb.TopK(ibcb.SBTS(3, alpha=4.0, random_state=6), 3, random_state=5),
    "egreedy": lambda: ibcb.EGreedy(3, epsilon=0.6, decay=0.5, random_state=5),
    "softmax": lambda: ibcb.Softmax(3, temperature=2.0, random_state=5),
    "fixed": lambda: ibcb.FixedPolicy([1.0, 0.5, -1.0], temperature=0.7, epsilon=0.2, random_state=5),
}


@pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES)
def test_candidates_are_taken_as_often_as_propensities_say(rng, make):
    policy, times = taught(make(), rng, batches=1), 20_000
    for candidates in rng.normal(size=(3, 5, 3)):
        expected = policy.propensities(candidates)
        assert expected.sum() == pytest.approx(1)
        taken = np.bincount(policy.act(np.broadcast_to(candidates, (times, 5, 3))), minlength=5) / times
        # Five standard errors, of the choices and of the draws behind SBTS's own.
        bound = 5 * np.sqrt(expected * (1 - expected) * (1 / times + 1 / 10_000))
        assert (np.abs(taken - expected) <= bound + 5 / times).all()


@pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES)
def test_asking_for_propensities_changes_no_choice_and_a_batch_is_its_steps(rng, make):
    asked, silent = (taught(make(), np.random.default_rng(1)) for _ in range(2))
    batch = rng.normal(size=(200, 5, 3))
    together = asked.propensities(batch)
    assert together.shape == (200, 5)
    np.testing.assert_allclose(asked.propensities(batch[:, :1]), 1.0)
    np.testing.assert_array_equal(asked.propensities(batch), together)
    np.testing.assert_allclose([asked.propensities(candidates) for candidates in batch[:3]], together[:3], atol=1e-3)
    # And acting on a batch is acting step by step.
    assert asked.act(batch).tolist() == [silent.act(candidates) for candidates in batch]


def test_propensities_by_their_formulas(rng):
    for policy in (ibcb.SBUCB(2), ibcb.EGreedy(2, epsilon=0.0)):
        np.testing.assert_array_equal(policy.propensities(np.ones((3, 2))), [1, 0, 0])
    candidates = rng.normal(size=(30, 4, 3))
    greedy = taught(ibcb.EGreedy(3, epsilon=0.3), rng)
    scores = candidates @ greedy.coef_
    for row, found in zip(scores, greedy.propensities(candidates), strict=True):
        expected = np.full(4, 0.3 / 4)
        expected[np.argmax(row)] += 0.7
        np.testing.assert_allclose(found, expected)
    drawn = taught(ibcb.Softmax(3, temperature=0.4), rng)
    weights = np.exp(candidates @ drawn.coef_ / 0.4)
    np.testing.assert_allclose(drawn.propensities(candidates), weights / weights.sum(axis=1, keepdims=True))
    mixed = ibcb.FixedPolicy(drawn.coef_, temperature=0.4, epsilon=0.3).propensities(candidates)
    np.testing.assert_allclose(mixed, 0.7 * drawn.propensities(candidates) + 0.3 / 4)


def test_two_candidates_of_a_thompson_sampler_have_a_closed_form(rng):
    """The difference of two scores is normal: P(first) = Phi(mean / sd)."""
    expert = taught(ibcb.SBTS(3, alpha=3.0, l2=0.5), rng, batches=1)
    pairs = rng.normal(size=(40, 2, 3)) / 10
    lead = pairs[:, 0] - pairs[:, 1]
    spread = 3.0 * np.sqrt(np.einsum("bi,ij,bj->b", lead, np.linalg.inv(expert.gram_ + 0.5 * np.eye(3)), lead))
    np.testing.assert_allclose(expert.propensities(pairs)[:, 0], ndtr(lead @ expert.coef_ / spread), atol=0.025)


def test_epsilon_decays_with_every_update(rng):
    policy, lasting = (ibcb.EGreedy(3, epsilon=0.4, decay=decay, random_state=1) for decay in (0.5, 0.0))
    for k in range(5):
        assert policy.epsilon_ == pytest.approx(0.4 / np.sqrt(k + 1))
        assert lasting.epsilon_ == 0.4
        assert policy.propensities(rng.normal(size=(6, 3))).min() == pytest.approx(policy.epsilon_ / 6)
        taught(policy, rng, batches=1)
        taught(lasting, rng, batches=1)
    resumed = ibcb.EGreedy(3, epsilon=0.4, decay=0.5, gram=policy.gram_, moment=policy.moment_, n_updates=5)
    assert resumed.epsilon_ == policy.epsilon_
    with pytest.raises(ValueError, match="expected"):
        policy.update(np.ones((2, 2)), np.ones(2))
    assert policy.n_updates_ == 5


def test_a_fixed_policy_learns_nothing(rng):
    weights = rng.normal(size=3)
    policy = taught(ibcb.FixedPolicy(weights), rng)
    np.testing.assert_array_equal(policy.coef_, weights)
    weights[:] = 0
    assert policy.coef_.any()


# -- a given state -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda **state: ibcb.SBUCB(4, alpha=0.7, l2=0.5, **state),
        lambda **state: ibcb.SBTS(4, alpha=0.7, l2=0.5, random_state=3, **state),
    ],
)
def test_an_expert_started_with_a_state_goes_on_as_the_one_that_learned_it(rng, make):
    taught_one = taught(make(), rng)
    started = make(gram=taught_one.gram_, moment=taught_one.moment_)
    np.testing.assert_array_equal(started.coef_, taught_one.coef_)
    S, R = rng.normal(size=(15, 4)), rng.normal(size=15)
    for expert in (taught_one, started):
        expert.update(S, R)
    np.testing.assert_array_equal(started.coef_, taught_one.coef_)
    batch = rng.normal(size=(30, 5, 4))
    np.testing.assert_array_equal(started.act(batch), taught_one.act(batch))


def test_a_given_state_is_copied(rng):
    S = rng.normal(size=(9, 2))
    gram, moment = S.T @ S, S.T @ np.ones(9)
    expert = ibcb.SBUCB(2, gram=gram, moment=moment)
    before = expert.act(np.eye(2)), expert.coef_.copy()
    gram[:], moment[:] = 0, 0
    expert.update(np.empty((0, 2)), np.empty(0))
    assert expert.act(np.eye(2)) == before[0]
    np.testing.assert_array_equal(expert.coef_, before[1])


@pytest.mark.parametrize("steps", [0, 3, 40])
def test_pseudo_data_teach_a_ridge_regression_the_same(rng, steps):
    """Also where fewer steps than features leave directions that nobody has seen."""
    S, R = rng.normal(size=(steps, 5)), rng.normal(size=steps)
    expert = ibcb.SBUCB(5, l2=0.4)
    expert.update(S, R)
    contexts, rewards = expert.pseudo_data()
    assert contexts.shape == (min(steps, 5), 5)
    np.testing.assert_allclose(contexts.T @ contexts, S.T @ S, atol=1e-12 * steps)
    np.testing.assert_allclose(contexts.T @ rewards, S.T @ R, atol=1e-12 * steps)
    if steps:
        learned = Ridge(alpha=0.4, fit_intercept=False).fit(contexts, rewards)
        np.testing.assert_allclose(learned.coef_, expert.coef_, rtol=1e-9)


@pytest.mark.parametrize("make", [ibcb.SBUCB, ibcb.SBTS])
@pytest.mark.parametrize(
    "state, error, words",
    [
        ({"gram": np.eye(2)}, ValueError, r"moment is missing.*or neither"),
        ({"moment": np.ones(2)}, ValueError, r"gram is missing.*or neither"),
        ({"gram": np.eye(3), "moment": np.ones(2)}, ValueError, r"gram has shape \(3, 3\).*\(2, 2\)"),
        ({"gram": -np.eye(2), "moment": np.ones(2)}, ValueError, "gram has a negative eigenvalue"),
        ({"gram": np.eye(2), "moment": np.ones(3)}, ValueError, r"moment.*\(3,\).*S'R, 2 finite"),
        ({"gram": np.eye(2), "moment": [1, np.nan]}, ValueError, r"moment.*nan.*S'R, 2 finite"),
        ({"gram": np.eye(2), "moment": "none"}, TypeError, r"moment='none'.*S'R"),
        ({"l2": [1.0, 0.0]}, ValueError, r"l2\[1\].*above 0"),
        ({"l2": [1.0, 1.0, 1.0]}, ValueError, "a ridge parameter for each feature, 2 finite numbers"),
        ({"l2": [1.0, np.nan]}, ValueError, "finite"),
        ({"origin": [1.0]}, ValueError, "origin.*2 finite numbers"),
        ({"origin": [1.0, np.inf]}, ValueError, "origin.*finite"),
    ],
)
def test_states_that_make_no_sense_are_refused(make, state, error, words):
    with pytest.raises(error, match=words):
        make(2, **state)


@pytest.mark.parametrize(
    "policy, words",
    [
        (ibcb.SBUCB(3, alpha=0.4, l2=0.3), "SBUCB(n_features=3, alpha=0.4, l2=0.3)"),
        (
            ibcb.TopK(ibcb.SBTS(2, alpha=0.2, draws="episode", random_state=0), 2),
            "TopK(SBTS(n_features=2, alpha=0.2, l2=1, draws='episode'), k=2, temperature=1)",
        ),
        (ibcb.EGreedy(3, epsilon=0.2), "EGreedy(n_features=3, epsilon=0.2, decay=0, l2=1)"),
        (ibcb.Softmax(3, temperature=0.5, l2=0.3), "Softmax(n_features=3, temperature=0.5, l2=0.3)"),
        (ibcb.FixedPolicy([1, 2]), "FixedPolicy(2 weights, temperature=1, epsilon=0)"),
    ],
)
def test_policies_say_what_they_are(policy, words):
    assert repr(policy) == words
