"""The adapter between model, log and page: everything that the page says, as plain data.

All that the report knows of estimators is in this module. Weights are scaled by `IBCB.direction`: choices tell their
direction well, but little of their length. Scores of single candidates, which have an exploration bonus beside them,
are in units of alpha for an upper-confidence decider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.estimators.ibcb import IBCB
from ibcb.inverse.solvers import SOLVERS
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.numerics.directions import direction
from ibcb.report.calibration import Calibration, calibration
from ibcb.report.kinds import Compared, compared, exploration
from ibcb.report.scores import Decider
from ibcb.report.shown_steps import SampledEpisode
from ibcb.report.verdict import Agreement, Verdict, judge
from ibcb.report.walk import LogWalk, Prediction, walk
from ibcb.tracking import Interval, Track

__all__ = [
    "Contradicting",
    "EpisodeFacts",
    "Facts",
    "Weight",
    "decider",
    "facts",
    "feature_names",
    "forecasts",
    "intervals",
    "prediction",
    "told",
    "verdict",
]

Vector = NDArray[np.float64]

#: updates after the log that the evolution goes on for
FORECAST = 5
#: probability of the intervals
LEVEL = 0.9
#: policies drawn from what is believed of the next one, and how many of them are in memory at once
_DRAWS, _AT_ONCE = 400, 20
#: a cautious bound leaves this share of the draws below it, at so many times the deviation believed: beliefs are too
#: sure of deciders that do not keep to the model's assumptions (benchmarks/verdicts.py, seeds below 1000)
_UNLIKELY, _DOUBT = 0.05, 2.0
_MOST_WEIGHTS = 200
_MOST_LINES = 40
_MOST_EPISODES = 400


@dataclass(frozen=True)
class Weight:
    """One feature: its weight in the last logged policy, with an interval, in the policy right after it, and in the
    rewards. ``told`` is False where the choices do not determine it; it has no interval then.
    """

    name: str
    last: float
    low: float | None
    high: float | None
    policy: float
    reward: float
    told: bool


@dataclass(frozen=True)
class EpisodeFacts:
    """One episode. Shares are of its steps; None where there is nothing to tell."""

    number: int
    steps: int
    status: str
    violated: int
    predicted: float | None
    rival: float | None
    chance: float | None
    explored: float | None
    agreed: float | None
    regret: float | None


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
    notes : tuple of str
        What a reader should know, of the fit and of this page.
    unit : str
        Of all weights.
    weights : tuple of Weight
        The largest of the last policy first.
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
    forecast : tuple of tuple of float
        The same after 1, 2, ... updates that follow the log.
    learns : bool
        Whether the forecast projects a learner; False where it is the last policy, or the one right after the log.
    n_episodes, n_steps, n_rows, warmup_steps, fewest, most : int
        Size of the log; ``fewest`` and ``most`` candidates at a step.
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
    notes: tuple[str, ...]
    unit: str
    weights: tuple[Weight, ...]
    level: float
    n_features: int
    lines: tuple[int, ...]
    episodes: tuple[EpisodeFacts, ...]
    evolution: tuple[tuple[float, ...], ...]
    forecast: tuple[tuple[float, ...], ...]
    learns: bool
    n_episodes: int
    n_steps: int
    n_rows: int
    warmup_steps: int
    fewest: int
    most: int
    contradictions: tuple[Contradicting, ...]
    sample: tuple[SampledEpisode, ...] | None
    columns: tuple[str, ...]
    calibration: Calibration | None
    fingerprint: str
    version: str


def facts(model: IBCB, log: BehaviorLog | DiskLog, *, steps: bool = True, title: str = "") -> Facts:
    """Everything that a page says of a model and the log it was fitted to; a log on disk is gone through once.

    Where it has logged propensities, once more for each that these are compared with.

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
    """
    _check(model, log)
    log_name = log.name if isinstance(log, DiskLog) else ""
    # Where nothing is believed of a policy, no choice has a probability.
    calibrated = None if model.forecast_model_ is None else calibration(model, log)
    model, log = _tracked(model, log)
    view = _walked(model, log, steps=steps)
    judged = _judged(model, view)
    names = feature_names(model)
    reward, policy = model.direction(model.coef_), model.direction(model.next_policy_coef_)
    bounds = intervals(model)
    policies = model.direction(model.policy_coefs_)
    last = policies[-1] if bounds is None else bounds.estimate
    order = [int(feature) for feature in np.argsort(-np.abs(last), kind="stable")[:_MOST_WEIGHTS]]
    known = told(model)
    claimed = known & judged.supported
    weights = tuple(
        Weight(
            name=names[feature],
            last=_exact(last[feature]),
            low=_exact(bounds.lower[feature]) if bounds is not None and claimed[feature] else None,
            high=_exact(bounds.upper[feature]) if bounds is not None and claimed[feature] else None,
            policy=_exact(policy[feature]),
            reward=_exact(reward[feature]),
            told=bool(known[feature]),
        )
        for feature in order
    )
    lines = _lines(policies, policy, order)
    columns = [order[line] for line in lines]
    shown = _episodes_shown(len(policies))
    return Facts(
        title=title or (f"What {log_name} gives away" if log_name else "What a log gives away"),
        log_name=log_name,
        kind=model.decider_,
        settings=_settings(model),
        exploration=exploration(model, LEVEL),
        compared=compared(model),
        verdict=judged,
        notes=(
            *_mismatch(model, view),
            *(_sentence(str(note)) for note in model.notes_),
            *_on_the_page(view, len(names), len(policies), len(lines)),
        ),
        unit="scaled so that the scores of a step spread by 1",
        weights=weights,
        level=LEVEL,
        n_features=len(names),
        lines=tuple(lines),
        episodes=tuple(
            EpisodeFacts(
                number=number,
                steps=model.diagnostics_[number].steps,
                status=model.diagnostics_[number].status,
                violated=model.diagnostics_[number].violated,
                predicted=view.tallies[number].predicted,
                rival=view.tallies[number].rival,
                chance=view.tallies[number].chance,
                explored=_known(view.tallies[number].thoughts.explored),
                agreed=view.tallies[number].agreed,
                regret=_known(view.tallies[number].thoughts.regret_share),
            )
            for number in shown
        ),
        evolution=tuple(tuple(_exact(x) for x in policies[number, columns]) for number in shown),
        forecast=tuple(tuple(_exact(x) for x in row[columns]) for row in forecasts(model)),
        learns=model.forecast_note_ is not None and model.forecast_note_.code == "learner-forecast",
        n_episodes=len(policies),
        n_steps=view.n_steps,
        n_rows=view.n_rows,
        warmup_steps=view.warmup_steps,
        fewest=view.fewest,
        most=view.most,
        contradictions=_contradictions(model),
        sample=tuple(view.sample) if steps else None,
        columns=names,
        calibration=calibrated,
        fingerprint=model.log_fingerprint_,
        version=_version(),
    )


def verdict(model: IBCB, log: BehaviorLog | DiskLog) -> Verdict:
    """How far to rely on a model; what `IBCB.verdict` gives."""
    _check(model, log)
    model, log = _tracked(model, log)
    return _judged(model, _walked(model, log, steps=False))


def _tracked(model: IBCB, log: BehaviorLog | DiskLog) -> tuple[IBCB, BehaviorLog | DiskLog]:
    """A model and its log in the features that were tracked."""
    reduction = model._reduction
    return (model, log) if reduction is None else (model.as_tracked(), reduction.reduced(log))


def _walked(model: IBCB, log: BehaviorLog | DiskLog, *, steps: bool) -> LogWalk:
    named = {(row.episode, row.step) for row in _contradictions(model)}
    view = walk(log, decider(model), prediction(model), contradicting=named, steps=steps)
    _same_size(model, view)
    return view


def _judged(model: IBCB, view: LogWalk) -> Verdict:
    return judge(model, view.late, None if view.late is None else _next_agreement(model, view.late.sample))


# -- what is asked of the model ------------------------------------------------------------------------------------


def intervals(model: IBCB) -> Interval | None:
    """Of the last logged policy's direction; None where the model has none, or has learned nothing."""
    if model.forecast_model_ is None or not model.coef_.any():
        return None
    return model.policy_interval(LEVEL, direction=True)


