"""The probability of every candidate of a log: its choice rule averaged over what is believed of the policy.

Of the log that was tracked, each episode's by the policy in force in it, as the whole log tells it, or as it was
predicted one episode ahead. Of other candidates, by the policy to come. All are subscribers of the replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ibcb.engine import Block, Episode, History, Subscriber
from ibcb.numerics.arrays import Vector
from ibcb.numerics.contexts import step_counts
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Ridge
from ibcb.tracking.calibration import probable, with_share
from ibcb.tracking.smoothing import smoothed
from ibcb.tracking.tracker import Track

#: draws from a belief: how exact probabilities then are is `ibcb.numerics.averages.ERROR`
_DRAWS = 512


class _Known(NamedTuple):
    """What is known of an episode's choices: a belief about its policy, and the share of them made at random.

    ``belief`` is None where nothing is known: then all candidates are alike.
    """

    belief: Beliefs | None = None
    share: float = 0.0


_NOTHING = _Known()


@dataclass(frozen=True)
class Retraced(Subscriber):
    """The track of a log, gone through once more.

    Attributes
    ----------
    track : Track
        After the episodes so far.
    """

    track: Track

    @classmethod
    def of(cls, track: Track, before: History) -> Retraced:
        """From where a log begins; ``track`` is after its end."""
        return cls(Track.begin(track.kind, before.chosen.phi))

    def step(self, episode: Episode) -> Retraced:
        """One more episode."""
        with np.errstate(over="ignore", invalid="ignore"):
            return Retraced(self.track.after(episode))

    @property
    def belief(self) -> Beliefs:
        """Of the policy of the last episode, once it was seen."""
        now = self.track.seen
        return self.track.believed_of(now, now.last, now.best)

    def finish(self) -> Track:
        """The track."""
        return self.track


@dataclass(frozen=True)
class _Propensities(Subscriber):
    """What these subscribers share.

    Attributes
    ----------
    track : Track
        After the last episode of the log that was tracked.
    scale : float
        Of scores, see `ibcb.deciders.Kind.propensities`.
    values : tuple of ndarray
        One array for every stored episode, one entry per row; uniform in the warm-up.
    """

    track: Track
    scale: float
    values: tuple[Vector, ...] = ()

    def _with(self, episode: Episode, known: _Known, before: Ridge | None = None) -> tuple[Vector, ...]:
        kernel = partial(
            _propensities,
            track=self.track,
            before=self.track.kind.ridge(episode.before) if before is None else before,
            known=known,
            scale=self.scale,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            return (*self.values, np.concatenate(list(episode.rows.map(kernel))))

    def finish(self) -> Vector:
        """Of all rows, in their order."""
        return np.concatenate(self.values)


@dataclass(frozen=True)
class InForce(_Propensities):
    """By the policy in force in each episode, as all of the log tells it.

    Attributes
    ----------
    beliefs : sequence of Beliefs or None
        Of the policy of each episode; None where looking back at them takes too much room.
    retraced : Retraced or None
        Then each counts as it was known once its episode was seen.
    """

    beliefs: Sequence[Beliefs] | None = None
    retraced: Retraced | None = None

    @classmethod
    def of(cls, track: Track, scale: float, before: History) -> InForce:
        """From where the log begins."""
        with np.errstate(over="ignore", invalid="ignore"):
            beliefs = smoothed(track)
        return cls(track, scale, (), beliefs, Retraced.of(track, before) if beliefs is None else None)

    def step(self, episode: Episode) -> InForce:
        """One more episode."""
        known, number = _NOTHING, episode.number
        retraced = None if self.retraced is None else self.retraced.step(episode)
        if episode.by_policy and self.track.kind.ridge(episode.before).phi.any():
            belief = retraced.belief if retraced is not None else (self.beliefs or ())[number]
            known = _Known(belief, self.track.random_share(number))
        return replace(self, values=self._with(episode, known), retraced=retraced)


@dataclass(frozen=True)
class Ahead(_Propensities):
    """By the policy of each episode as it was predicted from those before it.

    Attributes
    ----------
    retraced : Retraced
    """

    retraced: Retraced | None = None

    @classmethod
    def of(cls, track: Track, before: History) -> Ahead:
        """From where the log begins."""
        return cls(track, 0.0, (), Retraced.of(track, before))

    def step(self, episode: Episode) -> Ahead:
        """One more episode."""
        assert self.retraced is not None  # `of` gives one
        known, now = _NOTHING, self.retraced.track
        if episode.by_policy and now.now is not None and now.kind.ridge(episode.before).phi.any():
            known = _Known(now.next_belief, now.random_share(episode.number))
        return replace(self, values=self._with(episode, known), retraced=self.retraced.step(episode))


@dataclass(frozen=True)
class Next(_Propensities):
    """By the policy right after the log that was tracked, whatever the episode."""

    def step(self, episode: Episode) -> Next:
        """One more episode."""
        known, track = _NOTHING, self.track
        before = track.kind.regularization.ridge(track.chosen)
        if track.now is not None and before.phi.any():
            known = _Known(track.next_belief, track.random_share(len(track.predicted)))
        return replace(self, values=self._with(episode, known, before))


def _propensities(block: Block, *, track: Track, before: Ridge, known: _Known, scale: float) -> Vector:
    counts = step_counts(block.offsets)
    if known.belief is None:
        return np.repeat(1.0 / counts, counts)
    p = probable(track.kind, track.kind.rule.columns(block, before), known.belief, _DRAWS, scale=scale)
    return with_share(p, counts, known.share)
