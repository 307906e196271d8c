"""How well a cut into episodes explains the choices: the evidence of a policy that moves at the edges only.

The choices are read as a conditional logit whose weights w stay the same within an episode and take a Gaussian step at
each edge, of a variance that grows with the steps since the edge before and falls as a learner settles:

    w_1 ~ N(0, s I),    w_(n+1) ~ N(w_n, q (a_(n+1) - a_n) / (a_0 + a_(n+1))^g I),

with a_n the first step of episode n, and a_0 the steps of the warm-up, from which the decider had learned before; q and
g are those that suit the cut.

An edge at which the policy hardly moves costs little here, and an edge at a wrong place much, so that cuts of few and
of many episodes can be compared. The log-likelihood of each step is expanded to second order about weights fitted to
the steps around it; sums over any run of steps are then differences of running sums, and the evidence of a cut takes
one small linear system per episode, whatever the number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log.validation.constancy import ROUGHLY, Sample, probabilities, whitening
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.contexts import step_sums
from ibcb.numerics.laplace import stray_rate, summarise

Matrix = NDArray[np.float64]

#: at most so many directions of the features, those of most variance
_MOST_DIRECTIONS = 24
#: the steps around a step that the expansion is about, and how often it is moved; not tuned finely
_WINDOW, _STRIDE = 300, 100
#: ridge of the weights about which it is expanded: about the weights of all steps, and about 0; features have unit
#: variance. Not tuned
_PULL, _RIDGE = 0.3, 0.1
#: share of the choices made at random, until it is known
_STRAY = 0.01
#: cuts that are judged together; not tuned finely
_TOGETHER = 32
#: steps that a decider is taken to have learned from before the first, at least; not tuned finely
_LEAST_LEAD = 100
#: fewer steps than that are not fitted alone; not tuned finely
_FEW = 50
#: variance s of the first policy's weights; not tuned
_FIRST = 30.0


class Pace(NamedTuple):
    """How fast the policy moves: q per step at step 1,000, and g."""

    variance: float
    settling: float


#: the paces that are considered
PACES = tuple(
    Pace(q, g) for g in (0.0, 1.0, 2.0, 3.0, 4.0) for q in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
)


def _steps(paces: Sequence[Pace], before: NDArray[np.int64], edges: NDArray[np.int64], lead: float) -> Matrix:
    """Variance of the step at each edge, ``before`` being the edge before it."""
    q, g = np.array(paces).T
    variance: Matrix = q * (edges - before) / 1000 * (1000 / (edges + lead)) ** g
    return variance


class CutEvidence:
    """The choices of a sample of steps, summed up so that any cut can be judged; cuts are in steps of the sample.

    ``warmup`` is the number of steps before them.
    """

    def __init__(self, sample: Sample, warmup: int = 0) -> None:
        self._lead = max(warmup, _LEAST_LEAD) / max(1.0, float(np.mean(np.diff(sample.steps))))
        centred, _ = sample.centred()
        #: in the directions of most variance within steps, each of variance 1
        self.sample = sample._replace(
            contexts=centred @ whitening(centred.T @ centred / len(centred), _MOST_DIRECTIONS)
        )
        self.n = len(sample.steps)
        self.q = self.sample.contexts.shape[1]
        self.pace = Pace(0.1, 1.0)
        self._everywhere = self._fitted((0, self.n), np.zeros(self.q), _RIDGE, 0.0)[0]
        #: weights about which each step was expanded last
        self._reference = np.tile(self._everywhere, (self.n, 1))
        #: share of the choices made at random
        self.stray = _STRAY
        # Known once the weights are.
        self.stray = self.expand([0])
        self.expand([0])

    def expand(self, cut: Sequence[int]) -> float:
        """Expand the log-likelihood of each step about the weights of those around it, in its episode of a cut.

        Steps beyond an edge at which the policy changed much would lead away. Cuts that are close to each other are to
        be compared by expansions that are equally good for both: each about its own. Gives the share of the choices
        that look made at random.
        """
        n, q = self.n, self.q
        # Few steps alone would be fitted too well.
        ends = [0, *(last for first, last in pairwise([*cut, n]) if last == n or last - first >= _FEW)]
        blocks = [
            (first, min(first + _STRIDE, end), begin, end)
            for begin, end in pairwise(ends)
            for first in range(begin, end, _STRIDE)
        ]
        fits = []
        for first, _, begin, end in blocks:
            start = max(begin, min(first + (_STRIDE - _WINDOW) // 2, end - _WINDOW))
            span, near = (start, min(start + _WINDOW, end)), self._reference[first]
            fits.append(self._fitted(span, self._everywhere, _PULL, self.stray, near))
        c, h, H = np.zeros(n + 1), np.zeros((n + 1, q)), np.zeros((n + 1, q, q))
        for (first, last, _, _), (w, _, _) in zip(blocks, fits, strict=True):
            loss, score, information = _expansion(self.sample.between(first, last), w, self.stray)
            self._reference[first:last] = w
            bend = information @ w
            c[first + 1 : last + 1] = loss - score @ w - bend @ w / 2
            h[first + 1 : last + 1] = score + bend
            H[first + 1 : last + 1] = information
        #: running sums: the log-likelihood at w is about c + <h, w> - w' H w / 2
        self._c, self._h, self._H = np.cumsum(c), np.cumsum(h, axis=0), np.cumsum(H, axis=0)
        return stray_rate(*(np.concatenate([fit[place] for fit in fits]) for place in (1, 2)))

    def sharpened(self, cut: Sequence[int]) -> list[int]:
        """Each edge where the choices pass from one episode's policy to the next's, by their exact likelihood."""
        ends = [*cut, self.n]
        weights = [self._fitted(span, self._everywhere, _PULL, self.stray)[0] for span in pairwise(ends)]
        moved = list(cut)
        for place in range(1, len(cut)):
            first, last = (ends[place - 1] + ends[place]) // 2, (ends[place] + ends[place + 1]) // 2
            some = self.sample.between(first, last)
            before, after = (_expansion(some, weights[which], self.stray)[0] for which in (place - 1, place))
            moved[place] = first + int(np.argmax(np.concatenate([[0.0], np.cumsum(before - after)])))
        return sorted({0, *(edge for edge in moved[1:] if 0 < edge < self.n)})

    def settle(self, cut: Sequence[int]) -> float:
        """Take the pace that explains the choices best under a cut; the evidence then."""
        evidence = self._filtered([cut] * len(PACES), PACES)
        self.pace = PACES[int(evidence.argmax())]
        return float(evidence.max())

    def judge(self, cut: Sequence[int]) -> float:
        """The evidence of a cut, expanded about it and at the pace that suits it."""
        self.expand(cut)
        return self.settle(cut)

    def evidence(self, cut: Sequence[int]) -> float:
        """Log-evidence of the choices under a cut that begins with 0."""
        return float(self._filtered([cut], [self.pace])[0])

    def evidences(self, cuts: Sequence[Sequence[int]]) -> Matrix:
        """The same of many cuts, those of about as many episodes together."""
        order = sorted(range(len(cuts)), key=lambda place: len(cuts[place]))
        values = np.empty(len(cuts))
        for first in range(0, len(order), _TOGETHER):
            some = order[first : first + _TOGETHER]
            values[some] = self._filtered([cuts[place] for place in some], [self.pace] * len(some))
        return values

    def _filtered(self, cuts: Sequence[Sequence[int]], paces: Sequence[Pace]) -> Matrix:
        """Log-evidence of cuts, each at its pace: a Kalman filter for all of them at once, one episode at a time."""
        longest = max(len(cut) for cut in cuts)
        # Cuts that are shorter have episodes without steps at the end, which change nothing.
        edges = np.full((len(cuts), longest + 1), self.n)
        for row, cut in zip(edges, cuts, strict=True):
            row[: len(cut)] = cut
        eye = np.eye(self.q)
        mean = np.zeros((len(cuts), self.q))
        covariance = np.tile(_FIRST * eye, (len(cuts), 1, 1))
        total = np.full(len(cuts), self._c[-1])
        for place in range(longest):
            first, last = edges[:, place], edges[:, place + 1]
            if place:
                covariance += _steps(paces, edges[:, place - 1], first, self._lead)[:, None, None] * eye
            # log of the integral of N(w; mean, covariance) exp(<h, w> - w' H w / 2)
            H, h = self._H[last] - self._H[first], self._h[last] - self._h[first]
            ahead = h - np.einsum("kij,kj->ki", H, mean)
            widened = eye + covariance @ H
            covariance = np.linalg.solve(widened, covariance)
            step = np.einsum("kij,kj->ki", covariance, ahead)
            total += np.einsum("ki,ki->k", mean, h + ahead) / 2 + np.einsum("ki,ki->k", ahead, step) / 2
            total -= np.linalg.slogdet(widened)[1] / 2
            mean = mean + step
        return total

    def _fitted(
        self, span: tuple[int, int], centre: Matrix, ridge: float, stray: float, near: Matrix | None = None
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Weights of some steps, and how likely each choice is by them and at random."""
        some = self.sample.between(*span)
        loss = ChoiceLoss(some.contexts, some.offsets, np.zeros(len(some.steps), dtype=np.int64), stray=stray)
        w = summarise(loss, centre, ridge * np.eye(self.q), start=near, stopping=ROUGHLY).mode
        return w, *loss.likelihoods(w)


def _expansion(some: Sample, w: Matrix, stray: float) -> tuple[Matrix, Matrix, Matrix]:
    """Log-likelihood of each step at w, its gradient, and its Fisher information, which cannot be negative."""
    Z, starts, counts = some.contexts, some.offsets[:-1], np.diff(some.offsets)
    p = probabilities(Z @ w, some.offsets)
    mean = step_sums(p[:, None] * Z, some.offsets)
    p *= 1 - stray
    either = p + np.repeat(stray / counts, counts)
    spread = (Z - np.repeat(mean, counts, axis=0)) * (p / np.sqrt(either))[:, None]
    information = step_sums(spread[:, :, None] * spread[:, None, :], some.offsets)
    meant = (p / either)[starts]
    return np.log(either[starts]), meant[:, None] * (Z[starts] - mean), information
