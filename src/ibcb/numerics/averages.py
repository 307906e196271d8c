"""Choice rules averaged over a Gaussian belief: how probable each candidate of a step is, given what is known.

Scores of candidates are X w, and w is believed to be N(mean, covariance). A rule says what is chosen given w; its
average over the belief is taken by draws from a lattice (Richtmyer 1951), the same for all steps. A rule that takes the
best candidate would give probabilities in steps of one draw, and 0 too often. So only part of the variance is drawn;
the rest is replaced by independent noise of the same size with a Gumbel distribution, for which the softmax is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ibcb.numerics.contexts import Contexts
from ibcb.numerics.gaussians import factor

__all__ = ["best_of_draws", "softmax_of_draws", "top_k_of_draws"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Offsets = NDArray[np.int64]

#: share of the variance that is left to the softmax, times the root of the number of draws: more is less exact, less is
#: rougher (judged by tests/numerics/test_averages.py)
_LEFT = 0.8
#: e to the power of this is as good as infinite, and finite
_FAR = 500.0
#: scores that are held at a time, 16 MB; not tuned finely
_AT_ONCE = 1 << 21
#: dimensions that are drawn from the lattice; in more of them its points are no better than random ones
_LATTICE = 24
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89)


def best_of_draws(contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int) -> Vector:
    """Probability that each candidate has the best score of its step. Shape (rows,)."""

    def rule(scores: Vector, luck: Matrix, starts: Offsets, counts: Offsets) -> Vector:
        middle = np.add.reduceat(luck, starts) / counts[:, None]
        spread = np.add.reduceat(luck**2, starts) / counts[:, None] - middle**2
        left = _LEFT / np.sqrt(luck.shape[1])
        # A Gumbel variable of scale h has the variance pi^2 h^2 / 6.
        h = np.sqrt(6 * left * np.maximum(spread.mean(axis=1), 0.0)) / np.pi
        drawn = scores[:, None] + np.sqrt(1 - left) * luck
        drawn -= np.repeat(np.maximum.reduceat(drawn, starts), counts, axis=0)
        # Scores that are known exactly still tie where they are equal up to rounding.
        size = np.maximum.reduceat(np.abs(scores), starts)
        drawn /= np.repeat(np.maximum(h, 1e-12 * size + np.finfo(np.float64).tiny), counts)[:, None]
        return _softmax(drawn, starts, counts)

    return _averaged(rule, contexts, offsets, mean, covariance, draws)


def softmax_of_draws(contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int) -> Vector:
    """Probability of each candidate under the softmax of the scores of its step. Shape (rows,)."""

    def rule(scores: Vector, luck: Matrix, starts: Offsets, counts: Offsets) -> Vector:
        drawn = scores[:, None] + luck
        drawn -= np.repeat(np.maximum.reduceat(drawn, starts), counts, axis=0)
        return _softmax(drawn, starts, counts)

    return _averaged(rule, contexts, offsets, mean, covariance, draws)


def top_k_of_draws(
    contexts: Contexts, offsets: Offsets, mean: Vector, covariance: Matrix, draws: int, *, top_k: int, scale: float
) -> Vector:
    """Probability of each candidate where one of the ``top_k`` best is drawn, by the softmax of ``scale`` times scores.

    Whether a candidate is among the best is told as `ibcb.numerics.choice_likelihood` does. Shape (rows,).
    """

    def rule(scores: Vector, luck: Matrix, starts: Offsets, counts: Offsets) -> Vector:
        width = int(counts.max())
        there = np.arange(width) < counts[:, None]
        table = np.full((len(counts), width, luck.shape[1]), -np.inf)
        table[there] = scores[:, None] + luck
        ranked = -np.sort(-table, axis=1)
        # The last of the k best, or of all where there are fewer.
        place = np.minimum(top_k, counts) - 1
        last = np.take_along_axis(ranked, place[:, None, None], axis=1)
        own = np.exp(np.minimum(table - last, _FAR))
        # Below the k best of all, for one of them; below the k - 1 best and without itself, for the others.
        beyond = np.exp(ranked[:, top_k:] - last).sum(axis=1, keepdims=True)
        rest = np.where(table >= last, beyond, np.maximum(beyond + 1 - own, 0.0))
        chance = own / (own + rest) * np.exp(scale * (table - ranked[:, :1]))
        chance = np.where(there[:, :, None], chance, 0.0)
        chance /= chance.sum(axis=1, keepdims=True)
        found: Vector = chance.mean(axis=2)[there]
        return found

    return _averaged(rule, contexts, offsets, mean, covariance, draws)


def _averaged(
    rule: Callable[[Vector, Matrix, Offsets, Offsets], Vector],
    contexts: Contexts,
    offsets: Offsets,
    mean: Vector,
    covariance: Matrix,
    draws: int,
) -> Vector:
    """A rule of scores and of what draws add to them, for some steps at a time."""
    spread = factor(covariance) @ _points(draws, len(mean)).T
    found = np.empty(int(offsets[-1]))
    for first, last in _pieces(offsets, max(1, _AT_ONCE // draws)):
        start, stop = int(offsets[first]), int(offsets[last])
        X = contexts[start:stop].astype(np.float64, copy=False)
        own = offsets[first : last + 1] - start
        found[start:stop] = rule(X @ mean, X @ spread, own[:-1], np.diff(own))
    return found


def _softmax(scores: Matrix, starts: Offsets, counts: Offsets) -> Vector:
    """The mean over draws of the softmax of each step; scores are at most 0, and their best is 0."""
    np.exp(scores, out=scores)
    scores /= np.repeat(np.add.reduceat(scores, starts), counts, axis=0)
    found: Vector = scores.mean(axis=1)
    return found


def _points(count: int, dimension: int) -> Matrix:
    """Points of a standard normal distribution, spread more evenly than random ones. Shape (count, dimension)."""
    shown = min(dimension, _LATTICE)
    uniform = np.mod(np.outer(np.arange(1, count + 1), np.sqrt(_PRIMES[:shown])), 1.0)
    found: Matrix = ndtri(uniform)
    if dimension > shown:
        found = np.hstack([found, np.random.default_rng(0).standard_normal((count, dimension - shown))])
    return found


def _pieces(offsets: Offsets, rows: int) -> Iterator[tuple[int, int]]:
    """First step, and the one after the last, of pieces of at most so many rows, or of one step."""
    edges, steps = [0], len(offsets) - 1
    while edges[-1] < steps:
        full = int(np.searchsorted(offsets, offsets[edges[-1]] + rows, side="right")) - 1
        edges.append(min(max(full, edges[-1] + 1), steps))
    return pairwise(edges)
