"""Is the log a sample of the decider's choices? Then its Gram matrix grew faster than the log shows.

A rate enters as a factor of l2 alone (`ibcb.numerics.ridge`), so that choices tell no rate from another l2. What they
do tell is that the l2 of the fit, given or the least that was tried, is too large for the Gram matrix of the log. Only
those of a decider that draws do: its spread shows beside its policy. Of one that adds a bonus the log-likelihood
favours one rate or another by chance (decision 0015).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from ibcb.deciders import Kind
from ibcb.engine import Episode, Heading
from ibcb.log.notes import Note
from ibcb.tracking import Track
from ibcb.tracking.contenders import Tracks, UntrackedError

#: the rate that is tried first, and the others
_MIDDLE, _OTHERS = 0.1, (0.3, 0.03)
#: episodes that are looked at: the first, in which l2 still matters
_EPISODES = 6
#: numbers of an episode up to which it is held, 32 MB; not tuned
_HELD_NUMBERS = 1 << 22
#: share of its policy that a decider owes to l2, after its first episode, below which no rate would show; not tuned
_MATTERS = 0.05
#: log-likelihood that a rate must add, and the share of the most that any adds from which a larger one is preferred
#: (judged on 16 logs, decision 0015)
_CLEAR, _ENOUGH = 20.0, 0.85


@dataclass(frozen=True)
class Sampling:
    """The same decider at another rate, on its way through the first episodes beside the track of the fit.

    Attributes
    ----------
    kind : Kind
        Of the fit.
    tracks : Tracks
        Of a rate in the middle, which explains a sample better, whichever it is: most logs are whole, as it tells.
    held : tuple of Episode
        The first episodes, for the other rates, should it come to that.
    steps : int
        Of the episodes but the first.
    matters : bool
        Whether a rate would show.
    """

    kind: Kind
    tracks: Tracks
    held: tuple[Episode, ...] = ()
    steps: int = 0
    matters: bool = True

    @classmethod
    def begin(cls, kind: Kind, heading: Heading) -> Sampling | None:
        """Before the first episode; None of kinds whose choices do not tell."""
        if not kind.words.spread:
            return None
        return cls(kind, Tracks.begin([replace(kind, rate=_MIDDLE)], heading.before.chosen.phi))

    def step(self, episode: Episode) -> Sampling:
        """One more episode, should it still be told."""
        if not self.matters or episode.number >= _EPISODES:
            return self
        if episode.number == 0:
            shrinkage = self.kind.ridge(episode.after).shrinkage
            if np.mean(1 - np.diag(shrinkage)) < _MATTERS:
                return replace(self, matters=False)
        light = episode.lesson.n_rows * self.tracks.n_features <= _HELD_NUMBERS
        tracks = _after(self.tracks, episode)
        if tracks is None or not light:
            return replace(self, matters=False)
        more = len(episode.lesson.chosen) if episode.number > 0 else 0
        return replace(self, tracks=tracks, held=(*self.held, episode), steps=self.steps + more)

    def finish(self, track: Track) -> tuple[Note, ...]:
        """A note where a decider that made more choices than the log has would explain it clearly better.

        ``track``: of the fit, through these episodes or more.
        """
        tracks, count = self.tracks, self.tracks.episodes
        # Where numbers cannot hold the choices of such a decider, what the fit says of it is enough.
        if not self.matters or count < 3 or any(tracks.failures):
            return ()
        judged = tracks.judged[max(2, count // 3) :]
        own = [each.log_likelihood for each in track.predicted[count - len(judged) : count]]
        here = float(np.average(own, weights=[each.steps for each in judged]))
        gains = {_MIDDLE: self.steps * (reduce(add, judged).per_step(0) - here)}
        if gains[_MIDDLE] <= _CLEAR:
            return ()
        for rate in _OTHERS:
            other: Tracks | None = Tracks.begin([replace(self.kind, rate=rate)], self.held[0].before.chosen.phi)
            for episode in self.held:
                other = other and _after(other, episode)
            if other is not None and not any(other.failures):
                gains[rate] = self.steps * (reduce(add, other.judged[count - len(judged) :]).per_step(0) - here)
        # The largest that will do: less and less is gained by going on.
        enough = _ENOUGH * max(gains.values())
        rate, gain = max((rate, gain) for rate, gain in gains.items() if gain >= enough)
        text = (
            f"the first {count} episodes are explained better (log-likelihood +{gain:.0f}) by a decider that made "
            f"about {1 / rate:.0f} times the choices of the log. If the log is a sample, set sampling_rate={rate:g} "
            f"(--sampling-rate {rate:g}). If it is complete, l2={self.kind.l2:g} is too large by that factor."
        )
        return (Note("looks-sampled", "info", text, {"rate": rate, "gain": gain}),)


def _after(tracks: Tracks, episode: Episode) -> Tracks | None:
    """Of one more episode; None where numbers cannot hold it."""
    try:
        with np.errstate(all="ignore"):
            return tracks.after(episode)
    except UntrackedError:
        return None
