"""One pass over a log, in memory or on disk: what each episode's choices say of the recovered policies.

Memory holds one part of the log and the sampled steps, whatever the log's size. The Gram matrix is that of the choices
before the episode, as when they were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.estimators.choice_model import ChoiceModel
from ibcb.inverse.solvers import SolverError
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.disk import DiskLog
from ibcb.log.fingerprint import NO_LOG, with_episode
from ibcb.numerics.ridge import Ridge, gram, ridge
from ibcb.report.explain import explored_choices, seen_regret
from ibcb.report.sample import Keeper, step_keys

__all__ = ["Decider", "EpisodeTally", "SampledEpisode", "SampledStep", "Walk", "walk"]

Vector = NDArray[np.float64]

#: numbers (steps x candidates x features) of an episode that the choice model learns from
_RIVAL_NUMBERS = 1 << 20
#: numbers of an episode's sampled steps in memory
_SAMPLE_NUMBERS = 1 << 22
#: characters of step data on a page
_PAGE_CHARACTERS = 4_000_000
_MOST_FEATURES = 24
_MOST_CANDIDATES = 40


class Decider(NamedTuple):
    """What the model says of the decider, in the units of the page.

    Attributes
    ----------
    policies : ndarray of shape (N, d)
        Policy of each episode: over alpha for an upper-confidence decider, of length 1 for a Thompson sampler.
    foreseeable : tuple of bool
        Whether the episode can be foreseen from the one before.
    bonus : bool
        True where the width H is added to the score, False where the decider draws.
    l2 : float
    rewards : ndarray of shape (d,)
        Reward weights; the regret is seen with them.
    prior : ndarray of shape (d, d)
        Gram matrix of the choices before the log.
    contradicting : frozenset of (episode, step)
        Steps that certificates name; they are always shown.
    """

    policies: NDArray[np.float64]
    foreseeable: tuple[bool, ...]
    bonus: bool
    l2: float
    rewards: Vector
    prior: NDArray[np.float64]
    contradicting: frozenset[tuple[int, int]]


class EpisodeTally(NamedTuple):
    """Shares of an episode's steps; None where there is nothing to learn from, or nothing had been learned."""

    number: int
    steps: int
    agreed: float | None
    explored: float | None
    regret: float | None
    foreseen: float | None
    rival: float | None
    chance: float


class SampledStep(NamedTuple):
    """One step as the explorer shows it; candidates are counted from 0, the best-scored come first.

    ``values`` has a row per shown candidate and a column per feature of the `SampledEpisode`.
    """

    step: int
    id: str | None
    time: str | None
    n_candidates: int
    chosen: int
    picked: int
    greedy: int
    foreseen: int | None
    explored: bool
    contradicts: bool
    candidates: list[int]
    expected: list[float]
    width: list[float]
    values: list[list[float]]


class SampledEpisode(NamedTuple):
    """The sampled steps of an episode, and the policy's weights of the features that they show."""

    number: int
    features: list[int]
    weights: list[float]
    steps: list[SampledStep]


@dataclass(frozen=True)
class Walk:
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


class _Scored(NamedTuple):
    expected: Vector
    width: Vector
    picked: NDArray[np.int64]
    greedy: NDArray[np.int64]
    foreseen: NDArray[np.int64] | None
    explored: NDArray[np.bool_]


