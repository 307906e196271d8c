"""Logs with very many features, such as thousands of items known by their names: fewer are tracked.

A belief about d weights has d^2 numbers, and learning takes d^3 operations. Of more than `WIDE` features those that
show most keep weights of their own. The others are one feature together: the score that a conditional logit, fitted to
the whole log, gives them. So the policy may change how much it makes of them, but not how they compare with each other.

A `Lens` is how a model sees a log: as it is, or reduced. It takes logs there, and weights back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from ibcb.log import BehaviorLog, Log
from ibcb.log.array_checks import whole_numbers
from ibcb.log.fingerprint import Naming
from ibcb.log.notes import Note
from ibcb.numerics.arrays import Matrix, Vector, lazy
from ibcb.numerics.contexts import Contexts, compact, dense, is_sparse, shown_counts, stacked
from ibcb.tracking import Interval

#: features up to which all are tracked, and how many are of a log with more: a fit in seconds (benchmarks/arms.py)
WIDE, _TRACKED = 1024, 128
#: steps of the log that the logit is fitted to; not tuned
_MOST_STEPS = 1 << 15
#: how much more of a feature a chosen candidate shows than another; not tuned finely
_CHOSEN = 5.0
#: of the logit, with features at root mean square 1 where they show; not tuned finely
_RIDGE = 0.1


class Lens:
    """A log as it is."""

    def log(self, log: Log, naming: Naming | None = None) -> Log:
        """The log that is tracked; ``naming`` sees its parts go by, should they do so."""
        return log

    def names(self, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Of the features that are tracked."""
        return given

    def expanded(self, weights: Matrix) -> Matrix:
        """Weights of the log's own features, of those that were tracked. Shape (..., q) to (..., d)."""
        return weights

    def compressed(self, weights: Matrix) -> Matrix:
        """The other way round, as nearly as it can be said. Shape (..., d) to (..., q)."""
        return weights

    def expanded_interval(self, bounds: Interval) -> Interval:
        """Bounds of the log's own features."""
        return bounds

    def gram(self, gram: Matrix) -> Matrix:
        """S'S of the contexts as they are tracked."""
        return gram

    @property
    def reduces(self) -> bool:
        """Whether fewer features are tracked than the log has."""
        return bool(self.notes)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a reader should know."""
        return ()

    @property
    def arrays(self) -> dict[str, Vector]:
        """What a model file keeps of it."""
        return {}


@dataclass(frozen=True, eq=False)
class Reduction(Lens):
    """Fewer features for a log: some of its own, and last the score of all others.

    Attributes
    ----------
    kept : ndarray of shape (q - 1,)
        Features with weights of their own.
    others : ndarray of shape (d,)
        What the other features count in their score; zeros of those kept.
    """

    kept: NDArray[np.int64]
    others: Vector

    @lazy
    def matrix(self) -> Contexts:
        """Takes contexts to the reduced ones, sparse. Shape (d, q)."""
        d, own = len(self.others), len(self.kept)
        rest = np.flatnonzero(self.others)
        values = np.concatenate([np.ones(own), self.others[rest]])
        rows = np.concatenate([self.kept, rest])
        columns = np.concatenate([np.arange(own), np.full(len(rest), own)])
        return sparse.csr_array((values, (rows, columns)), shape=(d, own + 1))

    def log(self, log: Log, naming: Naming | None = None) -> Log:
        """With the reduced features, in memory: they take a small part of its room."""
        parts = [self._part(part) for _, part in (log.parts() if naming is None else naming.parts(log))]
        contexts = stacked([part.contexts for part in parts])
        return parts[0] if len(parts) == 1 and log.in_memory else BehaviorLog.joined(parts, contexts, log.notes)

    def _part(self, part: BehaviorLog) -> BehaviorLog:
        contexts = dense(part.contexts @ self.matrix).astype(part.contexts.dtype, copy=False)
        return part.with_contexts(contexts, self.names(part.feature_names))

    def names(self, given: tuple[str, ...] | None) -> tuple[str, ...]:
        """Of the reduced features."""
        own = tuple(str(place) if given is None else given[place] for place in self.kept.tolist())
        return (*own, f"{len(self.others) - len(own)} other features")

    def expanded(self, weights: Matrix) -> Matrix:
        """Weights of the log's own features: shape (..., q) to (..., d)."""
        own: Matrix = np.zeros((*weights.shape[:-1], len(self.others)))
        own[..., self.kept] = weights[..., :-1]
        own += weights[..., -1:] * self.others
        return own

    def compressed(self, weights: Matrix) -> Matrix:
        """The other way round, as nearly as it can be said: shape (..., d) to (..., q)."""
        size = float(self.others @ self.others) or 1.0
        return np.concatenate([weights[..., self.kept], (weights @ self.others / size)[..., None]], axis=-1)

    def expanded_interval(self, bounds: Interval) -> Interval:
        """Bounds of the log's own features; those of the others are as wide as that of their score."""
        own = len(self.kept)
        expanded = []
        for each in bounds:
            # Without bounds of the score the others have none; those kept have their own all the same.
            wide = self.expanded(np.append(each[:own], 0.0))
            rest = np.flatnonzero(self.others)
            wide[rest] = each[own] * self.others[rest]
            expanded.append(np.append(wide, each[own + 1 :]))  # an intercept
        estimate, *ends = expanded
        return Interval(estimate, np.minimum(*ends), np.maximum(*ends))

    def gram(self, gram: Matrix) -> Matrix:
        """S'S of reduced contexts."""
        Z = self.matrix
        reduced: Matrix = Z.T @ (Z.T @ gram.T).T
        return reduced

    @classmethod
    def checked(cls, kept: Any, others: Any, d: int) -> Reduction:
        """What a file gave."""
        kept = whole_numbers(kept, "reduction_kept", "the number of a feature")
        if (
            others.shape != (d,)
            or not 0 < len(kept) < d
            or kept.min() < 0
            or kept.max() >= d
            or (np.diff(kept) <= 0).any()
            or others[kept].any()
        ):
            raise ValueError(f"the reduction does not go with {d} features")
        return cls(kept, others)

    @property
    def arrays(self) -> dict[str, Vector]:
        return {"reduction_kept": self.kept.astype(np.float64), "reduction_others": self.others}

    @property
    def notes(self) -> tuple[Note, ...]:
        d, own = len(self.others), len(self.kept)
        text = (
            f"the log has {d} features; with more than {WIDE} only the {own} that show most are tracked one by one, "
            f"and the other {d - own} together, as a conditional logit of the whole log compares them. Pool rare "
            "levels (min_count, --min-count) or leave columns out to have all of them tracked."
        )
        return (Note("many-features", "info", text, {"features": d, "tracked": own}),)


