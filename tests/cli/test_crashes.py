"""Every verb that writes, stopped by every means: no half file under the final name, and nothing left behind."""

import functools
import json
import os
import subprocess
import sys

import pytest
from commands import succeeds

import ibcb

SETTINGS = {"n_episodes": 3, "batch_size": 40, "n_candidates": 4, "n_features": 3, "warmup": 40}
#: what each verb writes, and how it is called
VERBS = {
    "fit": ("out.safetensors", ["fit", "log.parquet", "--l2", "0.3", "-o"]),
    "stream": ("out.safetensors", ["fit", "log.parquet", "--l2", "0.3", "--resume", "-o"]),
    "convert": ("out.parquet", ["convert", "log.parquet"]),
    "csv": ("out.csv", ["convert", "log.parquet"]),
    "report": ("out.html", ["report", "model.safetensors", "--log", "log.parquet", "-o"]),
    "predict": ("out.csv", ["predict", "model.safetensors", "log.parquet", "-o"]),
    "propensities": ("out.parquet", ["propensities", "model.safetensors", "log.parquet", "-o"]),
    "explain": ("out.csv", ["explain", "model.safetensors", "--log", "log.parquet", "-o"]),
}
#: one for each way in which they write
SOME = ("stream", "convert", "report", "predict")
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX processes")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with a log and a model."""
    folder = tmp_path_factory.mktemp("given")
    log = ibcb.simulate("synthetic", seed=0, noise=0.03, **SETTINGS).log
    ibcb.write_log(log, folder / "log.parquet")
    ibcb.save_model(ibcb.IBCB(l2=0.3).fit(log), folder / "model.safetensors")
    return folder


def calls(given, folder):
    """Of each verb, where it writes and its arguments; each has a folder of its own."""
    found = {}
    for verb, (name, arguments) in VERBS.items():
        (folder / verb).mkdir(parents=True)
        placed = [str(given / part) if (given / part).exists() else part for part in arguments]
        found[verb] = (folder / verb / name, [*placed, str(folder / verb / name)])
    return found


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture(scope="module")
def whole(given, tmp_path_factory):
    """What every verb writes if nothing happens."""
    found = calls(given, tmp_path_factory.mktemp("whole"))

    @functools.cache
    def bytes_of(verb):
        out, arguments = found[verb]
        succeeds(*arguments)
        assert names(out.parent) == [out.name]
        return out.read_bytes()

    return bytes_of


#: one process that has everything loaded, because that is quick: each call in a child of its own, stopped when it
#: touches its output
STOPPED = """
import json, os, random, resource, signal, sys, threading, time

from ibcb.__main__ import main
import ibcb.cli
from ibcb.estimators import models
from ibcb.report import write_report

names = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}

def stop_at_rename(number, out):
    def hook(event, arguments):
        if event == "os.rename" and os.path.basename(str(arguments[1])) == os.path.basename(out):
            os.kill(os.getpid(), number)
    sys.addaudithook(hook)

def stop_some_time(number):
    def wait():
        time.sleep(random.random() * 0.3)
        os.kill(os.getpid(), number)
    threading.Thread(target=wait, daemon=True).start()

def stopped(how, seed, verb, out, arguments):
    random.seed(f"{seed} {verb}")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writer, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if how == "full":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
        elif how.startswith("random-"):
            stop_some_time(names[how.removeprefix("random-")])
        else:
            stop_at_rename(names[how], out)
        try:
            sys.argv[1:] = arguments
            main()
        except SystemExit as leaving:
            sys.stdout.flush()
            os._exit(leaving.code or 0)
        os._exit(99)
    os.close(writer)
    with os.fdopen(reader) as errors:
        text = errors.read()
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text]

for line in sys.stdin:
    how, seed, calls = json.loads(line)
    print(json.dumps({verb: stopped(how, seed, verb, *call) for verb, call in calls.items()}), flush=True)
"""


