"""Does the policy stay the same over some steps? A test of structural change for the conditional logit.

A logit fitted to all the steps has at step t the score g_t, the derivative of the log-likelihood of its choice: the
chosen context minus its expectation. While the policy stays the same the scores scatter about a constant mean, and

    T_k = n / (k (n - k)) |V^(-1/2) sum_(t <= k) (g_t - mean g)|^2,    V the covariance of the scores,

is about chi-squared for each k. Where the policy changes after step k, T_k is large. The tail of its maximum over k is
that of Csorgo and Horvath (1997).

The logit is only an approximation of what deciders do (bonuses are not linear, draws are not of constant spread), so
that its mean score depends on the candidates; where their distribution drifts, the scores drift with it though the
policy stays. Therefore the scores are first regressed on functions of the candidate sets alone, among them what the
logit expects of them. Tests in worlds that drift show that the false alarms this leaves are rare.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.special import chdtrc

from ibcb.log.array_checks import offsets_of
from ibcb.log.behavior_log import BehaviorLog
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.contexts import step_sums, taken
from ibcb.numerics.laplace import summarise
from ibcb.numerics.newton import SolverError, Stopping

Matrix = NDArray[np.float64]

#: for the tail to be nearly that of the limit; decision 0006 tells the false alarms that all of these leave
_LEAST_STEPS = 100
_STEPS_PER_DIRECTION, _MOST_DIRECTIONS = 12, 24
#: share of the steps at either end among which no change is looked for: there the statistic rests on few scores
_UNTESTED_END = 0.1
#: a direction whose variance comes from fewer steps says nothing of when they changed; not tuned
_LEAST_STEPS_BEHIND_VARIANCE = 25
#: keeps the weights of a decider that always takes its best candidate finite; features have unit variance.
#: Not tuned
_RIDGE = 0.1
#: a test statistic needs no more
ROUGHLY = Stopping(gain=1e-3, slack=1e-4, max_passes=60)
#: of a sample; decision 0006 tells what is found with so many steps and candidates. Numbers: 8 MB
_MOST_STEPS, _MOST_CANDIDATES, _MOST_NUMBERS = 768, 16, 2**20


def due(number: int) -> bool:
    """Whether an episode is looked at closely: the first 32, then 16 each time the number doubles."""
    return number % (1 << max(0, abs(number).bit_length() - 5)) == 0


class Sample(NamedTuple):
    """Steps of one episode, with the chosen candidate first in each.

    ``steps`` are their numbers within the episode; the t-th of them owns the rows offsets[t] to offsets[t + 1] - 1.
    """

    steps: NDArray[np.int64]
    contexts: NDArray[np.float64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, part: BehaviorLog, steps: NDArray[np.int64], first_step: int) -> Sample:
        """Some steps of a part whose own first step has the number ``first_step``.

        Of more than 16 candidates, the chosen one and 15 others: McFadden's sampling of alternatives.
        """
        M, c = np.diff(part.step_offsets)[steps], part.chosen[steps]
        m = np.minimum(M, _MOST_CANDIDATES)
        offsets = offsets_of(m)
        k = np.arange(offsets[-1]) - np.repeat(offsets[:-1], m)
        # Positions counted from the chosen candidate: 0 is itself, then m - 1 of the M - 1 others, evenly spread.
        ahead = np.where(k > 0, 1 + (k - 1) * np.repeat(M - 1, m) // np.repeat(np.maximum(m - 1, 1), m), 0)
        rows = np.repeat(part.step_offsets[steps], m) + (np.repeat(c, m) + ahead) % np.repeat(M, m)
        return cls(steps + first_step, taken(part.contexts, rows).astype(np.float64), offsets)

    def centred(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The contexts about the mean of their step, and the means."""
        counts, chosen = np.diff(self.offsets), self.contexts[self.offsets[:-1]]
        # First about the chosen candidate, which comes first: what all candidates share cancels without rounding.
        centred = self.contexts - np.repeat(chosen, counts, axis=0)
        means = step_sums(centred, self.offsets) / counts[:, None]
        centred -= np.repeat(means, counts, axis=0)
        return centred, means + chosen

    def where(self, keep: NDArray[np.bool_]) -> Sample:
        """Only the steps marked."""
        counts = np.diff(self.offsets)
        return Sample(self.steps[keep], self.contexts[np.repeat(keep, counts)], offsets_of(counts[keep]))

    def between(self, first: int, last: int) -> Sample:
        """Its steps first to last - 1."""
        offsets = self.offsets[first : last + 1]
        return Sample(self.steps[first:last], self.contexts[offsets[0] : offsets[-1]], offsets - offsets[0])

    def join(self, other: Sample) -> Sample:
        """These steps and then the other's."""
        return Sample(
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.contexts, other.contexts]),
            np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
        )

    def across(self, following: Sample) -> Sample:
        """The end of this episode and the beginning of the next, equally many steps of both."""
        half = min(len(self.steps), len(following.steps)) // 2
        before = np.arange(len(self.steps)) >= len(self.steps) - half
        return self.where(before).join(following.where(np.arange(len(following.steps)) < half))


