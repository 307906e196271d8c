"""The cells that make up the paper's 20 tables, and how they are run.

Every figure of the paper (`paper.csv`) is located in our terms: a `PaperSetting` (a world, the expert in it, how much
of its log is shown), an algorithm, and the name of a metric. A `Cell` is a setting, an algorithm and a seed; fitting it
once gives all its metrics, so tables that show the same fits share cells. Each finished cell is one line of JSON,
appended and never computed again.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.resources import files
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from ibcb.deciders import KINDS
from ibcb.engine import one_blas_thread
from ibcb.estimators.choice_model import ChoiceModel
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.imitator import Imitator
from ibcb.io import atomic
from ibcb.io.files import HeldError, sole_writer
from ibcb.paper import metrics
from ibcb.paper.environments import MovieLens
from ibcb.paper.rivals import BICB, BIRL, Averaged, BaseSVC
from ibcb.paper.simulation import Run, simulate

Record = dict[str, Any]

TABLES = tuple(range(1, 21))

#: shown beside the paper's algorithms in every table
_EPISODES = {"ChoiceModel, last episode": 1, "ChoiceModel, last 3": 3, "ChoiceModel, all": None}
OURS = ("IBCB, ours", *_EPISODES)

#: how the settings that not all have stand in the ids of cells
_IDS = {"noise": "std={:g}", "top_k": "top{}", "dup": "dup={}", "head": "half", "batch_size": "B={}"}
_SMOKE_WORLD = {"n_episodes": 4, "batch_size": 60, "n_candidates": 4}


class PaperSetting(NamedTuple):
    """A world, the expert in it, and how much of its log an imitator sees."""

    environment: str
    expert: str
    noise: float | None = None
    top_k: int | None = None
    dup: int | None = None
    head: float | None = None
    batch_size: int | None = None

    @property
    def id(self) -> str:
        """Such as ``synthetic/sbucb/std=0.03/top2``."""
        parts = [form.format(value) for name, form in _IDS.items() if (value := getattr(self, name)) is not None]
        return "/".join([self.environment, self.expert, *parts])

    def simulate(self, seed: int, *, smoke: bool = False) -> Run:
        """The run of a seed; tiny if it is only to see smoke."""
        options: dict[str, Any] = {"top_k": self.top_k}
        if self.environment == "synthetic":
            options |= {"noise": self.noise, "dup": self.dup or 0}
        if self.batch_size is not None:
            options |= {"batch_size": self.batch_size, "n_episodes": 20_000 // self.batch_size}
        if smoke:
            options |= _SMOKE_WORLD | ({"dup": min(self.dup or 0, 2)} if self.environment == "synthetic" else {})
        return simulate(self.environment, expert=self.expert, seed=seed, **options)


class Cell(NamedTuple):
    """One fit: a setting, an algorithm, a seed."""

    setting: PaperSetting
    algorithm: str
    seed: int

    @property
    def id(self) -> str:
        """Such as ``synthetic/sbucb/std=0.03/B-IRL/2``."""
        return f"{self.setting.id}/{self.algorithm}/{self.seed}"


class Figure(NamedTuple):
    """One figure of the paper, and where ours comes from."""

    table: int
    expert: str
    variant: str
    condition: str
    algorithm: str
    metric: str
    setting: PaperSetting
    ours: str
    mean: float | None

    @property
    def beside(self) -> tuple[str, ...]:
        """Our own algorithms, where the table compares like with like."""
        return () if self.variant == "per_episode_average" else OURS


@functools.cache
def figures() -> tuple[Figure, ...]:
    """All figures of the paper, in the order of its tables."""
    with (files("ibcb.paper.tables") / "paper.csv").open() as file:
        return tuple(_locate(row) for row in csv.DictReader(file))


def cells(tables: Iterable[int], seeds: int) -> list[Cell]:
    """Every cell that the tables need, once, settings and seeds together."""
    wanted: dict[Cell, None] = {}
    chosen = [figure for figure in figures() if figure.table in set(tables)]
    for seed in range(seeds):
        for figure in chosen:
            wanted |= {Cell(figure.setting, name, seed): None for name in (figure.ours, *figure.beside)}
    order = {setting: place for place, setting in enumerate(dict.fromkeys(figure.setting for figure in chosen))}
    return sorted(wanted, key=lambda cell: (cell.seed, order[cell.setting]))


def make(algorithm: str, run: Run, *, smoke: bool = False) -> Imitator | None:
    """The estimator behind an algorithm's name, with the paper's settings for the run; None for the expert itself."""
    if algorithm == "expert":
        return None
    if algorithm.endswith(" averaged"):
        inner = make(algorithm.removesuffix(" averaged"), run, smoke=smoke)
        return None if inner is None else Averaged(inner)
    movielens, kind = isinstance(run.environment, MovieLens), run.expert_settings.kind
    if algorithm == "BaseSVC":
        return BaseSVC()
    if algorithm == "B-IRL":
        chain: dict[str, Any] = {"burn_in": 5_000, "n_samples": 500} if movielens else {}
        return BIRL(random_state=run.seed, **(chain | ({"burn_in": 50, "n_samples": 10} if smoke else {})))
    if algorithm == "B-ICB-S":
        belief: dict[str, Any] = {"sample": 0.005 if movielens else 0.01, "pinv": movielens}
        short = {"n_iterations": 2, "n_sweeps": 20, "n_dropped": 10, "sample": 0.2}
        return BICB(random_state=run.seed, **(belief | (short if smoke else {})))
    if algorithm in _EPISODES:
        return ChoiceModel(episodes=_EPISODES[algorithm])
    if algorithm == OURS[0]:
        expert: dict[str, Any] = {"expert": kind} if run.top_k == 1 else {"expert": "topk", "top_k": run.top_k}
        return IBCB(alpha=run.expert_settings.alpha, **expert)
    tolerance = 3e-1 if movielens and not KINDS[kind].deterministic else 8e-2
    paper: dict[str, Any] = {"l2": 1.0, "margin": 0.001 if movielens else 0.01, "tolerance": tolerance}
    if algorithm != "IBCB":
        paper["alpha"] = float(algorithm.removeprefix("IBCB-alpha-"))
    return IBCB(expert=kind, prune=run.top_k > 1, solver="paper", forecast=None, **paper)


def _locate(row: dict[str, str]) -> Figure:
    scenario, expert = row["scenario"], row["expert"].lower()
    environment = "movielens" if row["dataset"] == "ml100k" else "synthetic"
    # Such as std=0.03, dup=2 and B=500. The figures at dup=0 are those at std=0.03 in the main tables.
    named = dict(part.split("=") for part in (row["condition"], row["variant"]) if "=" in part)
    setting = PaperSetting(
        environment,
        expert,
        noise=float(named.get("std", 0.03)) if environment == "synthetic" else None,
        top_k=int(scenario.removeprefix("fair_top")) if scenario.startswith("fair_top") else None,
        dup=int(named["dup"]) if scenario == "dup" else None,
        head=0.5 if scenario == "half_log" else None,
        batch_size=int(named["B"]) if scenario == "batch_size" else None,
    )
    algorithm, metric = row["algorithm"], row["metric"]
    ours = "expert" if algorithm == row["expert"] else algorithm
    if row["variant"] == "per_episode_average" and algorithm not in ("IBCB", row["expert"]):
        ours = f"{algorithm} averaged"
    where = int(row["table"]), expert, row["variant"], row["condition"], algorithm
    mean = float(row["mean"]) if row["mean"] else None
    return Figure(*where, f"ood_{metric}" if scenario == "ood" else metric, setting, ours, mean)


class Outcome(NamedTuple):
    """What a call of `reproduce` did."""

    done_before: int
    computed: int
    failed: tuple[str, ...]
    torn: bool


def reproduce(
    cells: Sequence[Cell],
    results: str | os.PathLike[str],
    *,
    jobs: int = 1,
    smoke: bool = False,
    progress: bool = False,
) -> Outcome:
    """Compute the cells that ``results`` does not hold yet, and append each as soon as it is finished.

    Killing this at any moment loses at most the cells under way. Cells that failed are recorded with their error and
    tried again by the next call. Once all are there, the records stand in the order of the paper's tables, whatever
    the order in which they were finished.
    """
    path = Path(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(sole_writer(path))
        except HeldError as held:
            raise BlockingIOError(f"{path} is being written by another run; wait, or give another path.") from held
        records, torn = read_results(path)
        if torn:
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        missing = [cell for cell in cells if "error" in records.get(cell.id, {"error": ""})]
        failed = []
        hidden = None if progress else True
        bar = tqdm(total=len(missing), desc="cells", unit="cell", disable=hidden, leave=False)
        with bar, path.open("a", encoding="utf-8", newline="\n") as file:
            for record in _compute(missing, jobs, smoke):
                file.write(json.dumps(record, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
                if "error" in record:
                    failed.append(f"{record['id']}: {record['error']}")
                bar.update()
        _put_in_order(path)
    return Outcome(len(cells) - len(missing), len(missing) - len(failed), tuple(failed), torn)


def read_results(path: str | os.PathLike[str]) -> tuple[dict[str, Record], bool]:
    """The last record of every cell by id, and whether the file ends in a torn line, which is left out."""
    records: dict[str, Record] = {}
    if not Path(path).exists():
        return records, False
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            records[record["id"]] = record
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}, line {number}: not a record of a cell; remove the line.") from None
    return records, bool(lines[-1])


def _put_in_order(path: Path) -> None:
    """The last record of every cell, in the order of the paper's tables; the file is replaced whole."""
    records, _ = read_results(path)
    place = {cell.id.rpartition("/")[0]: place for place, cell in enumerate(cells(TABLES, 1))}

    def key(record: Record) -> tuple[int, int, str]:
        return int(record.get("seed", 0)), place.get(record["id"].rpartition("/")[0], len(place)), record["id"]

    ordered = sorted(records.values(), key=key)
    content = "".join(json.dumps(record, allow_nan=False) + "\n" for record in ordered)
    if content == path.read_text(encoding="utf-8"):
        return
    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(content.encode())
        file.flush()
        os.fsync(file.fileno())


