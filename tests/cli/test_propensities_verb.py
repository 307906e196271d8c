"""`ibcb propensities`: tables, feedback and labels of the same probabilities, and what they are worth."""

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from commands import succeeds
from conftest import ragged_log

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.cli.choice_tables import Overlap, recover_tables, worth


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("propensities")
    for expert in ("sbts", "sbucb", "egreedy"):
        run = ibcb.simulate(expert=expert, n_episodes=4, batch_size=30, n_candidates=4, n_features=3, warmup=40, seed=1)
        ibcb.save_model(ibcb.IBCB(expert=expert, l2=1.0).fit(run.log), path / f"{expert}.safetensors")
        ibcb.write_log(run.log, path / f"{expert}.parquet")
    return path


@pytest.fixture
def sampler(folder):
    """Arguments for a Thompson sampler's log, the model and the log."""
    paths = folder / "sbts.safetensors", folder / "sbts.parquet"
    return paths, ibcb.load_model(paths[0]), ibcb.read_log(paths[1])


def tables_of(model, log, **how):
    """The tables that are written, and what is told beside them."""
    tables = []

    def begin():
        tables.clear()
        return tables.append

    return tables, recover_tables(model, log, begin, **how)


def test_a_table_is_written_with_a_row_per_candidate(sampler, tmp_path):
    paths, model, log = sampler
    tables, told = tables_of(model, log, ahead=True)
    whole = pa.concat_tables(tables).to_pydict()
    for out, read in ((tmp_path / "out.parquet", pq.read_table), (tmp_path / "out.csv", pacsv.read_csv)):
        result = succeeds("propensities", *paths, "-o", out, "--ahead")
        assert result.stdout == ""
        assert f"overlap: {told.overlap}" in result.stderr
        assert "warning" not in result.stderr
        assert f"{out.name}: {log.n_rows} propensities" in result.stderr
        assert read(out).to_pydict() == whole


def test_without_a_file_it_is_csv_or_json_and_nothing_else(sampler):
    paths, model, log = sampler
    rows = list(csv.DictReader(io.StringIO(succeeds("propensities", *paths).stdout)))
    assert [float(row["propensity"]) for row in rows] == model.propensities(log).tolist()
    told = json.loads(succeeds("propensities", *paths, "--json").stdout)
    assert told["propensity"] == model.propensities(log).tolist()
    assert told["overlap"] == tables_of(model, log)[1].overlap.to_json()
    assert told["rows"] == log.n_rows


def test_it_is_said_where_the_log_is_not_the_fitted_one(sampler, tmp_path):
    """One policy counts for all of it, which a reader would not see."""
    paths, _, log = sampler
    ibcb.write_log(log[1:], tmp_path / "part.parquet")
    for path, fitted in ((paths[1], True), (tmp_path / "part.parquet", False)):
        result = succeeds("propensities", paths[0], path, "--ahead", "--json")
        assert ("note: this is not the log that the model was fitted on" in result.stderr) != fitted
        told = json.loads(result.stdout)
        assert told["fitted_log"] == fitted
        assert (told["propensity"] == told["ahead"]) != fitted


def test_a_decider_that_draws_nothing_is_warned_of(folder, tmp_path):
    for kind, warned in (("sbucb", True), ("egreedy", False)):
        paths = folder / f"{kind}.safetensors", folder / f"{kind}.parquet"
        result = succeeds("propensities", *paths, "-o", tmp_path / "out.csv")
        assert (f"warning: a decider of the kind {kind}(l2=1) does not draw" in result.stderr) == warned
        assert ("rest on the model alone" in result.stderr) == warned
        told = json.loads(succeeds("propensities", *paths, "--json").stdout)
        assert ("propensities-of-belief" in [note["code"] for note in told["notes"]]) == warned


def test_logged_ones_stand_beside(sampler, tmp_path, rng):
    (model_path, _), _, log = sampler
    logged = np.full(log.n_rows, np.nan)
    logged[log.chosen_rows] = rng.uniform(0.1, 1, size=log.n_steps)
    ibcb.write_log(log.with_propensities(logged), tmp_path / "log.parquet")
    told = json.loads(succeeds("propensities", model_path, tmp_path / "log.parquet", "--json").stdout)
    assert told["logged"] == [None if np.isnan(value) else value for value in logged]


@pytest.mark.parametrize("ahead", [False, True])
def test_feedback_and_labels_have_the_same_probabilities(sampler, tmp_path, ahead):
    paths, model, log = sampler
    p, more = model.propensities(log, ahead=ahead), ["--ahead"] if ahead else []
    for name in ("out.npz", "out.vw", "out.dsjson"):
        succeeds("propensities", *paths, "-o", tmp_path / name, *more)
    with np.load(tmp_path / "out.npz") as feedback:
        assert {"context", "action", "pscore", "position", "n_rounds", "n_actions"} <= set(feedback)
        np.testing.assert_array_equal(feedback["pscore"], p[log.chosen_rows])
        np.testing.assert_array_equal(feedback["pi_b"].ravel(), p)
        np.testing.assert_array_equal(feedback["action"], log.chosen)
    labels = ibcb.read_log(tmp_path / "out.vw", episode_size=30)
    np.testing.assert_array_equal(labels.propensities[labels.chosen_rows], p[log.chosen_rows])
    np.testing.assert_array_equal(ibcb.read_log(tmp_path / "out.dsjson").propensities, p)


# -- as tables ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log():
    log = ragged_log(np.random.default_rng(3), episodes=3, steps=30)
    ids = np.array([f"step {number}" for number in range(log.n_steps)])
    return BehaviorLog(log.contexts, log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup, step_ids=ids)


@pytest.fixture(scope="module")
def model(log):
    return IBCB(expert="sbts", l2=0.7).fit(log)


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
