"""Feedback of the Open Bandit Pipeline: the log that its arrays stand for, and nothing of rewards."""

import numpy as np
import pytest

import ibcb
from ibcb import BehaviorLog, LogFormatError


@pytest.fixture
def feedback(rng):
    """As `obtain_batch_bandit_feedback` of its synthetic data gives it."""
    n, k = 12, 4
    return {
        "n_rounds": n,
        "n_actions": k,
        "context": rng.normal(size=(n, 3)),
        "action_context": rng.normal(size=(k, 2)),
        "action": rng.integers(k, size=n),
        "position": None,
        "reward": rng.integers(2, size=n),
        "expected_reward": rng.random((n, k)),
        "pi_b": np.full((n, k, 1), 1 / k),
        "pscore": np.full(n, 1 / k),
    }


def test_the_actions_are_the_candidates_of_every_round(feedback):
    log = ibcb.read_log(feedback, episode_size=4)
    every = np.broadcast_to(feedback["action_context"], (12, 4, 2))
    expected = BehaviorLog.from_episodes([(every[e : e + 4], feedback["action"][e : e + 4]) for e in (0, 4, 8)])
    for array in ("contexts", "step_offsets", "chosen", "episode_offsets"):
        np.testing.assert_array_equal(getattr(log, array), getattr(expected, array))
    assert log.feature_names == ("action_0", "action_1")
    (note,) = log.notes
    assert note.figures["features"] == ("context_0", "context_1", "context_2")


def test_contexts_are_crossed_and_actions_encoded_on_request(feedback):
    log = ibcb.read_log(feedback, episode_size=4, cross=[("context_*", "action_?")], one_hot=["action"])
    of_action = np.tile(np.column_stack([np.eye(4), feedback["action_context"]]), (12, 1))
    of_round = np.repeat(feedback["context"], 4, axis=0)
    products = (of_round[:, :, None] * of_action[:, None, 4:]).reshape(48, -1)
    np.testing.assert_allclose(log.contexts @ np.eye(log.n_features), np.column_stack([of_action, products]))


def test_actions_without_features_are_arms(feedback):
    log = ibcb.read_log(feedback | {"action_context": None}, episode_size=4)
    expected = BehaviorLog.from_arms(
        [(feedback["context"][e : e + 4], feedback["action"][e : e + 4]) for e in (0, 4, 8)],
        n_arms=4,
        feature_names=["context_0", "context_1", "context_2"],
    )
    assert log.feature_names == expected.feature_names
    np.testing.assert_array_equal(log.contexts @ np.eye(12), expected.contexts @ np.eye(12))
    for array in ("chosen", "step_offsets", "episode_offsets", "candidate_ids"):
        np.testing.assert_array_equal(getattr(log, array), getattr(expected, array))


