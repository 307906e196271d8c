"""What a fitted model says of itself, made from one `Fit`: every attribute and forecast comes from here.

There is one estimate. Where the policy was tracked, all weights are those of the track: policies as they were believed
once each episode was seen, rewards that explain these policies together. Where it was not, they are Algorithm 2's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ibcb import tracking
from ibcb.engine import Episode, History, Subscriber, replay
from ibcb.estimators.fitting import Fit
from ibcb.estimators.remarks import NOTHING_LEARNED, few_steps, how_it_moves, policy_is_coef, undetermined
from ibcb.log import Log
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.tracking import Futures, Rewards, Track
from ibcb.tracking.choice_probabilities import Ahead, InForce, Next
from ibcb.tracking.posterior import motions

#: attributes that every model has, and only some rules have a value for
_OF_SOME_RULES = ("epsilon_", "temperature_", "top_k_", "draws_")


@np.errstate(over="ignore", invalid="ignore")  # weights that are not finite are refused
def published(fit: Fit, alpha: float, names: tuple[str, ...] | None) -> dict[str, Any]:
    """The fitted attributes by name."""
    evolution, kind, track = fit.evolution, fit.kind, fit.track
    unit = unit_of(fit, alpha)
    notes = (*fit.solving, *fit.choosing, *fit.tracking)
    moves, unknown = None, None
    if track is None:
        coef, intercept = unit * evolution.theta, 0.0
        policies, reached = unit * evolution.policies, unit * (fit.ridge.shrinkage @ evolution.theta)
    else:
        # While a log is fitted in steps, a track that chose the kind is ahead of Algorithm 2.
        seen = tracking.logged_policies(track)[: len(evolution.policies)]
        policies, reached = unit * tracking.identified(track, seen), policy_ahead(fit, track, alpha, 1)
        earned = rewards(track)
        coef, intercept = (reached, 0.0) if earned is None else (unit * earned.theta, unit * earned.c)
        features = tracking.unidentified(track).tolist()
        unknown = tuple(str(feature) if names is None else names[feature] for feature in features)
        moves = how_it_moves(track) if kind.learns else None
    for name, weights in (("coef_", coef), ("policy_coefs_", policies), ("next_policy_coef_", reached)):
        if not np.isfinite(weights).all():
            raise ValueError(
                f"{name} leaves the range of floating point, with alpha={alpha:g}, which scales weights, and "
                f"l2={kind.l2:g} in {kind.units} units. Give numbers nearer to 1, or to the squares of the features."
            )
    if not coef.any():
        notes += (NOTHING_LEARNED,)
    elif track is not None:
        notes += () if kind.learns else (policy_is_coef(kind),)
        notes += (moves,) if moves is not None and not tracking.projects(track) else ()
        notes += undetermined(unknown or ())
        notes += few_steps(sum(entry.steps for entry in evolution.diagnostics), len(coef))
    return {
        "coef_": coef,
        "intercept_": intercept,
        "policy_coefs_": policies,
        "next_policy_coef_": reached,
        "expert_": fit.told.name,
        "rules_": fit.told.rules,
        "motions_": fit.told.motions or (motions([track]) if track is not None and track.now is not None else ()),
        "l2_": kind.l2,
        "units_": kind.units,
        **dict.fromkeys(_OF_SOME_RULES),
        **{f"{name}_": value for name, value in _told(fit).items()},
        "evidence_": fit.evidence,
        "diagnostics_": list(evolution.diagnostics),
        "solver_": fit.solver,
        "log_fingerprint_": evolution.history.fingerprint,
        "forecast_model_": None if track is None else track.model,
        "forecast_note_": moves,
        "unidentified_features_": unknown,
        "notes_": notes,
    }


def _told(fit: Fit) -> dict[str, Any]:
    """The parameters of the decider's rule, as far as they are told, right after the log."""
    told = {each.name: each.estimate.setting(fit.kind.settings) for each in fit.kind.parameters}
    if fit.track is not None:
        for name, bounds in tracking.parameter_intervals(fit.track, 0.5).items():
            told[name] = told[name] if bounds is None else float(bounds.estimate[-1])
    return {name: value for name, value in told.items() if value is not None}


def added_weights(fit: Fit, alpha: float) -> Vector:
    """The weights of the columns that the decider's rule adds, in the unit of its published policies. Shape (k,)."""
    kind, track = fit.kind, fit.track
    if track is None or track.now is None:
        return np.zeros(len(kind.added))
    # As those of the decider's own columns, of which those of a sample are shorter or longer.
    return track.next_added * unit_of(fit, alpha) / math.sqrt(kind.rate)


