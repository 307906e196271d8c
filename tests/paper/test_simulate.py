"""The synthetic world and the random streams."""

import numpy as np
import pytest
from conftest import small_run
from scipy.special import expit

import ibcb
from ibcb.paper.environments import Streams, Synthetic
from ibcb.paper.simulation import EXPERTS


@pytest.mark.parametrize("expert", EXPERTS)
def test_the_same_seed_gives_the_same_bits(expert):
    options = {"expert": expert, "noise": 0.1, "n_episodes": 3, "batch_size": 50}
    options |= {"top_k": 2} if "top_k" in EXPERTS[expert] else {}
    one, other = (ibcb.simulate("synthetic", seed=4, **options) for _ in range(2))
    for name in ("log", "test_log", "ood_log"):
        np.testing.assert_array_equal(getattr(one, name).contexts, getattr(other, name).contexts)
        np.testing.assert_array_equal(getattr(one, name).chosen, getattr(other, name).chosen)
    np.testing.assert_array_equal(one.rewards, other.rewards)
    assert not np.array_equal(one.log.contexts, ibcb.simulate("synthetic", seed=5, **options).log.contexts)


def test_streams_do_not_depend_on_each_other():
    short = small_run(n_episodes=2)
    long = small_run(n_episodes=5)
    rows = short.log.n_rows
    np.testing.assert_array_equal(short.log.contexts, long.log.contexts[:rows])
    np.testing.assert_array_equal(short.log.chosen, long.log.chosen[: short.log.n_steps])
    np.testing.assert_array_equal(small_run(warmup=0).test_log.contexts, small_run().test_log.contexts)
    flat = [small_run().log.contexts[-100:], small_run().test_log.contexts[-100:], small_run().ood_log.contexts[-100:]]
    correlation = np.corrcoef([(block - block.mean(axis=1, keepdims=True)).ravel() for block in flat])
    assert np.abs(correlation[np.triu_indices(3, 1)]).max() < 0.2


def test_contexts_and_rewards_follow_the_paper():
    run = ibcb.simulate("synthetic", noise=0.1, seed=1)
    contexts = run.world.learning.contexts
    assert contexts.shape == (20_000, 10, 10)
    np.testing.assert_allclose(
        contexts.mean(axis=0), np.repeat((1 - 0.4 * np.arange(10))[:, None], 10, axis=1), atol=3e-3
    )
    np.testing.assert_allclose(contexts.std(axis=0), 0.05, rtol=0.05)
    ood = run.world.ood.contexts.mean(axis=(0, 2))
    np.testing.assert_allclose(ood, [1.4, *(0.6 - 0.4 * np.arange(9))], atol=3e-3)
    w = Streams(1)["reward parameters"].normal(0.1, 0.01, 10)
    np.testing.assert_allclose(run.world.learning.expected, expit(contexts @ w), rtol=1e-12)
    log = run.log
    earned = run.rewards - expit(log.contexts[log.chosen_rows] @ w)
    assert abs(earned.mean()) < 5 * 0.1 / np.sqrt(len(earned))
    assert earned.std() == pytest.approx(0.1, rel=0.03)


def test_the_warm_up_is_random_and_marked():
    run = small_run(warmup=3000)
    assert (run.log.warmup, len(run.log), run.log.n_steps) == (1, 6, 3000 + 6 * 120)
    shares = np.bincount(run.log.chosen[:3000], minlength=7) / 3000
    np.testing.assert_allclose(shares, 1 / 7, atol=5 * np.sqrt(0.16 / 3000))
    assert small_run(warmup=0).log.warmup == 0


def test_duplicated_episodes_repeat_their_candidates_and_contradict_themselves():
    run = ibcb.simulate("synthetic", dup=3, seed=0, n_episodes=8, batch_size=200)
    sets = run.world.learning.contexts.reshape(8, -1)
    for n in range(3):
        np.testing.assert_array_equal(sets[n], sets[n + 3])
    assert not np.array_equal(sets[6], sets[3])
    chosen = run.log.chosen[run.log.policy_steps].reshape(8, 200)
    assert (chosen[:3] != chosen[3:6]).any()


def test_a_log_knows_no_rewards():
    run = small_run()
    held = {name for name in dir(run.log) if not name.startswith("__")}
    assert not [name for name in held if "reward" in name.lower()]
    assert not any(np.shares_memory(run.rewards, getattr(run.log, name)) for name in ("contexts", "chosen"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": -1}, "noise=-1"),
        ({"dup": 5, "n_episodes": 8}, "dup=5.*between 0 and 4"),
        ({"n_candidates": 0}, "n_candidates=0"),
        ({"warmup": -2}, "warmup=-2"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Synthetic(**settings)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="environment='mars'"):
        ibcb.simulate("mars")
    with pytest.raises(ValueError, match="expert='greedy'.*'sbucb', 'sbts'"):
        ibcb.simulate("synthetic", expert="greedy", n_episodes=2, batch_size=10)
    with pytest.raises(TypeError, match="'nois'.*noise"):
        ibcb.simulate("synthetic", nois=0.1)
    with pytest.raises(ValueError, match="seed=-1"):
        ibcb.simulate("synthetic", seed=-1)
