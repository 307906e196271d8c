"""No command writes what it reads, under whatever name; nothing that happens after a file was saved fails one."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from commands import ibcb_command, succeeds
from conftest import slow
from typer.testing import CliRunner

import ibcb
from ibcb.cli import app, running

SETTINGS = {"n_episodes": 4, "batch_size": 40, "n_candidates": 3, "n_features": 3, "warmup": 40, "noise": 0.03}


def table(path, steps=60, **columns):
    """A CSV file of two candidates a step."""
    rng = np.random.default_rng(0)
    rows = {
        "episode": np.repeat(np.arange(steps) // (steps // 3), 2),
        "step": np.repeat(np.arange(steps), 2),
        "chosen": np.tile([1, 0], steps),
        "price": rng.normal(size=2 * steps).round(3),
        "stars": rng.normal(size=2 * steps).round(3),
    }
    pacsv.write_csv(pa.table(rows | columns), path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a log and a model, tables beside logs, a folder of logs, and links to them."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        log = ibcb.simulate("synthetic", seed=0, **SETTINGS).log
        ibcb.write_log(log, "log.parquet")
        ibcb.save_model(ibcb.IBCB(l2=0.3).fit(log), "m.safetensors")
        table("seen.csv", item=np.tile(["a", "b"], 60))
        rows = "".join(f"{n // 20},{n % 2},{n * 7 % 5}\n" for n in range(60))
        texts = {"items.csv": "item,size\na,1.5\nb,0.5\n", "arms.csv": "arm,size\n0,1.5\n1,0.5\n", "r.jsonl": ""}
        texts |= {"armed.csv": f"episode,arm,age\n{rows}"}
        texts |= {"how.toml": 'items = "items.csv"\n', "plain.toml": 'drop = ["stars"]\n'}
        for name, text in texts.items():
            (folder / name).write_text(text)
        (folder / "parts" / "deep").mkdir(parents=True)
        (folder / "else").mkdir()
        table("parts/1.csv")
        table("else/2.csv", episode=np.repeat(np.arange(60) // 20 + 3, 2))
        links = {"l.parquet": "log.parquet", "m.csv": "m.safetensors", "page.html": "log.parquet", "way": "parts"}
        links |= {"parts/2.csv": folder / "else" / "2.csv", "round": folder, "r.md": "r.jsonl"}
        for link, target in links.items():
            os.symlink(target, link)
        os.link("log.parquet", "hard.parquet")
        os.link("log.parquet", "h.safetensors")
        os.link("plain.toml", "toml.csv")
    return folder


@pytest.fixture
def here(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def content(folder):
    """Of all files, by their names."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WAYS = {
    "the same name": "convert log.parquet log.parquet",
    "written otherwise": "convert log.parquet ./parts/../log.parquet",
    "through a folder that is not there": "convert log.parquet nodir/../log.parquet",
    "by a symbolic link": "convert log.parquet l.parquet",
    "the input is the link": "convert l.parquet log.parquet",
    "by a hard link": "convert log.parquet hard.parquet",
    "through a linked folder": "convert log.parquet round/log.parquet",
    "a model over its log": "fit log.parquet -o h.safetensors",
    "choices over the model": "predict m.safetensors log.parquet -o m.csv",
    "a page over the log": "report m.safetensors --log log.parquet -o page.html",
    "propensities over the log": "propensities m.safetensors log.parquet -o l.parquet",
    "steps over the model": "explain m.safetensors --log log.parquet -o m.csv",
    "over the items": "convert seen.csv --items items.csv items.csv",
    "over the items that a file of options names": "convert seen.csv --options how.toml items.csv",
    "over the table of arms": "convert armed.csv --arm arm --arm-features arms.csv arms.csv",
    "over the options": "convert seen.csv --options plain.toml toml.csv",
    "options over options": "validate seen.csv --options plain.toml --save-options plain.toml",
    "over a file of a folder": "convert parts parts/1.csv",
    "over what a folder has a link to": "convert parts else/2.csv",
    "a new file in a folder": "convert parts parts/3.csv",
    "a new file of another format": "convert parts parts/3.parquet",
    "a new file, deeper": "convert parts parts/deep/day=3/3.csv",
    "a new file, by a linked folder": "convert parts way/3.csv",
    "any file where the format is named": "fit parts --format csv -o parts/model.safetensors",
    "a page over the results": "reproduce --table 3 --results r.jsonl --page r.md",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_command_writes_what_it_reads(here, way):
    before = content(here)
    result = ibcb_command(*WAYS[way].split())
    assert result.exit_code == 2, result.output
    assert "input" in result.stderr
    assert "give another path for the output" in result.stderr
    assert content(here) == before


