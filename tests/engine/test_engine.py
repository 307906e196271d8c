"""Wherever the rows live, everything above comes to the same bits."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, pairwise, permutations, product
from pathlib import Path

import numpy as np
import pytest
from commands import succeeds
from conftest import heed_interrupts, ragged_log, slow
from same import assert_same_model
from threadpoolctl import threadpool_info, threadpool_limits

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.engine import LocalRows, block_edges, blocks, episode_rows, workers
from ibcb.engine.block import reblocked
from ibcb.engine.episode_rows import ahead
from ibcb.engine.threads import in_order, one_blas_thread
from ibcb.estimators.models import checkpoint_of, fit_in_steps
from ibcb.inverse.constraints import EpisodeView
from ibcb.io import layouts
from ibcb.numerics.ridge import gram, ridge


@pytest.fixture
def small_blocks(monkeypatch):
    """So that small logs have many blocks, in pieces that do not fall on their edges."""
    monkeypatch.setattr("ibcb.engine.block.BLOCK_STEPS", 37)
    monkeypatch.setattr("ibcb.engine.block.BLOCK_ROWS", 150)
    monkeypatch.setattr("ibcb.io.parquet._STREAM_NUMBERS", 3700)
    monkeypatch.setattr("ibcb.io.parquet._GROUP_NUMBERS", 9000)
    monkeypatch.setattr("ibcb.log.behavior_log._PART_ROWS", 400)


def dense_log(seed=0, dtype=np.float64):
    run = ibcb.simulate("synthetic", n_episodes=3, batch_size=150, seed=seed, noise=0.03)
    log = run.log
    return BehaviorLog(log.contexts.astype(dtype), log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup)


# -- blocks ----------------------------------------------------------------------------------------------------------


def test_blocks_are_cut_by_steps_and_rows(small_blocks, rng):
    counts = rng.integers(1, 30, size=400)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    edges = block_edges(offsets)
    assert edges[0] == 0
    assert edges[-1] == 400
    for first, last in pairwise(edges):
        assert last - first <= 37
        assert offsets[last] - offsets[first] <= 150 or last == first + 1
        if last < 400 and last - first < 37:
            assert offsets[last + 1] - offsets[first] > 150


@pytest.mark.parametrize("cuts", [[1], [5, 6, 7, 100], list(range(1, 300)), []])
def test_parts_of_any_size_give_the_same_blocks(small_blocks, rng, cuts):
    counts = rng.integers(1, 6, size=300)
    log = BehaviorLog(
        rng.normal(size=(counts.sum(), 3)), np.concatenate([[0], np.cumsum(counts)]), rng.integers(counts), [0, 300]
    )
    edges = [0, *cuts, 300]
    parts = [log._steps(a, b) for a, b in pairwise(edges)]
    for one, other in zip(blocks(log), reblocked(parts), strict=True):
        for name in ("contexts", "chosen_rows", "offsets"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert (one.first_step, one.first_row) == (other.first_step, other.first_row)


# -- views: one suite for every home ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "margin, keep, kind",
    [
        (margin, keep, kind)
        for margin, (keep, kind) in zip(cycle([None, 0.01]), product([0, 1000, None], ["ragged", "dense", "single"]))
    ],
)
def test_a_view_is_the_same_wherever_its_rows_live(small_blocks, rng, margin, keep, kind):
    log = ragged_log(rng) if kind == "ragged" else dense_log(dtype=np.float32 if kind == "single" else np.float64)
    episodes = [episode for _, episode in log.episodes()]
    before = ridge(gram(episodes[0].contexts[episodes[0].chosen_rows]), 0.3)
    episode = episodes[1]
    homes = [LocalRows(episode), LocalRows(OnDisk(episode), keep=keep)]
    one, other = (EpisodeView(rows, before, margin=margin, episode=1) for rows in homes)
    theta = rng.normal(size=log.n_features)
    for _ in range(2):
        assert one.bonus_scale == other.bonus_scale
        np.testing.assert_array_equal(one.metric.matrix, other.metric.matrix)
        assert one.tally(theta) == other.tally(theta)
        for mine, its in zip(one.penalty(theta, 3.0, 0.1), other.penalty(theta, 3.0, 0.1), strict=True):
            np.testing.assert_array_equal(mine, its)
        (rows, tally), (same, as_well) = one.worst(theta, 20, 0.1), other.worst(theta, 20, 0.1)
        assert tally == as_well
        for mine, its in zip((*rows, *one.rows()), (*same, *other.rows()), strict=True):
            np.testing.assert_array_equal(mine, its)
        np.testing.assert_array_equal(one.places(rows.key), other.places(same.key))
        one, other = one.without_violated(theta), other.without_violated(theta)


# -- logs on disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expert, options, keep",
    [
        ("sbucb", {}, 0),
        ("sbts", {}, 1 << 28),
        ("sbts", {"incremental": False, "solver": "soft"}, 0),
        ("sbucb", {"incremental": False, "solver": "soft"}, 1 << 28),
        ("sbucb", {"solver": "robust", "prune": True}, 0),
        ("sbts", {"solver": "robust", "prune": True}, 1 << 28),
    ],
)
def test_a_log_on_disk_is_fitted_to_the_same_bits(small_blocks, tmp_path, monkeypatch, expert, options, keep):
    monkeypatch.setattr(episode_rows, "KEPT_BYTES", keep)
    log = dense_log()
    ibcb.write_log(log, tmp_path / "log.parquet")
    disk = ibcb.open_log(tmp_path / "log.parquet")
    assert (len(disk), disk.warmup, disk.n_features) == (len(log), log.warmup, log.n_features)
    assert_same_model(IBCB(expert=expert, **options).fit(log), IBCB(expert=expert, **options).fit(disk))


def test_a_small_episode_is_read_once_and_a_large_one_once_for_every_pass(small_blocks):
    episode = next(episode for by_policy, episode in dense_log().episodes() if by_policy)
    for keep, expected in ((1 << 28, 1), (0, 3)):
        counted = OnDisk(episode)
        rows = LocalRows(counted, keep=keep)
        for _ in range(3):
            list(rows.map(len_of))
        assert counted.reads == expected


class OnDisk:
    """The parts of an episode as if they were on disk, and how often they were asked for."""

    in_memory = False

    def __init__(self, log):
        self.log, self.reads = log, 0

    def parts(self):
        self.reads += 1
        return self.log.parts()


def len_of(block):
    return len(block.contexts)


def test_reading_ahead_gives_errors_where_they_happened_and_stops_when_left():
    def items():
        yield 1
        raise OSError("disk gone")

    taken = ahead(items())
    assert next(taken) == 1
    with pytest.raises(OSError, match="disk gone"):
        next(taken)

    closed = []

    def endless():
        try:
            n = 0
            while True:
                yield (n := n + 1)
        finally:
            closed.append(True)

    source = endless()
    taken = ahead(source)
    assert [next(taken), next(taken)] == [1, 2]
    taken.close()
    source.close()
    assert closed == [True]


def test_estimators_that_need_memory_say_so(tmp_path):
    ibcb.write_log(dense_log(), tmp_path / "log.parquet")
    disk = ibcb.open_log(tmp_path / "log.parquet")
    with pytest.raises(TypeError, match=r"on disk; give it log\.read\(\)"):
        ibcb.BaseSVC().fit(disk)


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "home, options",
    [
        ("memory", {"expert": "sbucb"}),
        ("disk", {"expert": "sbts", "prune": True, "solver": "soft"}),
        slow("disk", {"expert": "sbucb"}),
        slow("memory", {"expert": "sbts", "prune": True, "solver": "soft"}),
    ],
)
def test_threads_change_nothing(small_blocks, tmp_path, monkeypatch, home, options):
    monkeypatch.setattr(episode_rows, "KEPT_BYTES", 3000)
    log = dense_log()
    ibcb.write_log(log, tmp_path / "log.parquet")
    given = log if home == "memory" else ibcb.open_log(tmp_path / "log.parquet")
    alone = IBCB(**options).fit(log)
    for n_jobs in (3, -1):
        assert_same_model(IBCB(n_jobs=n_jobs, **options).fit(given), alone)


def test_threads_of_blas_change_nothing():
    """The sums of a fit are taken by one thread each, however many BLAS may use."""
    log = dense_log()
    with threadpool_limits(4):
        many = IBCB(solver="soft").fit(log)
        assert all(pool["num_threads"] == 4 for pool in threadpool_info() if pool["user_api"] == "blas")
    with threadpool_limits(1):
        assert_same_model(many, IBCB(solver="soft").fit(log))


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture
def four_blas_threads():
    """Set by a thread that ends, so that no thread of the test is in charge of it."""
    with ThreadPoolExecutor(1) as thread:
        limits = thread.submit(threadpool_limits, 4, "blas").result()
    yield
    with ThreadPoolExecutor(1) as thread:
        thread.submit(limits.restore_original_limits).result()


@pytest.mark.parametrize("order, error", [*zip(permutations(range(3)), cycle([None, ArithmeticError]))], ids=str)
def test_blas_has_its_threads_back_when_the_last_of_overlapping_blocks_is_left(four_blas_threads, order, error):
    """In whatever order: each block is entered and left by a thread of its own, which lives on."""
    blocks_of_threads = [one_blas_thread() for _ in order]
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in order]
        for thread, block in zip(threads, blocks_of_threads, strict=True):
            thread.submit(block.__enter__).result()
            assert set(blas_threads()) == {1}
        for number in order:
            assert set(blas_threads()) == {1}
            threads[number].submit(blocks_of_threads[number].__exit__, error, error and error(), None).result()
        assert set(blas_threads()) == {4}


def test_blocks_of_one_blas_thread_nest(four_blas_threads):
    with one_blas_thread():
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {4}


def test_the_first_fit_limits_every_blas_library_there_is():
    """NumPy and SciPy may each bring one, loaded one after the other."""
    code = (
        "import ibcb.engine.threads as t, threadpoolctl as c\n"
        "with t.one_blas_thread():\n"
        "    import scipy.linalg, ibcb.estimators.ibcb\n"
        "    print({p['num_threads'] for p in c.threadpool_info() if p['user_api'] == 'blas'})\n"
    )
    limits = {f"{library}_NUM_THREADS": "3" for library in ("OPENBLAS", "OMP", "MKL")}
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | limits, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "{1}"


def test_an_error_in_a_thread_is_raised_and_the_rest_is_dropped():
    started = []

    def task(number):
        started.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    with workers(2) as team, pytest.raises(ValueError, match="three"):
        list(in_order(team, task, range(1000)))
    assert len(started) < 20


# -- interruptions ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """Many episodes, so that a fit with a checkpoint after each takes a while."""
    path = tmp_path_factory.mktemp("long") / "log.parquet"
    ibcb.write_log(ibcb.simulate("synthetic", n_episodes=50, batch_size=40, seed=0, noise=0.03).log, path)
    return path


def episodes_done(checkpoint):
    return len(ibcb.load_model(checkpoint).progress.fit.evolution.policies)


@pytest.mark.parametrize("sign", [signal.SIGKILL, *(slow(each) for each in (signal.SIGINT, signal.SIGTERM))])
def test_an_interrupted_fit_goes_on_to_the_same_model(long_log, tmp_path, sign):
    out, checkpoint = tmp_path / "m.safetensors", tmp_path / "m.checkpoint.safetensors"
    command = ["fit", str(long_log), "--solver", "soft", "--l2", "0.3", "--stream", "-o", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "ibcb", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=heed_interrupts,
    )
    while not (checkpoint.exists() and episodes_done(checkpoint) >= 5):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(sign)
    told = process.communicate()[1]
    assert process.returncode in (-sign, 128 + sign)
    assert not out.exists()
    if sign != signal.SIGKILL:
        assert "--resume" in told
        assert "Traceback" not in told
    assert 5 <= episodes_done(checkpoint) < 50
    succeeds(*command, "--resume")
    assert_same_model(ibcb.load_model(out), IBCB(solver="soft", l2=0.3).fit(ibcb.read_log(long_log)))
    assert not checkpoint.exists()


def test_a_checkpoint_of_something_else_is_refused(long_log, tmp_path):
    out = tmp_path / "m.safetensors"
    checkpoint = checkpoint_of(out)
    ibcb.save_model(IBCB(solver="soft").partial_fit(next(iter(ibcb.open_log(long_log)))), checkpoint)
    with pytest.raises(ValueError, match="holds a finished IBCB, not a checkpoint of a fit; start without --resume"):
        fit_in_steps(IBCB(solver="soft"), ibcb.open_log(long_log), out, resume=True)
    assert checkpoint.exists()
    assert not out.exists()


@pytest.fixture(scope="module")
def short_log(tmp_path_factory):
    path = tmp_path_factory.mktemp("short") / "log.parquet"
    ibcb.write_log(ibcb.simulate("synthetic", n_episodes=3, batch_size=40, seed=0, noise=0.03).log, path)
    return path


KILLED_AT = """
import os, signal, sys
from ibcb.cli import main

