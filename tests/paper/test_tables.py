"""The paper's tables: cells located, recorded once, resumed after anything."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import succeeds
from conftest import heed_interrupts
from movielens_files import write_movielens
from typer.testing import CliRunner

from ibcb.cli import app
from ibcb.io.files import sole_writer
from ibcb.paper.tables import TABLES, Cell, PaperSetting, cells, reproduce, runner
from ibcb.paper.tables.page import _remarks, render
from ibcb.paper.tables.runner import OURS, figures, make

SMALL = [Cell(PaperSetting("synthetic", "sbucb", noise=0.03), name, 0) for name in ("expert", "IBCB", "BaseSVC", *OURS)]


def recorded(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_figure_of_the_paper_has_a_cell_of_ours():
    known = {(cell.setting, cell.algorithm) for cell in cells(TABLES, 1)}
    assert len(figures()) == 1128
    assert {figure.table for figure in figures()} == set(TABLES)
    assert all((figure.setting, figure.ours) in known for figure in figures())
    for setting in {figure.setting for figure in figures() if figure.variant != "per_episode_average"}:
        assert all((setting, name) in known for name in OURS)


def test_ids_are_unique_and_cells_are_shared_between_tables():
    everything = cells(TABLES, 2)
    assert len({cell.id for cell in everything}) == len(everything)
    assert {cell.id for cell in cells([1], 2)} <= {cell.id for cell in everything}
    shared = {cell.id for cell in cells([1], 1)} & {cell.id for cell in cells([2], 1)}
    assert "synthetic/sbucb/std=0.03/B-IRL/0" in shared


def test_settings_are_the_papers():
    run = PaperSetting("synthetic", "sbts", noise=0.1, top_k=3).simulate(4, smoke=True)
    assert (run.expert_settings.kind, run.top_k, run.environment.noise, run.seed) == ("sbts", 3, 0.1, 4)
    assert make("expert", run) is None
    assert make("IBCB", run).get_params()["prune"]
    assert make("IBCB-alpha-0.6", run).get_params()["alpha"] == 0.6
    assert make("B-IRL", run).get_params()["burn_in"] == 10_000
    assert make("B-ICB-S averaged", run).estimator.get_params()["sample"] == 0.01


def test_a_cell_is_computed_once_and_the_same_with_two_jobs(tmp_path):
    one = reproduce(SMALL, tmp_path / "one.jsonl", smoke=True)
    two = reproduce(SMALL[:3], tmp_path / "two.jsonl", jobs=2, smoke=True)
    assert (one.computed, one.done_before, one.failed) == (len(SMALL), 0, ())
    assert two.computed == 3
    first, second = ({r["id"]: r["metrics"] for r in recorded(tmp_path / f"{name}.jsonl")} for name in ("one", "two"))
    assert {name: first[name] for name in second} == second
    again = reproduce(SMALL, tmp_path / "one.jsonl", smoke=True)
    assert (again.computed, again.done_before) == (0, len(SMALL))
    assert len(recorded(tmp_path / "one.jsonl")) == len(SMALL)


def test_a_torn_last_line_is_dropped_and_its_cell_computed_again(tmp_path):
    path = tmp_path / "r.jsonl"
    reproduce(SMALL, path, smoke=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    outcome = reproduce(SMALL, path, smoke=True)
    assert (outcome.torn, outcome.computed, outcome.done_before) == (True, 1, len(SMALL) - 1)
    assert sorted(r["id"] for r in recorded(path)) == sorted(cell.id for cell in SMALL)


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": "a"}\nnonsense\n{"id": "b"}\n')
    with pytest.raises(ValueError, match=r"r\.jsonl, line 2"):
        reproduce(SMALL, path, smoke=True)


def test_a_failing_cell_is_recorded_and_the_rest_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    real = runner.make

    def broken(algorithm, run, *, smoke):
        if algorithm == "BaseSVC":
            raise ArithmeticError("no such luck")
        return real(algorithm, run, smoke=smoke)

    monkeypatch.setattr(runner, "make", broken)
    outcome = reproduce(SMALL, path, smoke=True)
    assert outcome.computed == len(SMALL) - 1
    assert outcome.failed == ("synthetic/sbucb/std=0.03/BaseSVC/0: ArithmeticError: no such luck",)
    monkeypatch.setattr(runner, "make", real)
    assert reproduce(SMALL, path, smoke=True).computed == 1
    assert "BaseSVC" in render(runner.read_results(path)[0])


def test_nothing_is_lost_or_doubled_by_kill_9(tmp_path):
    path = tmp_path / "r.jsonl"
    command = ["reproduce", "--table", "7", "--smoke", "--seeds", "2"]
    command += ["--results", path, "--page", tmp_path / "p.md"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    smoke = tmp_path / "r.smoke.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "ibcb", *command], env=environment, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not (smoke.exists() and smoke.read_text().count("\n") >= 3):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    before = smoke.read_text().splitlines()
    assert len(before) >= 3
    succeeds(*command)
    ids = [record["id"] for record in recorded(smoke)]
    assert sorted(ids) == sorted(cell.id for cell in cells([7], 2))
    whole = [line for line in before if line.endswith("}")]
    assert smoke.read_text().splitlines()[: len(whole)] == whole
    assert "## Table 7" in (tmp_path / "p.smoke.md").read_text()


def test_records_stand_in_the_order_of_the_tables_however_they_came_about(tmp_path):
    """In one go, in pieces and backwards, and with a failure that was mended: the same lines but for the time."""

    def timeless(path):
        return [json.dumps(record | {"seconds": None}) for record in recorded(path)]

    reproduce(SMALL, tmp_path / "one.jsonl", smoke=True)
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"id": SMALL[1].id, "setting": "", "algorithm": "", "seed": 0, "error": "none"}) + "\n")
    reproduce(SMALL[:2:-1], other, smoke=True)
    reproduce(SMALL[2::-1], other, smoke=True)
    assert timeless(other) == timeless(tmp_path / "one.jsonl")
    assert [record["id"] for record in recorded(other)] == [
        cell.id for cell in cells(TABLES, 1) if cell.id in {small.id for small in SMALL}
    ]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["kill -9", "kill", "Ctrl-C"])
def test_workers_do_not_outlive_the_command(tmp_path, number):
    smoke = tmp_path / "r.smoke.jsonl"
    command = [sys.executable, "-m", "ibcb", "reproduce", "--table", "7", "--smoke", "--seeds", "9", "--jobs", "2"]
    command += ["--results", tmp_path / "r.jsonl", "--page", tmp_path / "p.md"]
    # A group of its own, by which its workers are known when it is gone.
    how = {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "start_new_session": True, "preexec_fn": heed_interrupts}
    with (tmp_path / "told").open("w") as told, subprocess.Popen(command, stderr=told, **how) as process:
        while process.poll() is None and not (smoke.exists() and smoke.read_text()):
            time.sleep(0.05)
        assert len(of_session(process.pid)) >= 3
        process.send_signal(number)
    for _ in range(200):
        if not of_session(process.pid):
            break
        time.sleep(0.05)
    else:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError("workers are still there")
    assert number == signal.SIGKILL or "Traceback" not in (tmp_path / "told").read_text()


def test_what_is_given_up_is_finished_once():
    """Or a thread that looks after the workers ends in an error."""
    computing = runner._compute(SMALL * 5, 2, True)
    next(computing)
    computing.close()


def of_session(session):
    """Processes of a session, from the sixth field of their states."""
    processes = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:  # gone by now
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            processes.append(int(place.parent.name))
    return processes


@pytest.fixture
def some_movielens(tmp_path, monkeypatch):
    write_movielens(tmp_path / "ml-100k")
    monkeypatch.setenv("IBCB_ML100K", str(tmp_path / "ml-100k"))


def assert_smoke(tables, path):
    """Every cell of some tables is computed, and every figure that the paper has stands on the page."""
    wanted = cells(tables, 1)
    done = reproduce(wanted, path, smoke=True)
    assert done.failed == ()
    assert done.computed == len(wanted)
    page = render(runner.read_results(path)[0])
    for figure in figures():
        if figure.table in tables and (figure.metric, figure.algorithm) != ("ol_fitness", "BaseSVC"):
            section = page.split(f"## Table {figure.table}:")[1].split("## Table")[0]
            rows = [line for line in section.splitlines() if line.startswith(f"| {figure.algorithm} |")]
            assert rows
            assert not any(re.search(r"\| *(\(|\|)", row.removeprefix(f"| {figure.algorithm} ")) for row in rows)


def test_tables_go_up_in_smoke(tmp_path, some_movielens):
    assert_smoke([3, 20], tmp_path / "r.jsonl")


@pytest.mark.slow
def test_all_tables_go_up_in_smoke(tmp_path, some_movielens):
    assert_smoke(range(1, 21), tmp_path / "r.jsonl")


def test_two_runs_cannot_write_the_same_file(tmp_path):
    path = tmp_path / "r.jsonl"
    with sole_writer(path), pytest.raises(BlockingIOError, match="another run"):
        reproduce(SMALL, path, smoke=True)


def test_without_fcntl_locks_can_be_imported_all_the_same(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = importlib.util.find_spec("ibcb.io.files")
    locks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(locks)
    assert locks.system_lock is None


def test_the_page_shows_means_deviations_and_the_paper(tmp_path):
    path = tmp_path / "r.jsonl"
    twice = [Cell(cell.setting, cell.algorithm, seed) for cell in SMALL for seed in (0, 1)]
    reproduce(twice, path, smoke=True)
    records, _ = runner.read_results(path)
    values = [r["metrics"]["bt_fitness"] for r in records.values() if r["algorithm"] == "BaseSVC"]
    page = render(records)
    row = next(line for line in page.split("## Table 2")[1].splitlines() if line.startswith("| BaseSVC"))
    assert f"{np.mean(values):.3f} ± {np.std(values):.3f} (0.781)" in row
    assert re.findall(r"^## Table (\d+):", page, re.M) == ["1", "2", "6", "15", "16"]
    ratios = [
        records[f"synthetic/sbucb/std=0.03/IBCB, ours/{seed}"]["seconds"]
        / records[f"synthetic/sbucb/std=0.03/IBCB/{seed}"]["seconds"]
        for seed in (0, 1)
    ]
    assert f"| IBCB, ours |  | {np.mean(ratios):.2g} ± {np.std(ratios):.2g} |" in page.split("## Table 2")[0]
    assert all(len(remark) > 60 for _, _, remark in _remarks())


def test_the_results_page_is_whole_and_made_from_the_records():
    docs = Path(__file__).parents[2] / "docs"
    records, torn = runner.read_results(docs / "results.jsonl")
    assert not torn
    assert {cell.id for cell in cells(TABLES, 5)} == set(records)
    assert not [record for record in records.values() if "error" in record]
    assert (docs / "results.md").read_text(encoding="utf-8") == render(records)


@pytest.mark.parametrize(("arguments", "words"), [(["--table", "21"], "table 21 does not exist"), ([], "no table")])
def test_unknown_tables_are_bad_usage(arguments, words):
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr
