"""The adapter between model, log and page: everything that the page says, as plain data.

Weights are scaled by `IBCB.direction`: choices tell their
direction well, but little of their length. Scores of single candidates, which have an exploration bonus beside them,
are in units of alpha for an upper-confidence decider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.engine import Episode, Subscriber, replay
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.published import unit_of
from ibcb.inverse.solvers import SOLVERS
from ibcb.log import BehaviorLog, Log, is_log
from ibcb.numerics.checks import WrongTypeError
from ibcb.numerics.metric import direction
from ibcb.report.calibration import Calibrating, Calibration, calibration
from ibcb.report.episode_facts import EpisodeFacts, episode_facts
from ibcb.report.evolution import Ribbon, Ribbons, agreements, today_begins
from ibcb.report.influence import StepSpread, groups_of, influences
from ibcb.report.judging import Judging, Rejudging
from ibcb.report.kinds import Compared, compared, exploration
from ibcb.report.misfits import Misfits
from ibcb.report.scores import Decider
from ibcb.report.shown_steps import SampledEpisode
from ibcb.report.verdict import Agreement, Verdict, judge, statements
from ibcb.report.walking import Counts, LogWalk, Walking
from ibcb.report.weight_facts import (
    LEVEL,
    Group,
    Weight,
    exact,
    feature_names,
    group_facts,
    intervals,
    last_policy,
    ranked,
    told,
    weight_facts,
)
from ibcb.tracking import Track, next_models

__all__ = [
    "Contradicting",
    "EpisodeFacts",
    "Facts",
    "Group",
    "Weight",
    "decider",
    "facts",
    "feature_names",
    "forecasts",
    "intervals",
    "told",
    "verdict",
]

Vector = NDArray[np.float64]

#: updates after the log that the evolution goes on for
FORECAST = 5
#: policies drawn from what is believed of the next one, and how many of them are in memory at once
_DRAWS, _AT_ONCE = 400, 20
#: a cautious bound leaves this share of the draws below it, at so many times the deviation believed: beliefs are too
#: sure of deciders that do not keep to the model's assumptions (benchmarks/verdicts.py, seeds below 1000)
_UNLIKELY, _DOUBT = 0.05, 2.0
_MOST_WEIGHTS = 200
_MOST_LINES = 40
_MOST_EPISODES = 400


@dataclass(frozen=True)
class Contradicting:
    """A step that a certificate names: ``chosen`` was taken there, and none of ``others``."""

    episode: int
    step: int
    chosen: int
    others: tuple[int, ...]


@dataclass(frozen=True)
class Facts:
    """All that a page says.

    Attributes
    ----------
    title, log_name : str
        ``log_name`` is empty for a log in memory.
    kind : Kind
        Of the decider.
    settings : tuple of (name, value)
        What was fitted, in words.
    exploration : str
        How much the decider explores, in a sentence; empty where that is not known.
    compared : tuple of Compared
        The kinds of decider that the log chose from.
    verdict : Verdict
    exact : tuple of str
        Whether the choices have an exact explanation; sentences that the verdict has among its reasons.
    notes : tuple of str
        What a reader should know, of the fit and of this page.
    unit : str
        Of all weights.
    weights : tuple of Weight
        Those that decide most first; the features of a group stand together.
    groups : tuple of Group
    level : float
        Probability of their intervals.
    n_features : int
        Of the model; ``weights`` may have fewer.
    lines : tuple of int
        Places in ``weights`` of the features whose evolution is shown.
    episodes : tuple of EpisodeFacts
        Of the episodes shown; see ``n_episodes``.
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
    n_episodes, n_steps, n_rows, warmup_steps, fewest, most : int
        Size of the log; ``fewest`` and ``most`` candidates at a step.
    counts : Counts
        Of the whole log.
    misfits : Misfits
        Choices that do not fit.
    contradictions : tuple of Contradicting
    sample : tuple of SampledEpisode, or None
        None: the page was asked to show no steps.
    columns : tuple of str
        Names of the features, as the sample numbers them.
    calibration : Calibration or None
        Recovered propensities beside logged ones, where there are any.
    fingerprint : str
    version : str
        Of the library.
    """

    title: str
    log_name: str
    kind: Kind
    settings: tuple[tuple[str, str], ...]
    exploration: str
    compared: tuple[Compared, ...]
    verdict: Verdict
    exact: tuple[str, ...]
    notes: tuple[str, ...]
    unit: str
    weights: tuple[Weight, ...]
    groups: tuple[Group, ...]
    level: float
    n_features: int
    lines: tuple[int, ...]
    episodes: tuple[EpisodeFacts, ...]
    evolution: tuple[tuple[float, ...], ...]
    lower: tuple[tuple[float, ...], ...] | None
    upper: tuple[tuple[float, ...], ...] | None
    forecast: tuple[tuple[float, ...], ...]
    forecast_today: tuple[float, ...]
    today_steps: int
    learns: bool
    n_episodes: int
    n_steps: int
    n_rows: int
    warmup_steps: int
    fewest: int
    most: int
    counts: Counts
    misfits: Misfits
    contradictions: tuple[Contradicting, ...]
    sample: tuple[SampledEpisode, ...] | None
    columns: tuple[str, ...]
    calibration: Calibration | None
    fingerprint: str
    version: str

    @property
    def judged(self) -> tuple[str, ...]:
        """The reasons of the verdict without those in ``exact``."""
        return tuple(reason for reason in self.verdict.reasons if reason not in self.exact)

    def determined(self, weight: Weight) -> bool:
        """Whether the choices determine a weight, alone or against the others of its group."""
        return weight.told or any(group.told and group.name == weight.group for group in self.groups)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; the kind of the decider by name, title and label."""
        kind = {"name": self.kind.name, "title": self.kind.title, "label": self.kind.label}
        # Kinds hold arrays, which asdict would copy and JSON does not know.
        return {**asdict(replace(self, kind=None)), "kind": kind, "verdict": self.verdict.to_json()}  # type: ignore[arg-type]


