"""One pass over a log: all that the findings rest on, in memory that does not grow with the number of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ibcb.log.behavior_log import BehaviorLog, dense_pieces
from ibcb.log.protocol import Log
from ibcb.log.validation.constancy import Change, find_change, whitening
from ibcb.log.validation.equality import compare, keys, row_hashes
from ibcb.log.validation.first_episode import missing_past
from ibcb.log.validation.logged import LoggedScan
from ibcb.log.validation.step_sample import Sample, Sampler, due
from ibcb.numerics.contexts import LARGEST, nbytes

__all__ = ["EpisodeScan", "Scan", "Scanner", "StepCount", "scan"]

#: so that a block stays in the processor's cache; not tuned finely
_BLOCK_BYTES = 1 << 21
#: beyond it eigenvalues take long, and fewer episodes are judged; not tuned finely
_MANY_FEATURES = 100
#: steps that far apart are equal by chance only; a prime, so that no period of a log divides it
_STEPS_APART = 97
#: for the first episode's choices to tell whether there was a past; not tuned
_STEPS_PER_FEATURE = 5


@dataclass
class StepCount:
    """How many steps are of a kind, and where the first one is."""

    count: int = 0
    place: str | None = None

    def add(self, marked: NDArray[np.bool_], place: _Place) -> None:
        """Count the steps of a part that are marked."""
        found = int(np.count_nonzero(marked))
        if found and not self.count:
            self.place = place(int(np.argmax(marked)))
        self.count += found


class _Place(NamedTuple):
    """Names the steps of a part."""

    episode: int
    first_step: int

    def __call__(self, step: int) -> str:
        warmup = " (warm-up)" if self.episode < 0 else ""
        return f"episode {self.episode}{warmup}, step {self.first_step + step}"


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


@dataclass
class Scan:
    """Sums over all steps of a log; see `scan`."""

    d: int
    feature_names: tuple[str, ...] | None
    episodes: list[EpisodeScan] = field(default_factory=list)
    steps: int = 0
    rows: int = 0
    nbytes: int = 0
    dtype: str | None = None
    candidates: Counter[int] = field(default_factory=Counter)
    single: StepCount = field(default_factory=StepCount)
    equal: StepCount = field(default_factory=StepCount)
    twins: StepCount = field(default_factory=StepCount)
    chosen_twins: StepCount = field(default_factory=StepCount)
    repeats: StepCount = field(default_factory=StepCount)
    chance_repeats: int = 0
    backward: StepCount = field(default_factory=StepCount)
    overlaps: StepCount = field(default_factory=StepCount)
    untimed: StepCount = field(default_factory=StepCount)
    time_span: tuple[Any, Any] | None = None
    logged: LoggedScan = field(default_factory=LoggedScan)
    positions: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    #: whether the first episode shows that the decider had learned before, be it sbucb or sbts
    has_past: bool = False
    #: from the first episode to the last
    overall: Change | None = None

    def __post_init__(self) -> None:
        d = self.d
        #: within-step scatter: each step adds the covariance of a candidate drawn evenly from it, shape (d, d)
        self.scatter = np.zeros((d, d))
        #: number of steps in which each feature varies
        self.varies = np.zeros(d, dtype=np.int64)
        self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)
        #: number of steps in which the chosen candidate alone has the largest, or the smallest, value of each feature
        self.largest, self.smallest = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64)
        #: extreme values of each feature among the candidates that were not chosen
        self.rest_low, self.rest_high = np.full(d, np.inf), np.full(d, -np.inf)

    def add_size(self, part: BehaviorLog) -> None:
        """Count the steps of a part."""
        self.steps += part.n_steps
        self.rows += part.n_rows
        self.dtype = str(part.contexts.dtype)
        self.nbytes += nbytes(part.contexts) + part.chosen.nbytes + part.step_offsets[1:].nbytes
        extras = (part.timestamps, part.step_ids, part.propensities)
        self.nbytes += sum(extra.nbytes for extra in extras if extra is not None)
        sizes, times = np.unique(np.diff(part.step_offsets), return_counts=True)
        self.candidates.update(dict(zip(sizes.tolist(), times.tolist(), strict=True)))

    def names(self, columns: NDArray[Any] | list[int]) -> tuple[str, ...]:
        """Names of some features, or their numbers."""
        given = self.feature_names
        return tuple(str(column) if given is None else given[column] for column in columns)

    def name(self, column: int) -> str:
        """Name of a feature, within a sentence."""
        return f"feature {column}" if self.feature_names is None else self.feature_names[column]

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
        return self.steps - self.single.count


class Scanner:
    """Scans a log while its parts go by."""

    def __init__(self) -> None:
        self._state: _Scanning | None = None

    def add(self, number: int, part: BehaviorLog) -> None:
        """Some whole steps of the episode of this number; negative in the warm-up."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self._state is None:
                self._state = _Scanning(Scan(part.n_features, part.feature_names))
            self._state.result.add_size(part)
            for piece in dense_pieces(part):
                self._state.add(number, piece)

    def finish(self) -> Scan:
        """All of it."""
        if self._state is None:
            return Scan(0, None)
        with np.errstate(over="ignore", invalid="ignore"):
            self._state.finish()
        return self._state.result


