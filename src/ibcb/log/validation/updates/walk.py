"""How well a cut into episodes explains the choices: the evidence of a policy that moves at the edges only.

The choices are read as a conditional logit whose weights w stay the same within an episode and take a Gaussian step at
each edge, of a variance that grows with the steps since the edge before and falls as a learner settles:

    w_1 ~ N(0, s I),    w_(n+1) ~ N(w_n, q (a_(n+1) - a_n) / a_(n+1)^g I),    a_n the first step of episode n.

An edge at which the policy hardly moves costs little here, and an edge at a wrong place much, so that cuts of few and
of many episodes can be compared. The log-likelihood of each step is expanded to second order about weights fitted to
the steps around it; sums over any run of steps are then differences of running sums, and the evidence of a cut takes
one small linear system per episode, whatever the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log.validation.constancy import ROUGHLY, whitening
from ibcb.log.validation.step_sample import Sample, per_step
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.laplace import stray_rate, summarise

__all__ = ["Pace", "Walk"]

Matrix = NDArray[np.float64]

#: at most so many directions of the features, those of most variance
_MOST_DIRECTIONS = 16
#: the steps around a step that the expansion is about, and how often it is moved; not tuned finely
_WINDOW, _STRIDE = 300, 100
#: ridge of the weights about which it is expanded: about the weights of all steps, and about 0; features have unit
#: variance. Not tuned
_PULL, _RIDGE = 0.3, 0.1
#: share of the choices made at random, until it is known
_STRAY = 0.01
#: variance s of the first policy's weights; not tuned
_FIRST = 30.0


class Pace(NamedTuple):
    """How fast the policy moves: q per step at step 1,000, and g."""

    variance: float
    settling: float

    def step(self, before: int, edge: int) -> float:
        """Variance of the step at an edge, ``before`` being the edge before it."""
        return self.variance * (edge - before) / 1000 * (1000 / edge) ** self.settling


#: the paces that are considered
PACES = tuple(Pace(q, g) for g in (0.0, 1.0, 2.0) for q in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0))


class Walk:
    """The choices of a sample of steps, summed up so that any cut can be judged; cuts are in steps of the sample."""

    def __init__(self, sample: Sample) -> None:
        self.sample = _projected(sample)
        self.n = len(sample.steps)
        self.q = self.sample.contexts.shape[1]
        loss, score, information = self._expanded()
        #: running sums: -f(w) is about c + <h, w> - w' H w / 2
        self._c, self._h, self._H = loss, score, information
        self.pace = Pace(0.1, 1.0)

    def settle(self, cut: Sequence[int]) -> float:
        """Take the pace that explains the choices best under a cut; the evidence then."""
        evidence, self.pace = max((self.evidence(cut, pace), pace) for pace in PACES)
        return evidence

    def evidence(self, cut: Iterable[int], pace: Pace | None = None) -> float:
        """Log-evidence of the choices under a cut that begins with 0."""
        pace = self.pace if pace is None else pace
        edges = [*cut, self.n]
        eye = np.eye(self.q)
        mean, covariance, total, before = np.zeros(self.q), _FIRST * eye, float(self._c[-1]), 0
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            if first:
                covariance = covariance + pace.step(before, first) * eye
                before = first
            # log of the integral of N(w; mean, covariance) exp(<h, w> - w' H w / 2)
            H, h = self._H[last] - self._H[first], self._h[last] - self._h[first]
            ahead = h - H @ mean
            widened = eye + covariance @ H
            covariance = np.linalg.solve(widened, covariance)
            step = covariance @ ahead
            total += (mean @ (h + ahead) + ahead @ step - np.linalg.slogdet(widened)[1]) / 2
            mean = mean + step
        return float(total)

    def _expanded(self) -> tuple[Matrix, Matrix, Matrix]:
        n, q = self.n, self.q
        everywhere = self._fitted(0, n, np.zeros(q), _RIDGE, 0.0)[0]
        windows = [(first, min(first + _STRIDE, n)) for first in range(0, n, _STRIDE)]
        weights, stray = [], _STRAY
        # Twice: the share of choices at random is known once the weights are.
        for _ in range(2):
            fits = [self._fitted(*self._around(first), everywhere, _PULL, stray) for first, _ in windows]
            weights = [w for w, _, _ in fits]
            stray = stray_rate(*(np.concatenate([fit[place] for fit in fits]) for place in (1, 2)))
        self.stray = stray
        c, h, H = np.zeros(n + 1), np.zeros((n + 1, q)), np.zeros((n + 1, q, q))
        for (first, last), w in zip(windows, weights, strict=True):
            loss, score, information = _expansion(self.sample.between(first, last), w, stray)
            bend = information @ w
            c[first + 1 : last + 1] = loss - score @ w - bend @ w / 2
            h[first + 1 : last + 1] = score + bend
            H[first + 1 : last + 1] = information
        return np.cumsum(c), np.cumsum(h, axis=0), np.cumsum(H, axis=0)

    def _around(self, first: int) -> tuple[int, int]:
        middle = first + _STRIDE // 2
        return max(0, middle - _WINDOW // 2), min(self.n, middle + _WINDOW // 2)

    def _fitted(
        self, first: int, last: int, centre: Matrix, ridge: float, stray: float
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Weights of some steps, and how likely each choice is by them and at random."""
        some = self.sample.between(first, last)
        loss = ChoiceLoss(some.contexts, some.offsets, np.zeros(last - first, dtype=np.int64), stray=stray)
        w = summarise(loss, centre, ridge * np.eye(self.q), stopping=ROUGHLY).mode
        return w, *loss.likelihoods(w)


def _projected(sample: Sample) -> Sample:
    """The steps in the directions of most variance within steps, each of variance 1."""
    counts = np.diff(sample.offsets)
    centred = sample.contexts - np.repeat(sample.contexts[sample.offsets[:-1]], counts, axis=0)
    centred -= np.repeat(per_step(centred, sample.offsets) / counts[:, None], counts, axis=0)
    return Sample(sample.steps, centred @ whitening(centred.T @ centred / len(centred), _MOST_DIRECTIONS), sample.offsets)


def _expansion(some: Sample, w: Matrix, stray: float) -> tuple[Matrix, Matrix, Matrix]:
    """Log-likelihood of each step at w, its gradient, and its Fisher information, which cannot be negative."""
    Z, starts, counts = some.contexts, some.offsets[:-1], np.diff(some.offsets)
    u = Z @ w
    p = np.exp(u - np.repeat(np.maximum.reduceat(u, starts), counts))
    p /= np.repeat(per_step(p, some.offsets), counts)
    mean = per_step(p[:, None] * Z, some.offsets)
    p *= 1 - stray
    either = p + np.repeat(stray / counts, counts)
    spread = (Z - np.repeat(mean, counts, axis=0)) * (p / np.sqrt(either))[:, None]
    information = per_step(spread[:, :, None] * spread[:, None, :], some.offsets)
    meant = (p / either)[starts]
    return np.log(either[starts]), meant[:, None] * (Z[starts] - mean), information
