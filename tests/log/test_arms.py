"""Logs of arms: every arm has its own weights on the features of the step."""

import numpy as np
import pytest
from arm_worlds import disjoint_ucb, features, written_out
from scipy import sparse

import ibcb
from ibcb import BehaviorLog


@pytest.fixture(scope="module")
def episodes():
    return disjoint_ucb(8, 9, 3, 60, seed=0)[0]


def test_arms_are_candidates_with_features_in_columns_of_their_own(episodes):
    log = BehaviorLog.from_arms(episodes, warmup=1)
    same = BehaviorLog.from_episodes(written_out(episodes, 8), warmup=1)
    assert sparse.issparse(log.contexts)
    np.testing.assert_array_equal(log.contexts.toarray(), same.contexts)
    np.testing.assert_array_equal(log.chosen, same.chosen)
    np.testing.assert_array_equal(log.step_offsets, same.step_offsets)
    np.testing.assert_array_equal(log.candidate_ids[log.chosen_rows], np.concatenate([arm for _, arm in episodes]))


def test_names_tell_arm_and_feature():
    X, arm = np.ones((4, 2)), [0, 1, 1, 0]
    log = BehaviorLog.from_arms(
        [(X, arm)],
        arm_names=["red", "blue"],
        feature_names=["age", "visits"],
        arm_features=[[1.0], [2.0]],
        arm_feature_names=["price"],
    )
    assert log.feature_names == ("arm=red:age", "arm=red:visits", "arm=blue:age", "arm=blue:visits", "price")
    np.testing.assert_array_equal(log.candidates(0), [[1, 1, 0, 0, 1], [0, 0, 1, 1, 2]])
    assert log.candidate_ids[:2].tolist() == ["red", "blue"]


def test_without_features_an_arm_is_one_number():
    log = BehaviorLog.from_arms([(np.empty((3, 0)), [2, 0, 1])])
    assert log.feature_names == ("arm=0", "arm=1", "arm=2")
    # So few stay dense.
    assert isinstance(log.contexts, np.ndarray)
    np.testing.assert_array_equal(log.candidates(1), np.eye(3))


@pytest.mark.parametrize("form", ["of the episode", "of each step", "lists"])
def test_arms_appear_and_retire(form):
    could = np.array([True, False, True])
    X, arm = np.arange(8.0).reshape(4, 2), [2, 0, 0, 2]
    given = {"of the episode": could, "of each step": np.tile(could, (4, 1)), "lists": [[0, 2]] * 4}[form]
    log = BehaviorLog.from_arms([(X, [0, 1, 2, 0]), (X, arm)], n_arms=3, available=[None, given], warmup=1)
    assert np.diff(log.step_offsets).tolist() == [3] * 4 + [2] * 4
    late = log[0:]
    assert late.candidate_ids[late.chosen_rows].tolist() == [0, 1, 2, 0, *arm]
    np.testing.assert_array_equal(log.candidates(5), [[2, 3, 0, 0, 0, 0], [0, 0, 0, 0, 2, 3]])


def test_arms_that_were_never_chosen_are_noted():
    log = BehaviorLog.from_arms([(np.ones((2, 1)), [0, 1])], n_arms=4)
    assert [(note.code, note.figures["arms"]) for note in log.notes] == [("arms-never-chosen", 2)]
    assert not BehaviorLog.from_arms([(np.ones((2, 1)), [0, 1])]).notes


def test_a_disjoint_decider_is_imitated_also_where_arms_come_and_go():
    could = np.ones((7, 6), dtype=bool)
    could[1:3, 5] = could[4:, 0] = False
    done, policy = disjoint_ucb(6, 5, 6, 300, seed=3, could=could)
    log = BehaviorLog.from_arms(done, n_arms=6, available=list(could), warmup=1)
    model = ibcb.IBCB(l2=1.0).fit(log)
    X = features(np.random.default_rng(9), 2000, 5)
    scores = np.where(could[-1], X @ policy.T, -np.inf)
    fresh = BehaviorLog.from_arms([(X, scores.argmax(axis=1))], n_arms=6, available=[could[-1]])
    assert model.score(fresh) > 0.95
