"""Choice rules averaged over a Gaussian belief: how probable each candidate of a step is, given what is known.

Scores of candidates are X w, and w is believed to be N(mean, covariance). A rule says what is chosen given w; its
average over the belief is taken by draws from a lattice (Richtmyer 1951), the same for all steps. A rule that takes the
best candidate would give probabilities in steps of one draw, and 0 too often. So only part of the variance is drawn;
the rest is replaced by independent noise of the same size with a Gumbel distribution, for which the softmax is exact.
Of two candidates, the better one is as probable as the normal distribution says.

Draws have an error, so the frame that they are taken in must not depend on how candidates and features happen to be
ordered. Features come in the order of their means in deviations (`ibcb.numerics.gaussians.draws_root`). Where that
tells some of them not apart, as of arms that were never taken, every step is drawn in a frame of its own candidates
instead: first along the score that is known least, then along what is left of the next (a Cholesky factor with pivots).
Candidates that nothing tells apart then have the mean of their probabilities. `ERROR` is what 512 draws leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ibcb.numerics.arrays import Matrix, Vector, lazy
from ibcb.numerics.contexts import Contexts, shown_counts, sizes_of, step_counts
from ibcb.numerics.gaussians import draws_root, factor, told_apart

Offsets = NDArray[np.int64]

#: mean total variation of probabilities by 512 draws from the exact ones, at most: of the best, by beliefs so wide that
#: all may be it (measured by tests/numerics/test_averages.py; .02 where means are as far apart as beliefs are wide)
ERROR = 0.04
#: share of the variance that is left to the softmax, times the root of the number of draws: more is less exact, less is
#: rougher (judged by tests/numerics/test_averages.py)
_LEFT = 0.8
#: directions that the variance is measured in
_PROBES = 32
#: e to the power of this is as good as infinite, and finite
_FAR = 500.0
#: numbers that are held at a time, 2 MB: more would not stay near the processor
_AT_ONCE = 1 << 18
#: dimensions that are drawn from the lattice; in more of them its points are no better than random ones
_LATTICE = 24
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89)
#: share of the largest variance below which what is left of a score is rounding
_ROUNDING = 1e-13
#: relative difference of names up to which candidates are alike: more than rounding
_ALIKE = 1e-7
#: share of a variance by which a candidate's name may advance it in a frame: it tells equals apart
_BY_NAME = 1e-3
#: what a name is made of is added up with these, so that it is equal only where all of it is
_MIXED = np.sqrt([2.0, 3.0, 5.0, 7.0])
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class _Scored:
    """Steps of M candidates each, and what is believed of their scores.

    In all arrays candidates come first, so that the steps of each lie side by side in memory.

    Attributes
    ----------
    X : Contexts
        M rows for each step.
    M : int
    centre : ndarray of shape (d,)
        The mean of the weights.
    root : ndarray of shape (d, r)
        Of their covariance.
    draw : callable
        Scores by draws of the weights, up to what all of a step have in common. Shape (M, steps, draws).
    """

    X: Contexts
    M: int
    centre: Vector
    root: Matrix
    draw: Callable[[_Scored], Matrix]

    @lazy
    def mean(self) -> Matrix:
        """Of the scores. Shape (M, steps)."""
        return self.scores(self.centre[:, None])[:, :, 0]

    @lazy
    def _parts(self) -> tuple[Matrix, Vector]:
        parts = self.scores(self.root)
        size = np.sqrt((np.einsum("mnd,mnd->mn", parts, parts) + self.mean**2).max(axis=0))
        parts -= parts.mean(axis=0)
        return parts, size

    @property
    def parts(self) -> Matrix:
        """Products of these are the covariances of scores about the mean of their step. Shape (M, steps, r)."""
        return self._parts[0]

    @property
    def rounding(self) -> Vector:
        """Differences of scores that are no larger are none. Shape (steps,)."""
        return 1e-12 * self._parts[1] + _TINY

    @property
    def spread(self) -> Vector:
        """Variance of a score about the mean of its step. Shape (steps,)."""
        spread: Vector = np.einsum("mnd,mnd->n", self.parts, self.parts) / self.M
        return spread

    def scores(self, weights: Matrix) -> Matrix:
        """Of every candidate by each column of some weights. Shape (M, steps, columns)."""
        X, M = self.X, self.M
        if isinstance(X, np.ndarray):
            scores: Matrix = np.matmul(X.reshape(-1, M, X.shape[1]).transpose(1, 0, 2), weights)
            return scores
        return np.ascontiguousarray((X @ weights).reshape(-1, M, weights.shape[1]).transpose(1, 0, 2))


def best_of_draws(contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int) -> Vector:
    """Probability that each candidate has the best score of its step. Shape (rows,)."""
    left = _LEFT / np.sqrt(draws)

    def rule(steps: _Scored) -> Matrix:
        # Scores that are known exactly still tie where they are equal up to rounding.
        if steps.M == 2:
            # The deviation of each from their mean is half that of their difference.
            ahead = (steps.mean[0] - steps.mean[1]) / np.maximum(2 * np.sqrt(steps.spread), steps.rounding)
            return np.stack([ndtr(ahead), ndtr(-ahead)])
        # What is left of the variance is Gumbel's: a variable of scale h has the variance pi^2 h^2 / 6.
        h = np.sqrt(6 * left * steps.spread) / np.pi
        scores = steps.draw(steps)
        scores -= scores.max(axis=0)
        scores /= np.maximum(h, steps.rounding)[:, None]
        return _mean_share(np.exp(scores, out=scores))

    return _by_count(rule, contexts, offsets, mean, covariance, draws, share=1 - left)


def softmax_of_draws(contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int) -> Vector:
    """Probability of each candidate under the softmax of the scores of its step. Shape (rows,)."""

    def rule(steps: _Scored) -> Matrix:
        scores = steps.draw(steps)
        scores -= scores.max(axis=0)
        return _mean_share(np.exp(scores, out=scores))

    return _by_count(rule, contexts, offsets, mean, covariance, draws)


def top_k_of_draws(
    contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int, *, top_k: int, scale: float
) -> Vector:
    """Probability of each candidate where one of the ``top_k`` best is drawn, by the softmax of ``scale`` times scores.

    Whether a candidate is among the best is told as `ibcb.numerics.choice_likelihood` does. Shape (rows,).
    """

    def rule(steps: _Scored) -> Matrix:
        scores = steps.draw(steps)
        ranked = -np.sort(-scores, axis=0)
        # The last of the k best, or of all where there are fewer.
        last = ranked[min(top_k, len(ranked)) - 1]
        own = np.exp(np.minimum(scores - last, _FAR))
        # Below the k best of all, for one of them; below the k - 1 best and without itself, for the others.
        beyond = np.exp(ranked[top_k:] - last).sum(axis=0)
        rest = np.where(scores >= last, beyond, np.maximum(beyond + 1 - own, 0.0))
        chance = own / (own + rest) * np.exp(scale * (scores - ranked[0]))
        return _mean_share(chance)

    return _by_count(rule, contexts, offsets, mean, covariance, draws)


def _by_count(
    rule: Callable[[_Scored], Matrix],
    contexts: Contexts,
    offsets: Offsets,
    mean: Vector,
    covariance: Matrix,
    draws: int,
    *,
    share: float = 1.0,
) -> Vector:
    """A rule gives the probabilities, shape (M, steps), of some steps with M candidates each.

    ``share``: of the variance that is drawn.
    """
    starts, counts = offsets[:-1], step_counts(offsets)
    common = _common_frame(contexts, mean, covariance) if covariance.any() else np.zeros((len(mean), 1))
    root = factor(covariance) if common is None else common
    probed, r = root, root.shape[1]
    draw: Callable[[_Scored], Matrix]
    if common is None:
        draw = partial(_in_own_frames, draws=draws, share=share)
    else:
        weights = mean[:, None]
        if covariance.any():
            weights = weights + np.sqrt(share) * (root @ _points(draws, r).T)
        draw = partial(_Scored.scores, weights=weights)
        if r > _PROBES:
            # As many random directions tell the variance well enough.
            probed = root @ _points(_PROBES, r).T / np.sqrt(_PROBES)
    probabilities = np.ones(int(offsets[-1]))
    for count in sizes_of(counts):
        own = starts[counts == count]
        if count == 1:
            continue
        at_once = max(1, _AT_ONCE // (max(draws, r if common is None else 0) * count))
        for first in range(0, len(own), at_once):
            rows = (own[first : first + at_once, None] + np.arange(count)).ravel()
            side_by_side = len(rows) == rows[-1] - rows[0] + 1
            X = contexts[rows[0] : rows[-1] + 1] if side_by_side else contexts[rows]
            steps = _Scored(X.astype(np.float64, copy=False), count, mean, root if count == 2 else probed, draw)
            p = rule(steps)
            probabilities[rows] = (_evened(p, _names(steps)) if common is None else p).T.ravel()
    return probabilities


def _common_frame(contexts: Contexts, mean: Vector, covariance: Matrix) -> Matrix | None:
    """A root of the covariance whose columns depend on no order of the features that show, if these are told apart."""
    if told_apart(mean, covariance):
        return draws_root(mean, covariance)
    shown = np.flatnonzero(shown_counts(contexts))
    among = np.ix_(shown, shown)
    if len(shown) == len(mean) or not told_apart(mean[shown], covariance[among]):
        return None
    root = np.zeros((len(mean), len(shown)))
    root[shown] = draws_root(mean[shown], covariance[among])
    return root


def _in_own_frames(steps: _Scored, *, draws: int, share: float) -> Matrix:
    """Scores by draws in a frame of each step's own candidates. Shape (M, steps, draws)."""
    frame = np.sqrt(share) * _frames(steps)
    points = np.vstack([_points(draws, frame.shape[2]).T, np.ones(draws)])
    scores: Matrix = np.concatenate([frame, steps.mean[:, :, None]], axis=2) @ points
    return scores


