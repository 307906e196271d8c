"""Contexts, one row per candidate: a dense array, or a sparse one where most features of a row are 0.

How contexts are stored decides how they are worked with, and nothing else: results are the same up to rounding. Code
that only multiplies by them (``contexts @ w``), slices rows or asks for ``shape`` and ``dtype`` need not know; the
rest is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.numerics.arrays import plain

#: ndarray of shape (rows, d), or `scipy.sparse.csr_array` of the same shape with its columns in order
Contexts = Any

#: sizes of features between which squares, and sums of many of them, stay within the range of float64, 1e-308 to 1e308
SMALLEST, LARGEST = 1e-140, 1e140

#: with fewer features, or a larger share of numbers that are not 0, a dense array is quicker; not tuned finely
_FEW_FEATURES, _SPARSE = 64, 0.2
#: how much longer one pair of numbers takes than one product within a product of matrices; not tuned finely
_PAIR_COST = 128
#: numbers that a product of some sparse rows may have at a time; not tuned finely
_PRODUCT_NUMBERS = 1 << 18


def is_sparse(contexts: Contexts) -> bool:
    """Whether contexts are stored sparsely."""
    return not isinstance(contexts, np.ndarray) and bool(sparse.issparse(contexts))


def dense(contexts: Contexts) -> NDArray[Any]:
    """The same numbers as a dense array; itself if it is one."""
    array: NDArray[Any] = contexts.toarray() if is_sparse(contexts) else contexts
    return array


def sparse_pays(d: int, filled: float) -> bool:
    """Whether d features, of which this share is not 0, are better stored sparsely."""
    return d >= _FEW_FEATURES and filled <= _SPARSE


def compact(contexts: Contexts) -> Contexts:
    """The same contexts, sparse where that is worth it and dense where not."""
    rows, d = contexts.shape
    filled = contexts.nnz if is_sparse(contexts) else np.count_nonzero(contexts)
    if sparse_pays(d, filled / max(rows * d, 1)):
        return ordered(contexts if is_sparse(contexts) else sparse.csr_array(contexts))
    return plain(dense(contexts))


def ordered(contexts: Any) -> sparse.csr_array:
    """Any sparse matrix as rows with their columns in order, each once; zeros are not stored."""
    rows = sparse.csr_array(contexts)
    if not rows.has_canonical_format:
        rows = rows.copy() if rows is contexts else rows
        rows.sum_duplicates()
    if rows.nnz and not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    return rows


def arranged(contexts: Contexts) -> Contexts:
    """The same numbers in the layout that kernels want, whoever made them; see `ibcb.numerics.arrays.plain`."""
    if not is_sparse(contexts):
        return plain(contexts)
    parts = (contexts.data, contexts.indices, contexts.indptr)
    if all(part is plain(part) for part in parts):
        return contexts
    return sparse.csr_array(tuple(map(plain, parts)), shape=contexts.shape)


def stacked(parts: Sequence[Contexts]) -> Contexts:
    """One below the other; sparse if any of them is."""
    if len(parts) == 1:
        return parts[0]
    return sparse.vstack(parts, format="csr") if any(map(is_sparse, parts)) else np.concatenate(parts)


def taken(contexts: Contexts, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Some rows, as a dense array."""
    return dense(contexts[rows]) if is_sparse(contexts) else contexts.take(rows, axis=0)


def few_pairs(contexts: Contexts) -> bool:
    """Whether rows are so sparse that going through every two numbers of each is quicker than a product of matrices."""
    if not is_sparse(contexts):
        return False
    rows, d = contexts.shape
    counts = np.diff(contexts.indptr).astype(np.float64)
    return bool(_PAIR_COST * float(counts @ (counts + 1)) / 2 < rows * d * d)