def test_the_items_of_the_log_that_was_fitted_are_an_input_too(here):
    succeeds("fit", "seen.csv", "--items", "items.csv", "--l2", "0.3", "-o", "n.safetensors")
    before = content(here)
    for out in ("items.csv", "seen.csv"):
        result = ibcb_command("predict", "n.safetensors", "seen.csv", "-o", out)
        assert (result.exit_code, "an input; give another" in result.stderr) == (2, True)
    assert content(here) == before


def test_what_a_folder_is_not_read_as_may_lie_in_it(here):
    for out in ("parts/m.safetensors", "else/m.safetensors"):
        succeeds("fit", "parts", "--l2", "0.3", "--stream", "-o", out)
    assert ibcb.open_log("parts").n_features == 2


# -- what goes wrong after a file was saved ------------------------------------------------------------------------

NAME = "größe 日本"
VERBS = {
    "validate": "validate log.csv",
    "validate --save-options": f"validate log.csv --save-options {NAME}.toml",
    "convert": f"convert log.csv {NAME}.parquet",
    "fit": f"fit log.csv --expert egreedy --l2 0.3 -o {NAME}.safetensors",
    "fit --json": f"fit log.csv --expert egreedy --l2 0.3 --json -o {NAME}.safetensors",
    "fit --stream": f"fit log.csv --expert egreedy --l2 0.3 --stream -o {NAME}.safetensors",
    "fit --expert auto": f"fit log.csv --expert auto -o {NAME}.safetensors",
    "predict": "predict m.safetensors log.csv",
    "predict -o": f"predict m.safetensors log.csv -o {NAME}.csv",
    "propensities": f"propensities m.safetensors log.csv -o {NAME}.csv",
    "evaluate": "evaluate m.safetensors log.csv",
    "report": f"report m.safetensors --log log.csv --title {NAME} -o {NAME}.html",
    "explain": f"explain m.safetensors --log log.csv -o {NAME}.csv",
    "simulate": f"simulate {NAME} --episodes 2 --batch-size 20",
}