def _frames(steps: _Scored) -> Matrix:
    """Coordinates of the scores in each step's frame, whose products are those of the parts. Shape (M, steps, rank).

    Of candidates that are known equally little, names decide which one comes first, and then what those before it have
    in common with them. What is equal in all of this may come in any order: the frame is the same.
    """
    parts, M = steps.parts, steps.M
    every, rank = np.arange(parts.shape[1]), min(M - 1, parts.shape[2])
    frame = np.zeros((*parts.shape[:2], rank))
    left = np.einsum("mnd,mnd->mn", parts, parts)
    largest = left.max(axis=0)
    unit = np.maximum(largest, _TINY)
    advance = _BY_NAME * unit * _names(steps)
    for place in range(rank):
        first = np.where(left > _ROUNDING * largest, left + advance, -np.inf).argmax(axis=0)
        shared = np.einsum("mnd,nd->mn", parts, parts[first, every])
        shared -= np.einsum("mnp,np->mn", frame[:, :, :place], frame[first, every, :place])
        pivot = left[first, every]
        # Where all that is left is rounding, nothing is.
        some = pivot > _ROUNDING * largest
        own = shared * np.where(some, 1 / np.sqrt(np.where(some, pivot, 1.0)), 0.0)
        frame[:, :, place] = own
        left -= own**2
        advance += _BY_NAME / (place + _MIXED[3]) * np.sqrt(unit) * own
    return frame


