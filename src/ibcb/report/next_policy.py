"""How often `predict` picks what the decider's next policy prefers, by what is believed of that policy."""

from __future__ import annotations

import numpy as np

from ibcb.estimators.ibcb import IBCB
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.tracking import Track, next_models

#: policies drawn from what is believed of the next one, and how many of them are in memory at once
_DRAWS, _AT_ONCE = 400, 20
#: a cautious bound leaves this share of the draws below it, at so many times the deviation believed: beliefs are too
#: sure of deciders that do not keep to the model's assumptions (benchmarks/verdicts.py, seeds below 1000)
_UNLIKELY, _DOUBT = 0.05, 2.0


def agreement(model: IBCB, sample: BehaviorLog) -> tuple[float, float] | None:
    """``agreement`` and ``agreement_low`` of `ibcb.report.verdict.Figures`, on some steps; None without a belief.

    The share of steps is a random quantity, because the policy is; its mean is that of `IBCB.certainty`.
    """
    track = model._fit.track
    if track is None or not model.next_policy_coef_.any():
        return None
    expected, cautious = (_agreements(model, sample, _drawn(track, doubt)) for doubt in (1.0, _DOUBT))
    return float(expected.mean()), float(np.quantile(cautious, _UNLIKELY))


def _drawn(track: Track, doubt: float) -> Matrix:
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


def _agreements(model: IBCB, sample: BehaviorLog, drawn: Matrix) -> Vector:
    """The share of steps at which each of some policies likes none better than what `predict` picks."""
    starts = sample.step_offsets[:-1]
    picked, shares = starts + model.predict(sample), []
    for policies in np.array_split(drawn, -(-len(drawn) // _AT_ONCE)):
        scores = sample.contexts @ policies.T
        shares.append((scores[picked] >= np.maximum.reduceat(scores, starts)).mean(axis=0))
    return np.concatenate(shares)