@pytest.mark.parametrize("actions", ["with features", "arms"])
def test_rewards_and_propensities_change_nothing(feedback, actions):
    feedback |= {} if actions == "with features" else {"action_context": None}
    bare = {key: feedback.get(key) for key in ("action", "context", "action_context")}
    log, again = (ibcb.read_log(source, episode_size=4) for source in (feedback, bare))
    np.testing.assert_array_equal(log.contexts @ np.eye(log.n_features), again.contexts @ np.eye(again.n_features))
    np.testing.assert_array_equal(log.chosen, again.chosen)
    assert log.feature_names == again.feature_names


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"action": np.array([0, 4] + [0] * 10)}, r"action\[1\] is 4 but there are 4 actions; actions count from 0"),
        ({"n_actions": 5}, r"n_actions is 5 but action_context has 4 rows"),
        ({"context": np.ones((3, 2))}, r"context has 3 rows but action has 12"),
        ({"action_context": np.ones(4)}, r"action_context has shape \(4,\)"),
        ({"n_actions": 4.0, "action_context": None}, r"n_actions is 4\.0; it is the number of actions, a whole number"),
        ({"context": None, "action_context": None}, r"neither context nor action_context"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(feedback, changes, words):
    with pytest.raises(LogFormatError, match=words):
        ibcb.read_log(feedback | changes, episode_size=4)


# -- a log as feedback -----------------------------------------------------------------------------------------------


def even(log):
    """With even propensities of all candidates."""
    counts = np.diff(log.step_offsets)
    return log.with_propensities(np.repeat(1 / counts, counts))


def test_feedback_of_a_log_is_the_log_that_is_read_from_it(tmp_path, feedback):
    log = ibcb.read_log(feedback, episode_size=12)
    back = ibcb.io.to_feedback(log)
    for key in ("n_rounds", "n_actions", "action", "action_context", "pscore"):
        np.testing.assert_array_equal(back[key], feedback[key])
    assert "pi_b" not in back
    again = ibcb.read_log(back, episode_size=12)
    for array in ("contexts", "chosen", "step_offsets", "propensities", "candidate_ids"):
        np.testing.assert_array_equal(getattr(again, array), getattr(log, array))
    np.savez(tmp_path / "log.npz", **back)
    with pytest.raises(LogFormatError, match=r"'contexts' is missing: .*read_log\(numpy\.load\(path\)\)"):
        ibcb.read_log(tmp_path / "log.npz")
    with np.load(tmp_path / "log.npz") as stored:
        np.testing.assert_array_equal(ibcb.read_log(stored, episode_size=12).contexts, log.contexts)
    full = ibcb.io.to_feedback(even(log))
    np.testing.assert_allclose(full["pi_b"], feedback["pi_b"])
    np.testing.assert_allclose(full["pscore"], full["pi_b"][np.arange(12), full["action"], full["position"]])


def test_features_of_arms_are_the_context_once_and_their_constants_belong_to_the_action(rng):
    X, arms, Z = rng.normal(size=(30, 2)), rng.integers(3, size=30), rng.normal(size=(3, 2))
    log = BehaviorLog.from_arms([(np.c_[np.ones(30), X], arms)], arm_names=["a", "b", "c"], arm_features=Z)
    found = ibcb.io.to_feedback(even(log))
    np.testing.assert_array_equal(np.sort(found["context"], axis=1), np.sort(X, axis=1))
    np.testing.assert_array_equal(found["action_context"], np.c_[np.eye(3), Z])
    np.testing.assert_array_equal(found["action"], arms)
    assert found["actions"].tolist() == ["a", "b", "c"]


def test_what_a_step_does_not_offer_has_probability_0(rng):
    could = np.array([[True, True, False], [True, True, True], [False, True, True]])
    log = BehaviorLog.from_arms([(np.ones((3, 1)), [0, 2, 1])], available=[could])
    found = ibcb.io.to_feedback(even(log))
    np.testing.assert_allclose(found["pi_b"][:, :, 0], could / could.sum(axis=1, keepdims=True))
    assert found["action"].tolist() == [0, 2, 1]
    ragged = BehaviorLog.from_episodes([([rng.normal(size=(m, 2)) for m in (1, 3, 2)], [0, 2, 1])])
    found = ibcb.io.to_feedback(even(ragged))
    np.testing.assert_allclose(found["pi_b"][:, :, 0], [[1, 0, 0], [1 / 3] * 3, [0.5, 0.5, 0]])
    assert found["n_actions"] == 3
    # Both features vary from step to step, but of the third candidate, which is there once.
    assert "action_context" not in found
    assert found["context"].shape == (3, 4)


@pytest.mark.parametrize("count", [3, 4.5, "4", "", None, np.nan, 10**400, [4], True])
def test_a_number_of_actions_that_is_not_theirs_is_refused(feedback, count):
    with pytest.raises(LogFormatError, match=r"n_actions is .* but action_context has 4 rows"):
        ibcb.read_log(feedback | {"n_actions": count}, episode_size=4)


def test_feedback_needs_the_propensities_of_all_choices(rng):
    log = BehaviorLog.from_episodes([(rng.normal(size=(4, 2, 1)), [0, 1, 0, 1])])
    with pytest.raises(LogFormatError, match=r"has no propensities, which feedback needs.*with_propensities"):
        ibcb.io.to_feedback(log)
    with pytest.raises(LogFormatError, match=r"has no propensity of 2 choices"):
        ibcb.io.to_feedback(log.with_propensities([0.5, np.nan, np.nan, 0.5]))


def test_a_log_too_wide_for_feedback_is_refused(rng, monkeypatch):
    monkeypatch.setattr("ibcb.io.feedback._MOST_NUMBERS", 50)
    log = BehaviorLog.from_episodes([(rng.normal(size=(10, 2, 2)), np.zeros(10, dtype=int))])
    with pytest.raises(LogFormatError, match=r"a row per step: 10 x 6 numbers, and at most 50.*\.vw"):
        ibcb.io.to_feedback(even(log))
