"""The chart on top of the results page, drawn from the recorded cells while the site is built, in its colours."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from html import escape
from pathlib import Path
from statistics import fmean

#: rows of the chart: a name, and the settings whose cells it averages
ROWS = {
    "Synthetic, SBUCB": r"synthetic/sbucb/std=[\d.]+",
    "Synthetic, SBTS": r"synthetic/sbts/std=[\d.]+",
    "SBUCB, half of the log seen": r"synthetic/sbucb/std=[\d.]+/half",
    "SBUCB that draws among its best": r"synthetic/sbucb/std=[\d.]+/top\d",
    "SBTS that draws among its best": r"synthetic/sbts/std=[\d.]+/top\d",
    "MovieLens, SBUCB": r"movielens/sbucb",
    "MovieLens, SBTS": r"movielens/sbts",
    "MovieLens, half of the log seen": r"movielens/sbucb/half",
}
#: algorithms as recorded, as named in the legend, and their mark
SERIES = {
    "IBCB, ours": ("IBCB, defaults", "ours"),
    "IBCB": ("the paper's IBCB", "paper"),
    "ChoiceModel, last episode": ("conditional logit, last episode", "logit"),
    "BaseSVC": ("behaviour cloning", "clone"),
    "B-IRL": ("B-IRL", "rival"),
    "B-ICB-S": ("B-ICB-S", "rival2"),
    "expert": ("the expert itself", "expert"),
}
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 880, 250, 24, 84, 34


def shares(path: Path) -> dict[str, dict[str, float]]:
    """By row and algorithm: share of fresh choices on which the final expert agrees, mean over settings and seeds."""
    found: dict[str, dict[str, list[float]]] = {row: defaultdict(list) for row in ROWS}
    for line in path.read_text(encoding="utf-8").splitlines():
        cell = json.loads(line)
        for row, pattern in ROWS.items():
            if cell["algorithm"] in SERIES and re.fullmatch(pattern, cell["setting"]):
                found[row][cell["algorithm"]].append(cell["metrics"]["bt_fitness"])
    return {row: {name: fmean(values) for name, values in of.items()} for row, of in found.items() if of}


def chart(path: Path) -> str:
    """As an SVG that stands in the page; the tables below have the figures."""
    table = shares(path)
    height = _TOP + _ROW * len(table) + 34
    span = _WIDTH - _LEFT - _RIGHT

    def x(share: float) -> float:
        return _LEFT + span * share

    parts = [_legend()]
    for tick in range(0, 101, 20):
        parts.append(
            f'<line class="grid" x1="{x(tick / 100):.1f}" x2="{x(tick / 100):.1f}" y1="{_TOP - 8}" y2="{height - 30}"/>'
        )
        parts.append(f'<text class="tick" x="{x(tick / 100):.1f}" y="{height - 12}">{tick}%</text>')
    for place, (row, of) in enumerate(table.items()):
        y = _TOP + _ROW * place + _ROW / 2
        parts.append(f'<text class="row" x="{_LEFT - 14}" y="{y + 4:.1f}">{escape(row)}</text>')
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + span}" y1="{y:.1f}" y2="{y:.1f}"/>')
        for name in reversed(SERIES):
            if name in of:
                title = f"<title>{escape(row)}: {escape(SERIES[name][0])} {of[name]:.1%}</title>"
                parts.append(f'<g data-share="{of[name]:.4f}">{title}{_mark(SERIES[name][1], x(of[name]), y)}</g>')
    label = "Share of fresh choices on which the final expert agrees, by data and method"
    drawn = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    caption = (
        f"{label}. Means over all settings of the paper's tables and all seeds; further right is better. "
        "An expert that draws does not always agree with itself."
    )
    scrolls = f'<div class="wide" tabindex="0" role="region" aria-label="Chart">{drawn}</div>'
    return f'<figure class="summary">{scrolls}<figcaption>{caption}</figcaption></figure>'


def _legend() -> str:
    """Marks and names, three in a line."""
    parts = []
    for place, (name, mark) in enumerate(SERIES.values()):
        x, y = _LEFT + (place % 3) * 205, 14 + 20 * (place // 3)
        parts.append(f'{_mark(mark, x, y)}<text class="name" x="{x + 12}" y="{y + 4}">{escape(name)}</text>')
    return "".join(parts)


def _mark(kind: str, x: float, y: float) -> str:
    """Told apart by shape as well as by colour."""
    at = f'class="{kind}" transform="translate({x:.1f} {y:.1f})"'
    shapes = {
        "ours": '<circle r="6.5" {}/>',
        "paper": '<rect x="-5" y="-5" width="10" height="10" {}/>',
        "logit": '<path d="M0-6 6 5H-6Z" {}/>',
        "clone": '<path d="M0-6.5 6.5 0 0 6.5-6.5 0Z" {}/>',
        "rival": '<path d="M-5-5 5 5M5-5-5 5" {}/>',
        "rival2": '<path d="M0-6V6M-6 0H6" {}/>',
        "expert": '<path d="M0-12V12" {}/>',
    }
    return shapes[kind].format(at)
