"""BehaviorLog: what goes in comes out, by episode, without copies and without rewards."""

import copy
import math
import pickle

import numpy as np
import pytest
from conftest import ragged_log
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcb import BehaviorLog
from ibcb.log.fingerprint import log_fingerprint
from ibcb.log.notes import Note

reproducible = settings(derandomize=True, deadline=None, max_examples=50)


def dense_episodes(n=4, steps=5, candidates=3, d=2, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=(steps, candidates, d)).astype(dtype), rng.integers(candidates, size=steps)) for _ in range(n)
    ]


@st.composite
def ragged_episodes(draw, min_episodes=1, max_episodes=5, dtype=None):
    d = draw(st.integers(1, 3))
    sizes = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=min_episodes, max_size=max_episodes)
    )
    dtype = dtype or draw(st.sampled_from([np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return [
        ([rng.normal(size=(m, d)).astype(dtype) for m in steps], [int(rng.integers(m)) for m in steps])
        for steps in sizes
    ]


def steps_of(log):
    return [(log.candidates(step), int(log.chosen[step])) for step in range(log.n_steps)]


def assert_same_steps(found, expected):
    assert len(found) == len(expected)
    for (rows, chosen), (other_rows, other_chosen) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(rows, other_rows, strict=True)
        assert chosen == other_chosen


def assert_same_log(one, other):
    for name in ("contexts", "step_offsets", "chosen", "episode_offsets"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
    for name in ("timestamps", "step_ids"):
        assert (getattr(one, name) is None) == (getattr(other, name) is None)
        if getattr(one, name) is not None:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
    for name in ("warmup", "feature_names", "candidates_per_step"):
        assert getattr(one, name) == getattr(other, name)


# -- building ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_kept_as_given(dtype):
    episodes = dense_episodes(dtype=dtype)
    log = BehaviorLog.from_episodes(episodes)
    assert log.contexts.dtype == dtype
    np.testing.assert_array_equal(log.contexts, np.concatenate([c.reshape(-1, 2) for c, _ in episodes]))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.bool_])
def test_whole_numbers_and_booleans_become_float64(dtype):
    contexts = np.array([[[0, 1], [1, 0]]], dtype=dtype)
    log = BehaviorLog.from_episodes([(contexts, [1])])
    np.testing.assert_array_equal(log.contexts, contexts[0].astype(np.float64), strict=True)


def test_nested_lists_are_a_log():
    log = BehaviorLog.from_episodes([([[[0.5, 1], [1, 0]], [[2, 3]]], [1, 0])])
    np.testing.assert_array_equal(log.contexts, [[0.5, 1], [1, 0], [2, 3]])


def test_dense_and_ragged_forms_of_the_same_episodes_agree():
    episodes = dense_episodes()
    ragged = [(list(contexts), list(chosen)) for contexts, chosen in episodes]
    assert_same_log(BehaviorLog.from_episodes(ragged), BehaviorLog.from_episodes(episodes))


@pytest.mark.parametrize("chosen", [[0, 1], (0, 1), np.array([0, 1], np.uint8), np.array([0.0, 1.0], np.float32)])
def test_whole_choices_of_any_type_become_int64(chosen):
    log = BehaviorLog.from_episodes([(np.zeros((2, 2, 1)), chosen)])
    np.testing.assert_array_equal(log.chosen, np.array([0, 1], dtype=np.int64), strict=True)


@reproducible
@given(ragged_episodes())
def test_episodes_come_back_out_as_they_went_in(episodes):
    log = BehaviorLog.from_episodes(episodes)
    assert len(log) == len(episodes)
    for episode, (contexts, chosen) in zip(log, episodes, strict=True):
        assert_same_steps(steps_of(episode), list(zip(contexts, chosen, strict=True)))
    chosen_contexts = [contexts[pick] for step, picks in episodes for contexts, pick in zip(step, picks, strict=True)]
    np.testing.assert_array_equal(log.contexts[log.chosen_rows], chosen_contexts)
    assert log.n_rows == sum(len(contexts) for step, _ in episodes for contexts in step)


@reproducible
@given(ragged_episodes(), st.data())
def test_a_log_cut_into_episodes_and_rejoined_is_the_same_log(episodes, data):
    warmup = data.draw(st.integers(0, len(episodes) - 1))
    log = BehaviorLog.from_episodes(episodes, warmup=warmup)
    parts = [episode for _, episode in log.episodes()]
    pairs = [([part.candidates(step) for step in range(part.n_steps)], part.chosen) for part in parts]
    assert_same_log(BehaviorLog.from_episodes(pairs, warmup=warmup), log)


@reproducible
@given(ragged_episodes())
def test_flat_arrays_make_the_same_log_without_a_copy(episodes):
    log = BehaviorLog.from_episodes(episodes)
    again = BehaviorLog(log.contexts, log.step_offsets, log.chosen, log.episode_offsets)
    assert_same_log(again, log)
    for name in ("contexts", "step_offsets", "chosen", "episode_offsets"):
        assert np.shares_memory(getattr(again, name), getattr(log, name))


@reproducible
@given(ragged_episodes())
def test_candidates_per_step_is_known_exactly_where_it_is_common(episodes):
    log = BehaviorLog.from_episodes(episodes)
    for part in (log, *log):
        counts = {len(part.candidates(step)) for step in range(part.n_steps)}
        assert part.candidates_per_step == (counts.pop() if len(counts) == 1 else None)


# -- slicing -------------------------------------------------------------------------------------------------------


def full_log(n=5, warmup=0, dtype=np.float64):
    episodes = dense_episodes(n + warmup, dtype=dtype)
    steps = 5 * (n + warmup)
    return BehaviorLog.from_episodes(
        episodes,
        warmup=warmup,
        feature_names=["price", "age"],
        timestamps=np.arange(steps) * 0.5,
        step_ids=np.arange(100, 100 + steps),
    )


@pytest.mark.parametrize("key", [slice(1, 3), slice(None, 2), slice(-2, None), slice(None), 0, 3, -1])
def test_slices_share_memory(key):
    log = full_log()
    part = log[key]
    for name in ("contexts", "chosen", "timestamps", "step_ids"):
        assert np.shares_memory(getattr(part, name), getattr(log, name))


@pytest.mark.parametrize("part", [lambda log: log[1:3], lambda log: log.head(0.5), lambda log: next(iter(log))])
def test_every_array_is_read_only_also_in_slices(part):
    for log in (full_log(), part(full_log())):
        for name in ("contexts", "step_offsets", "chosen", "episode_offsets", "timestamps", "step_ids"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(log, name)[0] = 0


def test_building_a_log_leaves_the_given_arrays_writeable():
    contexts, chosen = np.zeros((4, 2)), np.zeros(2, dtype=np.int64)
    BehaviorLog(contexts, [0, 2, 4], chosen, [0, 2])
    contexts[0, 0] = chosen[0] = 1


@reproducible
@given(ragged_episodes(), st.data())
def test_a_slice_holds_exactly_its_episodes(episodes, data):
    log = BehaviorLog.from_episodes(episodes)
    a = data.draw(st.integers(0, len(episodes) - 1))
    b = data.draw(st.integers(a + 1, len(episodes)))
    assert_same_log(log[a:b], BehaviorLog.from_episodes(episodes[a:b]))


@reproducible
@given(ragged_episodes(min_episodes=2), st.data())
def test_slices_compose(episodes, data):
    warmup = data.draw(st.integers(0, len(episodes) - 2))
    steps = sum(len(chosen) for _, chosen in episodes)
    log = BehaviorLog.from_episodes(episodes, warmup=warmup, timestamps=np.arange(steps), step_ids=np.arange(steps))
    a = data.draw(st.integers(0, len(log) - 1))
    b = data.draw(st.integers(a + 1, len(log)))
    c = data.draw(st.integers(0, b - a - 1))
    d = data.draw(st.integers(c + 1, b - a))
    assert_same_log(log[a:b][c:d], log[a + c : a + d])


@pytest.mark.parametrize("key", [5, -6, slice(3, 3), slice(4, 2), slice(7, 9)])
def test_episodes_that_do_not_exist_raise_index_error(key):
    with pytest.raises(IndexError, match="episodes 0 to 4"):
        full_log(n=5)[key]


def test_skipping_episodes_is_refused():
    with pytest.raises(ValueError, match=r"log\[::2\] skips episodes; only consecutive"):
        full_log()[::2]


@pytest.mark.parametrize("n, warmup", [(1, 2), (3, 0), (7, 2), (20, 0)])
def test_head_is_the_papers_ce_rate(n, warmup):
    log = full_log(n=n, warmup=warmup)
    for fraction in (0.05, 0.1, 0.25, 1 / 3, 0.5, 0.7, 1, 1.0):
        count = math.floor(round(fraction * n, 9))
        if count == 0:
            with pytest.raises(ValueError, match=f"of {n} episodes? holds no whole episode; take at least"):
                log.head(fraction)
        else:
            assert len(log.head(fraction)) == count
            assert_same_log(log.head(fraction), log[:count])


@pytest.mark.parametrize("fraction", [0, -0.5, 1.01, 20, math.nan])
def test_head_takes_only_shares(fraction):
    with pytest.raises(ValueError, match=rf"head\({fraction}\).*above 0 and at most 1"):
        full_log().head(fraction)


# -- warm-up -------------------------------------------------------------------------------------------------------


def test_length_head_and_iteration_leave_the_warmup_out():
    log = full_log(n=4, warmup=2)
    assert len(log) == len(list(log)) == 4
    assert len(log.head(0.5)) == 2
    assert log.n_steps == 6 * 5
    np.testing.assert_array_equal(log.step_ids[log.policy_steps], log.step_ids[10:])


def test_episodes_gives_every_stored_episode_and_who_chose_it():
    log = full_log(n=3, warmup=2)
    stored = list(log.episodes())
    assert [by_policy for by_policy, _ in stored] == [False, False, True, True, True]
    assert all(len(episode) == 1 and episode.warmup == 0 for _, episode in stored)
    np.testing.assert_array_equal(np.concatenate([episode.step_ids for _, episode in stored]), log.step_ids)


# -- the rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "log, expected",
    [
        (full_log(n=5), "BehaviorLog(5 episodes, 25 steps, 3 candidates each, 2 features, float64)"),
        (
            full_log(n=1, warmup=2, dtype=np.float32),
            "BehaviorLog(1 episode after 2 of warm-up, 15 steps, 3 candidates each, 2 features, float32)",
        ),
        (
            BehaviorLog.from_episodes([([np.zeros((2, 3)), np.zeros((5, 3))], [0, 0])]),
            "BehaviorLog(1 episode, 2 steps, 2 to 5 candidates, 3 features, float64)",
        ),
        (
            BehaviorLog.from_episodes([(np.zeros((1, 1, 1)), [0])]),
            "BehaviorLog(1 episode, 1 step, 1 candidate each, 1 feature, float64)",
        ),
    ],
)
def test_repr_says_what_the_log_holds(log, expected):
    assert repr(log) == expected


def test_timestamps_and_ids_are_kept_in_their_own_type():
    stamps = np.datetime64("2024-01-01", "s") + np.arange(20)
    names = np.array([f"step-{i}" for i in range(20)])
    log = BehaviorLog.from_episodes(dense_episodes(), timestamps=stamps, step_ids=names)
    np.testing.assert_array_equal(log.timestamps, stamps, strict=True)
    np.testing.assert_array_equal(log.step_ids, names, strict=True)


def test_there_is_no_place_for_rewards():
    log = full_log()
    assert not [name for name in dir(log) if "reward" in name.lower()]
    with pytest.raises(AttributeError):
        log.rewards = np.zeros(log.n_steps)
    with pytest.raises(TypeError, match="rewards"):
        BehaviorLog.from_episodes(dense_episodes(), rewards=np.zeros(20))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda log: pickle.loads(pickle.dumps(log))])
def test_logs_can_be_copied_and_sent_to_other_processes(duplicate):
    log = full_log(warmup=1)
    assert_same_log(duplicate(log), log)
    assert_same_log(duplicate(log[1:3]), log[1:3])


def test_notes_go_with_slices_and_are_no_part_of_the_fingerprint(rng):
    notes = [Note("reward-like-columns", "warning", "left out.", {"columns": ("cost",)})]
    plain = ragged_log(rng)
    offsets = plain.step_offsets, plain.chosen, plain.episode_offsets
    noted = BehaviorLog(plain.contexts, *offsets, warmup=plain.warmup, notes=notes)
    assert plain.notes == ()
    for log in (noted, noted[1], noted[:2], noted.head(0.5), *noted):
        assert log.notes == tuple(notes)
    assert log_fingerprint(noted) == log_fingerprint(plain)
    assert pickle.loads(pickle.dumps(noted)).notes == noted.notes
