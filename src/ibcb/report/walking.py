"""What a page tells of each episode: gathered from the judge of the model while the log goes by once.

Memory holds one part of the log and the sampled steps, whatever the log's size. The Gram matrix is that of the choices
before the episode, as when they were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, Episode
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.published import unit_of
from ibcb.log import BehaviorLog
from ibcb.numerics.metric import direction
from ibcb.report.feature_weights import StepSpread
from ibcb.report.judging import Outlook
from ibcb.report.lessons import Lessons
from ibcb.report.misfits import MisfitList
from ibcb.report.reading import LIKELY, ReadPart, in_double, pick
from ibcb.report.ribbons import today_begins
from ibcb.report.scores import Decider, EpisodeThoughts, score
from ibcb.report.shown_steps import EpisodeSample, Picks, SampledEpisode, room_per_episode, within_budget
from ibcb.report.writing import exact

#: steps of an episode that tell how far the decider's own draws decide, and draws for each; a standard error of .03
_DRAWN_STEPS, _DRAWS = 200, 64
#: numbers and steps of the sample on which past policies are compared with today's
_TODAY_NUMBERS, _TODAY_STEPS = 1 << 20, 2000


class Counts(NamedTuple):
    """Steps: whose choice the policy of the time would not make, that was not predicted, that exploration decided."""

    disagreed: int
    surprised: int
    explored: int


@dataclass(frozen=True)
class EpisodeFacts:
    """One episode. Shares are of its steps; None where there is nothing to tell.

    ``rival`` is a choice model of the last episode. ``explored`` counts choices, see `ibcb.explain`; ``exploration`` is
    how much the decider explores by its own rule, as estimated, with bounds where there are any: of one that draws, how
    often its draws take another candidate than the best expected one. ``today`` is the share of today's choices that
    its policy would make.
    """

    number: int
    time: Any
    steps: int
    status: str
    violated: int
    predicted: float | None
    rival: float | None
    chance: float | None
    explored: float | None
    exploration: float | None
    exploration_low: float | None
    exploration_high: float | None
    agreed: float | None
    regret: float | None
    today: float
    misfits: int


def decider(model: IBCB) -> Decider:
    """What a walk through the log needs of the model, in the units of the page: over alpha if it has one, else with
    policies of length 1.
    """
    worth = direction(model.next_policy_coef_)
    if model.decider_.per_unit is not None:
        return Decider.of(model, model.policy_coefs_ / model.to_policy().alpha, 1.0, worth)
    return Decider.of(model, direction(model.policy_coefs_), None, worth)


class Walking:
    """Listens to the judge.

    Parameters
    ----------
    model : IBCB
    spread : StepSpread
        Is shown every part that the policy chose.
    level : float
        Of intervals.
    contradicting : collection of (episode, step)
        Steps that certificates name; they are always shown.
    steps : bool
        False: sample no steps.

    Attributes
    ----------
    episodes : list of EpisodeFacts
        Time is as in the log; what they would choose today is not known here.
    sizes : list of ndarray
        Candidates of the steps of each.
    counts : Counter
        Of the whole log, what `Counts` has.
    misfits : MisfitList
    lately : Lessons
        Some of the latest steps.
    rival_sampled : bool
        Whether the choice model saw a part of some episode only.
    """

    def __init__(
        self,
        model: IBCB,
        spread: StepSpread,
        level: float,
        *,
        contradicting: Collection[tuple[int, int]] = (),
        steps: bool = True,
    ) -> None:
        self._model, self._fit, self._decider, self.spread = model, model._fit, decider(model), spread
        self._contradicting, self._steps = contradicting, steps
        self._today = today_begins([entry.steps for entry in model.diagnostics_])
        # What policies per unit of alpha are multiplied with on the page; else they are brought to length 1.
        bonus, alpha = model.decider_.per_unit is not None, float(model._fitted_with["alpha"])
        self._unit = unit_of(model._fit, alpha) / model.to_policy().alpha if bonus else None
        self._epsilon = None if model.epsilon_ is None else np.transpose(model.exploration_interval(level)).tolist()
        self.episodes, self.sizes = list[EpisodeFacts](), list[NDArray[np.int64]]()
        self.counts, self.misfits = Counter[str](), MisfitList()
        self.lately, self.rival_sampled = Lessons(_TODAY_NUMBERS, _TODAY_STEPS), False
        self._sample, self._room = list[SampledEpisode](), 0

    def begin_episode(self, episode: Episode, outlook: Outlook) -> None:
        """Another one."""
        self._number, self._outlook = episode.number, outlook
        self._sums: Any = Counter()
        self._time = None
        self._shown: EpisodeSample | None = None
        self.sizes.append(episode.lesson.counts)

    def add(self, part: ReadPart, predicted: NDArray[np.int64] | None, rival_hits: int) -> None:
        """A part of it, the candidate predicted at each step, and how many choices the rival predicts."""
        log, luck = part.log, self._decider.alpha is None
        scores = score(self._decider, part.number, log, part.width)
        if part.first == 0:
            self._time = None if log.timestamps is None else log.timestamps[0]
            self._shown = self._sampler(log)
        picked = part.picked
        self._sums.update(scores.sums)
        self._sums.update(
            agreed=int(np.count_nonzero(picked == log.chosen)),
            surprised=0 if predicted is None else int(np.count_nonzero(predicted != log.chosen)),
            misfits=int(np.count_nonzero(part.strayed > LIKELY)),
            rival=rival_hits,
            chance=float((1.0 / np.diff(log.step_offsets)).sum()),
        )
        self._draw(log)
        self.misfits.add(part)
        if self._shown is not None:
            greedy = pick(scores.expected, log, log.chosen if luck else picked)
            total = scores.expected + (0.0 if luck else scores.exploration)
            self._shown.add(part, scores, Picks(total, greedy, predicted))
        self.spread.add(log)
        if part.number >= self._today:
            self.lately.offer(log, part.place)

    def _sampler(self, log: BehaviorLog) -> EpisodeSample | None:
        """What gathers the steps to be shown of an episode that begins so."""
        if not self._steps:
            return None
        policies, number, ahead = self._decider.policies, self._number, self._outlook.ahead
        self._room = self._room or room_per_episode(log, len(policies))
        if ahead is not None:
            ahead = direction(ahead) if self._unit is None else self._unit * ahead
        named = {step for episode, step in self._contradicting if episode == number}
        return EpisodeSample(number, policies[number], ahead, named, self._room)

    def _draw(self, part: BehaviorLog) -> None:
        """How often the decider's draws take another candidate than the best expected one, by its policy."""
        kind, track = self._fit.kind, self._fit.track
        policy = (self._fit.evolution if track is None else track).policies[self._number]
        steps = min(part.n_steps, _DRAWN_STEPS - self._sums["drawn_steps"])
        if not kind.words.explored or kind.deterministic or steps <= 0 or not policy.any():
            return
        offsets = part.step_offsets[: steps + 1]
        X = in_double(part)[: offsets[-1]]
        block = Block(X, part.chosen_rows[:steps], offsets, part.candidates_per_step, 0, 0)
        certain = kind.certain(policy, None if track is None else track.added[self._number])
        columns = kind.rule.columns(block, self._outlook.now)
        p = kind.propensities(columns, certain, _DRAWS, scale=self._fit.scale)
        expected = X @ policy
        best = expected >= np.repeat(np.maximum.reduceat(expected, offsets[:-1]), np.diff(offsets))
        self._sums.update(drawn=steps - float(p[best].sum()), drawn_steps=steps)

    def end_episode(self, *, rival_sampled: bool) -> None:
        """It is over; whether the choice model that rivals the model in the next one saw a part of it only."""
        number, sums, outlook = self._number, self._sums, self._outlook
        entry, thoughts = self._fit.evolution.diagnostics[number], EpisodeThoughts.of(self._decider, number, sums)
        steps, explored = thoughts.steps, _known(thoughts.explored)
        own: Any = (max(0.0, sums["drawn"] / sums["drawn_steps"]) if sums["drawn_steps"] else None, None, None)
        if self._decider.alpha is not None:
            own = explored, None, None
        elif self._epsilon is not None:
            own = map(exact, self._epsilon[number])
        share, low, high = own
        self.episodes.append(
            EpisodeFacts(
                number=number,
                time=self._time,
                steps=entry.steps,
                status=entry.status,
                violated=entry.violated,
                predicted=None if outlook.ahead is None else (steps - sums["surprised"]) / steps,
                rival=None if outlook.rival is None else sums["rival"] / steps,
                chance=sums["chance"] / steps,
                explored=explored,
                exploration=share,
                exploration_low=low,
                exploration_high=high,
                agreed=None if explored is None else sums["agreed"] / steps,
                regret=_known(thoughts.regret_share),
                today=np.nan,
                misfits=sums["misfits"],
            )
        )
        self.counts.update(disagreed=steps - sums["agreed"], surprised=sums["surprised"], explored=sums["explored"])
        self.rival_sampled = self.rival_sampled or rival_sampled
        if self._shown is not None:
            self._sample.append(self._shown.finish())

    @property
    def sample(self) -> list[SampledEpisode]:
        """The steps shown, as many as a page has room for."""
        return within_budget(self._sample)


def _known(share: float) -> float | None:
    return None if np.isnan(share) else share
