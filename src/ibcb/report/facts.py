"""The adapter between model, log and page: everything that the page says, as plain data.

Weights are scaled by `IBCB.direction`: choices tell their direction well, but little of their length. Scores of single
candidates, which have an exploration bonus beside them, are in units of alpha for an upper-confidence decider.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ibcb.engine import Episode, Subscriber, replay
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.imitator import check_log
from ibcb.log import Log
from ibcb.log.validation import Validation, validated
from ibcb.log.validation.scan import Scan
from ibcb.numerics.printable import WrongTypeError
from ibcb.report import sections
from ibcb.report.calibrating import Calibrating, calibration
from ibcb.report.feature_weights import StepSpread, WeightsSection, feature_names, groups_of, valued
from ibcb.report.judging import Judging, Rejudging
from ibcb.report.shown_steps import within_budget
from ibcb.report.verdict import Verdict, of_another_log
from ibcb.report.walking import Ribbons, Walking
from ibcb.report.writing import said


class Facts(
    sections.OverviewSection,
    WeightsSection,
    sections.EvolutionSection,
    sections.PredictionSection,
    sections.MisfitsSection,
    sections.ExplorerSection,
):
    """All that a page says: what each of its sections says, and ``calibration``, recovered propensities beside logged
    ones, where there are any.
    """

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; the kind of the decider by name, title and label."""
        kind = {"name": self.kind.name, "title": self.kind.title, "label": self.kind.label}
        plain = {**vars(self), "kind": kind, "verdict": self.verdict.to_json()}
        told: dict[str, Any] = json.loads(json.dumps(plain, default=vars))
        return told


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
    names, named, track = feature_names(model), sections.contradictions(model), model._fit.track
    groups = groups_of(names)
    spread = StepSpread(model.direction(model.policy_coefs_[-1]), groups)
    view = Walking(model, spread, contradicting={(row.episode, row.step) for row in named}, steps=steps)
    bounded, recovers = track is not None and bool(model.coef_.any()), model.forecast_model_ is not None
    along: list[Subscriber] = [Ribbons(model, before)] if bounded else []
    # Where nothing is believed of a policy, no choice has a probability.
    along += [Calibrating(model, before)] if recovers else []
    (rejudging, *_) = replay([log], Rejudging(model._fit, view, *along), *also, before=before)
    gathered = [each.finish() for each in rejudging.along]
    calibrated = gathered[-1] if gathered and recovers else None
    if recovers and not rejudging.same:
        calibrated = calibration(model, log)
    judged = view.verdict(model) if rejudging.same else of_another_log()
    decides = spread.finish()
    weights, order = valued(model, decides, groups, bounded=judged.supported)
    # Those that ever moved scores most.
    moved = np.abs([*model.direction(model.policy_coefs_), model.direction(model.next_policy_coef_)]).max(axis=0)
    # Of another log than the fitted one nothing can be retraced.
    bounds = gathered[0] if gathered and bounded and judged.supported else None
    evolution = sections.evolved(model, view, order, moved * decides.spreads, bounds)
    sample, misfits = within_budget(view.sample), view.listed.finish()
    names_of_logs = {"name": rejudging.names[-1], "fitted": model.log_fingerprint_}
    notes = [] if rejudging.same else [said("page-of-another-log", **names_of_logs)]
    notes += [_sentence(str(note)) for note in model.notes_]
    notes += _on_the_page(view, sum(len(each.steps) for each in sample), weights, len(evolution.lines))
    tables = (
        sections.overview(model, view, judged, notes, title=title, name=name, warmup=rejudging.warmup_steps),
        weights,
        evolution,
        sections.predicted(model, view),
        sections.MisfitsSection(misfits=misfits if steps else misfits.without_names(), contradictions=named),
        sections.ExplorerSection(sample=tuple(sample) if steps else None, columns=names),
    )
    every = {name: value for table in tables for name, value in vars(table).items()}
    return Facts(**every, calibration=calibrated)


class Validating(Subscriber):
    """The scan of `ibcb.validate` while a log goes by: neither a fit nor a page need go through it for that."""

    def __init__(self) -> None:
        self._scan = Scan()
        self._said: Validation | None = None

    def step(self, episode: Episode) -> Validating:
        """One more episode."""
        for part in episode.rows.parts():
            self._scan.add(episode.number, part)
        return self

    def finish(self) -> Validating:
        """Itself."""
        return self

    def of(self, log: Log) -> Validation:
        """What `ibcb.validate` says of the log, which is read again only if its episodes look wrong."""
        if self._said is None:
            self._said = validated(self._scan.finish(), log)
        return self._said


def verdict(model: IBCB, log: Log) -> Verdict:
    """How far to rely on a model; what `IBCB.verdict` gives. Another log than the fitted one raises ValueError."""
    _check(model, log)
    fitted, judging = getattr(model, "_judged", (None, None))
    if fitted is not log or not isinstance(judging, Judging):
        judging = Judging()
        (rejudging,) = replay([model._lens.log(log)], Rejudging(model._fit, judging), before=model._starts(log))
        rejudging.check()
    return judging.verdict(model.as_tracked())


# -- does the log belong to it? ------------------------------------------------------------------------------------


def _check(model: Any, log: Any) -> None:
    if not isinstance(model, IBCB):
        raise WrongTypeError(
            f"a report shows how a policy evolved, which {type(model).__name__} does not recover; fit an IBCB model."
        )
    check_log(log, on_disk=True)
    check_is_fitted(model, "policy_coefs_")
    model._check_features(log.n_features, log.feature_names)


# -- what fits on a page -------------------------------------------------------------------------------------------


def _on_the_page(view: Walking, kept: int, weights: WeightsSection, lines: int) -> list[str]:
    """What is left out, in sentences."""
    steps, features, shown = sum(map(len, view.sizes)), weights.n_features, len(weights.weights)
    episodes = len(view.episodes)
    some = len(sections.episodes_shown(episodes))
    left_out = {
        "explorer": 0 < kept < steps,
        "rival-sampled": view.rival_sampled,
        "weights": features > shown,
        "lines": features > lines,
        "episodes": some < episodes,
    }
    figures = {"kept": kept, "steps": steps, "weights": shown, "features": features, "lines": lines, "some": some}
    return [said(code, episodes=episodes, **figures) for code, applies in left_out.items() if applies]


def _sentence(note: str) -> str:
    """A note with a capital, unless it begins with a name of the code."""
    return note if "_" in note.partition(" ")[0] else note[:1].upper() + note[1:]
