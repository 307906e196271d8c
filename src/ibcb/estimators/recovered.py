"""Recovered propensities of a log: in one pass, whether it is the fitted log or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ibcb.engine import Episode, History, Subscriber, replay
from ibcb.estimators.fitting import Fit
from ibcb.log import Log
from ibcb.numerics.arrays import Vector
from ibcb.tracking.choice_probabilities import Ahead, InForce, Next

__all__ = ["NotTheFittedLogError", "Recovered", "Recovering", "recovered"]


class Recovered(NamedTuple):
    """What was recovered.

    Attributes
    ----------
    values : tuple of ndarray of shape (rows,)
        Probabilities of every candidate, in the order of the log's rows.
    fitted : bool
        Whether the log is the one that was fitted: else all are those of the policy right after it.
    """

    values: tuple[Vector, ...]
    fitted: bool


class NotTheFittedLogError(Exception):
    """That a log is not the fitted one."""


@dataclass(frozen=True)
class Recovering(Subscriber):
    """A subscriber that goes along the fitted log, and raises where a log is not that.

    Attributes
    ----------
    fit : Fit
    going : Subscriber
        Of `ibcb.tracking.choice_probabilities`.
    """

    fit: Fit
    going: Any

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
        """One more episode."""
        names, place = self.fit.evolution.names, episode.before.stored
        if place >= len(names) or names[place] != episode.after.fingerprint:
            raise NotTheFittedLogError
        return Recovering(self.fit, self.going.step(episode))

    def finish(self) -> Vector:
        """Of all rows."""
        if len(self.values) != len(self.fit.evolution.names):
            raise NotTheFittedLogError
        values: Vector = self.going.finish()
        return values


def recovered(fit: Fit, log: Log, before: History, *ahead: bool) -> Recovered:
    """Propensities of a log: of the fitted one each episode's by the policy in force, or ``ahead`` as it was predicted;
    of any other by the policy right after the fitted one.

    Parameters
    ----------
    fit : Fit
        With a track.
    log : Log
    before : History
        Where the fitted log begins.
    *ahead : bool
        Which are asked for.
    """
    track = fit.track
    assert track is not None
    try:
        values = replay([log], *(Recovering.of(fit, before, ahead=each) for each in ahead), before=before)
        return Recovered(tuple(values), True)
    except NotTheFittedLogError:
        (by_next,) = replay([log], Next(track, fit.scale))
        return Recovered((by_next,) * len(ahead), False)
