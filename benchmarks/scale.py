"""How fitting grows with rows and features, against others and on disk or a cluster: docs/performance.md.

    python benchmarks/scale.py [--out docs/performance.jsonl] [--only NAME] [--quick]
    python benchmarks/scale.py --page docs/performance.md

Every measurement runs in a process of its own, in one thread, and is appended to the file; those that are there are not
taken again. Times are compared within one process only, as ratios: contenders and the floor take turns. ``--page``
writes the page and its picture from the file.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import ibcb
from ibcb.deciders import SBUCB
from ibcb.log.disk import DiskLog

EPISODES, CANDIDATES, ALPHA, L2 = 20, 10, 0.4, 0.3
ROWS, PAPER_ROWS = (10_000, 100_000, 1_000_000, 10_000_000), 200_000


# -- logs ------------------------------------------------------------------------------------------------------------


def episodes(
    expert: SBUCB, rows: int, dtype: str, seed: int = 0
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Contexts and choices of an SBUCB expert that learns on the paper's synthetic contexts, after a random start."""
    rng, d = np.random.default_rng(seed), expert.n_features
    w, means = rng.normal(0.1, 0.01, d), 1.0 - 0.4 * np.arange(CANDIDATES)
    steps = rows // (EPISODES * CANDIDATES)
    for number in range(EPISODES + 1):
        contexts = rng.standard_normal((steps if number else max(steps, 900), CANDIDATES, d), dtype=np.float32)
        contexts *= np.float32(0.05)
        contexts += means[:, None].astype(np.float32)
        contexts = contexts.astype(dtype, copy=False)
        parts = np.array_split(contexts, max(1, contexts.size // 5_000_000))
        chosen = np.concatenate(
            [expert.act(part) if number else rng.integers(CANDIDATES, size=len(part)) for part in parts]
        )
        taken = contexts[np.arange(len(chosen)), chosen].astype(np.float64)
        expert.update(taken, expit(taken @ w) + 0.03 * rng.standard_normal(len(taken)))
        yield contexts, chosen


def in_memory(rows: int, d: int, dtype: str) -> tuple[ibcb.BehaviorLog, SBUCB]:
    """The log as one array, filled episode by episode, and the expert that it leaves."""
    expert = SBUCB(d, alpha=ALPHA, l2=L2)
    steps = rows // (EPISODES * CANDIDATES)
    sizes = [max(steps, 900)] + [steps] * EPISODES
    contexts, choices, at = np.empty((sum(sizes) * CANDIDATES, d), dtype=dtype), [], 0
    for part, chosen in episodes(expert, rows, dtype):
        flat = part.reshape(-1, d)
        contexts[at : at + len(flat)] = flat
        at += len(flat)
        choices.append(chosen)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    offsets = np.arange(0, len(contexts) + 1, CANDIDATES)
    return ibcb.BehaviorLog(contexts, offsets, np.concatenate(choices), edges, warmup=1), expert


# -- what is measured ------------------------------------------------------------------------------------------------


def floor(log: ibcb.BehaviorLog) -> None:
    """One GEMM and one GEMV over the contexts of every episode."""
    matrix, vector = np.eye(log.n_features, dtype=log.contexts.dtype), np.ones(log.n_features, dtype=log.contexts.dtype)
    for episode in log:
        episode.contexts @ matrix
        episode.contexts @ vector


def named(log: ibcb.BehaviorLog | DiskLog, solver: str, **where: Any) -> ibcb.IBCB:
    """The bare fit, Algorithm 2 without tracking, with expert, l2 and solver named."""
    return ibcb.IBCB(expert="sbucb", l2=L2, solver=solver, forecast=None).fit(log, **where)


def turns(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Best time of each over a few turns; the slow ones get fewer."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(7):
        for name, run in contenders.items():
            if turn and sum(times[name]) > 3.0:
                continue
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in times.items()}


def agreement(log: ibcb.BehaviorLog, solver: str, d: int, expert: SBUCB) -> float:
    """How often an imitator without forecast chooses as the expert after the log does, greedily, on fresh contexts."""
    fresh = np.random.default_rng(99).normal(0, 0.05, (5000, CANDIDATES, d))
    fresh += (1.0 - 0.4 * np.arange(CANDIDATES))[:, None]
    model = ibcb.IBCB(expert="sbucb", l2=L2, solver=solver, forecast=None).fit(log)
    return float(np.mean(expert.act(fresh, explore=False) == (fresh @ model.next_policy_coef_).argmax(axis=1)))


def peak() -> float:
    """Largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rivals(rows: int, d: int, dtype: str) -> dict[str, Any]:
    """Our fits, the paper's solver and the others, on one log."""
    log, expert = in_memory(rows, d, dtype)
    before = peak()
    named(log, "hard")
    after = peak()
    contenders: dict[str, Callable[[], object]] = {
        "floor": partial(floor, log),
        "hard": partial(named, log, "hard"),
        "soft": partial(named, log, "soft"),
        "choice model, last episode": lambda: ibcb.ChoiceModel(episodes=1).fit(log),
    }
    small = rows * d
    if small <= 10_000_000:
        contenders["paper's OSQP"] = partial(named, log, "paper")
    if small <= 50_000_000:
        contenders["LinearSVC"] = lambda: ibcb.BaseSVC().fit(log)
    if rows == PAPER_ROWS and d == 10:
        contenders["B-IRL"] = lambda: ibcb.BIRL(random_state=0).fit(log)
        contenders["B-ICB-S"] = lambda: ibcb.BICB(sample=0.01, random_state=0).fit(log)
    times = turns(contenders)
    found: dict[str, Any] = {
        "seconds": times,
        "memory": {"log": log.contexts.nbytes / 2**20, "fit": after - before, "all": after},
    }
    if rows <= 1_000_000 and d <= 50:
        found["agreement"] = {
            solver: agreement(log, solver, d, expert)
            for solver in ("hard", "paper")
            if solver == "hard" or small <= 10_000_000
        }
    return found


def cliff(rows: int, d: int, dtype: str) -> dict[str, Any]:
    """Many features, from a cold start."""
    log, _ = in_memory(rows, d, dtype)
    return {
        "seconds": turns(
            {"floor": partial(floor, log), "hard": partial(named, log, "hard"), "soft": partial(named, log, "soft")}
        )
    }


def write(rows: int, d: int, dtype: str, folder: str) -> dict[str, Any]:
    """The log as one Parquet file, for the streamed and the distributed fit."""
    path = Path(folder) / "log.parquet"
    if not path.exists():
        ibcb.write_log(in_memory(rows, d, dtype)[0], path)
    return {"bytes": path.stat().st_size}


def streamed(rows: int, d: int, dtype: str, folder: str) -> dict[str, Any]:
    """Fitted from disk: memory above the start, and bytes read."""
    log = ibcb.open_log(Path(folder) / "log.parquet")
    before, read = peak(), _bytes_read()
    start = time.perf_counter()
    model = named(log, "hard")
    seconds = time.perf_counter() - start
    looks = sum(entry.iterations for entry in model.diagnostics_)
    return {
        "seconds": {"hard, streamed": seconds},
        "memory": {"fit": peak() - before, "all": peak()},
        "bytes": {"file": (Path(folder) / "log.parquet").stat().st_size, "read": _bytes_read() - read},
        "looks": looks,
        "coef": model.coef_.tolist(),
    }


def resident(rows: int, d: int, dtype: str, folder: str) -> dict[str, Any]:
    """The same file read and fitted in memory."""
    before = peak()
    log = ibcb.read_log(Path(folder) / "log.parquet")
    read = peak()
    start = time.perf_counter()
    model = named(log, "hard")
    return {
        "seconds": {"hard": time.perf_counter() - start},
        "memory": {"read": read - before, "fit": peak() - before, "all": peak()},
        "coef": model.coef_.tolist(),
    }


def distributed(rows: int, d: int, dtype: str, folder: str) -> dict[str, Any]:
    """On a scheduler and two workers over loopback: what crosses the wire."""
    from distributed import Client

    from ibcb.engine import cluster

    shipped = {"there": 0, "back": 0, "tasks": 0}
    submit, result = cluster._Connection.submit, cluster._Connection.result

    def counting_submit(self: Any, task: Any, *arguments: Any) -> Any:
        shipped["there"] += len(pickle.dumps([a for a in arguments if type(a).__name__ != "Future"]))
        shipped["tasks"] += 1
        return submit(self, task, *arguments)

    def counting_result(self: Any, future: Any) -> Any:
        value = result(self, future)
        shipped["back"] += len(pickle.dumps(value))
        return value

    processes = []
    file = Path(folder) / "scheduler.json"
    file.unlink(missing_ok=True)
    common = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard"]
    try:
        for kind in ("scheduler", "worker", "worker"):
            own = (
                ["--port", "0"]
                if kind == "scheduler"
                else ["--nthreads", "1", "--no-nanny", "--memory-limit", "3GiB", "--local-directory", folder]
            )
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", kind, *common, *own],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            while not file.exists():
                time.sleep(0.1)
        client = Client(json.loads(file.read_text())["address"], timeout=30)  # type: ignore[no-untyped-call]
        client.wait_for_workers(2, timeout=60)
        cluster._Connection.submit, cluster._Connection.result = counting_submit, counting_result  # type: ignore[method-assign]
        start = time.perf_counter()
        model = named(ibcb.open_log(Path(folder) / "log.parquet"), "hard", client=client)
        seconds = time.perf_counter() - start
        client.close(timeout=5)  # type: ignore[no-untyped-call]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
    return {"seconds": {"hard, two workers": seconds}, "bytes": shipped, "coef": model.coef_.tolist()}


def _bytes_read() -> int:
    """By this process, from files and caches."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar"):
            return int(line.split()[1])
    return 0


# -- the runs --------------------------------------------------------------------------------------------------------

_MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    measure.__name__: measure for measure in (rivals, cliff, write, streamed, resident, distributed)
}


def plan(quick: bool) -> Iterator[tuple[str, int, int, str]]:
    """What is measured, in order."""
    most = PAPER_ROWS if quick else ROWS[-1]
    for d in (10, 50, 200):
        for rows in sorted({*ROWS, PAPER_ROWS}):
            # 1e7 rows of 200 features are 8 GB in single precision: too much for a small machine.
            if rows <= most and rows * d <= 500_000_000:
                yield "rivals", rows, d, "float32" if rows * d > 50_000_000 else "float64"
    if not quick:
        # So that there is growth in one precision.
        for d in (10, 50):
            yield "rivals", 100_000, d, "float32"
            yield "rivals", 1_000_000, d, "float32"
    for d in (50, 200, 500):
        if not quick or d == 50:
            yield "cliff", 90_000, d, "float64"
    for name in ("write", "resident", "streamed", "distributed"):
        yield name, most, 50, "float32"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/performance.jsonl"), help="where records are appended")
    parser.add_argument("--only", default="", help="one kind of measurement")
    parser.add_argument("--quick", action="store_true", help="at most 1e5 rows, printed and not kept")
    parser.add_argument("--folder", type=Path, help="for the log on disk; a temporary one by default")
    parser.add_argument("--page", type=Path, help="write the page from the records, and measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, arguments = json.loads(options.one)
        print(json.dumps(_MEASURES[name](*arguments)))
        return
    if options.page:
        from performance_page import write_page

        write_page(options.out, options.page)
        return
    done = set()
    if options.out.exists() and not options.quick:
        done = {json.dumps(json.loads(line)["what"]) for line in options.out.read_text().splitlines()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for what in plan(options.quick):
            on_disk = what[0] in ("write", "resident", "streamed", "distributed")
            if options.only not in what[0] or json.dumps(list(what)) in done:
                continue
            if on_disk and what[0] != "write" and not (folder / "log.parquet").exists():
                _measured(("write", *what[1:]), folder)
            record = json.dumps({"what": what} | _measured(what, folder))
            print(record, flush=True)
            if not options.quick:
                with options.out.open("a") as file:
                    file.write(record + "\n")


def _measured(what: tuple[str, int, int, str], folder: Path) -> dict[str, Any]:
    """In a process of its own, so that memory starts afresh; one thread."""
    arguments = [*what[1:], *([str(folder)] if what[0] in ("write", "resident", "streamed", "distributed") else [])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, __file__, "--one", json.dumps([what[0], arguments])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | threads)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