def row_lengths(contexts: Contexts, matrix: NDArray[Any], offset: NDArray[Any] | None = None) -> NDArray[Any]:
    """Length of every row of ``contexts @ matrix - offset``, of sparse contexts, in their float type."""
    rows = contexts.shape[0]
    squares = np.empty(rows, dtype=contexts.dtype)
    stretch = max(64, _PRODUCT_NUMBERS // matrix.shape[1])
    for start in range(0, rows, stretch):
        product = contexts[start : start + stretch] @ matrix
        if offset is not None:
            product -= offset
        np.einsum("ro,ro->r", product, product, out=squares[start : start + stretch])
    return np.sqrt(squares, out=squares)


def scaled_rows(contexts: Contexts, factors: NDArray[Any]) -> Contexts:
    """Each row times its factor."""
    if not is_sparse(contexts):
        return contexts * factors[:, None]
    data = contexts.data * np.repeat(factors, np.diff(contexts.indptr))
    return sparse.csr_array((data, contexts.indices, contexts.indptr), shape=contexts.shape)


def step_sums(contexts: Contexts, offsets: NDArray[np.int64]) -> Contexts:
    """Sum over the rows of each step; step t owns the rows offsets[t] to offsets[t + 1] - 1. Shape (steps, d)."""
    if not is_sparse(contexts):
        return np.add.reduceat(contexts, offsets[:-1], axis=0)
    rows = contexts.shape[0]
    owner = sparse.csr_array((np.ones(rows, contexts.dtype), np.arange(rows), offsets), shape=(len(offsets) - 1, rows))
    return owner @ contexts


def repeated(contexts: Contexts, counts: NDArray[np.int64]) -> Contexts:
    """Each row so many times."""
    return contexts[np.repeat(np.arange(len(counts)), counts)]


def step_counts(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows each step has; ``offsets`` as of `step_sums`. Shape (steps,)."""
    counts: NDArray[np.int64] = offsets[1:] - offsets[:-1]
    return counts


def sizes_of(counts: NDArray[np.int64]) -> list[int]:
    """The different counts, in order."""
    sizes: list[int] = (counts[:1] if (counts == counts[0]).all() else np.unique(counts)).tolist()
    return sizes


def step_products(contexts: Contexts, matrices: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[Any]:
    """Product of every row with its step's row of each of some matrices, shape (K, steps, d) to (K, rows).

    ``counts``: rows per step.
    """
    if not is_sparse(contexts):
        products: NDArray[Any] = np.einsum("rd,krd->kr", contexts, np.repeat(matrices, counts, axis=1))
        return products
    rows = np.repeat(np.arange(contexts.shape[0]), np.diff(contexts.indptr))
    owner = np.repeat(np.arange(len(counts)), counts)[rows]
    terms = (contexts.data * matrix[owner, contexts.indices] for matrix in matrices)
    products = np.array([np.bincount(rows, each, minlength=contexts.shape[0]) for each in terms])
    return products.astype(matrices.dtype, copy=False)


def with_column(contexts: Contexts, column: NDArray[Any]) -> Contexts:
    """One more feature, the last."""
    if is_sparse(contexts):
        return sparse.hstack([contexts, sparse.csr_array(column[:, None])], format="csr")
    return np.column_stack([contexts, column])


def shown_counts(contexts: Contexts) -> NDArray[np.int64]:
    """In how many rows each feature is not 0. Shape (d,)."""
    if is_sparse(contexts):
        return np.bincount(contexts.indices, minlength=contexts.shape[1])
    counts: NDArray[np.int64] = np.count_nonzero(contexts, axis=0)
    return counts


def best_rows(scores: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row with the best score of each step, the first of equals; ``offsets`` as of `step_sums`. Shape (steps,)."""
    starts = offsets[:-1]
    best = np.flatnonzero(scores == np.repeat(np.maximum.reduceat(scores, starts), step_counts(offsets)))
    return best[np.searchsorted(best, starts)]


def nbytes(contexts: Contexts) -> int:
    """Size in memory."""
    if is_sparse(contexts):
        return int(contexts.data.nbytes + contexts.indices.nbytes + contexts.indptr.nbytes)
    return int(contexts.nbytes)
