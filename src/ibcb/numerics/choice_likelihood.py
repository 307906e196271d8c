"""The conditional logit (McFadden 1974): how likely the choices of a log are under one weight per feature.

At a step with candidates s_j, the decider takes c with probability exp(k <w, s_c>) / sum_j exp(k <w, s_j>). With the
leads D_j = k (s_j - s_c) of the other candidates, the negative log-likelihood of all choices is

    f(w) = sum_steps log(1 + sum_(j != c) exp(D_j w)),

which is convex. Only leads enter, so they are what is stored: nothing is left to subtract in the passes, and features
that all candidates of a step share (a user's, where items are chosen) drop out.

Two deciders need more. One that draws from its K best candidates need not take the best: the sum leaves out the K - 1
largest leads, so that c only has to be among the K best, and each of these is drawn with probability about 1 / K. One
that strays, in a share e of its M-candidate steps, takes any candidate (a wrong entry, an epsilon-greedy step):

    f(w) = sum_steps -log((1 - e) q(w) / K + e / M),     q(w) = 1 / (1 + sum of exp(D_j w) over the other j).

No step costs more than log(M / e), so that a few wrong ones do little harm. f is no longer convex, but at every w a
convex function touches it from above: what f is with each step's K - 1 best candidates fixed, and its log-loss weighted
by the probability that it did not stray. The derivatives given are those of that function. Its gradient is that of f;
its Hessian is positive semidefinite, and never below that of f.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.contexts import Contexts, sizes_of, step_counts, taken

#: of leads in float64: a block and what a pass makes of it stay in the processor's cache; not tuned finely
_BLOCK_BYTES = 1 << 21
#: exp of a score below this is finite, and so are sums of it: exp(709.7) is the largest double
_FINITE_EXP = 700.0


class Expansion(NamedTuple):
    """f with its first two derivatives at one point, in float64.

    ``excess`` is what the Hessian of the bound has over that of f; None where no step can stray, and it has none.
    """

    loss: float
    gradient: Vector
    hessian: Matrix
    excess: Matrix | None = None


class _Drawn(NamedTuple):
    """The softmax of some steps: log(1 + sum_j exp(D_j w)), the shares of the others, and of the chosen candidate."""

    losses: Vector
    others: Matrix
    chosen: Vector


class ChoiceLoss:
    """f of the module's docstring, for the choices of some steps.

    Parameters
    ----------
    contexts : Contexts of shape (rows, d)
    offsets : ndarray of shape (steps + 1,)
        Step t owns the rows offsets[t] to offsets[t + 1] - 1.
    chosen : ndarray of shape (steps,)
        Position of the chosen candidate inside its step.
    scale : float
        The k of the softmax.
    top_k : int
        The K best candidates any of which may be drawn; 1 for a decider that takes the best.
    stray : float
        The share e of steps that any candidate may be taken in, at least 0 and below 1.

    Leads are stored in the float type of the contexts and used in float64, a block at a time: f is then smooth to the
    last digits, which Newton's method needs, and a log in single precision takes no more memory than it must. A step
    with one candidate is chosen with probability 1 and contributes nothing.
    """

    def __init__(
        self,
        contexts: Contexts,
        offsets: NDArray[np.int64],
        chosen: NDArray[np.int64],
        scale: float = 1.0,
        *,
        top_k: int = 1,
        stray: float = 0.0,
    ) -> None:
        self.n_features = int(contexts.shape[1])
        self.top_k, self.stray = top_k, stray
        self._drawn_at: dict[str, Any] = {"w": None}
        self._blamed_at: tuple[Vector | None, list[tuple[Vector, Vector]]] = (None, [])
        blocks = list(_lead_blocks(contexts, offsets, chosen, scale))
        moving = np.zeros(self.n_features, dtype=bool)
        for D in blocks:
            moving |= D.any(axis=(1, 2))
        # f does not depend on the weight of a feature in which no candidates ever differ.
        self._moving: NDArray[np.int64] = np.flatnonzero(moving)
        self._blocks = blocks if moving.all() else [np.ascontiguousarray(D[moving]) for D in blocks]

    @property
    def empty(self) -> bool:
        """Whether no step has candidates that differ, so that f is constant."""
        return len(self._moving) == 0

    def plain(self) -> ChoiceLoss:
        """The same choices without allowances, which is convex; itself if it has none."""
        if self.top_k == 1 and self.stray == 0:
            return self
        return self._twin(1, 0.0)

    def with_stray(self, stray: float) -> ChoiceLoss:
        """The same choices with another share of steps that stray."""
        return self._twin(self.top_k, stray)

    def _twin(self, top_k: int, stray: float) -> ChoiceLoss:
        twin = copy.copy(self)
        twin.top_k, twin.stray, twin._blamed_at = top_k, stray, (None, [])
        return twin

    def __call__(self, w: Vector) -> float:
        """f at w."""
        return sum(float(np.add.reduce(losses)) for losses, _ in self._blamed(w))

    def expand(self, w: Vector) -> Expansion:
        """f at w, its gradient and Hessian: summed means and covariances of a lead drawn from each step's softmax."""
        d = len(self._moving)
        loss, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
        excess = np.zeros((d, d)) if self.stray else None
        for D, drawn, (losses, meant) in zip(self._doubles(), self._drawn(w), self._blamed(w), strict=True):
            p, of_chosen = drawn.others, drawn.chosen
            mean = np.einsum("djt,jt->dt", D, p)
            # Squares of centred leads rather than E[D D'] - E[D] E[D]', which cancels where a step is almost certain.
            spread = D - mean[:, None]
            if excess is not None:
                excess += (mean * (meant * (1 - meant))) @ mean.T
                p, of_chosen = p * meant, of_chosen * meant
            spread *= np.sqrt(p)
            loss += float(np.add.reduce(losses))
            gradient += mean.sum(axis=1) if excess is None else mean @ meant
            flat = spread.reshape(d, p.size)
            hessian += flat @ flat.T + (mean * of_chosen) @ mean.T
        if d < self.n_features:
            gradient, hessian = self._among_all(gradient), self._among_all(hessian)
            excess = None if excess is None else self._among_all(excess)
        return Expansion(loss, gradient, hessian, excess)

    def _among_all(self, values: Matrix) -> Matrix:
        """Values of the features that move, on one axis or two, with zeros for the others."""
        whole = np.zeros((self.n_features,) * values.ndim)
        places = [self._moving] * values.ndim
        whole[np.ix_(*places)] = values
        return whole

    def likelihoods(self, w: Vector) -> tuple[Vector, Vector]:
        """q(w) / K and 1 / M of every step with two candidates or more, by number of candidates, then in order."""
        meant, astray = [np.empty(0)], [np.empty(0)]
        for D, drawn in zip(self._blocks, self._drawn(w), strict=True):
            count = D.shape[1] + 1
            meant.append(drawn.chosen / min(self.top_k, count))
            astray.append(np.full(len(drawn.chosen), 1 / count))
        return np.concatenate(meant), np.concatenate(astray)

    def reach(self) -> Matrix:
        """A matrix B with max_j D_j w - min_j D_j w <= |B w| for every step and every w, of d columns.

        A step's scores lie within max_j |(D_j - c) w| of c w, for any c; here c is the mean of its candidates. With
        A = L L' the mean square of D_j - c, |(D_j - c) w| <= |L^-1 (D_j - c)| |L' w|, and B = 2 max|L^-1 (D_j - c)| L'.
        """
        d = len(self._moving)
        A, rows = np.zeros((d, d)), 0
        for centred in self._centred():
            A += centred @ centred.T
            rows += centred.shape[1]
        A /= rows
        # Any positive definite A will do; directions in which candidates hardly differ are kept from zero.
        A.flat[:: d + 1] += 1e-10 * np.trace(A) / d
        L = np.linalg.cholesky(A)
        longest = 0.0
        for centred in self._centred():
            longest = max(longest, float(np.linalg.norm(solve_triangular(L, centred, lower=True), axis=0).max()))
        B = np.zeros((d, self.n_features))
        B[:, self._moving] = 2 * longest * L.T
        return B

    def _doubles(self) -> Iterator[Matrix]:
        """The leads, block by block, in float64."""
        return (D.astype(np.float64, copy=False) for D in self._blocks)

    def _centred(self) -> Iterator[Matrix]:
        """Leads of all candidates, the chosen one's zeros included, about their step's mean; shape (d, candidates)."""
        for D in self._doubles():
            leads = np.concatenate([D, np.zeros_like(D[:, :1])], axis=1)
            yield (leads - leads.mean(axis=1, keepdims=True)).reshape(len(D), -1)

    def _scores(self, D: Matrix, w: Vector) -> Matrix:
        """Scores without the K - 1 best of each step, which need not lose to the chosen one."""
        d, others, steps = D.shape
        scores: Matrix = (w @ D.reshape(d, others * steps)).reshape(others, steps)
        free = min(self.top_k - 1, len(scores))
        if free:
            best = np.argpartition(-scores, free - 1, axis=0)[:free]
            scores[best, np.arange(scores.shape[1])] = -np.inf
        return scores

    def _blamed(self, w: Vector) -> list[tuple[Vector, Vector]]:
        """Every block's losses with straying allowed for, and the probability that each step did not stray (no numbers
        if none can); worked out once for a w that is asked about again.
        """
        if self._blamed_at[0] is not w:
            drawn = zip(self._blocks, self._drawn(w), strict=True)
            self._blamed_at = w, [self._blame(each, D.shape[1] + 1) for D, each in drawn]
        return self._blamed_at[1]

    def _blame(self, drawn: _Drawn, candidates: int) -> tuple[Vector, Vector]:
        best = min(self.top_k, candidates)
        if self.stray == 0:
            return drawn.losses + math.log(best) if best > 1 else drawn.losses, np.empty(0)
        meant = (1 - self.stray) / best * drawn.chosen
        total = meant + self.stray / candidates
        return -np.log(total), meant / total

    def _drawn(self, w: Vector) -> list[_Drawn]:
        """The softmax of every block's steps; worked out once for all twins for a w that is asked about again."""
        known = self._drawn_at
        if known["w"] is not w or known["top_k"] != self.top_k:
            moving = w if len(self._moving) == self.n_features else w[self._moving]
            known |= {"w": w, "top_k": self.top_k}
            known["drawn"] = [_drawn(self._scores(D, moving)) for D in self._doubles()]
        drawn: list[_Drawn] = known["drawn"]
        return drawn


