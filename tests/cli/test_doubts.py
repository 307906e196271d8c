"""What is known of a log goes with what is made of it, and --strict makes nothing of a log in doubt."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from commands import ibcb_command, succeeds
from conftest import ragged_log, small_run
from same import assert_same

import ibcb
from ibcb.estimators.models import checkpoint_of
from ibcb.log.notes import Note

SIZE = {"n_episodes": 4, "batch_size": 80, "n_candidates": 4, "n_features": 3}


def warnings_of(result):
    return {note["code"] for note in json.loads(result.stdout)["notes"] if note["severity"] == "warning"}


def write_table(log, path, **columns):
    """A log as a CSV file with a row per candidate and more columns."""
    owner = np.repeat(np.arange(log.n_steps), np.diff(log.step_offsets))
    episode = np.searchsorted(log.episode_offsets, owner, side="right") - 1 - log.warmup
    chosen = np.zeros(log.n_rows, dtype=bool)
    chosen[log.chosen_rows] = True
    features = {f"x{place}": column for place, column in enumerate(log.contexts.T)}
    table = {"episode": episode, "request_id": owner, "chosen": chosen} | features | columns
    pacsv.write_csv(pa.table({name: np.ascontiguousarray(values) for name, values in table.items()}), path)
    return path


@pytest.fixture(scope="module")
def log():
    return small_run(warmup=100, **SIZE).log


@pytest.fixture(scope="module")
def doubtful(log, tmp_path_factory):
    """A table with a column of rewards, a leak, a copy of a feature, and a feature of the step alone."""
    score = np.tanh(np.random.default_rng(0).normal(size=log.n_rows)) / 3
    score[log.chosen_rows] += 1
    user = np.repeat(np.arange(log.n_steps) % 7, np.diff(log.step_offsets))
    extra = {"cost": log.contexts[:, 0], "score": score, "twin": 2 * log.contexts[:, 1], "user": user}
    return write_table(log, tmp_path_factory.mktemp("doubtful") / "log.csv", **extra)


@pytest.fixture(scope="module")
def model_of_it(doubtful):
    succeeds("fit", doubtful, "-o", doubtful.with_name("m.safetensors"))
    return doubtful.with_name("m.safetensors")


@pytest.mark.parametrize("how", [[], ["--stream"]], ids=["in memory", "streamed"])
def test_fit_repeats_the_warnings_of_validate_once_each_and_strict_makes_nothing_of_them(doubtful, tmp_path, how):
    """What is warned of, of the log and by the model, is an error each."""
    out = tmp_path / "m.safetensors"
    found = json.loads(ibcb_command("validate", doubtful, "--json").stdout)
    warned = {finding["code"] for finding in found["findings"] if finding["severity"] == "warning"}
    assert warned == {"leak", "collinear", "constant-within-steps"}
    assert [note["code"] for note in found["notes"]] == ["reward-like-columns"]
    assert ibcb_command("validate", doubtful, "--strict").exit_code == 1
    result = succeeds("fit", doubtful, "-o", out, "--json", *how)
    # Which weights are not determined is what the model says of the same features, from its own evidence.
    assert warnings_of(result) >= {"reward-like-columns", "leak", "undetermined-features"}
    assert not warnings_of(result) & {"collinear", "constant-within-steps"}
    lines = result.stderr.splitlines()
    assert len(set(lines)) == len(lines)
    assert any(line.startswith("warning: left out: 'cost' (the name suggests an outcome)") for line in lines)
    assert any(line.startswith("warning: the chosen candidate alone has the largest score") for line in lines)

    out.unlink()
    strict = ibcb_command("fit", doubtful, "-o", out, "--json", "--strict", *how)
    assert (strict.exit_code, strict.stdout) == (1, "")
    # A fit in steps is not lost.
    kept = [f"the fitted model is kept in {checkpoint_of(out)}; --resume without --strict saves it."] if how else []
    errors = [line.replace("warning: ", "error: ", 1) for line in lines if line.startswith("warning: ")]
    assert strict.stderr.splitlines() == [*errors, *kept]
    assert [file.name for file in tmp_path.iterdir()] == ["m.checkpoint.safetensors"] * len(kept)


def test_report_repeats_them_on_the_page_too(doubtful, model_of_it, tmp_path):
    page = tmp_path / "report.html"
    result = succeeds("report", model_of_it, "--log", doubtful, "-o", page, "--json")
    notes = [Note.from_json(note) for note in json.loads(result.stdout)["log_notes"]]
    (leak,) = [note for note in notes if note.code == "leak"]
    assert f"warning: {leak}" in result.stderr.splitlines()
    assert page.read_text().count("The chosen candidate alone has the largest score") == 1
    assert next(note for note in notes if note.code == "columns-not-fitted").figures == {"columns": ("cost",)}


def test_a_log_alone_is_fitted_and_reported(doubtful, log, tmp_path):
    page, path = tmp_path / "report.html", tmp_path / "log.parquet"
    ibcb.write_log(log, path)
    told = json.loads(succeeds("report", path, "-o", page, "--json").stdout)
    model = ibcb.IBCB(expert="auto").fit(log)
    assert told["verdict"] == json.loads(json.dumps(model.verdict(log).to_json()))
    assert page.exists()
    result = ibcb_command("report", doubtful, "-o", tmp_path / "none.html", "--strict")
    assert (result.exit_code, (tmp_path / "none.html").exists()) == (1, False)
    assert any("the chosen candidate alone" in line for line in result.stderr.splitlines())


def test_python_shows_the_warnings_of_reading_on_the_page(doubtful, tmp_path):
    log = ibcb.read_log(doubtful)
    assert [note.code for note in log.notes] == ["reward-like-columns"]
    model = ibcb.IBCB(forecast=None).fit(log)
    ibcb.report.write_report(model, log, tmp_path / "plain.html")
    ibcb.report.write_report(model, log, tmp_path / "full.html", notes=ibcb.validate(log).notes)
    plain, full = ((tmp_path / name).read_text() for name in ("plain.html", "full.html"))
    for page in (plain, full):
        assert page.count("the name suggests an outcome") == 1
    assert "depend linearly on each other" in full
    assert "depend linearly on each other" not in plain


def test_a_column_left_out_by_name_is_enough_for_strict_and_naming_it_ends_the_doubt(log, tmp_path):
    path, out = write_table(log, tmp_path / "log.csv", cost=log.contexts[:, 0]), tmp_path / "m.safetensors"
    settings = ["-o", out, "--l2", "0.3", "--strict"]
    for command in (["validate", path, "--strict"], ["fit", path, *settings]):
        result = ibcb_command(*command)
        assert result.exit_code == 1
        assert "--keep cost" in result.stderr
    assert not out.exists()
    succeeds("validate", path, "--strict", "--drop", "cost")
    succeeds("fit", path, *settings, "--drop", "cost")
    assert ibcb.load_model(out).feature_names_in_ == ("x0", "x1", "x2")
    kept = json.loads(succeeds("fit", path, "-o", out, "--l2", "0.3", "--keep", "cost", "--json").stdout)
    assert "reward-like-columns" not in {note["code"] for note in kept["notes"]}
    assert ibcb.load_model(out).feature_names_in_ == ("x0", "x1", "x2", "cost")


def test_strict_report_writes_no_page(doubtful, model_of_it, log, tmp_path):
    model, page = tmp_path / "m.safetensors", tmp_path / "report.html"
    result = ibcb_command("report", model_of_it, "--log", doubtful, "-o", page, "--strict")
    assert (result.exit_code, result.stdout) == (1, "")
    assert all(line.startswith("error: ") for line in result.stderr.splitlines())
    assert not page.exists()
    clean = write_table(log, tmp_path / "clean.csv")
    succeeds("fit", clean, "-o", model, "--l2", "0.3", "--strict")
    succeeds("report", model, "--log", clean, "-o", page, "--strict")
    assert page.exists()


@pytest.mark.filterwarnings("ignore:the log seems to start in the middle")
def test_what_the_model_doubts_counts_for_strict_and_a_streamed_fit_is_not_lost(rng, tmp_path):
    # Starts in the middle: nothing is wrong with the log, but the model knows that something is missing.
    ibcb.write_log(ragged_log(rng, episodes=8)[4:], tmp_path / "late.parquet")
    out, plain = tmp_path / "m.safetensors", tmp_path / "plain.safetensors"
    fit = ["fit", tmp_path / "late.parquet", "--l2", "0.7"]
    assert "late-start" in warnings_of(succeeds(*fit, "-o", plain, "--json"))
    result = ibcb_command(*fit, "-o", out, "--strict")
    assert (result.exit_code, result.stdout, out.exists()) == (1, "", False)
    result = ibcb_command(*fit, "-o", out, "--strict", "--stream")
    assert (result.exit_code, result.stdout, out.exists()) == (1, "", False)
    assert "m.checkpoint.safetensors; --resume without --strict saves it" in result.stderr
    succeeds(*fit, "-o", out, "--resume")
    assert_same(ibcb.load_model(out).coef_, ibcb.load_model(plain).coef_)
    assert not (tmp_path / "m.checkpoint.safetensors").exists()


def test_relations_of_features_that_the_model_does_not_name_are_repeated(log, tmp_path):
    near = log.contexts[:, 0] + 3e-4 * np.random.default_rng(0).normal(size=log.n_rows)
    user = np.repeat(np.arange(log.n_steps) % 7, np.diff(log.step_offsets))
    path = write_table(log, tmp_path / "log.csv", near=near, user=user)
    told = json.loads(succeeds("fit", path, "-o", tmp_path / "m.safetensors", "--json").stdout)
    notes = {note["code"]: note["figures"] for note in told["notes"]}
    assert notes["undetermined-features"] == {"features": ["user"]}
    assert notes["collinear"] == {"features": ["x0", "near"]}
    assert "constant-within-steps" not in notes


def test_mixed_units_are_told_and_are_no_doubt(tmp_path):
    """They matter to an l2 that is a number alone."""
    log = ragged_log(np.random.default_rng(0), steps=100)
    episodes = (log.step_offsets, log.chosen, log.episode_offsets)
    contexts = log.contexts * np.where(np.arange(log.n_features) == 0, 1e6, 1.0)
    ibcb.write_log(ibcb.BehaviorLog(contexts, *episodes, warmup=log.warmup), tmp_path / "log.parquet")
    fit = ["fit", tmp_path / "log.parquet", "-o", tmp_path / "m.safetensors", "--json"]
    told = {note["code"]: note["severity"] for note in json.loads(succeeds(*fit).stdout)["notes"]}
    assert told["scales"] == "info"
    assert "scales" not in warnings_of(succeeds(*fit))
