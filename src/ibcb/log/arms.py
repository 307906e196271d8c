"""Arms: one fixed set to choose from, and features of the step; every arm has weights of its own on them.

A disjoint linear bandit (Li et al. 2010) keeps one regression per arm. That is a linear policy over candidates whose
context has the step's features x in the columns of their arm, and zeros in those of all others::

    arm 0   [ x 0 0 | z_0 ]
    arm 1   [ 0 x 0 | z_1 ]
    arm 2   [ 0 0 x | z_2 ]

Behind them come features z of the arms themselves, where there are any, with weights that all arms share (a hybrid
bandit). Without features of the step x is a constant 1: then a policy is one number per arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.log.notes import Note
from ibcb.numerics.contexts import Contexts, ordered


def arm_rows(
    features: NDArray[Any], available: NDArray[np.bool_], arm_features: NDArray[Any] | None = None
) -> tuple[Contexts, NDArray[np.int64], NDArray[np.int64]]:
    """Contexts of the available arms, sparse, the arm of each row, and how many rows each step has.

    Parameters
    ----------
    features : ndarray of shape (steps, m)
        Of the step; with m = 0 every arm has a constant 1.
    available : ndarray of shape (steps, K), bool
    arm_features : ndarray of shape (K, q), optional
    """
    if features.shape[1] == 0:
        features = np.ones((len(features), 1), dtype=features.dtype)
    m, K = features.shape[1], available.shape[1]
    steps, arms = np.nonzero(available)
    own = sparse.csr_array(
        (
            features.take(steps, axis=0).ravel(),
            (arms[:, None] * m + np.arange(m)).ravel(),
            np.arange(len(steps) + 1) * m,
        ),
        shape=(len(steps), K * m),
    )
    contexts = own
    if arm_features is not None:
        shared = sparse.csr_array(arm_features.astype(features.dtype, copy=False))
        contexts = sparse.hstack([own, shared[arms]], format="csr")
    return ordered(contexts), arms, available.sum(axis=1)


def arm_feature_names(arms: Sequence[Any], features: Sequence[str], shared: Sequence[str] = ()) -> tuple[str, ...]:
    """The names that features have in the log, such as "arm=7:age"; "arm=7" for its constant, named "" among them.

    >>> arm_feature_names(["a", "b"], ["", "age"], ["price"])
    ('arm=a', 'arm=a:age', 'arm=b', 'arm=b:age', 'price')
    """
    own = tuple(f"arm={arm}:{name}" if name else f"arm={arm}" for arm in arms for name in features)
    return (*own, *shared)


def never_chosen(arms: int, of: int) -> Note:
    """That some arms were never chosen, so that their weights are anybody's guess."""
    text = f"{arms} of {of} arms were never chosen: the log bounds their weights only from above."
    return Note("arms-never-chosen", "info", text, {"arms": arms, "of": of})
