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

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.log.arrays import LogFormatError, checked, float_array, plural, shown, whole_numbers
from ibcb.log.notes import Note
from ibcb.numerics.checks import WrongTypeError, unmasked
from ibcb.numerics.contexts import Contexts, ordered

__all__ = ["ArmSteps", "arm_count", "arm_feature_names", "arm_rows", "never_chosen", "positions", "read_arms"]

#: each has columns of its own; a number beyond is no number of an arm but an id
_MOST_ARMS = 1_000_000


class ArmSteps(NamedTuple):
    """Steps of one episode that choose among arms.

    Attributes
    ----------
    features : ndarray of shape (steps, m)
        Of the step.
    arms : ndarray of shape (steps,)
        The chosen arm.
    available : ndarray of shape (steps, K), bool
        The arms that could be chosen.
    """

    features: NDArray[Any]
    arms: NDArray[np.int64]
    available: NDArray[np.bool_]


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


def arm_count(given: int | None, names: Sequence[Any] | None, features: Any, pairs: Sequence[Any]) -> int:
    """How many arms there are, by all that says it."""
    told = {
        "n_arms": given,
        "arm_names": None if names is None else len(names),
        "arm_features": None if features is None else len(features),
    }
    counts = {what: operator.index(count) for what, count in told.items() if count is not None}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{what} says {shown(count)}" for what, count in counts.items())
        raise LogFormatError(f"how many arms are there? {said}; they must agree.")
    if not counts:
        arms = [whole_numbers(pair[1], "arm", "the number of the chosen arm, from 0") for pair in pairs]
        counts = {"arm": 1 + max(int(each.max(initial=0)) for each in arms)}
    count = next(iter(counts.values()))
    if count < 1:
        raise LogFormatError(f"there are {shown(count)} arms; a log needs at least one.")
    if count > _MOST_ARMS:
        raise LogFormatError(
            f"there are {shown(count)} arms, by {next(iter(counts))}, and at most {_MOST_ARMS} can be told apart. Arms "
            "are numbered from 0: number ids by np.unique(ids, return_inverse=True), and give them as arm_names."
        )
    return count


def positions(part: ArmSteps) -> NDArray[np.int64]:
    """Place of the chosen arm among the available ones."""
    ranks = np.cumsum(part.available, axis=1) - 1
    places: NDArray[np.int64] = ranks[np.arange(len(part.arms)), part.arms]
    return places


def never_chosen(arms: int, of: int) -> Note:
    """That some arms were never chosen, so that their weights are anybody's guess."""
    text = f"{arms} of {of} arms were never chosen: the log bounds their weights only from above."
    return Note("arms-never-chosen", "info", text, {"arms": arms, "of": of})


def read_arms(pair: Any, n_arms: int, available: Any, place: str) -> ArmSteps:
    """One ``(X, arm)`` pair as users give it."""
    try:
        given, chosen = pair
    except (TypeError, ValueError):
        raise WrongTypeError(f"{place}: expected a pair (X, arm): features of each step, and the arm chosen.") from None
    X = float_array(given, f"{place}: X")
    if X.ndim != 2:
        raise LogFormatError(
            f"{place}: X has shape {X.shape}; expected (steps, features), the features of each step. Without features "
            "give (steps, 0)."
        )
    arms = whole_numbers(chosen, f"{place}: arm", "the number of the chosen arm, from 0")
    if len(arms) != len(X):
        raise LogFormatError(f"{place}: X has {plural(len(X), 'step')} but arm has {len(arms)} entries.")
    if len(arms) == 0:
        raise LogFormatError(f"{place} has no steps; leave it out or give it the steps it had.")
    wrong = (arms < 0) | (arms >= n_arms)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise LogFormatError(
            f"{place}, step {at}: arm is {arms[at]}, which is unknown: arms are numbered 0 to {n_arms - 1}. Raise "
            "n_arms if there are more."
        )
    could = _available(available, len(X), n_arms, place)
    shut = ~could[np.arange(len(arms)), arms]
    if shut.any():
        at = int(np.argmax(shut))
        raise LogFormatError(
            f"{place}, step {at}: arm {arms[at]} was chosen but is not among the available ones "
            f"({shown(np.flatnonzero(could[at]).tolist())}); correct available, or leave the step out."
        )
    return ArmSteps(X, arms, could)


def _available(given: Any, steps: int, n_arms: int, place: str) -> NDArray[np.bool_]:
    """Which arms were available at each step, from a mask, a mask per step, or lists of arms."""
    if given is None:
        return np.ones((steps, n_arms), dtype=bool)
    if isinstance(given, np.ndarray) and given.dtype == bool:
        given = checked(unmasked, given, f"{place}: available", "give bools")
        if given.shape not in ((n_arms,), (steps, n_arms)):
            raise LogFormatError(
                f"{place}: available has shape {given.shape}; expected ({n_arms},) for the whole episode or "
                f"({steps}, {n_arms})."
            )
        return np.broadcast_to(given, (steps, n_arms))
    lists = list(given)
    if len(lists) != steps:
        raise LogFormatError(
            f"{place}: available has {len(lists)} entries but the episode has {plural(steps, 'step')}; give a list of "
            "arms for each step, or an array of bools."
        )
    could = np.zeros((steps, n_arms), dtype=bool)
    for step, some in enumerate(lists):
        arms = whole_numbers(some, f"{place}, step {step}: available", "the number of an arm, from 0")
        if len(arms) and not (arms.min() >= 0 and arms.max() < n_arms):
            raise LogFormatError(
                f"{place}, step {step}: available names arm {arms.max() if arms.min() >= 0 else arms.min()}; arms are "
                f"numbered 0 to {n_arms - 1}."
            )
        could[step, arms] = True
    return could
