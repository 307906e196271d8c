"""How sure a track is: intervals of weights, rewards and parameters, and which weights the choices determine."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ibcb.deciders import Interval, Known
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.contexts import Contexts
from ibcb.numerics.gaussians import Beliefs, draws_root
from ibcb.tracking.forecast import logged_policies
from ibcb.tracking.futures import Futures
from ibcb.tracking.reward_fit import Rewards
from ibcb.tracking.tracker import Track
from ibcb.tracking.units import LEAST_UNIT, unit_column

#: policies drawn for a probability (a standard error of .01 in a single step), and for the quantiles of an interval
_DRAWS, _INTERVAL_DRAWS = 1000, 4000
#: deviation of the logarithm of a policy's length per unit of alpha, beyond what a belief says of it (judged
#: by benchmarks/uncertainty.py)
_LENGTH_DOUBT = 0.025
#: information below this share of the largest, features brought to one scale, is rounding; not tuned
_NOTHING = 1e-9
#: a feature is called undetermined if this share of it lies in directions that no choice depends on; not tuned
_UNDETERMINED_SHARE = 0.01
#: shares of 1 that differ by less are equal, and scores by this share of themselves; not tuned
_ROUNDING, _TIE = 1e-6, 1e-12


def interval(track: Track, level: float, *, direction: bool = False) -> Interval:
    """Intervals for the weights of the last episode's policy, per unit of the decider's own exploration.

    Quantiles of what all models of the family believed say together, each as far as the evidence supports it; with
    ``direction``, of policies whose scores over the candidates of a step have deviation 1.
    """
    now, models = track.seen, track.models
    family = models.model_at(track.believed_place).family
    units = models.motions[family].units[:, None]
    last = Beliefs(now.last[family].mean / units, now.last[family].covariance / units[..., None] ** 2)
    column = unit_column(track.kind, last)
    draw = _drawn if column is None else partial(_per_unit, column=column)
    states = draw(last, models.by_family(now.evidence)[family], _INTERVAL_DRAWS)
    drawn = identified(track, states[:, : track.d])
    if now.rewards is not None:
        drawn = drawn * np.exp(_LENGTH_DOUBT * np.random.default_rng(1).standard_normal(len(drawn)))[:, None]
    return _between(track, drawn, identified(track, logged_policies(track)[-1]), level, direction=direction)


def forecast_interval(
    track: Track, rolled: Futures, estimate: Vector, level: float, *, direction: bool = False
) -> Interval:
    """Intervals for the weights of a policy to come, by draws of it."""
    return _between(track, identified(track, rolled.policies), identified(track, estimate), level, direction=direction)


def _between(track: Track, drawn: Matrix, estimate: Vector, level: float, *, direction: bool) -> Interval:
    """Quantiles of draws, and the estimate among them."""
    if direction:
        drawn, estimate = spread_to_one(track.seen.within, drawn), spread_to_one(track.seen.within, estimate)
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
    reach, column, intervals = float(ndtri((1 + level) / 2)), 0, dict[str, Interval | None]()
    shares = [track.epsilon(episode) for episode in range(len(track.predicted) + 1)]
    believed = track.belief(track.now.last, track.now.best)
    known = Known(believed, track.now.within, tuple(each for each in shares if each is not None))
    for each in track.kind.parameters:
        intervals[each.name] = each.estimate.interval(known, reach, column)
        column += each.estimate.deviation is not None
    return intervals


def spread_to_one(within: Matrix, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights, shape (..., d), at the length that gives the scores of a step's candidates deviation 1.

    ``within`` is the mean covariance of the candidates of a step. Weights by which no candidates differ become zeros.
    """
    # Near 1 by a power of two, which changes no digit, so that squares neither overflow nor vanish.
    weights = np.ldexp(weights, -np.frexp(np.abs(weights).max(axis=-1, keepdims=True))[1])
    squares = np.einsum("...i,ij,...j->...", weights, within, weights)
    length = np.sqrt(np.maximum(squares, 0.0))
    return weights / np.where(length > 0, length, np.inf)[..., None]


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


def next_models(track: Track) -> tuple[Beliefs, Vector]:
    """What the models of the family believed say of the coming episode's policy, and the evidence for each; at the
    scale of their states.
    """
    family = track.models.model_at(track.believed_place).family
    return track.seen.families[family].of_first(track.d), track.models.by_family(track.seen.evidence)[family]


def certainty(
    track: Track,
    contexts: Contexts,
    offsets: NDArray[np.int64],
    picked: NDArray[np.int64],
    policies: Matrix | None = None,
) -> Vector:
    """Probability that the next policy likes the picked candidate of each step, given by its row, as well as any other.

    By all models of the family believed, each as far as the evidence supports it; or by draws of a policy. Candidates
    that do not differ are equally good: picking either is right.
    """
    scores = contexts @ (_drawn(*next_models(track), _DRAWS) if policies is None else policies).T
    best = np.maximum.reduceat(scores, offsets[:-1])
    certain: Vector = (scores[picked] >= best - _TIE * np.abs(best)).mean(axis=1)
    return certain


class Undetermined(NamedTuple):
    """What all episodes together told nothing of.

    Attributes
    ----------
    unit : ndarray of shape (d,)
        Units that make features alike.
    directions : ndarray of shape (d, k)
        Orthonormal in these units; no choice depends on them.
    """

    unit: Vector
    directions: Matrix


def undetermined(track: Track) -> Undetermined:
    """Directions of the policy's weights of which all episodes together told nothing."""
    information = track.seen.information
    unit = np.sqrt(information.diagonal())
    unit[unit == 0] = 1.0
    values, V = np.linalg.eigh(information / unit / unit[:, None])
    return Undetermined(unit, V[:, values <= _NOTHING * max(values[-1], np.finfo(np.float64).tiny)])


def unidentified(track: Track) -> NDArray[np.int64]:
    """Features whose weights the choices do not determine, alone or in combination: none depends on them, or so few
    that no more is known than before.
    """
    _, blind = undetermined(track)
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
    unit, blind = undetermined(track)
    if not blind.shape[1]:
        return weights
    known: NDArray[np.float64] = weights - ((weights * unit) @ blind) @ blind.T / unit
    # What is told by no choice at all is exactly 0, whatever the rounding.
    known[..., (blind**2).sum(axis=1) > 1 - _ROUNDING] = 0.0
    return known