def words(command):
    """Its arguments; the name has a space."""
    return [part.replace("_", " ") for part in command.replace(NAME, NAME.replace(" ", "_")).split()]


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A folder with a log whose features and steps have names that few encodings can hold, and its model."""
    folder, rng = tmp_path_factory.mktemp("named"), np.random.default_rng(0)
    names = {NAME: rng.normal(size=120).round(3), "step": np.repeat([f"Schritt {n} №" for n in range(60)], 2)}
    table(folder / "log.csv", **names)
    model = ibcb.IBCB(expert="egreedy", l2=0.3).fit(ibcb.read_log(folder / "log.csv"))
    ibcb.save_model(model, folder / "m.safetensors")
    return folder


@pytest.fixture
def abroad(named, tmp_path, monkeypatch):
    shutil.copytree(named, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb, encoding", [*((verb, "ascii") for verb in VERBS), ("fit", "cp1252")])
def test_a_name_that_stdout_cannot_hold_fails_no_command(abroad, verb, encoding):
    result = CliRunner(charset=encoding).invoke(app, words(VERBS[verb]))
    assert result.exit_code in ((0, 1) if "validate" in verb else (0,)), result.output
    out = [part for part in words(VERBS[verb]) if part.startswith(NAME) and part != NAME]
    assert all((abroad / name).exists() for name in out)
    if verb == "fit":
        assert r"gr\xf6\xdfe" in result.stdout or "größe" in result.stdout
        assert r"\u65e5" in result.stdout
        assert f"stdout is {encoding}" in result.stderr


@pytest.mark.slow
def test_the_process_itself_survives_ascii(abroad):
    arguments = words(VERBS["fit"])
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([sys.executable, "-m", "ibcb", *arguments], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert (abroad / f"{NAME}.safetensors").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "redirected", [">/dev/full", *map(slow, ["2>&1 | true", ">&-", "2>&-", "2>/dev/full", "| true"])]
)
def test_streams_that_take_nothing_fail_no_command_that_has_saved(abroad, redirected):
    command = f"{sys.executable} -m ibcb fit log.csv --l2 0.3 -o n.safetensors {redirected}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert ibcb.load_model("n.safetensors").n_features_in_ == 3
    assert not redirected.startswith(">/") or "n.safetensors is saved; what comes after it" in done.stderr


# -- logs that change meanwhile ------------------------------------------------------------------------------------


def grow(path):
    path.write_bytes(path.read_bytes() + b"9,9,1,0.5,0.5\n9,9,0,0.1,0.2\n")


def vanish(path):
    path.unlink()


def replace(path):
    table("new.csv", price=np.linspace(0, 1, 120))
    os.replace("new.csv", path)


@pytest.mark.parametrize(
    "change, stream", [(grow, ["--stream"]), (vanish, []), (replace, []), slow(grow, []), slow(replace, ["--stream"])]
)
def test_a_log_that_changes_after_the_save_is_told_and_the_verdict_is_of_the_rows_fitted(
    tmp_path, monkeypatch, change, stream
):
    monkeypatch.chdir(tmp_path)
    table("log.csv")
    command = ["fit", "log.csv", "--l2", "0.3", "--json", *stream, "-o"]
    undisturbed = succeeds(*command, "a.safetensors")
    saved = running.saved

    def and_then(path):
        saved(path)
        change(tmp_path / "log.csv")

    monkeypatch.setattr(sys.modules["ibcb.cli.fit"], "saved", and_then)
    result = succeeds(*command, "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    said = {"grow": "has grown by 28 bytes", "vanish": "removed or renamed", "replace": "another file has its name"}
    assert said[change.__name__] in result.stderr
    assert json.loads(undisturbed.stdout)["verdict"] == json.loads(result.stdout)["verdict"]


@pytest.mark.parametrize("change, expert", [(grow, "auto"), (replace, "auto"), (grow, "sbucb"), (vanish, "sbucb")])
def test_a_log_that_changes_while_it_is_fitted_is_fitted_as_it_was_opened_or_not_at_all(
    tmp_path, monkeypatch, change, expert
):
    from ibcb.io.sources import Watched

    monkeypatch.chdir(tmp_path)
    table("log.csv")
    command = ["fit", "log.csv", "--stream", "--expert", expert, "-o"]
    succeeds(*command, "a.safetensors")
    mapped, passes = Watched._mapped, []

    def and_then(self, batches):
        yield from mapped(self, batches)
        passes.append(1)
        if len(passes) == 1:
            change(tmp_path / "log.csv")

    monkeypatch.setattr(Watched, "_mapped", and_then)
    result = ibcb_command(*command, "b.safetensors")
    if change is grow:
        assert result.exit_code == 0, result.output
        assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
        assert "what was added is left out" in result.stderr
    else:
        # All of it is gone through twice: to choose, then to solve.
        assert result.exit_code == 1
        assert "log.csv: it changed while it was read" in result.stderr
        assert not (tmp_path / "b.safetensors").exists()
