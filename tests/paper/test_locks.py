"""Records are written by one run at a time, on systems with and without fcntl."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ibcb.paper.tables import Cell, PaperSetting, reproduce

CELLS = [Cell(PaperSetting("synthetic", "sbucb", noise=0.03), name, 77) for name in ("expert", "BaseSVC")]


@pytest.fixture
def without_fcntl(monkeypatch):
    """As on Windows: the regions that msvcrt was asked to lock, and has not been asked to unlock."""
    fcntl = pytest.importorskip("fcntl")
    held = []

    def locking(file, mode, length):
        region = os.lseek(file, 0, os.SEEK_CUR), length
        fcntl.flock(file, mode)
        held.remove(region) if mode == fcntl.LOCK_UN else held.append(region)

    msvcrt = SimpleNamespace(locking=locking, LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB, LK_UNLCK=fcntl.LOCK_UN)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    return held


def test_without_fcntl_one_run_at_a_time_writes_and_the_next_goes_on(tmp_path, without_fcntl, monkeypatch):
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": "torn')
    others = []

    def meanwhile(*arguments, **options):
        ((start, _),) = without_fcntl
        assert start > path.stat().st_size  # Windows lets nobody read a region that is locked
        with pytest.raises(BlockingIOError, match="another run"):
            reproduce(CELLS, path, smoke=True)
        others.append("refused")
        return simulate(*arguments, **options)

    simulate = PaperSetting.simulate
    with monkeypatch.context() as patch:
        patch.setattr(PaperSetting, "simulate", meanwhile)
        first = reproduce(CELLS, path, smoke=True)
    assert (first.torn, first.computed, first.failed) == (True, len(CELLS), ())
    assert others == ["refused"]
    assert without_fcntl == []
    second = reproduce(CELLS, path, smoke=True)
    assert (second.torn, second.computed, second.done_before) == (False, 0, len(CELLS))
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == [cell.id for cell in CELLS]


def test_everything_can_be_imported_without_fcntl():
    code = "import sys; sys.modules['fcntl'] = None; import ibcb.paper.tables; from ibcb import *"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
