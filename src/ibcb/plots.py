"""The report's figures as matplotlib axes, for notebooks; needs the extra ``report`` (matplotlib).

Every function draws into ``ax``, or into new axes, and returns the axes. Weights are scaled so that the scores
of a step's candidates spread by 1, as in the report: choices tell their direction well, but little of their length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ibcb.estimators.ibcb import IBCB
from ibcb.log import Log
from ibcb.report.facts import facts
from ibcb.report.feature_weights import feature_names, intervals, told
from ibcb.report.sections import forecasts

__all__ = ["agreement", "evolution", "exploration", "weights"]

_COLOURS = ("#0b66a8", "#c8590b", "#00795a", "#96487f", "#7d6300", "#3a86b8")
_OTHER = "#a8a49a"
_LABELLED = 14
_UNIT = "weight; a step's scores spread by 1"


def evolution(model: IBCB, *, ax: Any = None) -> Any:
    """The policy behind each episode, one line a feature, labelled at its end; dashed: the updates after the log.

    >>> import ibcb, matplotlib
    >>> matplotlib.use("Agg")
    >>> run = ibcb.simulate(n_episodes=4, batch_size=50, seed=0)
    >>> ax = ibcb.plots.evolution(ibcb.IBCB(l2=0.3).fit(run.log))
    >>> len(ax.texts), ax.get_xlabel()
    (10, 'episode')
    """
    axes = _axes(ax)
    names, count = feature_names(model), len(model.policy_coefs_)
    past = model.direction(model.policy_coefs_)
    ahead = np.vstack([past[-1:], *forecasts(model)])
    order = np.argsort(-np.abs(ahead).max(axis=0), kind="stable")
    for place, feature in reversed(list(enumerate(order))):
        colour = _COLOURS[place] if place < len(_COLOURS) else _OTHER
        width = 1.8 if place < len(_COLOURS) else 1.0
        axes.plot(range(count), past[:, feature], color=colour, linewidth=width)
        axes.plot(range(count - 1, count - 1 + len(ahead)), ahead[:, feature], color=colour, linewidth=width, ls=":")
        if place < _LABELLED:
            # Names are text: a dollar sign in one begins no formula.
            text = _short(names[feature]).replace("$", r"\$")
            spot = (count - 2 + len(ahead), ahead[-1, feature])
            axes.annotate(text, spot, xytext=(6, 0), textcoords="offset points", va="center", fontsize="small")
    axes.axhline(0, color=_OTHER, linewidth=0.8)
    axes.set(xlabel="episode", ylabel=_UNIT)
    return axes


def weights(model: IBCB, *, ax: Any = None, largest: int = 24) -> Any:
    """The last logged policy, the largest weights first, with 90% intervals where the model has them."""
    axes = _axes(ax)
    bounds = intervals(model)
    policy = model.direction(model.policy_coefs_[-1]) if bounds is None else bounds.estimate
    order = np.argsort(-np.abs(policy), kind="stable")[:largest]
    places = np.arange(len(order))
    axes.barh(places, policy[order], color=_COLOURS[0], height=0.55)
    if bounds is not None:
        known = told(model)[order]
        axes.hlines(places[known], bounds.lower[order[known]], bounds.upper[order[known]], color="black", linewidth=1.5)
    names = feature_names(model)
    axes.set_yticks(places, [_short(names[feature]).replace("$", r"\$") for feature in order])
    axes.invert_yaxis()
    axes.axvline(0, color=_OTHER, linewidth=0.8)
    axes.set(xlabel=_UNIT)
    return axes


def exploration(model: IBCB, log: Log, *, ax: Any = None) -> Any:
    """How much the decider explores in each episode, by its own rule as estimated; see `ibcb.report`."""
    shown = facts(model, log, steps=False)
    axes = _axes(ax)
    shares = [np.nan if e.exploration is None else e.exploration for e in shown.episodes]
    axes.plot([e.number for e in shown.episodes], shares, color=_COLOURS[1], marker="o")
    axes.set(xlabel="episode", ylabel=f"share of choices that {shown.kind.words.explored or 'explore'}", ylim=(0, None))
    return axes


def agreement(model: IBCB, log: Log, *, ax: Any = None) -> Any:
    """Share of each episode's choices predicted one episode ahead, beside a choice model of the last episode."""
    axes = _axes(ax)
    shown = facts(model, log, steps=False)
    numbers = [e.number for e in shown.episodes]
    shares = {"IBCB": ("predicted", _COLOURS[0], "-"), "choice model": ("rival", _OTHER, "-")}
    for label, (name, colour, style) in (shares | {"chance": ("chance", _OTHER, ":")}).items():
        values = [getattr(episode, name) for episode in shown.episodes]
        heights = [np.nan if value is None else value for value in values]
        axes.plot(numbers, heights, color=colour, linestyle=style, marker="o", markersize=3, label=label)
    axes.legend(frameon=False)
    axes.set(xlabel="episode", ylabel="share of choices predicted one episode ahead", ylim=(0, 1.02))
    return axes


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(
            "pictures need matplotlib; install ibcb with its extra: pip install 'ibcb[report]'."
        ) from None
    _, axes = plt.subplots(layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"
