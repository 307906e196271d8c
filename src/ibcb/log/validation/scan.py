"""One pass over a log: all that the findings rest on, in memory that does not grow with the number of steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, xlogy

from ibcb.log.array_checks import first_true, step_place
from ibcb.log.behavior_log import BehaviorLog, dense_pieces
from ibcb.log.choice_propensities import sum_tolerance
from ibcb.log.protocol import Log
from ibcb.log.validation.constancy import Change, Sample, Sampler, due, find_change
from ibcb.log.validation.first_episode import lean_test, missing_past
from ibcb.numerics.contexts import LARGEST, nbytes

#: the name of a step of a part, for messages
_Place = Callable[[int], str]

#: so that a block stays in the processor's cache; not tuned finely
_BLOCK_BYTES = 1 << 21
#: beyond it eigenvalues take long, and fewer episodes are judged; not tuned finely
_MANY_FEATURES = 100
#: steps that far apart are equal by chance only; a prime, so that no period of a log divides it
_STEPS_APART = 97
#: for the first episode's choices to tell whether there was a past; not tuned
_STEPS_PER_FEATURE = 5
#: how far from 1 the sum of a feature may be that is read as a propensity
_OFF_PROPENSITY = 0.1
#: rounding of one number
ROUNDING = {"float32": 1.2e-7, "float64": 2.3e-16}
#: how far a propensity may be from 1 / candidates, as a share of it, to be even: they are often rounded
_EVEN = 0.02
#: 2^64 over the golden ratio, odd: Knuth's multiplicative hash
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class EpisodeScan:
    """What is kept of one episode.

    ``random_p`` is the probability that choices drawn evenly among the candidates lean as much as these do towards some
    features, or towards long contexts; ``position_p`` that positions come out as uneven. ``pull`` is the lean of a
    single step: the statistic less what chance gives, over the steps. None where the episode was not looked at.
    """

    number: int
    steps: int = 0
    telling: int = 0
    random_p: float | None = None
    position_p: float | None = None
    pull: float = 0.0
    directions: int = 0
    inside: Change | None = None
    edge: Change | None = None


class LoggedScan:
    """Counts of the steps of a log by what was logged of their propensities. Steps with one candidate tell nothing.

    ``count`` has all ``steps``; ``chosen``, those whose choice has a propensity; ``complete``, those whose candidates
    all have one; of these those that are ``off``, not summing to 1. The choices of the others have a surprise -log p
    that is known in mean and variance. Of the choices with a propensity between candidates, ``told``, the ``certain``.
    """

    def __init__(self) -> None:
        self.count = Counter[str]()
        self.first_off: tuple[str, float] | None = None
        self.surprise = self.variance = 0.0
        #: of each episode: choices ``told``, and ``even`` ones, which were as likely as all others
        self.episodes: dict[int, Counter[str]] = {}

    def add(self, number: int, part: BehaviorLog, p: NDArray[np.float64] | None, place: _Place) -> None:
        """Count the steps of a part, whose rows have propensities p; ``place`` names them."""
        self.count["steps"] += part.n_steps
        if p is None:
            return
        counts, starts = np.diff(part.step_offsets), part.step_offsets[:-1]
        of_chosen = p[part.chosen_rows]
        known = ~np.isnan(of_chosen)
        sums = np.add.reduceat(p, starts)
        complete = ~np.isnan(sums)
        off = complete & (np.abs(sums - 1) > sum_tolerance(counts))
        if off.any() and self.first_off is None:
            self.first_off = place(int(np.argmax(off))), float(sums[off][0])
        told = known & (counts > 1)
        marks = {"chosen": known, "complete": complete, "off": off, "told": told, "certain": told & (of_chosen == 1)}
        self.count.update({name: int(marked.sum()) for name, marked in marks.items()})
        even = told & (np.abs(of_chosen * counts - 1) < _EVEN)
        self.episodes.setdefault(number, Counter()).update(told=int(told.sum()), even=int(even.sum()))
        sound = complete & ~off & (counts > 1)
        if sound.any():
            # 0 log 0 is 0; candidates with propensity 0 add nothing.
            entropy = -np.add.reduceat(xlogy(p, p), starts)
            log_p = np.log(np.where(p > 0, p, 1.0))
            square = np.add.reduceat(p * log_p**2, starts)
            self.surprise += float((-np.log(of_chosen[sound]) - entropy[sound]).sum())
            self.variance += float((square[sound] - entropy[sound] ** 2).sum())

    @property
    def deviations(self) -> float:
        """By how many standard deviations the choices are less likely than draws would be."""
        return self.surprise / np.sqrt(self.variance) if self.variance > 0 else 0.0

    @property
    def evenly(self) -> dict[int, bool]:
        """Of each episode that the policy chose, as far as it tells: were its choices drawn evenly?"""
        policy = {number: told for number, told in self.episodes.items() if number >= 0 and told["told"]}
        return {number: told["even"] > 0.99 * told["told"] for number, told in policy.items()}


class Scan:
    """Sums over all steps of a log, to which parts are added in order; ``finish`` ends the last episode."""

    def __init__(self) -> None:
        self.d = 0
        self.feature_names: tuple[str, ...] | None = None
        self.episodes: list[EpisodeScan] = []
        self.steps = self.rows = self.nbytes = 0
        self.dtype: str | None = None
        self.candidates = Counter[int]()
        #: steps with a single candidate, with equal ones, with twins, with a twin of the chosen one; those that repeat
        #: the step before; those whose time runs backward, overlaps with an earlier episode, or is missing
        self.count = Counter[str]()
        #: and where the first one of each kind is
        self.places = dict[str, str]()
        self.chance_repeats = 0
        self.time_span: tuple[Any, Any] | None = None
        self.logged = LoggedScan()
        #: how many steps of the policy with a choice to make have chosen each position
        self.positions = Counter[int]()
        #: whether the first episode shows that the decider had learned before, be it sbucb or sbts
        self.has_past = False
        #: from the first episode to the last
        self.overall: Change | None = None
        self._now: _OpenEpisode | None = None
        self._first: Sample | None = None
        self._before: Sample | None = None
        self._hashes = np.empty(0, dtype=np.uint64)
        self._last_time: Any = None
        self._latest: Any = None

    def _begin(self, part: BehaviorLog) -> None:
        d = self.d = part.n_features
        self.feature_names = part.feature_names
        #: within-step scatter: each step adds the covariance of a candidate drawn evenly from it, shape (d, d)
        self.scatter = np.zeros((d, d))
        #: number of steps in which each feature varies
        self.varies = np.zeros(d, dtype=np.int64)
        self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)
        #: number of steps in which the chosen candidate alone has the largest, or the smallest, value of each feature
        self.largest, self.smallest = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64)
        #: extreme values of each feature among the candidates that were not chosen
        self.rest_low, self.rest_high = np.full(d, np.inf), np.full(d, -np.inf)
        #: features that may be the decider's propensities, and what they are worth as such
        self.like_propensities = np.arange(d)
        self.as_propensities = defaultdict[int, LoggedScan](LoggedScan)
        #: an odd number for each feature, by which candidates are hashed
        self._keys = np.random.default_rng(0).integers(2**63, size=d, dtype=np.uint64) * np.uint64(2) + np.uint64(1)

    @property
    def policy(self) -> list[EpisodeScan]:
        """The episodes that the policy chose."""
        return [episode for episode in self.episodes if episode.number >= 0]

    @property
    def overflows(self) -> bool:
        """Whether numbers are too large to be squared; then no test was made."""
        return bool(max(-self.low.min(), self.high.max()) > LARGEST)

    @property
    def contests(self) -> int:
        """Steps with two candidates or more."""
        return self.steps - self.count["single"]

    @property
    def sd(self) -> NDArray[np.float64]:
        """Spread of each feature within the steps in which it varies."""
        sd: NDArray[np.float64] = np.sqrt(np.diag(self.scatter) / np.maximum(self.varies, 1))
        return sd

    @property
    def peak(self) -> NDArray[np.float64]:
        """Largest absolute value of each feature."""
        peak: NDArray[np.float64] = np.maximum(np.abs(self.low), np.abs(self.high))
        return peak

    @property
    def varying(self) -> NDArray[np.bool_]:
        """Features that are not the same for all candidates of every step, up to rounding."""
        varying: NDArray[np.bool_] = ~(self.sd <= 4 * ROUNDING.get(self.dtype or "", 0.0) * self.peak)
        return varying

    def add(self, number: int, part: BehaviorLog) -> None:
        """Some whole steps of the episode of this number; negative in the warm-up."""
        with np.errstate(over="ignore", invalid="ignore"):
            if not self.steps:
                self._begin(part)
            self.steps += part.n_steps
            self.rows += part.n_rows
            self.dtype = str(part.contexts.dtype)
            extras = (part.timestamps, part.step_ids, part.propensities)
            held = (part.chosen, part.step_offsets[1:], *(extra for extra in extras if extra is not None))
            self.nbytes += nbytes(part.contexts) + sum(array.nbytes for array in held)
            self.candidates.update(_tally(np.diff(part.step_offsets)))
            for piece in dense_pieces(part):
                self._add(number, piece)

    def finish(self) -> Scan:
        """The end of the log: itself."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._close()
            if self._first is not None and self._before is not None and self._first is not self._before:
                self.overall = find_change(self._first.join(self._before))
        return self

    def _add(self, number: int, part: BehaviorLog) -> None:
        now = self._now
        if now is None or now.facts.number != number:
            self._close()
            now = self._now = _OpenEpisode(number, self.d)
            self.episodes.append(now.facts)
        place = partial(step_place, number, now.facts.steps)
        hashes = np.empty(part.n_steps, dtype=np.uint64)
        marks = np.zeros((4, part.n_steps), dtype=bool)
        for steps, X, chosen in _blocks(part):
            self._look(X, chosen, now)
            hashes[steps], marks[:, steps] = _compared(_row_hashes(X, self._keys), chosen)
        for kind, marked in zip(("single", "equal", "twins", "chosen twins"), marks, strict=True):
            self._mark(kind, marked, place)
        self._repeats(hashes, place)
        self.logged.add(number, part, part.propensities, place)
        self._read_as_propensities(number, part, place)
        if part.timestamps is not None and part.timestamps.dtype.kind in "iufM":
            self._times(part.timestamps, place)
        if number >= 0:
            self.positions.update(_tally(part.chosen[~marks[0]]))
        now.positions.update(_tally(part.chosen))
        now.sampler.add(part, now.facts.steps)
        now.facts.telling += int(np.count_nonzero(~(marks[0] | marks[1])))
        now.facts.steps += part.n_steps
        now.candidates.update(_tally(np.diff(part.step_offsets)))

    def _mark(self, kind: str, marked: NDArray[np.bool_], place: _Place) -> None:
        """Count the steps of a part that are of a kind."""
        if (first := first_true(marked)) is not None:
            self.places.setdefault(kind, place(first))
            self.count[kind] += int(np.count_nonzero(marked))

    def _look(self, X: NDArray[np.float64], chosen: NDArray[np.int64], now: _OpenEpisode) -> None:
        """Some steps of M candidates each, X of shape (steps, M, d)."""
        n, M, d = X.shape
        each = np.arange(n)
        taken = X[each, chosen]
        highest = lowest = taken
        if M > 1:
            X[each, chosen] = -np.inf
            highest = X.max(axis=1)
            X[each, chosen] = np.inf
            lowest = X.min(axis=1)
            X[each, chosen] = taken
            self.largest += np.count_nonzero(taken > highest, axis=0)
            self.smallest += np.count_nonzero(taken < lowest, axis=0)
            np.minimum(self.rest_low, lowest.min(axis=0), out=self.rest_low)
            np.maximum(self.rest_high, highest.max(axis=0), out=self.rest_high)
            highest, lowest = np.maximum(highest, taken), np.minimum(lowest, taken)
            self.varies += np.count_nonzero(highest > lowest, axis=0)
            # First about one of them: what all candidates share cancels without rounding.
            C = X - X[:, :1]
            C -= C.mean(axis=1, keepdims=True)
            rows = C.reshape(n * M, d)
            scatter = rows.T @ rows / M
            self.scatter += scatter
            if now.judged:
                now.gather(X, C, scatter, chosen)
        np.minimum(self.low, lowest.min(axis=0), out=self.low)
        np.maximum(self.high, highest.max(axis=0), out=self.high)

    def _repeats(self, hashes: NDArray[np.uint64], place: _Place) -> None:
        """Steps equal to the one before, and to one far before: that happens where there are few kinds of steps."""
        known = np.concatenate([self._hashes, hashes])
        repeated = np.zeros(len(known), dtype=bool)
        repeated[1:] = known[1:] == known[:-1]
        self._mark("repeats", repeated[len(self._hashes) :], place)
        equal = known[_STEPS_APART:] == known[:-_STEPS_APART]
        self.chance_repeats += int(np.count_nonzero(equal[-len(hashes) :]))
        self._hashes = known[-_STEPS_APART:]

    def _read_as_propensities(self, number: int, part: BehaviorLog, place: _Place) -> None:
        """Features that sum to 1 over the candidates of every step, and are above 0 for the chosen ones."""
        P = part.contexts[:, self.like_propensities].astype(np.float64)
        off = np.abs(np.add.reduceat(P, part.step_offsets[:-1], axis=0) - 1) > _OFF_PROPENSITY
        possible = ~off.any(axis=0) & (P.min(axis=0) >= 0) & (P[part.chosen_rows].min(axis=0) > 0)
        self.like_propensities = self.like_propensities[possible]
        for column, p in zip(self.like_propensities.tolist(), P.T[possible], strict=True):
            self.as_propensities[column].add(number, part, p, place)

    def _times(self, times: NDArray[Any], place: _Place) -> None:
        missing = np.isnat(times) if times.dtype.kind == "M" else np.isnan(times)
        self._mark("untimed", missing, place)
        known = times[~missing]
        if len(known) == 0:
            return
        before = np.concatenate([known[:1] if self._last_time is None else [self._last_time], known[:-1]])
        backward = np.zeros(len(times), dtype=bool)
        backward[~missing] = known < before
        self._mark("backward", backward, place)
        if self._latest is not None:
            self._mark("overlaps", np.asarray(times < self._latest), place)
        span = (known.min(), known.max()) if self.time_span is None else self.time_span
        self.time_span = min(span[0], known.min()), max(span[1], known.max())
        self._last_time = known[-1]

    def _close(self) -> None:
        """The end of an episode."""
        if self._now is None:
            return
        facts, sample = self._now.facts, self._now.sampler.sample
        self._last_time = None
        if self.time_span is not None:
            self._latest = self.time_span[1]
        if self.overflows:
            return
        if self._now.judged:
            self._now.judge()
        if facts.number < 0 or sample is None:
            return
        if due(facts.number):
            facts.inside = find_change(sample)
            facts.edge = None if self._before is None else find_change(self._before.across(sample))
        if len(self.episodes) == 1 and len(sample.steps) >= _STEPS_PER_FEATURE * self.d:
            n = len(sample.steps)
            log = BehaviorLog(sample.contexts, sample.offsets, np.zeros(n, dtype=np.int64), [0, n])
            self.has_past = all(missing_past(log, bonus=bonus) for bonus in (True, False))
        self._before = sample
        self._first = sample if self._first is None else self._first


