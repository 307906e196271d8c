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
from ibcb.numerics.directions import direction
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Ridge
from ibcb.report.influence import Spreads, StepSpread
from ibcb.report.late_half import Late, LateHalf, Seen
from ibcb.report.misfits import EpisodeReader, MisfitList, Misfits, Scored
from ibcb.report.rivals import Lessons, choice_weights, hits
from ibcb.report.scores import Decider, EpisodeThoughts, Scores, ThoughtTotals, score
from ibcb.report.shown_steps import EpisodeSample, Picks, SampledEpisode, room_per_episode, within_budget

__all__ = ["Counts", "EpisodeTally", "LogWalk", "Prediction", "walk"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: steps of an episode that tell how far the decider's own draws decide, and draws for each; a standard error of .03
_DRAWN_STEPS, _DRAWS = 200, 64
#: numbers and steps of the sample on which past policies are compared with today's
_TODAY_NUMBERS, _TODAY_STEPS = 1 << 20, 2000


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
    unit : float or None
        What these policies are multiplied with on the page; None: they are brought to length 1.
    scale : float
        Of scores, where one of the best candidates is drawn by their softmax.
    """

    kind: Kind
    ahead: Matrix | None
    believed: Matrix
    known: tuple[bool, ...]
    metric: Metric | None
    unit: float | None
    scale: float

    def shown(self, policy: Vector) -> Vector:
        """A policy in the unit of the page."""
        return direction(policy) if self.unit is None else self.unit * policy

    @property
    def late(self) -> tuple[int, ...]:
        """The later half of the episodes that could be predicted."""
        known = [number for number, each in enumerate(self.known) if each]
        return tuple(known[len(known) // 2 :])


class Counts(NamedTuple):
    """Steps: whose choice the policy of the time would not make, that was not predicted, that exploration decided."""

    disagreed: int
    surprised: int
    explored: int


class EpisodeTally(NamedTuple):
    """What is said of an episode. Shares are of its steps; None where there is nothing to learn from, or nothing had
    been learned. ``rival`` is a choice model of the last episode. ``drawn``: how often the decider's own draws take
    another candidate than the best expected one; None of kinds that do not draw. ``time``: of its first step.
    """

    thoughts: EpisodeThoughts
    agreed: float | None
    predicted: float | None
    rival: float | None
    chance: float
    drawn: float | None
    counts: Counts
    time: Any


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
    misfits : Misfits
    spreads : Spreads
        How far candidates of a step differ.
    today : BehaviorLog
        Some of the latest steps.
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
    misfits: Misfits
    spreads: Spreads
    today: BehaviorLog


def walk(
    log: BehaviorLog | DiskLog,
    decider: Decider,
    prediction: Prediction,
    spread: StepSpread,
    *,
    today: int,
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
    spread : StepSpread
        Is shown every part that the policy chose.
    today : int
        The first of the episodes that past policies are compared on.
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
    misfits, lately = MisfitList(), Lessons(_TODAY_NUMBERS, _TODAY_STEPS)
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
                ahead = _ahead(prediction, number, before, now)
                shown = None
                if steps:
                    as_shown = None if ahead is None else prediction.shown(ahead)
                    shown = EpisodeSample(number, decider.policies[number], as_shown, named, room)
                late.begin_episode(number, rival)
                misfits.begin_episode()
                view = _EpisodeWalk(decider, number, now, ahead, rival, shown, prediction, misfits)
            seen = view.add(entry)
            spread.add(entry.part)
            if number >= today:
                lately.offer(entry.part, (number, entry.first))
            late.add(number, entry, seen)
        counts, chosen = map(np.concatenate, zip(*parts, strict=True))
        fingerprint = with_episode(fingerprint, counts, chosen, own, by_policy=number >= 0)
        if view is None:
            warmup_steps += len(chosen)
            continue
        view.end()
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
        misfits=misfits.found(),
        spreads=spread.found(),
        today=lately.log(),
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

    time: Any = None

    def __init__(
        self,
        decider: Decider,
        number: int,
        now: Ridge,
        ahead: Vector | None,
        rival: Vector | None,
        shown: EpisodeSample | None,
        prediction: Prediction,
        misfits: MisfitList,
    ) -> None:
        self.decider, self.number, self.now, self.rival, self.shown = decider, number, now, rival, shown
        self.ahead, self.prediction, self.misfits = ahead, prediction, misfits
        kind = prediction.kind
        self.reader = EpisodeReader(kind.top_k if kind.draws_from_best else 1)
        self.drawn, self.drawn_steps = 0.0, 0
        self.thoughts = ThoughtTotals()
        self.hits = dict.fromkeys(("agreed", "predicted", "rival"), 0)
        self.blind = 0.0
        self.lessons = Lessons()

    def add(self, entry: EpisodePart) -> Seen | None:
        """One more part of the episode; gives what was predicted of it."""
        part, prediction = entry.part, self.prediction
        scores = score(self.decider, self.number, self.now, part)
        picks = self._picks(part, scores)
        if self.time is None and part.timestamps is not None:
            self.time = part.timestamps[0]
        self._draw(part)
        self.thoughts.add(scores)
        self.hits["agreed"] += int(np.count_nonzero(picks.picked == part.chosen))
        if self.rival is not None:
            self.hits["rival"] += int(np.count_nonzero(hits(self.rival, part)))
        self.blind += float((1.0 / np.diff(part.step_offsets)).sum())
        self.lessons.offer(part, (self.number, entry.first))
        self._read(self.reader.add(Scored(entry, scores, picks)))
        if picks.predicted is None or self.ahead is None:
            return None
        self.hits["predicted"] += int(np.count_nonzero(picks.predicted == part.chosen))
        preferred = argmax_per_step(part.contexts @ self.ahead, part)
        kept = _pick(part.contexts @ prediction.believed[self.number], part, preferred) == preferred
        width = scores.width if prediction.kind.adds_bonus else None
        return Seen(picks.predicted == part.chosen, preferred, kept, width)

    def end(self) -> None:
        """The episode is over."""
        self._read(self.reader.end())

    def _read(self, read: list[tuple[Scored, Vector]]) -> None:
        for scored, strayed in read:
            self.misfits.add(scored, strayed)
            if self.shown is not None:
                entry, scores, picks = scored
                self.shown.add(entry.part, entry.first, scores, picks, strayed)

    def _draw(self, part: BehaviorLog) -> None:
        """How often the decider's draws take another candidate than the best expected one, by its policy."""
        kind, policy = self.prediction.kind, self.prediction.believed[self.number]
        steps = min(part.n_steps, _DRAWN_STEPS - self.drawn_steps)
        if not kind.words.explored or not kind.draws or steps <= 0 or not policy.any():
            return
        offsets = part.step_offsets[: steps + 1]
        X = part.contexts[: offsets[-1]].astype(np.float64, copy=False)
        block = Block(X, part.chosen_rows[:steps], offsets, part.candidates_per_step, 0, 0)
        certain = Beliefs(policy[None], np.zeros((1, len(policy), len(policy))))
        p = kind.propensities(block, self.now, certain, _DRAWS, scale=self.prediction.scale)
        expected = X @ policy
        best = expected >= np.repeat(np.maximum.reduceat(expected, offsets[:-1]), np.diff(offsets))
        self.drawn += steps - float(p[best].sum())
        self.drawn_steps += steps

    def _picks(self, part: BehaviorLog, scores: Scores) -> Picks:
        prediction = self.prediction
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
            max(0.0, self.drawn / self.drawn_steps) if self.drawn_steps else None,
            self._counts(),
            self.time,
        )

    def _counts(self) -> Counts:
        steps = self.thoughts.steps
        surprised = 0 if self.ahead is None else steps - self.hits["predicted"]
        return Counts(steps - self.hits["agreed"], surprised, self.thoughts.explored)

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