def facts(model: IBCB, log: Log, *, steps: bool = True, title: str = "", also: Sequence[Subscriber] = ()) -> Facts:
    """Everything that a page says of a model and the log it was fitted to, which is gone through once, part by part.

    Parameters
    ----------
    model : IBCB
        Fitted.
    log : BehaviorLog, or what `ibcb.open_log` gave
        The log that the model was fitted to. One that cannot be it raises ValueError; one that differs only in its
        fingerprint gives a note.
    steps : bool
        False: leave contexts, ids and times of steps out.
    title : str
        Of the page; by default made of the log's name.
    also : sequence of Subscriber
        Others that need the log: they go along.
    """
    _check(model, log)
    log_name, before = log.name, model._starts(log)
    if model._lens.reduces and also:
        # They are to see all features.
        replay([log], *also)
        also = ()
    model, log = model.as_tracked(), model._lens.log(log)
    names = feature_names(model)
    groups = groups_of(names)
    policies, last = model.direction(model.policy_coefs_), last_policy(model)
    rejudging = Rejudging(model._fit)
    going = _Going(
        rejudging,
        _walking(model, rejudging, StepSpread(last, groups), steps=steps),
        Ribbons.of(model, before, LEVEL),
        # Where nothing is believed of a policy, no choice has a probability.
        None if model.forecast_model_ is None else Calibrating(model, before),
    )
    seen, *_ = replay([log], going, *also, before=before)
    view, bounds, calibrated = seen
    if calibrated is None and model.forecast_model_ is not None and not rejudging.same:
        calibrated = calibration(model, log)
    judged = _judged(model, rejudging.judging)
    decides = influences(last, view.spreads, groups)
    order = ranked(decides, groups, last)[:_MOST_WEIGHTS]
    today = model.direction(model.next_policy_coef_)
    # Those that ever moved scores most.
    peak = (np.abs([*policies, today]).max(axis=0) * view.spreads.features)[order]
    lines = sorted(int(place) for place in np.argsort(-peak, kind="stable")[:_MOST_LINES])
    columns = [order[line] for line in lines]
    shown = _episodes_shown(len(policies))
    # Of another log than the fitted one nothing can be retraced.
    band = bounds if judged.supported and rejudging.same else None
    ahead = forecasts(model)
    return Facts(
        title=title or (f"What {log_name} gives away" if log_name else "What a log gives away"),
        log_name=log_name,
        kind=model.decider_,
        settings=_settings(model),
        exploration=exploration(model, LEVEL),
        compared=compared(model),
        verdict=judged,
        exact=tuple(statements(model)),
        notes=(
            *_mismatch(model, rejudging),
            *(_sentence(str(note)) for note in model.notes_),
            *_on_the_page(view, len(names), len(policies), len(lines)),
        ),
        unit="scaled so that the scores of a step spread by 1",
        weights=weight_facts(
            model, order, decides, view.spreads, groups, intervals(model) if judged.supported else None
        ),
        groups=group_facts(model, groups, decides),
        level=LEVEL,
        n_features=len(names),
        lines=tuple(lines),
        episodes=episode_facts(model, view, shown, agreements(policies[shown], today, view.today)),
        evolution=tuple(tuple(exact(x) for x in policies[number, columns]) for number in shown),
        lower=None if band is None else _side([each.lower for each in band], shown, columns),
        upper=None if band is None else _side([each.upper for each in band], shown, columns),
        forecast=tuple(tuple(exact(x) for x in row[columns]) for row in ahead),
        forecast_today=tuple(exact(x) for x in agreements(np.stack(ahead), today, view.today)),
        today_steps=view.today.n_steps,
        learns=model.forecast_note_ is not None and model.forecast_note_.code == "learner-forecast",
        n_episodes=len(policies),
        n_steps=view.n_steps,
        n_rows=view.n_rows,
        warmup_steps=view.warmup_steps,
        fewest=view.fewest,
        most=view.most,
        counts=Counts(*(sum(each) for each in zip(*(tally.counts for tally in view.tallies), strict=True))),
        misfits=view.misfits if steps else _bare(view.misfits),
        contradictions=_contradictions(model),
        sample=tuple(view.sample) if steps else None,
        columns=names,
        calibration=calibrated,
        fingerprint=model.log_fingerprint_,
        version=_version(),
    )


