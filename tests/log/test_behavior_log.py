"""BehaviorLog: what goes in comes out, by episode, without copies and without rewards."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from same import assert_same
from strategies import assert_same_log, logs, reproducible

from ibcb import BehaviorLog
from ibcb.log.fingerprint import log_fingerprint
from ibcb.log.notes import Note

ARRAYS = ("contexts", "step_offsets", "chosen", "episode_offsets", "timestamps", "step_ids")
NOTE = Note("reward-like-columns", "warning", "left out.", {"columns": ("cost",)})


def full_log(n=5, warmup=0, dtype=np.float64):
    rng, steps = np.random.default_rng(0), 5 * (n + warmup)
    pairs = [(rng.normal(size=(5, 3, 2)).astype(dtype), rng.integers(3, size=5)) for _ in range(n + warmup)]
    return BehaviorLog.from_episodes(
        pairs,
        warmup=warmup,
        feature_names=["price", "age"],
        timestamps=np.arange(steps) * 0.5,
        step_ids=np.arange(100, 100 + steps),
    )


def as_pairs(log):
    """One (list of candidate sets, choices) per stored episode."""
    parts = [episode for _, episode in log.episodes()]
    return [([part.candidates(step) for step in range(part.n_steps)], part.chosen.tolist()) for part in parts]


# -- building ------------------------------------------------------------------------------------------------------


def test_numbers_are_kept_as_floats_of_their_own_width():
    plain = [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]]]
    for dtype in (np.float32, np.float64, np.int8, np.int64, np.uint16, np.bool_):
        contexts, kept = np.array(plain, dtype=dtype), np.float32 if dtype == np.float32 else np.float64
        for form in (contexts, list(contexts)):
            log = BehaviorLog.from_episodes([(form, [1, 0])])
            np.testing.assert_array_equal(log.contexts, contexts.reshape(4, 2).astype(kept), strict=True)
    ragged = BehaviorLog.from_episodes([([[[0.5, 1], [1, 0]], [[2, 3]]], [1, 0])])
    np.testing.assert_array_equal(ragged.contexts, [[0.5, 1], [1, 0], [2, 3]])
    for chosen in ([0, 1], (0, 1), np.array([0, 1], np.uint8), np.array([0.0, 1.0], np.float32)):
        log = BehaviorLog.from_episodes([(plain, chosen)])
        np.testing.assert_array_equal(log.chosen, np.array([0, 1], dtype=np.int64), strict=True)


@reproducible
@given(logs())
def test_episodes_come_back_out_as_they_went_in(log):
    beside = {name: getattr(log, name) for name in ("feature_names", "timestamps", "step_ids", "propensities")}
    pairs = as_pairs(log)
    assert_same_log(BehaviorLog.from_episodes(pairs, warmup=log.warmup, **beside), log)
    chosen = [sets[pick] for candidates, picks in pairs for sets, pick in zip(candidates, picks, strict=True)]
    np.testing.assert_array_equal(log.contexts[log.chosen_rows], chosen)
    again = BehaviorLog(log.contexts, log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup, **beside)
    assert_same_log(again, log)
    assert all(np.shares_memory(getattr(again, name), getattr(log, name)) for name in ARRAYS[:4])
    for part in (log, *log):
        counts = set(np.diff(part.step_offsets).tolist())
        assert part.candidates_per_step == (counts.pop() if len(counts) == 1 else None)


# -- slicing -------------------------------------------------------------------------------------------------------


@reproducible
@given(logs(), st.data())
def test_a_slice_holds_exactly_its_episodes_and_slices_compose(log, data):
    a = data.draw(st.integers(0, len(log) - 1))
    b = data.draw(st.integers(a + 1, len(log)))
    c = data.draw(st.integers(0, b - a - 1))
    d = data.draw(st.integers(c + 1, b - a))
    part = log[a:b]
    assert part.warmup == (log.warmup if a == 0 else 0)
    first = a + log.warmup if a else 0
    expected = as_pairs(log)[first : b + log.warmup]
    for (sets, chosen), (other, picks) in zip(as_pairs(part), expected, strict=True):
        assert chosen == picks
        for one, two in zip(sets, other, strict=True):
            np.testing.assert_array_equal(one, two, strict=True)
    assert_same_log(part[c:d], log[a + c : a + d])


@pytest.mark.parametrize("key", [slice(1, 3), slice(None, 2), slice(-2, None), slice(None), 0, 3, -1])
def test_slices_share_memory_that_nobody_may_write_to_and_keep_notes(key):
    log = full_log()._with(notes=(NOTE,))
    for part in (log, log[key]):
        assert part.notes == (NOTE,)
        for name in ARRAYS:
            with pytest.raises(ValueError, match="read-only"):
                getattr(part, name)[0] = 0
        assert all(np.shares_memory(getattr(part, name), getattr(log, name)) for name in ARRAYS if "off" not in name)
    assert log_fingerprint(log) == log_fingerprint(full_log())


def test_building_a_log_leaves_the_given_arrays_writeable():
    contexts, chosen = np.zeros((4, 2)), np.zeros(2, dtype=np.int64)
    BehaviorLog(contexts, [0, 2, 4], chosen, [0, 2])
    contexts[0, 0] = chosen[0] = 1


@pytest.mark.parametrize("key", [5, -6, slice(3, 3), slice(4, 2), slice(7, 9)])
def test_episodes_that_do_not_exist_raise_index_error(key):
    with pytest.raises(IndexError, match="episodes 0 to 4"):
        full_log(n=5)[key]


def test_skipping_episodes_is_refused():
    with pytest.raises(ValueError, match=r"log\[::2\] skips episodes; only consecutive"):
        full_log()[::2]


@pytest.mark.parametrize("n, warmup", [(1, 2), (7, 2), (20, 0)])
def test_head_is_the_papers_ce_rate(n, warmup):
    log = full_log(n=n, warmup=warmup)
    for fraction in (0.05, 0.1, 0.25, 1 / 3, 0.5, 0.7, 1, 1.0):
        count = math.floor(round(fraction * n, 9))
        if count == 0:
            with pytest.raises(ValueError, match=f"of {n} episodes? holds no whole episode; take at least"):
                log.head(fraction)
        else:
            assert_same_log(log.head(fraction), log[:count])


@pytest.mark.parametrize("fraction", [0, -0.5, 1.01, 20, math.nan])
def test_head_takes_only_shares(fraction):
    with pytest.raises(ValueError, match=rf"head\({fraction}\).*above 0 and at most 1"):
        full_log().head(fraction)


def test_the_warmup_is_stored_and_not_counted():
    log = full_log(n=4, warmup=2)
    assert len(log) == len(list(log)) == 4
    assert len(log.head(0.5)) == 2
    assert log.n_steps == 6 * 5
    np.testing.assert_array_equal(log.step_ids[log.policy_steps], log.step_ids[10:])
    by_policy, stored = zip(*log.episodes(), strict=True)
    assert by_policy == (False, False, True, True, True, True)
    assert all(len(episode) == 1 and episode.warmup == 0 for episode in stored)
    np.testing.assert_array_equal(np.concatenate([episode.step_ids for episode in stored]), log.step_ids)


# -- the rest ------------------------------------------------------------------------------------------------------


def test_repr_says_what_the_log_holds():
    of_kinds = [
        full_log(n=1, warmup=2, dtype=np.float32),
        BehaviorLog.from_episodes([([np.zeros((2, 3)), np.zeros((5, 3))], [0, 0])]),
        BehaviorLog.from_episodes([(np.zeros((1, 1, 1)), [0])]),
    ]
    assert [repr(log) for log in of_kinds] == [
        "BehaviorLog(1 episode after 2 of warm-up, 15 steps, 3 candidates each, 2 features, float32)",
        "BehaviorLog(1 episode, 2 steps, 2 to 5 candidates, 3 features, float64)",
        "BehaviorLog(1 episode, 1 step, 1 candidate each, 1 feature, float64)",
    ]


def test_timestamps_and_ids_are_kept_in_their_own_type():
    stamps = np.datetime64("2024-01-01", "s") + np.arange(20)
    names = np.array([f"step-{i}" for i in range(20)])
    log = BehaviorLog.from_episodes(as_pairs(full_log(4)), timestamps=stamps, step_ids=names)
    np.testing.assert_array_equal(log.timestamps, stamps, strict=True)
    np.testing.assert_array_equal(log.step_ids, names, strict=True)


def test_there_is_no_place_for_rewards():
    log = full_log()
    assert not [name for name in dir(log) if "reward" in name.lower()]
    with pytest.raises(AttributeError):
        log.rewards = np.zeros(log.n_steps)
    with pytest.raises(TypeError, match="rewards"):
        BehaviorLog.from_episodes(as_pairs(log), rewards=np.zeros(25))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda log: pickle.loads(pickle.dumps(log))])
def test_logs_can_be_copied_and_sent_to_other_processes(duplicate):
    log = full_log(warmup=1)._with(notes=(NOTE,))
    for part in (log, log[1:3]):
        assert_same(duplicate(part), part)
