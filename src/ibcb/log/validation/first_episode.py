"""Does a log begin where its decider began? Evidence from the first episode's choices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.notes import Note
from ibcb.log.validation.constancy import whitening
from ibcb.log.validation.findings import noted
from ibcb.numerics.ridge import Frame

#: probability of what choices show that are drawn evenly from the candidates, above which they look so; not tuned
RANDOM_P = 1e-3
#: steps below which random choices cannot be told from others, and features with which the test takes long; not tuned
FEW_STEPS, _MANY_FEATURES = 50, 500
#: share of steps with the candidate of largest norm at which a decider is believed to know nothing: in the units of the
#: log, where the norm is exact, and in units that are only near to the decider's own; not tuned
_EXACT_SHARE, _NEAR_SHARE = 0.9, 0.6


def missing_past(first: BehaviorLog, *, bonus: bool, frame: Frame | None = None) -> Note | None:
    """Why the first episode does not look like the first: nothing learned, nothing seen. None if it does.

    ``bonus``: of a decider that adds a confidence bonus, or of one that draws from its posterior. ``frame``: the units
    of its features, where they are not the log's.
    """
    if frame is not None:
        contexts = (first.contexts - frame.origin) / frame.scale
        first = BehaviorLog(contexts, first.step_offsets, first.chosen, first.episode_offsets)
    if bonus:
        # A decider with theta = 0 and Phi = 0 takes the candidate of largest norm.
        longest = np.einsum("ij,ij->i", first.contexts, first.contexts)
        largest = longest[first.step_offsets[:-1] + argmax_per_step(longest, first)]
        share = float(np.mean(longest[first.chosen_rows] >= (1 - 1e-6) * largest))
        if share >= (_EXACT_SHARE if frame is None else _NEAR_SHARE):
            return None
        if _looks_random(first, longest):
            return noted("unmarked-warmup/first", {"share": share}, total=1)
        return noted("late-start/norm", {"share": share})
    # A Thompson sampler that knows nothing draws theta from N(0, c I): its choices favour no direction but by the
    # shape of the candidate sets, which the same sets with fresh draws show.
    rng = np.random.default_rng(0)
    draws = np.repeat(rng.standard_normal((first.n_steps, first.n_features)), np.diff(first.step_offsets), axis=0)
    picks = argmax_per_step(np.einsum("ij,ij->i", first.contexts, draws), first)
    statistic, degrees = _hotelling(_advantage(first, first.chosen), _advantage(first, picks))
    if statistic <= degrees + 10 * np.sqrt(2 * degrees) + 20:
        return None
    return noted("late-start/lean", {"standard_errors": float(np.sqrt(statistic))})


def lean_test(lean: NDArray[np.float64], spread: NDArray[np.float64]) -> tuple[float, int]:
    """Do choices seek or avoid some features? The statistic, and the number of directions in which candidates differ.

    If they are drawn evenly from the candidates, their ``lean``, the sum of what the chosen have above the mean of
    their step, has mean 0 and covariance ``spread``, the sum of the steps' covariances. Its squared length in that
    metric is then chi-squared.
    """
    A = whitening(spread)
    return float(np.sum((lean @ A) ** 2)), A.shape[1]


def _looks_random(log: BehaviorLog, squares: NDArray[Any]) -> bool:
    """Whether choices lean towards no feature, nor towards length, given its square; False if there are too few."""
    if log.n_steps < max(FEW_STEPS, 5 * log.n_features) or log.n_features > _MANY_FEATURES:
        return False
    counts, starts = np.diff(log.step_offsets), log.step_offsets[:-1]
    Z = np.column_stack([log.contexts, squares / max(float(squares.max()), 1e-300)]).astype(np.float64)
    Z -= np.repeat(np.add.reduceat(Z, starts, axis=0) / counts[:, None], counts, axis=0)
    statistic, directions = lean_test(Z[log.chosen_rows].sum(axis=0), Z.T @ (Z / np.repeat(counts, counts)[:, None]))
    return directions > 0 and bool(chdtrc(directions, statistic) > RANDOM_P)


def _advantage(log: BehaviorLog, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Chosen context minus the mean of its candidate set, shape (steps, d)."""
    starts, counts = log.step_offsets[:-1], np.diff(log.step_offsets)
    contexts = log.contexts.astype(np.float64, copy=False)
    means = np.add.reduceat(contexts, starts, axis=0) / counts[:, None]
    advantage: NDArray[np.float64] = contexts[starts + chosen] - means
    return advantage


def _hotelling(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, int]:
    """Two-sample T^2 of the difference in means, and its degrees of freedom; chi-squared if there is none."""
    difference = one.mean(axis=0) - other.mean(axis=0)
    spread = one - one.mean(axis=0), other - other.mean(axis=0)
    covariance = sum(part.T @ part for part in spread) / max(len(one) + len(other) - 2, 1)
    inverse = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True)
    return float(len(one) / 2 * difference @ inverse @ difference), int(np.linalg.matrix_rank(inverse, hermitian=True))
