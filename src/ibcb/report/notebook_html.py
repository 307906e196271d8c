"""What a notebook shows of a model, above scikit-learn's table of settings, and of a verdict.

A model has no log at hand, so it shows what needs none; `IBCB.verdict` says how far to rely on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ibcb.numerics.metric import direction
from ibcb.report.verdict import Verdict, statements

_MOST = 8
_ASK = "model.verdict(log) says how far to rely on it."


def summary_html(model: Any) -> str:
    """What a fit recovered, as a few lines of HTML; empty before `fit`. Works on any estimator of this library."""
    if not hasattr(model, "next_policy_coef_"):
        return ""
    fitted, said = "", list[str]()
    if hasattr(model, "diagnostics_"):
        steps = sum(entry.steps for entry in model.diagnostics_)
        fitted = f"{len(model.diagnostics_):,} episodes, {steps:,} steps, solver {model.solver_}."
        said = [*statements(model), *map(str, model.notes_), _ASK]
    names = model.feature_names_in_ or [f"feature {column}" for column in range(model.n_features_in_)]
    scaled = getattr(model, "direction", direction)
    policy, reward = scaled(model.next_policy_coef_), scaled(model.coef_)
    largest = float(np.abs(policy).max(initial=0.0)) or 1.0
    weights = [
        (
            names[f] if len(names[f]) <= 60 else names[f][:59] + "…",
            f"{policy[f]:+.3g}",
            f"{reward[f]:+.3g}",
            f"{7 * abs(policy[f]) / largest:.2f}",
        )
        for f in np.argsort(-np.abs(policy), kind="stable")[:_MOST]
    ]
    rest = len(policy) - len(weights)
    return _laid_out("model", fitted, said, weights, f"{rest:,}" if rest else "")


def verdict_html(verdict: Verdict) -> str:
    """The level and the headline, then the reasons and what to do next."""
    return _laid_out("verdict", verdict)


def _laid_out(part: str, *told: Any) -> str:
    """By a macro of `notebook.html`."""
    from ibcb.report.rendering import template

    return str(getattr(template("notebook.html").module, part)(*told))
