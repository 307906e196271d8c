"""What a notebook shows of a model, above scikit-learn's table of settings, and of a verdict.

A model has no log at hand, so it shows what needs none; `IBCB.verdict` says how far to rely on it.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from ibcb.numerics.metric import direction
from ibcb.report.verdict import Verdict, statements

__all__ = ["summary_html", "verdict_html"]

_MOST = 8
_ASK = "model.verdict(log) says how far to rely on it."
#: of the headline, readable on white and on black
_COLOURS = {"good": "#1e8449", "fair": "#b9770e", "poor": "#c0392b", "unknown": "#7f8c8d"}
_BOX = "max-width:46em;margin:.5em 0;line-height:1.45"
_CELL = "text-align:right;font-variant-numeric:tabular-nums;padding:1px 0 1px 1.2em;border:0;background:none"


def summary_html(model: Any) -> str:
    """What a fit recovered, as a few lines of HTML; empty before `fit`.

    Works on any estimator of this library. Colours are given for text only, and suit light and dark notebooks.
    """
    if not hasattr(model, "next_policy_coef_"):
        return ""
    lines = []
    if hasattr(model, "diagnostics_"):
        steps = sum(entry.steps for entry in model.diagnostics_)
        lines.append(
            f'<div style="font-weight:600">{len(model.diagnostics_):,} episodes, {steps:,} steps, '
            f"solver {escape(model.solver_)}.</div>"
        )
        lines += [f"<div>{escape(said)}</div>" for said in (*statements(model), *map(str, model.notes_), _ASK)]
    return f'<div style="{_BOX}">{"".join(lines)}{_weights(model)}</div>'


def verdict_html(verdict: Verdict) -> str:
    """The level and the headline, then the reasons and what to do next."""
    colour = _COLOURS[verdict.level]
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in verdict.reasons)
    return (
        f'<div style="{_BOX}"><div><span style="color:{colour};font-weight:600">{verdict.level}</span> '
        f'<span style="font-weight:600">{escape(verdict.headline)}</span></div>'
        f'<ul style="margin:.3em 0">{reasons}</ul><div>→ {escape(verdict.next_step)}</div></div>'
    )


def _weights(model: Any) -> str:
    names = model.feature_names_in_ or [f"feature {column}" for column in range(model.n_features_in_)]
    scaled = getattr(model, "direction", direction)
    policy, reward = scaled(model.next_policy_coef_), scaled(model.coef_)
    order = np.argsort(-np.abs(policy), kind="stable")[:_MOST]
    largest = float(np.abs(policy).max(initial=0.0)) or 1.0
    rows = "".join(
        '<tr style="background:none">'
        f'<td style="text-align:left;padding:1px 0;border:0">{escape(_short(names[f]))}</td>'
        f'<td style="{_CELL}">{policy[f]:+.3g}</td>'
        f'<td style="{_CELL}">{reward[f]:+.3g}</td>'
        f'<td style="{_CELL};text-align:left"><span style="display:inline-block;height:.6em;background:#3a86b8;'
        f'width:{7 * abs(policy[f]) / largest:.2f}em"></span></td></tr>'
        for f in order
    )
    rest = len(policy) - len(order)
    more = f'<div style="opacity:.7">and {rest:,} more</div>' if rest else ""
    head = "".join(f'<th style="{_CELL};opacity:.7;font-weight:400">{title}</th>' for title in ("policy", "reward", ""))
    return (
        '<table style="border-collapse:collapse;margin-top:.4em;border:0"><thead><tr style="background:none">'
        f'<th style="text-align:left;opacity:.7;font-weight:400;border:0">largest weights, scaled alike</th>{head}'
        "</tr></thead>"
        f"<tbody>{rows}</tbody></table>{more}"
    )


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:59] + "…"