def scan(log: Log) -> Scan:
    """Pass over a log once."""
    sums = Scan()
    for number, part in log.parts():
        sums.add(number, part)
    return sums.finish()


class _OpenEpisode:
    """Sums over the episode that is being read."""

    def __init__(self, number: int, d: int) -> None:
        self.facts = EpisodeScan(number)
        self.sampler = Sampler()
        # Eigenvalues of many features take long: fewer episodes then.
        self.judged = due(number) and (d <= _MANY_FEATURES or abs(number) & (abs(number) - 1) == 0)
        #: scatter of the features and of the squared length, and what the chosen ones have above the mean of their step
        self.spread, self.lean = np.zeros((d + 1, d + 1)), np.zeros(d + 1)
        self.exponent: int | None = None
        self.positions, self.candidates = Counter[int](), Counter[int]()

    def gather(self, X: NDArray[np.float64], C: NDArray[np.float64], scatter: Any, chosen: NDArray[np.int64]) -> None:
        """Add steps of M candidates each; C are the contexts X about the mean of their step."""
        n, M, d = X.shape
        each = np.arange(n)
        if self.exponent is None:
            self.exponent = int(np.frexp(np.abs(X).max())[1])
        # Near 1 by a power of two, which changes no digit: the squared length is squared again.
        near = np.ldexp(X, -self.exponent)
        length = np.einsum("tmd,tmd->tm", near, near)
        length -= length.mean(axis=1, keepdims=True)
        self.spread[:d, :d] += scatter
        self.spread[:d, d] += length.ravel() @ C.reshape(n * M, d) / M
        self.spread[d, d] += np.vdot(length, length) / M
        self.lean[:d] += C[each, chosen].sum(axis=0)
        self.lean[d] += length[each, chosen].sum()

    def judge(self) -> None:
        """Do the choices look drawn evenly from the candidates?"""
        facts = self.facts
        self.spread[-1, :-1] = self.spread[:-1, -1]
        statistic, facts.directions = lean_test(self.lean, self.spread)
        if facts.directions:
            facts.random_p = float(chdtrc(facts.directions, statistic))
            facts.pull = max(0.0, statistic - facts.directions) / max(facts.telling, 1)
        expected = np.zeros(max(self.candidates))
        for count, times in self.candidates.items():
            expected[:count] += times / count
        if len(expected) > 1 and expected.min() >= 5:
            seen = np.array([self.positions[position] for position in range(len(expected))])
            facts.position_p = float(chdtrc(len(expected) - 1, np.sum((seen - expected) ** 2 / expected)))