def walk(log: BehaviorLog | DiskLog, decider: Decider, *, steps: bool = True) -> Walk:
    """Go through a log once.

    Parameters
    ----------
    log : BehaviorLog, or what `ibcb.open_log` gave
    decider : Decider
    steps : bool
        False: sample no steps.
    """
    phi, fingerprint, before = decider.prior.copy(), NO_LOG, None
    rival, sampled = None, False
    tallies: list[EpisodeTally] = []
    sample: list[SampledEpisode] = []
    sizes: list[tuple[int, int, int, int]] = []
    warmup_steps, quota = 0, 0
    for number, parts in groupby(log.parts(), key=lambda numbered: numbered[0]):
        if number < 0:
            own, counts, chosen = _experience(part for _, part in parts)
            warmup_steps += len(chosen)
        else:
            now = ridge(phi, decider.l2)
            view = _EpisodeWalk(decider, number, now, before, rival, steps)
            for _, part in parts:
                if steps and quota == 0:
                    quota = _quota(part, len(decider.policies))
                view.add(part, quota)
            tallies.append(view.tally())
            if steps and view.sample:
                sample.append(view.explained())
            rival, cut = view.next_rival()
            sampled |= cut
            own, counts, chosen = view.phi, np.concatenate(view.counts), np.concatenate(view.chosen)
            sizes.append((len(chosen), int(counts.sum()), int(counts.min()), int(counts.max())))
            before = now
        phi = phi + own
        fingerprint = with_episode(fingerprint, counts, chosen, own, by_policy=number >= 0)
    return Walk(
        tallies,
        _within_budget(sample),
        fingerprint,
        n_rows=sum(size[1] for size in sizes),
        n_steps=sum(size[0] for size in sizes),
        warmup_steps=warmup_steps,
        fewest=min((size[2] for size in sizes), default=0),
        most=max((size[3] for size in sizes), default=0),
        rival_sampled=sampled,
    )


def _experience(parts: Iterator[BehaviorLog]) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Gram matrix, counts of candidates and choices of a warm-up's episode."""
    phi, counts, chosen = np.zeros((1, 1)), [], []
    for part in parts:
        phi = phi + gram(part.contexts.take(part.chosen_rows, axis=0))
        counts.append(np.diff(part.step_offsets))
        chosen.append(part.chosen)
    return phi, np.concatenate(counts), np.concatenate(chosen)


