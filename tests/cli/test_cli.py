"""The command line: data on stdout, messages on stderr, exit codes that scripts can trust."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import ibcb_command, succeeds
from conftest import heed_interrupts
from same import assert_same
from typer.main import get_command

import ibcb
from ibcb.cli import app

VERBS = (
    "demo",
    "simulate",
    "validate",
    "convert",
    "fit",
    "predict",
    "propensities",
    "evaluate",
    "report",
    "explain",
    "reproduce",
)
SMALL = ["--episodes", "4", "--batch-size", "50", "--candidates", "4", "--features", "3", "--warmup", "60"]
SETTINGS = {"n_episodes": 4, "batch_size": 50, "n_candidates": 4, "n_features": 3, "warmup": 60}


def assert_fails(result, code=1, *words):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if code == 1:
        lines = result.stderr.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("error: ")
    for word in words:
        assert re.search(word, result.stderr), result.stderr


def start(program, *arguments):
    """A Python process of its own, with pipes for stdout and stderr."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=heed_interrupts,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A simulated run and a model fitted on it, as the command line leaves them."""
    path = tmp_path_factory.mktemp("cli")
    succeeds("simulate", path / "run", "--noise", "0.03", "--seed", "1", *SMALL)
    succeeds("fit", path / "run" / "log.parquet", "-o", path / "model.safetensors", "--l2", "0.3")
    return path


# -- help and usage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_an_example_that_names_known_options(verb):
    text = succeeds(verb, "--help").stdout
    example = re.search(r"Example: (.*)", " ".join(text.split())).group(1)
    assert example.startswith(f"ibcb {verb}")
    for option in re.findall(r"(?<!\S)--?[a-z][a-z0-9-]*", example):
        assert re.search(rf"(?m)^\s+.*(?<!\S){re.escape(option)}[ ,]", text), option
    assert succeeds(verb, "-h").stdout == text