def _blocks(part: BehaviorLog) -> Iterator[tuple[Any, NDArray[np.float64], NDArray[np.int64]]]:
    """Steps with equally many candidates, few enough to stay in the cache: which, contexts (n, M, d), chosen."""
    d, counts = part.n_features, np.diff(part.step_offsets)
    for M in np.unique(counts).tolist():
        steps = np.flatnonzero(counts == M)
        length = max(1, _BLOCK_BYTES // (8 * d * M))
        for first in range(0, len(steps), length):
            some = steps[first : first + length]
            if part.candidates_per_step is not None:
                rows = part.contexts[int(some[0]) * M : (int(some[-1]) + 1) * M]
            else:
                rows = part.contexts[(part.step_offsets[some, None] + np.arange(M)).ravel()]
            # A copy: it is written to. Adding 0 makes -0 equal to 0 in its bits too.
            yield some, rows.astype(np.float64).reshape(len(some), M, d) + 0.0, part.chosen[some]


def _tally(values: NDArray[np.int64]) -> dict[int, int]:
    """How often each of some numbers from 0 occurs."""
    counts = np.bincount(values)
    seen = np.flatnonzero(counts)
    return dict(zip(seen.tolist(), counts[seen].tolist(), strict=True))


def _row_hashes(X: NDArray[np.float64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of every row, equal where rows are: shape (steps, M, d) to (steps, M).

    Sums of whole numbers, unlike those of floats, do not depend on their order. X must not hold -0.0.
    """
    # The bits of small whole numbers all lie at the top: bring them down before they meet the keys.
    bits = X.view(np.uint64) * _MIX
    bits ^= bits >> np.uint64(32)
    bits *= keys
    bits ^= bits >> np.uint64(29)
    hashes: NDArray[np.uint64] = bits.sum(axis=2, dtype=np.uint64)
    return hashes


def _compared(rows: NDArray[np.uint64], chosen: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """From hashes of the candidates, shape (steps, M): a hash of each step with its choice, and marks (4, steps).

    Marks: one candidate; all candidates equal; some equal; one equal to the chosen one.
    """
    n, M = rows.shape
    position = _MIX * (2 * np.arange(M, dtype=np.uint64) + np.uint64(1))
    steps: NDArray[np.uint64] = (rows * position).sum(axis=1) + chosen.astype(np.uint64) * _MIX
    marks = np.zeros((4, n), dtype=bool)
    if M == 1:
        marks[0] = True
    else:
        ordered = np.sort(rows, axis=1)
        marks[1] = ordered[:, 0] == ordered[:, -1]
        marks[2] = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        marks[3] = np.count_nonzero(rows == np.take_along_axis(rows, chosen[:, None], axis=1), axis=1) > 1
    return steps, marks