def _compute(cells: Sequence[Cell], jobs: int, smoke: bool) -> Iterator[Record]:
    if jobs == 1:
        for cell in cells:
            yield _cell(cell, smoke)
        return
    # Spawned, not forked: a forked child of a threaded BLAS may hang.
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with ours, theirs, ProcessPoolExecutor(jobs, context, _leave_with, (ours,)) as pool:
        futures = [pool.submit(_cell, cell, smoke) for cell in cells]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            # The workers leave, and what is left is given up; cancelled as well, it would be finished twice.
            theirs.close()
            raise


def _leave_with(connection: Connection) -> None:
    """In a worker: end at once when the process that started it closes its end, or is killed."""
    # Ctrl-C reaches all processes of a terminal; the one that was called answers for all.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            connection.recv()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _cell(cell: Cell, smoke: bool) -> Record:
    """Fit and measure one cell in one thread."""
    record: Record = {"id": cell.id, "setting": cell.setting.id, "algorithm": cell.algorithm, "seed": cell.seed}
    try:
        with one_blas_thread():
            run = _run(cell.setting, cell.seed, smoke)
            log = run.log if cell.setting.head is None else run.log.head(cell.setting.head)
            model: Any = make(cell.algorithm, run, smoke=smoke)
            if model is None:
                return record | {"seconds": None, "metrics": metrics.evaluate(run.expert, run)}
            start = time.process_time()
            model.fit(log)
            seconds = time.process_time() - start
            if cell.algorithm == OURS[0]:
                # Half a log: the expert to be imitated is the one after the whole of it.
                model.next_policy_coef_ = model.forecast(updates=1 + len(run.log) - len(log))
            figures = metrics.evaluate(model, run)
            json.dumps(figures, allow_nan=False)  # raises where a figure is no number
            return record | {"seconds": seconds, "metrics": figures}
    except Exception as error:
        return record | {"error": f"{type(error).__name__}: {error}"}


@functools.lru_cache(maxsize=2)
def _run(setting: PaperSetting, seed: int, smoke: bool) -> Run:
    return setting.simulate(seed, smoke=smoke)
