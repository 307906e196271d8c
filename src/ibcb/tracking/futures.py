"""Forecasts as laws: draws of what is believed, each rolled forward as the decider would learn.

A draw is a policy with the weights that its rule adds, the rewards, and a model of the family believed, as far as its
evidence goes. At every update the decider chooses by its rule among candidate sets drawn afresh from those it has seen,
and learns what they earn, noise included; the rewards wander as the model says. Rewards that are not linear change with
what is chosen: so a draw has the doubt of the rewards by least squares, too, which grows with what they leave
unexplained. A policy that does not learn moves as its motion does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ibcb.deciders import Learning
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.gaussians import Beliefs, draws_root
from ibcb.tracking.context_sample import ContextSample
from ibcb.tracking.forecast import expected_choices, learns, projects, rewards
from ibcb.tracking.motions import Motion, Update
from ibcb.tracking.tracker import Track
from ibcb.tracking.units import LEAST_UNIT, unit_column

#: deviations of the rewards by least squares that a draw may be off by: with 1, a 90% interval of a world whose rewards
#: are not linear covered .73 to .88 of weights (decision 0022)
_REWARD_DOUBT = 2.0
#: updates that are imagined one by one; of later ones a share of those before at once, for then a policy hardly moves
_ONE_BY_ONE = 32
#: draws of the decider's own in an update that is imagined, for each future
_OWN_DRAWS = 8


class Futures(NamedTuple):
    """Draws of what a decider will be, per unit of its policies.

    Attributes
    ----------
    policies : ndarray of shape (n, d)
    rewards : ndarray of shape (n, d + 1)
        theta and c, from the decider's origin; NaN where it is not known how it learns.
    motions : tuple of str
        The model of each draw.
    """

    policies: Matrix
    rewards: Matrix
    motions: tuple[str, ...]


class _Draw(NamedTuple):
    """One draw of what is believed now, per unit of the policy."""

    policy: Vector
    added: Vector
    theta: Vector
    level: float
    noise: float
    wander: float
    spread: float


def futures(track: Track, updates: int, draws: int, rng: np.random.Generator) -> Futures:
    """Draws of the policy ``updates`` updates after that of the last episode, 1 or more, and of the rewards."""
    now, models, d = track.seen, track.models, track.d
    family = _family(track)
    motion, beliefs = models.motions[family], now.families[family]
    evidence = models.by_family(now.evidence)[family]
    likely = np.exp(evidence - evidence.max())
    model = np.searchsorted(likely.cumsum() / likely.sum(), rng.permutation((np.arange(draws) + 0.5) / draws))
    law = motion.law(beliefs, d)
    if law is None:
        beliefs = _moved(track, motion, beliefs, updates - 1)
    column = unit_column(track.kind, beliefs.of_first(track.observed))
    states = _drawn(beliefs if law is None else law.state, model, column, rng)
    units = motion.units[model] if column is None else states[:, column]
    states = states / units[:, None]
    names = tuple(motion.names[each] for each in model.tolist())
    if law is None:
        return Futures(states[:, :d], np.full((draws, d + 1), np.nan), names)
    earned = states[:, track.observed :] + _doubt(track, draws, rng)
    numbers = np.stack([law.noise, law.wander, law.spread])[:, model] / units
    policies = [
        _rolled(track, _Draw(state[:d], state[d : track.observed], each[:-1], each[-1], *own), updates, rng)
        for state, each, own in zip(states, earned, numbers.T.tolist(), strict=True)
    ]
    return Futures(np.stack(policies), earned, names)


def _family(track: Track) -> int:
    """The family believed that far: a learner that is not projected further is no likelier than the best of others."""
    models = track.models
    if not learns(track) or projects(track):
        return models.model_at(track.believed_place).family
    families = zip(models.motions, models.by_family(track.seen.evidence), strict=True)
    return int(np.argmax([-np.inf if motion.learns else evidence.max() for motion, evidence in families]))


def _moved(track: Track, motion: Motion, beliefs: Beliefs, updates: int) -> Beliefs:
    """After some more updates of a policy that does not learn."""
    d, episodes = track.d, len(track.predicted)
    nothing = np.zeros((d, d))
    for ahead in range(updates):
        beliefs = motion.move(beliefs, track.seen.unit, Update(episodes + ahead + 1, nothing, nothing, nothing[0]))
    return beliefs


def _drawn(beliefs: Beliefs, model: NDArray[np.int64], column: int | None, rng: np.random.Generator) -> Matrix:
    """A state from the belief of each draw's model; the entry at ``column`` is above 0."""
    states = rng.standard_normal((len(model), beliefs.mean.shape[1]))
    levels = rng.random(len(model))
    for each in np.unique(model):
        own, mean, covariance = model == each, beliefs.mean[each], beliefs.covariance[each]
        drawn = mean + states[own] @ draws_root(mean, covariance).T
        if column is not None:
            deviation = np.sqrt(covariance[column, column])
            below = ndtr(-mean[column] / deviation)
            unit = mean[column] + deviation * ndtri(below + (1 - below) * levels[own])
            # The others go with it.
            apart = np.maximum(unit, LEAST_UNIT) - drawn[:, column]
            drawn += np.outer(apart, covariance[column] / covariance[column, column])
        states[own] = drawn
    return states


