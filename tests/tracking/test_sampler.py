"""A Thompson sampler that draws once an episode: within one it always takes the best by its draw."""

import functools

import numpy as np
import pytest
from conftest import slow

import ibcb
from ibcb import IBCB

SIZES = {
    "synthetic": {"n_episodes": 12, "batch_size": 400, "n_features": 10, "n_candidates": 8, "noise": 0.03},
    "arms": {"n_episodes": 10, "batch_size": 400, "n_arms": 6, "n_features": 3, "warmup": 80},
}


@functools.cache
def run(alpha=0.4, seed=3, world="synthetic", draws="episode"):
    return ibcb.simulate(world, expert="sbts", draws=draws, alpha=alpha, seed=seed, **SIZES[world])


@functools.cache
def fitted(**world):
    return IBCB(expert="sbts", draws="episode").fit(run(**world).log)


def explained(model, log):
    """Share of the choices that the policy of each episode makes."""
    hits = [
        (episode.contexts.reshape(len(episode.chosen), -1, log.n_features) @ policy).argmax(axis=1) == episode.chosen
        for episode, policy in zip(log, model.policy_coefs_, strict=True)
    ]
    # Of the first policy nothing had been learned before.
    return float(np.mean(hits[1:]))


@pytest.mark.parametrize("world", ["synthetic", slow("arms")])
@pytest.mark.parametrize("seed", [3, slow(4)])
def test_it_is_told_from_one_that_draws_at_every_step(world, seed):
    model = IBCB(expert="auto").fit(run(seed=seed, world=world).log)
    assert (model.expert_, model.draws_) == ("sbts", "episode")
    (chosen,) = [one for one in model.evidence_ if one.chosen]
    assert chosen.name.startswith("sbts-episode(")
    other = IBCB(expert="auto").fit(run(seed=seed, world=world, draws="step").log)
    assert (other.expert_, other.draws_) == ("sbts", "step")


def test_the_draw_of_every_episode_is_recovered():
    log = run().log
    assert explained(fitted(), log) > 0.99
    assert explained(fitted(), log) > explained(IBCB(expert="sbts").fit(log), log)


def test_its_propensities_are_nearly_certain_of_what_it_drew_and_wider_ahead():
    model, log = fitted(), run().log
    drawn, ahead = model.propensities(log), model.propensities(log, ahead=True)
    late = slice(log.episode_offsets[2], None)
    assert drawn[log.chosen_rows][late].mean() > 0.95
    assert drawn[log.chosen_rows][late].mean() > ahead[log.chosen_rows][late].mean()


def leads(log, weights):
    """Scores of all candidates, less the mean of their step."""
    scores, counts = log.contexts @ weights, np.diff(log.step_offsets)
    return scores - np.repeat(np.add.reduceat(scores, log.step_offsets[:-1]) / counts, counts)


def test_what_it_learned_is_told_from_what_it_drew():
    """The coming policy is that behind the draws; rewards rank candidates as it does."""
    alike = {"next": [], "drawn": [], "rewards": []}
    for seed in (3, 4, 5):
        model, log, learned = fitted(seed=seed), run(seed=seed).test_log, run(seed=seed).policy_coefs
        for name, weights in (("next", model.next_policy_coef_), ("rewards", model.coef_)):
            alike[name].append(np.corrcoef(leads(log, weights), leads(log, learned[-1]))[0, 1])
        pairs = zip(model.policy_coefs_[1:], learned[1:-1], strict=True)
        alike["drawn"] += [np.corrcoef(leads(log, drawn), leads(log, p))[0, 1] for drawn, p in pairs]
    assert min(alike["next"]) > np.mean(alike["drawn"])
    assert np.mean(alike["rewards"]) > 0.5


def test_weights_are_per_unit_of_alpha():
    """Who draws more widely has, per unit of that, the shorter policy; alpha scales all weights alike."""
    near, far = (fitted(alpha=alpha).next_policy_coef_ for alpha in (0.1, 3.0))
    assert np.linalg.norm(near) > 2 * np.linalg.norm(far)
    doubled = IBCB(expert="sbts", draws="episode", alpha=2.0).fit(run().log)
    np.testing.assert_allclose(doubled.next_policy_coef_, 2 * fitted().next_policy_coef_, rtol=1e-12)
    np.testing.assert_allclose(doubled.coef_, 2 * fitted().coef_, rtol=1e-12)


def test_brought_to_life_it_draws_after_every_update():
    model = fitted()
    assert model.to_policy().draws == "episode"
    assert model.to_policy(draws="step").draws == "step"
    sets = np.random.default_rng(0).normal(size=(200, 8, 10))
    policy = model.to_policy(alpha=5.0, random_state=0)
    before = policy.act(sets)
    np.testing.assert_array_equal(policy.act(sets), before)
    policy.update(np.zeros((1, 10)), [0.0])
    assert (policy.act(sets) != before).any()
