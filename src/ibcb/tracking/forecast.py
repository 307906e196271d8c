"""What a track tells: policies to come, how sure they are, and which weights the choices determine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ibcb.numerics.contexts import Contexts
from ibcb.numerics.gaussians import Beliefs, draws_root
from ibcb.numerics.ridge import ridge
from ibcb.tracking.rewards import Rewards
from ibcb.tracking.tracker import LEAST_ALPHA, Track

__all__ = [
    "Interval",
    "certainty",
    "exploration_interval",
    "forecast",
    "identified",
    "interval",
    "reward_interval",
    "spread_to_one",
    "unidentified",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: policies drawn for a probability (a standard error of .01 in a single step), and for the quantiles of an interval
_DRAWS, _INTERVAL_DRAWS = 1000, 4000
#: deviation of the logarithm of a policy's length per unit of alpha, beyond what a belief says of it (judged
#: by benchmarks/uncertainty.py)
_LENGTH_DOUBT = 0.025
#: a feature is called undetermined if this share of it lies in directions that no choice depends on; not tuned
_UNDETERMINED_SHARE = 0.01
#: shares of 1 that differ by less are equal, and scores by this share of themselves; not tuned
_ROUNDING, _TIE = 1e-6, 1e-12


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
        last: Vector = track.believed_policies[-1]
        return last
    p = track.next_policy
    found = track.current_rewards()
    if not track.projects or updates < 2 or found is None:
        return p
    (theta, c), before = found, track.kind.regularization.ridge(track.chosen)
    b, rng = before.psi @ p, np.random.default_rng(0)
    for _ in range(updates - 1):
        S = now.sample.choose(track.kind.imagine(now.sample.contexts, now.sample.counts, p, before, rng))
        S = S if before.origin is None else S - before.origin
        weight = now.steps / len(S)
        taught = weight * (S.T @ S)
        b = b + taught @ theta + weight * c * S.sum(axis=0)
        before = ridge(before.phi + taught, before.penalty, before.origin)
        p = before.solve(b)
    return p


def interval(track: Track, level: float, *, direction: bool = False) -> Interval:
    """Intervals for the weights of the last episode's policy, per unit of the decider's own exploration.

    Quantiles of what all models of the family believed say together, each as far as the evidence supports it; with
    ``direction``, of policies whose scores over the candidates of a step have deviation 1.
    """
    now, family = track.seen, track.model_at(track.believed_place).family
    draw, units = _per_alpha if track.kind.scales.alpha else _drawn, track.units(family)[:, None]
    last = Beliefs(now.last[family].mean / units, now.last[family].covariance / units[..., None] ** 2)
    drawn = identified(track, draw(last, track.by_family(now.evidence)[family], _INTERVAL_DRAWS))
    if track.kind.learns:
        drawn = drawn * np.exp(_LENGTH_DOUBT * np.random.default_rng(1).standard_normal(len(drawn)))[:, None]
    estimate = identified(track, track.believed_policies[-1])
    if direction:
        drawn, estimate = spread_to_one(now.within, drawn), spread_to_one(now.within, estimate)
    lower, upper = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Interval(estimate, np.minimum(lower, estimate), np.maximum(upper, estimate))


def reward_interval(rewards: Rewards, level: float) -> Interval:
    """Intervals for the weights of the rewards and, last, for their intercept: normal ones, of shape (d + 1,) each."""
    estimate = np.append(rewards.theta, rewards.c)
    reach = float(ndtri((1 + level) / 2)) * np.sqrt(np.maximum(rewards.covariance.diagonal(), 0.0))
    return Interval(estimate, estimate - reach, estimate + reach)


def exploration_interval(track: Track, level: float) -> Interval | None:
    """For the share of choices at random in every episode, and in the one to come; or for the temperature of a softmax,
    in deviations of the scores among the candidates of a step. None of kinds that have neither.
    """
    reach, known = float(ndtri((1 + level) / 2)), map(track.epsilon, range(len(track.predicted) + 1))
    found = [each for each in known if each is not None]
    if found:
        mean, deviation = np.array(found).T
        # Shares are positive: normal intervals of their logarithms.
        factor = np.exp(reach * deviation / mean)
        return Interval(mean, mean / factor, np.minimum(mean * factor, 1.0))
    if not track.kind.has_temperature:
        return None
    believed = track.belief(track.seen.last, track.seen.best)
    p, C = believed.mean[0], believed.covariance[0]
    along = track.seen.within @ p
    size = float(p @ along)
    if size <= 0:
        return None
    relative = float(np.sqrt(max(along @ C @ along, 0.0))) / size
    temperature = np.array([1 / np.sqrt(size)])
    return Interval(temperature, temperature * np.exp(-reach * relative), temperature * np.exp(reach * relative))


def spread_to_one(within: Matrix, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights, shape (..., d), at the length that gives the scores of a step's candidates deviation 1.

    ``within`` is the mean covariance of the candidates of a step. Weights by which no candidates differ become zeros.
    """
    # Near 1 by a power of two, which changes no digit, so that squares neither overflow nor vanish.
    weights = np.ldexp(weights, -np.frexp(np.abs(weights).max(axis=-1, keepdims=True))[1])
    squares = np.einsum("...i,ij,...j->...", weights, within, weights)
    length = np.sqrt(np.maximum(squares, 0.0))
    scaled: NDArray[np.float64] = weights / np.where(length > 0, length, np.inf)[..., None]
    return scaled


