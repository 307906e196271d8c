"""Whether choices depend on squares and products of the features: what no weights of the features themselves can say.

A conditional logit of the features, and one of the features with their squares and products, learn from the three
episodes before the last one, and predict the last. If the richer one predicts more of its choices than luck explains,
then the decider values something that these features, as they are, do not show. Choices predicted are compared, not
likelihoods: how sharply a decider chooses, or among how many, is no bend.
"""

from __future__ import annotations

from collections import deque
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.inverse.solvers import SolverError
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.laplace import summarise
from ibcb.numerics.newton import Stopping
from ibcb.report.rivals import Lessons

#: episodes that are learned from, and steps of each, at most; and those of the last one, at least
_EPISODES, _STEPS, _FEWEST = 3, 600, 100
#: more features than this have their squares only, and beyond the second number nothing
_MOST_PAIRED, _MOST = 30, 200
#: prior deviations of the weights of features, and of squares and products, of deviation 1
_LOOSE, _CLOSE = 10.0, 1.0
#: standard errors that luck leaves once in a hundred logs
LUCK = 2.326
#: features that are named
_NAMED = 3
_SETTLED = Stopping(gain=1e-5, slack=1e-8, max_passes=60, floor=1.0)


class Bend(NamedTuple):
    """How many more choices squares and products predict.

    Attributes
    ----------
    z : float
        Of a sign test on the choices of the last episode that only one of the two predicts.
    features : tuple of int
        Whose squares and products count most.
    """

    z: float
    features: tuple[int, ...]

    @property
    def is_seen(self) -> bool:
        """Whether luck does not explain it."""
        return self.z > LUCK


class Bends:
    """Gathers steps of the last episodes."""

    def __init__(self) -> None:
        self._recent = deque[Lessons](maxlen=_EPISODES + 1)

    def begin_episode(self) -> None:
        """Another one."""
        self._recent.append(Lessons(most_steps=_STEPS))

    def add(self, log: BehaviorLog, place: tuple[int, int], width: Vector, kind: Kind) -> None:
        """A part of it; a bonus is no bend."""
        self._recent[-1].offer(log, place, width=None if kind.per_unit is None else width)

    def finish(self, n_features: int) -> Bend | None:
        """What they say; None where they are too few."""
        lessons = list(self._recent)
        if len(lessons) <= _EPISODES or len(lessons[-1].steps) < _FEWEST or not 0 < n_features <= _MOST:
            return None
        X = np.concatenate([each.contexts for each in lessons])
        deviations = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
        pairs = [(one, one) for one in range(n_features)]
        if n_features <= _MOST_PAIRED:
            pairs = list(combinations_with_replacement(range(n_features), 2))
        bent = np.column_stack([X[:, one] * X[:, other] for one, other in pairs])
        bent /= np.maximum(bent.std(axis=0), 1e-12)
        counts, chosen = (np.concatenate([each.steps[name] for each in lessons]) for name in ("count", "chosen"))
        split = len(counts) - len(lessons[-1].steps)
        try:
            plain, _ = _hits(X, counts, chosen, split, np.full(X.shape[1], _LOOSE))
            both = np.append(np.full(X.shape[1], _LOOSE), np.full(len(pairs), _CLOSE))
            richer, weights = _hits(np.column_stack([X, bent]), counts, chosen, split, both)
        except (SolverError, np.linalg.LinAlgError):
            return None
        gained, lost = int(np.count_nonzero(richer & ~plain)), int(np.count_nonzero(plain & ~richer))
        own = np.zeros(n_features)
        for weight, pair in zip(np.abs(weights[X.shape[1] :]).tolist(), pairs, strict=True):
            own[list(set(pair))] += weight
        named = tuple(np.argsort(-own, kind="stable")[:_NAMED].tolist())
        return Bend((gained - lost) / max(1, gained + lost) ** 0.5, named)


def _hits(
    X: Matrix, counts: NDArray[np.int64], chosen: NDArray[np.int64], split: int, deviations: Vector
) -> tuple[NDArray[np.bool_], Vector]:
    """Which choices from a step on have the best score under a logit of those before it, and its weights."""
    offsets = np.append(0, counts.cumsum())
    row, zero = int(offsets[split]), np.zeros(X.shape[1])
    loss = ChoiceLoss(X[:row], offsets[: split + 1], chosen[:split])
    weights = summarise(loss, zero, np.diag(deviations**-2.0), start=zero, stopping=_SETTLED).mode
    scores, starts = X[row:] @ weights, offsets[split:-1] - row
    return scores[starts + chosen[split:]] >= np.maximum.reduceat(scores, starts), weights
