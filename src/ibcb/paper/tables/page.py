"""The results page: every table of the paper, ours beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np

from ibcb.io import atomic
from ibcb.log.array_checks import plural
from ibcb.paper.tables.paper_cells import OURS, Figure, figures
from ibcb.paper.tables.runner import Record, read_results

_METRICS = {
    "ol_fitness": "OL-Fitness",
    "bt_fitness": "BT-Fitness",
    "bt_ar": "BT-AR",
    "ood_bt_fitness": "BT-Fitness, out of distribution",
    "ood_bt_ar": "BT-AR, out of distribution",
    "train_log_fitness": "train-log fitness",
    "cfr": "CFR (lower is better)",
    "train_time_s": "training time, in units of IBCB's in the same run (lower is better)",
}
_BASELINES = ("B-IRL", "BaseSVC", "B-ICB-S")
_LOW_IS_GOOD = {"cfr", "train_time_s"}


def write_page(results: str | os.PathLike[str], page: str | os.PathLike[str]) -> None:
    """Write the page from a file of records."""
    records, _ = read_results(results)
    with atomic(page) as path:
        path.write_text(render(records), encoding="utf-8")


def render(records: dict[str, Record]) -> str:
    """The page as Markdown, from records by id."""
    book = _Book(records)
    parts = [_text("introduction.md").format(seeds=book.seeds)]
    for table, heading, remark in _remarks():
        mine = [figure for figure in figures() if figure.table == table]
        if not any(book.has(figure.setting.id, figure.ours) for figure in mine):
            continue
        keys = dict.fromkeys((f.expert, f.variant, f.metric) for f in mine)
        groups = [[f for f in mine if (f.expert, f.variant, f.metric) == key] for key in keys]
        parts.append(f"{heading}\n\n{remark}\n\n{_lead(book, groups)}\n")
        parts += [_section(book, group) for group in groups]
    return "\n".join(parts)


def _text(name: str) -> str:
    return (files("ibcb.paper.tables") / name).read_text(encoding="utf-8")


def _remarks() -> Iterator[tuple[int, str, str]]:
    """Number, heading and remark of every table, from `remarks.md`."""
    for section in _text("remarks.md").split("\n\n## "):
        heading, _, remark = section.removeprefix("## ").partition("\n\n")
        yield int(heading.removeprefix("Table ").partition(":")[0]), f"## {heading}", remark.strip()


class _Book:
    """Records looked up by setting, algorithm and metric."""

    def __init__(self, records: dict[str, Record]) -> None:
        self._cells: dict[tuple[str, str], dict[int, Record]] = {}
        for record in records.values():
            if "error" not in record:
                self._cells.setdefault((record["setting"], record["algorithm"]), {})[record["seed"]] = record
        self.seeds = plural(len({seed for cell in self._cells.values() for seed in cell}), "seed")

    def has(self, setting: str, algorithm: str) -> bool:
        return (setting, algorithm) in self._cells

    def values(self, setting: str, algorithm: str, metric: str, unit: str = "IBCB") -> list[float]:
        """One value per seed; for times, the ratio to the unit's with the same seed."""
        records = self._cells.get((setting, algorithm), {})
        if metric != "train_time_s":
            return [value for record in records.values() if (value := record["metrics"][metric]) is not None]
        base = self._cells.get((setting, unit), {})
        pairs = [(record["seconds"], base[seed]["seconds"]) for seed, record in records.items() if seed in base]
        return [mine / its for mine, its in pairs if mine is not None]


def _lead(book: _Book, groups: Iterable[Sequence[Figure]]) -> str:
    """Where the paper has its IBCB before all baselines, and whether that is so here."""
    claimed = 0
    lost: dict[str, dict[str, list[str]]] = {"IBCB": {}, OURS[0]: {}}
    for group in groups:
        theirs, metric = _paper_scale(group), group[0].metric
        sign = 1 if metric in _LOW_IS_GOOD else -1
        for condition in dict.fromkeys(figure.condition for figure in group):
            rivals = [f for f in group if f.condition == condition and f.algorithm in _BASELINES]
            known = [sign * theirs[f.algorithm, condition] for f in rivals if (f.algorithm, condition) in theirs]
            if not known or sign * theirs.get(("IBCB", condition), sign * np.inf) >= min(known):
                continue
            claimed += 1
            for name, places in lost.items():
                mine = book.values(rivals[0].setting.id, name, metric)
                others = [book.values(f.setting.id, f.ours, metric) for f in rivals]
                if not mine or any(values and sign * np.mean(values) <= sign * np.mean(mine) for values in others):
                    words = (_METRICS[metric].partition(",")[0].partition(" (")[0], group[0].variant.replace("_", " "))
                    label = " ".join(filter(None, (*words, group[0].expert.upper())))
                    places.setdefault(label, []).append(condition)
    if not claimed:
        return "*This table has no column in which the paper's IBCB leads the baselines.*"
    return f"*Columns where IBCB leads the baselines in the paper: {claimed}. Here {_told('IBCB', lost, claimed)}; " + (
        f"{_told(OURS[0], lost, claimed)}.*"
    )