def lens_of(logs: Sequence[Log]) -> Lens:
    """How a log, in one piece or several, is tracked."""
    if logs[0].n_features <= WIDE:
        return Lens()
    contexts, offsets, chosen = _sample(logs)
    X = compact(contexts).astype(np.float64, copy=False)
    d = X.shape[1]
    squares = np.asarray(X.multiply(X).sum(axis=0) if is_sparse(X) else np.square(X).sum(axis=0), dtype=np.float64)
    shows, chosen_shows = shown_counts(X), shown_counts(X[chosen])
    size = np.sqrt(squares / np.maximum(shows, 1))
    weights = _logit(X, offsets, chosen, np.where(size > 0, size, 1.0))
    order = np.lexsort((np.arange(d), -np.abs(weights) * size, -(shows + _CHOSEN * chosen_shows)))
    kept = np.sort(order[: _TRACKED - 1])
    others = weights.copy()
    others[kept] = 0.0
    return Reduction(kept, others)


def _sample(logs: Sequence[Log]) -> tuple[Contexts, NDArray[np.int64], NDArray[np.int64]]:
    """Contexts, first rows and chosen rows of steps that the policy chose, evenly spread over the log."""
    kept: list[tuple[NDArray[np.int64], BehaviorLog, NDArray[np.int64]]] = []
    seen, total, stride = 0, 0, 1
    for number, part in chain.from_iterable(log.parts() for log in logs):
        if number < 0:
            continue
        steps = np.arange(-seen % stride, part.n_steps, stride)
        kept.append((steps + seen, part, steps))
        seen, total = seen + part.n_steps, total + len(steps)
        while total > _MOST_STEPS:
            stride *= 2
            kept = [(every[every % stride == 0], own, some[every % stride == 0]) for every, own, some in kept]
            total = sum(len(some) for _, _, some in kept)
        kept = [(every, _only(own, some), np.arange(len(some))) for every, own, some in kept if len(some)]
    parts = [part for _, part, _ in kept]
    counts = np.concatenate([np.diff(part.step_offsets) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    chosen = offsets[:-1] + np.concatenate([part.chosen for part in parts])
    return stacked([part.contexts for part in parts]), offsets, chosen


def _only(part: BehaviorLog, steps: NDArray[np.int64]) -> BehaviorLog:
    """Some steps of a part."""
    if len(steps) == part.n_steps:
        return part
    counts = np.diff(part.step_offsets)
    rows = np.flatnonzero(np.repeat(np.isin(np.arange(part.n_steps), steps), counts))
    return BehaviorLog(part.contexts[rows], np.append(0, counts[steps].cumsum()), part.chosen[steps], [0, len(steps)])


def _logit(X: Contexts, offsets: NDArray[np.int64], chosen: NDArray[np.int64], size: Vector) -> Vector:
    """Weights of a conditional logit with a ridge; choices that no weights tell apart have none."""
    starts, counts = offsets[:-1], np.diff(offsets)
    penalty = _RIDGE * size**2

    def shares(w: Vector) -> tuple[Vector, float]:
        scores = X @ w
        top = np.maximum.reduceat(scores, starts)
        e = np.exp(scores - np.repeat(top, counts))
        total = np.add.reduceat(e, starts)
        return e / np.repeat(total, counts), float((top + np.log(total) - scores[chosen]).sum())

    def loss(v: Vector) -> tuple[float, Vector]:
        w = v / size
        p, value = shares(w)
        p[chosen] -= 1.0
        return value + 0.5 * _RIDGE * float(v @ v), (p @ X + penalty * w) / size

    v: Vector = minimize(loss, np.zeros(len(size)), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    # A few Newton steps, so that the weights do not depend on how contexts are stored.
    for _ in range(4):
        p, _ = shares(v / size)

        def curve(u: Vector, p: Vector = p) -> Vector:
            y = X @ (u / size)
            mean = np.add.reduceat(p * y, starts)
            product: Vector = ((p * (y - np.repeat(mean, counts))) @ X) / size + _RIDGE * u
            return product

        hessian = LinearOperator((len(v), len(v)), matvec=curve, dtype=np.float64)
        step, _ = cg(hessian, loss(v)[1], rtol=1e-12, maxiter=1000)
        v = v - step
    return v / size
