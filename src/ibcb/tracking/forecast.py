"""What a track tells: policies to come, how sure they are, and which weights the choices determine."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ibcb.deciders import Interval, Known, Learning
from ibcb.engine import Block
from ibcb.numerics.contexts import Contexts
from ibcb.numerics.gaussians import Beliefs, draws_root
from ibcb.numerics.ridge import Ridge
from ibcb.tracking.rewards import Rewards
from ibcb.tracking.tracker import Track
from ibcb.tracking.units import LEAST_UNIT, unit_column

__all__ = [
    "Interval",
    "certainty",
    "exploration_interval",
    "forecast",
    "identified",
    "interval",
    "parameter_intervals",
    "reward_interval",
    "spread_to_one",
    "unidentified",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: policies drawn for a probability (a standard error of .01 in a single step), and for the quantiles of an interval
_DRAWS, _INTERVAL_DRAWS = 1000, 4000
#: draws of the decider's own behind what it is expected to choose in an update that is imagined
_OWN_DRAWS = 64
#: deviation of the logarithm of a policy's length per unit of alpha, beyond what a belief says of it (judged
#: by benchmarks/uncertainty.py)
_LENGTH_DOUBT = 0.025
#: a feature is called undetermined if this share of it lies in directions that no choice depends on; not tuned
_UNDETERMINED_SHARE = 0.01
#: shares of 1 that differ by less are equal, and scores by this share of themselves; not tuned
_ROUNDING, _TIE = 1e-6, 1e-12


def forecast(track: Track, updates: int = 1) -> Vector:
    """The policy ``updates`` updates after the one that made the last episode's choices. Shape (d,).

    A learner is projected forward where it is believed that far: it goes on choosing among candidates like those it
    has seen, and learns what it is expected to choose, and earn by the rewards believed. Anything else stays.
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
    learning, X = Learning(before, before.psi @ p), now.sample.contexts
    for _ in range(updates - 1):
        expected = _expected(track, learning.ridge, learning.coef)
        rows = np.flatnonzero(expected)
        S, often = X[rows].astype(np.float64), now.steps / len(now.sample.counts) * expected[rows]
        centred = S if before.origin is None else S - before.origin
        learning = learning.learn(S, centred @ theta + c, often)
    return learning.coef


def _expected(track: Track, before: Ridge, p: Vector) -> Vector:
    """How often each candidate of the sample is chosen by a policy. Shape (rows,)."""
    sample, kind = track.seen.sample, track.kind
    offsets = np.append(0, sample.counts.cumsum())
    block = Block(sample.contexts, offsets[:-1], offsets, None, 0, 0)
    return kind.propensities(block, before, kind.certain(p, track.next_added), _OWN_DRAWS)


def interval(track: Track, level: float, *, direction: bool = False) -> Interval:
    """Intervals for the weights of the last episode's policy, per unit of the decider's own exploration.

    Quantiles of what all models of the family believed say together, each as far as the evidence supports it; with
    ``direction``, of policies whose scores over the candidates of a step have deviation 1.
    """
    now, family = track.seen, track.model_at(track.believed_place).family
    column, units = unit_column(track.kind, track.d), track.units(family)[:, None]
    last = Beliefs(now.last[family].mean / units, now.last[family].covariance / units[..., None] ** 2)
    draw = _drawn if column is None else partial(_per_unit, column=column)
    states = draw(last, track.by_family(now.evidence)[family], _INTERVAL_DRAWS)
    drawn = identified(track, states[:, : track.d])
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
    """For the first parameter of the kind's rule that the log tells: the share of choices at random in every episode,
    and in the one to come, or the temperature of a softmax. None of kinds that have none of these.
    """
    known = parameter_intervals(track, level).values()
    return next((each for each in known if each is not None), None)


def parameter_intervals(track: Track, level: float) -> dict[str, Interval | None]:
    """Of every parameter of the kind's rule; None where nothing tells it."""
    if track.now is None:
        return dict.fromkeys((each.name for each in track.kind.parameters), None)
    reach, column, found = float(ndtri((1 + level) / 2)), 0, dict[str, Interval | None]()
    shares = [track.epsilon(episode) for episode in range(len(track.predicted) + 1)]
    believed = track.belief(track.now.last, track.now.best)
    known = Known(believed, track.now.within, tuple(each for each in shares if each is not None))
    for each in track.kind.parameters:
        found[each.name] = each.estimate.interval(known, reach, column)
        column += each.estimate.deviation is not None
    return found


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


def _per_unit(beliefs: Beliefs, evidence: Vector, draws: int, *, column: int) -> Matrix:
    """Draws of a state over one of its entries, which is above 0, alike."""
    rng, drawn = np.random.default_rng(0), []
    others = np.delete(np.arange(beliefs.mean.shape[1]), column)
    for mean, covariance, count in zip(beliefs.mean, beliefs.covariance, _counts(evidence, draws), strict=True):
        # The unit first, and the others given it.
        deviation = float(np.sqrt(covariance[column, column]))
        below = ndtr(-mean[column] / deviation)
        unit = mean[column] + deviation * ndtri(below + (1 - below) * rng.random(count))
        slope = covariance[others, column] / covariance[column, column]
        left = covariance[np.ix_(others, others)] - np.outer(slope, covariance[others, column])
        root = draws_root(mean[others], left)
        z = rng.standard_normal((count, len(root)))
        p = mean[others] + np.outer(unit - mean[column], slope) + z @ root.T
        drawn.append(p / np.maximum(unit, LEAST_UNIT)[:, None])
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
    if track.kind.per_unit is not None:
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