def _told(name: str, lost: dict[str, dict[str, list[str]]], claimed: int) -> str:
    places = lost[name]
    if not places:
        return f"{name} leads in all"
    exceptions = [" ".join([label, ", ".join(conditions)]).strip() for label, conditions in places.items()]
    return f"{name} leads in {claimed - sum(map(len, places.values()))} (not in {'; '.join(exceptions)})"


def _section(book: _Book, group: Sequence[Figure]) -> str:
    metric, expert, variant = group[0].metric, group[0].expert, group[0].variant
    conditions = list(dict.fromkeys(figure.condition for figure in group))
    algorithms = list(dict.fromkeys(figure.algorithm for figure in group))
    paper = {(figure.algorithm, figure.condition): figure for figure in group}
    settings = {figure.condition: figure.setting.id for figure in group}
    theirs, unit = _paper_scale(group), _unit(group)
    heading = f"**{_METRICS[metric]}**, expert {expert.upper()}" + (f", {variant.replace('_', ' ')}" if variant else "")
    rows = []
    ours: dict[tuple[str, str], float] = {}
    for name in [*algorithms, *group[0].beside]:
        row = [name]
        for condition in conditions:
            figure = paper.get((name, condition))
            values = book.values(settings[condition], name if figure is None else figure.ours, metric, unit)
            if values:
                ours[name, condition] = float(np.mean(values))
            row.append(_entry(values, theirs.get((name, condition)), metric))
        rows.append(row)
    ranked = [name for name in algorithms if name != expert.upper()]
    marks = ["" if _same_order(ranked, c, ours, theirs, metric) else " **≠**" for c in conditions]
    header = ["", *(f"{condition}{mark}".strip() for condition, mark in zip(conditions, marks, strict=True))]
    lines = ["| " + " | ".join(row) + " |" for row in (header, *rows)]
    return "\n".join([heading, "", lines[0], "|" + "---|" * len(header), *lines[1:], ""])


def _paper_scale(group: Sequence[Figure]) -> dict[tuple[str, str], float]:
    """The paper's means; its times as multiples of its IBCB's."""
    means = {(f.algorithm, f.condition): f.mean for f in group if f.mean is not None}
    if group[0].metric != "train_time_s":
        return means
    unit = _unit(group)
    return {(name, c): mean / means[unit, c] for (name, c), mean in means.items() if (unit, c) in means}


def _unit(group: Sequence[Figure]) -> str:
    """The algorithm whose time is 1: IBCB, which the tables about alpha call by its alpha."""
    return "IBCB" if any(figure.algorithm == "IBCB" for figure in group) else "IBCB-alpha-1"


def _entry(values: Sequence[float], paper: float | None, metric: str) -> str:
    beside = "" if paper is None else f" ({_number(paper, metric)})"
    if not values:
        return beside.strip()
    spread = f" ± {_number(float(np.std(values)), metric)}" if len(values) > 1 else ""
    return f"{_number(float(np.mean(values)), metric)}{spread}{beside}"


def _number(value: float, metric: str) -> str:
    if metric == "train_time_s":  # from hundreds to thousandths
        return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
    return f"{value:.0f}" if metric == "cfr" else f"{value:.3f}"


def _same_order(algorithms: Sequence[str], condition: str, ours: Any, theirs: Any, metric: str) -> bool:
    """Whether the algorithms that both have stand in the same order; the paper's ties may go either way."""
    both = [name for name in algorithms if (name, condition) in ours and (name, condition) in theirs]
    sign = 1 if metric in _LOW_IS_GOOD else -1
    ranked = sorted(both, key=lambda name: sign * ours[name, condition])
    values = [sign * theirs[name, condition] for name in ranked]
    return all(a <= b for a, b in pairwise(values))
