"""The sections of the page: each a table that says its own figures, laid out by the part of `parts` of the same name.

Weights are those of `ibcb.report.feature_weights`, propensities those of `ibcb.report.calibrating`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from ibcb.estimators.ibcb import IBCB
from ibcb.inverse.solvers import SOLVERS
from ibcb.numerics.arrays import Matrix
from ibcb.report.feature_weights import LEVEL
from ibcb.report.verdict import Verdict, statements
from ibcb.report.walking import Walking, agreements
from ibcb.report.writing import decimals, episode_times, exact, said
from ibcb.tracking import Interval
from ibcb.tracking.selection import Candidate
from ibcb.version import __version__

#: updates after the log that the evolution goes on for
FORECAST = 5
_MOST_LINES, _MOST_EPISODES = 40, 400
#: columns of the file of choices that do not fit
_CSV = {"episode": "episode", "step": "step", "id": "step_id", "time": "timestamp"}
_CSV |= {name: name for name in ("chosen", "preferred", "probability")}
#: how many times as often one candidate is drawn as another, up to which the number is said
_MOST_TIMES = 1000

Rows = tuple[tuple[float, ...], ...]


class OverviewSection(SimpleNamespace):
    """What was fitted to what, and how far to rely on it.

    Attributes
    ----------
    title, log_name : str
        ``log_name`` is empty for a log in memory.
    kind : Kind
        Of the decider.
    settings : tuple of (name, value)
        What was fitted, in words.
    verdict : Verdict
    exact : tuple of str
        Whether the choices have an exact explanation; sentences that the verdict has among its reasons.
    notes : tuple of str
        What a reader should know, of the fit and of this page.
    n_episodes, n_steps, n_rows, warmup_steps, fewest, most : int
        Size of the log; ``fewest`` and ``most`` candidates at a step.
    fingerprint : str
    version : str
        Of the library.
    """

    @property
    def judged(self) -> tuple[str, ...]:
        """The reasons of the verdict without those in ``exact``."""
        return tuple(reason for reason in self.verdict.reasons if reason not in self.exact)


def overview(
    model: IBCB, view: Walking, verdict: Verdict, notes: Sequence[str], *, title: str, name: str, warmup: int
) -> OverviewSection:
    """Of a log that is called ``name`` and has so many steps of ``warmup``."""
    counts = np.concatenate(view.sizes)
    return OverviewSection(
        title=title or (f"What {name} gives away" if name else "What a log gives away"),
        log_name=name,
        kind=model.decider_,
        settings=_settings(model),
        verdict=verdict,
        exact=tuple(statements(model)),
        notes=tuple(notes),
        n_episodes=len(view.sizes),
        n_steps=len(counts),
        n_rows=int(counts.sum()),
        warmup_steps=warmup,
        fewest=int(counts.min()),
        most=int(counts.max()),
        fingerprint=model.log_fingerprint_,
        version=__version__,
    )


def _settings(model: IBCB) -> tuple[tuple[str, str], ...]:
    kind = model.decider_
    own = {
        "l2": f"{model.l2_:g}" + (f" ({kind.units} features)" if kind.units != "own" else "") if kind.learns else "",
        "alpha": f"{model.to_policy().alpha:g}" if kind.per_unit is not None else "",
        "epsilon": "" if model.epsilon_ is None else f"{model.epsilon_:.3f}",
        "temperature": "" if model.temperature_ is None else f"{model.temperature_:.3g}",
        "top_k": "" if model.top_k_ is None else f"{model.top_k_}",
    }
    return (
        ("decider", kind.title if model.expert_ == kind.name else f"not told by the log; followed as: {kind.title}"),
        *((name, value) for name, value in own.items() if value),
        ("solver", SOLVERS[model.solver_].title),
        ("episodes", "one after the other" if model.incremental else "all at once"),
    )


class EvolutionSection(SimpleNamespace):
    """How the policy evolved, and will.

    Attributes
    ----------
    lines : tuple of int
        Places in ``weights`` of the features whose evolution is shown.
    evolution : tuple of tuple of float
        Per shown episode, the policy's weight of each of ``lines``.
    lower, upper : tuple of tuple of float, or None
        Bounds of ``evolution``; None where there are none.
    forecast : tuple of tuple of float
        The same after 1, 2, ... updates that follow the log.
    forecast_today : tuple of float
        The share of today's choices that these policies would make.
    today_steps : int
        Steps that such shares are of.
    learns : bool
        Whether the forecast projects a learner; False where it is the last policy, or the one right after the log.
    """

    @property
    def digits(self) -> list[int]:
        """Decimals of each of ``lines``, by episode and by update after the log."""
        return [decimals(column) for column in zip(*self.evolution, *self.forecast, strict=True)]

    @property
    def sparks(self) -> dict[int, str]:
        """The past of each shown feature as a small line, on its own scale with zero in it; by place in ``weights``."""
        history, lines = [*self.evolution, *self.forecast[:1]], {}
        for place, values in zip(self.lines, zip(*history, strict=True), strict=True):
            bottom, top = min(0.0, *values), max(0.0, *values)
            span = (top - bottom) or 1.0
            lines[place] = " ".join(
                f"{100 * i / max(1, len(values) - 1):.1f},{22 - 20 * (value - bottom) / span:.1f}"
                for i, value in enumerate(values)
            )
        return lines


def evolved(
    model: IBCB, view: Walking, order: list[int], peaks: Sequence[float], bounds: list[Interval] | None
) -> EvolutionSection:
    """``order``: the features shown; ``peaks``: how much each ever moved scores by; ``bounds``: of every policy."""
    policies, today = model.direction(model.policy_coefs_), model.direction(model.next_policy_coef_)
    lines = sorted(np.argsort(-np.asarray(peaks)[order], kind="stable")[:_MOST_LINES].tolist())
    columns, shown = [order[line] for line in lines], episodes_shown(len(policies))
    ahead, lately = np.stack(forecasts(model)), view.lately.log()

    def rows(values: Sequence[Any] | Matrix) -> Rows:
        return tuple(tuple(map(exact, row[columns])) for row in values)

    return EvolutionSection(
        lines=tuple(lines),
        evolution=rows(policies[shown]),
        lower=None if bounds is None else rows([bounds[place].lower for place in shown]),
        upper=None if bounds is None else rows([bounds[place].upper for place in shown]),
        forecast=rows(ahead),
        forecast_today=tuple(map(exact, agreements(ahead, today, lately))),
        today_steps=lately.n_steps,
        learns=model.forecast_note_ is not None and model.forecast_note_.code == "learner-forecast",
    )


def episodes_shown(count: int) -> list[int]:
    """All episodes, or of many every k-th and the last."""
    return sorted({*range(0, count, -(-count // _MOST_EPISODES)), count - 1})


def forecasts(model: IBCB) -> list[Any]:
    """Directions of the policies after 1, 2, ... updates that follow the log; without a forecast of the first alone."""
    if model.forecast_model_ is None:
        return [model.direction(model.next_policy_coef_)]
    return [model.direction(model.forecast(updates=count)) for count in range(1, FORECAST + 1)]


class PredictionSection(SimpleNamespace):
    """How it is predicted, how it explores, and which kinds were compared.

    Attributes
    ----------
    episodes : tuple of EpisodeFacts
        Of the episodes shown; see ``n_episodes``.
    exploration : str
        How much the decider explores, in a sentence; empty where that is not known.
    compared : tuple of Compared
        The kinds of decider that the log chose from.
    counts : Counts
        Of the whole log.
    """


class Counts(NamedTuple):
    """Steps: whose choice the policy of the time would not make, that was not predicted, that exploration decided."""

    disagreed: int
    surprised: int
    explored: int


def predicted(model: IBCB, view: Walking) -> PredictionSection:
    """With the share of today's choices that each of the policies would make."""
    places, policies = episodes_shown(len(view.episodes)), model.direction(model.policy_coefs_)
    shown = tuple(view.episodes[place] for place in places)
    times = episode_times([episode.time for episode in shown])
    shares = agreements(policies[places], model.direction(model.next_policy_coef_), view.lately.log())
    for episode, time, share in zip(shown, times, shares, strict=True):
        episode.time, episode.today = time, exact(share)
    counts = Counts(*(view.counts[name] for name in Counts._fields))
    return PredictionSection(episodes=shown, exploration=exploration(model), compared=compared(model), counts=counts)


