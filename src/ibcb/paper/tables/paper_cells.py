"""Which cells make up the paper's 20 tables.

Nothing here computes. Every figure of the paper (`paper.csv`) is located in our terms: a `PaperSetting` (a world, the
expert in it, how much of its log is shown), an algorithm, and the name of a metric. A `Cell` is a setting, an algorithm
and a seed; fitting it once gives all its metrics, so tables that show the same fits share cells.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ibcb.deciders import KINDS
from ibcb.estimators.choice_model import ChoiceModel
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.imitator import Imitator
from ibcb.paper.environments import MovieLens
from ibcb.paper.rivals import BICB, BIRL, Averaged, BaseSVC
from ibcb.paper.simulation import Run, simulate

TABLES = tuple(range(1, 21))

#: shown beside the paper's algorithms in every table
OURS = ("IBCB, ours", "ChoiceModel, last episode", "ChoiceModel, last 3", "ChoiceModel, all")

#: how the settings that not all have stand in the ids of cells
_IDS = {"noise": "std={:g}", "top_k": "top{}", "dup": "dup={}", "head": "half", "batch_size": "B={}"}
_SMOKE_WORLD = {"n_episodes": 4, "batch_size": 60, "n_candidates": 4}


@dataclass(frozen=True, slots=True)
class PaperSetting:
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


@dataclass(frozen=True, slots=True)
class Cell:
    """One fit: a setting, an algorithm, a seed."""

    setting: PaperSetting
    algorithm: str
    seed: int

    @property
    def id(self) -> str:
        """Such as ``synthetic/sbucb/std=0.03/B-IRL/2``."""
        return f"{self.setting.id}/{self.algorithm}/{self.seed}"


@dataclass(frozen=True, slots=True)
class Figure:
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
    ibcb: dict[str, Any] = {"expert": kind, "prune": run.top_k > 1}
    fair: dict[str, Any] = {"expert": "topk", "top_k": run.top_k}
    paper = ibcb | {
        "solver": "paper",
        "forecast": None,
        "l2": 1.0,
        "margin": 0.001 if movielens else 0.01,
        "tolerance": 3e-1 if movielens and not KINDS[kind].deterministic else 8e-2,
    }
    if algorithm.startswith("IBCB-alpha-"):
        return IBCB(alpha=float(algorithm.removeprefix("IBCB-alpha-")), **paper)
    chain: dict[str, Any] = {"burn_in": 5_000, "n_samples": 500} if movielens else {}
    belief: dict[str, Any] = {"sample": 0.005 if movielens else 0.01, "pinv": movielens}
    if smoke:
        chain |= {"burn_in": 50, "n_samples": 10}
        belief |= {"n_iterations": 2, "n_sweeps": 20, "n_dropped": 10, "sample": 0.2}
    makers: dict[str, Callable[[], Imitator]] = {
        "BaseSVC": BaseSVC,
        "B-IRL": lambda: BIRL(random_state=run.seed, **chain),
        "B-ICB-S": lambda: BICB(random_state=run.seed, **belief),
        "IBCB": lambda: IBCB(**paper),
        "IBCB, ours": lambda: IBCB(alpha=run.expert_settings.alpha, **({"expert": kind} if run.top_k == 1 else fair)),
        "ChoiceModel, last episode": lambda: ChoiceModel(episodes=1),
        "ChoiceModel, last 3": lambda: ChoiceModel(episodes=3),
        "ChoiceModel, all": lambda: ChoiceModel(episodes=None),
    }
    return makers[algorithm]()


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
    algorithm = row["algorithm"]
    ours = "expert" if algorithm == row["expert"] else algorithm
    if row["variant"] == "per_episode_average" and algorithm not in ("IBCB", row["expert"]):
        ours = f"{algorithm} averaged"
    metric = f"ood_{row['metric']}" if scenario == "ood" else row["metric"]
    return Figure(
        table=int(row["table"]),
        expert=expert,
        variant=row["variant"],
        condition=row["condition"],
        algorithm=algorithm,
        metric=metric,
        setting=setting,
        ours=ours,
        mean=float(row["mean"]) if row["mean"] else None,
    )
