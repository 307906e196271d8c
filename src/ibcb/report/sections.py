"""The sections of the page: each a record that says its own figures, laid out by the part of `parts` of the same name.

Weights are those of `ibcb.report.feature_weights`, propensities those of `ibcb.report.calibrating`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import numpy as np

from ibcb.deciders import Kind
from ibcb.estimators.ibcb import IBCB
from ibcb.inverse.solvers import SOLVERS
from ibcb.numerics.arrays import Matrix
from ibcb.report.feature_weights import LEVEL
from ibcb.report.kinds_compared import Compared, compared, exploration
from ibcb.report.misfits import Misfits
from ibcb.report.ribbons import agreements
from ibcb.report.shown_steps import SampledEpisode
from ibcb.report.times import episode_times
from ibcb.report.verdict import Verdict, statements
from ibcb.report.walking import Counts, EpisodeFacts, Walking
from ibcb.report.writing import decimals, exact
from ibcb.tracking import Interval

#: updates after the log that the evolution goes on for
FORECAST = 5
_MOST_LINES, _MOST_EPISODES = 40, 400
#: columns of the file of choices that do not fit
_CSV = {"episode": "episode", "step": "step", "id": "step_id", "time": "timestamp"}
_CSV |= {name: name for name in ("chosen", "preferred", "probability")}

Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class OverviewSection:
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

    title: str
    log_name: str
    kind: Kind
    settings: tuple[tuple[str, str], ...]
    verdict: Verdict
    exact: tuple[str, ...]
    notes: tuple[str, ...]
    n_episodes: int
    n_steps: int
    n_rows: int
    warmup_steps: int
    fewest: int
    most: int
    fingerprint: str
    version: str

    @classmethod
    def overview(
        cls, model: IBCB, view: Walking, verdict: Verdict, notes: Sequence[str], *, title: str, name: str, warmup: int
    ) -> OverviewSection:
        """Of a log that is called ``name`` and has so many steps of ``warmup``."""
        from ibcb.version import __version__

        counts = np.concatenate(view.sizes)
        return cls(
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

    @property
    def judged(self) -> tuple[str, ...]:
        """The reasons of the verdict without those in ``exact``."""
        return tuple(reason for reason in self.verdict.reasons if reason not in self.exact)


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
        ("decider", kind.title),
        *((name, value) for name, value in own.items() if value),
        ("solver", SOLVERS[model.solver_].title),
        ("episodes", "one after the other" if model.incremental else "all at once"),
    )


@dataclass(frozen=True)
class EvolutionSection:
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

    lines: tuple[int, ...]
    evolution: Rows
    lower: Rows | None
    upper: Rows | None
    forecast: Rows
    forecast_today: tuple[float, ...]
    today_steps: int
    learns: bool

    @classmethod
    def evolved(
        cls, model: IBCB, view: Walking, order: list[int], peaks: Sequence[float], bounds: list[Interval] | None
    ) -> EvolutionSection:
        """``order``: the features shown; ``peaks``: how much each ever moved scores by; ``bounds``: of every policy."""
        policies, today = model.direction(model.policy_coefs_), model.direction(model.next_policy_coef_)
        lines = sorted(np.argsort(-np.asarray(peaks)[order], kind="stable")[:_MOST_LINES].tolist())
        columns, shown = [order[line] for line in lines], episodes_shown(len(policies))
        ahead, lately = np.stack(forecasts(model)), view.lately.log()

        def rows(values: Sequence[Any] | Matrix) -> Rows:
            return tuple(tuple(map(exact, row[columns])) for row in values)

        return cls(
            lines=tuple(lines),
            evolution=rows(policies[shown]),
            lower=None if bounds is None else rows([bounds[place].lower for place in shown]),
            upper=None if bounds is None else rows([bounds[place].upper for place in shown]),
            forecast=rows(ahead),
            forecast_today=tuple(map(exact, agreements(ahead, today, lately))),
            today_steps=lately.n_steps,
            learns=model.forecast_note_ is not None and model.forecast_note_.code == "learner-forecast",
        )

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


def episodes_shown(count: int) -> list[int]:
    """All episodes, or of many every k-th and the last."""
    return sorted({*range(0, count, -(-count // _MOST_EPISODES)), count - 1})


def forecasts(model: IBCB) -> list[Any]:
    """Directions of the policies after 1, 2, ... updates that follow the log; without a forecast of the first alone."""
    if model.forecast_model_ is None:
        return [model.direction(model.next_policy_coef_)]
    return [model.direction(model.forecast(updates=count)) for count in range(1, FORECAST + 1)]


@dataclass(frozen=True)
class PredictionSection:
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

    episodes: tuple[EpisodeFacts, ...]
    exploration: str
    compared: tuple[Compared, ...]
    counts: Counts

    @classmethod
    def predicted(cls, model: IBCB, view: Walking) -> PredictionSection:
        """With the share of today's choices that each of the policies would make."""
        shown, policies = episodes_shown(len(view.episodes)), model.direction(model.policy_coefs_)
        times = episode_times([view.episodes[place].time for place in shown])
        shares = agreements(policies[shown], model.direction(model.next_policy_coef_), view.lately.log())
        episodes = tuple(
            replace(view.episodes[place], time=time, today=exact(share))
            for place, time, share in zip(shown, times, shares, strict=True)
        )
        counts = Counts(*(view.counts[name] for name in Counts._fields))
        return cls(episodes, exploration(model, LEVEL), compared(model), counts)


@dataclass(frozen=True)
class Contradicting:
    """A step that a certificate names: ``chosen`` was taken there, and none of ``others``."""

    episode: int
    step: int
    chosen: int
    others: tuple[int, ...]


@dataclass(frozen=True)
class MisfitsSection:
    """Choices that do not fit, and steps that contradict each other."""

    misfits: Misfits
    contradictions: tuple[Contradicting, ...]

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


def contradictions(model: IBCB) -> tuple[Contradicting, ...]:
    """The steps that certificates name."""
    others: dict[tuple[int, int, int], set[int]] = {}
    for entry in model.diagnostics_:
        for row in entry.certificate or ():
            others.setdefault((row.episode, row.step, row.chosen), set()).add(row.other)
    return tuple(Contradicting(*place, tuple(sorted(those))) for place, those in sorted(others.items()))


@dataclass(frozen=True)
class ExplorerSection:
    """Single steps.

    Attributes
    ----------
    sample : tuple of SampledEpisode, or None
        None: the page was asked to show no steps.
    columns : tuple of str
        Names of the features, as the sample numbers them.
    """

    sample: tuple[SampledEpisode, ...] | None
    columns: tuple[str, ...]

    @property
    def sampled(self) -> set[tuple[int, int]]:
        """Episode and step of each."""
        return {(episode.number, step.step) for episode in self.sample or () for step in episode.steps}
