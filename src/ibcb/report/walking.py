"""What a page tells of each episode: gathered while the log goes by once, beside the judge of the model.

Memory holds one part of the log and the sampled steps, whatever the log's size. The Gram matrix is that of the choices
before the episode, as when they were made.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, Episode, Subscriber
from ibcb.estimators.fitting import Fit
from ibcb.log import BehaviorLog
from ibcb.numerics.metric import direction
from ibcb.numerics.ridge import Ridge
from ibcb.report.influence import Spreads, StepSpread
from ibcb.report.judging import Judged, Rejudging, dense_parts, pick
from ibcb.report.misfits import MisfitList, Misfits
from ibcb.report.rivals import Lessons
from ibcb.report.scores import Decider, EpisodeThoughts, Scores, ThoughtTotals, score
from ibcb.report.shown_steps import EpisodeSample, Picks, SampledEpisode, room_per_episode, within_budget

__all__ = ["Counts", "EpisodeTally", "LogWalk", "Walking"]

Vector = NDArray[np.float64]

#: steps of an episode that tell how far the decider's own draws decide, and draws for each; a standard error of .03
_DRAWN_STEPS, _DRAWS = 200, 64
#: numbers and steps of the sample on which past policies are compared with today's
_TODAY_NUMBERS, _TODAY_STEPS = 1 << 20, 2000


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
    n_rows, n_steps : int
        Of the policy's episodes.
    warmup_steps : int
    fewest, most : int
        Candidates per step.
    rival_sampled : bool
        Whether the choice model saw a part of some episode only.
    misfits : Misfits
    spreads : Spreads
        How far candidates of a step differ.
    today : BehaviorLog
        Some of the latest steps.
    """

    tallies: list[EpisodeTally]
    sample: list[SampledEpisode]
    n_rows: int
    n_steps: int
    warmup_steps: int
    fewest: int
    most: int
    rival_sampled: bool
    misfits: Misfits
    spreads: Spreads
    today: BehaviorLog


class Walking(Subscriber):
    """A subscriber that comes after the judge.

    Parameters
    ----------
    decider : Decider
        In the units of the page: over alpha if it has one, else with policies of length 1.
    rejudging : Rejudging
        What it found of the episode is taken from here.
    unit : float or None
        What policies per unit of alpha are multiplied with on the page; None: they are brought to length 1.
    spread : StepSpread
        Is shown every part that the policy chose.
    today : int
        The first of the episodes that past policies are compared on.
    contradicting : collection of (episode, step)
        Steps that certificates name; they are always shown.
    steps : bool
        False: sample no steps.
    """

    def __init__(
        self,
        decider: Decider,
        rejudging: Rejudging,
        unit: float | None,
        spread: StepSpread,
        *,
        today: int,
        contradicting: Collection[tuple[int, int]] = (),
        steps: bool = True,
    ) -> None:
        self._decider, self._rejudging, self._unit, self._spread = decider, rejudging, unit, spread
        self._today, self._contradicting, self._steps = today, contradicting, steps
        self._tallies: list[EpisodeTally] = []
        self._sample: list[SampledEpisode] = []
        self._sizes: list[NDArray[np.int64]] = []
        self._misfits, self._lately = MisfitList(), Lessons(_TODAY_NUMBERS, _TODAY_STEPS)
        self._warmup_steps, self._room, self._sampled = 0, 0, False

    def step(self, episode: Episode) -> Walking:
        """One more episode."""
        counts, number = episode.lesson.counts, episode.number
        if not episode.by_policy:
            self._warmup_steps += len(counts)
            return self
        judged = self._rejudging.judging.last
        assert judged is not None  # the judge comes first
        view: _EpisodeWalk | None = None
        first = 0
        self._misfits.begin_episode()
        for part in dense_parts(episode):
            if view is None:
                self._room = self._room or room_per_episode(part, len(self._decider.policies))
                now = self._decider.kind.ridge(episode.before)
                view = _EpisodeWalk(self._decider, self._rejudging.fit, number, now, self._shown(number, judged))
            steps = slice(first, first + part.n_steps)
            view.add(part, first, judged, steps, self._misfits)
            self._spread.add(part)
            if number >= self._today:
                self._lately.offer(part, (number, first))
            first += part.n_steps
        assert view is not None
        self._tallies.append(view.tally(judged))
        if view.shown is not None:
            self._sample.append(view.shown.episode())
        self._sampled = self._sampled or judged.rival_sampled
        self._sizes.append(counts)
        return self

    def _shown(self, number: int, judged: Judged) -> EpisodeSample | None:
        if not self._steps:
            return None
        ahead = judged.ahead
        if ahead is not None:
            ahead = direction(ahead) if self._unit is None else self._unit * ahead
        named = {step for episode, step in self._contradicting if episode == number}
        return EpisodeSample(number, self._decider.policies[number], ahead, named, self._room)

    def finish(self) -> LogWalk:
        """All of it."""
        return LogWalk(
            self._tallies,
            within_budget(self._sample),
            n_rows=sum(int(each.sum()) for each in self._sizes),
            n_steps=sum(len(each) for each in self._sizes),
            warmup_steps=self._warmup_steps,
            fewest=min((int(each.min()) for each in self._sizes), default=0),
            most=max((int(each.max()) for each in self._sizes), default=0),
            rival_sampled=self._sampled,
            misfits=self._misfits.found(),
            spreads=self._spread.found(),
            today=self._lately.log(),
        )


