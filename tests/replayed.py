"""Logs gone through as the library does it: their episodes, their first candidates, the track of a kind."""

import numpy as np

from ibcb.engine import Episode, Heading, History, Subscriber, replay
from ibcb.tracking import Track
from ibcb.tracking.choice_probabilities import Retraced


class Keeping(Subscriber):
    """Keeps all that a subscriber is told."""

    def __init__(self):
        self.heading: Heading | None = None
        self.episodes: list[Episode] = []

    def begin(self, heading):
        self.heading = heading
        return self

    def step(self, episode):
        self.episodes.append(episode)
        return self

    def finish(self):
        return self


def kept(log, **where) -> Keeping:
    """All that a subscriber is told of a log."""
    (found,) = replay([log], Keeping(), **where)
    return found


def episodes_of(log, **where) -> list[Episode]:
    """Every stored episode."""
    return kept(log, **where).episodes


def first_candidates(log):
    """Moments of the first candidates that the policy chose from."""
    return kept(log).heading.moments


class Given(Subscriber):
    """Propensities that are given, in the place of those that are recovered."""

    def __init__(self, values):
        self.left, self.values = values, ()

    def step(self, episode):
        own, self.left = np.split(self.left, [episode.lesson.n_rows])
        self.values = (*self.values, own)
        return self

    def finish(self):
        return np.concatenate(self.values)


def tracks_before(log, kind):
    """The track of a kind before each episode that the policy chose."""
    track, found = Track.begin(kind, np.zeros((log.n_features, log.n_features))), []
    for episode in episodes_of(log):
        found += [track] if episode.by_policy else []
        track = track.after(episode)
    return found


def tracked(log, kind, prior_gram=None) -> Track:
    """The track of a kind through a whole log, without solving anything."""
    gram = np.zeros((log.n_features, log.n_features)) if prior_gram is None else prior_gram
    before = History.before_the_log(gram).one_by_one()
    (track,) = replay([log], Retraced(Track.begin(kind, gram)), before=before)
    return track