def _counts(evidence: Vector, draws: int) -> list[int]:
    """How many of the draws each model gives."""
    support = np.exp(evidence - evidence.max())
    counts: list[int] = np.round(draws * support / support.sum()).astype(int).tolist()
    return counts


def _drawn(beliefs: Beliefs, evidence: Vector, draws: int) -> Matrix:
    """Draws of p from what some models believe, as far as each is supported."""
    rng = np.random.default_rng(0)
    return np.concatenate(
        [
            mean + rng.standard_normal((count, len(mean))) @ draws_root(mean, covariance).T
            for mean, covariance, count in zip(beliefs.mean, beliefs.covariance, _counts(evidence, draws), strict=True)
        ]
    )


def _per_alpha(beliefs: Beliefs, evidence: Vector, draws: int) -> Matrix:
    """Draws of p / alpha, alike."""
    rng, drawn = np.random.default_rng(0), []
    for mean, covariance, count in zip(beliefs.mean, beliefs.covariance, _counts(evidence, draws), strict=True):
        # alpha first, which is positive, and p given alpha.
        deviation = float(np.sqrt(covariance[-1, -1]))
        below = ndtr(-mean[-1] / deviation)
        alpha = mean[-1] + deviation * ndtri(below + (1 - below) * rng.random(count))
        slope = covariance[:-1, -1] / covariance[-1, -1]
        root = draws_root(mean[:-1], covariance[:-1, :-1] - np.outer(slope, covariance[:-1, -1]))
        p = mean[:-1] + np.outer(alpha - mean[-1], slope) + rng.standard_normal((count, len(root))) @ root.T
        drawn.append(p / np.maximum(alpha, LEAST_ALPHA)[:, None])
    return np.concatenate(drawn)


def certainty(track: Track, contexts: Contexts, offsets: NDArray[np.int64], picked: NDArray[np.int64]) -> Vector:
    """Probability that the next policy likes the picked candidate of each step, given by its row, as well as any other.

    By all models of the family believed, each as far as the evidence supports it. Candidates that do not differ are
    equally good: picking either is right.
    """
    beliefs, evidence = track.next_beliefs
    scores = contexts @ _drawn(beliefs, evidence, _DRAWS).T
    best = np.maximum.reduceat(scores, offsets[:-1])
    certain: Vector = (scores[picked] >= best - _TIE * np.abs(best)).mean(axis=1)
    return certain


def unidentified(track: Track) -> NDArray[np.int64]:
    """Features whose weights the choices do not determine, alone or in combination: none depends on them, or so few
    that no more is known than before.
    """
    _, blind = track.blind
    now, d = track.seen, track.d
    believed = track.belief(now.last, now.best)
    p, C = believed.mean[0, :d], believed.covariance[0, :d, :d]
    at_first = track.kind.scales.policy**2 * now.unit
    if track.kind.scales.alpha:
        # Only ratios are known: variances beside the mean square of the scores.
        spread = float(np.sum(at_first * now.within)) or 1.0
        at_first, C = at_first / spread, C / (float(p @ now.within @ p) or 1.0)
    vague = C.diagonal() >= at_first.diagonal()
    return np.flatnonzero(((blind**2).sum(axis=1) > _UNDETERMINED_SHARE) | vague)


def identified(track: Track, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights, shape (..., d), without their part on which no choice depends.

    What is left of a one-hot group are its weights against the group's mean, and of a feature that all candidates of a
    step share nothing; in units that make features alike.
    """
    unit, blind = track.blind
    if not blind.shape[1]:
        return weights
    known: NDArray[np.float64] = weights - ((weights * unit) @ blind) @ blind.T / unit
    # What is told by no choice at all is exactly 0, whatever the rounding.
    known[..., (blind**2).sum(axis=1) > 1 - _ROUNDING] = 0.0
    return known
