"""A judge of a model: how each episode was predicted, told while the log goes by, at the fit itself or afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, Episode, Subscriber
from ibcb.estimators.fitting import Fit
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.behavior_log import dense_pieces
from ibcb.numerics.ridge import Ridge
from ibcb.report.late_half import Late, LateHalf, Seen
from ibcb.report.misfits import LIKELY, READ_NUMBERS, Reading
from ibcb.report.rivals import Lessons, choice_weights, hits

__all__ = ["Judged", "Judging", "Rejudging", "pick", "prediction_of"]

Vector = NDArray[np.float64]


class Judged(NamedTuple):
    """What was found of an episode.

    Attributes
    ----------
    ahead : ndarray of shape (d,) or None
        The policy predicted of it, per unit of alpha; None where none could be.
    predicted : ndarray of shape (steps,) or None
        The candidate predicted at each step.
    strayed : ndarray of shape (steps,)
        How probable it is that each choice went astray.
    rival_hits : int or None
        Choices that a choice model of the episode before predicts; None where there is none.
    rival_sampled : bool
        Whether a choice model of this episode saw a part of it only.
    """

    ahead: Vector | None
    predicted: NDArray[np.int64] | None
    strayed: Vector
    rival_hits: int | None
    rival_sampled: bool


class Judging:
    """Gathers what a verdict goes by.

    Attributes
    ----------
    misfits : int
        Choices that do not fit the rest of their episode, so far.
    last : Judged or None
        Of the last episode.
    """

    def __init__(self) -> None:
        self.misfits = 0
        self.last: Judged | None = None
        self._late = LateHalf()
        self._rival: Vector | None = None
        self._before: Ridge | None = None

    def step(self, episode: Episode, fit: Fit) -> Judging:
        """One more episode that the policy chose; ``fit`` has seen it."""
        kind, number = fit.kind, episode.number
        now = kind.ridge(episode.before)
        ahead, believed = prediction_of(fit, number, self._before, now)
        self._late.begin_episode(number, self._rival, kind, predicted=ahead is not None)
        reading = Reading(kind.top_k)
        lessons, rival_hits, first = Lessons(), 0, 0
        predicted, strayed = list[NDArray[np.int64]](), list[Vector]()
        for part, width in self._read(episode, reading, now):
            seen = None
            if ahead is not None:
                expected = _predicted(fit, number, now, ahead, part)
                seen = _seen(expected, ahead, believed, part, None if kind.per_unit is None else width)
                predicted.append(expected)
            strayed.append(reading.strayed(part, width))
            if self._rival is not None:
                rival_hits += int(np.count_nonzero(hits(self._rival, part)))
            lessons.offer(part, (number, first))
            self._late.add(number, first, part, seen)
            first += part.n_steps
        self._late.end_episode()
        astray = np.concatenate(strayed)
        self.misfits += int(np.count_nonzero(astray > LIKELY))
        self.last = Judged(
            ahead,
            np.concatenate(predicted) if predicted else None,
            astray,
            None if self._rival is None else rival_hits,
            not lessons.complete,
        )
        self._rival, self._before = choice_weights(lessons), now
        return self

    def _read(self, episode: Episode, reading: Reading, now: Ridge) -> Iterator[tuple[BehaviorLog, Vector]]:
        """The parts of an episode with the widths of their candidates, once its weights have been found."""
        parts = ((part, now.widths(part.contexts.astype(np.float64, copy=False))) for part in dense_parts(episode))
        some, numbers = [], 0
        for pair in parts:
            some.append(pair)
            numbers += pair[0].contexts.size
            if numbers >= READ_NUMBERS:
                break
        reading.find(some)
        return chain(some, parts)

    def late(self) -> Late | None:
        """How the later half was predicted; None where nothing was."""
        return self._late.found()


class Rejudging(Subscriber):
    """Judges a model on the log that it was fitted to, afterwards; ``names``: of the log after each stored episode."""

    def __init__(self, fit: Fit) -> None:
        self.fit, self.judging, self.names, self.steps = fit, Judging(), list[str](), list[int]()

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


def dense_parts(episode: Episode) -> Iterator[BehaviorLog]:
    """The parts of an episode, with dense contexts."""
    for part in episode.rows.parts():
        yield from dense_pieces(part)


def prediction_of(fit: Fit, number: int, before: Ridge | None, now: Ridge) -> tuple[Vector | None, Vector]:
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


def _predicted(fit: Fit, number: int, now: Ridge, ahead: Vector, part: BehaviorLog) -> NDArray[np.int64]:
    """The candidate predicted at each step, exploration included."""
    # In double precision where there is no tracker: what solves an episode exactly ties.
    contexts = part.contexts if fit.track is not None else part.contexts.astype(np.float64, copy=False)
    block = Block(contexts, part.chosen_rows, part.step_offsets, part.candidates_per_step, 0, 0)
    added = None if fit.track is None else fit.track.added[number]
    return pick(fit.kind.scores(block, now, ahead, added), part, part.chosen)


def _seen(
    predicted: NDArray[np.int64], ahead: Vector, believed: Vector, part: BehaviorLog, width: Vector | None
) -> Seen:
    preferred = argmax_per_step(part.contexts @ ahead, part)
    kept = pick(part.contexts @ believed, part, preferred) == preferred
    return Seen(predicted == part.chosen, preferred, kept, width)


def pick(scores: Vector, part: BehaviorLog, preferred: NDArray[np.int64]) -> NDArray[np.int64]:
    """Best candidate of each step; the preferred one where nothing beats it by more than rounding.

    Equals are common: an exact solution lies where the chosen candidate just ties with another.
    """
    best = argmax_per_step(scores, part)
    starts = part.step_offsets[:-1]
    lead = scores[starts + best] - scores[starts + preferred]
    slack = 1e-9 if part.contexts.dtype == np.float64 else 1e-5
    picked: NDArray[np.int64] = np.where(lead > slack * float(np.abs(scores).max(initial=0.0)), best, preferred)
    return picked
