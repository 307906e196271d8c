"""What a notebook shows of a log, and of its validation: a few lines of HTML."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from ibcb.numerics.contexts import is_sparse

#: features that are named
_MOST = 8
_CELL = "text-align:left;padding:1px 1.2em 1px 0;border:0;vertical-align:top"


def log_html(log: Any) -> str:
    """What a log holds, as a small table; of one on disk without reading it."""
    on_disk = not log.in_memory
    rows = {"": escape(_short(log.name))} if on_disk else {}
    if not on_disk or log.n_episodes is not None:
        warmup = f" after {log.warmup:,} of warm-up" if log.warmup else ""
        rows["episodes"] = f"{len(log):,}{warmup}"
    if not on_disk:
        counts = np.diff(log.step_offsets)
        each = f"{counts[0]} each" if log.candidates_per_step else f"{counts.min()} to {counts.max()}"
        rows |= {"steps": f"{log.n_steps:,}", "candidates": f"{log.n_rows:,}, {each}"}
    names = log.feature_names
    if names is not None:
        some = ", ".join(escape(_short(name)) for name in names[:_MOST])
        rows["features"] = f"{len(names):,}: {some}{', …' if len(names) > _MOST else ''}"
    elif not on_disk:
        rows["features"] = f"{log.n_features:,}, without names"
    if not on_disk:
        rows["numbers"] = f"{'sparse ' if is_sparse(log.contexts) else ''}{log.contexts.dtype}"
        if log.timestamps is not None and len(log.timestamps):
            rows["time"] = " to ".join(escape(str(log.timestamps[at])) for at in (0, -1))
    notes = "".join(f'<div style="opacity:.8">{escape(str(note))}</div>' for note in log.notes)
    return _box(type(log).__name__, f"{_pairs(rows)}{notes}")


def validation_html(validation: Any) -> str:
    """What `ibcb.validate` found, the gravest first."""
    # Imported here: a log alone shows itself without it.
    from ibcb.log.validation.findings import shown

    items = []
    for finding in validation.findings:
        features = f"<br>Features: {escape(shown(finding.features))}." if finding.features else ""
        place = f", {escape(finding.place)}" if finding.place else ""
        colour = {"error": "#c0392b", "warning": "#b9770e"}.get(finding.severity, "inherit")
        items.append(
            f'<div style="margin-top:.5em"><span style="color:{colour};font-weight:600">{finding.severity}: '
            f"{escape(finding.code)}</span>{place}<br>{escape(finding.message)}{features}<br>"
            f'<span style="opacity:.8">→ {escape(finding.remedy)}</span></div>'
        )
    summary = validation.summary
    rows = {
        "episodes": f"{summary.episodes:,}"
        + (f" after {summary.warmup_episodes:,} of warm-up" if summary.warmup_episodes else ""),
        "steps": f"{summary.steps:,}",
        "candidates": f"{summary.rows:,}",
        "features": f"{summary.features:,}",
    }
    if summary.time_span is not None:
        rows["time"] = " to ".join(map(escape, summary.time_span))
    return _box(validation.verdict, f"{_pairs(rows)}{''.join(items)}")


def _box(title: str, content: str) -> str:
    return (
        '<div style="max-width:46em;margin:.5em 0;line-height:1.45">'
        f'<div style="font-weight:600">{escape(title)}</div>{content}</div>'
    )


def _pairs(rows: dict[str, str]) -> str:
    """Names and what they are, of which the latter is HTML."""
    cells = "".join(
        f'<tr style="background:none"><td style="{_CELL};opacity:.7">{name}</td><td style="{_CELL}">{value}</td></tr>'
        for name, value in rows.items()
    )
    return f'<table style="border-collapse:collapse;border:0"><tbody>{cells}</tbody></table>'


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:59] + "…"
