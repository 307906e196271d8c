"""Propensities as tables, and how much importance weights leave of a log."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from ibcb import BehaviorLog
from ibcb.estimators.propensity_tables import effective_size, overlap, propensity_tables


@pytest.fixture
def log(rng):
    episodes = [([rng.normal(size=(m, 2)) for m in (2, 3, 1)], [1, 0, 0]), ([rng.normal(size=(2, 2))], [1])]
    return BehaviorLog.from_episodes(episodes, warmup=1, step_ids=np.array(["a", "b", "c", "d"]))


def test_a_row_for_every_candidate_with_what_the_log_knows_of_it(log, rng):
    p, q = rng.random((2, log.n_rows))
    table = pa.concat_tables(propensity_tables(log, propensity=p, ahead=q)).to_pydict()
    assert table["episode"] == [-1] * 6 + [0] * 2
    assert table["step"] == [0, 0, 1, 1, 1, 2, 0, 0]
    assert table["step_id"] == list("aabbbcdd")
    assert table["candidate"] == [0, 1, 0, 1, 2, 0, 0, 1]
    assert np.flatnonzero(table["chosen"]).tolist() == log.chosen_rows.tolist()
    assert (table["propensity"], table["ahead"]) == (p.tolist(), q.tolist())
    assert "logged" not in table
    some = np.where(np.arange(log.n_rows) % 2, np.nan, 0.5)
    some[log.chosen_rows] = 0.25
    (first, *_) = propensity_tables(log.with_propensities(some), propensity=p)
    assert first["logged"].to_pylist() == [None if np.isnan(value) else value for value in some[:6]]


def test_a_log_in_many_parts_is_the_same_table(log, rng, monkeypatch):
    p = rng.random(log.n_rows)
    whole = pa.concat_tables(propensity_tables(log, propensity=p))
    monkeypatch.setattr("ibcb.log.behavior_log._PART_ROWS", 2)
    parts = list(propensity_tables(log, propensity=p))
    assert len(parts) == 4
    assert pa.concat_tables(parts).equals(whole)


def test_the_effective_size_is_that_of_equal_weights():
    p = np.array([0.5, 0.25, 0.125, 0.5])
    w = 0.5 / p
    assert effective_size(np.full(4, 0.5), p) == pytest.approx(w.sum() ** 2 / (w**2).sum())
    # Equal weights count in full, choices that the target would not make not at all.
    assert effective_size(p, p) == pytest.approx(4)
    assert effective_size(np.array([1.0, 0, 0, 1]), p) == pytest.approx(2)
    assert effective_size(np.zeros(4), p) == 0
    assert effective_size(np.ones(2), np.array([1e-300, 0.5])) == pytest.approx(1)
    assert effective_size(np.ones(2), np.array([0.0, 0.5])) == 1


def test_overlap_tells_of_two_policies(log):
    p = np.array([0.9, 0.1, 0.005, 0.5, 0.495, 1.0, 0.4, 0.6])
    picks = {"a": 0, "b": 0, "c": 0, "d": 1}
    model = SimpleNamespace(predict=lambda part: np.array([picks[name] for name in part.step_ids]))
    found = overlap(model, log, p)
    chosen = p[log.chosen_rows]
    evenly, taken = np.array([1 / 2, 1 / 3, 1, 1 / 2]) / chosen, np.array([0, 1, 1, 1]) / chosen
    policies = (found.uniform, found.uniform_weight, evenly), (found.greedy, found.greedy_weight, taken)
    for size, weight, w in policies:
        assert size == pytest.approx(w.sum() ** 2 / (w**2).sum())
        assert weight == pytest.approx(w.mean())
        assert f"mean weight {w.mean():.2f}" in str(found)
    assert (found.steps, found.smallest, found.rare) == (4, 0.005, 0.25)
    assert "effective sample size of 4 steps" in str(found)
    assert "25.0% of choices below 0.01" in str(found)


def test_a_choice_that_could_not_be_has_no_finite_weight(log):
    p = np.zeros(log.n_rows)
    found = overlap(SimpleNamespace(predict=lambda part: part.chosen), log, p)
    assert found.greedy_weight == np.inf
    assert found.to_json()["greedy_weight"] is None