def forecasts(model: IBCB) -> list[Vector]:
    """Directions of the policies after 1, 2, ... updates that follow the log; without a forecast of the first alone."""
    if model.forecast_model_ is None:
        return [model.direction(model.next_policy_coef_)]
    return [model.direction(model.forecast(updates=count)) for count in range(1, FORECAST + 1)]


def told(model: IBCB) -> NDArray[np.bool_]:
    """Which features' weights the choices determine, shape (d,)."""
    names = model.feature_names_in_ or tuple(map(str, range(model.n_features_in_)))
    unidentified = set(model.unidentified_features_ or ())
    return np.array([name not in unidentified for name in names])


def decider(model: IBCB) -> Decider:
    """What a walk through the log needs of the model, in the units of the page."""
    worth = direction(model.next_policy_coef_)
    if model.decider_.adds_bonus:
        policies = model.policy_coefs_ / model.to_policy().alpha
        return Decider.of(model, policies, 1.0, worth)
    policies = direction(model.policy_coefs_)
    return Decider.of(model, policies, None, worth)


def prediction(model: IBCB) -> Prediction:
    """What `predict` uses, one episode ahead: the tracker's prediction, or Algorithm 2's where there is no tracker."""
    kind, track, evolution = model._fit.kind, model._fit.track, model._fit.evolution
    if track is None:
        known = tuple(entry.next_agreement is not None for entry in model.diagnostics_)
        return Prediction(kind, None, evolution.policies, known, evolution.metric)
    return Prediction(kind, track.ahead, track.policies, tuple(bool(policy.any()) for policy in track.ahead), None)


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
    beliefs, evidence = track.next_beliefs
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