@pytest.fixture(scope="module")
def stopper():
    """Has verbs stopped: (how, seed, {verb: (where it writes, arguments)}) gives {verb: (exit code, what it said)}."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STOPPED], env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes) as forge:

        def stop(*order):
            print(json.dumps(order), file=forge.stdin, flush=True)
            return json.loads(forge.stdout.readline())

        yield stop
        forge.stdin.close()
    assert forge.returncode == 0


def stopped(stopper, how, given, folder, seed=0, verbs=SOME):
    """Stop verbs; gives where each wrote, its exit code and what it said."""
    found = {verb: call for verb, call in calls(given, folder).items() if verb in verbs}
    told = stopper(how, seed, {verb: (str(out), arguments) for verb, (out, arguments) in found.items()})
    return {verb: (*found[verb], *told[verb]) for verb in found}


def assert_goes_on(verb, out, arguments, whole):
    """The same command, again: the same bytes as undisturbed, and nothing else in the folder."""
    succeeds(*arguments)
    assert names(out.parent) == [out.name], verb
    assert out.read_bytes() == whole(verb), verb


@posix
def test_after_kill_9_the_next_run_removes_what_was_left(stopper, given, whole, tmp_path):
    for verb, (out, arguments, code, _) in stopped(stopper, "kill", given, tmp_path).items():
        assert code == -9, verb
        assert not out.exists(), verb
        left = [name for name in names(out.parent) if "checkpoint" not in name and not name.endswith("-lock")]
        assert len(left) == 1, verb
        assert left[0].startswith(f".{out.name}."), verb
        assert_goes_on(verb, out, arguments, whole)


@posix
@pytest.mark.parametrize("how, code", [("term", 143), pytest.param("int", 130, marks=pytest.mark.slow)])
def test_a_polite_stop_leaves_nothing_half_written(stopper, given, whole, tmp_path, how, code):
    for verb, (out, arguments, found, text) in stopped(stopper, how, given, tmp_path).items():
        assert found == code, (verb, text)
        assert "Traceback" not in text, (verb, text)
        assert not out.exists() or out.read_bytes() == whole(verb), verb
        assert {name for name in names(out.parent) if "checkpoint" not in name} <= {out.name}, verb
        if verb == "stream":
            assert_goes_on(verb, out, arguments, whole)


@posix
def test_a_full_disk_is_said_and_leaves_nothing(stopper, given, tmp_path):
    for verb, (out, _, code, text) in stopped(stopper, "full", given, tmp_path, verbs=(*SOME, "csv")).items():
        assert code == 1, (verb, text)
        # A fit in steps stores the first episode before anything else.
        kept = "out.checkpoint.safetensors" if verb == "stream" else out.name
        assert text.splitlines()[-1].startswith(f"error: {out.with_name(kept)} cannot be written (File too large)"), (
            verb,
            text,
        )
        assert "Traceback" not in text
        assert names(out.parent) == [], verb


@posix
@pytest.mark.slow
@pytest.mark.parametrize("how", ["random-kill", "random-term", "random-int"])
def test_two_hundred_stops_at_any_moment_lose_and_double_nothing(stopper, given, whole, tmp_path, how):
    for seed in range(200 // len(VERBS) // 3 + 1):
        ends = stopped(stopper, how, given, tmp_path / str(seed), seed, VERBS)
        for verb, (out, arguments, code, text) in ends.items():
            assert "Traceback" not in text, (verb, code, text)
            assert not out.exists() or out.read_bytes() == whole(verb), verb
            if how != "random-kill":
                assert {name for name in names(out.parent) if "checkpoint" not in name} <= {out.name}, verb
            assert_goes_on(verb, out, arguments, whole)


RUN = ["log.parquet", "ood.parquet", "run.json", "test.parquet"]
SMALL = ["--episodes", "2", "--batch-size", "20", "--candidates", "3", "--features", "2", "--warmup", "20"]


def simulation_stopped(stopper, how, out, at, seed=1):
    """`ibcb simulate` into a folder, stopped where one of its files is about to take its name: code and words."""
    arguments = ["simulate", str(out), "--seed", str(seed), *SMALL]
    return stopper(how, 0, {"simulate": (str(out / at), arguments)})["simulate"]


def run_of(folder, seed):
    succeeds("simulate", str(folder), "--seed", str(seed), *SMALL)
    assert names(folder) == RUN
    return {name: (folder / name).read_bytes() for name in RUN}


@posix
@pytest.mark.parametrize(
    "at", [file if file == "run.json" else pytest.param(file, marks=pytest.mark.slow) for file in RUN]
)
def test_a_simulation_that_is_killed_is_seen_not_to_be_whole(stopper, tmp_path, at):
    """Into a new folder, and over an older run: a description is only ever that of all files beside it."""
    wanted = run_of(tmp_path / "wanted", 1)
    out = tmp_path / "run"
    for older in (False, True):
        if older:
            run_of(out, 2)
        assert simulation_stopped(stopper, "kill", out, at) == [-9, ""]
        assert not (out / "run.json").exists()
        # The same command again: as if nothing had happened, and nothing is left.
        assert run_of(out, 1) == wanted


@posix
@pytest.mark.parametrize("how, code", [("term", 143), ("int", 130), ("full", 1)])
def test_a_simulation_that_is_stopped_politely_leaves_nothing(stopper, tmp_path, how, code):
    found, text = simulation_stopped(stopper, how, tmp_path / "run", "log.parquet")
    assert found == code
    assert "Traceback" not in text
    assert not (tmp_path / "run" / "run.json").exists()
    assert list(tmp_path.rglob(".*")) == []
    if how == "full":
        assert "cannot be written (File too large)" in text
        assert names(tmp_path) == []


@posix
def test_ctrl_c_while_the_libraries_are_loaded_shows_no_traceback(tmp_path):
    """At the import of the command line, of a library, and where the verbs are put together."""
    program = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)
import ibcb.__main__

def hook(event, arguments):
    if event == "import" and arguments[0] == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
ibcb.__main__.main()
"""
    for module in ("ibcb.cli", "typer", "ibcb.cli.printing"):
        done = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, check=False)
        assert done.returncode == -2
        assert done.stderr == ""