def _names(steps: _Scored) -> Matrix:
    """A number for each candidate that depends on what is believed of all scores of its step, but on no order.

    It is made of the mean, the variance, and the covariances with candidates of such means and variances. Shape (M, n).
    """
    parts, mean = steps.parts, steps.mean
    largest = np.einsum("mnd,mnd->mn", parts, parts).max(axis=0)
    unit = 1 / np.sqrt(np.maximum(largest, _TINY))
    scaled = parts * unit[:, None]
    own = 1 / (1 + (mean.max(axis=0) - mean) * unit) + _MIXED[0] * np.einsum("mnd,mnd->mn", scaled, scaled)
    by_step = scaled.transpose(1, 0, 2)
    if parts.shape[2] >= steps.M:
        products = by_step @ by_step.transpose(0, 2, 1)
        others: Matrix = (products * (products + _MIXED[2]) @ own.T[:, :, None])[:, :, 0].T
    else:
        weighted = own[:, :, None] * scaled
        along = by_step @ (weighted.transpose(1, 2, 0) @ by_step) + _MIXED[2] * weighted.sum(axis=0)[:, None]
        others = np.einsum("nmd,nmd->mn", along, by_step)
    names: Matrix = own + _MIXED[1] * others
    return names


def _evened(probabilities: Matrix, names: Matrix) -> Matrix:
    """Candidates that are alike have the mean of their probabilities. Shape (M, steps)."""
    order = names.T.argsort(axis=1)
    ranked = np.take_along_axis(names.T, order, axis=1)
    begins = np.ones(order.shape, dtype=bool)
    begins[:, 1:] = np.diff(ranked, axis=1) > _ALIKE * np.abs(ranked).max(axis=1, keepdims=True)
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=begins.size)
    sums = np.add.reduceat(np.take_along_axis(probabilities.T, order, axis=1).ravel(), starts)
    evened = np.empty(order.shape)
    np.put_along_axis(evened, order, np.repeat(sums / sizes, sizes).reshape(order.shape), axis=1)
    return evened.T


def _mean_share(weights: Matrix) -> Matrix:
    """The mean over draws of what each candidate has of the weights of its step. Shape (M, steps)."""
    shares: Matrix = np.einsum("mnk,nk->mn", weights, 1.0 / weights.sum(axis=0)) / weights.shape[2]
    return shares


@lru_cache(maxsize=8)
def _points(count: int, dimension: int) -> Matrix:
    """Points of a standard normal distribution, spread more evenly than random ones. Shape (count, dimension)."""
    shown = min(dimension, _LATTICE)
    uniform = np.mod(np.outer(np.arange(1, count + 1), np.sqrt(_PRIMES[:shown])), 1.0)
    points: Matrix = ndtri(uniform)
    if dimension > shown:
        points = np.hstack([points, np.random.default_rng(0).standard_normal((count, dimension - shown))])
    # Whoever asks again gets the same array.
    points.flags.writeable = False
    return points
