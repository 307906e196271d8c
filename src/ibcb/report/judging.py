"""A judge of a model: how each episode was predicted, told while the log goes by, at the fit itself or afterwards.

Whether `predict` will pick what the decider prefers next cannot be read off the share of choices predicted: a decider
that draws, or chooses at random now and then, is not predicted where it does. Two figures tell that are free of its
luck: how often what an episode showed left the preference predicted of it as it was, and how often that preference is
the one of the weights that explain the choices of these episodes by themselves, without what came before. Such weights
have errors of their own, which the weights of the even and of the odd steps tell: they are twice as far apart.

Which half of the log is the later one is known only at the end. Until then every episode has tallies of its own, and of
the steps a sample is kept, of bounded size whatever the length of the log.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from ibcb.deciders import Kind
from ibcb.deciders.softmax import policy_alone
from ibcb.engine import Episode, Subscriber
from ibcb.estimators.fitting import Fit
from ibcb.estimators.ibcb import IBCB
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.ridge import Ridge
from ibcb.report.bends import Bends
from ibcb.report.feature_weights import feature_names
from ibcb.report.reading import LIKELY, ReadPart, block_of, pick, picked_by, read_parts
from ibcb.report.rivals import ItemShares, Lessons, choice_weights, hits
from ibcb.report.verdict import Figures, Verdict, explained_exactly, judge, lead
from ibcb.report.writing import said
from ibcb.tracking import Track, next_models

#: how rivals are called
_LAST, _ALL, _ITEMS = "choice model of the last episode", "choice model of all episodes before", "item shares"
#: the choice model of all episodes before is fitted again when they have grown by this factor
_GROWN = 1.25
#: numbers (steps x candidates x features) of a sample, 2 MB: 2,600 steps of the paper's size
_NUMBERS = 1 << 18
#: steps per weight that are read by themselves, in one episode or several: fewer tell little (benchmarks/verdicts.py)
_STEPS_PER_WEIGHT = 80
#: samples to be read by themselves that wait for the end, 64 MB; beyond it every second one is let go
_MOST_WAITING = 32
#: steps of the sample: a standard error of .004 in a share of .98; and how many times as many of the whole log are kept
_SAMPLED_STEPS, _TIMES_SAMPLED = 1000, 4
#: policies drawn from what is believed of the next one, and how many of them are in memory at once
_DRAWS, _AT_ONCE = 400, 20
#: a cautious bound leaves this share of the draws below it, at so many times the deviation believed: beliefs are too
#: sure of deciders that do not keep to the model's assumptions (benchmarks/verdicts.py, seeds below 1000)
_UNLIKELY, _DOUBT = 0.05, 2.0


class Judging:
    """Gathers what a verdict goes by; `ibcb.report.walking.Walking`, which tells the page of it, is one, too.

    Attributes
    ----------
    excused : bool
        Rewards explain all choices, and so none went astray.
    misfits : int
        Choices that do not fit the rest of their episode, so far.
    """

    def __init__(self) -> None:
        self.excused, self.misfits = False, 0
        self._late, self._bends = _LateHalf(), Bends()
        self._rival: Vector | None = None
        self._before: Ridge | None = None

    def step(self, episode: Episode, fit: Fit) -> Judging:
        """One more episode that the policy chose; ``fit`` has seen it."""
        kind, number, lessons, late = fit.kind, episode.number, Lessons(), self._late
        now = kind.ridge(episode.before)
        ahead, believed = _prediction_of(fit, number, self._before, now)
        if ahead is not None:
            late.begin_episode(number)
        self.begin_episode(episode, now, ahead)
        self._bends.begin_episode()
        for part in read_parts(episode, fit, now, excused=self.excused):
            log = part.log
            part = part._replace(rival=hits(self._rival, log))
            if ahead is not None:
                preferred = argmax_per_step(log.contexts @ ahead, log)
                kept = pick(log.contexts @ believed, log, preferred) == preferred
                part = part._replace(predicted=picked_by(fit, number, now, ahead, log), preferred=preferred, kept=kept)
            lessons.offer(log, part.place)
            self._bends.add(log, part.place, part.width, kind)
            late.add(part, kind)
            self.misfits += int(np.count_nonzero(part.strayed > LIKELY))
            self.add(part)
        late.end_episode()
        self.end_episode(rival_sampled=len(lessons.steps) < lessons.seen)
        self._rival, self._before = choice_weights(lessons), now
        return self

    def begin_episode(self, episode: Episode, now: Ridge, ahead: Vector | None) -> None:
        """Another one: what the choices before it leave behind, and the policy predicted of it, if one could be."""

    def add(self, part: ReadPart) -> None:
        """A part of it."""

    def end_episode(self, *, rival_sampled: bool) -> None:
        """It is over; whether the choice model that rivals the model in the next one saw a part of it only."""

    def verdict(self, model: IBCB) -> Verdict:
        """How far to rely on the model, of the features that were tracked."""
        late = self._late.finish()
        if late is None:
            return judge(model, None, self.misfits)
        figures, sample = late
        expected, low = _agreement(model, sample) or (None, None)
        bend = self._bends.finish(sample.n_features)
        names = feature_names(model)
        seen = bend is not None and bend.is_seen and sample.n_features == len(names)
        figures |= {"bend": None if bend is None else bend.z}
        figures |= {"bent": [names[each] for each in bend.features] if seen and bend is not None else []}
        return judge(model, Figures(**figures, agreement=expected, agreement_low=low), self.misfits)


class Rejudging(Subscriber):
    """Judges a model on the log that it was fitted to, afterwards.

    Attributes
    ----------
    judging : Judging
    along : list of Subscriber
        Others that need the fitted log; forgotten where another goes on otherwise.
    names : list of str
        Of the log after each stored episode.
    differs : int or None
        The first episode that is not the one that was fitted; None where all are.
    warmup_steps : int
    """

    differs: int | None = None

    def __init__(self, fit: Fit, judging: Judging, *along: Subscriber) -> None:
        self.fit, self.judging, self.warmup_steps, self.names = fit, judging, 0, list[str]()
        self.along = [*along]
        judging.excused = explained_exactly(fit.evolution.theta, fit.evolution.diagnostics)

    def step(self, episode: Episode) -> Rejudging:
        """One more episode; raises where the model has not seen so many, or not so long ones."""
        fitted, name = self.fit.evolution.names, episode.after.fingerprint
        if self.same and name not in fitted[len(self.names) : len(self.names) + 1]:
            self.differs = episode.number
        self.names.append(name)
        if episode.by_policy:
            self._judge(episode)
        else:
            self.warmup_steps += len(episode.lesson.chosen)
        self.along = [each.step(episode) for each in self.along] if self.same else []
        return self

    def _judge(self, episode: Episode) -> None:
        diagnostics, steps, number = self.fit.evolution.diagnostics, len(episode.lesson.chosen), episode.number
        if number >= len(diagnostics):
            # What to do where the log goes on after the fitted one.
            cut = f", log[:{number}], or fit all of it" if self.same or self.differs == number else ""
            raise ValueError(said("longer-log", number=number, last=len(diagnostics) - 1, cut=cut))
        if steps != diagnostics[number].steps:
            fitted = diagnostics[number].steps
            raise ValueError(said("other-steps", number=number, steps=steps, fitted=fitted))
        self.judging.step(episode, self.fit)

    def finish(self) -> Rejudging:
        """Itself; raises where the log is shorter than the fitted one."""
        fitted = self.fit.evolution.names
        if len(self.names) != len(fitted):
            warmup = len(fitted) - len(self.fit.evolution.diagnostics)
            episodes = max(0, len(self.names) - warmup)
            raise ValueError(said("shorter-log", episodes=episodes, fitted=len(fitted) - warmup))
        return self

    @property
    def same(self) -> bool:
        """Whether the log so far is the fitted one."""
        return self.differs is None

    def check(self) -> None:
        """Raise ValueError where the log is as large as the fitted one, but another."""
        if self.differs is not None:
            named = f"episode {self.differs}" if self.differs >= 0 else "the warm-up"
            names = {"name": self.names[-1], "fitted": self.fit.evolution.names[-1]}
            raise ValueError(said("other-log", named=named, **names))


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


# -- the later half --------------------------------------------------------------------------------------------------


class _Waiting(NamedTuple):
    """Steps to be read by themselves, should they turn out to be of the later half: its first episode, and kind."""

    first: int
    lessons: Lessons
    kind: Kind


class _LateHalf:
    """Gathers `Figures` while episodes go by; rivals learn from all of them."""

    def __init__(self) -> None:
        # Of each episode that could be predicted: sums over its steps, those of a rival under its name and a place.
        self._tallies: list[tuple[int, Any]] = []
        self._every: Vector | None = None
        self._fit_at = 0.0
        self._before, self._items = Lessons(_NUMBERS), ItemShares()
        self._alone: _Waiting | None = None
        self._waiting: list[_Waiting] = []
        self._sample = Lessons(_NUMBERS * _TIMES_SAMPLED, _SAMPLED_STEPS * _TIMES_SAMPLED)

    def begin_episode(self, number: int) -> None:
        """One that could be predicted."""
        self._tallies.append((number, Counter()))
        if len(self._tallies) >= self._fit_at:
            self._every = choice_weights(self._before)
            self._fit_at = _GROWN * len(self._tallies)

    def add(self, part: ReadPart, kind: Kind) -> None:
        """A part of an episode."""
        log = part.log
        if part.predicted is not None:
            self._count(part)
            self._sample.offer(log, part.place)
            if self._alone is None:
                self._alone = _Waiting(part.number, Lessons(_NUMBERS), kind)
            width = None if kind.per_unit is None else part.width
            self._alone.lessons.offer(log, part.place, picked=part.preferred, width=width)
        self._before.offer(log, part.place)
        self._items.learn(log)

    def _count(self, part: ReadPart) -> None:
        """Of each rival: choices that it predicts, that the model or it alone predicts, and that the model without
        exploration, which is what `predict` picks, or it alone does.
        """
        log, sums = part.log, self._tallies[-1][1]
        own, greedy = part.predicted == log.chosen, part.preferred == log.chosen
        steps: dict[Any, Any] = {"predicted": own, "greedy": greedy, "kept": part.kept}
        sums.update(steps=log.n_steps, chance=float((1.0 / np.diff(log.step_offsets)).sum()))
        for name, guess in {_LAST: part.rival, _ALL: hits(self._every, log), _ITEMS: self._items.hits(log)}.items():
            if guess is not None:
                apart = (guess, own & ~guess, guess & ~own, greedy & ~guess, guess & ~greedy)
                steps |= {(name, place): each for place, each in enumerate(apart)}
        sums.update({name: int(np.count_nonzero(each)) for name, each in steps.items()})

    def end_episode(self) -> None:
        """The episode is over: rivals may use it."""
        self._items.end_episode()
        alone = self._alone
        if alone is None or alone.lessons.seen < _STEPS_PER_WEIGHT * alone.lessons.contexts.shape[1]:
            return
        self._alone = None
        # What lies before the later half of the episodes so far lies before that of all.
        late = self._tallies[len(self._tallies) // 2][0]
        self._waiting = [*(each for each in self._waiting if each.first >= late), alone]
        if len(self._waiting) > _MOST_WAITING:
            self._waiting = self._waiting[1::2]

    def finish(self) -> tuple[dict[str, Any], BehaviorLog] | None:
        """What `Figures` has but the agreement, and some of the steps; None where nothing could be predicted."""
        late, sums = self._tallies[len(self._tallies) // 2 :], Counter[Any]()
        for _, each in late:
            sums.update(each)
        steps = sums["steps"]
        if not steps:
            return None
        rivals = dict.fromkeys(each[0] for each in sums if isinstance(each, tuple))
        best = max(rivals, key=lambda name: sums[name, 0], default=None)
        hit, model_only, rival_only, greedy_only, over_greedy = (sums[best, place] for place in range(5))
        differ, errors = self._apart(late[0][0])
        apart = model_only + rival_only
        figures = dict(
            **{name: sums[name] / steps for name in ("predicted", "greedy", "chance", "kept")},
            episodes=len(late),
            steps=steps,
            rival=best,
            rival_predicted=None if best is None else hit / steps,
            model_only=model_only,
            rival_only=rival_only,
            p_value=min(1.0, 2 * float(binom.cdf(min(model_only, rival_only), apart, 0.5))) if apart else 1.0,
            greedy_lead=lead(over_greedy, greedy_only, steps),
            confirmed=1 - differ,
            # Shares of steps that differ are about in proportion to lengths, and errors add up by their squares.
            borne_out=1 - math.sqrt(max(0.0, differ**2 - errors**2)),
        )
        return figures, self._sample.since(late[0][0], _SAMPLED_STEPS, _NUMBERS).log()

    def _apart(self, late: int) -> tuple[float, float]:
        """Share of steps, from an episode on, whose preferred candidate is not the one of the weights that explain the
        choices by themselves, and the share by which the errors of these weights explain it.
        """
        read = [each for each in self._waiting if each.first >= late]
        if not read:
            # What is left over, or began earlier, is read if there is nothing else: it tells less.
            left = [each for each in (self._alone, *self._waiting[-1:]) if each is not None]
            read = [max(left, key=lambda each: each.lessons.seen)]
        shares = []
        for _, lessons, kind in read:
            best = _best_alone(lessons, kind, slice(None))
            even, odd = (_best_alone(lessons, kind, slice(first, None, 2)) for first in (0, min(1, lessons.seen - 1)))
            shares.append((float(np.mean(best != lessons.steps["picked"])), float(np.mean(even != odd)) / 2))
        differ, errors = np.average(np.array(shares), axis=0, weights=[each.lessons.seen for each in read]).tolist()
        return differ, errors


def _best_alone(lessons: Lessons, kind: Kind, steps: slice) -> NDArray[np.int64]:
    """Best candidate of every step by the weights that explain the choices of some of them."""
    kept = np.zeros(len(lessons.steps), dtype=bool)
    kept[steps] = True
    weights = policy_alone(block_of(lessons.some(kept).log()), kind.top_k)
    if kind.per_unit is not None:
        # The last feature is the width: it explains exploration, and is not preferred.
        weights[-1] = 0.0
    log = lessons.log()
    return argmax_per_step(log.contexts @ weights, log)


# -- the next policy ---------------------------------------------------------------------------------------------------


def _agreement(model: IBCB, sample: BehaviorLog) -> tuple[float, float] | None:
    """``agreement`` and ``agreement_low`` of `ibcb.report.verdict.Figures`, on some steps; None without a belief.

    The share of steps is a random quantity, because the policy is; its mean is that of `IBCB.certainty`.
    """
    track = model._fit.track
    if track is None or not model.next_policy_coef_.any():
        return None
    expected, cautious = (_agreements(model, sample, _drawn(track, doubt)) for doubt in (1.0, _DOUBT))
    return float(expected.mean()), float(np.quantile(cautious, _UNLIKELY))


def _drawn(track: Track, doubt: float) -> Matrix:
    """Next policies from what all models of the family believed say, as far as each is supported; shape (draws, d).

    ``doubt``: times the deviation that each of them believes.
    """
    beliefs, evidence = next_models(track)
    support = np.exp(evidence - evidence.max())
    counts = np.round(_DRAWS * support / support.sum()).astype(int)
    rng, drawn = np.random.default_rng(0), []
    for mean, covariance, count in zip(beliefs.mean, beliefs.covariance, counts.tolist(), strict=True):
        # Features brought to one scale, so that their units do not matter.
        unit = np.sqrt(covariance.diagonal())
        unit[unit == 0] = 1.0
        values, V = np.linalg.eigh(covariance / unit / unit[:, None])
        z = rng.standard_normal((count, len(mean))) * np.sqrt(np.maximum(values, 0.0))
        drawn.append(mean + doubt * unit * (z @ V.T))
    return np.concatenate(drawn)


def _agreements(model: IBCB, sample: BehaviorLog, drawn: Matrix) -> Vector:
    """The share of steps at which each of some policies likes none better than what `predict` picks."""
    starts = sample.step_offsets[:-1]
    picked, shares = starts + model.predict(sample), []
    for policies in np.array_split(drawn, -(-len(drawn) // _AT_ONCE)):
        scores = sample.contexts @ policies.T
        shares.append((scores[picked] >= np.maximum.reduceat(scores, starts)).mean(axis=0))
    return np.concatenate(shares)
