"""Every expert in every world: what it knows, what it chooses, and how probable that was."""

import numpy as np
import pytest
from conftest import small_run
from sklearn.linear_model import Ridge

import ibcb
from ibcb import metrics
from ibcb.numerics.contexts import dense, is_sparse
from ibcb.paper.environments import Streams
from ibcb.paper.simulation import EXPERTS

LEARNERS = [name for name in EXPERTS if name not in ("stationary", "other")]
SIZES = {"n_episodes": 4, "batch_size": 150, "n_arms": 6, "n_features": 3, "warmup": 200}


def small_arms(expert="sbucb", seed=0, **changes):
    return ibcb.simulate("arms", expert=expert, seed=seed, **(SIZES | changes))


RUNS = {"synthetic": small_run, "arms": small_arms}


def live(run):
    """A fresh expert with the luck of the run."""
    luck, d, how = Streams(run.seed)["expert exploration"], run.log.n_features, run.expert_settings
    known = {name: getattr(how, name) for name in ("l2", "alpha", "epsilon", "decay", "temperature")}
    known = {name: value for name, value in known.items() if value is not None}
    if how.kind == "sbts":
        return ibcb.SBTS(d, draws=how.draws, random_state=luck, **known)
    if how.kind in ("egreedy", "softmax"):
        return {"egreedy": ibcb.EGreedy, "softmax": ibcb.Softmax}[how.kind](d, random_state=luck, **known)
    expert = ibcb.SBUCB(d, **known)
    return expert if how.kind == "sbucb" else ibcb.TopK(expert, 2, random_state=Streams(run.seed)["expert fairness"])


@pytest.mark.parametrize("world", RUNS)
@pytest.mark.parametrize("expert", LEARNERS)
def test_a_learner_taught_the_rewards_makes_the_same_choices_as_probably(world, expert):
    run = RUNS[world](expert)
    policy, true, steps, rows = live(run), run.propensities(), 0, 0
    assert true.shape == (run.log.n_rows,)
    M = run.log.candidates_per_step
    for number, (by_policy, episode) in enumerate(run.log.episodes()):
        contexts = dense(episode.contexts)
        if by_policy:
            sets = contexts.reshape(-1, M, run.log.n_features)
            np.testing.assert_array_equal(policy.coef_, run.policy_coefs[number - 1])
            np.testing.assert_array_equal(policy.propensities(sets).ravel(), true[rows : rows + len(contexts)])
            np.testing.assert_array_equal(policy.act(sets), episode.chosen)
        else:
            np.testing.assert_array_equal(true[: len(contexts)], 1 / M)
        policy.update(contexts[episode.chosen_rows], run.rewards[steps : steps + episode.n_steps])
        steps, rows = steps + episode.n_steps, rows + len(contexts)
    np.testing.assert_array_equal(policy.coef_, run.expert.coef_)
    if expert != "topk":
        greedy = (dense(run.test_log.contexts) @ policy.coef_).reshape(-1, M).argmax(axis=1)
        np.testing.assert_array_equal(run.test_log.chosen, greedy)


@pytest.mark.parametrize("world", RUNS)
@pytest.mark.parametrize("expert", EXPERTS)
def test_choices_are_as_surprising_as_their_propensities_say(world, expert):
    """Mean log-probability of what was chosen is minus the entropy, within five standard errors."""
    run = RUNS[world](expert)
    steps = run.log.policy_steps
    p = run.propensities().reshape(run.log.n_steps, -1)[steps]
    np.testing.assert_allclose(p.sum(axis=1), 1)
    chosen = np.take_along_axis(p, run.log.chosen[steps][:, None], axis=1)[:, 0]
    assert (chosen > 0).all()
    logs = np.log(np.maximum(p, 1e-4))
    mean = np.sum(p * logs, axis=1)
    variance = np.sum(p * logs**2, axis=1) - mean**2
    gap = np.sum(np.log(np.maximum(chosen, 1e-4)) - mean)
    assert abs(gap) <= 5 * np.sqrt(variance.sum()) + 1e-9


