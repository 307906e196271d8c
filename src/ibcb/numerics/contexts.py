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

__all__ = ["Contexts", "compact", "dense", "is_sparse", "nbytes", "ordered", "stacked", "taken"]

#: ndarray of shape (rows, d), or `scipy.sparse.csr_array` of the same shape with its columns in order
Contexts = Any

#: with fewer features, or a larger share of numbers that are not 0, a dense array is quicker; not tuned finely
_FEW_FEATURES, _SPARSE = 64, 0.2


def is_sparse(contexts: Contexts) -> bool:
    """Whether contexts are stored sparsely."""
    return bool(sparse.issparse(contexts))


def dense(contexts: Contexts) -> NDArray[Any]:
    """The same numbers as a dense array; itself if it is one."""
    found: NDArray[Any] = contexts.toarray() if is_sparse(contexts) else contexts
    return found


def compact(contexts: Contexts) -> Contexts:
    """The same contexts, sparse where that is worth it and dense where not."""
    rows, d = contexts.shape
    filled = contexts.nnz if is_sparse(contexts) else np.count_nonzero(contexts)
    if d >= _FEW_FEATURES and filled <= _SPARSE * rows * d:
        return ordered(contexts if is_sparse(contexts) else sparse.csr_array(contexts))
    return plain(dense(contexts))


def ordered(contexts: Any) -> sparse.csr_array:
    """Any sparse matrix as rows with their columns in order, each once; zeros are not stored."""
    found = sparse.csr_array(contexts)
    if not found.has_canonical_format:
        found = found.copy() if found is contexts else found
        found.sum_duplicates()
    if found.nnz and not found.data.all():
        found = found.copy()
        found.eliminate_zeros()
    return found


def stacked(parts: Sequence[Contexts]) -> Contexts:
    """One below the other; sparse if any of them is."""
    if len(parts) == 1:
        return parts[0]
    return sparse.vstack(parts, format="csr") if any(map(is_sparse, parts)) else np.concatenate(parts)


def taken(contexts: Contexts, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Some rows, as a dense array."""
    found: NDArray[Any] = contexts[rows].toarray() if is_sparse(contexts) else contexts.take(rows, axis=0)
    return found


def nbytes(contexts: Contexts) -> int:
    """Size in memory."""
    if is_sparse(contexts):
        return int(contexts.data.nbytes + contexts.indices.nbytes + contexts.indptr.nbytes)
    return int(contexts.nbytes)
