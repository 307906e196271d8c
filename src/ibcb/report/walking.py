"""What a page tells of each episode: gathered as the model is judged, while the log goes by once.

Memory holds one part of the log and the sampled steps, whatever the log's size. The Gram matrix is that of the choices
before the episode, as when they were made.

How the behaviour evolved stands below: what each past policy would choose today, and how well each is known. For that
the log is tracked once more as it goes by, for what was believed of the policy once each episode was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, Episode, History, Subscriber
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.published import unit_of
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.metric import direction
from ibcb.numerics.ridge import Ridge
from ibcb.report.feature_weights import LEVEL, StepSpread
from ibcb.report.judging import Judging
from ibcb.report.reading import LIKELY, Decider, EpisodeThoughts, ReadPart, in_double, pick, score
from ibcb.report.rivals import Lessons
from ibcb.report.shown_steps import EpisodeSample, MisfitList, SampledEpisode, room_per_episode
from ibcb.report.writing import exact
from ibcb.tracking import Interval
from ibcb.tracking.choice_probabilities import Retraced
from ibcb.tracking.intervals import interval

#: steps of an episode that tell how far the decider's own draws decide, and draws for each; a standard error of .03
_DRAWN_STEPS, _DRAWS = 200, 64
#: numbers of the sample on which past policies are compared with today's, and its steps: a standard error of .007 in a
#: share of .9
_TODAY_NUMBERS, _TODAY_STEPS = 1 << 20, 2000
#: policies whose scores are in memory at once
_AT_ONCE = 20


class EpisodeFacts(SimpleNamespace):
    """One episode. Shares are of its steps; None where there is nothing to tell.

    Attributes
    ----------
    number : int
    time : str or None
        When it began.
    steps : int
    status : str
        How its inequalities were solved; ``violated`` says how many were left.
    violated : int
    predicted, rival, chance : float or None
        Of choices predicted one episode ahead, by a choice model of the last episode, and by a blind draw.
    explored : float or None
        Of choices that exploration decided, see `ibcb.explain`.
    exploration, exploration_low, exploration_high : float or None
        How much the decider explores by its own rule, as estimated, with bounds where there are any: of one that draws,
        how often its draws take another candidate than the best expected one.
    agreed, regret : float or None
        Of choices that the policy of the time would make, and what choices lost as a share of what random ones would.
    today : float
        Of today's choices, those that its policy would make.
    misfits : int
    """


class Walking(Judging):
    """Judges, and remembers what the page shows.

    Parameters
    ----------
    model : IBCB
    spread : StepSpread
        Is shown every part that the policy chose.
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
        Of the whole log, what `ibcb.report.sections.Counts` has.
    listed : MisfitList
    lately : Lessons
        Some of the latest steps.
    sample : list of SampledEpisode
    rival_sampled : bool
        Whether the choice model saw a part of some episode only.
    """

    def __init__(
        self, model: IBCB, spread: StepSpread, *, contradicting: Collection[tuple[int, int]] = (), steps: bool = True
    ) -> None:
        super().__init__()
        self._fit, self._spread, self._contradicting, self._steps = model._fit, spread, contradicting, steps
        worth, alpha = direction(model.next_policy_coef_), None
        # What policies per unit of alpha are multiplied with on the page; else they are brought to length 1.
        self._unit: float | None = None
        policies = direction(model.policy_coefs_)
        if model.decider_.per_unit is not None:
            alpha, own = 1.0, model.to_policy().alpha
            policies, self._unit = (
                model.policy_coefs_ / own,
                unit_of(model._fit, float(model._fitted_with["alpha"])) / own,
            )
        self._decider = Decider.of(model, policies, alpha, worth)
        self._today = today_begins([entry.steps for entry in model.diagnostics_])
        self._epsilon = None if model.epsilon_ is None else np.transpose(model.exploration_interval(LEVEL)).tolist()
        self.episodes, self.sizes = list[EpisodeFacts](), list[NDArray[np.int64]]()
        self.counts, self.listed, self.lately = Counter[str](), MisfitList(), Lessons(_TODAY_NUMBERS, _TODAY_STEPS)
        self.sample, self.rival_sampled, self._room = list[SampledEpisode](), False, 0

    def begin_episode(self, episode: Episode, now: Ridge, ahead: Vector | None) -> None:
        """Another one."""
        self._number, self._now, self._ahead = episode.number, now, ahead
        self._sums: Any = Counter()
        self._time = None
        self._shown: EpisodeSample | None = None
        self.sizes.append(episode.lesson.counts)

    def add(self, part: ReadPart) -> None:
        """A part of it."""
        log, luck, sums = part.log, self._decider.alpha is None, self._sums
        scores = score(self._decider, part.number, log, part.width)
        if part.first == 0:
            self._time = None if log.timestamps is None else log.timestamps[0]
            self._shown = self._sampler(log) if self._steps else None
        sums.update(scores.sums)
        steps = {"agreed": part.picked == log.chosen, "misfits": part.strayed > LIKELY}
        if part.predicted is not None:
            steps["surprised"] = part.predicted != log.chosen
        if part.rival is not None:
            steps["rival"] = part.rival
        sums.update({name: int(np.count_nonzero(each)) for name, each in steps.items()})
        sums.update(chance=float((1.0 / np.diff(log.step_offsets)).sum()))
        self._draw(log)
        self.listed.add(part)
        if self._shown is not None:
            greedy = pick(scores.expected, log, log.chosen if luck else part.picked)
            self._shown.add(part, scores, scores.expected + (0.0 if luck else scores.exploration), greedy)
        self._spread.add(log)
        if part.number >= self._today:
            self.lately.offer(log, part.place)

    def _sampler(self, log: BehaviorLog) -> EpisodeSample:
        """What gathers the steps to be shown of an episode that begins so."""
        policies, number, ahead = self._decider.policies, self._number, self._ahead
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
        p = kind.propensities(kind.rule.columns(block, self._now), certain, _DRAWS, scale=self._fit.scale)
        expected = X @ policy
        best = expected >= np.repeat(np.maximum.reduceat(expected, offsets[:-1]), np.diff(offsets))
        self._sums.update(drawn=steps - float(p[best].sum()), drawn_steps=steps)

    def end_episode(self, *, rival_sampled: bool) -> None:
        """It is over."""
        number, sums, steps = self._number, self._sums, self._sums["steps"]
        entry, thoughts = self._fit.evolution.diagnostics[number], EpisodeThoughts.of(self._decider, number, sums)
        explored = _known(thoughts.explored)
        own: Any = (max(0.0, sums["drawn"] / sums["drawn_steps"]) if sums["drawn_steps"] else None, None, None)
        if self._decider.alpha is not None:
            own = explored, None, None
        elif self._epsilon is not None:
            own = map(exact, self._epsilon[number])
        told = EpisodeFacts(number=number, time=self._time, steps=entry.steps, status=entry.status)
        told.violated = entry.violated
        told.predicted = None if self._ahead is None else (steps - sums["surprised"]) / steps
        told.rival = None if self._rival is None else sums["rival"] / steps
        told.chance, told.explored = sums["chance"] / steps, explored
        told.exploration, told.exploration_low, told.exploration_high = own
        told.agreed = None if explored is None else sums["agreed"] / steps
        told.regret, told.today, told.misfits = _known(thoughts.regret_share), np.nan, sums["misfits"]
        self.episodes.append(told)
        self.counts.update(disagreed=steps - sums["agreed"], surprised=sums["surprised"], explored=sums["explored"])
        self.rival_sampled = self.rival_sampled or rival_sampled
        if self._shown is not None:
            self.sample.append(self._shown.finish())


def _known(share: float) -> float | None:
    return None if np.isnan(share) else share


# -- how the behaviour evolved -----------------------------------------------------------------------------------------


def today_begins(steps: Sequence[int]) -> int:
    """The first of the episodes that stand for today: the last one, or as many as make up enough steps."""
    gathered = np.cumsum(steps[::-1])
    return max(0, len(steps) - 1 - int(np.searchsorted(gathered, _TODAY_STEPS)))


def agreements(policies: Matrix, today: Vector, log: BehaviorLog) -> Vector:
    """The share of today's choices that each policy would make, without exploration. Shape (policies,).

    Where a policy does not tell candidates apart it draws among them: nothing learned agrees as often as chance.
    """
    starts, counts = log.step_offsets[:-1], np.diff(log.step_offsets)
    own = _best((log.contexts @ today)[:, None], starts, counts)
    picked = np.add.reduceat(own[:, 0], starts)
    shares = []
    for some in np.array_split(policies, -(-len(policies) // _AT_ONCE)):
        best = _best(log.contexts @ some.T, starts, counts)
        both = np.add.reduceat(best * own, starts)
        shares.append((both / (np.add.reduceat(best, starts) * picked[:, None])).mean(axis=0))
    return np.concatenate(shares)


def _best(scores: Matrix, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Matrix:
    """1 where a candidate is the best of its step, or as good but for rounding. Shape of ``scores``."""
    slack = 1e-12 * np.abs(scores).max(axis=0, initial=0.0)
    best: Matrix = (scores >= np.repeat(np.maximum.reduceat(scores, starts), counts, axis=0) - slack).astype(np.float64)
    return best


class Ribbons(Subscriber):
    """Intervals of the direction of every episode's policy, as the log goes by once more.

    Parameters
    ----------
    model : IBCB
        One that has a track.
    before : History
        Where its log begins.
    """

    def __init__(self, model: IBCB, before: History) -> None:
        track = model._known("for intervals")
        self._estimates, self._bounds = model.direction(model.policy_coefs_), list[Interval]()
        self._still: Interval | None = None
        if track.kind.motions.stays:
            # As `IBCB.policy_interval` has it, but with bounds for what is known within a group of features alone.
            self._still = _about(interval(track, LEVEL, direction=True), self._estimates[-1])
        else:
            self._retraced = Retraced.of(track, before)

    def step(self, episode: Episode) -> Ribbons:
        """One more episode."""
        if self._still is None:
            self._retraced = self._retraced.step(episode)
        if episode.by_policy:
            self._bounds.append(self._still or self._retraced_bounds())
        return self

    def _retraced_bounds(self) -> Interval:
        now, estimate = self._retraced.track, self._estimates[len(self._bounds)]
        if not (now.policies[-1].any() and estimate.any()):
            return Interval(estimate, estimate, estimate)
        with np.errstate(over="ignore", invalid="ignore"):
            return _about(interval(now, LEVEL, direction=True), estimate)

    def finish(self) -> list[Interval]:
        """One for each episode."""
        return self._bounds


def _about(bounds: Interval, estimate: Vector) -> Interval:
    """Bounds about the estimate that is shown, should another one have been retraced."""
    moved = estimate - bounds.estimate
    return Interval(estimate, bounds.lower + moved, bounds.upper + moved)
