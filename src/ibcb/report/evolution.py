"""How the behaviour evolved: what each past policy would choose today, and how well each is known.

The log is tracked once more as it goes by, for what was believed of the policy once each episode was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Episode, History, Subscriber
from ibcb.estimators.ibcb import IBCB
from ibcb.log import BehaviorLog
from ibcb.report.weight_facts import last_policy
from ibcb.tracking import Interval, Track
from ibcb.tracking.choice_probabilities import Retraced
from ibcb.tracking.intervals import interval

__all__ = ["Ribbon", "Ribbons", "agreements", "today_begins"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: steps that agreement is counted on: a standard error of .007 in a share of .9
_TODAY = 2000
#: policies whose scores are in memory at once
_AT_ONCE = 20


class Ribbon(NamedTuple):
    """Bounds of a policy's weights, shape (d,) each."""

    lower: Vector
    upper: Vector


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
    own = log.contexts @ today
    picked = np.add.reduceat(_best(own[:, None], starts, counts)[:, 0], starts)
    shares = []
    for some in np.array_split(policies, -(-len(policies) // _AT_ONCE)):
        best = _best(log.contexts @ some.T, starts, counts)
        both = np.add.reduceat(best * _best(own[:, None], starts, counts), starts)
        shares.append((both / (np.add.reduceat(best, starts) * picked[:, None])).mean(axis=0))
    return np.concatenate(shares)


def _best(scores: Matrix, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Matrix:
    """1 where a candidate is the best of its step, or as good but for rounding. Shape of ``scores``."""
    slack = 1e-12 * np.abs(scores).max(axis=0, initial=0.0)
    best: Matrix = (scores >= np.repeat(np.maximum.reduceat(scores, starts), counts, axis=0) - slack).astype(np.float64)
    return best


class Ribbons(Subscriber):
    """Intervals of the direction of every episode's policy, as the log goes by once more.

    Parameters
    ----------
    model : IBCB
    before : History
        Where its log begins.
    level : float
        Their probability.
    """

    def __init__(self, model: IBCB, before: History, level: float) -> None:
        self._level, self._estimates, self._found = level, model.direction(model.policy_coefs_), list[Ribbon]()
        track = model._fit.track
        assert track is not None  # `of` looks
        self._retraced = Retraced.of(track, before)

    @classmethod
    def of(cls, model: IBCB, before: History, level: float) -> Ribbons | StillRibbons | None:
        """None where nothing was tracked."""
        track = model._fit.track
        if track is None or not model.coef_.any():
            return None
        return StillRibbons(model, track, level) if track.kind.motions.stays else cls(model, before, level)

    def step(self, episode: Episode) -> Ribbons:
        """One more episode."""
        self._retraced = self._retraced.step(episode)
        if episode.by_policy:
            now, estimate = self._retraced.track, self._estimates[len(self._found)]
            known = now.policies[-1].any() and estimate.any()
            with np.errstate(over="ignore", invalid="ignore"):
                bounds = interval(now, self._level, direction=True) if known else None
            self._found.append(Ribbon(estimate, estimate) if bounds is None else _about(bounds, estimate))
        return self

    def finish(self) -> list[Ribbon]:
        """One for each episode."""
        return self._found


class StillRibbons(Subscriber):
    """The same of a decider whose policy stays: one interval for all."""

    def __init__(self, model: IBCB, track: Track, level: float) -> None:
        # As `IBCB.policy_interval` has it, but with bounds for what is known within a group of features alone.
        self._found = [_about(interval(track, level, direction=True), last_policy(model))] * len(track.policies)

    def step(self, episode: Episode) -> StillRibbons:
        return self

    def finish(self) -> list[Ribbon]:
        """One for each episode."""
        return self._found


def _about(bounds: Interval, estimate: Vector) -> Ribbon:
    """Bounds about the estimate that is shown, should another one have been retraced."""
    moved = estimate - bounds.estimate
    return Ribbon(bounds.lower + moved, bounds.upper + moved)
