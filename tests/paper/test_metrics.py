"""Metrics, recomputed step by step."""

import numpy as np
import pytest
from conftest import small_run
from scipy.spatial.distance import jensenshannon

import ibcb
from ibcb import metrics
from ibcb.deciders import draw, top_k_softmax
from ibcb.paper.environments import Streams

RUNS = [("sbucb", None), ("sbts", None), ("sbucb", 2), ("sbts", 3)]


def fitted(expert, top_k):
    run = small_run(expert, top_k=top_k)
    return run, ibcb.IBCB(expert=expert, l2=0.3).fit(run.log)


@pytest.mark.parametrize(("expert", "top_k"), RUNS)
@pytest.mark.parametrize("split", ["test", "ood"])
def test_fitness_reward_and_fairness_regret_step_by_step(expert, top_k, split):
    run, model = fitted(expert, top_k)
    log = run.test_log if split == "test" else run.ood_log
    phase = run.world.test if split == "test" else run.world.ood
    uniforms = Streams(run.seed)["imitator test draws"].random(log.n_steps)
    same = earned = regret = 0.0
    for t in range(log.n_steps):
        mine, its = (log.candidates(t) @ w for w in (model.next_policy_coef_, run.expert.coef_))
        p, q = top_k_softmax(mine, top_k or 1), top_k_softmax(its, top_k or 1)
        pick, pick_expert = int(draw(p, uniforms[t])), int(draw(q, uniforms[t]))
        same += pick == log.chosen[t]
        earned += phase.expected[t, pick] + phase.noise[t]
        regret += jensenshannon(p, q) ** 2 + abs(phase.expected[t, pick] - phase.expected[t, pick_expert])
    assert metrics.bt_fitness(model, run, split=split) == pytest.approx(same / log.n_steps)
    assert metrics.bt_average_reward(model, run, split=split) == pytest.approx(earned / log.n_steps)
    assert metrics.cumulative_fairness_regret(model, run, split=split) == pytest.approx(regret, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("expert", "top_k"), RUNS[2:])
def test_an_expert_that_draws_agrees_with_itself_as_often_as_chance_allows(expert, top_k):
    run = small_run(expert, top_k=top_k)
    assert metrics.cumulative_fairness_regret(run.expert, run) == pytest.approx(0, abs=1e-9)
    p = top_k_softmax((run.test_log.contexts @ run.expert.coef_).reshape(-1, 7), top_k)
    agreement = np.mean(np.sum(p**2, axis=1))
    assert metrics.bt_fitness(run.expert, run) == pytest.approx(agreement, abs=5 / np.sqrt(run.test_log.n_steps))


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
@pytest.mark.parametrize("forecast", ["auto", None])
def test_ol_fitness_lets_the_expert_learn_again(expert, forecast):
    """With rewards as they were recovered, their intercept included; Algorithm 2's have none."""
    run = small_run(expert, top_k=None)
    model = ibcb.IBCB(expert=expert, l2=0.3, alpha=0.4, forecast=forecast).fit(run.log)
    assert (model.intercept_ == 0.0) == (forecast is None)
    streams, log = Streams(run.seed), run.log
    again = ibcb.SBUCB(4, alpha=0.4, l2=0.3)
    if expert == "sbts":
        again = ibcb.SBTS(4, alpha=0.4, l2=0.3, random_state=streams["expert exploration"])
    start = log.policy_steps.start
    again.update(log.contexts[log.chosen_rows[:start]], run.rewards[:start])
    same = []
    for episode in [episode for by_policy, episode in log.episodes() if by_policy]:
        contexts = episode.contexts.reshape(-1, 7, 4)
        picks = again.act(contexts)
        S = contexts[np.arange(len(picks)), picks]
        again.update(S, S @ model.coef_ + model.intercept_)
        same.extend(picks == episode.chosen)
    assert metrics.ol_fitness(model, run) == pytest.approx(np.mean(same))


def test_rewards_without_an_intercept_have_none():
    run = small_run()

    class Paper:
        coef_ = np.array([0.1, -0.2, 0.3, 0.0])

        def decision_function(self, log):
            return log.contexts @ self.coef_

    picks = run.replay(Paper.coef_)
    np.testing.assert_array_equal(picks, run.replay(Paper.coef_, 0.0))
    assert metrics.ol_fitness(Paper(), run) == np.mean(picks == run.log.chosen[run.log.policy_steps])
    assert not np.array_equal(picks, run.replay(Paper.coef_, 5.0))


def test_ol_fitness_is_undefined_for_behaviour_cloning():
    run = small_run()
    clone = ibcb.BaseSVC().fit(run.log)
    with pytest.raises(ValueError, match="undefined for BaseSVC"):
        metrics.ol_fitness(clone, run)
    assert metrics.evaluate(clone, run)["ol_fitness"] is None


def test_evaluate_gathers_the_metrics():
    run, model = fitted("sbucb", None)
    figures = metrics.evaluate(model, run)
    assert figures["bt_fitness"] == metrics.bt_fitness(model, run)
    assert figures["ood_bt_ar"] == metrics.bt_average_reward(model, run, split="ood")
    others = {"bt_ar", "ol_fitness", "train_log_fitness", "ood_bt_fitness", "cfr"}
    assert set(figures) == {"bt_fitness", "ood_bt_ar", *others}


def test_an_unknown_split_is_refused():
    run, model = fitted("sbucb", None)
    with pytest.raises(ValueError, match="split='train'.*'test' or 'ood'"):
        metrics.bt_fitness(model, run, split="train")


def test_probabilities_too_small_for_their_mean_leave_the_divergence_finite():
    tiny = np.nextafter(0.0, 1.0)
    p, q = np.array([[1.0, tiny]]), np.array([[1.0, 0.0]])
    assert metrics._jensen_shannon(p, q) == pytest.approx(0.0, abs=1e-300)
