"""How the behaviour evolved: what each past policy would choose today, and how well each is known.

The log is tracked once more as it goes by, for what was believed of the policy once each episode was seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Episode, History, Subscriber
from ibcb.estimators.ibcb import IBCB
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.tracking import Interval, Track
from ibcb.tracking.choice_probabilities import Retraced
from ibcb.tracking.intervals import interval

#: steps that agreement is counted on: a standard error of .007 in a share of .9
_TODAY = 2000
#: policies whose scores are in memory at once
_AT_ONCE = 20


def today_begins(steps: Sequence[int]) -> int:
    """The first of the episodes that stand for today: the last one, or as many as make up enough steps."""
    gathered = 0
    for number in range(len(steps) - 1, -1, -1):
        gathered += steps[number]
        if gathered >= _TODAY:
            return number
    return 0


def agreements(policies: Matrix, today: Vector, log: BehaviorLog) -> Vector:
    """The share of today's choices that each policy would make, without exploration. Shape (policies,).

    Where a policy does not tell candidates apart it draws among them: nothing learned agrees as often as chance.
    """
    starts, counts = log.step_offsets[:-1], np.diff(log.step_offsets)
    own = _best((log.contexts @ today)[:, None], starts, counts)
    picked = np.add.reduceat(own[:, 0], starts)
    shares = []
    for some in np.array_split(policies, -(-len(policies) // _AT_ONCE)):
        best = _best(log.contexts @ some.T, starts, counts)
        both = np.add.reduceat(best * own, starts)
        shares.append((both / (np.add.reduceat(best, starts) * picked[:, None])).mean(axis=0))
    return np.concatenate(shares)


def _best(scores: Matrix, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Matrix:
    """1 where a candidate is the best of its step, or as good but for rounding. Shape of ``scores``."""
    slack = 1e-12 * np.abs(scores).max(axis=0, initial=0.0)
    best: Matrix = (scores >= np.repeat(np.maximum.reduceat(scores, starts), counts, axis=0) - slack).astype(np.float64)
    return best


def ribbons(model: IBCB, before: History, level: float) -> Ribbons | None:
    """What gathers intervals of the direction of every episode's policy; None where nothing was tracked.

    Parameters
    ----------
    model : IBCB
    before : History
        Where its log begins.
    level : float
        Their probability.
    """
    track = model._fit.track
    return None if track is None or not model.coef_.any() else Ribbons(model, track, before, level)


class Ribbons(Subscriber):
    """Intervals of the direction of every episode's policy, as the log goes by once more."""

    def __init__(self, model: IBCB, track: Track, before: History, level: float) -> None:
        self._level, self._estimates, self._bounds = level, model.direction(model.policy_coefs_), list[Interval]()
        self._still: Interval | None = None
        if track.kind.motions.stays:
            # As `IBCB.policy_interval` has it, but with bounds for what is known within a group of features alone.
            self._still = _about(interval(track, level, direction=True), self._estimates[-1])
        else:
            self._retraced = Retraced.of(track, before)

    def step(self, episode: Episode) -> Ribbons:
        """One more episode."""
        if self._still is None:
            self._retraced = self._retraced.step(episode)
        if episode.by_policy:
            self._bounds.append(self._still or self._retraced_bounds())
        return self

    def _retraced_bounds(self) -> Interval:
        now, estimate = self._retraced.track, self._estimates[len(self._bounds)]
        if not (now.policies[-1].any() and estimate.any()):
            return Interval(estimate, estimate, estimate)
        with np.errstate(over="ignore", invalid="ignore"):
            return _about(interval(now, self._level, direction=True), estimate)

    def finish(self) -> list[Interval]:
        """One for each episode."""
        return self._bounds


def _about(bounds: Interval, estimate: Vector) -> Interval:
    """Bounds about the estimate that is shown, should another one have been retraced."""
    moved = estimate - bounds.estimate
    return Interval(estimate, bounds.lower + moved, bounds.upper + moved)