event, file = sys.argv.pop(1), sys.argv.pop(1)

def kill(name, arguments):
    if name == event and any(os.path.basename(str(argument)).startswith(file) for argument in arguments):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
main()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
@pytest.mark.parametrize(
    "event, file",
    [
        slow("tempfile.mkstemp", ".m.safetensors"),
        slow("os.rename", "m.safetensors"),
        ("os.remove", "m.checkpoint"),
    ],
    ids=["before it is written", "when it takes its name", "when the checkpoint goes"],
)
def test_a_fit_killed_while_it_saves_the_model_goes_on_to_the_same_model(short_log, tmp_path, event, file):
    out, checkpoint = tmp_path / "m.safetensors", tmp_path / "m.checkpoint.safetensors"
    command = ["fit", str(short_log), "--stream", "--l2", "0.3", "-o", str(out)]
    killed = subprocess.run([sys.executable, "-c", KILLED_AT, event, file, *command], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert episodes_done(checkpoint) == 3
    assert out.exists() == (event == "os.remove")
    succeeds(*command, "--resume")
    assert_same_model(ibcb.load_model(out), IBCB(l2=0.3).fit(ibcb.read_log(short_log)))
    assert not checkpoint.exists()


def test_a_model_that_cannot_be_saved_leaves_its_checkpoint(short_log, tmp_path, monkeypatch):
    disk, out, save = ibcb.open_log(short_log), tmp_path / "m.safetensors", ibcb.save_model

    def full(model, path):
        if Path(path) == out:
            raise OSError("no space left on device")
        save(model, path)

    with monkeypatch.context() as patch:
        patch.setattr("ibcb.estimators.models.save_model", full)
        with pytest.raises(OSError, match="no space left"):
            fit_in_steps(IBCB(), disk, out)
    assert not out.exists()
    assert checkpoint_of(out).exists()
    resumed = fit_in_steps(IBCB(), disk, out, resume=True)
    for model in (resumed, ibcb.load_model(out)):
        assert_same_model(model, IBCB().fit(ibcb.read_log(short_log)))
    assert not checkpoint_of(out).exists()


def test_the_checkpoint_goes_only_when_the_model_is_on_disk(short_log, tmp_path, monkeypatch):
    """Written under its name, then synced with its folder, then the checkpoint is removed."""
    disk, out = ibcb.open_log(short_log), tmp_path / "m.safetensors"
    checkpoint, synced = checkpoint_of(out), []
    fsync = os.fsync

    def watched(handle):
        synced.append((os.fstat(handle).st_ino, checkpoint.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    fit_in_steps(IBCB(forecast=None), disk, out)
    assert synced[-2:] == [(out.stat().st_ino, True), (tmp_path.stat().st_ino, True)]
    assert not checkpoint.exists()


def test_a_large_file_is_read_part_by_part_to_the_same_log(small_blocks, tmp_path, monkeypatch):
    log = dense_log(dtype=np.float32)
    ibcb.write_log(log, tmp_path / "log.parquet")
    at_once = ibcb.read_log(tmp_path / "log.parquet")
    monkeypatch.setattr("ibcb.log.disk._LARGE", 0)
    monkeypatch.setattr(layouts.StepRows, "batches", None)  # which would read all of it at once
    part_by_part = ibcb.read_log(tmp_path / "log.parquet")
    assert part_by_part.contexts.dtype == np.float32
    for name in ("contexts", "step_offsets", "chosen", "episode_offsets", "warmup"):
        np.testing.assert_array_equal(getattr(part_by_part, name), getattr(at_once, name))