def test_the_command_alone_lists_the_verbs():
    result = ibcb_command("--help")
    assert result.exit_code == 0
    for verb in VERBS:
        assert re.search(rf"(?m)^\s+{verb}\s", result.stdout)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_says_what_it_does_on_lines_of_80_characters(verb):
    text = succeeds(verb, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    for option in get_command(app).commands[verb].params:
        said = option.help
        assert said is not None, option.name
        assert len(said.split()) >= 3, (option.name, said)
        assert said[0].isupper(), (option.name, said)
        assert not re.search(r"(?i)batch|foresee", said), (option.name, said)


def test_the_list_of_verbs_cuts_no_sentence():
    assert "..." not in ibcb_command("--help").stdout.split("Commands:")[1]


def test_version():
    assert succeeds("--version").stdout.strip() == ibcb.__version__


@pytest.mark.parametrize(
    "arguments",
    [
        ["fti"],
        ["fit"],
        ["fit", "log.parquet", "--expert", "linucb"],
        ["fit", "log.parquet", "--l2", "much"],
        ["fit", "log.parquet", "other.parquet"],
        ["simulate"],
        ["simulate", "run", "--draws", "batch"],
        ["simulate", "run", "--seed", "1.5"],
        ["predict", "model.safetensors"],
        ["evaluate", "model.safetensors"],
        ["demo", "extra"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_2_and_does_nothing(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    result = ibcb_command(*arguments)
    assert_fails(result, 2, "Usage: ", "(?i)error")
    assert list(tmp_path.iterdir()) == []


def test_a_typo_gets_a_suggestion_and_a_wrong_choice_the_right_ones():
    assert_fails(ibcb_command("fit", "log.parquet", "--sovler", "hard"), 2, "--sovler", "--solver")
    assert_fails(ibcb_command("fit", "log.parquet", "--solver", "magic"), 2, "magic", "auto.*hard.*soft.*robust.*paper")


# -- simulate ------------------------------------------------------------------------------------------------------


def test_simulate_leaves_the_logs_of_that_seed_and_no_rewards(tmp_path):
    result = succeeds("simulate", tmp_path, "--expert", "sbts", "--noise", "0.1", "--seed", "3", *SMALL)
    run = ibcb.simulate(expert="sbts", noise=0.1, seed=3, **SETTINGS)
    for name, log in (("log", run.log), ("test", run.test_log), ("ood", run.ood_log)):
        stored = ibcb.read_log(tmp_path / f"{name}.parquet")
        np.testing.assert_array_equal(stored.contexts, log.contexts)
        np.testing.assert_array_equal(stored.chosen, log.chosen)
        assert stored.warmup == log.warmup
    assert {file.name for file in tmp_path.iterdir()} == {"log.parquet", "test.parquet", "ood.parquet", "run.json"}
    assert f"{len(run.log)} episodes, {run.log.n_steps} steps" in result.stdout
    assert not any(b"reward" in file.read_bytes() for file in tmp_path.iterdir())


def test_simulate_says_as_json_what_it_did(tmp_path):
    result = succeeds("simulate", tmp_path, "--json", "--top-k", "2", *SMALL)
    told = json.loads(result.stdout)
    assert told["folder"] == str(tmp_path)
    assert told["settings"]["top_k"] == 2
    assert told["settings"] == json.loads((tmp_path / "run.json").read_text())
    again = ibcb.simulate(**told["settings"])
    np.testing.assert_array_equal(again.log.chosen, ibcb.read_log(tmp_path / "log.parquet").chosen)


@pytest.mark.parametrize(
    "options",
    [
        ["--expert", "egreedy", "--epsilon", "0.3", "--decay", "0.5"],
        ["--expert", "softmax", "--temperature", "0.2"],
        ["--environment", "arms", "--arms", "6", "--available", "4", "--expert", "other"],
    ],
    ids=" ".join,
)
def test_a_simulated_run_is_known_again(tmp_path, options):
    sizes = ["--episodes", "3", "--batch-size", "40", "--features", "3", "--warmup", "60"]
    succeeds("simulate", tmp_path / "run", *options, *sizes)
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    named = {name: value for name, value in zip(options[::2], options[1::2], strict=True) if name != "--expert"}
    for name, value in named.items():
        stored = told[{"--arms": "n_arms", "--available": "n_available"}.get(name, name[2:])]
        assert stored == type(stored)(value)
    again = ibcb.simulate(**told)
    stored = ibcb.read_log(tmp_path / "run" / "log.parquet")
    np.testing.assert_array_equal(stored.chosen, again.log.chosen)
    model = tmp_path / "model.safetensors"
    succeeds("fit", tmp_path / "run" / "log.parquet", "-o", model, "--no-forecast", "--expert", "sbucb")
    figures = json.loads(succeeds("evaluate", model, tmp_path / "run", "--json").stdout)
    assert (figures["ol_fitness"] is None) == ("other" in options)


@pytest.mark.parametrize(
    "option, words",
    [
        (["--expert", "egredy"], "'--expert': 'egredy' is not a kind of decider. Did you mean egreedy"),
        (["--epsilon", "1.5"], "'--epsilon': .*1"),
        (["--decay", "-1"], "'--decay': must be 0 or more, not -1"),
        (["--temperature", "0"], "'--temperature': must be above 0, not 0"),
        (["--available", "0"], "'--available': .*1"),
        (["--l2", "0"], "'--l2': must be above 0, not 0"),
        (["--l2", "nan"], "'--l2': must be above 0, not nan"),
        (["--alpha", "-1"], "'--alpha': must be 0 or more, not -1"),
        (["--noise", "-1"], "'--noise': must be 0 or more, not -1"),
        (["--episodes", "0"], "'--episodes': .*1"),
        (["--seed", "-1"], "'--seed': .*0"),
        (["--warmup", "-1"], "'--warmup': .*0"),
        (["--top-k", "0"], "'--top-k': .*1"),
    ],
    ids=str,
)
def test_impossible_options_are_bad_usage(tmp_path, option, words):
    assert_fails(ibcb_command("simulate", tmp_path / "run", *SMALL, *option), 2, words)
    assert list(tmp_path.iterdir()) == []


def test_simulate_fails_in_one_line(tmp_path):
    assert_fails(ibcb_command("simulate", tmp_path / "run", *SMALL, "--dup", "99"), 1, "dup=99")
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_checked_before_the_work(folder, tmp_path):
    model, log = folder / "model.safetensors", folder / "run" / "log.parquet"
    assert_fails(ibcb_command("fit", log, "-o", tmp_path / "m.bin"), 1, r"must end in \.safetensors")
    assert_fails(ibcb_command("predict", model, log, "-o", tmp_path / "c.json"), 1, r"must end in \.csv")


# -- fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, parameters",
    [
        ([], {}),
        (["--l2", "0.3", "--alpha", "2"], {"l2": 0.3, "alpha": 2.0}),
        (
            ["--expert", "sbts", "--margin", "0.5", "--solver", "soft"],
            {"expert": "sbts", "margin": 0.5, "solver": "soft"},
        ),
        (["--solver", "robust", "--full", "--prune"], {"solver": "robust", "incremental": False, "prune": True}),
        (["--solver", "paper"], {"solver": "paper"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_fit_is_what_the_library_fits(folder, tmp_path, options, parameters):
    log_path, out = folder / "run" / "log.parquet", tmp_path / "m.safetensors"
    told = json.loads(succeeds("fit", log_path, "-o", out, "--json", *options).stdout)
    model = ibcb.IBCB(**parameters).fit(ibcb.read_log(log_path))
    np.testing.assert_array_equal(told["coef"], model.coef_)
    np.testing.assert_array_equal(told["policy_coefs"], model.policy_coefs_)
    assert told["solver"] == model.solver_
    assert told["notes"] == [note.to_json() for note in model.notes_]
    assert told["model"] == str(out)
    assert [entry["status"] for entry in told["diagnostics"]] == [entry.status for entry in model.diagnostics_]
    stored = ibcb.load_model(out)
    np.testing.assert_array_equal(stored.coef_, model.coef_)
    assert {name: stored.get_params()[name] for name in parameters} == parameters


def test_fit_prints_every_weight_for_people(folder, tmp_path):
    result = succeeds("fit", folder / "run" / "log.parquet", "-o", tmp_path / "m.safetensors", "--l2", "0.3")
    model = ibcb.load_model(tmp_path / "m.safetensors")
    assert str(tmp_path / "m.safetensors") in result.stdout
    reward, policy = model.direction(model.coef_), model.direction(model.next_policy_coef_)
    last = model.policy_interval(0.9, direction=True)
    for number in range(3):
        ends = f"{last.lower[number]:.4g} to {last.upper[number]:.4g}"
        figures = [f"{weights[number]:.3f}" for weights in (reward, policy, last.estimate)]
        assert re.search(r"(?m)^" + r"\s+".join([str(number), *figures, ends]) + "$", result.stdout)
    assert "forecast    a learner, projected forward" in result.stdout
    judged = model.verdict(ibcb.read_log(folder / "run" / "log.parquet"))
    for line in (f"verdict     {judged.level}: {judged.headline}", *judged.reasons, f"next step   {judged.next_step}"):
        assert line in result.stdout
    assert "scaled so that the scores of a step spread by 1" in result.stdout


def test_fit_without_forecast_shows_none_and_tells_the_same_as_json(folder, tmp_path):
    log, out = folder / "run" / "log.parquet", tmp_path / "m.safetensors"
    text = succeeds("fit", log, "-o", out, "--l2", "0.3", "--no-forecast").stdout
    model = ibcb.load_model(out)
    assert model.get_params()["forecast"] is None
    assert "forecast " not in text
    assert "interval" not in text
    told = json.loads(succeeds("fit", log, "-o", out, "--l2", "0.3", "--no-forecast", "--json").stdout)
    names = ("forecast_model", "forecast_note", "last_policy", "unidentified_features")
    assert [told[name] for name in names] == [None] * 4
    told = json.loads(succeeds("fit", log, "-o", out, "--l2", "0.3", "--forecast", "--json").stdout)
    model = ibcb.load_model(out)
    last = model.policy_interval(0.9, direction=True)
    assert told["forecast_model"] == model.forecast_model_
    assert told["forecast_note"] == str(model.forecast_note_)
    assert told["unidentified_features"] == []
    assert told["verdict"] == json.loads(json.dumps(model.verdict(ibcb.read_log(log)).to_json()))
    np.testing.assert_array_equal(told["next_policy_coef"], model.next_policy_coef_)
    np.testing.assert_array_equal(told["last_policy"]["lower"], last.lower)


def test_fit_names_what_no_choice_tells(folder, tmp_path):
    log = ibcb.read_log(folder / "run" / "log.parquet")
    offsets = (log.step_offsets, log.chosen, log.episode_offsets)
    still = ibcb.BehaviorLog(np.column_stack([log.contexts, np.ones(log.n_rows)]), *offsets, warmup=log.warmup)
    ibcb.write_log(still, tmp_path / "log.parquet")
    result = succeeds("fit", tmp_path / "log.parquet", "-o", tmp_path / "m.safetensors", "--l2", "0.3")
    assert re.search(r"(?m)^3 .* not determined$", result.stdout)
    assert "warning: the choices do not determine the weight of feature '3'" in result.stderr


def random_log(warmup):
    """Choices that no policy made."""
    rng = np.random.default_rng(0)
    episodes = [(rng.normal(size=(50, 4, 3)), rng.integers(4, size=50)) for _ in range(4)]
    return ibcb.BehaviorLog.from_episodes(episodes, warmup=warmup)


def test_notes_go_to_stderr_once_and_stdout_stays_json(tmp_path):
    ibcb.write_log(random_log(warmup=0), tmp_path / "random.parquet")
    arguments = ["fit", tmp_path / "random.parquet", "-o", tmp_path / "m.safetensors", "--json"]
    with start("from ibcb.cli import main; main()", *arguments) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    told = json.loads(stdout)
    assert told["solver"] == "robust"
    codes = [note["code"] for note in told["notes"]]
    assert codes[0] == "unexplained"
    assert "not-predicted" in codes
    assert len(codes) == len(set(codes))
    names = {"info": "note", "warning": "warning"}
    assert stderr.splitlines() == [f"{names[note['severity']]}: {note['text']}" for note in told["notes"]]


def test_fit_defaults_to_a_model_in_the_working_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    succeeds("fit", folder / "run" / "log.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    "content, options, words",
    [
        (None, [], r"bad\.parquet.*(not exist|No such file)|(not exist|No such file).*bad\.parquet"),
        (b"", ["--json"], r"bad\.parquet: not a readable Parquet file"),
        (b"nothing like it", [], r"bad\.parquet: not a readable Parquet file"),
        ("random", ["--solver", "hard", "--json"], 'no theta explains .*solver="robust"'),
        ("short", [], "one episode and nothing before it"),
        ("short", ["--stream"], "one episode and nothing before it"),
        ("short", ["--stream", "--expert", "auto"], "one episode and nothing before it"),
    ],
    ids=["missing", "empty", "noise", "infeasible", "one episode", "streamed", "streamed, and to be chosen"],
)
def test_fit_fails_in_one_line_and_leaves_no_model(folder, tmp_path, content, options, words):
    path = tmp_path / "bad.parquet"
    log = ibcb.read_log(folder / "run" / "log.parquet")
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        ibcb.write_log({"good": log, "short": log[1], "random": random_log(warmup=1)}[content], path)
    result = ibcb_command("fit", path, "-o", tmp_path / "m.safetensors", *options)
    assert_fails(result, 1, words)
    assert not (tmp_path / "m.safetensors").exists()


def test_a_model_cannot_replace_a_folder(folder, tmp_path):
    assert_fails(ibcb_command("fit", folder / "run" / "log.parquet", "-o", tmp_path), 1, tmp_path.name)


# -- predict -------------------------------------------------------------------------------------------------------


def read_choices(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    kinds = {"episode": int, "step": int, "chosen": int, "score": float}
    return {name: [kind(row[name]) for row in rows] for name, kind in kinds.items()}


def expected_choices(folder):
    model, log = ibcb.load_model(folder / "model.safetensors"), ibcb.read_log(folder / "run" / "log.parquet")
    chosen = model.predict(log)
    sizes = np.diff(log.episode_offsets)
    return {
        "episode": np.repeat(np.arange(-1, 4), sizes).tolist(),
        "step": [step for size in sizes for step in range(size)],
        "chosen": chosen.tolist(),
        "score": [float(max(model.decision_function(log.candidates(step)))) for step in range(log.n_steps)],
    }


def assert_same_choices(found, expected):
    assert found["score"] == pytest.approx(expected["score"])
    assert {**found, "score": None} == {**expected, "score": None}


def test_predict_prints_csv_or_json_and_nothing_else(folder):
    model, log = folder / "model.safetensors", folder / "run" / "log.parquet"
    expected = expected_choices(folder)
    text, data = succeeds("predict", model, log), succeeds("predict", model, log, "--json")
    assert text.stdout.splitlines()[0] == "episode,step,chosen,score"
    assert_same_choices(read_choices(text.stdout), expected)
    assert_same_choices(json.loads(data.stdout), expected)
    assert text.stderr == data.stderr == ""


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_predict_writes_a_file_and_says_so(folder, tmp_path, as_json):
    out = tmp_path / "deep" / "choices.csv"
    result = succeeds("predict", folder / "model.safetensors", folder / "run" / "log.parquet", "-o", out, *as_json)
    expected = expected_choices(folder)
    assert_same_choices(read_choices(out.read_text()), expected)
    if as_json:
        assert json.loads(result.stdout) == {"out": str(out), "steps": len(expected["step"])}
    else:
        assert result.stdout == ""
        assert str(out) in result.stderr


@pytest.mark.parametrize("episode", [0, 3, 4, 9])
def test_predict_chooses_as_in_an_episode_logged_or_predicted(folder, episode):
    """Episode 4 of four is the one right after the log; 9 is six updates after that of the last."""
    model, log = ibcb.load_model(folder / "model.safetensors"), ibcb.read_log(folder / "run" / "test.parquet")
    policy = model.policy_at(episode) if episode < 4 else model.forecast(episode - 3)
    scores = (log.contexts @ policy).reshape(-1, 4)
    arguments = ["predict", folder / "model.safetensors", folder / "run" / "test.parquet", "--at-episode", episode]
    told = json.loads(succeeds(*arguments, "--json").stdout)
    assert told["chosen"] == scores.argmax(axis=1).tolist()
    np.testing.assert_allclose(told["score"], scores.max(axis=1), rtol=1e-9)
    assert succeeds(*arguments).stdout.splitlines()[1].split(",")[2] == str(told["chosen"][0])


def test_predict_tells_how_certain_its_choices_are(folder, tmp_path):
    arguments = ["predict", folder / "model.safetensors", folder / "run" / "test.parquet", "--certainty"]
    told = json.loads(succeeds(*arguments, "--json").stdout)
    model, log = ibcb.load_model(folder / "model.safetensors"), ibcb.read_log(folder / "run" / "test.parquet")
    np.testing.assert_array_equal(told["certainty"], model.certainty(log))
    succeeds(*arguments, "-o", tmp_path / "choices.csv")
    assert (tmp_path / "choices.csv").read_text().startswith("episode,step,chosen,score,certainty\n")


def test_what_cannot_be_predicted_is_bad_usage(folder, tmp_path):
    log, test = folder / "run" / "log.parquet", folder / "run" / "test.parquet"
    succeeds("fit", log, "-o", tmp_path / "plain.safetensors", "--no-forecast")
    ibcb.save_model(ibcb.BaseSVC().fit(ibcb.read_log(log)), tmp_path / "svc.safetensors")
    ibcb.write_log(ibcb.read_log(log)[1:], tmp_path / "late.parquet")
    succeeds("fit", tmp_path / "late.parquet", "-o", tmp_path / "late.safetensors")
    full, plain, svc = folder / "model.safetensors", tmp_path / "plain.safetensors", tmp_path / "svc.safetensors"
    for model, options, words in (
        (full, ["--at-episode", "-1"], "at-episode"),
        (full, ["--at-episode", "soon"], "at-episode"),
        (full, ["--at-episode", "1.5"], "at-episode"),
        (full, ["--at-episode", "2000"], "is 1996 updates after the log; at most 1000"),
        (plain, ["--at-episode", "5"], "beyond the log's episodes 0 to 3, and the model was fitted without"),
        (svc, ["--at-episode", "1"], "a BaseSVC has one policy"),
        (tmp_path / "late.safetensors", ["--at-episode", "0"], "nothing had been learned by then"),
        (plain, ["--certainty"], "fitted with --forecast"),
        (svc, ["--certainty"], "needs an IBCB model"),
        (full, ["--certainty", "--scores"], "leave out --scores"),
        (full, ["--certainty", "--at-episode", "1"], "leave out --at-episode"),
    ):
        assert_fails(ibcb_command("predict", model, test, *options), 2, words)
    succeeds("predict", plain, test, "--at-episode", "4")


def test_predict_fails_in_one_line(folder, tmp_path):
    model, log = folder / "model.safetensors", folder / "run" / "log.parquet"
    wide = ibcb.simulate(**{**SETTINGS, "n_features": 5}).log
    ibcb.write_log(wide, tmp_path / "wide.parquet")
    (tmp_path / "bad.safetensors").write_bytes(b"no model")
    assert_fails(ibcb_command("predict", model, tmp_path / "wide.parquet"), 1, "5 features", "fitted on 3")
    assert_fails(ibcb_command("predict", tmp_path / "none.safetensors", log), 1, r"none\.safetensors does not exist")
    assert_fails(ibcb_command("predict", tmp_path / "bad.safetensors", log), 1, r"bad\.safetensors: not a readable")
    assert_fails(ibcb_command("predict", log, log), 1, r"log\.parquet: a Parquet file, not a saved model.*swapped")
    assert_fails(ibcb_command("predict", model, model), 1, r"model\.safetensors: .*\.parquet")
    assert_fails(ibcb_command("predict", model, tmp_path / "wide.parquet", "-o", tmp_path / "out.csv"), 1)
    assert not (tmp_path / "out.csv").exists()


def test_a_reader_that_stops_early_hears_no_complaint(folder, tmp_path):
    rng = np.random.default_rng(0)
    long = tmp_path / "long.parquet"
    steps = 20_000
    ibcb.write_log(ibcb.BehaviorLog.from_episodes([(rng.normal(size=(steps, 2, 3)), np.zeros(steps))]), long)
    with start("from ibcb.cli import main; main()", "predict", folder / "model.safetensors", long) as process:
        assert process.stdout.readline() == "episode,step,chosen,score\n"
        process.stdout.close()
        complaint = process.stderr.read()
    assert complaint == ""


# -- evaluate ------------------------------------------------------------------------------------------------------


def test_evaluate_gives_the_metrics_of_the_run(folder):
    model = ibcb.load_model(folder / "model.safetensors")
    run = ibcb.simulate(noise=0.03, seed=1, **SETTINGS)
    expected = ibcb.metrics.evaluate(model, run)
    told = succeeds("evaluate", folder / "model.safetensors", folder / "run", "--json")
    found = json.loads(told.stdout)
    assert found.pop("expert") == pytest.approx(ibcb.metrics.evaluate(run.expert, run))
    assert found == expected
    text = succeeds("evaluate", folder / "model.safetensors", folder / "run")
    shown = {line.split()[0]: float(line.split()[1]) for line in text.stdout.splitlines()[1:]}
    assert shown == pytest.approx(expected, abs=5e-4, rel=1e-2)
    assert max(map(len, text.stdout.splitlines())) <= 80
    assert told.stderr == text.stderr == ""


def test_evaluate_on_a_log_gives_the_agreement(folder):
    model, path = folder / "model.safetensors", folder / "run" / "test.parquet"
    score = ibcb.load_model(model).score(ibcb.read_log(path))
    assert json.loads(succeeds("evaluate", model, path, "--json").stdout) == {"agreement": score}
    assert succeeds("evaluate", model, path).stdout.split()[:2] == ["agreement", f"{score:.4f}"]


def test_evaluate_fails_in_one_line(folder, tmp_path):
    model = folder / "model.safetensors"
    assert_fails(ibcb_command("evaluate", model, tmp_path), 1, "run.json", "ibcb simulate")
    succeeds("simulate", tmp_path / "wide", *SMALL, "--features", "5")
    assert_fails(ibcb_command("evaluate", model, tmp_path / "wide"), 1, "5 features", "fitted on 3")
    assert_fails(ibcb_command("evaluate", model, tmp_path / "wide" / "log.parquet"), 1, "5 features", "fitted on 3")


def test_evaluate_says_that_a_log_is_missing(folder, tmp_path):
    result = ibcb_command("evaluate", folder / "model.safetensors", tmp_path / "no.parquet")
    assert_fails(result, 1, r"no\.parquet", "not exist|No such file")


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda settings: json.dumps(settings | {"seed": 8}), "not the log that run.json describes"),
        (lambda settings: json.dumps(settings | {"colour": "red"}), "'colour'"),
        (lambda settings: "{", r"run\.json"),
        (lambda settings: "[]", r"run\.json"),
    ],
    ids=["other seed", "unknown setting", "no JSON", "a list"],
)
def test_evaluate_refuses_a_description_of_another_run(folder, tmp_path, change, words):
    succeeds("simulate", tmp_path, "--seed", "7", *SMALL)
    description = tmp_path / "run.json"
    description.write_text(change(json.loads(description.read_text())))
    assert_fails(ibcb_command("evaluate", folder / "model.safetensors", tmp_path), 1, words)


# -- demo ----------------------------------------------------------------------------------------------------------


def test_the_demo_shows_the_result_and_leaves_log_model_and_report(tmp_path):
    result = succeeds("demo", "--out", tmp_path / "demo", "--json")
    told = json.loads(result.stdout)
    assert "Simulating" in result.stderr
    rows = {row["policy"]: row for row in told["results"]}
    expert, model, cloning = rows.values()
    assert expert["bt_fitness"] == 1
    assert cloning["bt_fitness"] < model["bt_fitness"] <= 1
    assert told["cosine"] > 0.9
    stored, log = ibcb.load_model(told["model"]), ibcb.read_log(told["log"])
    np.testing.assert_array_equal(stored.coef_, ibcb.IBCB(alpha=0.4).fit(log).coef_)
    left = {file.name for file in (tmp_path / "demo").iterdir()}
    assert left == {"log.parquet", "model.safetensors", "report.html"}
    assert told["report"] == str(tmp_path / "demo" / "report.html")


def test_the_demo_for_people_names_commands_that_work(tmp_path, monkeypatch):
    """A demo in small: what it prints does not depend on the size of the log."""
    small = ibcb.simulate(**SETTINGS, noise=0.03)
    monkeypatch.setattr(ibcb, "simulate", lambda *args, **kwargs: small)
    monkeypatch.chdir(tmp_path)
    result = succeeds("demo")
    for name in ("the expert itself", "IBCB", "behaviour cloning"):
        assert re.search(rf"(?m)^{name}.*\d\.\d\d\d", result.stdout)
    commands = re.findall(r"(?m)^ +ibcb (\w+ .*?)(?: \|.*)?$", result.stdout)
    assert [command.split()[0] for command in commands] == ["fit", "predict"]
    for command in commands:
        succeeds(*command.split())
    page = result.stdout.splitlines()[-1].strip()
    assert page == str((tmp_path / "ibcb-demo" / "report.html").resolve())
    assert (tmp_path / "ibcb-demo" / "report.html").exists()


# -- interruption --------------------------------------------------------------------------------------------------

INTERRUPTED_FIT = """
import sys
import ibcb
from ibcb.cli import main

fit = ibcb.IBCB.fit_along

def fit_for_ever(self, log, **along):
    print("fitting", file=sys.stderr, flush=True)
    while True:
        fit(self, log)

ibcb.IBCB.fit_along = fit_for_ever
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_an_interrupted_fit_exits_130_and_leaves_nothing(folder, tmp_path):
    out = tmp_path / "out" / "m.safetensors"
    with start(INTERRUPTED_FIT, "fit", folder / "run" / "log.parquet", "-o", out) as process:
        try:
            assert process.stderr.readline() == "fitting\n"
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert stdout == ""
    assert "Traceback" not in stderr
    assert "interrupted" in stderr
    assert list(tmp_path.iterdir()) == []


LOST_INTERRUPTS = {
    "in a finaliser": "class Last:\n    def __del__(self): interrupt()\nlast = Last()\ndel last",
    "while a class is made": "class Part:\n    def __set_name__(*_): interrupt()\nclass Whole:\n    part = Part()",
}


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("sign", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", LOST_INTERRUPTS)
def test_an_interrupt_that_python_drops_or_renames_is_heeded(folder, tmp_path, place, sign):
    """As happens now and then in an import."""
    code = f"import os, time\ninterrupt = lambda: os.kill(os.getpid(), {int(sign)})\n{LOST_INTERRUPTS[place]}\n"
    program = INTERRUPTED_FIT.replace("    while True:", f"    exec({code!r}, {{}})\n    while True:")
    out = tmp_path / "out" / "m.safetensors"
    with start(program, "fit", folder / "run" / "log.parquet", "-o", out) as process:
        try:
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + sign
    assert stdout == ""
    assert stderr == "fitting\ninterrupted; no half-written file is left behind.\n"
    assert list(tmp_path.iterdir()) == []


def test_the_log_tells_the_kind_of_decider(tmp_path):
    log = ibcb.simulate("synthetic", n_episodes=6, batch_size=200, n_features=5, seed=1, noise=0.03).log
    path, out = tmp_path / "log.parquet", tmp_path / "m.safetensors"
    ibcb.write_log(log, path)
    told = json.loads(ibcb_command("fit", path, "--expert", "auto", "--l2", "auto", "-o", out, "--json").stdout)
    assert told["expert"] == "sbucb"
    assert [entry["expert"] for entry in told["evidence"] if entry["chosen"]] == ["sbucb"]
    assert ibcb.load_model(out).expert_ == "sbucb"
    assert ibcb_command("fit", path, "--l2", "much", "-o", out).exit_code == 2
    assert ibcb_command("fit", path, "--l2", "-1", "-o", out).exit_code == 2
    whole = ibcb.load_model(out)
    again = json.loads(
        succeeds("fit", path, "--expert", "auto", "--l2", "auto", "--stream", "-o", out, "--json").stdout
    )
    assert {**again, "seconds": 0} == {**told, "seconds": 0}
    assert_same(ibcb.load_model(out).get_state(), whole.get_state())
    assert [file.name for file in tmp_path.iterdir() if "checkpoint" in file.name] == []


@pytest.mark.parametrize("episode", [2, 6], ids=["while it chooses", "while it fits"])
def test_ctrl_c_keeps_a_checkpoint_from_which_the_same_command_goes_on(tmp_path, monkeypatch, episode):
    """In whichever phase; the model is that of an undisturbed fit."""
    from ibcb.estimators import checkpoints

    log = ibcb.simulate("synthetic", seed=1, noise=0.03, **SETTINGS).log
    path, out = tmp_path / "log.parquet", tmp_path / "m.safetensors"
    ibcb.write_log(log, path)
    command = ["fit", path, "--expert", "auto", "--l2", "auto", "--stream", "-o", out]
    save, saved = checkpoints.save_model, []

    def interrupted(model, where):
        saved.append(where)
        if len(saved) == episode:
            raise KeyboardInterrupt
        save(model, where)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_model", interrupted)
        result = ibcb_command(*command)
    assert result.exit_code == 130
    assert f"kept in {checkpoints.checkpoint_of(out)}" in result.stderr
    assert "with --resume to continue" in result.stderr
    assert not out.exists()
    other = ibcb_command("fit", path, "--expert", "other", "--resume", "-o", out)
    assert_fails(other, 1, "expert='auto', now expert is 'other'")
    succeeds(*command, "--resume")
    whole = ibcb.IBCB(expert="auto", l2="auto", n_jobs=1, verbose=True).fit(log)
    assert_same(ibcb.load_model(out).get_state(), whole.get_state())
    assert not checkpoints.checkpoint_of(out).exists()
