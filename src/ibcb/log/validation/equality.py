"""Which candidates, and which steps, are equal to the last bit: by hashes of 64 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: 2^64 over the golden ratio, odd: Knuth's multiplicative hash
_MIX = np.uint64(0x9E3779B97F4A7C15)


def keys(d: int) -> NDArray[np.uint64]:
    """An odd number for each of d features."""
    return np.random.default_rng(0).integers(2**63, size=d, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def row_hashes(X: NDArray[np.float64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
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


def compare(rows: NDArray[np.uint64], chosen: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
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