class _EpisodeWalk:
    """What is gathered while the parts of one episode go by; ``now``: what the choices before it leave behind."""

    time: Any = None

    def __init__(self, decider: Decider, fit: Fit, number: int, now: Ridge, shown: EpisodeSample | None) -> None:
        self.decider, self.fit, self.number, self.now, self.shown = decider, fit, number, now, shown
        track = fit.track
        self.believed: Vector = (fit.evolution if track is None else track).policies[number]
        self.drawn, self.drawn_steps = 0.0, 0
        self.thoughts = ThoughtTotals()
        self.agreed = self.surprised = 0
        self.blind = 0.0

    def add(self, part: BehaviorLog, first: int, judged: Judged, steps: slice, misfits: MisfitList) -> None:
        """One more part, which begins with the episode's step ``first``."""
        scores = score(self.decider, self.number, self.now, part)
        picks = self._picks(part, scores, None if judged.predicted is None else judged.predicted[steps])
        if self.time is None and part.timestamps is not None:
            self.time = part.timestamps[0]
        self._draw(part)
        self.thoughts.add(scores)
        self.agreed += int(np.count_nonzero(picks.picked == part.chosen))
        if picks.predicted is not None:
            self.surprised += int(np.count_nonzero(picks.predicted != part.chosen))
        self.blind += float((1.0 / np.diff(part.step_offsets)).sum())
        strayed = judged.strayed[steps]
        misfits.add(self.number, first, part, picks.picked, strayed)
        if self.shown is not None:
            self.shown.add(part, first, scores, picks, strayed)

    def _draw(self, part: BehaviorLog) -> None:
        """How often the decider's draws take another candidate than the best expected one, by its policy."""
        kind, policy = self.fit.kind, self.believed
        steps = min(part.n_steps, _DRAWN_STEPS - self.drawn_steps)
        if not kind.words.explored or kind.deterministic or steps <= 0 or not policy.any():
            return
        offsets = part.step_offsets[: steps + 1]
        X = part.contexts[: offsets[-1]].astype(np.float64, copy=False)
        block = Block(X, part.chosen_rows[:steps], offsets, part.candidates_per_step, 0, 0)
        certain = kind.certain(policy, None if self.fit.track is None else self.fit.track.added[self.number])
        p = kind.propensities(kind.rule.columns(block, self.now), certain, _DRAWS, scale=self.fit.scale)
        expected = X @ policy
        best = expected >= np.repeat(np.maximum.reduceat(expected, offsets[:-1]), np.diff(offsets))
        self.drawn += steps - float(p[best].sum())
        self.drawn_steps += steps

    def _picks(self, part: BehaviorLog, scores: Scores, predicted: NDArray[np.int64] | None) -> Picks:
        luck = self.decider.alpha is None
        total = scores.expected + (0.0 if luck else scores.exploration)
        picked = pick(total, part, part.chosen)
        return Picks(total, picked, pick(scores.expected, part, part.chosen if luck else picked), predicted)

    def tally(self, judged: Judged) -> EpisodeTally:
        thoughts = self.thoughts.thoughts(self.decider, self.number)
        steps, learned = thoughts.steps, not np.isnan(thoughts.explored)
        return EpisodeTally(
            thoughts,
            self.agreed / steps if learned else None,
            None if judged.predicted is None else (steps - self.surprised) / steps,
            None if judged.rival_hits is None else judged.rival_hits / steps,
            self.blind / steps,
            max(0.0, self.drawn / self.drawn_steps) if self.drawn_steps else None,
            Counts(steps - self.agreed, self.surprised, self.thoughts.explored),
            self.time,
        )
