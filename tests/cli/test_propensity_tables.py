"""Propensities as tables, and how much importance weights leave of a log."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import ragged_log

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.cli.tables import Overlap, recover_tables, worth


@pytest.fixture(scope="module")
def log():
    log = ragged_log(np.random.default_rng(3), episodes=3, steps=30)
    ids = np.array([f"step {number}" for number in range(log.n_steps)])
    return BehaviorLog(log.contexts, log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup, step_ids=ids)


@pytest.fixture(scope="module")
def model(log):
    return IBCB(expert="sbts", l2=0.7).fit(log)


def tables_of(model, log, **how):
    """The tables that are written, and what is told beside them."""
    tables = []

    def begin():
        tables.clear()
        return tables.append

    return tables, recover_tables(model, log, begin, **how)


def test_a_row_for_every_candidate_with_what_the_log_knows_of_it(log, model):
    tables, told = tables_of(model, log, ahead=True)
    table = pa.concat_tables(tables).to_pydict()
    counts, steps = np.diff(log.step_offsets), np.diff(log.episode_offsets)
    numbers = np.repeat(np.arange(-1, 3), steps)
    inside = np.concatenate([np.arange(count) for count in steps])
    assert table["episode"] == np.repeat(numbers, counts).tolist()
    assert table["step"] == np.repeat(inside, counts).tolist()
    assert table["step_id"] == np.repeat(log.step_ids, counts).tolist()
    assert table["candidate"] == np.concatenate([np.arange(count) for count in counts]).tolist()
    assert np.flatnonzero(table["chosen"]).tolist() == log.chosen_rows.tolist()
    assert table["propensity"] == model.propensities(log).tolist()
    assert table["ahead"] == model.propensities(log, ahead=True).tolist()
    assert "logged" not in table
    assert (told.fitted, told.rows, told.used.tolist()) == (True, log.n_rows, table["ahead"])
    some = np.where(np.arange(log.n_rows) % 2, np.nan, 0.1)
    some[log.chosen_rows] = 0.25
    (first, *_), _ = tables_of(model, log.with_propensities(some))
    assert "ahead" not in first.column_names
    assert first["logged"].to_pylist() == [None if np.isnan(value) else value for value in some[: len(first)]]


def test_a_log_in_many_parts_is_the_same_table(log, model, tmp_path, monkeypatch):
    whole, told = tables_of(model, log)
    monkeypatch.setattr("ibcb.io.parquet._GROUP_NUMBERS", 60)
    monkeypatch.setattr("ibcb.io.parquet._STREAM_NUMBERS", 60)
    monkeypatch.setattr("ibcb.log.behavior_log._PART_ROWS", 20)
    ibcb.write_log(log, tmp_path / "log.parquet")
    monkeypatch.setattr("ibcb.engine.episode_rows.KEPT_BYTES", 0)
    parts, again = tables_of(model, ibcb.open_log(tmp_path / "log.parquet"))
    assert len(parts) > 2 * len(whole)
    assert pa.concat_tables(parts).to_pydict() == pa.concat_tables(whole).to_pydict()
    assert (again.overlap, again.fitted) == (told.overlap, True)


def test_of_another_log_it_is_said_and_begun_afresh(log, model):
    """One that begins as the fitted one does is another log only once it goes on otherwise."""
    chosen = log.chosen.copy()
    chosen[-1] = (chosen[-1] + 1) % np.diff(log.step_offsets)[-1]
    other = BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=log.warmup)
    for each in (other, log[:2], log[1:]):
        tables, told = tables_of(model, each)
        assert not told.fitted
        assert pa.concat_tables(tables)["propensity"].to_pylist() == model.propensities(each).tolist()


def test_the_effective_size_is_that_of_equal_weights():
    p = np.array([0.5, 0.25, 0.125, 0.5])
    w = 0.5 / p
    assert worth(np.full(4, 0.5), p)[0] == pytest.approx(w.sum() ** 2 / (w**2).sum())
    # Equal weights count in full, choices that the target would not make not at all.
    assert worth(p, p)[0] == pytest.approx(4)
    assert worth(np.array([1.0, 0, 0, 1]), p)[0] == pytest.approx(2)
    assert worth(np.zeros(4), p)[0] == 0
    assert worth(np.ones(2), np.array([1e-300, 0.5]))[0] == pytest.approx(1)
    assert worth(np.ones(2), np.array([0.0, 0.5]))[0] == 1


def test_overlap_tells_of_two_policies(log, model):
    _, told = tables_of(model, log)
    chosen = model.propensities(log)[log.chosen_rows]
    evenly, taken = 1 / np.diff(log.step_offsets) / chosen, (model.predict(log) == log.chosen) / chosen
    found = told.overlap
    policies = (found.uniform, found.uniform_weight, evenly), (found.greedy, found.greedy_weight, taken)
    for size, weight, w in policies:
        assert size == pytest.approx(w.sum() ** 2 / (w**2).sum())
        assert weight == pytest.approx(w.mean())
        assert f"mean weight {w.mean():.2f}" in str(found)
    assert (found.steps, found.smallest) == (log.n_steps, chosen.min())
    assert found.rare == pytest.approx(np.mean(chosen < 0.01))
    assert "effective sample size of 120 steps" in str(found)
    rare = Overlap.of(np.array([0.9, 0.005, 0.5, 0.1]), np.ones(4), np.ones(4))
    assert rare.rare == 0.25
    assert "25.0% of choices below 0.01" in str(rare)


def test_a_choice_that_could_not_be_has_no_finite_weight():
    found = Overlap.of(np.zeros(4), np.full(4, 0.5), np.ones(4))
    assert found.greedy_weight == np.inf
    assert found.to_json()["greedy_weight"] is None
