"""A judge of a model: how each episode was predicted, told while the log goes by, at the fit itself or afterwards."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Episode, Subscriber
from ibcb.estimators.fitting import Fit
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.numerics.arrays import Vector
from ibcb.numerics.ridge import Ridge
from ibcb.report.late_half import LateHalf, Seen
from ibcb.report.lessons import Lessons
from ibcb.report.reading import LIKELY, ReadPart, block_of, in_double, read_parts
from ibcb.report.rivals import choice_weights, hits
from ibcb.report.verdict import Figures

__all__ = ["Judging", "Listener", "Outlook", "Rejudging", "pick"]

Candidates = NDArray[np.int64]


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


class Listener(Protocol):
    """Somebody who is told what the judge makes of an episode, part by part."""

    def begin_episode(self, episode: Episode, outlook: Outlook) -> None:
        """Another one."""

    def add(self, part: ReadPart, predicted: Candidates | None, rival_hits: int) -> None:
        """A part of it, the candidate predicted at each step, and how many choices the rival predicts."""

    def end_episode(self, *, rival_sampled: bool) -> None:
        """It is over; whether the choice model that rivals the model in the next one saw a part of it only."""


class Judging:
    """Gathers what a verdict goes by.

    Attributes
    ----------
    misfits : int
        Choices that do not fit the rest of their episode, so far.
    """

    def __init__(self, listener: Listener | None = None) -> None:
        self.misfits = 0
        self._listener, self._late = listener, LateHalf()
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
        for part in read_parts(episode, kind, now):
            predicted = seen = None
            if ahead is not None:
                predicted = _predicted(fit, number, now, ahead, part.log)
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
    """Judges a model on the log that it was fitted to, afterwards; ``names``: of the log after each stored episode."""

    def __init__(self, fit: Fit, listener: Listener | None = None) -> None:
        self.fit, self.judging, self.warmup_steps = fit, Judging(listener), 0
        self.names, self.steps = list[str](), list[int]()

    def step(self, episode: Episode) -> Rejudging:
        """One more episode; raises where the model has not seen so many."""
        self.names.append(episode.after.fingerprint)
        if episode.by_policy:
            fitted = len(self.fit.evolution.policies)
            if episode.number >= fitted:
                raise ValueError(
                    f"the log has an episode {episode.number} but the model was fitted to episodes 0 to {fitted - 1}; "
                    "give the log that it was fitted to."
                )
            self.steps.append(len(episode.lesson.chosen))
            self.judging.step(episode, self.fit)
        else:
            self.warmup_steps += len(episode.lesson.chosen)
        return self

    def finish(self) -> Rejudging:
        """Itself; raises where the log cannot be the fitted one."""
        fitted = self.fit.evolution.diagnostics
        if len(self.steps) != len(fitted):
            raise ValueError(
                f"the log has {len(self.steps)} episodes but the model was fitted to {len(fitted)}; give the log that "
                "it was fitted to."
            )
        for number, (steps, entry) in enumerate(zip(self.steps, fitted, strict=True)):
            if steps != entry.steps:
                raise ValueError(
                    f"episode {number} of the log has {steps} steps but that of the fitted log had {entry.steps}; give "
                    "the log that the model was fitted to."
                )
        return self

    @property
    def same(self) -> bool:
        """Whether the log so far is the fitted one."""
        return tuple(self.names) == self.fit.evolution.names[: len(self.names)]


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


def _predicted(fit: Fit, number: int, now: Ridge, ahead: Vector, part: BehaviorLog) -> Candidates:
    """The candidate predicted at each step, exploration included."""
    # In double precision where there is no tracker: what solves an episode exactly ties.
    block = block_of(part, part.contexts if fit.track is not None else in_double(part))
    added = None if fit.track is None else fit.track.added[number]
    return pick(fit.kind.scores(block, now, ahead, added), part, part.chosen)


def pick(scores: Vector, part: BehaviorLog, preferred: Candidates) -> Candidates:
    """Best candidate of each step; the preferred one where nothing beats it by more than rounding.

    Equals are common: an exact solution lies where the chosen candidate just ties with another.
    """
    best = argmax_per_step(scores, part)
    starts = part.step_offsets[:-1]
    lead = scores[starts + best] - scores[starts + preferred]
    slack = 1e-9 if part.contexts.dtype == np.float64 else 1e-5
    picked: Candidates = np.where(lead > slack * float(np.abs(scores).max(initial=0.0)), best, preferred)
    return picked
