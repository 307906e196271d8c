"""The command line: data on stdout, messages on stderr, exit codes that scripts can trust."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from commands import assert_fails, ibcb_command, succeeds
from conftest import heed_interrupts, slow
from same import assert_same

import ibcb

SMALL = ["--episodes", "4", "--batch-size", "50", "--candidates", "4", "--features", "3", "--warmup", "60"]
SETTINGS = {"n_episodes": 4, "batch_size": 50, "n_candidates": 4, "n_features": 3, "warmup": 60}


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


@pytest.mark.parametrize(
    "options",
    [
        ["--expert", "egreedy", "--epsilon", "0.3", "--decay", "0.5"],
        ["--environment", "arms", "--arms", "6", "--available", "4", "--expert", "other"],
    ],
    ids=" ".join,
)
def test_a_simulated_run_is_known_again(tmp_path, options):
    sizes = ["--episodes", "3", "--batch-size", "40", "--features", "3", "--warmup", "60"]
    printed = json.loads(succeeds("simulate", tmp_path / "run", "--json", *options, *sizes).stdout)
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert printed == {"folder": str(tmp_path / "run"), "settings": told}
    named = {name: value for name, value in zip(options[::2], options[1::2], strict=True) if name != "--expert"}
    for name, value in named.items():
        stored = told[{"--arms": "n_arms", "--available": "n_available"}.get(name, name[2:])]
        assert stored == type(stored)(value)
    again = ibcb.simulate(**told)
    stored = ibcb.read_log(tmp_path / "run" / "log.parquet")
    np.testing.assert_array_equal(stored.chosen, again.log.chosen)


# -- fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, parameters",
    [
        ([], {}),
        (["--l2", "0.3", "--alpha", "2", "--solver", "paper"], {"l2": 0.3, "alpha": 2.0, "solver": "paper"}),
        (["--solver", "robust", "--full", "--prune"], {"solver": "robust", "incremental": False, "prune": True}),
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
    last = model.policy_interval(0.9, direction=True)
    np.testing.assert_array_equal(told["last_policy"]["lower"], last.lower)
    assert told["verdict"] == json.loads(json.dumps(model.verdict(ibcb.read_log(log_path)).to_json()))
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


def test_fit_without_forecast_shows_none(folder, tmp_path):
    command = ["fit", folder / "run" / "log.parquet", "-o", tmp_path / "m.safetensors", "--l2", "0.3", "--no-forecast"]
    text = succeeds(*command).stdout
    assert "forecast " not in text
    assert "interval" not in text
    told = json.loads(succeeds(*command, "--json").stdout)
    names = ("forecast_model", "forecast_note", "last_policy", "unidentified_features")
    assert [told[name] for name in names] == [None] * 4


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


@pytest.mark.filterwarnings("ignore::UserWarning")  # as `ibcb.cli.main` does
def test_notes_go_to_stderr_once_and_stdout_stays_json(tmp_path):
    ibcb.write_log(random_log(warmup=0), tmp_path / "random.parquet")
    arguments = ["fit", tmp_path / "random.parquet", "-o", tmp_path / "m.safetensors", "--json"]
    result = succeeds(*arguments)
    told = json.loads(result.stdout)
    assert told["solver"] == "robust"
    codes = [note["code"] for note in told["notes"]]
    assert codes[0] == "unexplained"
    assert "not-predicted" in codes
    assert len(codes) == len(set(codes))
    names = {"info": "note", "warning": "warning"}
    assert result.stderr.splitlines() == [f"{names[note['severity']]}: {note['text']}" for note in told["notes"]]


@pytest.mark.parametrize(
    "content, options, words",
    [
        (b"", ["--json"], r"bad\.parquet: not a readable Parquet file"),
        ("random", ["--solver", "hard", "--json"], 'no theta explains .*solver="robust"'),
        ("short", [], "one episode and nothing before it"),
        ("short", ["--stream", "--expert", "auto"], "one episode and nothing before it"),
    ],
    ids=["empty", "infeasible", "one episode", "streamed, and to be chosen"],
)
def test_fit_fails_in_one_line_and_leaves_no_model(folder, tmp_path, content, options, words):
    path = tmp_path / "bad.parquet"
    log = ibcb.read_log(folder / "run" / "log.parquet")
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        ibcb.write_log({"short": log[1], "random": random_log(warmup=1)}[content], path)
    result = ibcb_command("fit", path, "-o", tmp_path / "m.safetensors", *options)
    assert_fails(result, 1, words)
    assert not (tmp_path / "m.safetensors").exists()


# -- predict -------------------------------------------------------------------------------------------------------


def read_choices(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    kinds = {"episode": int, "step": int, "chosen": int, "score": float}
    assert list(rows[0]) == list(kinds)
    return {name: [kind(row[name]) for row in rows] for name, kind in kinds.items()}


def test_predict_writes_csv_or_json_to_stdout_or_a_file_and_nothing_else(folder, tmp_path):
    command, out = (
        ["predict", folder / "model.safetensors", folder / "run" / "log.parquet"],
        tmp_path / "deep" / "c.csv",
    )
    model, log = ibcb.load_model(command[1]), ibcb.read_log(command[2])
    text, data, told = succeeds(*command), succeeds(*command, "--json"), succeeds(*command, "-o", out)
    sizes = np.diff(log.episode_offsets)
    for choices in (read_choices(text.stdout), json.loads(data.stdout), read_choices(out.read_text())):
        assert choices["episode"] == np.repeat(np.arange(-1, 4), sizes).tolist()
        assert choices["step"] == [step for size in sizes for step in range(size)]
        assert choices["chosen"] == model.predict(log).tolist()
        best = [max(model.decision_function(log.candidates(step))) for step in range(log.n_steps)]
        assert choices["score"] == pytest.approx(best)
    assert text.stderr == data.stderr == ""
    assert (told.stdout, str(out) in told.stderr) == ("", True)
    assert json.loads(succeeds(*command, "-o", out, "--json").stdout) == {"out": str(out), "steps": log.n_steps}


@pytest.mark.parametrize("episode", [3, 9])
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


@pytest.mark.slow
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


LOST_INTERRUPTS = {
    "anywhere": "interrupt()",
    "in a finaliser": "class Last:\n    def __del__(self): interrupt()\nlast = Last()\ndel last",
    "while a class is made": "class Part:\n    def __set_name__(*_): interrupt()\nclass Whole:\n    part = Part()",
}


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("sign", [signal.SIGINT, slow(signal.SIGTERM)])
@pytest.mark.parametrize("place", ["in a finaliser", *map(slow, ["anywhere", "while a class is made"])])
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
    log = ibcb.simulate("synthetic", n_episodes=8, batch_size=300, n_features=5, seed=1, noise=0.03).log
    path, out = tmp_path / "log.parquet", tmp_path / "m.safetensors"
    ibcb.write_log(log, path)
    told = json.loads(ibcb_command("fit", path, "--expert", "auto", "--l2", "auto", "-o", out, "--json").stdout)
    assert told["expert"] == "sbucb"
    assert [entry["expert"] for entry in told["evidence"] if entry["chosen"]] == ["sbucb"]
    assert ibcb.load_model(out).expert_ == "sbucb"
    whole = ibcb.load_model(out)
    streamed = ["fit", path, "--expert", "auto", "--l2", "auto", "--stream", "-o", out, "--json"]
    again = json.loads(succeeds(*streamed).stdout)
    assert {**again, "seconds": 0} == {**told, "seconds": 0}
    assert_same(ibcb.load_model(out).get_state(), whole.get_state())
    assert [file.name for file in tmp_path.iterdir() if "checkpoint" in file.name] == []


@pytest.mark.parametrize("episode", [2, 6], ids=["while it chooses", "while it fits"])
def test_ctrl_c_keeps_a_checkpoint_from_which_the_same_command_goes_on(tmp_path, monkeypatch, episode):
    """In whichever phase; the model is that of an undisturbed fit."""
    from ibcb.estimators import models

    log = ibcb.simulate("synthetic", seed=1, noise=0.03, **SETTINGS).log
    path, out = tmp_path / "log.parquet", tmp_path / "m.safetensors"
    ibcb.write_log(log, path)
    command = ["fit", path, "--expert", "auto", "--l2", "auto", "--stream", "-o", out]
    save, saved = models.save_model, []

    def interrupted(model, where):
        saved.append(where)
        if len(saved) == episode:
            raise KeyboardInterrupt
        save(model, where)

    with monkeypatch.context() as patch:
        patch.setattr(models, "save_model", interrupted)
        result = ibcb_command(*command)
    assert result.exit_code == 130
    assert f"kept in {models.checkpoint_of(out)}" in result.stderr
    assert "with --resume to continue" in result.stderr
    assert not out.exists()
    other = ibcb_command("fit", path, "--expert", "other", "--resume", "-o", out)
    assert_fails(other, 1, "expert='auto', now expert is 'other'")
    succeeds(*command, "--resume")
    whole = ibcb.IBCB(expert="auto", l2="auto", n_jobs=1, verbose=True).fit(log)
    assert_same(ibcb.load_model(out).get_state(), whole.get_state())
    assert not models.checkpoint_of(out).exists()
