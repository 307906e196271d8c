"""One pass over a log, in memory or on disk: what each episode's choices say of the recovered policies.

Memory holds one part of the log and the sampled steps, whatever the log's size. The Gram matrix is that of the choices
before the episode, as when they were made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.estimators.choice_model import ChoiceModel
from ibcb.inverse.solvers import SolverError
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.disk import DiskLog
from ibcb.log.fingerprint import NO_LOG, with_episode
from ibcb.log.history import EpisodePart, history
from ibcb.numerics.ridge import Ridge, ridge
from ibcb.report.scores import Decider, EpisodeThoughts, Scores, ThoughtTotals, score
from ibcb.report.shown_steps import (
    EpisodeSample,
    Keeper,
    Picks,
    SampledEpisode,
    room_per_episode,
    step_keys,
    within_budget,
)

__all__ = ["EpisodeTally", "LogWalk", "walk"]

Vector = NDArray[np.float64]

#: numbers (steps x candidates x features) of an episode that the choice model learns from
_RIVAL_NUMBERS = 1 << 20


class EpisodeTally(NamedTuple):
    """What is said of an episode. Shares are of its steps; None where there is nothing to learn from, or nothing had
    been learned.
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


def walk(
    log: BehaviorLog | DiskLog,
    decider: Decider,
    *,
    predictable: Sequence[bool],
    contradicting: Collection[tuple[int, int]] = (),
    steps: bool = True,
) -> LogWalk:
    """Go through a log once.

    Parameters
    ----------
    log : BehaviorLog, or what `ibcb.open_log` gave
    decider : Decider
        In the units of the page: over alpha if it has one, else with policies of length 1.
    predictable : sequence of bool
        Whether each episode can be predicted from the one before.
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
                now = ridge(entry.gram, decider.l2)
                room = room or room_per_episode(entry.part, len(decider.policies))
                named = {step for episode, step in contradicting if episode == number}
                shown = EpisodeSample(number, decider.policies[number], named, room) if steps else None
                known = before if predictable[number] else None
                view = _EpisodeWalk(decider, number, known, now, rival, shown)
            view.add(entry)
        counts, chosen = map(np.concatenate, zip(*parts, strict=True))
        fingerprint = with_episode(fingerprint, counts, chosen, own, by_policy=number >= 0)
        if view is None:
            warmup_steps += len(chosen)
            continue
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
    )


def _check_number(number: int, fitted: int) -> None:
    if number >= fitted:
        raise ValueError(
            f"the log has an episode {number} but the model was fitted to episodes 0 to {fitted - 1}; give the log "
            "that it was fitted to."
        )


class _EpisodeWalk:
    """What is gathered while the parts of one episode go by.

    ``before``, ``now``: what the choices before the last episode and before this one leave behind; without ``before``
    nothing is predicted. ``rival``: weights of a choice model of the last episode.
    """

    def __init__(
        self,
        decider: Decider,
        number: int,
        before: Ridge | None,
        now: Ridge,
        rival: Vector | None,
        shown: EpisodeSample | None,
    ) -> None:
        self.decider, self.number, self.now, self.rival, self.shown = decider, number, now, rival, shown
        self.predicting = None if before is None else _predict(decider.policies[number - 1], before, now)
        self.thoughts = ThoughtTotals()
        self.hits = dict.fromkeys(("agreed", "predicted", "rival"), 0)
        self.blind = 0.0
        self.lessons = Keeper(0)
        self.lesson: dict[int, tuple[NDArray[Any], int]] = {}

    def add(self, entry: EpisodePart) -> None:
        """One more part of the episode."""
        part = entry.part
        scores = score(self.decider, self.number, self.now, part)
        picks = self._picks(part, scores)
        self.thoughts.add(scores)
        self.hits["agreed"] += int(np.count_nonzero(picks.picked == part.chosen))
        if picks.predicted is not None:
            self.hits["predicted"] += int(np.count_nonzero(picks.predicted == part.chosen))
        if self.rival is not None:
            picked = argmax_per_step(part.contexts @ self.rival, part)
            self.hits["rival"] += int(np.count_nonzero(picked == part.chosen))
        self.blind += float((1.0 / np.diff(part.step_offsets)).sum())
        self._learn(part, entry.first)
        if self.shown is not None:
            self.shown.add(part, entry.first, scores, picks)

    def _picks(self, part: BehaviorLog, scores: Scores) -> Picks:
        luck = self.decider.alpha is None
        bonus = 0.0 if luck else scores.exploration
        total = scores.expected + bonus
        picked = _pick(total, part, part.chosen)
        greedy = _pick(scores.expected, part, part.chosen if luck else picked)
        if self.predicting is None:
            return Picks(total, picked, greedy, None)
        ahead = np.asarray(part.contexts @ self.predicting, dtype=np.float64) + bonus
        return Picks(total, picked, greedy, _pick(ahead, part, part.chosen))

    def tally(self) -> EpisodeTally:
        thoughts = self.thoughts.thoughts(self.decider, self.number)
        shares = {name: hits / thoughts.steps for name, hits in self.hits.items()}
        learned = not np.isnan(thoughts.explored)
        return EpisodeTally(
            thoughts,
            shares["agreed"] if learned else None,
            None if self.predicting is None else shares["predicted"],
            None if self.rival is None else shares["rival"],
            self.blind / thoughts.steps,
        )

    # -- the choice model that learns from this episode ------------------------------------------------------------

    def _learn(self, part: BehaviorLog, first: int) -> None:
        if self.lessons.size == 0:
            self.lessons.size = max(50, _RIVAL_NUMBERS * part.n_steps // part.contexts.size)
        self.lessons.offer(np.arange(first, first + part.n_steps), step_keys(self.number, first, part.n_steps))
        kept = set(self.lessons.steps)
        self.lesson = {step: content for step, content in self.lesson.items() if step in kept}
        for step in kept - self.lesson.keys():
            # A copy: a view would keep all of the part in memory.
            self.lesson[step] = (part.candidates(step - first).copy(), int(part.chosen[step - first]))

    def next_rival(self) -> tuple[Vector | None, bool]:
        """Weights of a choice model of this episode, None if it has nothing to learn; and whether it was sampled."""
        lessons = [self.lesson[step] for step in sorted(self.lesson)]
        log = BehaviorLog(
            np.concatenate([contexts for contexts, _ in lessons]),
            np.cumsum([0, *(len(contexts) for contexts, _ in lessons)]),
            [chosen for _, chosen in lessons],
            [0, len(lessons)],
        )
        try:
            weights = ChoiceModel(episodes=1).fit(log).coef_
        except (ValueError, SolverError):
            weights = None
        return weights, len(lessons) < self.thoughts.steps


def _predict(policy: Vector, before: Ridge, now: Ridge) -> Vector:
    """The policy that the episodes before lead to: G theta with theta from ``policy`` = G_before theta.

    theta lies in the range of Phi_before, where G_before can be undone: along an eigenvector of Phi_before with
    eigenvalue w, G multiplies by w / (w + l2).
    """
    w, V = np.linalg.eigh(before.phi)
    seen = w > len(w) * np.finfo(np.float64).eps * w[-1]
    theta = V[:, seen] @ ((V[:, seen].T @ policy) * (w[seen] + before.l2) / w[seen])
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