class Compared(NamedTuple):
    """A kind of decider that the log was compared with.

    Attributes
    ----------
    best : Candidate
        The chosen one, or the likeliest of this kind.
    tried : int
        How many there were of it, each with its own parameter.
    """

    best: Candidate
    tried: int

    @property
    def outcome(self) -> str:
        """What became of it; figures of a kind that was given up are of the episodes until then."""
        if self.best.chosen:
            return "chosen"
        return f"out after {self.best.out_after}" if self.best.out_after else ""


def compared(model: IBCB) -> tuple[Compared, ...]:
    """Every kind compared, the likeliest first and those last that were given up; empty where there was but one."""
    kinds: dict[tuple[str, str | None], list[Candidate]] = {}
    for each in sorted(model.evidence_, key=_rank):
        kinds.setdefault((each.expert, each.draws), []).append(each)
    rows = (Compared(next((one for one in of if one.chosen), of[0]), len(of)) for of in kinds.values())
    return tuple(sorted(rows, key=lambda kind: _rank(kind.best))) if len(kinds) > 1 else ()


def _rank(candidate: Candidate) -> tuple[float, float]:
    """Those that were given up are comparable with no others but those that went as far."""
    return -(candidate.out_after or math.inf), -candidate.log_likelihood


def exploration(model: IBCB) -> str:
    """Epsilon or the temperature with its interval, in a sentence; empty of kinds that have neither, or untracked."""
    if model.epsilon_ is None and model.temperature_ is None:
        return ""
    bounds = model.exploration_interval(LEVEL)
    now, low, high = (float(values[-1]) for values in bounds)
    figures = {"now": now, "low": low, "high": high, "level": LEVEL}
    if model.epsilon_ is None:
        return said("temperature", times=_times(now), **figures)
    falls = float(bounds.lower[0]) > high
    return said("epsilon-falls" if falls else "epsilon", first=float(bounds.estimate[0]), **figures)


