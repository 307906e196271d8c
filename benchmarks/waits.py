"""What a user waits for: `IBCB(...).fit(log)`, policy tracked and forecast, then `predict` on fresh candidates.

Each function is a measurement of `scale.py`, which runs it in a process of its own. `ratios` says what a record is
judged by.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from timing import floor, forget_peak, peak, seconds, turns

import ibcb
from ibcb.inverse import evolution

STEPS, L2, SEED = 1000, 0.3, 300
OURS, BARE, PAPER = "fit + predict", "bare fit", "paper's OSQP"
CHOICE, SVC = "choice model, last episode", "LinearSVC"


# -- measurements ----------------------------------------------------------------------------------------------------


def waits(kind: str, episodes: int, d: int) -> dict[str, Any]:
    """Our fit with and without tracking, and others, on one log of the paper's kind; BT-Fitness of each."""
    run = _run(kind, episodes, d)
    makers: dict[str, Callable[[], Any]] = {
        BARE: partial(ibcb.IBCB, expert=kind, l2=L2, forecast=None),
        OURS: partial(ibcb.IBCB, expert=kind, l2=L2),
        CHOICE: partial(ibcb.ChoiceModel, episodes=1),
    }
    if d <= 50:
        makers[SVC] = ibcb.BaseSVC
    if d <= 50 and kind == "sbucb":
        makers[PAPER] = partial(ibcb.IBCB, expert=kind, l2=L2, solver="paper", forecast=None)
    models: dict[str, Any] = {}

    def contend(name: str) -> None:
        models[name] = makers[name]().fit(run.log)
        if name == OURS:
            models[name].predict(run.test_log)

    contenders: dict[str, Callable[[], object]] = {"floor": partial(floor, run.log)}
    contenders |= {name: partial(contend, name) for name in makers}
    times = turns(contenders, most=15)
    return {"seconds": times, "fitness": {name: ibcb.metrics.bt_fitness(model, run) for name, model in models.items()}}


def many(kind: str, episodes: int, d: int) -> dict[str, Any]:
    """Many features: seconds, memory above the log's own, and BT-Fitness, with and without tracking."""
    run = _run(kind, episodes, d)
    found: dict[str, Any] = {"seconds": {}, "memory": {}, "fitness": {}}
    settings: dict[str, dict[str, Any]] = {BARE: {"forecast": None}, OURS: {}}
    for name, setting in settings.items():
        model = ibcb.IBCB(expert=kind, l2=L2, **setting)
        forget_peak()
        before = peak()
        found["seconds"][name] = seconds(partial(_fit_predict, model, run))
        found["memory"][name] = peak() - before
        found["fitness"][name] = ibcb.metrics.bt_fitness(model, run)
    return found | {"log": run.log.contexts.nbytes / 2**20}


def auto(kind: str) -> dict[str, Any]:
    """Expert and l2 chosen by the log, against both named: 15 episodes of 500 steps, 8 candidates, 12 features."""
    run = _run(kind, 15, 12, batch_size=500, n_candidates=8)
    chosen, named = ibcb.IBCB(expert="auto", l2="auto"), ibcb.IBCB(expert=kind, l2=L2)
    times = turns({"auto": partial(_fit_predict, chosen, run), OURS: partial(_fit_predict, named, run)})
    fitness = {"auto": ibcb.metrics.bt_fitness(chosen, run), OURS: ibcb.metrics.bt_fitness(named, run)}
    return {"seconds": times, "fitness": fitness, "found": chosen.decider_.name, "l2": chosen.l2_}


def growth(kind: str, along: str) -> dict[str, Any]:
    """Sizes along rows or features take turns in one process."""
    settings: dict[int, dict[str, Any]]
    if along == "rows":
        settings = {20 * 10 * B: {"episodes": 20, "d": 10, "batch_size": B} for B in (250, 1000, 4000)}
    else:
        settings = {d: {"episodes": 6, "d": d} for d in (25, 50, 100, 200)}
    contenders = dict[str, Callable[[], object]]()
    for size, setting in settings.items():
        model = ibcb.IBCB(expert=kind, l2=L2)
        contenders[str(size)] = partial(_fit_predict, model, _run(kind, **setting))
    return {"seconds": turns(contenders)}


