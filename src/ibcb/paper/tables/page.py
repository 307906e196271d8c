"""The results page: every table of the paper, ours beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import pairwise

import numpy as np

from ibcb.io import atomic
from ibcb.log.array_checks import plural
from ibcb.paper.tables.runner import OURS, Figure, Record, figures, read_results

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
#: records by setting and algorithm, then by seed
_Records = dict[tuple[str, str], dict[int, Record]]


def write_page(results: str | os.PathLike[str], page: str | os.PathLike[str]) -> None:
    """Write the page from a file of records."""
    records, _ = read_results(results)
    with atomic(page) as path:
        path.write_text(render(records), encoding="utf-8")


def render(records: dict[str, Record]) -> str:
    """The page as Markdown, from records by id."""
    book: _Records = {}
    for record in records.values():
        if "error" not in record:
            book.setdefault((record["setting"], record["algorithm"]), {})[record["seed"]] = record
    seeds = plural(len({seed for cell in book.values() for seed in cell}), "seed")
    parts = [_text("introduction.md").format(seeds=seeds)]
    for table, heading, remark in _remarks():
        mine = [figure for figure in figures() if figure.table == table]
        if any((figure.setting.id, figure.ours) in book for figure in mine):
            groups: dict[tuple[str, str, str], list[Figure]] = {}
            for figure in mine:
                groups.setdefault((figure.expert, figure.variant, figure.metric), []).append(figure)
            sections = [_Section(group, book) for group in groups.values()]
            parts.append(f"{heading}\n\n{remark}\n\n{_lead(sections)}\n")
            parts += map(str, sections)
    return "\n".join(parts)


def _text(name: str) -> str:
    return (files("ibcb.paper.tables") / name).read_text(encoding="utf-8")


def _remarks() -> Iterator[tuple[int, str, str]]:
    """Number, heading and remark of every table, from `remarks.md`."""
    for section in _text("remarks.md").split("\n\n## "):
        heading, _, remark = section.removeprefix("## ").partition("\n\n")
        yield int(heading.removeprefix("Table ").partition(":")[0]), f"## {heading}", remark.strip()


class _Section:
    """What a table says of one metric, expert and variant: algorithms by conditions, the paper's and ours.

    Times are multiples of those of IBCB, which the tables about alpha call by its alpha: the paper's of its mean, ours
    of the same seed's.
    """

    def __init__(self, group: Sequence[Figure], records: _Records) -> None:
        self.first, self._records = group[0], records
        self.sign = 1 if self.first.metric in ("cfr", "train_time_s") else -1
        self.conditions = list(dict.fromkeys(figure.condition for figure in group))
        self.algorithms = list(dict.fromkeys(figure.algorithm for figure in group))
        self._names = {(figure.algorithm, figure.condition): figure.ours for figure in group}
        self._settings = {figure.condition: figure.setting.id for figure in group}
        self._unit = unit = "IBCB" if "IBCB" in self.algorithms else "IBCB-alpha-1"
        self.theirs = {(f.algorithm, f.condition): f.mean for f in group if f.mean is not None}
        if self.first.metric == "train_time_s":
            known = {key: mean for key, mean in self.theirs.items() if (unit, key[1]) in self.theirs}
            self.theirs = {(name, c): mean / self.theirs[unit, c] for (name, c), mean in known.items()}

    def ours(self, name: str, condition: str) -> list[float]:
        """One value for each seed."""
        setting, metric = self._settings[condition], self.first.metric
        records = self._records.get((setting, self._names.get((name, condition), name)), {})
        if metric != "train_time_s":
            return [value for record in records.values() if (value := record["metrics"][metric]) is not None]
        base = self._records.get((setting, self._unit), {})
        pairs = [(record["seconds"], base[seed]["seconds"]) for seed, record in records.items() if seed in base]
        return [mine / its for mine, its in pairs if mine is not None]

    def leads_in_paper(self, condition: str) -> bool:
        """Whether the paper has its IBCB before all baselines."""
        known = [self.sign * self.theirs[name, condition] for name in _BASELINES if (name, condition) in self.theirs]
        return bool(known) and self.sign * self.theirs.get(("IBCB", condition), self.sign * np.inf) < min(known)

    def leads_here(self, name: str, condition: str) -> bool:
        """Whether an algorithm is before all baselines of the table."""
        mine = self.ours(name, condition)
        rivals = (self.ours(rival, condition) for rival in _BASELINES if (rival, condition) in self._names)
        return bool(mine) and all(self.sign * np.mean(its) > self.sign * np.mean(mine) for its in rivals if its)

    def same_order(self, condition: str) -> bool:
        """Whether the algorithms that both have stand in the same order; the paper's ties may go either way."""
        names = [name for name in self.algorithms if name != self.first.expert.upper()]
        both = [name for name in names if (name, condition) in self.theirs and self.ours(name, condition)]
        ranked = sorted(both, key=lambda name: self.sign * np.mean(self.ours(name, condition)))
        return all(a <= b for a, b in pairwise(self.sign * self.theirs[name, condition] for name in ranked))

    def label(self) -> str:
        """Such as BT-Fitness top2 SBTS."""
        metric = _METRICS[self.first.metric].partition(",")[0].partition(" (")[0]
        return " ".join(filter(None, (metric, self.first.variant.replace("_", " "), self.first.expert.upper())))

    def __str__(self) -> str:
        variant = f", {self.first.variant.replace('_', ' ')}" if self.first.variant else ""
        marks = ["" if self.same_order(condition) else " **≠**" for condition in self.conditions]
        header = ["", *(f"{condition}{mark}".strip() for condition, mark in zip(self.conditions, marks, strict=True))]
        names = [*self.algorithms, *self.first.beside]
        rows = [[name, *(self._entry(name, condition) for condition in self.conditions)] for name in names]
        title, *lines = ["| " + " | ".join(row) + " |" for row in (header, *rows)]
        heading = f"**{_METRICS[self.first.metric]}**, expert {self.first.expert.upper()}{variant}"
        return "\n".join([heading, "", title, "|" + "---|" * len(header), *lines, ""])

    def _entry(self, name: str, condition: str) -> str:
        values, paper = self.ours(name, condition), self.theirs.get((name, condition))
        beside = "" if paper is None else f" ({self._number(paper)})"
        if not values:
            return beside.strip()
        spread = f" ± {self._number(float(np.std(values)))}" if len(values) > 1 else ""
        return f"{self._number(float(np.mean(values)))}{spread}{beside}"

    def _number(self, value: float) -> str:
        if self.first.metric == "train_time_s":  # from hundreds to thousandths
            return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
        return f"{value:.0f}" if self.first.metric == "cfr" else f"{value:.3f}"


def _lead(sections: Sequence[_Section]) -> str:
    """Where the paper has its IBCB before all baselines, and whether that is so here."""
    claimed = [(section, c) for section in sections for c in section.conditions if section.leads_in_paper(c)]
    if not claimed:
        return "*This table has no column in which the paper's IBCB leads the baselines.*"
    told = []
    for name in ("IBCB", OURS[0]):
        lost: dict[str, list[str]] = {}
        for section, condition in claimed:
            if not section.leads_here(name, condition):
                lost.setdefault(section.label(), []).append(condition)
        exceptions = [" ".join([label, ", ".join(conditions)]).strip() for label, conditions in lost.items()]
        where = f"{len(claimed) - sum(map(len, lost.values()))} (not in {'; '.join(exceptions)})" if lost else "all"
        told.append(f"{name} leads in {where}")
    return f"*Columns where IBCB leads the baselines in the paper: {len(claimed)}. Here {'; '.join(told)}.*"