def unit_of(fit: Fit, alpha: float) -> float:
    """What weights per unit of the decider's own exploration have to be multiplied with."""
    # Of a log that is a sample: widths that are counted in its choices are longer than the decider's.
    own = alpha * math.sqrt(fit.kind.rate)
    if fit.track is None:
        return 1.0 if fit.kind.per_unit is None else own
    return own if fit.kind.learns else fit.scale


def exploration_weight(fit: Fit, alpha: float) -> float:
    """What policies are per unit of, in the unit of the published ones: alpha, or of a softmax its temperature."""
    if not fit.kind.learns:
        return 1.0
    # A weight of widths, or of draws, is that of the decider's own, which a sample makes longer.
    weighs_widths = any(each.estimate.is_unit for each in fit.kind.parameters)
    return alpha if weighs_widths or fit.track is None else unit_of(fit, alpha)


def policy_ahead(fit: Fit, track: Track, alpha: float, updates: int) -> Vector:
    """The policy some updates after the last episode's, at the scale of ``policy_coefs_``."""
    return unit_of(fit, alpha) * tracking.identified(track, tracking.forecast(track, updates))


def rewards(track: Track) -> Rewards | None:
    """Per unit of alpha, without what no choice tells; None where it is not known how the decider learns."""
    earned = tracking.rewards(track)
    if earned is None:
        return None
    theta, to_zero = tracking.identified(track, earned.theta), _to_zero(track)
    *_, c = to_zero @ np.append(theta, earned.c)
    return Rewards(theta, float(c), to_zero @ earned.covariance @ to_zero.T)


def _to_zero(track: Track) -> Matrix:
    """What makes <theta, s> + c of <theta, s - origin> + c. Shape (d + 1, d + 1)."""
    matrix, origin = np.eye(track.d + 1), track.kind.regularization.origin
    if origin is not None:
        matrix[-1, :-1] = -origin
    return matrix


def sampled(fit: Fit, rolled: Futures, alpha: float) -> Futures:
    """Draws of futures at the scale of ``policy_coefs_`` and of ``coef_``, without what no choice tells."""
    track, unit = fit.track, unit_of(fit, alpha)
    assert track is not None
    earned = np.column_stack([tracking.identified(track, rolled.rewards[:, :-1]), rolled.rewards[:, -1]])
    return Futures(
        unit * tracking.identified(track, rolled.policies), unit * earned @ _to_zero(track).T, rolled.motions
    )


# -- propensities of a log, in one pass, whether it is the fitted log or another -------------------------------------


class NotTheFittedLogError(Exception):
    """That a log goes on, or ends, otherwise than the fitted one."""


@dataclass(frozen=True)
class Recovering(Subscriber):
    """A subscriber that takes the log for the fitted one as long as it is.

    Attributes
    ----------
    fit : Fit
    going : Subscriber
        Of `ibcb.tracking.choice_probabilities`.
    fitted : bool
        Whether the episodes so far are those of the fitted log.
    """

    fit: Fit
    going: Any
    fitted: bool = True

    @classmethod
    def of(cls, fit: Fit, before: History, *, ahead: bool) -> Recovering:
        """Before the first episode."""
        track = fit.track
        assert track is not None
        return cls(fit, Ahead.of(track, before) if ahead else InForce.of(track, fit.scale, before))

    @property
    def values(self) -> tuple[Vector, ...]:
        """One array for every stored episode so far."""
        values: tuple[Vector, ...] = self.going.values
        return values

    def step(self, episode: Episode) -> Recovering:
        """One more episode; raises where a log that began as the fitted one goes on otherwise."""
        names, place, going, fitted = self.fit.evolution.names, episode.before.stored, self.going, self.fitted
        is_same = place < len(names) and names[place] == episode.after.fingerprint
        if fitted and not is_same:
            if place:
                raise NotTheFittedLogError
            assert self.fit.track is not None
            going, fitted = Next(self.fit.track, self.fit.scale), False
        return Recovering(self.fit, going.step(episode), fitted)

    def finish(self) -> Vector:
        """Of all rows; raises where the log ends before the fitted one does."""
        values: Vector = self.going.finish()
        if self.fitted and len(self.going.values) != len(self.fit.evolution.names):
            raise NotTheFittedLogError
        return values


def recovered(fit: Fit, log: Log, before: History, *, ahead: bool) -> Vector:
    """Propensities of a log: of the fitted one each episode's by the policy in force, or ``ahead`` as it was predicted;
    of any other by the policy right after the fitted one.

    Parameters
    ----------
    fit : Fit
        With a track.
    log : Log
    before : History
        Where the fitted log begins.
    """
    assert fit.track is not None
    values: Vector
    try:
        (values,) = replay([log], Recovering.of(fit, before, ahead=ahead), before=before)
    except NotTheFittedLogError:
        (values,) = replay([log], Next(fit.track, fit.scale))
    return values
