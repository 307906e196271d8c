"""Reading what `BehaviorLog.from_episodes` and `BehaviorLog.from_arms` take: one pair of arrays for each episode.

Arms are one fixed set to choose from, with features of the step; every arm has weights of its own on them. A disjoint
linear bandit (Li et al. 2010) keeps one regression per arm. That is a linear policy over candidates whose
context has the step's features x in the columns of their arm, and zeros in those of all others::

    arm 0   [ x 0 0 | z_0 ]
    arm 1   [ 0 x 0 | z_1 ]
    arm 2   [ 0 0 x | z_2 ]

Behind them come features z of the arms themselves, where there are any, with weights that all arms share (a hybrid
bandit). Without features of the step x is a constant 1: then a policy is one number per arm.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.log.array_checks import (
    LogFormatError,
    checked,
    context_array,
    first_true,
    float_array,
    plural,
    whole_numbers,
)
from ibcb.log.notes import Note
from ibcb.log.steps import Steps
from ibcb.numerics.checks import unmasked
from ibcb.numerics.contexts import Contexts, is_sparse, ordered, stacked
from ibcb.numerics.printable import WrongTypeError, shown

T = TypeVar("T")
#: each arm has columns of its own; a number beyond is no number of an arm but an id
_MOST_ARMS = 1_000_000
_ARM = "the number of the chosen arm, from 0"
#: what makes an episode, by the method that takes it
_PAIRS = {"from_episodes": "(contexts, chosen)", "from_arms": "(X, arm)"}


def read_pairs(episodes: Any, warmup: Any, read: Callable[[Any, Any, str, T | None], T], method: str) -> dict[str, T]:
    """What is made of every pair, given its place and what was made of the first one; by place."""
    pairs = f"a list of pairs {_PAIRS[method]}, one per episode"
    if not isinstance(episodes, Iterable):
        raise WrongTypeError(f"{method} got {type(episodes).__name__}; it takes {pairs}.")
    # Places are named as they will be in the log: the warm-up has negative numbers.
    before = warmup if isinstance(warmup, int) else 0
    made: dict[str, T] = {}
    for index, pair in enumerate(episodes):
        place = f"episode {index - before}"
        try:
            given, chosen = pair
        except (TypeError, ValueError):
            got = f"{len(pair)} values" if isinstance(pair, (tuple, list)) else type(pair).__name__
            rule = f"expected a pair {_PAIRS[method]}, got {got}; {method} takes a list of such pairs"
            raise WrongTypeError(f"{place}: {rule}. Rewards do not belong in a log.") from None
        made[place] = read(given, chosen, place, next(iter(made.values()), None))
    if not made:
        raise LogFormatError(f"The log is empty: {method} got no episode; it needs at least one.")
    return made


def read_sets(contexts: Any, chosen: Any, place: str, first: Steps | None) -> Steps:
    """One ``(contexts, chosen)`` pair, checked against the first one."""
    picks = whole_numbers(chosen, f"{place}: chosen")
    if isinstance(contexts, memoryview):
        contexts = np.asarray(contexts)
    if is_sparse(contexts):
        rows, counts = _sparse(contexts, len(picks), place)
    elif isinstance(contexts, np.ndarray) and contexts.dtype != object:
        rows, counts = _dense(contexts, place)
    else:
        rows, counts = _ragged(contexts, place)
    _check_length(len(counts), len(picks), place, "contexts", "chosen")
    if first is not None:
        _check_alike(rows, first.contexts, place, "the first episode")
    return Steps(rows, counts, picks)


def _dense(contexts: NDArray[Any], place: str) -> tuple[Contexts, NDArray[np.int64]]:
    if contexts.ndim != 3 or contexts.shape[2] == 0:
        raise LogFormatError(
            f"{place}: contexts has shape {contexts.shape}; expected (steps, candidates, features), "
            "or a list of (candidates, features) arrays where the number of candidates varies."
        )
    steps, candidates, d = contexts.shape
    rows = float_array(contexts, f"{place}: contexts").reshape(steps * candidates, d)
    return rows, np.full(steps, candidates, dtype=np.int64)


def _sparse(contexts: Any, steps: int, place: str) -> tuple[Contexts, NDArray[np.int64]]:
    """All candidates of an episode in one sparse matrix, those of a step together."""
    rows, d = contexts.shape
    if d == 0 or steps == 0 or rows == 0 or rows % steps:
        raise LogFormatError(
            f"{place}: contexts is a sparse matrix of shape {contexts.shape}, for {plural(steps, 'step')}; expected "
            "equally many rows for every step, or a list of sparse (candidates, features) matrices, one per step."
        )
    return context_array(contexts, f"{place}: contexts"), np.full(steps, rows // steps, dtype=np.int64)


def _ragged(contexts: Any, place: str) -> tuple[Contexts, NDArray[np.int64]]:
    try:
        steps = list(contexts)
    except TypeError:
        raise WrongTypeError(
            f"{place}: contexts is {type(contexts).__name__}; expected an array (steps, candidates, features) "
            "or a list of (candidates, features) arrays."
        ) from None
    rows: list[Contexts] = []
    for number, candidates in enumerate(steps):
        step = f"{place}, step {number}"
        rows.append(context_array(candidates, f"{step}: contexts"))
        if rows[-1].ndim != 2 or rows[-1].shape[1] == 0:
            raise LogFormatError(f"{step}: contexts has shape {rows[-1].shape}; expected (candidates, features).")
        _check_alike(rows[-1], rows[0], step, "the step before it")
    counts = np.array([array.shape[0] for array in rows], dtype=np.int64)
    return (stacked(rows) if rows else np.empty((0, 1))), counts


def _check_alike(contexts: Contexts, first: Contexts, place: str, other: str) -> None:
    stored = ("dense", "sparse")
    sparsely = "convert them with scipy.sparse.csr_array or toarray to one of the two"
    for what, value, expected, remedy in (
        ("features", contexts.shape[1], first.shape[1], "every step needs the same features"),
        ("dtype", contexts.dtype, first.dtype, "convert them with astype to one of the two"),
        ("contexts", stored[is_sparse(contexts)], stored[is_sparse(first)], sparsely),
    ):
        if value != expected:
            raise LogFormatError(f"{place}: {what} is {value} but {other} has {expected}; {remedy}.")


def _check_length(steps: int, entries: int, place: str, one: str, other: str) -> None:
    if steps == 0:
        raise LogFormatError(f"{place} has no steps; leave it out or give it the steps it had.")
    if steps != entries:
        raise LogFormatError(f"{place}: {one} has {plural(steps, 'step')} but {other} has {entries} entries.")


class ArmPair(NamedTuple):
    """Features of the steps, shape (steps, m), and the chosen arms, shape (steps,)."""

    features: NDArray[Any]
    arms: NDArray[np.int64]


def read_arm_pair(given: Any, chosen: Any, place: str, first: ArmPair | None) -> ArmPair:
    """One ``(X, arm)`` pair, checked against the first one."""
    X = float_array(given, f"{place}: X")
    if X.ndim != 2:
        raise LogFormatError(
            f"{place}: X has shape {X.shape}; expected (steps, features), the features of each step. Without features "
            "give (steps, 0)."
        )
    arms = whole_numbers(chosen, f"{place}: arm", _ARM)
    _check_length(len(X), len(arms), place, "X", "arm")
    if first is not None and X.shape[1] != first.features.shape[1]:
        raise LogFormatError(
            f"{place}: X has {plural(X.shape[1], 'feature')} but the first episode has {first.features.shape[1]}; "
            "every step needs the same features."
        )
    return ArmPair(X, arms)


def arm_count(given: int | None, names: Sequence[Any] | None, features: Any, pairs: Iterable[ArmPair]) -> int:
    """How many arms there are, by all that says it."""
    counts = {} if given is None else {"n_arms": operator.index(given)}
    counts |= {} if names is None else {"arm_names": len(names)}
    counts |= {} if features is None else {"arm_features": len(features)}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{what} says {shown(count)}" for what, count in counts.items())
        raise LogFormatError(f"how many arms are there? {said}; they must agree.")
    what, count = next(iter(counts.items())) if counts else ("arm", 1 + max(int(pair.arms.max()) for pair in pairs))
    if count < 1:
        raise LogFormatError(f"there are {shown(count)} arms; a log needs at least one.")
    if count > _MOST_ARMS:
        raise LogFormatError(
            f"there are {shown(count)} arms, by {what}, and at most {_MOST_ARMS} can be told apart. Arms "
            "are numbered from 0: number ids by np.unique(ids, return_inverse=True), and give them as arm_names."
        )
    return count


def arm_steps(pair: ArmPair, available: Any, n_arms: int, shared: NDArray[Any] | None, place: str) -> Steps:
    """An episode as steps whose candidates are the available arms, named by their numbers; see `arm_rows`."""
    X, arms = pair
    each = np.arange(len(arms))
    if (at := first_true((arms < 0) | (arms >= n_arms))) is not None:
        raise LogFormatError(
            f"{place}, step {at}: arm is {arms[at]}, which is unknown: arms are numbered 0 to {n_arms - 1}. Raise "
            "n_arms if there are more."
        )
    could = _available(available, len(X), n_arms, place)
    if (at := first_true(~could[each, arms])) is not None:
        raise LogFormatError(
            f"{place}, step {at}: arm {arms[at]} was chosen but is not among the available ones "
            f"({shown(np.flatnonzero(could[at]).tolist())}); correct available, or leave the step out."
        )
    contexts, candidates, counts = arm_rows(X, could, shared)
    return Steps(contexts, counts, np.cumsum(could, axis=1)[each, arms] - 1, candidate_ids=candidates)


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
        unknown = arms[(arms < 0) | (arms >= n_arms)]
        if len(unknown):
            raise LogFormatError(
                f"{place}, step {step}: available names arm {unknown[0]}; arms are numbered 0 to {n_arms - 1}."
            )
        could[step, arms] = True
    return could


def never_chosen(arms: int, of: int) -> Note:
    """That some arms were never chosen, so that their weights are anybody's guess."""
    text = f"{arms} of {of} arms were never chosen: the log bounds their weights only from above."
    return Note("arms-never-chosen", "info", text, {"arms": arms, "of": of})
