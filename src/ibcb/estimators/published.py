"""What a fitted model says of itself, made from one `Fit`: every attribute and forecast comes from here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.estimators.fitting import Fit
from ibcb.estimators.remarks import NOTHING_LEARNED, how_it_moves, outdone, undetermined
from ibcb.log.notes import Note
from ibcb.tracking import Track, forecast, unidentified

__all__ = ["at_scale", "outdone_by_coef", "policy_ahead", "published"]

#: a share of choices by which ``coef_`` must predict more than the forecast, to be believed instead; judged
#: by benchmarks/dirty.py
_CLEARLY_MORE = 0.01


def published(fit: Fit, alpha: float, names: tuple[str, ...] | None) -> dict[str, Any]:
    """The fitted attributes by name."""
    evolution, kind, track = fit.evolution, fit.kind, fit.track
    scale = alpha if kind.adds_bonus else 1.0
    policies = scale * evolution.policies
    coef, reached = scale * evolution.theta, scale * (evolution.ridge().shrinkage @ evolution.theta)
    if track is not None and not kind.learns:
        policies = fit.scale * track.policies
    moves, unknown = None, None
    if track is not None:
        unknown = _named(unidentified(track), names)
        better = outdone_by_coef(fit)
        moves = (better or how_it_moves(track)) if kind.learns else None
    notes = (*fit.solving, *fit.choosing, *fit.tracking)
    if not evolution.theta.any():
        notes += (NOTHING_LEARNED,)
    elif track is not None:
        notes += (moves,) if moves is not None and not (kind.learns and track.projects and not better) else ()
        notes += undetermined(unknown or ())
    return {
        "coef_": coef,
        "policy_coefs_": policies,
        "next_policy_coef_": reached if track is None else policy_ahead(fit, track, alpha, 1),
        "expert_": kind.name,
        "l2_": fit.l2,
        "top_k_": kind.top_k if kind.draws_from_best else None,
        "evidence_": fit.evidence,
        "diagnostics_": list(evolution.diagnostics),
        "solver_": fit.solver,
        "log_fingerprint_": evolution.fingerprint,
        "forecast_model_": None if track is None else track.model,
        "forecast_note_": moves,
        "unidentified_features_": unknown,
        "notes_": notes,
    }


def policy_ahead(fit: Fit, track: Track, alpha: float, updates: int) -> NDArray[np.float64]:
    """The policy some updates after the last episode's, at the scale of ``policy_coefs_``."""
    policy = forecast(track, updates)
    if not fit.kind.learns:
        return fit.scale * policy
    evolution = fit.evolution
    scale = alpha if fit.kind.adds_bonus else 1.0
    reached = evolution.ridge().shrinkage @ evolution.theta if updates else evolution.policies[-1]
    recovered: NDArray[np.float64] = scale * reached
    return recovered if outdone_by_coef(fit) is not None else at_scale(fit.kind, alpha, policy, recovered)


def at_scale(
    kind: Kind, alpha: float, policy: NDArray[np.float64], recovered: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A policy per unit alpha at the scale of ``policy_coefs_``; ``recovered`` is what ``coef_`` makes of it."""
    if not recovered.any():
        return recovered
    if kind.adds_bonus:
        return alpha * policy
    # Only the direction is known: the length is that of the recovered one.
    return float(np.linalg.norm(recovered) / (np.linalg.norm(policy) or 1.0)) * policy


def outdone_by_coef(fit: Fit) -> Note | None:
    """A note where ``coef_`` alone predicts clearly more of the later episodes than the track does."""
    if fit.track is None or not fit.kind.learns:
        return None
    pairs = [
        (predicted.agreement, entry.next_agreement)
        # Not strict: a track that chose the kind is ahead of Algorithm 2 while the log is fitted in steps.
        for predicted, entry in zip(fit.track.predicted, fit.evolution.diagnostics, strict=False)
        if entry.next_agreement is not None
    ]
    if not pairs:
        return None
    tracked, plain = np.mean(pairs[len(pairs) // 2 :], axis=0).tolist()
    return outdone(tracked, plain) if tracked < plain - _CLEARLY_MORE else None


def _named(features: NDArray[np.int64], names: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(str(feature) if names is None else names[feature] for feature in features.tolist())
