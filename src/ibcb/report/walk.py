"""One pass over a log, in memory or on disk: what its choices say of the policies, and of what was predicted.

Memory holds one part of the log and the sampled steps, whatever the log's size. The Gram matrix is that of the choices
before the episode, as when they were made.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.engine import Block
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.disk import DiskLog
from ibcb.log.fingerprint import NO_LOG, with_episode
from ibcb.log.history import EpisodePart, history
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Ridge
from ibcb.report.late_half import Late, LateHalf, Seen
from ibcb.report.rivals import Lessons, choice_weights, hits
from ibcb.report.scores import Decider, EpisodeThoughts, Scores, ThoughtTotals, score
from ibcb.report.shown_steps import EpisodeSample, Picks, SampledEpisode, room_per_episode, within_budget

__all__ = ["EpisodeTally", "LogWalk", "Prediction", "walk"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Prediction(NamedTuple):
    """What is judged: the policies predicted one episode ahead. All policies are per unit of alpha.

    Attributes
    ----------
    kind : Kind
        Whose scores candidates get, exploration included.
    ahead : ndarray of shape (N, d) or None
        Policy of each episode as it was predicted from the episodes before; None: as Algorithm 2 predicts it.
    believed : ndarray of shape (N, d)
        The same once the episode was seen.
    known : tuple of bool
        Which episodes could be predicted at all.
    metric : Metric or None
        In which Algorithm 2 moves as little as it can; None: Euclid's.
    """

    kind: Kind
    ahead: Matrix | None
    believed: Matrix
    known: tuple[bool, ...]
    metric: Metric | None

    @property
    def late(self) -> tuple[int, ...]:
        """The later half of the episodes that could be predicted."""
        known = [number for number, each in enumerate(self.known) if each]
        return tuple(known[len(known) // 2 :])


class EpisodeTally(NamedTuple):
    """What is said of an episode. Shares are of its steps; None where there is nothing to learn from, or nothing had
    been learned. ``rival`` is a choice model of the last episode.
    """

    thoughts: EpisodeThoughts
    agreed: float | None
    predicted: float | None
    rival: float | None
    chance: float


@dataclass(frozen=True)
class LogWalk:
    """What a pass over a log gave.

    Attributes
    ----------
    tallies : list of EpisodeTally
    sample : list of SampledEpisode
    fingerprint : str
    n_rows, n_steps : int
        Of the policy's episodes.
    warmup_steps : int
    fewest, most : int
        Candidates per step.
    rival_sampled : bool
        Whether the choice model saw a part of some episode only.
    late : Late or None
        How the later half was predicted; None where nothing was.
    """

    tallies: list[EpisodeTally]
    sample: list[SampledEpisode]
    fingerprint: str
    n_rows: int
    n_steps: int
    warmup_steps: int
    fewest: int
    most: int
    rival_sampled: bool
    late: Late | None


def walk(
    log: BehaviorLog | DiskLog,
    decider: Decider,
    prediction: Prediction,
    *,
    contradicting: Collection[tuple[int, int]] = (),
    steps: bool = True,
) -> LogWalk:
    """Go through a log once.

    Parameters
    ----------
    log : BehaviorLog, or what `ibcb.open_log` gave
    decider : Decider
        In the units of the page: over alpha if it has one, else with policies of length 1.
    prediction : Prediction
    contradicting : collection of (episode, step)
        Steps that certificates name; they are always shown.
    steps : bool
        False: sample no steps.
    """
    fingerprint, rival, sampled = NO_LOG, None, False
    before: Ridge | None = None
    tallies: list[EpisodeTally] = []
    sample: list[SampledEpisode] = []
    sizes: list[tuple[int, int, int, int]] = []
    warmup_steps, room = 0, 0
    late = LateHalf(prediction.late, prediction.kind)
    for number, entries in groupby(history(log, decider.prior_gram), key=attrgetter("number")):
        view: _EpisodeWalk | None = None
        own: Any = 0.0
        parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        for entry in entries:
            own = own + entry.own_gram
            parts.append((np.diff(entry.part.step_offsets), entry.part.chosen))
            if not entry.by_policy:
                continue
            if view is None:
                _check_number(number, len(decider.policies))
                now = decider.ridge(entry, warmup_steps + sum(size[0] for size in sizes))
                room = room or room_per_episode(entry.part, len(decider.policies))
                named = {step for episode, step in contradicting if episode == number}
                shown = EpisodeSample(number, decider.policies[number], named, room) if steps else None
                late.begin_episode(number, rival)
                view = _EpisodeWalk(decider, number, now, _ahead(prediction, number, before, now), rival, shown)
            seen = view.add(entry, prediction)
            late.add(number, entry, seen)
        counts, chosen = map(np.concatenate, zip(*parts, strict=True))
        fingerprint = with_episode(fingerprint, counts, chosen, own, by_policy=number >= 0)
        if view is None:
            warmup_steps += len(chosen)
            continue
        late.end_episode(number)
        tallies.append(view.tally())
        if view.shown is not None:
            sample.append(view.shown.episode())
        rival, cut = view.next_rival()
        sampled, before = sampled or cut, view.now
        sizes.append((len(chosen), int(counts.sum()), int(counts.min()), int(counts.max())))
    return LogWalk(
        tallies,
        within_budget(sample),
        fingerprint,
        n_rows=sum(size[1] for size in sizes),
        n_steps=sum(size[0] for size in sizes),
        warmup_steps=warmup_steps,
        fewest=min((size[2] for size in sizes), default=0),
        most=max((size[3] for size in sizes), default=0),
        rival_sampled=sampled,
        late=late.found(),
    )


def _check_number(number: int, fitted: int) -> None:
    if number >= fitted:
        raise ValueError(
            f"the log has an episode {number} but the model was fitted to episodes 0 to {fitted - 1}; give the log "
            "that it was fitted to."
        )


class _EpisodeWalk:
    """What is gathered while the parts of one episode go by.

    ``now``: what the choices before it leave behind. ``ahead``: the policy predicted, None where there is none.
    ``rival``: weights of a choice model of the last episode.
    """

    def __init__(
        self,
        decider: Decider,
        number: int,
        now: Ridge,
        ahead: Vector | None,
        rival: Vector | None,
        shown: EpisodeSample | None,
    ) -> None:
        self.decider, self.number, self.now, self.rival, self.shown = decider, number, now, rival, shown
        self.ahead = ahead
        self.thoughts = ThoughtTotals()
        self.hits = dict.fromkeys(("agreed", "predicted", "rival"), 0)
        self.blind = 0.0
        self.lessons = Lessons()

    def add(self, entry: EpisodePart, prediction: Prediction) -> Seen | None:
        """One more part of the episode; gives what was predicted of it."""
        part = entry.part
        scores = score(self.decider, self.number, self.now, part)
        picks = self._picks(part, scores, prediction)
        self.thoughts.add(scores)
        self.hits["agreed"] += int(np.count_nonzero(picks.picked == part.chosen))
        if self.rival is not None:
            self.hits["rival"] += int(np.count_nonzero(hits(self.rival, part)))
        self.blind += float((1.0 / np.diff(part.step_offsets)).sum())
        self.lessons.offer(part, (self.number, entry.first))
        if self.shown is not None:
            self.shown.add(part, entry.first, scores, picks)
        if picks.predicted is None or self.ahead is None:
            return None
        self.hits["predicted"] += int(np.count_nonzero(picks.predicted == part.chosen))
        preferred = argmax_per_step(part.contexts @ self.ahead, part)
        kept = _pick(part.contexts @ prediction.believed[self.number], part, preferred) == preferred
        width = scores.width if prediction.kind.adds_bonus else None
        return Seen(picks.predicted == part.chosen, preferred, kept, width)

    def _picks(self, part: BehaviorLog, scores: Scores, prediction: Prediction) -> Picks:
        luck = self.decider.alpha is None
        bonus = 0.0 if luck else scores.exploration
        total = scores.expected + bonus
        picked = _pick(total, part, part.chosen)
        greedy = _pick(scores.expected, part, part.chosen if luck else picked)
        if self.ahead is None:
            return Picks(total, picked, greedy, None)
        if prediction.ahead is None:
            # In double precision: what solves an episode exactly ties.
            ahead = np.asarray(part.contexts @ self.ahead, dtype=np.float64) + bonus
        else:
            block = Block(part.contexts, part.chosen_rows, part.step_offsets, part.candidates_per_step, 0, 0)
            ahead = prediction.kind.scores(block, self.now, self.ahead)
        return Picks(total, picked, greedy, _pick(ahead, part, part.chosen))

    def tally(self) -> EpisodeTally:
        thoughts = self.thoughts.thoughts(self.decider, self.number)
        shares = {name: hits / thoughts.steps for name, hits in self.hits.items()}
        learned = not np.isnan(thoughts.explored)
        return EpisodeTally(
            thoughts,
            shares["agreed"] if learned else None,
            None if self.ahead is None else shares["predicted"],
            None if self.rival is None else shares["rival"],
            self.blind / thoughts.steps,
        )

    def next_rival(self) -> tuple[Vector | None, bool]:
        """Weights of a choice model of this episode, None if it has nothing to learn; and whether it was sampled."""
        return choice_weights(self.lessons), not self.lessons.complete


def _ahead(prediction: Prediction, number: int, before: Ridge | None, now: Ridge) -> Vector | None:
    """The policy predicted of an episode; None where it could not be."""
    if not prediction.known[number]:
        return None
    if prediction.ahead is not None:
        policy: Vector = prediction.ahead[number]
        return policy
    if before is None:
        return None
    root = np.eye(len(now.phi)) if prediction.metric is None else prediction.metric.root
    return _predict(prediction.believed[number - 1], before, now, root)


def _predict(policy: Vector, before: Ridge, now: Ridge, root: Matrix) -> Vector:
    """The policy that the episodes before lead to: G theta with theta from ``policy`` = G_before theta.

    Phi_before theta = Psi_before ``policy``, and theta, which has moved as little as it could, lies in the range of
    T T' Phi_before, with T the ``root`` of the metric: there Phi_before can be undone.
    """
    w, V = np.linalg.eigh(root.T @ before.phi @ root)
    seen = w > len(w) * np.finfo(np.float64).eps * w[-1]
    theta = root @ (V[:, seen] @ ((V[:, seen].T @ (root.T @ (before.psi @ policy))) / w[seen]))
    ahead: Vector = now.shrinkage @ theta
    return ahead


def _pick(scores: Vector, part: BehaviorLog, preferred: NDArray[np.int64]) -> NDArray[np.int64]:
    """Best candidate of each step; the preferred one where nothing beats it by more than rounding.

    Equals are common: an exact solution lies where the chosen candidate just ties with another.
    """
    best = argmax_per_step(scores, part)
    starts = part.step_offsets[:-1]
    lead = scores[starts + best] - scores[starts + preferred]
    slack = 1e-9 if part.contexts.dtype == np.float64 else 1e-5
    picked: NDArray[np.int64] = np.where(lead > slack * float(np.abs(scores).max(initial=0.0)), best, preferred)
    return picked