def _times(temperature: float) -> str:
    """exp(1 / temperature), in words."""
    if temperature * math.log(_MOST_TIMES) <= 1:
        return f"over {_MOST_TIMES:,} times"
    return f"about {float(f'{math.exp(1 / temperature):.2g}'):,g} times"


class MisfitsSection(SimpleNamespace):
    """Choices that do not fit, and steps that contradict each other.

    Attributes
    ----------
    misfits : Misfits
    contradictions : tuple
        Steps that a certificate names: ``episode`` and ``step``; ``chosen`` was taken there, and none of ``others``.
    """

    @property
    def misfit_csv(self) -> str:
        """The choices that do not fit as a data URL of a CSV file."""
        listed, text = self.misfits.listed, io.StringIO()
        empty = {name for name in ("id", "time") if all(getattr(each, name) is None for each in listed)}
        columns = {name: title for name, title in _CSV.items() if name not in empty}
        rows = csv.writer(text, lineterminator="\r\n")
        rows.writerow(columns.values())
        for each in listed:
            values = each._asdict() | {"probability": f"{each.probability:.4f}"}
            rows.writerow([values[name] for name in columns])
        return "data:text/csv;charset=utf-8," + quote(text.getvalue().encode("utf-8", "replace"))


def contradictions(model: IBCB) -> tuple[SimpleNamespace, ...]:
    """The steps that certificates name."""
    others: dict[tuple[int, int, int], set[int]] = {}
    for entry in model.diagnostics_:
        for row in entry.certificate or ():
            others.setdefault((row.episode, row.step, row.chosen), set()).add(row.other)
    return tuple(
        SimpleNamespace(episode=episode, step=step, chosen=chosen, others=tuple(sorted(those)))
        for (episode, step, chosen), those in sorted(others.items())
    )


class ExplorerSection(SimpleNamespace):
    """Single steps.

    Attributes
    ----------
    sample : tuple of SampledEpisode, or None
        None: the page was asked to show no steps.
    columns : tuple of str
        Names of the features, as the sample numbers them.
    """

    @property
    def sampled(self) -> set[tuple[int, int]]:
        """Episode and step of each."""
        return {(episode.number, step.step) for episode in self.sample or () for step in episode.steps}