def scan(log: Log) -> Scan:
    """Pass over a log once."""
    scanner = Scanner()
    for number, part in log.parts():
        scanner.add(number, part)
    return scanner.finish()


class _Open:
    """Sums over the episode that is being read."""

    def __init__(self, number: int, d: int) -> None:
        self.facts = EpisodeScan(number)
        self.sampler = Sampler()
        # Eigenvalues of many features take long: fewer episodes then.
        self.judged = due(number) and (d <= _MANY_FEATURES or abs(number) & (abs(number) - 1) == 0)
        #: scatter of the features and of the squared length, and what the chosen ones have above the mean of their step
        self.spread, self.lean = np.zeros((d + 1, d + 1)), np.zeros(d + 1)
        self.exponent: int | None = None
        self.positions = np.zeros(1, dtype=np.int64)
        self.candidates: Counter[int] = Counter()

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
        """Do the choices look drawn evenly from the candidates?

        If they are, the lean has mean 0 and covariance ``spread``, and its squared length in that metric is
        chi-squared. A decider that seeks or avoids some features, or long contexts, leans.
        """
        facts = self.facts
        self.spread[-1, :-1] = self.spread[:-1, -1]
        A = whitening(self.spread)
        if A.shape[1]:
            statistic = float(np.sum((self.lean @ A) ** 2))
            facts.directions = A.shape[1]
            facts.random_p = float(chdtrc(facts.directions, statistic))
            facts.pull = max(0.0, statistic - facts.directions) / max(facts.telling, 1)
        expected = np.zeros(max(self.candidates))
        for count, times in self.candidates.items():
            expected[:count] += times / count
        if len(expected) > 1 and expected.min() >= 5:
            found = np.zeros(len(expected))
            found[: len(self.positions)] = self.positions[: len(expected)]
            facts.position_p = float(chdtrc(len(expected) - 1, np.sum((found - expected) ** 2 / expected)))


