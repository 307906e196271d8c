"""The adapter between model, log and page: everything that the page says, as plain data.

Weights are scaled by `IBCB.direction`: choices tell their direction well, but little of their length. Scores of single
candidates, which have an exploration bonus beside them, are in units of alpha for an upper-confidence decider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ibcb.engine import Episode, Subscriber, replay
from ibcb.estimators.ibcb import IBCB
from ibcb.log import Log, is_log
from ibcb.numerics.refusals import WrongTypeError
from ibcb.report.calibrating import Calibrating, Calibration, calibration
from ibcb.report.feature_weights import LEVEL, StepSpread, WeightsSection, feature_names, groups_of
from ibcb.report.judging import Judging, Rejudging
from ibcb.report.next_policy import agreement
from ibcb.report.ribbons import Ribbons, ribbons
from ibcb.report.sections import (
    EvolutionSection,
    ExplorerSection,
    MisfitsSection,
    OverviewSection,
    PredictionSection,
    contradictions,
    episodes_shown,
)
from ibcb.report.verdict import Verdict, judge, of_another_log
from ibcb.report.walking import Walking

_ANOTHER = (
    "This log is as large as the one that the model was fitted to, but not the same: its fingerprint is {}, that of "
    "the fitted log {}. What is said of steps may be wrong."
)


@dataclass(frozen=True)
class Facts(OverviewSection, WeightsSection, EvolutionSection, PredictionSection, MisfitsSection, ExplorerSection):
    """All that a page says: what each of its sections says, and ``calibration``, recovered propensities beside logged
    ones, where there are any.
    """

    calibration: Calibration | None

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
        fingerprint gives a note, and no verdict.
    steps : bool
        False: leave contexts, ids and times of steps out.
    title : str
        Of the page; by default made of the log's name.
    also : sequence of Subscriber
        Others that need the log: they go along.
    """
    _check(model, log)
    name, before = log.name, model._starts(log)
    if model._lens.reduces and also:
        # They are to see all features.
        replay([log], *also)
        also = ()
    model, log = model.as_tracked(), model._lens.log(log)
    names, named = feature_names(model), contradictions(model)
    groups = groups_of(names)
    spread = StepSpread(model.direction(model.policy_coefs_[-1]), groups)
    places = {(row.episode, row.step) for row in named}
    view = Walking(model, spread, LEVEL, contradicting=places, steps=steps)
    # Where nothing is believed of a policy, no choice has a probability.
    calibrating = None if model.forecast_model_ is None else Calibrating(model, before)
    going = _Going(Rejudging(model._fit, view), ribbons(model, before, LEVEL), calibrating)
    replay([log], going, *also, before=before)
    rejudging = going.rejudging
    calibrated = None if going.calibrating is None else going.calibrating.finish()
    if calibrated is None and model.forecast_model_ is not None and not rejudging.same:
        calibrated = calibration(model, log)
    judged = _judged(model, rejudging.judging) if rejudging.same else of_another_log()
    decides = spread.finish()
    weights, order = WeightsSection.valued(model, decides, groups, bounded=judged.supported)
    # Those that ever moved scores most.
    moved = np.abs([*model.direction(model.policy_coefs_), model.direction(model.next_policy_coef_)]).max(axis=0)
    # Of another log than the fitted one nothing can be retraced.
    bounds = going.ribbons.finish() if going.ribbons is not None and judged.supported and rejudging.same else None
    evolution = EvolutionSection.evolved(model, view, order, moved * decides.spreads, bounds)
    sample, misfits = view.sample, view.misfits.finish()
    notes = [] if rejudging.same else [_ANOTHER.format(rejudging.names[-1], model.log_fingerprint_)]
    notes += [_sentence(str(note)) for note in model.notes_]
    notes += _on_the_page(view, sum(len(each.steps) for each in sample), weights, len(evolution.lines))
    sections = (
        OverviewSection.overview(model, view, judged, notes, title=title, name=name, warmup=rejudging.warmup_steps),
        weights,
        evolution,
        PredictionSection.predicted(model, view),
        MisfitsSection(misfits if steps else misfits.without_names(), named),
        ExplorerSection(tuple(sample) if steps else None, names),
    )
    said: dict[str, Any] = {name: value for section in sections for name, value in vars(section).items()}
    return Facts(**said, calibration=calibrated)


class _Going(Subscriber):
    """All that a page needs, in their order; what is of the fitted log alone stops where another goes on otherwise."""

    def __init__(self, rejudging: Rejudging, bounds: Ribbons | None, calibrating: Calibrating | None) -> None:
        self.rejudging, self.ribbons, self.calibrating = rejudging, bounds, calibrating

    def step(self, episode: Episode) -> _Going:
        """One more episode."""
        self.rejudging.step(episode)
        if not self.rejudging.same:
            self.ribbons = self.calibrating = None
        self.ribbons = self.ribbons and self.ribbons.step(episode)
        self.calibrating = self.calibrating and self.calibrating.step(episode)
        return self

    def finish(self) -> None:
        """Raises where the log cannot be the fitted one."""
        self.rejudging.finish()


def verdict(model: IBCB, log: Log) -> Verdict:
    """How far to rely on a model; what `IBCB.verdict` gives. Another log than the fitted one raises ValueError."""
    _check(model, log)
    fitted, judging = getattr(model, "_judged", (None, None))
    tracked = model.as_tracked()
    if fitted is not log or not isinstance(judging, Judging):
        (rejudging,) = replay([model._lens.log(log)], Rejudging(model._fit), before=model._starts(log))
        rejudging.check()
        judging = rejudging.judging
    return _judged(tracked, judging)


def _judged(model: IBCB, judging: Judging) -> Verdict:
    late = judging.late()
    if late is None:
        return judge(model, None, judging.misfits)
    figures, sample = late
    believed = agreement(model, sample)
    if believed is not None:
        figures = replace(figures, agreement=believed[0], agreement_low=believed[1])
    return judge(model, figures, judging.misfits)


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


# -- what fits on a page -------------------------------------------------------------------------------------------


def _on_the_page(view: Walking, kept: int, weights: WeightsSection, lines: int) -> list[str]:
    """What is left out, in sentences."""
    steps, features, shown = sum(map(len, view.sizes)), weights.n_features, len(weights.weights)
    episodes = len(view.episodes)
    some = len(episodes_shown(episodes))
    told = {
        f"The explorer holds {kept:,} of {steps:,} steps: those that do not fit first, then those not predicted, then "
        "others, drawn by a fixed rule. All other figures are of all steps.": 0 < kept < steps,
        "The choice model of an episode learned from a sample of its steps, where they are many.": view.rival_sampled,
        f"{shown} of {features:,} weights are shown: those that decide most.": features > shown,
        f"The evolution shows the {lines} features that ever decided most.": features > lines,
        f"Charts and tables show {some} of {episodes:,} episodes, evenly spaced.": some < episodes,
    }
    return [sentence for sentence, applies in told.items() if applies]


def _sentence(note: str) -> str:
    """A note with a capital, unless it begins with a name of the code."""
    return note if "_" in note.partition(" ")[0] else note[:1].upper() + note[1:]
