"""Choice rules averaged over a Gaussian belief: how probable each candidate of a step is, given what is known.

Scores of candidates are X w, and w is believed to be N(mean, covariance). A rule says what is chosen given w; its
average over the belief is taken by draws from a lattice (Richtmyer 1951), the same for all steps. A rule that takes the
best candidate would give probabilities in steps of one draw, and 0 too often. So only part of the variance is drawn;
the rest is replaced by independent noise of the same size with a Gumbel distribution, for which the softmax is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.contexts import Contexts, sizes_of, step_counts
from ibcb.numerics.gaussians import draws_root

Offsets = NDArray[np.int64]
#: scores of the candidates of some steps by each column of weights
ScoresOf = Callable[[Matrix], Matrix]

#: share of the variance that is left to the softmax, times the root of the number of draws: more is less exact, less is
#: rougher (judged by tests/numerics/test_averages.py)
_LEFT = 0.8
#: directions that the variance is measured in
_PROBES = 32
#: e to the power of this is as good as infinite, and finite
_FAR = 500.0
#: scores that are held at a time, 2 MB: more would not stay near the processor
_AT_ONCE = 1 << 18
#: dimensions that are drawn from the lattice; in more of them its points are no better than random ones
_LATTICE = 24
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89)


def best_of_draws(contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int) -> Vector:
    """Probability that each candidate has the best score of its step. Shape (rows,)."""
    root, left = draws_root(mean, covariance), _LEFT / np.sqrt(draws)
    weights = mean[:, None] + np.sqrt(1 - left) * (root @ _points(draws, len(mean)).T)
    if len(mean) > _PROBES:
        # As many random directions tell the variance well enough.
        root = root @ _points(_PROBES, len(mean)).T / np.sqrt(_PROBES)

    def rule(scores_of: ScoresOf) -> Matrix:
        parts, scores = scores_of(root), scores_of(weights)
        size = np.sqrt(np.einsum("mnd,mnd->mn", parts, parts) + scores_of(mean[:, None])[:, :, 0] ** 2).max(axis=0)
        parts -= parts.mean(axis=0)
        spread = np.einsum("mnd,mnd->n", parts, parts) / len(parts)
        # What is left of it is Gumbel's: a variable of scale h has the variance pi^2 h^2 / 6. Scores that are known
        # exactly still tie where they are equal up to rounding.
        h = np.sqrt(6 * left * spread) / np.pi
        scores -= scores.max(axis=0)
        scores /= np.maximum(h, 1e-12 * size + np.finfo(np.float64).tiny)[:, None]
        return _mean_share(np.exp(scores, out=scores))

    return _by_count(rule, contexts, offsets, draws)


def softmax_of_draws(contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int) -> Vector:
    """Probability of each candidate under the softmax of the scores of its step. Shape (rows,)."""
    weights = _drawn(mean, covariance, draws)

    def rule(scores_of: ScoresOf) -> Matrix:
        scores = scores_of(weights)
        scores -= scores.max(axis=0)
        return _mean_share(np.exp(scores, out=scores))

    return _by_count(rule, contexts, offsets, draws)


def top_k_of_draws(
    contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int, *, top_k: int, scale: float
) -> Vector:
    """Probability of each candidate where one of the ``top_k`` best is drawn, by the softmax of ``scale`` times scores.

    Whether a candidate is among the best is told as `ibcb.numerics.choice_likelihood` does. Shape (rows,).
    """
    weights = _drawn(mean, covariance, draws)

    def rule(scores_of: ScoresOf) -> Matrix:
        scores = scores_of(weights)
        ranked = -np.sort(-scores, axis=0)
        # The last of the k best, or of all where there are fewer.
        last = ranked[min(top_k, len(ranked)) - 1]
        own = np.exp(np.minimum(scores - last, _FAR))
        # Below the k best of all, for one of them; below the k - 1 best and without itself, for the others.
        beyond = np.exp(ranked[top_k:] - last).sum(axis=0)
        rest = np.where(scores >= last, beyond, np.maximum(beyond + 1 - own, 0.0))
        chance = own / (own + rest) * np.exp(scale * (scores - ranked[0]))
        return _mean_share(chance)

    return _by_count(rule, contexts, offsets, draws)


def _scores(X: Contexts, M: int, weights: Matrix) -> Matrix:
    """Of every candidate by each column of the weights, of steps that have M rows of X each. Shape (M, steps, columns).

    Candidates come first, so that the steps and columns of each lie side by side in memory.
    """
    if isinstance(X, np.ndarray):
        scores: Matrix = np.matmul(X.reshape(-1, M, X.shape[1]).transpose(1, 0, 2), weights)
        return scores
    return np.ascontiguousarray((X @ weights).reshape(-1, M, weights.shape[1]).transpose(1, 0, 2))


def _by_count(rule: Callable[[ScoresOf], Matrix], contexts: Contexts, offsets: Offsets, draws: int) -> Vector:
    """A rule gives the probabilities, shape (M, steps), of some steps with M candidates each, from what scores them."""
    starts, counts = offsets[:-1], step_counts(offsets)
    probabilities = np.empty(int(offsets[-1]))
    for count in sizes_of(counts):
        own = starts[counts == count]
        at_once = max(1, _AT_ONCE // (draws * count))
        for first in range(0, len(own), at_once):
            rows = (own[first : first + at_once, None] + np.arange(count)).ravel()
            side_by_side = len(rows) == rows[-1] - rows[0] + 1
            X = contexts[rows[0] : rows[-1] + 1] if side_by_side else contexts[rows]
            probabilities[rows] = rule(partial(_scores, X.astype(np.float64, copy=False), count)).T.ravel()
    return probabilities


def _mean_share(weights: Matrix) -> Matrix:
    """The mean over draws of what each candidate has of the weights of its step. Shape (M, steps)."""
    shares: Matrix = np.einsum("mnk,nk->mn", weights, 1.0 / weights.sum(axis=0)) / weights.shape[2]
    return shares


def _drawn(mean: Vector, covariance: Matrix, draws: int) -> Matrix:
    """Weights from a belief, shape (d, draws); or the only ones there are, where it has no doubt."""
    if not covariance.any():
        return mean[:, None]
    return mean[:, None] + draws_root(mean, covariance) @ _points(draws, len(mean)).T


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