def _doubt(track: Track, draws: int, rng: np.random.Generator) -> Matrix:
    """By how much the rewards of each draw are off, beyond what their model says. Shape (draws, d + 1)."""
    told = rewards(track)
    z = rng.standard_normal((draws, track.d + 1))
    if told is None or not told.covariance.any():
        return np.zeros_like(z)
    return _REWARD_DOUBT * z @ draws_root(np.append(told.theta, told.c), told.covariance).T


def _rolled(track: Track, draw: _Draw, updates: int, rng: np.random.Generator) -> Vector:
    """The policy that one draw leads to. Shape (d,)."""
    now, kind, d = track.seen, track.kind, track.d
    before = kind.regularization.ridge(track.chosen)
    learning, theta, level, done = Learning(before, before.psi @ draw.policy), draw.theta, draw.level, 1
    root = draws_root(np.zeros(d), now.unit)

    def acts_on() -> Vector:
        luck = draw.spread * rng.standard_normal(d) if draw.spread else np.zeros(d)
        policy: Vector = learning.coef + luck @ learning.ridge.whitener.matrix
        return policy

    while done < updates:
        many = min(max(1, done // _ONE_BY_ONE), updates - done)
        sample, steps = _again(now.sample, now.steps * many, rng), now.steps * many
        expected = expected_choices(kind, sample, learning.ridge, acts_on(), draw.added, _OWN_DRAWS)
        rows = np.flatnonzero(expected)
        S, often = sample.contexts[rows].astype(np.float64), steps / len(sample.counts) * expected[rows]
        centred = S if before.origin is None else S - before.origin
        far = draw.wander * np.sqrt(many)
        theta, level = theta + far * (root @ rng.standard_normal(d)), level + far * rng.standard_normal()
        luck = draw.noise * rng.standard_normal(len(rows)) / np.sqrt(often)
        learning, done = learning.learn(S, centred @ theta + level + luck, often), done + many
    return acts_on()


def _again(sample: ContextSample, steps: int, rng: np.random.Generator) -> ContextSample:
    """So many steps drawn from a sample with replacement, or as many as it has."""
    places = rng.integers(len(sample.counts), size=min(steps, len(sample.counts)))
    counts = sample.counts[places]
    first, own = sample.counts.cumsum() - sample.counts, counts.cumsum() - counts
    rows = np.repeat(first[places] - own, counts) + np.arange(counts.sum())
    return ContextSample(sample.contexts[rows], counts, sample.keys[places])