def feature_names(model: IBCB) -> tuple[str, ...]:
    """Names of the features, made up where the log had none."""
    return model.feature_names_in_ or tuple(f"feature {column}" for column in range(model.n_features_in_))


def _settings(model: IBCB) -> tuple[tuple[str, str], ...]:
    kind = model.decider_
    own = {
        "l2": f"{model.l2_:g}" + (f" ({kind.units} features)" if kind.units != "own" else "") if kind.learns else "",
        "alpha": f"{model.to_policy().alpha:g}" if kind.adds_bonus else "",
        "epsilon": "" if model.epsilon_ is None else f"{model.epsilon_:.3f}",
        "temperature": "" if model.temperature_ is None else f"{model.temperature_:.3g}",
        "top_k": f"{kind.top_k}" if kind.draws_from_best else "",
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


# -- does the log belong to it? ------------------------------------------------------------------------------------


def _check(model: Any, log: Any) -> None:
    if not isinstance(model, IBCB):
        raise TypeError(
            f"a report shows how a policy evolved, which {type(model).__name__} does not recover; fit an IBCB model."
        )
    if not isinstance(log, (BehaviorLog, DiskLog)):
        raise TypeError(f"expected a BehaviorLog or what ibcb.open_log gave, got {type(log).__name__}.")
    if not hasattr(model, "policy_coefs_"):
        raise ValueError("the model is not fitted yet; call fit first.")
    model._check_features(log.n_features, log.feature_names)


def _same_size(model: IBCB, view: LogWalk) -> None:
    if len(view.tallies) != len(model.policy_coefs_):
        raise ValueError(
            f"the log has {len(view.tallies)} episodes but the model was fitted to {len(model.policy_coefs_)}; give "
            "the log that it was fitted to."
        )
    for tally, entry in zip(view.tallies, model.diagnostics_, strict=True):
        number, steps = tally.thoughts.episode, tally.thoughts.steps
        if steps != entry.steps:
            raise ValueError(
                f"episode {number} of the log has {steps} steps but that of the fitted log had "
                f"{entry.steps}; give the log that the model was fitted to."
            )


def _mismatch(model: IBCB, view: LogWalk) -> tuple[str, ...]:
    if view.fingerprint == model.log_fingerprint_:
        return ()
    return (
        f"This log is as large as the one that the model was fitted to, but not the same: its fingerprint is "
        f"{view.fingerprint}, that of the fitted log {model.log_fingerprint_}. What is said of steps may be wrong.",
    )


# -- what fits on a page -------------------------------------------------------------------------------------------


def _lines(policies: NDArray[np.float64], now: Vector, order: list[int]) -> list[int]:
    """Places in ``order`` of the features that ever weighed most."""
    peak = np.maximum(np.abs(policies).max(axis=0), np.abs(now))[order]
    return sorted(int(place) for place in np.argsort(-peak, kind="stable")[:_MOST_LINES])


def _episodes_shown(count: int) -> list[int]:
    """All episodes, or of many every k-th and the last."""
    every = -(-count // _MOST_EPISODES)
    return sorted({*range(0, count, every), count - 1})


def _on_the_page(view: LogWalk, n_features: int, n_episodes: int, lines: int) -> list[str]:
    found = []
    kept = sum(len(episode.steps) for episode in view.sample)
    if 0 < kept < view.n_steps:
        found.append(
            f"The explorer holds {kept:,} of {view.n_steps:,} steps: contradicting steps first, then steps that were "
            "not predicted or not explained, then others, drawn by a fixed rule. All other figures are of all steps."
        )
    if view.rival_sampled:
        found.append("The choice model of an episode learned from a sample of its steps, where they are many.")
    if n_features > _MOST_WEIGHTS:
        found.append(f"The {_MOST_WEIGHTS} largest of {n_features:,} weights are shown.")
    if n_features > lines:
        found.append(f"The evolution shows the {lines} features that ever weighed most.")
    shown = len(_episodes_shown(n_episodes))
    if shown < n_episodes:
        found.append(f"Charts and tables show {shown} of {n_episodes:,} episodes, evenly spaced.")
    return found


def _sentence(note: str) -> str:
    """A note with a capital, unless it begins with a name of the code."""
    return note if "_" in note.partition(" ")[0] else note[:1].upper() + note[1:]


def _known(share: float) -> float | None:
    return None if np.isnan(share) else share


def _exact(value: Any) -> float:
    """Nine digits: more than the page shows, fewer than rounding disturbs."""
    return float(f"{float(value):.9g}")