def _lead_blocks(
    contexts: Contexts, offsets: NDArray[np.int64], chosen: NDArray[np.int64], scale: float
) -> Iterator[NDArray[Any]]:
    """Leads of runs of steps with equally many candidates, each of shape (d, candidates - 1, steps).

    Feature-major, so that a score is a sum of long vectors and not a short product per row; small enough that what a
    pass makes of a block stays in the processor's cache.
    """
    counts = step_counts(offsets)
    for count in sizes_of(counts):
        if count == 1:
            continue
        steps = np.flatnonzero(counts == count)
        length = max(16, _BLOCK_BYTES // (8 * contexts.shape[1] * count))
        for first in range(0, len(steps), length):
            block = steps[first : first + length]
            start, c = offsets[block], chosen[block]
            others = np.arange(count - 1)[:, None]
            others = others + (others >= c)
            leads = taken(contexts, (start + others).ravel()).reshape(count - 1, len(block), -1)
            leads -= taken(contexts, start + c)
            yield np.ascontiguousarray((scale * leads).astype(contexts.dtype, copy=False).transpose(2, 0, 1))


def _drawn(scores: Matrix) -> _Drawn:
    """Of scores of shape (candidates - 1, steps)."""
    if scores.max() < _FINITE_EXP:
        others = np.exp(scores)
        total = np.add.reduce(others, axis=0)
        chosen = 1 / (1.0 + total)
        others *= chosen
        return _Drawn(np.log1p(total), others, chosen)
    top = np.maximum(scores.max(axis=0), 0)
    losses = top + np.log(np.exp(-top) + np.exp(scores - top).sum(axis=0))
    return _Drawn(losses, np.exp(scores - losses), np.exp(-losses))