@pytest.mark.parametrize("world", RUNS)
@pytest.mark.parametrize("expert", ["egreedy", "softmax", "stationary", "other"])
def test_usual_parameters_are_neither_sure_nor_blind(world, expert):
    settings = {"n_episodes": 6, "batch_size": 600, "warmup": 500, "seed": 3}
    run = ibcb.simulate(world, expert=expert, **settings)
    p = run.propensities().reshape(run.log.n_steps, -1)[run.log.policy_steps]
    assert 0.4 < p.max(axis=1).mean() < 0.9


@pytest.mark.parametrize("world", RUNS)
def test_a_stationary_expert_is_the_ridge_regression_of_its_random_start(world):
    run = RUNS[world]("stationary", epsilon=0.1)
    start = run.log.policy_steps.start
    S = dense(run.log.contexts[run.log.chosen_rows[:start]])
    weights = Ridge(alpha=run.expert_settings.l2).fit(S, run.rewards[:start]).coef_
    np.testing.assert_allclose(run.policy_coefs, np.tile(weights, (len(run.policy_coefs), 1)), atol=1e-9)
    assert run.propensities().min() >= 0.1 / run.log.candidates_per_step * (1 - 1e-12)


def test_without_a_random_start_a_stationary_expert_still_knows_something():
    run = small_run("stationary", warmup=0)
    assert run.log.warmup == 0
    assert run.policy_coefs.any()
    assert len(run.propensities()) == run.log.n_rows


def test_another_kind_of_expert_walks_by_steps_that_do_not_shrink():
    run = small_arms("other", n_episodes=40, batch_size=20)
    strides = np.linalg.norm(np.diff(run.policy_coefs, axis=0), axis=1)
    first = np.linalg.norm(run.policy_coefs[0])
    np.testing.assert_allclose(strides / first, 0.5, atol=0.5 * 5 / np.sqrt(2 * 18))
    assert np.mean(strides[-10:]) > 0.8 * np.mean(strides[:10])
    away = np.linalg.norm(run.policy_coefs[-1] - run.policy_coefs[0])
    assert away > 3 * strides.mean()  # 6.3, the root of 40, on average


def test_epsilon_of_a_run_falls_as_it_says():
    run = small_run("egreedy", epsilon=0.5, decay=1.0)
    p = run.propensities().reshape(run.log.n_steps, -1)[run.log.policy_steps].reshape(6, 120, -1)
    # The random start was an update.
    np.testing.assert_allclose(p.min(axis=(1, 2)) * 7, [0.5 / (k + 2) for k in range(6)])


def test_asking_a_run_changes_nothing():
    run = small_run("sbts", seed=3)
    before = run.expert.coef_.copy()
    first = run.propensities()
    np.testing.assert_array_equal(run.propensities(), first)
    np.testing.assert_array_equal(run.expert.coef_, before)
    again = ibcb.simulate("synthetic", **{**vars(run.environment), "expert": "sbts", "seed": 3})
    np.testing.assert_array_equal(again.log.chosen, run.log.chosen)


# -- arms ----------------------------------------------------------------------------------------------------------


def test_an_sbucb_over_arms_is_a_disjoint_linucb():
    """One ridge regression per arm, each with an upper bound of its own, chooses the same."""
    run = small_arms(n_available=4)
    (K, m), alpha, log = (6, 3), run.expert_settings.alpha, run.log
    A, b, seen = np.stack([np.eye(m)] * K), np.zeros((K, m)), 0
    for by_policy, episode in log.episodes():
        arms = np.asarray(episode.candidate_ids).reshape(-1, 4)
        X = dense(episode.contexts).reshape(-1, 4, K, m).sum(axis=2)[:, 0]
        inverse = np.linalg.inv(A)
        bounds = X @ np.einsum("kij,kj->ki", inverse, b).T + alpha * np.sqrt(np.einsum("bi,kij,bj->bk", X, inverse, X))
        picks = np.take_along_axis(arms, episode.chosen[:, None], axis=1)[:, 0]
        if by_policy:
            best = np.take_along_axis(bounds, arms, axis=1).argmax(axis=1)
            np.testing.assert_array_equal(best, episode.chosen)
        rewards = run.rewards[seen : seen + episode.n_steps]
        for x, arm, reward in zip(X, picks, rewards, strict=True):
            A[arm] += np.outer(x, x)
            b[arm] += reward * x
        seen += episode.n_steps