def long(episodes: int) -> dict[str, Any]:
    """A long log of short episodes: seconds in all, and per episode in the first and the last tenth of the log."""
    run = _run("sbucb", episodes, 5, batch_size=20, n_candidates=5)
    ticks, each = list[float](), evolution.__dict__["episodes"]

    def ticking(*arguments: Any, **where: Any) -> Iterator[Any]:
        for episode in each(*arguments, **where):
            ticks.append(time.perf_counter())
            yield episode
        ticks.append(time.perf_counter())

    with mock.patch("ibcb.inverse.evolution.episodes", ticking):
        model = ibcb.IBCB(expert="sbucb", l2=L2)
        total = seconds(partial(_fit_predict, model, run))
    assert len(ticks) == episodes + 2, "an episode was visited twice"
    took, tenth = np.diff(ticks), episodes // 10
    return {
        "seconds": {OURS: total, BARE: seconds(lambda: ibcb.IBCB(expert="sbucb", l2=L2, forecast=None).fit(run.log))},
        "per episode": {"first": float(took[1 : tenth + 1].mean()), "last": float(took[-tenth:].mean())},
    }


def starts() -> dict[str, Any]:
    """Fresh processes that import us, or print our help, beside importing NumPy."""
    commands = {
        "import numpy": ["-c", "import numpy"],
        "import ibcb": ["-c", "import ibcb"],
        "ibcb --help": ["-m", "ibcb", "--help"],
        "ibcb fit --help": ["-m", "ibcb", "fit", "--help"],
    }

    def start(words: list[str]) -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)

    return {"seconds": turns({name: partial(start, words) for name, words in commands.items()}, most=5)}


def _run(kind: str, episodes: int, d: int, batch_size: int = STEPS, **world: Any) -> Any:
    world |= {"n_episodes": episodes, "n_features": d, "batch_size": batch_size}
    return ibcb.simulate("synthetic", expert=kind, seed=SEED, **world)


def _fit_predict(model: ibcb.IBCB, run: Any) -> None:
    model.fit(run.log).predict(run.test_log)


# -- what they are judged by -----------------------------------------------------------------------------------------


class Ratio(NamedTuple):
    """A figure of a record and its bar; None where there is none."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bar(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def missed(self) -> bool:
        return (self.at_least is not None and self.value < self.at_least) or (
            self.at_most is not None and self.value > self.at_most
        )


def ratios(record: dict[str, Any]) -> list[Ratio]:
    """The figures of a record that have bars, and those beside them."""
    name, *arguments = record["what"]
    times = record["seconds"]
    if name == "waits":
        kind, _, d = arguments
        found = [Ratio("fit + predict / bare fit", times[OURS] / times[BARE], at_most=6 if d >= 100 else None)]
        if PAPER in times:
            bar = {10: 5, 50: 12}.get(d)
            found.append(Ratio("paper's OSQP / fit + predict", times[PAPER] / times[OURS], at_least=bar))
            found.append(Ratio("paper's OSQP / bare fit", times[PAPER] / times[BARE], at_least=15))
        paper_size = kind == "sbucb" and d == 10
        found.append(Ratio("bare fit / floor", times[BARE] / times["floor"], at_most=6 if paper_size else None))
        return found
    if name == "many":
        small = arguments[-1] <= 500
        return [
            Ratio("seconds", times[OURS], at_most=60 if small else None),
            Ratio("memory, MiB", record["memory"][OURS], at_most=2048 if small else None),
        ]
    if name == "auto":
        return [Ratio("auto / all named", times["auto"] / times[OURS], at_most=8)]
    if name == "starts":
        return [
            Ratio(f"{start} / import numpy", took / times["import numpy"], at_most=5)
            for start, took in times.items()
            if "ibcb" in start
        ]
    return []
