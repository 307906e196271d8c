"""Rows on a Dask cluster: a scheduler and workers as processes of their own, over loopback TCP."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from arm_worlds import disjoint_ucb
from conftest import slow
from same import assert_same, assert_same_model

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.engine import Experience, cluster, experienced
from ibcb.engine.cluster import ClusterError
from ibcb.estimators import models
from ibcb.estimators.models import Unfinished, checkpoint_of, fit_in_steps
from ibcb.log.disk import DiskLog

distributed = pytest.importorskip(
    "distributed", reason="Dask cannot be imported: fits on a cluster are NOT tested", exc_type=ImportError
)
# The second is what Dask's own nanny sets, so that freed memory goes back to the system.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "65536"}


@contextlib.contextmanager
def process(*arguments, environment=ENVIRONMENT, **options):
    """A `dask` command, killed in the end."""
    running = subprocess.Popen(
        [sys.executable, "-m", "dask", *map(str, arguments)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def worker(folder, memory="1GiB", **how):
    """A worker of the cluster whose scheduler has left its file in a folder."""
    where = ("--scheduler-file", folder / "scheduler.json", "--local-directory", folder)
    options = ("--host", "127.0.0.1", "--no-dashboard", "--nthreads", "1", "--no-nanny", "--memory-limit", memory)
    return process("worker", *where, *options, **how)


@contextlib.contextmanager
def started(folder, workers=2, memory="1GiB", **how):
    """A cluster; gives the scheduler's process, the workers', and its address. A worker's folder is its number."""
    file = folder / "scheduler.json"
    with contextlib.ExitStack() as stack:
        options = ("--scheduler-file", file, "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        scheduler = stack.enter_context(process("scheduler", *options))
        while not file.exists():
            assert scheduler.poll() is None
            time.sleep(0.1)
        processes = []
        for number in range(workers):
            (folder / str(number)).mkdir()
            processes.append(stack.enter_context(worker(folder, memory, cwd=folder / str(number), **how)))
        yield scheduler, processes, json.loads(file.read_text())["address"]


@contextlib.contextmanager
def connected(address, workers=2):
    # The same timeout bounds the search for a scheduler that was lost.
    client = distributed.Client(address, timeout=5)
    try:
        client.wait_for_workers(workers, timeout=120)
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=2)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster for many tests: its folder, the processes of its two workers, and a client."""
    folder = tmp_path_factory.mktemp("cluster")
    with started(folder) as (_, workers, address), connected(address) as client:
        yield folder, workers, client


@pytest.fixture
def client(shared):
    return shared[2]


@pytest.fixture
def small_partitions(monkeypatch):
    monkeypatch.setattr(cluster, "PARTITION_NUMBERS", 20_000)
    monkeypatch.setattr("ibcb.io.parquet._GROUP_NUMBERS", 30_000)
    monkeypatch.setattr("ibcb.log.behavior_log._PART_ROWS", 1000)


def skewed_log(seed=0):
    """Episodes of very different sizes, steps of very different numbers of candidates."""
    run = ibcb.simulate("synthetic", n_episodes=4, batch_size=700, seed=seed, noise=0.03)
    rng = np.random.default_rng(seed)
    episodes = []
    for (by_policy, episode), size in zip(run.log.episodes(), (900, 3, 700, 40, 650), strict=True):
        del by_policy
        contexts = episode.contexts.reshape(-1, 10, 10)
        keep = [
            np.sort(rng.permutation([c for c in range(10) if c != j])[: rng.integers(1, 9)]) for j in episode.chosen
        ]
        steps = [contexts[t, np.sort([*keep[t], j])] for t, j in enumerate(episode.chosen)]
        chosen = [int(np.searchsorted(np.sort([*keep[t], j]), j)) for t, j in enumerate(episode.chosen)]
        episodes.append((steps[:size], chosen[:size]))
    return BehaviorLog.from_episodes(episodes, warmup=1)


@pytest.mark.parametrize(
    "home, options",
    [
        ("memory", {"expert": "sbucb"}),
        slow("disk", {"expert": "sbts"}),
        ("disk", {"solver": "soft", "incremental": False}),
        slow("disk", {"expert": "sbucb"}),
        slow("memory", {"expert": "sbts"}),
        slow("memory", {"solver": "soft", "incremental": False}),
    ],
)
def test_a_cluster_gives_the_bits_of_one_process(client, small_partitions, tmp_path, home, options):
    log = skewed_log()
    ibcb.write_log(log, tmp_path / "log.parquet")
    given = log if home == "memory" else ibcb.open_log(tmp_path / "log.parquet")
    assert_same_model(IBCB(**options).fit(given, client=client), IBCB(**options).fit(log))


@pytest.mark.parametrize("home", ["memory", "disk"])
def test_a_cluster_takes_sparse_contexts(client, small_partitions, tmp_path, home):
    log = BehaviorLog.from_arms(disjoint_ucb(8, 9, 3, 150, seed=2)[0], warmup=1)
    ibcb.write_log(log, tmp_path / "log.parquet")
    given = log if home == "memory" else ibcb.open_log(tmp_path / "log.parquet")
    assert_same_model(IBCB(l2=1.0).fit(given, client=client), IBCB(l2=1.0).fit(log))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"expert": "auto", "l2": "auto"}, marks=pytest.mark.slow),
        pytest.param({"expert": "sbts", "l2": "auto"}, marks=pytest.mark.slow),
        pytest.param({"expert": "topk"}, marks=pytest.mark.slow),
        *(pytest.param({"expert": kind}, marks=pytest.mark.slow) for kind in ("stationary", "other")),
    ],
    ids=["auto", "l2", "top_k", "stationary", "other"],
)
def test_what_is_left_open_is_chosen_on_a_cluster_to_the_same_bits(client, small_partitions, tmp_path, options):
    """In one go, and in steps; on disk and in memory."""
    log, out = skewed_log(), tmp_path / "m.safetensors"
    ibcb.write_log(log, tmp_path / "log.parquet")
    disk, whole = ibcb.open_log(tmp_path / "log.parquet"), IBCB(**options).fit(log)
    for model in (
        IBCB(**options).fit(log, client=client),
        IBCB(**options).fit(disk, client=client),
        fit_in_steps(IBCB(**options), disk, out, client=client),
    ):
        assert_same(model.get_state(), whole.get_state())


def test_a_choice_begun_on_a_cluster_goes_on_without_one(client, small_partitions, tmp_path, monkeypatch):
    log, out = skewed_log(), tmp_path / "m.safetensors"
    ibcb.write_log(log, tmp_path / "log.parquet")
    disk, options = ibcb.open_log(tmp_path / "log.parquet"), {"expert": "auto", "l2": 1.0}
    save = models.save_model

    def interrupted(model, path):
        save(model, path)
        if isinstance(model, Unfinished) and model.progress.last.episodes == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(models, "save_model", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit_in_steps(IBCB(**options), disk, out, client=client)
    model = fit_in_steps(IBCB(**options), disk, out, resume=True)
    assert_same(model.get_state(), IBCB(**options).fit(log).get_state())


def test_partitions_stay_on_the_workers(client, small_partitions, tmp_path, monkeypatch):
    """What comes back is small beside the log."""
    log = skewed_log()
    ibcb.write_log(log, tmp_path / "log.parquet")
    monkeypatch.setattr("ibcb.engine.block.BLOCK_STEPS", 256)
    rows = next(iter(cluster.distributed_rows(ibcb.open_log(tmp_path / "log.parquet"), client)))[1]
    assert len(rows._partitions) > 1
    distributed.wait(rows._partitions, timeout=60)
    held = client.who_has(rows._partitions)
    assert all(held[future.key] for future in rows._partitions)
    back = Experience.join(list(rows.map(experienced)))
    assert back.n_rows == np.diff(log.step_offsets[log.episode_offsets[:2]]).item()


def test_a_worker_killed_while_its_rows_are_in_use(tmp_path, small_partitions, monkeypatch):
    log = skewed_log()
    ibcb.write_log(log, tmp_path / "log.parquet")
    with started(tmp_path, workers=2) as (_, workers, address), connected(address) as client:
        passes = 0
        submitted = cluster.DaskRows._submitted

        def counting(self, kernel):
            nonlocal passes
            passes += 1
            if passes == 5:
                workers[1].send_signal(signal.SIGKILL)
                workers[1].wait()
            return submitted(self, kernel)

        monkeypatch.setattr(cluster.DaskRows, "_submitted", counting)
        model = IBCB(solver="robust").fit(ibcb.open_log(tmp_path / "log.parquet"), client=client)
        assert passes > 8
    assert_same_model(model, IBCB(solver="robust").fit(log))


@contextlib.contextmanager
def once_stored(episodes, event):
    """Let something happen as soon as a fit in steps has stored so many episodes."""
    save, stored = models.save_model, 0

    def counting(model, path):
        nonlocal stored
        save(model, path)
        stored += 1
        if stored == episodes:
            event()

    if not episodes:
        event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "save_model", counting)
        yield


def test_a_lost_scheduler_is_named_and_the_checkpoint_goes_on(tmp_path, small_partitions):
    log = skewed_log()
    ibcb.write_log(log, tmp_path / "log.parquet")
    disk = ibcb.open_log(tmp_path / "log.parquet")
    out = tmp_path / "m.safetensors"
    checkpoint = checkpoint_of(out)
    with started(tmp_path, workers=1) as (scheduler, _, address), connected(address, 1) as client:

        def kill():
            scheduler.send_signal(signal.SIGKILL)
            scheduler.wait()

        # Named, so that the log is gone through once.
        with once_stored(2, kill), pytest.raises(ClusterError, match=r"scheduler at tcp://127\.0\.0\.1:\d+ was lost"):
            fit_in_steps(IBCB(solver="auto", l2=0.3), disk, out, client=client)
    assert ibcb.load_model(checkpoint).progress.last.episodes == 2
    done = fit_in_steps(IBCB(solver="auto", l2=0.3), disk, out, resume=True)
    assert_same_model(done, IBCB(solver="auto", l2=0.3).fit(log))
    assert not checkpoint.exists()


@pytest.mark.slow
def test_no_scheduler_is_said(tmp_path):
    ibcb.write_log(skewed_log(), tmp_path / "log.parquet")
    command = [sys.executable, "-m", "ibcb", "fit", str(tmp_path / "log.parquet"), "--scheduler", "tcp://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "no scheduler answers at tcp://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_episode_larger_than_the_memory_of_a_worker(tmp_path):
    """800 MB of contexts in one episode, two workers of 600 MB each: they spill to disk, and the bits are the same."""
    rng = np.random.default_rng(0)
    steps, d = 200_000, 50
    theta = rng.normal(size=d)
    episodes = []
    for size in (100, steps):
        contexts = rng.normal(size=(size, 10, d))
        episodes.append((contexts, (contexts @ theta).argmax(axis=1)))
    log = BehaviorLog.from_episodes(episodes)
    assert log.contexts.nbytes > 600 << 20
    ibcb.write_log(log, tmp_path / "log.parquet")
    options = {"expert": "sbts", "solver": "soft"}
    with started(tmp_path, workers=2, memory="600MiB") as (_, _, address), connected(address) as client:
        model = IBCB(**options).fit(ibcb.open_log(tmp_path / "log.parquet"), client=client)
    assert_same_model(model, IBCB(**options).fit(log))


def test_workers_without_memory_are_named(tmp_path, small_partitions, monkeypatch):
    """Their interpreter alone fills what they may use: they pause at once."""
    monkeypatch.setattr(cluster, "_PATIENCE", 1.0)
    with started(tmp_path, workers=1, memory="20MiB") as (_, _, address), connected(address, 1) as client:
        while [each["status"] for each in client.sync(client.scheduler.identity)["workers"].values()] != ["paused"]:
            time.sleep(0.1)
        with pytest.raises(ClusterError, match="have paused, because their memory is full"):
            IBCB().fit(skewed_log(), client=client)


def test_when_no_worker_is_left_it_is_said(tmp_path, small_partitions, monkeypatch):
    """Without a nanny nobody starts them again."""
    monkeypatch.setattr(cluster, "_PATIENCE", 0.5)
    with started(tmp_path, workers=1) as (_, (only,), address), connected(address, 1) as client:
        submitted = cluster.DaskRows._submitted

        def killing(self, kernel):
            only.kill()
            only.wait()
            return submitted(self, kernel)

        monkeypatch.setattr(cluster.DaskRows, "_submitted", killing)
        with pytest.raises(ClusterError, match=r"no worker is left at tcp://127.*Start workers again"):
            IBCB().fit(skewed_log(), client=client)


def seen_at(monkeypatch, disk, path):
    """As if workers had a log at another path than this process."""
    _, options = disk.elsewhere
    monkeypatch.setattr(DiskLog, "elsewhere", property(lambda log: (path, options)))


def test_a_worker_that_cannot_see_the_log_is_not_a_lost_scheduler(client, small_partitions, tmp_path, monkeypatch):
    ibcb.write_log(skewed_log(), tmp_path / "log.parquet")
    disk = ibcb.open_log(tmp_path / "log.parquet")
    seen_at(monkeypatch, disk, str(tmp_path / "elsewhere.parquet"))
    with pytest.raises(ClusterError, match=r"could not read the log \(.*elsewhere.*same path on all workers"):
        IBCB().fit(disk, client=client)


def other_versions(folder, package, version):
    """The environment of a process that has another version of a package, as far as it is told."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def test_a_worker_with_another_version_is_named(tmp_path):
    with (
        started(tmp_path, workers=1, environment=other_versions(tmp_path / "site", "ibcb", "0.0.1")) as (_, _, address),
        connected(address, 1) as client,
        pytest.raises(ClusterError, match=r"worker tcp://\S+ has ibcb 0\.0\.1, and this process .*same version"),
    ):
        IBCB().fit(skewed_log(), client=client)


def test_workers_are_those_of_the_scheduler(client, monkeypatch):
    """Dask's client forgets them every now and then, between being asked and answering."""
    monkeypatch.setattr(client, "scheduler_info", lambda **how: {"workers": {}})
    connection = cluster._Connection(client)
    assert set(connection._workers()) == set(client.nthreads()) == cluster._CHECKED[client]


def test_a_slow_worker_is_waited_for(client, monkeypatch):
    """However often it is looked into whether there are workers at all."""
    monkeypatch.setattr(cluster, "_PATIENCE", 0.002)
    log = skewed_log()[:2]
    assert_same_model(IBCB(l2=0.3).fit(log, client=client), IBCB(l2=0.3).fit(log))