class Sampler:
    """Every k-th step of an episode that comes in parts, k being the least power of two that keeps the sample small.

    So the sample does not depend on where the parts were cut.
    """

    def __init__(self, most_steps: int = _MOST_STEPS, most_numbers: int = _MOST_NUMBERS) -> None:
        self.sample: Sample | None = None
        self._stride = 1
        self._most_steps, self._most_numbers = most_steps, most_numbers

    def add(self, part: BehaviorLog, first_step: int) -> None:
        """The next part; ``first_step`` is the number of its first step within the episode."""
        most = self._most_steps
        for first in range(0, part.n_steps, most):
            steps = np.arange(first, min(first + most, part.n_steps))
            fresh = Sample.of(part, steps[(steps + first_step) % self._stride == 0], first_step)
            sample: Sample = fresh if self.sample is None else self.sample.join(fresh)
            while len(sample.steps) > most or (len(sample.steps) > 1 and sample.contexts.size > self._most_numbers):
                self._stride *= 2
                sample = sample.where(sample.steps % self._stride == 0)
            self.sample = sample


def probabilities(u: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each row's choice, by a logit with utilities u."""
    counts = np.diff(offsets)
    p: NDArray[np.float64] = np.exp(u - np.repeat(np.maximum.reduceat(u, offsets[:-1]), counts))
    p /= np.repeat(step_sums(p, offsets), counts)
    return p


class Change(NamedTuple):
    """The most likely change of policy among some steps.

    ``log10_p`` is the probability of one that looks as large where the policy stays the same, ``step`` the number of
    the first step after it, ``at`` the share of the sampled steps before it, ``steps`` how many these were.
    """

    log10_p: float
    step: int
    at: float
    steps: int


def find_change(sample: Sample) -> Change | None:
    """The most likely change among the steps of a sample; None where they are too few to tell."""
    tested = _statistics(sample)
    if tested is None:
        return None
    T, p, steps = tested
    n = len(steps)
    first = int(_UNTESTED_END * n)
    best = first + int(T[first : n - first].argmax())
    return Change(_log10_tail(float(T[best]), p), int(steps[best + 1]), (best + 1) / n, n)


def change_at(sample: Sample, step: int, stray: float = 0.0) -> float | None:
    """log10 of the probability of a change as large between the steps before and from ``step``; None if too few.

    ``stray`` is a share of choices made at random, which then weigh less.
    """
    tested = _statistics(sample, stray)
    if tested is None:
        return None
    T, p, steps = tested
    before = int(np.searchsorted(steps, step))
    if not _UNTESTED_END * len(steps) <= before <= (1 - _UNTESTED_END) * len(steps):
        return None
    return log10_chi2(float(T[before - 1]), p)


def log10_chi2(x: float, p: int) -> float:
    """log10 of the probability that a chi-squared variable with p degrees of freedom exceeds x."""
    tail = float(chdtrc(p, x))
    if tail > 1e-300:
        return math.log10(tail)
    return ((p / 2 - 1) * math.log(x / 2) - x / 2 - math.lgamma(p / 2)) / math.log(10)


def _statistics(sample: Sample, stray: float = 0.0) -> tuple[Matrix, int, NDArray[np.int64]] | None:
    """T_k for k = 1, ..., n - 1, the number of scores in it, and the numbers of the n steps."""
    sample = sample.where(np.diff(sample.offsets) > 1)
    n = len(sample.steps)
    if n < _LEAST_STEPS:
        return None
    offsets = sample.offsets
    centred, means = sample.centred()
    A = whitening(centred.T @ centred / len(centred), min(n // _STEPS_PER_DIRECTION, _MOST_DIRECTIONS))
    if A.shape[1] == 0:
        return None
    Z = centred @ A
    chosen = np.zeros(n, dtype=np.int64)
    try:
        loss = ChoiceLoss(Z, offsets, chosen, stray=stray)
        w = summarise(loss, np.zeros(loss.n_features), _RIDGE * np.eye(loss.n_features), stopping=ROUGHLY).mode
    except SolverError:
        return None
    scores, expected = _scores(Z, offsets, w, stray)
    covariates = np.column_stack([expected, (means - means.mean(axis=0)) @ A])
    z = _standardised(_residuals(scores, covariates))
    if z.shape[1] == 0:
        return None
    k = np.arange(1, n)
    T = np.sum(np.cumsum(z, axis=0)[:-1] ** 2, axis=1) * n / (k * (n - k))
    return T, z.shape[1], sample.steps


def whitening(scatter: Matrix, most: int | None = None) -> Matrix:
    """A with A' scatter A = I, in the directions that vary at all; at most ``most``, those of largest variance.

    Features are brought to unit variance first, so units do not matter.
    """
    sd = np.sqrt(np.diag(scatter))
    varying = np.flatnonzero(sd > 0)
    if len(varying) == 0:
        return np.zeros((len(sd), 0))
    correlation = scatter[np.ix_(varying, varying)] / np.outer(sd[varying], sd[varying])
    p = len(varying)
    values, vectors = eigh(correlation, subset_by_index=[max(0, p - (p if most is None else most)), p - 1])
    kept = np.flatnonzero(values > 1e-9)
    A = np.zeros((len(sd), len(kept)))
    A[varying] = vectors[:, kept] / np.sqrt(values[kept]) / sd[varying, None]
    return A


def _scores(Z: Matrix, offsets: NDArray[np.int64], w: Matrix, stray: float) -> tuple[Matrix, Matrix]:
    """Scores of the steps, shape (n, q), and functions of their candidate sets that the scores may depend on."""
    counts = np.diff(offsets)
    u = Z @ w
    p = probabilities(u, offsets)
    mean = step_sums(p[:, None] * Z, offsets)
    spread = step_sums(p[:, None] * Z**2, offsets) - mean**2
    entropy = step_sums(-p * np.log(np.maximum(p, 1e-300)), offsets)
    evenly = counts[:, None]
    expected = [mean, spread, step_sums(Z**2, offsets) / evenly, step_sums(u[:, None] * Z, offsets) / evenly]
    meant = (1 - stray) * p[offsets[:-1]]
    meant /= meant + stray / counts
    highest = np.maximum.reduceat(u, offsets[:-1])
    return meant[:, None] * (Z[offsets[:-1]] - mean), np.column_stack([*expected, entropy, highest])


def _residuals(scores: Matrix, covariates: Matrix) -> Matrix:
    """Scores less what is linear in the covariates, about mean 0."""
    scores = scores - scores.mean(axis=0)
    F = covariates - covariates.mean(axis=0)
    sd = F.std(axis=0)
    F = F[:, sd > 1e-9] / sd[sd > 1e-9]
    if F.shape[1] == 0:
        return scores
    gram = F.T @ F
    gram.flat[:: len(gram) + 1] += 1e-6 * len(F)
    residuals: Matrix = scores - F @ cho_solve(cho_factor(gram), F.T @ scores)
    return residuals


def _standardised(g: Matrix) -> Matrix:
    """The scores in directions of unit variance, which come from enough steps."""
    values, vectors = eigh(g.T @ g / len(g))
    kept = values > 1e-8 * max(values[-1], 1e-300)
    z: Matrix = g @ vectors[:, kept] / np.sqrt(values[kept])
    return z[:, len(g) / np.mean(z**4, axis=0) >= _LEAST_STEPS_BEHIND_VARIANCE]


def _log10_tail(x: float, p: int) -> float:
    """log10 P(max_k T_k > x) for p scores and k between 10% and 90% of the steps."""
    if x <= p:
        return 0.0
    range_ = 2 * math.log((1 - _UNTESTED_END) / _UNTESTED_END)
    tail = p / 2 * math.log(x / 2) - x / 2 - math.lgamma(p / 2) + math.log(range_ * (1 - p / x) + 4 / x)
    return min(0.0, tail / math.log(10))
