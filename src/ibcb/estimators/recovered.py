"""Recovered propensities of a log: in one pass, whether it is the fitted log or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ibcb.engine import Episode, History, Subscriber, replay
from ibcb.estimators.fitting import Fit
from ibcb.log import Log
from ibcb.numerics.arrays import Vector
from ibcb.tracking.choice_probabilities import Ahead, InForce, Next


class Recovered(NamedTuple):
    """What was recovered.

    Attributes
    ----------
    values : ndarray of shape (rows,)
        Probability of every candidate, in the order of the log's rows.
    fitted : bool
        Whether the log is the one that was fitted: else all are those of the policy right after it.
    """

    values: Vector
    fitted: bool


class NotTheFittedLogError(Exception):
    """That a log goes on, or ends, otherwise than the fitted one."""


@dataclass(frozen=True)
class Recovering(Subscriber):
    """A subscriber that takes the log for the fitted one as long as it is.

    Attributes
    ----------
    fit : Fit
    going : Subscriber
        Of `ibcb.tracking.choice_probabilities`.
    fitted : bool
        Whether the episodes so far are those of the fitted log.
    """

    fit: Fit
    going: Any
    fitted: bool = True

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
        """One more episode; raises where a log that began as the fitted one goes on otherwise."""
        names, place, going, fitted = self.fit.evolution.names, episode.before.stored, self.going, self.fitted
        is_same = place < len(names) and names[place] == episode.after.fingerprint
        if fitted and not is_same:
            if place:
                raise NotTheFittedLogError
            assert self.fit.track is not None
            going, fitted = Next(self.fit.track, self.fit.scale), False
        return Recovering(self.fit, going.step(episode), fitted)

    def finish(self) -> Recovered:
        """Of all rows; raises where the log ends before the fitted one does."""
        values = self.going.finish()
        if self.fitted and len(self.going.values) != len(self.fit.evolution.names):
            raise NotTheFittedLogError
        return Recovered(values, self.fitted)


def recovered(fit: Fit, log: Log, before: History, *, ahead: bool) -> Recovered:
    """Propensities of a log: of the fitted one each episode's by the policy in force, or ``ahead`` as it was predicted;
    of any other by the policy right after the fitted one.

    Parameters
    ----------
    fit : Fit
        With a track.
    log : Log
    before : History
        Where the fitted log begins.
    """
    track = fit.track
    assert track is not None
    try:
        (result,) = replay([log], Recovering.of(fit, before, ahead=ahead), before=before)
    except NotTheFittedLogError:
        (values,) = replay([log], Next(track, fit.scale))
        return Recovered(values, False)
    assert isinstance(result, Recovered)
    return result
