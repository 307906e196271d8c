"""`ibcb propensities`: tables, feedback and labels of the same probabilities, and what they are worth."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import succeeds

import ibcb
from ibcb.cli.tables import recover_tables


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


def overlap(model, log, **how):
    return recover_tables(model, log, lambda: lambda table: None, **how).overlap


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_table_with_a_row_per_candidate(sampler, tmp_path, suffix):
    paths, model, log = sampler
    out = tmp_path / f"out.{suffix}"
    result = succeeds("propensities", *paths, "-o", out, "--ahead")
    assert result.stdout == ""
    assert f"overlap: {overlap(model, log, ahead=True)}" in result.stderr
    assert "warning" not in result.stderr
    assert f"out.{suffix}: {log.n_rows} propensities" in result.stderr
    if suffix == "parquet":
        table = pq.read_table(out).to_pydict()
    else:
        rows = list(csv.DictReader(io.StringIO(out.read_text())))
        table = {
            name: [float(row[name].replace("true", "1").replace("false", "0")) for row in rows] for name in rows[0]
        }
    assert list(table) == ["episode", "step", "candidate", "chosen", "propensity", "ahead"]
    np.testing.assert_array_equal(table["propensity"], model.propensities(log))
    np.testing.assert_array_equal(table["ahead"], model.propensities(log, ahead=True))
    assert np.flatnonzero(table["chosen"]).tolist() == log.chosen_rows.tolist()


def test_without_a_file_it_is_csv_or_json_and_nothing_else(sampler):
    paths, model, log = sampler
    rows = list(csv.DictReader(io.StringIO(succeeds("propensities", *paths).stdout)))
    assert [float(row["propensity"]) for row in rows] == model.propensities(log).tolist()
    told = json.loads(succeeds("propensities", *paths, "--json").stdout)
    assert told["propensity"] == model.propensities(log).tolist()
    assert told["overlap"] == overlap(model, log).to_json()
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
