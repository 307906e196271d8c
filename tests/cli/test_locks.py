"""Two fits that would write one model: the second is told who is first, and does no harm."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from commands import ibcb_command, succeeds
from conftest import slow

import ibcb
from ibcb.estimators.models import checkpoint_of
from ibcb.io.files import HeldError, sole_writer

FIT = [sys.executable, "-m", "ibcb", "fit", "log.csv", "--l2", "0.3"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ibcb.simulate("synthetic", n_episodes=5, batch_size=150, n_candidates=5, n_features=4, noise=0.03, seed=0)
    ibcb.write_log(run.log, "log.csv")
    return tmp_path


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("how", [[], ["--stream"], ["--resume"]], ids=["whole", "stream", "resume"])
def test_the_second_is_told_who_is_first_and_does_no_harm(here, how):
    out = here / "m.safetensors"
    with sole_writer(out, checkpoint_of(out)):
        checkpoint_of(out).write_bytes(b"of the first")
        before = files(here)
        result = ibcb_command("fit", "log.csv", "--l2", "0.3", *how, "-o", "m.safetensors")
        assert result.exit_code == 1
        said = f"{out} is being written by process {os.getpid()} on {socket.gethostname()}, since 20"
        assert said in result.stderr
        assert "wait until it has finished, or give another file with -o" in result.stderr
        assert files(here) == before
        assert checkpoint_of(out).read_bytes() == b"of the first"
        # By another name, too; and another model is nobody's business.
        os.symlink(out, "n.safetensors")
        assert ibcb_command("fit", "log.csv", "--l2", "0.3", "-o", "n.safetensors").exit_code == 1
        succeeds("fit", "log.csv", "--l2", "0.3", "-o", "other.safetensors")
    assert not [name for name in files(here) if name.endswith("-lock")]


def test_what_a_dead_process_held_is_taken_over(here):
    program = (
        "import os, sys; from ibcb.io.files import sole_writer\n"
        "with sole_writer('m.safetensors', 'm.checkpoint.safetensors'): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    left = here / ".m.safetensors.ibcb-lock"
    assert json.loads(left.read_text())["host"] == socket.gethostname()
    succeeds("fit", "log.csv", "--l2", "0.3", "--stream", "-o", "m.safetensors")
    assert files(here) == ["log.csv", "m.safetensors"]


@pytest.mark.parametrize("host, alive", [("here", False), ("here", True), ("elsewhere", None)])
def test_without_locks_of_the_system_the_number_of_the_process_tells(here, monkeypatch, host, alive):
    monkeypatch.setattr("ibcb.io.files.system_lock", None)
    pid = os.getpid() if alive else 2**22 + 1
    holder = {"pid": pid, "host": socket.gethostname() if host == "here" else host, "since": "2026-01-01 00:00:00"}
    (here / ".m.safetensors.ibcb-lock").write_text(json.dumps(holder))
    if alive is False:
        with sole_writer("m.safetensors"):
            pass
        assert files(here) == ["log.csv"]
    else:
        with pytest.raises(HeldError, match=f"by process {pid} on .*, since 2026-01-01"), sole_writer("m.safetensors"):
            pass


def test_a_folder_that_was_made_for_the_lock_alone_goes(here):
    with sole_writer("new/deep/m.safetensors"):
        assert files(here / "new" / "deep") == [".m.safetensors.ibcb-lock"]
    assert files(here) == ["log.csv"]
    with sole_writer(os.devnull):
        pass


def test_resuming_without_a_checkpoint_is_told(here):
    result = succeeds("fit", "log.csv", "--l2", "0.3", "--resume", "-o", "m.safetensors")
    assert "there is no checkpoint m.checkpoint.safetensors to resume from; the log is fitted from its" in result.stderr


@pytest.mark.parametrize("trial", [1, *map(slow, range(2, 20))])
def test_of_two_fits_at_once_none_is_lost(here, trial):
    started = []
    for _ in range(2):
        command = [*FIT, "--stream", "-o", "m.safetensors"]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        time.sleep(0.02 * (trial % 5))
    told = [process.communicate()[1] for process in started]
    codes = [process.returncode for process in started]
    assert 0 in codes, told
    assert all("is being written by" in text for code, text in zip(codes, told, strict=True) if code), (codes, told)
    assert files(here) == ["log.csv", "m.safetensors"]
    assert ibcb.load_model("m.safetensors").l2_ == 0.3
