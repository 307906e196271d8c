"""A judge of a model: how each episode was predicted, told while the log goes by, at the fit itself or afterwards."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ibcb.engine import Episode, Subscriber
from ibcb.estimators.fitting import Fit
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.numerics.arrays import Vector
from ibcb.numerics.ridge import Ridge
from ibcb.report.late_half import LateHalf, Seen
from ibcb.report.lessons import Lessons
from ibcb.report.reading import LIKELY, pick, picked_by, read_parts
from ibcb.report.rivals import choice_weights, hits
from ibcb.report.verdict import Figures, explained_exactly


class Outlook(NamedTuple):
    """What is known of an episode before its choices are seen.

    Attributes
    ----------
    now : Ridge
        What the choices before it leave behind.
    ahead : ndarray of shape (d,) or None
        The policy predicted of it, per unit of alpha; None where none could be.
    rival : ndarray of shape (d,) or None
        Weights of a choice model of the episode before.
    """

    now: Ridge
    ahead: Vector | None
    rival: Vector | None


class Judging:
    """Gathers what a verdict goes by; a ``listener`` is told of it part by part, see `ibcb.report.walking.Walking`.

    Attributes
    ----------
    misfits : int
        Choices that do not fit the rest of their episode, so far.
    """

    def __init__(self, listener: Any = None, *, excused: bool = False) -> None:
        self.misfits = 0
        self._listener, self._excused, self._late = listener, excused, LateHalf()
        self._rival: Vector | None = None
        self._before: Ridge | None = None

    def step(self, episode: Episode, fit: Fit) -> Judging:
        """One more episode that the policy chose; ``fit`` has seen it."""
        kind, number, listener = fit.kind, episode.number, self._listener
        now = kind.ridge(episode.before)
        ahead, believed = _prediction_of(fit, number, self._before, now)
        self._late.begin_episode(number, self._rival, predicted=ahead is not None)
        if listener is not None:
            listener.begin_episode(episode, Outlook(now, ahead, self._rival))
        lessons = Lessons()
        for part in read_parts(episode, fit, now, excused=self._excused):
            predicted = seen = None
            if ahead is not None:
                predicted = picked_by(fit, number, now, ahead, part.log)
                preferred = argmax_per_step(part.log.contexts @ ahead, part.log)
                kept = pick(part.log.contexts @ believed, part.log, preferred) == preferred
                seen = Seen(predicted == part.log.chosen, preferred, kept)
            rival_hits = 0 if self._rival is None else int(np.count_nonzero(hits(self._rival, part.log)))
            lessons.offer(part.log, part.place)
            self._late.add(part, seen, kind)
            self.misfits += int(np.count_nonzero(part.strayed > LIKELY))
            if listener is not None:
                listener.add(part, predicted, rival_hits)
        self._late.end_episode()
        if listener is not None:
            listener.end_episode(rival_sampled=not lessons.complete)
        self._rival, self._before = choice_weights(lessons), now
        return self

    def late(self) -> tuple[Figures, BehaviorLog] | None:
        """How the later half was predicted, and some of its steps; None where nothing was."""
        return self._late.finish()


class Rejudging(Subscriber):
    """Judges a model on the log that it was fitted to, afterwards.

    Attributes
    ----------
    names : list of str
        Of the log after each stored episode.
    differs : int or None
        The first episode that is not the one that was fitted; None where all are.
    warmup_steps : int
    """

    differs: int | None

    def __init__(self, fit: Fit, listener: Any = None) -> None:
        excused = explained_exactly(fit.evolution.theta, fit.evolution.diagnostics)
        self.fit, self.judging, self.warmup_steps = fit, Judging(listener, excused=excused), 0
        self.names, self.differs = list[str](), None

    def step(self, episode: Episode) -> Rejudging:
        """One more episode; raises where the model has not seen so many, or not so long ones."""
        fitted, name = self.fit.evolution.names, episode.after.fingerprint
        if self.same and name not in fitted[len(self.names) : len(self.names) + 1]:
            self.differs = episode.number
        self.names.append(name)
        if not episode.by_policy:
            self.warmup_steps += len(episode.lesson.chosen)
            return self
        diagnostics, steps = self.fit.evolution.diagnostics, len(episode.lesson.chosen)
        if episode.number >= len(diagnostics):
            raise ValueError(
                f"the log has an episode {episode.number} but the model was fitted to episodes 0 to "
                f"{len(diagnostics) - 1}; give the log that it was fitted to{self._beginning(episode.number)}."
            )
        if steps != diagnostics[episode.number].steps:
            raise ValueError(
                f"episode {episode.number} of the log has {steps} steps but that of the fitted log had "
                f"{diagnostics[episode.number].steps}; give the log that the model was fitted to."
            )
        self.judging.step(episode, self.fit)
        return self

    def _beginning(self, episodes: int) -> str:
        """What to do where the log goes on after the fitted one."""
        return f", log[:{episodes}], or fit all of it" if self.same or self.differs == episodes else ""

    def finish(self) -> Rejudging:
        """Itself; raises where the log is shorter than the fitted one."""
        fitted = self.fit.evolution.names
        if len(self.names) != len(fitted):
            warmup = len(fitted) - len(self.fit.evolution.diagnostics)
            raise ValueError(
                f"the log has {max(0, len(self.names) - warmup)} episodes but the model was fitted to "
                f"{len(fitted) - warmup}; give the log that it was fitted to."
            )
        return self

    @property
    def same(self) -> bool:
        """Whether the log so far is the fitted one."""
        return self.differs is None

    def check(self) -> None:
        """Raise ValueError where the log is as large as the fitted one, but another."""
        if self.differs is not None:
            raise ValueError(
                f"this is not the log that the model was fitted to: {_named(self.differs)} has other candidates or "
                f"choices (fingerprint {self.names[-1]}, of the fitted log {self.fit.evolution.names[-1]}). A verdict "
                "is on the log that was fitted: give that one, or fit a model to this one; model.score(log) says how "
                "often it is right on other logs."
            )


def _named(number: int) -> str:
    return f"episode {number}" if number >= 0 else "the warm-up"


def _prediction_of(fit: Fit, number: int, before: Ridge | None, now: Ridge) -> tuple[Vector | None, Vector]:
    """The policy predicted of an episode, None where it could not be, and what was believed once it was seen.

    What `predict` uses: the tracker's, or Algorithm 2's where there is no tracker. ``before`` and ``now``: what the
    choices before the last episode, and before this one, leave behind.
    """
    track, evolution = fit.track, fit.evolution
    if track is not None:
        ahead: Vector = track.ahead[number]
        return (ahead if ahead.any() else None), track.policies[number]
    believed: Vector = evolution.policies[number]
    if evolution.diagnostics[number].next_agreement is None or before is None:
        return None, believed
    root = np.eye(len(now.phi)) if evolution.metric is None else evolution.metric.root
    # The last policy is G_before theta: Phi_before theta = Psi_before policy. theta has moved as little as it could,
    # and lies in the range of T T' Phi_before, with T the root of the metric: there Phi_before can be undone.
    w, V = np.linalg.eigh(root.T @ before.phi @ root)
    told = w > len(w) * np.finfo(np.float64).eps * w[-1]
    last = before.psi @ evolution.policies[number - 1]
    theta = root @ (V[:, told] @ ((V[:, told].T @ (root.T @ last)) / w[told]))
    return now.shrinkage @ theta, believed