class _Going(Subscriber):
    """All that a page needs, in their order; what is of the fitted log alone stops where another goes on otherwise."""

    def __init__(
        self, rejudging: Rejudging, walking: Walking, ribbons: Any | None, calibrating: Calibrating | None
    ) -> None:
        self._rejudging, self._walking, self._ribbons, self._calibrating = rejudging, walking, ribbons, calibrating

    def step(self, episode: Episode) -> _Going:
        """One more episode."""
        self._rejudging.step(episode)
        self._walking.step(episode)
        if not self._rejudging.same:
            self._ribbons = self._calibrating = None
        self._ribbons = self._ribbons and self._ribbons.step(episode)
        self._calibrating = self._calibrating and self._calibrating.step(episode)
        return self

    def finish(self) -> tuple[LogWalk, list[Ribbon] | None, Calibration | None]:
        """What they found."""
        self._rejudging.finish()
        bounds = None if self._ribbons is None else self._ribbons.finish()
        return self._walking.finish(), bounds, None if self._calibrating is None else self._calibrating.finish()


def verdict(model: IBCB, log: Log) -> Verdict:
    """How far to rely on a model; what `IBCB.verdict` gives."""
    _check(model, log)
    fitted, judging = getattr(model, "_judged", (None, None))
    tracked = model.as_tracked()
    if fitted is not log or not isinstance(judging, Judging):
        (found,) = replay([model._lens.log(log)], Rejudging(model._fit), before=model._starts(log))
        judging = found.judging
    return _judged(tracked, judging)


def _walking(model: IBCB, rejudging: Rejudging, spread: StepSpread, *, steps: bool) -> Walking:
    named, kind = {(row.episode, row.step) for row in _contradictions(model)}, model.decider_
    today = today_begins([entry.steps for entry in model.diagnostics_])
    alpha = float(model._fitted_with["alpha"])
    unit = unit_of(model._fit, alpha) / model.to_policy().alpha if kind.per_unit is not None else None
    return Walking(decider(model), rejudging, unit, spread, today=today, contradicting=named, steps=steps)


def _judged(model: IBCB, judging: Judging) -> Verdict:
    late = judging.late()
    agreement = None if late is None else _next_agreement(model, late.sample)
    return judge(model, late, agreement, judging.misfits)


# -- what is asked of the model ------------------------------------------------------------------------------------


def forecasts(model: IBCB) -> list[Vector]:
    """Directions of the policies after 1, 2, ... updates that follow the log; without a forecast of the first alone."""
    if model.forecast_model_ is None:
        return [model.direction(model.next_policy_coef_)]
    return [model.direction(model.forecast(updates=count)) for count in range(1, FORECAST + 1)]


def decider(model: IBCB) -> Decider:
    """What a walk through the log needs of the model, in the units of the page."""
    worth = direction(model.next_policy_coef_)
    if model.decider_.per_unit is not None:
        policies = model.policy_coefs_ / model.to_policy().alpha
        return Decider.of(model, policies, 1.0, worth)
    policies = direction(model.policy_coefs_)
    return Decider.of(model, policies, None, worth)


def _next_agreement(model: IBCB, sample: BehaviorLog) -> Agreement | None:
    """How often `predict` picks what the decider's next policy prefers, by what is believed of that policy.

    The share of steps is a random quantity, because the policy is; its mean is that of `IBCB.certainty`.
    """
    track = model._fit.track
    if track is None or not model.next_policy_coef_.any():
        return None
    expected = float(_agreements(model, sample, _drawn(track, 1.0)).mean())
    return Agreement(expected, float(np.quantile(_agreements(model, sample, _drawn(track, _DOUBT)), _UNLIKELY)))