class _Scanning:
    """The state of the pass between two parts."""

    def __init__(self, result: Scan) -> None:
        self.result = result
        self.now: _Open | None = None
        self.first: Sample | None = None
        self.before: Sample | None = None
        self.hashes = np.empty(0, dtype=np.uint64)
        self.last_time: Any = None
        self.latest: Any = None
        self.keys = keys(result.d)

    def add(self, number: int, part: BehaviorLog) -> None:
        """The next part of the log."""
        now, result = self.now, self.result
        if now is None or now.facts.number != number:
            self.close()
            now = self.now = _Open(number, result.d)
            result.episodes.append(now.facts)
        place = _Place(number, now.facts.steps)
        hashes = np.empty(part.n_steps, dtype=np.uint64)
        marks = np.zeros((4, part.n_steps), dtype=bool)
        for steps, X, chosen in _blocks(part):
            self._look(X, chosen, now)
            hashes[steps], marks[:, steps] = compare(row_hashes(X, self.keys), chosen)
        for tally, marked in zip((result.single, result.equal, result.twins, result.chosen_twins), marks, strict=True):
            tally.add(marked, place)
        self._repeats(hashes, place)
        result.logged.add(number, part, place.__call__)
        if part.timestamps is not None and part.timestamps.dtype.kind in "iufM":
            self._times(part.timestamps, place)
        if number >= 0:
            result.positions = _add_counts(result.positions, part.chosen[~marks[0]])
        now.positions = _add_counts(now.positions, part.chosen)
        now.sampler.add(part, now.facts.steps)
        now.facts.telling += int(np.count_nonzero(~(marks[0] | marks[1])))
        now.facts.steps += part.n_steps
        sizes, times = np.unique(np.diff(part.step_offsets), return_counts=True)
        now.candidates.update(dict(zip(sizes.tolist(), times.tolist(), strict=True)))

    def _look(self, X: NDArray[np.float64], chosen: NDArray[np.int64], now: _Open) -> None:
        """Some steps of M candidates each, X of shape (steps, M, d)."""
        result, (n, M, d) = self.result, X.shape
        each = np.arange(n)
        taken = X[each, chosen]
        highest = lowest = taken
        if M > 1:
            X[each, chosen] = -np.inf
            highest = X.max(axis=1)
            X[each, chosen] = np.inf
            lowest = X.min(axis=1)
            X[each, chosen] = taken
            result.largest += np.count_nonzero(taken > highest, axis=0)
            result.smallest += np.count_nonzero(taken < lowest, axis=0)
            np.minimum(result.rest_low, lowest.min(axis=0), out=result.rest_low)
            np.maximum(result.rest_high, highest.max(axis=0), out=result.rest_high)
            highest, lowest = np.maximum(highest, taken), np.minimum(lowest, taken)
            result.varies += np.count_nonzero(highest > lowest, axis=0)
            # First about one of them: what all candidates share cancels without rounding.
            C = X - X[:, :1]
            C -= C.mean(axis=1, keepdims=True)
            rows = C.reshape(n * M, d)
            scatter = rows.T @ rows / M
            result.scatter += scatter
            if now.judged:
                now.gather(X, C, scatter, chosen)
        np.minimum(result.low, lowest.min(axis=0), out=result.low)
        np.maximum(result.high, highest.max(axis=0), out=result.high)

    def _repeats(self, hashes: NDArray[np.uint64], place: _Place) -> None:
        """Steps equal to the one before, and to one far before: that happens where there are few kinds of steps."""
        known = np.concatenate([self.hashes, hashes])
        repeated = np.zeros(len(known), dtype=bool)
        repeated[1:] = known[1:] == known[:-1]
        self.result.repeats.add(repeated[len(self.hashes) :], place)
        equal = known[_STEPS_APART:] == known[:-_STEPS_APART]
        self.result.chance_repeats += int(np.count_nonzero(equal[-len(hashes) :]))
        self.hashes = known[-_STEPS_APART:]

    def _times(self, times: NDArray[Any], place: _Place) -> None:
        result = self.result
        missing = np.isnat(times) if times.dtype.kind == "M" else np.isnan(times)
        result.untimed.add(missing, place)
        known = times[~missing]
        if len(known) == 0:
            return
        before = np.concatenate([known[:1] if self.last_time is None else [self.last_time], known[:-1]])
        backward = np.zeros(len(times), dtype=bool)
        backward[~missing] = known < before
        result.backward.add(backward, place)
        if self.latest is not None:
            result.overlaps.add(np.asarray(times < self.latest), place)
        first, last = known.min(), known.max()
        span = result.time_span
        result.time_span = (first, last) if span is None else (min(span[0], first), max(span[1], last))
        self.last_time = known[-1]

    def close(self) -> None:
        """The end of an episode."""
        if self.now is None:
            return
        result, facts, sample = self.result, self.now.facts, self.now.sampler.sample
        self.last_time = None
        if result.time_span is not None:
            self.latest = result.time_span[1]
        if result.overflows:
            return
        if self.now.judged:
            self.now.judge()
        if facts.number < 0 or sample is None:
            return
        if due(facts.number):
            facts.inside = find_change(sample)
            facts.edge = None if self.before is None else find_change(self.before.across(sample))
        if len(result.episodes) == 1 and len(sample.steps) >= _STEPS_PER_FEATURE * result.d:
            log = sample.log()
            result.has_past = all(missing_past(log, bonus=bonus) for bonus in (True, False))
        self.before = sample
        self.first = sample if self.first is None else self.first

    def finish(self) -> None:
        """The end of the log."""
        self.close()
        if self.first is not None and self.before is not None and self.first is not self.before:
            self.result.overall = find_change(self.first.join(self.before))


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


def _add_counts(counts: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    fresh = np.bincount(values, minlength=len(counts))
    fresh[: len(counts)] += counts
    return fresh
