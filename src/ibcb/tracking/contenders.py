"""Candidate kinds on their way through a log, side by side: what each believes, and how likely choices were to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial, reduce
from operator import add
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.engine import Block, Episode
from ibcb.log.fingerprint import NO_LOG
from ibcb.numerics.arrays import Matrix, Stored, Vector, changed, lazy
from ibcb.numerics.contexts import best_rows, step_counts
from ibcb.numerics.newton import SolverError
from ibcb.numerics.ridge import Ridge
from ibcb.tracking.context_sample import ContextSample
from ibcb.tracking.free_policies import FreeFit, Manner, free_fit
from ibcb.tracking.look import Look
from ibcb.tracking.posterior import hopeful, manners_of
from ibcb.tracking.tracker import Track

#: moves by which a decider is called steady or restless (judged by benchmarks/deciders.py)
_LAST_MOVES = 3
#: of a log-likelihood per choice; what comes after is rounding, which another order of candidates changes
_DIGITS = 10


class UntrackedError(ValueError):
    """Numbers cannot hold what is believed of the policy, of any kind that was asked for."""


class Out(NamedTuple):
    """How a kind did that was given up: the episodes seen, and its figures as `Candidate` has them."""

    episodes: int
    log_likelihood: float
    agreement: float

    @classmethod
    def of(cls, judged: Sequence[Comparison], place: int) -> Out:
        """Of a kind that could not be tracked through the last of some episodes."""
        seen = reduce(add, judged)
        return cls(len(judged), seen.per_step(place), seen.agreement(place))


@dataclass(frozen=True)
class Comparison:
    """How likely the choices of some episodes were to each kind, predicted from the episodes before; they add up.

    With the products of the log-likelihoods of two kinds, the standard error of their difference is known without
    keeping any step.

    Attributes
    ----------
    steps, candidates : int
        How many there are; the candidates of all steps.
    log_likelihoods : ndarray of shape (K,)
        Sum over the steps.
    products : ndarray of shape (K, K)
        Sum over the steps of the products.
    hits : ndarray of shape (K,)
        Choices that were the most probable.
    chance, uniform : float
        Choices that would be, by chance, and their log-likelihood then.
    """

    steps: int
    candidates: int
    log_likelihoods: Annotated[Vector, Stored("K")]
    products: Annotated[Matrix, Stored("K K")]
    hits: Annotated[Vector, Stored("K")]
    chance: float
    uniform: float

    @classmethod
    def of(cls, looks: Sequence[Look | None]) -> Comparison:
        """An episode as all kinds saw it; one that could not is taken to have predicted nothing, like chance."""
        seen = next(look for look in looks if look is not None)
        steps, even = len(seen.likelihoods), np.log(seen.chances)
        table = np.array([even if look is None else look.likelihoods for look in looks])
        chance = float(seen.chances.sum())
        hits = np.array([chance if look is None else look.agreement * steps for look in looks])
        candidates = int(np.round((1 / seen.chances).sum()))
        return cls(steps, candidates, table.sum(axis=1), table @ table.T, hits, chance, float(even.sum()))

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def lead(self, one: int, other: int) -> float:
        """By how many standard errors one kind is likelier than another."""
        apart = float(self.log_likelihoods[one] - self.log_likelihoods[other])
        square = float(self.products[one, one] + self.products[other, other] - 2 * self.products[one, other])
        return apart / math.sqrt(square) if square > 0 else 0.0

    def told(self, place: int) -> float:
        """By how much a kind is likelier than chance."""
        return float(self.log_likelihoods[place]) - self.uniform

    def loss(self, one: int, other: int) -> float:
        """How much less than one kind another tells of the choices, as a share of what that one tells."""
        told = self.told(one)
        return float(self.log_likelihoods[one] - self.log_likelihoods[other]) / told if told > 0 else 0.0

    def per_step(self, place: int) -> float:
        """Log-likelihood of a choice to a kind."""
        return float(self.log_likelihoods[place]) / self.steps

    def ranked(self, places: Sequence[int]) -> list[int]:
        """Some kinds, the likeliest first; those that are alike but for rounding in the order given."""
        return sorted(places, key=lambda place: -round(self.per_step(place), _DIGITS))

    def agreement(self, place: int) -> float:
        """Share of the choices that were the most probable to a kind."""
        return float(self.hits[place]) / self.steps

    def beyond_chance(self, place: int) -> float:
        """How much of what chance leaves open a kind predicted, 1 if all of it."""
        chance = self.chance / self.steps
        return (self.agreement(place) - chance) / (1 - chance) if chance < 1 else 0.0


@dataclass(frozen=True)
class Tracks:
    """What all candidate kinds believe after some episodes; with the log, all that a selection needs to go on.

    Attributes
    ----------
    kinds : tuple of Kind
    tracks : tuple of Track or None
        One for each kind; None once numbers could not hold it, or it was given up.
    failures : tuple of str
        Why numbers could not.
    changes : tuple of ndarray of shape (episodes,)
        Of each kind that does not learn, how often its last policies chose otherwise than those before them.
    judged : tuple of Comparison
        Of each episode that the policy chose.
    stored : int
        Episodes so far, the warm-up's counted.
    fingerprint : str
        Of the log so far.
    out : tuple of Out or None
        Of each kind that was given up, because it had fallen behind or failed, how it did.
    free : tuple of FreeFit
        What each episode that the policy chose says of the `manners`; none where there is one name to choose from.
    """

    kinds: tuple[Kind, ...]
    tracks: tuple[Track | None, ...]
    failures: tuple[str, ...]
    changes: tuple[Annotated[Vector, Stored("episodes")], ...]
    judged: tuple[Comparison, ...]
    stored: int
    fingerprint: str
    out: tuple[Out | None, ...]
    free: tuple[FreeFit, ...] = ()

    @classmethod
    def begin(cls, kinds: Sequence[Kind], prior_gram: Matrix) -> Tracks:
        """Before anything is seen."""
        return cls(
            kinds=tuple(kinds),
            tracks=tuple(Track.begin(kind, prior_gram) for kind in kinds),
            failures=("",) * len(kinds),
            changes=(np.empty(0),) * len(kinds),
            judged=(),
            stored=0,
            fingerprint=NO_LOG,
            out=(None,) * len(kinds),
        )

    def after(self, episode: Episode) -> Tracks:
        """One more episode; see `Track.after`."""
        steps, sample = list[_Step](), None
        for known in zip(self.tracks, self.failures, self.changes, strict=True):
            step = _step(*known, episode, sample)
            steps.append(step)
            if step.look is not None and step.track is not None:
                # All draw the same sample of candidate sets, and hold it once, in memory and in files.
                sample = step.track.seen.sample
        tracks, failures, changes, looks = zip(*steps, strict=True)
        if episode.by_policy and not any(looks):
            whom = self.kinds[0].label if len(self.kinds) == 1 else "any kind of decider"
            raise UntrackedError(
                f"the choices cannot be tracked as those of {whom}: numbers leave the range of floating point "
                f"({failures[0]}). Rescale the contexts to about 1."
            )
        judged = (*self.judged, Comparison.of(looks)) if episode.by_policy else self.judged
        lost = [place for place, track in enumerate(self.tracks) if track is not None and tracks[place] is None]
        return changed(
            self.without({place: Out.of(judged, place) for place in lost}) if lost else self,
            tracks=tracks,
            failures=failures,
            changes=changes,
            judged=judged,
            stored=self.stored + 1,
            fingerprint=episode.after.fingerprint,
            free=(*self.free, *self._free(episode)),
        )

    def _free(self, episode: Episode) -> tuple[FreeFit, ...]:
        """What the episode says of how the decider chooses, where that is asked."""
        if not self.manners or not episode.by_policy:
            return ()
        if not episode.before.chosen.phi.any():
            # Nothing had been learned: it is not chosen by a policy yet.
            return (FreeFit.of_nothing(len(self.manners)),)
        asked = hopeful(self.manners, self.free)
        before = [None if each.kind is None else each.kind.ridge(episode.before) for each in self.manners]
        return (episode.rows.head(partial(free_fit, manners=self.manners, before=before, asked=asked)),)

    @lazy
    def manners(self) -> tuple[Manner, ...]:
        """How the decider may choose; empty where its name is given."""
        return manners_of(self.kinds) if len({kind.name for kind in self.kinds}) > 1 else ()

    @property
    def n_features(self) -> int:
        """How many features there are."""
        return next(track.d for track in self.tracks if track is not None)

    @property
    def episodes(self) -> int:
        """Those that the policy chose, so far."""
        return len(self.judged)

    @property
    def running(self) -> list[int]:
        """Places of the kinds that have neither been given up nor failed."""
        known = enumerate(zip(self.out, self.failures, strict=True))
        return [place for place, (out, failure) in known if out is None and not failure]

    def without(self, given_up: dict[int, Out]) -> Tracks:
        """Without going on with some of the kinds, by place."""
        out = tuple(given_up.get(place, each) for place, each in enumerate(self.out))
        tracks = tuple(track if each is None else None for each, track in zip(out, self.tracks, strict=True))
        return changed(self, out=out, tracks=tracks)

    def steadiness(self, place: int) -> float:
        """How often a kind's policies of consecutive episodes prefer the same candidate, lately, errors of estimation
        aside; 1 where there is nothing to compare.
        """
        changes = self.changes[place]
        return 1 - float(np.mean(changes)) if len(changes) else 1.0

    def check(self) -> None:
        """Raise ValueError where the tracks cannot be those of their kinds."""
        count = len(self.kinds)
        parts = (self.tracks, self.failures, self.changes, self.out)
        if not count or {len(each) for each in parts} != {count} or not self.running:
            raise ValueError(f"{count} kinds do not go with {len(self.tracks)} tracks")
        if any(len(each.hits) != count for each in self.judged):
            raise ValueError(f"its judgements are not of {count} kinds")
        if any(len(each.scores) != len(self.manners) for each in self.free):
            raise ValueError(f"its fits are not of {len(self.manners)} choice rules")
        for kind, track in zip(self.kinds, self.tracks, strict=True):
            if track is not None and track.kind != kind:
                raise ValueError(f"the track of {kind.label} is that of {track.kind.label}")
            if track is not None and (track.stored, len(track.policies)) != (self.stored, self.episodes):
                raise ValueError(f"the track of {kind.label} has seen {track.stored} of {self.stored} episodes")


class _Step(NamedTuple):
    """A track, why there is none, the changes of its policies, and the look at it."""

    track: Track | None
    failure: str
    changes: Vector
    look: Look | None = None


def _step(track: Track | None, failure: str, changes: Vector, episode: Episode, sample: ContextSample | None) -> _Step:
    """After one more episode; ``sample``: that of the candidate sets so far, where another track has drawn it."""
    if track is None:
        return _Step(None, failure, changes)
    if not episode.by_policy:
        return _Step(track.after(episode), "", changes)
    try:
        look = track.look(episode, sampled=sample is None)
        track = track.given(look, episode, sample)
    except (np.linalg.LinAlgError, ArithmeticError, SolverError) as error:
        return _Step(None, str(error).partition(". ")[0] or type(error).__name__, changes)
    if not _is_finite(track, look):
        return _Step(None, "a belief is not finite", changes)
    if not track.own_moves:
        return _Step(track, "", changes, look)
    asked = [(track.kind, track.kind.ridge(episode.before), each) for each in track.policies[-2:]]
    counts, _, scores = episode.rows.head(partial(scored, asked=asked))
    offsets = np.append(0, counts.cumsum())
    one, other = (best_rows(each, offsets) for each in scores)
    # The share of steps that change is about in proportion to the length of a move.
    change = track.own_moves[-1] * float(np.mean(one != other))
    return _Step(track, "", np.append(changes, change)[-_LAST_MOVES:], look)


def _is_finite(track: Track, look: Look) -> bool:
    """Whether all numbers are finite that came with an episode: others predict nothing, and cannot be stored."""
    now, policy = track.seen, track.policies[-1]
    arrays = [policy, look.likelihoods, now.evidence, now.whole_evidence, now.information, now.random_share]
    for beliefs in now.families:
        arrays += [beliefs.mean, beliefs.covariance]
    arrays += [] if now.rewards is None else [now.rewards.normal, now.rewards.right, np.array(now.rewards.squares)]
    arrays += [] if now.exploration is None else [now.exploration.evidence]
    numbers = (now.stray, *track.own_moves[-1:])
    # A sum is finite where all terms are, unless they are huge.
    return all(math.isfinite(each.sum()) or bool(np.isfinite(each).all()) for each in arrays) and all(
        map(math.isfinite, numbers)
    )


class Scored(NamedTuple):
    """Of some steps of an episode, how many candidates each has, which was chosen, and all scores by each of some
    policies: an array of shape (rows,) each.
    """

    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]
    scores: list[Vector]


def scored(block: Block, *, asked: Sequence[tuple[Kind, Ridge, Vector]]) -> Scored:
    """The steps of a block, and the scores of all candidates by each of some policies."""
    scores = [kind.scores(block, before, policy) for kind, before, policy in asked]
    return Scored(step_counts(block.offsets), block.chosen_rows - block.offsets[:-1], scores)
