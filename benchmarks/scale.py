"""How long fitting takes, how it grows, against others and on disk or a cluster: docs/performance.md.

    python benchmarks/scale.py [--out docs/performance.jsonl] [--only NAME]
    python benchmarks/scale.py --quick
    python benchmarks/scale.py --page docs/performance.md

Every measurement runs in a process of its own, in one thread, and is appended to the file; those that are there are not
taken again. Times are compared within one process only, as ratios: contenders and the floor take turns. ``--quick``
prints the ratios that have bars, on logs that take seconds, and exits with 1 if a bar is missed. ``--page`` writes the
page, its picture and the sentence of the README from the file.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
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
from timing import floor, peak, turns
from waits import auto, growth, long, many, ratios, starts, waits

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


def named(log: ibcb.BehaviorLog | DiskLog, solver: str, **where: Any) -> ibcb.IBCB:
    """The bare fit, Algorithm 2 without tracking, with expert, l2 and solver named."""
    return ibcb.IBCB(expert="sbucb", l2=L2, solver=solver, forecast=None).fit(log, **where)


def agreement(log: ibcb.BehaviorLog, solver: str, d: int, expert: SBUCB) -> float:
    """How often an imitator without forecast chooses as the expert after the log does, greedily, on fresh contexts."""
    fresh = np.random.default_rng(99).normal(0, 0.05, (5000, CANDIDATES, d))
    fresh += (1.0 - 0.4 * np.arange(CANDIDATES))[:, None]
    model = ibcb.IBCB(expert="sbucb", l2=L2, solver=solver, forecast=None).fit(log)
    return float(np.mean(expert.act(fresh, explore=False) == (fresh @ model.next_policy_coef_).argmax(axis=1)))


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

#: measurements of a log on disk, which they are told the folder of
_ON_DISK = {measure.__name__: measure for measure in (write, resident, streamed, distributed)}
_MEASURES: dict[str, Callable[..., dict[str, Any]]] = _ON_DISK | {
    measure.__name__: measure for measure in (waits, many, auto, growth, long, starts, rivals, cliff)
}


def quick_plan() -> Iterator[tuple[Any, ...]]:
    """What `make bench` measures, in about a minute."""
    for d in (10, 50):
        for kind in ("sbucb", "sbts"):
            yield "waits", kind, 20, d
    yield "auto", "sbucb"
    yield "auto", "sbts"
    yield ("starts",)


def plan() -> Iterator[tuple[Any, ...]]:
    """What is measured, in order: a name, then its arguments."""
    yield from quick_plan()
    for kind in ("sbucb", "sbts"):
        yield "waits", kind, 10, 100
        yield "waits", kind, 6, 200
    for kind in ("sbucb", "sbts"):
        yield "many", kind, 6, 500
        yield "many", kind, 4, 1000
    for kind in ("sbucb", "sbts"):
        yield "growth", kind, "rows"
        yield "growth", kind, "features"
    yield "long", 1_000
    yield "long", 10_000
    for d in (10, 50, 200):
        for rows in sorted({*ROWS, PAPER_ROWS}):
            # 1e7 rows of 200 features are 8 GB in single precision: too much for a small machine.
            if rows * d <= 500_000_000:
                yield "rivals", rows, d, "float32" if rows * d > 50_000_000 else "float64"
    # So that there is growth in one precision.
    for d in (10, 50):
        yield "rivals", 100_000, d, "float32"
        yield "rivals", 1_000_000, d, "float32"
    for d in (50, 200, 500):
        yield "cliff", 90_000, d, "float64"
    for name in _ON_DISK:
        yield name, ROWS[-1], 50, "float32"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/performance.jsonl"), help="where records are appended")
    parser.add_argument("--only", default="", help="one kind of measurement")
    parser.add_argument("--quick", action="store_true", help="print the ratios that have bars, and keep nothing")
    parser.add_argument("--folder", type=Path, help="for the log on disk; a temporary one by default")
    parser.add_argument("--page", type=Path, help="write page and README from the records, and measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, *arguments = json.loads(options.one)
        print(json.dumps(_MEASURES[name](*arguments)))
    elif options.page:
        from performance_page import write_page

        write_page(options.out, options.page, Path(__file__).parent.parent / "README.md")
    elif options.quick:
        sys.exit(_quick())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.folder or Path(temporary)
            folder.mkdir(exist_ok=True)
            _record(options.out, options.only, folder)


def _quick() -> int:
    """1 if a bar is missed."""
    missed = False
    print(f"{'measurement':24}{'ratio':34}{'':>8}   bar")
    for what in quick_plan():
        for ratio in ratios({"what": what} | _measured(what)):
            words = " ".join(str(word) for word in what)
            print(f"{words:24}{ratio.name:34}{ratio.value:8.1f}   {ratio.bar}{'  MISSED' * ratio.missed}".rstrip())
            missed |= ratio.missed
        sys.stdout.flush()
    return int(missed)


def _record(out: Path, only: str, folder: Path) -> None:
    """Take the measurements that are not in the file yet, and append them."""
    done = {json.dumps(json.loads(line)["what"]) for line in out.read_text().splitlines()} if out.exists() else set()
    for what in plan():
        if only not in what[0] or json.dumps(what) in done:
            continue
        on_disk = (str(folder),) if what[0] in _ON_DISK else ()
        if on_disk and what[0] != "write" and not (folder / "log.parquet").exists():
            _measured(("write", *what[1:], *on_disk))
        record = json.dumps({"what": what} | _measured((*what, *on_disk)))
        print(record, flush=True)
        with out.open("a") as file:
            file.write(record + "\n")


def _measured(call: tuple[Any, ...]) -> dict[str, Any]:
    """In a process of its own, so that memory starts afresh; one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, __file__, "--one", json.dumps(call)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | threads)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
