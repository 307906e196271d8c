"""What a track tells: policies to come, how sure they are, and which weights the choices determine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ibcb.numerics.gaussians import Beliefs, factor
from ibcb.numerics.ridge import ridge
from ibcb.tracking.tracker import LEAST_ALPHA, Track

__all__ = ["Interval", "certainty", "forecast", "identified", "interval", "unidentified"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: policies drawn for a probability (a standard error of .02 in a single step), and for the quantiles of an interval
_DRAWS, _INTERVAL_DRAWS = 200, 4000
#: information below this share of the largest, features brought to one scale, is rounding; not tuned
_NOTHING = 1e-9
#: a feature is called undetermined if this share of it lies in directions that no choice depends on; not tuned
_UNDETERMINED_SHARE = 0.01


class Interval(NamedTuple):
    """Policy weights between which the true ones lie with the asked probability, each shape (d,)."""

    estimate: Vector
    lower: Vector
    upper: Vector


def forecast(track: Track, updates: int = 1) -> Vector:
    """The policy ``updates`` updates after the one that made the last episode's choices. Shape (d,).

    A learner is projected forward where it is believed that far: it goes on choosing among candidates like those it
    has seen, and learns what it earns by the rewards believed. Anything else stays where it is.
    """
    now = track.seen
    if updates == 0:
        last: Vector = track.policies[-1]
        return last
    p = track.next_policy
    found = track.rewards()
    if not track.projects or updates < 2 or found is None:
        return p
    (theta, c), l2, phi = found, track.kind.l2, track.gram
    psi = phi.copy()
    psi.flat[:: len(psi) + 1] += l2
    b, rng = psi @ p, np.random.default_rng(0)
    for _ in range(updates - 1):
        scores = track.kind.imagine(now.sample.contexts, now.sample.counts, p, ridge(phi, l2), rng)
        S = now.sample.choose(scores)
        weight = now.steps / len(S)
        taught = weight * (S.T @ S)
        phi, b = phi + taught, b + taught @ theta + weight * c * S.sum(axis=0)
        p = ridge(phi, l2).solve(b)
    return p


def interval(track: Track, level: float, *, direction: bool = False) -> Interval:
    """Intervals for the weights of the last episode's policy.

    Of a kind that adds a bonus, per unit alpha unless ``direction`` is asked for: quantiles of what all models of the
    family believed say together, each as far as the evidence supports it. Of other kinds of the unit direction: normal
    ones, of a learner's likeliest walk, because a learner would be surer than its linear rewards deserve.
    """
    now, family = track.seen, track.model_at(track.seen.best).family
    if track.kind.adds_bonus:
        drawn = _drawn(now.last[family], track.by_family(now.evidence)[family])
        if direction:
            drawn = identified(track, drawn)
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        lower, middle, upper = np.quantile(drawn, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
        return Interval(middle, lower, upper)
    place = now.best
    if track.kind.learns:
        place = int(np.argmax(track.by_family(now.evidence)[0]))
    believed = track.belief(now.last, place)
    p, C = believed.mean[0], believed.covariance[0]
    if track.kind.learns:
        p, C = identified(track, p), identified(track, identified(track, C).T)
    length = float(np.linalg.norm(p)) or 1.0
    p = p / length
    across = (np.eye(len(p)) - np.outer(p, p)) / length
    reach = float(ndtri((1 + level) / 2)) * np.sqrt(np.maximum((across @ C @ across).diagonal(), 0.0))
    # Weights of a direction lie between -1 and 1, however little is known.
    return Interval(p, np.maximum(p - reach, -1.0), np.minimum(p + reach, 1.0))


def _drawn(beliefs: Beliefs, evidence: Vector) -> Matrix:
    """Draws of p / alpha from what some models believe, as far as each is supported."""
    support = np.exp(evidence - evidence.max())
    counts = np.round(_INTERVAL_DRAWS * support / support.sum()).astype(int)
    rng, drawn = np.random.default_rng(0), []
    for mean, covariance, count in zip(beliefs.mean, beliefs.covariance, counts.tolist(), strict=True):
        # alpha first, which is positive, and p given alpha.
        deviation = float(np.sqrt(covariance[-1, -1]))
        below = ndtr(-mean[-1] / deviation)
        alpha = mean[-1] + deviation * ndtri(below + (1 - below) * rng.random(count))
        slope = covariance[:-1, -1] / covariance[-1, -1]
        root = factor(covariance[:-1, :-1] - np.outer(slope, covariance[:-1, -1]))
        p = mean[:-1] + np.outer(alpha - mean[-1], slope) + rng.standard_normal((count, len(root))) @ root.T
        drawn.append(p / np.maximum(alpha, LEAST_ALPHA)[:, None])
    return np.concatenate(drawn)


def certainty(track: Track, contexts: NDArray[Any], offsets: NDArray[np.int64], picked: NDArray[np.int64]) -> Vector:
    """Probability that the next policy likes the picked candidate of each step, given by its row, as well as any other.

    Candidates that do not differ are equally good: picking either is right.
    """
    belief = track.next_belief
    p, C = belief.mean[0], belief.covariance[0]
    values, V = np.linalg.eigh(C)
    z = np.random.default_rng(0).standard_normal((_DRAWS, len(p)))
    policies = p[:, None] + (V * np.sqrt(np.maximum(values, 0.0))) @ z.T
    scores = contexts @ policies
    certain: Vector = (scores[picked] >= np.maximum.reduceat(scores, offsets[:-1])).mean(axis=1)
    return certain


def unidentified(track: Track) -> NDArray[np.int64]:
    """Features whose weights the choices do not determine, alone or in combination."""
    _, blind = _blind(track)
    return np.flatnonzero((blind**2).sum(axis=1) > _UNDETERMINED_SHARE)


def identified(track: Track, policies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Policies, shape (..., d), without their part on which no choice depends."""
    unit, blind = _blind(track)
    # An orthonormal basis of what choices tell of policies.
    Q = np.linalg.qr(blind / unit[:, None], mode="complete")[0][:, blind.shape[1] :]
    return policies if Q.shape[1] == len(Q) else policies @ Q @ Q.T


def _blind(track: Track) -> tuple[Vector, Matrix]:
    """Units that make features alike, and directions, in these units, of which all episodes told nothing."""
    information = track.seen.information
    unit = np.sqrt(information.diagonal())
    unit[unit == 0] = 1.0
    values, V = np.linalg.eigh(information / unit / unit[:, None])
    return unit, V[:, values <= _NOTHING * max(values[-1], np.finfo(np.float64).tiny)]