class _EpisodeWalk:
    """What is gathered while the parts of one episode go by."""

    def __init__(
        self, decider: Decider, number: int, now: Ridge, before: Ridge | None, rival: Vector | None, steps: bool
    ) -> None:
        self.decider, self.number, self.now, self.rival = decider, number, now, rival
        self.policy = decider.policies[number]
        self.foreseeing = None
        if before is not None and decider.foreseeable[number]:
            self.foreseeing = _foresee(decider.policies[number - 1], before, now)
        self.phi: NDArray[np.float64] = np.zeros((1, 1))
        self.counts: list[NDArray[np.int64]] = []
        self.chosen: list[NDArray[np.int64]] = []
        self.hits = dict.fromkeys(("agreed", "explored", "foreseen", "rival"), 0)
        self.blind, self.n_steps, self.cost, self.random_cost = 0.0, 0, 0.0, 0.0
        self.lessons = Keeper(0)
        self.lesson: dict[int, tuple[NDArray[Any], int]] = {}
        self.steps = steps
        self.keepers = (Keeper(0), Keeper(0))
        self.sample: dict[int, SampledStep] = {}
        self.contexts: dict[int, NDArray[Any]] = {}

    def add(self, part: BehaviorLog, quota: int) -> None:
        """One more part of the episode."""
        counts = np.diff(part.step_offsets)
        scored = self._score(part)
        agreed = scored.picked == part.chosen
        self.hits["agreed"] += int(np.count_nonzero(agreed))
        self.hits["explored"] += int(np.count_nonzero(scored.explored))
        odd = ~agreed
        if scored.foreseen is not None:
            self.hits["foreseen"] += int(np.count_nonzero(scored.foreseen == part.chosen))
            odd = odd | (scored.foreseen != part.chosen)
        if self.rival is not None:
            picked = argmax_per_step(part.contexts @ self.rival, part)
            self.hits["rival"] += int(np.count_nonzero(picked == part.chosen))
        self.blind += float((1.0 / counts).sum())
        regret, at_random = seen_regret(np.asarray(part.contexts @ self.decider.rewards, dtype=np.float64), part)
        self.cost, self.random_cost = self.cost + float(regret.sum()), self.random_cost + at_random
        self.phi = self.phi + gram(part.contexts.take(part.chosen_rows, axis=0))
        self.counts.append(counts)
        self.chosen.append(part.chosen)
        keys = step_keys(self.number, self.n_steps, part.n_steps)
        self._learn(part, keys)
        if self.steps:
            self._sample(part, keys, odd, scored, quota)
        self.n_steps += part.n_steps

    def _score(self, part: BehaviorLog) -> _Scored:
        expected = np.asarray(part.contexts @ self.policy, dtype=np.float64)
        width = self.now.widths(part.contexts).astype(np.float64, copy=False)
        total = expected + width if self.decider.bonus else expected
        picked = _pick(total, part, part.chosen)
        greedy = _pick(expected, part, picked if self.decider.bonus else part.chosen)
        foreseen = None
        if self.foreseeing is not None:
            bonus = width if self.decider.bonus else 0.0
            scores = np.asarray(part.contexts @ self.foreseeing, dtype=np.float64) + bonus
            foreseen = _pick(scores, part, part.chosen)
        explored = explored_choices(expected, total, part, bonus=self.decider.bonus)
        return _Scored(expected, width, picked, greedy, foreseen, explored)

    def tally(self) -> EpisodeTally:
        shares = {name: hits / self.n_steps for name, hits in self.hits.items()}
        learned = self.decider.bonus or bool(self.policy.any())
        return EpisodeTally(
            self.number,
            self.n_steps,
            shares["agreed"] if learned else None,
            shares["explored"] if learned else None,
            self.cost / self.random_cost if self.random_cost > 0 else None,
            None if self.foreseeing is None else shares["foreseen"],
            None if self.rival is None else shares["rival"],
            self.blind / self.n_steps,
        )

    # -- the choice model that learns from this episode ------------------------------------------------------------

    def _learn(self, part: BehaviorLog, keys: NDArray[np.uint64]) -> None:
        if self.lessons.size == 0:
            self.lessons.size = max(50, _RIVAL_NUMBERS * part.n_steps // part.contexts.size)
        self.lessons.offer(np.arange(self.n_steps, self.n_steps + part.n_steps), keys)
        kept = {step for _, step in self.lessons.kept}
        self.lesson = {step: content for step, content in self.lesson.items() if step in kept}
        for step in kept - self.lesson.keys():
            inside = step - self.n_steps
            # A copy: a view would keep all of the part in memory.
            self.lesson[step] = (part.candidates(inside).copy(), int(part.chosen[inside]))

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
        return weights, len(lessons) < self.n_steps

    # -- the steps that the page shows -----------------------------------------------------------------------------

    def _sample(
        self,
        part: BehaviorLog,
        keys: NDArray[np.uint64],
        odd: NDArray[np.bool_],
        scored: _Scored,
        quota: int,
    ) -> None:
        first = self.n_steps
        steps = np.arange(first, first + part.n_steps)
        self.keepers[0].size, self.keepers[1].size = quota, max(1, quota // 2)
        self.keepers[0].offer(steps, keys)
        self.keepers[1].offer(steps[odd], keys[odd])
        named = {step for episode, step in self.decider.contradicting if episode == self.number}
        kept = named.union(*({step for _, step in keeper.kept} for keeper in self.keepers))
        self.sample = {step: content for step, content in self.sample.items() if step in kept}
        self.contexts = {step: content for step, content in self.contexts.items() if step in kept}
        for step in sorted(kept):
            if first <= step < first + part.n_steps:
                self.sample[step], self.contexts[step] = self._shown(part, step - first, step, scored, step in named)

    def _shown(
        self, part: BehaviorLog, inside: int, step: int, scored: _Scored, named: bool
    ) -> tuple[SampledStep, NDArray[Any]]:
        rows = slice(int(part.step_offsets[inside]), int(part.step_offsets[inside + 1]))
        expected, width = scored.expected[rows], scored.width[rows]
        total = expected + width if self.decider.bonus else expected
        chosen, picked = int(part.chosen[inside]), int(scored.picked[inside])
        # The pick first: another may tie with it.
        order = sorted(range(len(total)), key=lambda place: (place != picked, -total[place]))
        wanted = {chosen, picked, *order[:_MOST_CANDIDATES]}
        shown = [place for place in order if place in wanted]
        return SampledStep(
            step=step,
            id=None if part.step_ids is None else _text(part.step_ids[inside]),
            time=None if part.timestamps is None else _text(part.timestamps[inside]),
            n_candidates=len(total),
            chosen=chosen,
            picked=picked,
            greedy=int(scored.greedy[inside]),
            foreseen=None if scored.foreseen is None else int(scored.foreseen[inside]),
            explored=bool(scored.explored[inside]),
            contradicts=named,
            candidates=shown,
            expected=_rounded(expected[shown], 6),
            width=_rounded(width[shown], 6),
            values=[],
        ), part.contexts[rows][shown]

    def explained(self) -> SampledEpisode:
        """The sample: all contradicting steps, the odd ones up to half of the rest, and others to fill it."""
        named = [step for step, content in self.sample.items() if content.contradicts]
        odd = [step for _, step in self.keepers[1].kept]
        rest = [step for _, step in self.keepers[0].kept]
        chosen = sorted(list(dict.fromkeys([*named, *odd, *rest]))[: max(self.keepers[0].size, len(named))])
        features = self._telling(chosen)
        shown = []
        for step in chosen:
            values = self.contexts[step][:, features]
            shown.append(self.sample[step]._replace(values=[_rounded(row, 4) for row in values]))
        weights = [float(f"{weight:.8g}") for weight in self.policy[features]]
        return SampledEpisode(self.number, features, weights, shown)

    def _telling(self, steps: list[int]) -> list[int]:
        """The features that move scores most among these steps; all of them if they are few."""
        d = len(self.policy)
        if d <= _MOST_FEATURES:
            return list(range(d))
        contexts = np.concatenate([self.contexts[step] for step in steps])
        moved = np.abs(self.policy) * np.ptp(contexts, axis=0)
        best = np.argsort(-moved, kind="stable")[:_MOST_FEATURES]
        return sorted(int(feature) for feature in best)


def _foresee(policy: Vector, before: Ridge, now: Ridge) -> Vector:
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


def _quota(part: BehaviorLog, episodes: int) -> int:
    """Steps of an episode that a page has room for, given how large the log's steps are."""
    candidates = max(1, part.n_rows // part.n_steps)
    d = part.n_features
    room = _PAGE_CHARACTERS // (120 + min(candidates, _MOST_CANDIDATES) * (7 * min(d, _MOST_FEATURES) + 22))
    return max(1, min(room // max(1, episodes), _SAMPLE_NUMBERS // (candidates * d)))


def _within_budget(sample: list[SampledEpisode]) -> list[SampledEpisode]:
    """The sample without the steps of largest key, if it has become too large for a page."""

    def size(step: SampledStep) -> int:
        return 120 + sum(22 + 7 * len(row) for row in step.values) + len(step.id or "")

    entries = [
        (not step.contradicts, int(step_keys(episode.number, step.step, 1)[0]), size(step), episode.number, step.step)
        for episode in sample
        for step in episode.steps
    ]
    used, kept = 0, set()
    for _, _, length, number, place in sorted(entries):
        used += length
        if used > 1.1 * _PAGE_CHARACTERS:
            break
        kept.add((number, place))
    cut = [
        episode._replace(steps=[step for step in episode.steps if (episode.number, step.step) in kept])
        for episode in sample
    ]
    return [episode for episode in cut if episode.steps]


def _rounded(values: Any, digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


def _text(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 1000 else text[:999] + "…"
