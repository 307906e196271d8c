"""Candidate kinds on their way through a log, side by side: what each believes, and how it scores candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.engine import Block, Rows
from ibcb.inverse.constraints import Experience
from ibcb.log.fingerprint import NO_LOG, with_episode
from ibcb.numerics.ridge import Regularization, Ridge
from ibcb.tracking.context_sample import ContextSample, best_rows
from ibcb.tracking.tracker import Track

__all__ = ["Out", "Ridges", "Scored", "Tracks", "scored"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]
#: what the choices before an episode leave behind, by how it is regularized
Ridges = dict[Regularization, Ridge]

#: moves by which a decider is called steady or restless (judged by benchmarks/deciders.py)
_LAST_MOVES = 3


class Out(NamedTuple):
    """How a kind did that was given up: the episodes seen, and its figures as `Candidate` has them."""

    episodes: int
    log_likelihood: float
    agreement: float


@dataclass(frozen=True)
class Tracks:
    """What all candidate kinds believe after some episodes; with the log, all that a selection needs to go on.

    Kinds that differ only in which model they believe of what comes share a track: "stationary" and "other".

    Attributes
    ----------
    kinds : tuple of Kind
    tracks : tuple of Track or None
        One for all kinds that are tracked alike; None once numbers could not hold it.
    failures : tuple of str
        Why a track is None.
    changes : tuple of ndarray of shape (episodes,)
        Of each track of kinds that do not learn, how often its last policies chose otherwise than those before them.
    ahead : tuple of ndarray of shape (n, d)
        Of each kind, the policy of every episode as it was predicted from the episodes before.
    episodes, stored : int
        How many so far; those of the policy, and all.
    fingerprint : str
        Of the log so far.
    out : tuple of Out or None
        Of each kind that has fallen behind and was given up, how it did.
    """

    kinds: tuple[Kind, ...]
    tracks: tuple[Track | None, ...]
    failures: tuple[str, ...]
    changes: tuple[Annotated[Vector, "episodes"], ...]
    ahead: tuple[Annotated[Matrix, "n d"], ...]
    episodes: int
    stored: int
    fingerprint: str
    out: tuple[Out | None, ...]

    @classmethod
    def begin(cls, kinds: Sequence[Kind], prior_gram: Matrix) -> Tracks:
        """Before anything is seen."""
        firsts = [kinds[places[0]] for places in _tracked_alike(kinds)]
        return cls(
            kinds=tuple(kinds),
            tracks=tuple(Track.begin(kind, prior_gram) for kind in firsts),
            failures=("",) * len(firsts),
            changes=(np.empty(0),) * len(firsts),
            ahead=(np.empty((0, len(prior_gram))),) * len(kinds),
            episodes=0,
            stored=0,
            fingerprint=NO_LOG,
            out=(None,) * len(kinds),
        )

    def of(self, place: int) -> int:
        """Which of the tracks is that of a kind."""
        return self._owners[place]

    @cached_property
    def _owners(self) -> dict[int, int]:
        return {place: track for track, places in enumerate(_tracked_alike(self.kinds)) for place in places}

    def track(self, place: int) -> Track | None:
        """The track of a kind."""
        track = self.tracks[self.of(place)]
        return None if track is None else replace(track, kind=self.kinds[place], ahead=self.ahead[place])

    def after(self, rows: Rows | None, before: Ridges, lesson: Experience) -> Tracks:
        """One more episode; see `Track.after`."""
        by_policy = rows is not None
        named_by = (lesson.counts, lesson.chosen, lesson.phi)
        steps = [
            _step(track, failure, changes, rows, before, lesson)
            for track, failure, changes in zip(self.tracks, self.failures, self.changes, strict=True)
        ]
        tracks, failures, changes = zip(*steps, strict=True)
        return replace(
            self,
            tracks=_with_one_sample(tracks),
            failures=failures,
            changes=changes,
            ahead=tuple(self._with_next(place) for place in range(len(self.kinds))) if by_policy else self.ahead,
            episodes=self.episodes + by_policy,
            stored=self.stored + 1,
            fingerprint=with_episode(self.fingerprint, *named_by, by_policy=by_policy),
        )

    def _with_next(self, place: int) -> Matrix:
        """``ahead`` of a kind with the coming episode: zeros for the first, nothing where nothing can be predicted."""
        track = self.track(place)
        if track is None:
            return self.ahead[place]
        policy = np.zeros(track.d) if track.now is None else track.next_policy
        return np.vstack([self.ahead[place], policy])

    @property
    def running(self) -> list[int]:
        """Places of the kinds that have not been given up."""
        return [place for place, out in enumerate(self.out) if out is None]

    def without(self, given_up: dict[int, Out]) -> Tracks:
        """Without going on with some of the kinds, by place."""
        out = tuple(given_up.get(place, each) for place, each in enumerate(self.out))
        wanted = {self.of(place) for place, each in enumerate(out) if each is None}
        tracks = tuple(track if own in wanted else None for own, track in enumerate(self.tracks))
        return replace(self, out=out, tracks=tracks)

    def predicted(self, place: int, episode: int) -> Vector | None:
        """The policy of an episode as a kind predicted it; None where it could predict nothing."""
        return next(iter(self.ahead[place][episode : episode + 1]), None)

    def believed(self, place: int, episode: int) -> Vector | None:
        """The policy of an episode as a kind believed it once the episode was seen; None where it is not tracked."""
        track = self.tracks[self.of(place)]
        return None if track is None else track.policies[episode]

    def steadiness(self, place: int) -> float:
        """How often a kind's policies of consecutive episodes prefer the same candidate, lately, errors of estimation
        aside; 1 where there is nothing to compare.
        """
        changes = self.changes[self.of(place)]
        return 1 - float(np.mean(changes)) if len(changes) else 1.0


def _tracked_alike(kinds: Sequence[Kind]) -> list[list[int]]:
    """Places of kinds whose tracks are the same: by choice rule, motions and parameters."""
    groups: dict[Any, list[int]] = {}
    for place, kind in enumerate(kinds):
        rule = (type(kind).unit, type(kind).observe, type(kind).scores)
        weighed = (kind.scales, kind.motions, kind.learns, kind.compares_predictions, kind.hopeless)
        groups.setdefault((rule, weighed, kind.regularization, kind.top_k), []).append(place)
    return list(groups.values())


def _step(
    track: Track | None,
    failure: str,
    changes: Vector,
    rows: Rows | None,
    before: Ridges,
    lesson: Experience,
) -> tuple[Track | None, str, Vector]:
    """A track, why there is none, and the changes of its policies, after one more episode."""
    if track is None:
        return None, failure, changes
    now = before[track.kind.regularization]
    try:
        track = track.after(rows, now, lesson)
    except (np.linalg.LinAlgError, ArithmeticError) as error:
        return None, str(error) or type(error).__name__, changes
    if not _is_finite((track.now, track.predicted[-1:], track.own_moves[-1:], track.policies[-1:])):
        return None, "a belief is not finite", changes
    if rows is None or track.kind.learns or len(track.policies) < 2:
        return track, "", changes
    counts, _, scores = rows.head(partial(scored, asked=[(track.kind, now, each) for each in track.policies[-2:]]))
    one, other = (best_rows(each, counts) for each in scores)
    # The share of steps that change is about in proportion to the length of a move.
    change = track.own_moves[-1] * float(np.mean(one != other))
    return track, "", np.append(changes, change)[-_LAST_MOVES:]


def _is_finite(value: Any) -> bool:
    """Whether all numbers that a record holds are finite: others predict nothing, and cannot be stored."""
    if isinstance(value, ContextSample):
        # In single precision it may overflow where beliefs do not.
        return True
    if isinstance(value, np.ndarray):
        return bool(np.isfinite(value).all())
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    if is_dataclass(value):
        return all(_is_finite(getattr(value, each.name)) for each in fields(value))
    return not isinstance(value, float) or math.isfinite(value)


def _with_one_sample(tracks: tuple[Track | None, ...]) -> tuple[Track | None, ...]:
    """The tracks; those that have drawn the same sample of candidate sets hold it once, in memory and in files."""
    first = next((track.now.sample for track in tracks if track is not None and track.now is not None), None)

    def shared(track: Track | None) -> Track | None:
        if track is None or track.now is None or first is None or not np.array_equal(track.now.sample.keys, first.keys):
            return track
        return replace(track, now=replace(track.now, sample=first))

    return tuple(map(shared, tracks))


class Scored(NamedTuple):
    """Of some steps of an episode, how many candidates each has, which was chosen, and all scores by each of some
    policies: an array of shape (rows,) each.
    """

    counts: Counts
    chosen: Counts
    scores: list[Vector]

    def every(self, stride: int) -> Scored:
        """Only every so manyth step, from the first on."""
        if stride == 1:
            return self
        kept = np.arange(len(self.counts)) % stride == 0
        of_rows = np.repeat(kept, self.counts)
        return Scored(self.counts[kept], self.chosen[kept], [each[of_rows] for each in self.scores])


def scored(block: Block, *, asked: Sequence[tuple[Kind, Ridge, Vector | None]]) -> Scored:
    """The steps of a block, and the scores of all candidates by each of some policies."""
    nothing = np.full(block.n_rows, np.nan)
    scores = [nothing if policy is None else kind.scores(block, before, policy) for kind, before, policy in asked]
    return Scored(np.diff(block.offsets), block.chosen_rows - block.offsets[:-1], scores)
