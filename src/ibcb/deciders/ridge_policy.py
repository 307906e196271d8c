"""Live policies around one ridge model of the rewards (Algorithm 1): they act on candidate sets, and learn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders.learning import Learning
from ibcb.deciders.policy import Policy, as_candidate_sets, as_choice, best
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.checks import at_least_zero, finite_array, gram_matrix, positive, whole


class RidgePolicy(Policy):
    """One shared ridge model: Phi = S'S, b = S'R and theta = Psi^-1 b, kept as ``gram_``, ``moment_`` and ``coef_``.

    With an ``origin`` the contexts S are measured from there.
    """

    #: parameters beside l2 that are shown
    _shown: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        n_features: int,
        *,
        l2: float | ArrayLike,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
        origin: ArrayLike | None = None,
    ) -> None:
        d = whole("n_features", n_features, 1, "the length of a context")
        self.l2 = _penalty(l2, d)
        self.origin = np.zeros(d) if origin is None else _vector("origin", origin, d, "a point among the contexts")
        start = _state(gram, moment, d)
        self._adopt(Learning.begin(self.l2, *start, self.origin if self.origin.any() else None))

    def __repr__(self) -> str:
        own = "".join(f"{name}={getattr(self, name):g}, " for name in self._shown)
        l2 = f"{self.l2:g}" if isinstance(self.l2, float) else f"{self.l2.min():g} to {self.l2.max():g}"
        return f"{type(self).__name__}(n_features={self.n_features}, {own}l2={l2})"

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Learn from a batch: the chosen contexts, shape (B, d), and their rewards, shape (B,)."""
        S, R = finite_array(contexts, "contexts"), finite_array(rewards, "rewards")
        if S.ndim != 2 or S.shape[1] != self.n_features or R.shape != (len(S),):
            raise ValueError(
                f"update got contexts of shape {S.shape} and rewards of shape {R.shape}; expected "
                f"(B, {self.n_features}) and (B,)."
            )
        self._adopt(self._learning.learn(S, R))

    def pseudo_data(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """At most d contexts S and rewards R that teach what this policy has learned: S'S = gram_, S'R = moment_.

        Any other ridge model with the same l2 is in the same state after learning from them; S is measured from the
        origin.

        Returns
        -------
        contexts : ndarray of shape (k, d)
        rewards : ndarray of shape (k,)
        """
        # S = sqrt(w) V' with gram_ = V diag(w) V', in the directions that have been seen.
        w, V = np.linalg.eigh(self.gram_)
        seen = w > len(w) * np.finfo(np.float64).eps * w[-1]
        root = np.sqrt(w[seen])
        return root[:, None] * V.T[seen], V.T[seen] @ self.moment_ / root

    def _adopt(self, learning: Learning) -> None:
        """Go on with what has been learned."""
        self._learning = learning
        #: policy parameters theta_n, shape (d,)
        self.coef_ = learning.coef

    @property
    def gram_(self) -> Matrix:
        """Phi = S'S of what has been learned, shape (d, d)."""
        return self._learning.gram

    @property
    def moment_(self) -> Vector:
        """b = S'R, shape (d,)."""
        return self._learning.moment

    def decision_function(self, log: BehaviorLog | ArrayLike) -> NDArray[Any]:
        """Expected reward of every candidate, without exploration."""
        scores = super().decision_function(log)
        return scores - self.origin @ self.coef_ if self.origin.any() else scores


class IndexPolicy(RidgePolicy):
    """Takes the candidate with the largest score, exploration included; how much there is of it is ``alpha``."""

    _shown = ("alpha",)

    def __init__(self, n_features: int, *, alpha: float, **learned: Any) -> None:
        self.alpha = at_least_zero("alpha", alpha, "0 never explores")
        super().__init__(n_features, **learned)

    @abstractmethod
    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        """Score of every candidate with exploration: shape (..., M, d) to (..., M)."""

    def average(
        self, candidates: NDArray[Any], rule: Callable[[NDArray[Any]], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Mean of rule(scores) over what the scores may be: shape (..., M, d) to (..., M)."""
        return rule(self.scores(candidates))

    def propensities(self, candidates: ArrayLike) -> NDArray[np.float64]:
        return self.average(as_candidate_sets(candidates, self.n_features), best)

    def act(self, candidates: ArrayLike, *, explore: bool = True) -> Any:
        if not explore:
            return super().act(candidates, explore=False)
        return as_choice(self.scores(as_candidate_sets(candidates, self.n_features)).argmax(axis=-1))


def _penalty(l2: Any, d: int) -> float | Vector:
    """l2 as one number, or one for each feature."""
    why = "without it Psi has no inverse before the first update"
    if np.ndim(l2) == 0:
        return positive("l2", l2, why)
    penalties = _vector("l2", l2, d, "a ridge parameter for each feature")
    for place in np.flatnonzero(penalties <= 0)[:1].tolist():
        raise ValueError(f"l2[{place}]={penalties[place]!r} must be above 0: {why}.")
    return penalties


def _vector(name: str, values: Any, d: int, what: str) -> Vector:
    rule = f"it must be {what}, {d} finite numbers"
    vector = finite_array(values, name, rule)
    if vector.shape != (d,):
        raise ValueError(f"{name} is {vector} of shape {vector.shape}; {rule}.")
    return vector.copy()


def _state(gram: Any, moment: Any, d: int) -> tuple[NDArray[np.float64], Vector]:
    """What an expert starts with: the given S'S and S'R, or nothing."""
    if gram is None and moment is None:
        return np.zeros((d, d)), np.zeros(d)
    if gram is None or moment is None:
        missing = "gram" if gram is None else "moment"
        raise ValueError(f"{missing} is missing; give both S'S as gram= and S'R as moment=, or neither.")
    b = _vector("moment", moment, d, "S'R")
    return gram_matrix("gram", gram, d).copy(), b