def _drawn(track: Track, doubt: float) -> NDArray[np.float64]:
    """Next policies from what all models of the family believed say, as far as each is supported; shape (draws, d).

    ``doubt``: times the deviation that each of them believes.
    """
    beliefs, evidence = next_models(track)
    support = np.exp(evidence - evidence.max())
    counts = np.round(_DRAWS * support / support.sum()).astype(int)
    rng, drawn = np.random.default_rng(0), []
    for mean, covariance, count in zip(beliefs.mean, beliefs.covariance, counts.tolist(), strict=True):
        # Features brought to one scale, so that their units do not matter.
        unit = np.sqrt(covariance.diagonal())
        unit[unit == 0] = 1.0
        values, V = np.linalg.eigh(covariance / unit / unit[:, None])
        z = rng.standard_normal((count, len(mean))) * np.sqrt(np.maximum(values, 0.0))
        drawn.append(mean + doubt * unit * (z @ V.T))
    return np.concatenate(drawn)


def _agreements(model: IBCB, sample: BehaviorLog, drawn: NDArray[np.float64]) -> Vector:
    """The share of steps at which each of some policies likes none better than what `predict` picks."""
    starts = sample.step_offsets[:-1]
    picked, shares = starts + model.predict(sample), []
    for policies in np.array_split(drawn, -(-len(drawn) // _AT_ONCE)):
        scores = sample.contexts @ policies.T
        shares.append((scores[picked] >= np.maximum.reduceat(scores, starts)).mean(axis=0))
    return np.concatenate(shares)


def _contradictions(model: IBCB) -> tuple[Contradicting, ...]:
    others: dict[tuple[int, int, int], set[int]] = {}
    for entry in model.diagnostics_:
        for row in entry.certificate or ():
            others.setdefault((row.episode, row.step, row.chosen), set()).add(row.other)
    return tuple(Contradicting(*place, tuple(sorted(found))) for place, found in sorted(others.items()))


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


def _version() -> str:
    from ibcb.version import __version__

    return __version__


def _side(bounds: list[Vector], shown: list[int], columns: list[int]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(exact(x) for x in bounds[number][columns]) for number in shown)


def _bare(misfits: Misfits) -> Misfits:
    """Without ids and times of steps."""
    return misfits._replace(listed=tuple(each._replace(id=None, time=None) for each in misfits.listed))


# -- does the log belong to it? ------------------------------------------------------------------------------------


def _check(model: Any, log: Any) -> None:
    if not isinstance(model, IBCB):
        raise WrongTypeError(
            f"a report shows how a policy evolved, which {type(model).__name__} does not recover; fit an IBCB model."
        )
    if not is_log(log):
        raise WrongTypeError(f"expected a BehaviorLog or what ibcb.open_log gave, got {type(log).__name__}.")
    if not hasattr(model, "policy_coefs_"):
        raise ValueError("the model is not fitted yet; call fit first.")
    model._check_features(log.n_features, log.feature_names)


def _mismatch(model: IBCB, rejudging: Rejudging) -> tuple[str, ...]:
    if rejudging.same:
        return ()
    return (
        f"This log is as large as the one that the model was fitted to, but not the same: its fingerprint is "
        f"{rejudging.names[-1]}, that of the fitted log {model.log_fingerprint_}. What is said of steps may be wrong.",
    )


# -- what fits on a page -------------------------------------------------------------------------------------------


def _episodes_shown(count: int) -> list[int]:
    """All episodes, or of many every k-th and the last."""
    every = -(-count // _MOST_EPISODES)
    return sorted({*range(0, count, every), count - 1})


def _on_the_page(view: LogWalk, n_features: int, n_episodes: int, lines: int) -> list[str]:
    found = []
    kept = sum(len(episode.steps) for episode in view.sample)
    if 0 < kept < view.n_steps:
        found.append(
            f"The explorer holds {kept:,} of {view.n_steps:,} steps: those that do not fit first, then those not "
            "predicted, then others, drawn by a fixed rule. All other figures are of all steps."
        )
    if view.rival_sampled:
        found.append("The choice model of an episode learned from a sample of its steps, where they are many.")
    if n_features > _MOST_WEIGHTS:
        found.append(f"{_MOST_WEIGHTS} of {n_features:,} weights are shown: those that decide most.")
    if n_features > lines:
        found.append(f"The evolution shows the {lines} features that ever decided most.")
    shown = len(_episodes_shown(n_episodes))
    if shown < n_episodes:
        found.append(f"Charts and tables show {shown} of {n_episodes:,} episodes, evenly spaced.")
    return found


def _sentence(note: str) -> str:
    """A note with a capital, unless it begins with a name of the code."""
    return note if "_" in note.partition(" ")[0] else note[:1].upper() + note[1:]
