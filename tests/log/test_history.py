"""What came before each episode, recomputed from all steps before it; whole episodes against parts of them."""

import numpy as np
import pytest
from conftest import ragged_log, small_run
from hypothesis import given
from strategies import assert_same_log, logs, reproducible

import ibcb
from ibcb import BehaviorLog
from ibcb.log.history import history
from ibcb.numerics.ridge import gram


def on_disk(log, folder, monkeypatch, numbers=60):
    """The same log on disk, read a few numbers at a time."""
    ibcb.write_log(log, folder / "log.parquet")
    monkeypatch.setattr("ibcb.io.parquet._STREAM_NUMBERS", numbers)
    return ibcb.open_log(folder / "log.parquet")


def before(log, number):
    """The contexts chosen before an episode, in one array."""
    steps = int(log.episode_offsets[number + log.warmup])
    return log.contexts[log.chosen_rows[:steps]].astype(np.float64)


@given(logs())
@reproducible
def test_an_episode_in_memory_comes_whole_after_the_choices_before_it(log):
    entries = list(history(log))
    assert [entry.number for entry in entries] == list(range(-log.warmup, len(log)))
    assert [entry.by_policy for entry in entries] == [by_policy for by_policy, _ in log.episodes()]
    for entry, (_, episode) in zip(entries, log.episodes(), strict=True):
        assert entry.first == 0
        assert_same_log(entry.part, episode)
        S, own = before(log, entry.number), episode.contexts[episode.chosen_rows].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            # Sums of any finite numbers: only those that stay far from overflow can be compared.
            sane = np.abs(log.contexts).max() < 1e100
            size = np.abs(S).sum(axis=0)
            if sane:
                np.testing.assert_allclose(entry.gram, S.T @ S, rtol=1e-9, atol=1e-12 * (1 + size.max()) ** 2)
                np.testing.assert_allclose(entry.total, S.sum(axis=0), rtol=1e-9, atol=1e-12 * (1 + size.max()))
            np.testing.assert_array_equal(entry.own_gram, gram(own))


def test_parts_share_what_came_before_their_episode_and_add_up_to_it(tmp_path, monkeypatch, rng):
    log = ragged_log(rng, warmup=2)
    whole = {entry.number: entry for entry in history(log)}
    steps, seen = dict.fromkeys(whole, 0), dict.fromkeys(whole, 0.0)
    entries = list(history(on_disk(log, tmp_path, monkeypatch)))
    assert len(entries) > 2 * len(whole)
    for entry in entries:
        assert entry.first == steps[entry.number]
        steps[entry.number] += entry.part.n_steps
        seen[entry.number] = seen[entry.number] + entry.own_gram
        np.testing.assert_allclose(entry.gram, whole[entry.number].gram, rtol=1e-12)
        np.testing.assert_allclose(entry.total, whole[entry.number].total, rtol=1e-12, atol=1e-12)
    assert list(dict.fromkeys(entry.number for entry in entries)) == list(whole)
    for number, entry in whole.items():
        assert steps[number] == entry.part.n_steps
        np.testing.assert_allclose(seen[number], entry.own_gram, rtol=1e-12)
        rows = [part.part.contexts for part in entries if part.number == number]
        np.testing.assert_array_equal(np.concatenate(rows), entry.part.contexts)


@pytest.mark.parametrize("disk", [False, True])
def test_a_log_goes_on_where_its_first_episodes_end(tmp_path, monkeypatch, disk):
    """The Gram matrix of the first episodes, given as what came before, leads to the same as the whole log."""
    log = small_run().log
    experience = next(entry for entry in history(log) if entry.number == 3).gram
    later = on_disk(log[3:], tmp_path, monkeypatch, 2000) if disk else log[3:]
    whole = {entry.number: entry.gram for entry in history(log)}
    for entry in history(later, prior_gram=experience):
        np.testing.assert_allclose(entry.gram, whole[entry.number + 3], rtol=1e-12)
    assert not next(history(later, prior_gram=experience)).total.any()


def test_what_was_yielded_does_not_change_and_the_prior_is_not_touched():
    log = small_run().log
    prior = np.eye(log.n_features)
    entries = list(history(log, prior))
    kept = [(entry.gram.copy(), entry.total.copy()) for entry in history(log, prior)]
    for entry, (phi, total) in zip(entries, kept, strict=True):
        np.testing.assert_array_equal(entry.gram, phi)
        np.testing.assert_array_equal(entry.total, total)
    np.testing.assert_array_equal(prior, np.eye(log.n_features))


def test_sums_that_overflow_are_left_to_whoever_factors_them():
    huge = BehaviorLog.from_episodes([(np.full((2, 1, 1), 1e308), [0, 0]) for _ in range(3)])
    assert np.isinf([entry.gram[0, 0] for entry in history(huge)]).tolist() == [False, True, True]