def test_rewards_of_arms_are_linear_in_the_features_of_the_step():
    run = small_arms("softmax", noise=0.2, n_episodes=10, batch_size=400)
    weights = (Streams(0)["reward parameters"].normal(size=(6, 3)) / np.sqrt(3)).ravel()
    left = run.rewards - dense(run.log.contexts[run.log.chosen_rows]) @ weights
    assert abs(left.mean()) < 5 * 0.2 / np.sqrt(len(left))
    assert left.std() == pytest.approx(0.2, rel=0.06)


def test_logs_of_arms_are_those_of_from_arms():
    run = small_arms(n_arms=20, n_features=4, n_available=7)
    log = run.log
    assert is_sparse(log.contexts)
    assert log.feature_names[:5] == ("arm=0", "arm=0:x1", "arm=0:x2", "arm=0:x3", "arm=1")
    assert (log.candidates_per_step, log.warmup, len(log)) == (7, 1, 4)
    sets = np.asarray(log.candidate_ids).reshape(-1, 7)
    assert (np.diff(sets, axis=1) > 0).all()
    shares = np.bincount(sets.ravel(), minlength=20) / len(sets)
    np.testing.assert_allclose(shares, 7 / 20, atol=5 * np.sqrt(0.25 / len(sets)))
    test = run.world.test.contexts
    np.testing.assert_array_equal(run.test_log.chosen, (test @ run.expert.coef_).argmax(axis=1))


# -- metrics and refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", EXPERTS)
def test_every_expert_is_measured_against_itself(expert):
    run = small_run(expert)
    figures = metrics.evaluate(run.expert, run)
    assert figures["cfr"] == pytest.approx(0, abs=1e-9)
    assert (figures["ol_fitness"] is None) == (expert in ("stationary", "other"))
    if figures["ol_fitness"] is None:
        with pytest.raises(ValueError, match=f"OL-Fitness is undefined.*{expert}.*rewards do not change"):
            metrics.ol_fitness(run.expert, run)
    if expert != "topk":
        assert figures["bt_fitness"] == 1


@pytest.mark.parametrize("expert", LEARNERS)
def test_a_replay_with_the_true_rewards_is_the_same_life(expert):
    """Noiseless linear rewards of arms can be given as weights."""
    run = small_arms(expert, noise=0.0)
    weights = (Streams(0)["reward parameters"].normal(size=(6, 3)) / np.sqrt(3)).ravel()
    np.testing.assert_array_equal(run.replay(weights), run.log.chosen[run.log.policy_steps])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expert": "egreedy", "alpha": 0.3}, "alpha=0.3.*'egreedy' has no alpha.*l2, epsilon, decay"),
        ({"expert": "softmax", "temperature": 0}, "temperature=0.*above 0"),
        ({"expert": "sbucb", "draws": "batch"}, "draws='batch'"),
        ({"expert": "stationary", "l2": 0}, "l2=0.*above 0"),
        ({"environment": "arms", "n_available": 12}, "n_available=12.*10 arms"),
        ({"environment": "arms", "n_available": 0}, "n_available=0"),
        ({"environment": "arms", "n_arms": 0}, "n_arms=0"),
        ({"environment": "arms", "n_candidates": 3}, "'n_candidates'.*n_arms"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ibcb.simulate(**options)
