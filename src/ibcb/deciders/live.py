"""The deciders of the paper (Algorithm 1): batched UCB, batched Thompson sampling, and top-k fairness around either.

All share one linear model of the rewards, updated by ridge regression after each batch. They are live policies too:
``act`` on candidate sets, ``update`` with the contexts chosen and the rewards seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from ibcb.log import BehaviorLog
from ibcb.log.arrays import candidate_array
from ibcb.numerics.checks import at_least_zero, gram_matrix, one_of, positive, whole
from ibcb.numerics.ridge import gram, ridge

__all__ = ["SBTS", "SBUCB", "TopK", "draw", "top_k_softmax"]

Vector = NDArray[np.float64]

DRAWS = ("step", "episode")


class _Expert:
    """One shared ridge model: Phi = S'S, b = S'R and theta = Psi^-1 b, kept as ``gram_``, ``moment_`` and ``coef_``."""

    def __init__(
        self,
        n_features: int,
        *,
        alpha: float,
        l2: float,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
    ) -> None:
        d = whole("n_features", n_features, 1, "the length of a context")
        self.alpha = at_least_zero("alpha", alpha, "0 never explores")
        self.l2 = positive("l2", l2, "without it Psi has no inverse before the first update")
        self.gram_, self.moment_ = _state(gram, moment, d)
        self._refit()

    @property
    def n_features(self) -> int:
        return len(self.moment_)

    def __repr__(self) -> str:
        drawn = f", draws={self.draws!r}" if isinstance(self, SBTS) else ""
        return f"{type(self).__name__}(n_features={self.n_features}, alpha={self.alpha:g}, l2={self.l2:g}{drawn})"

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Learn from a batch: the chosen contexts, shape (B, d), and their rewards, shape (B,)."""
        S = np.asarray(contexts, dtype=np.float64)
        R = np.asarray(rewards, dtype=np.float64)
        if S.ndim != 2 or S.shape[1] != self.n_features or R.shape != (len(S),):
            raise ValueError(
                f"update got contexts of shape {S.shape} and rewards of shape {R.shape}; expected "
                f"(B, {self.n_features}) and (B,)."
            )
        for what, values in (("contexts", S), ("rewards", R)):
            if not np.isfinite(values).all():
                place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
                raise ValueError(f"update: {what}{list(place)} is {values[place]}; they must be finite.")
        before = self.gram_, self.moment_
        self.gram_, self.moment_ = self.gram_ + gram(S), self.moment_ + S.T @ R
        try:
            self._refit()
        except ValueError:
            self.gram_, self.moment_ = before
            raise

    def pseudo_data(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """At most d contexts S and rewards R that teach what this policy has learned: S'S = gram_, S'R = moment_.

        Any other ridge model with the same l2 is in the same state after learning from them.

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

    def _refit(self) -> None:
        self._ridge = ridge(self.gram_, self.l2)
        #: policy parameters theta_n, shape (d,)
        self.coef_ = self._ridge.solve(self.moment_)

    def decision_function(self, log: BehaviorLog | ArrayLike) -> NDArray[Any]:
        """Expected reward of every candidate, without exploration."""
        contexts = log.contexts if isinstance(log, BehaviorLog) else np.asarray(log)
        scores: NDArray[Any] = contexts @ self.coef_
        return scores

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        """Score of every candidate with exploration: shape (..., M, d) to (..., M)."""
        raise NotImplementedError

    def act(self, candidates: ArrayLike, *, explore: bool = True) -> Any:
        """Choose: an int for one candidate set (M, d), an array (B,) for a batch (B, M, d)."""
        contexts = _candidates(candidates, self.n_features)
        scores = self.scores(contexts) if explore else self.decision_function(contexts)
        return _unwrap(scores.argmax(axis=-1))


class SBUCB(_Expert):
    """Batched UCB: the largest <theta, s> + alpha H(s).

    Parameters
    ----------
    n_features : int
    alpha : float
        Exploration weight.
    l2 : float
        Ridge parameter lambda.
    gram, moment : arrays of shape (d, d) and (d,), optional
        S'S and S'R of what has been learned already; without them nothing has.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> policy = SBUCB(3, alpha=0.4, l2=0.3)
    >>> candidates = rng.normal(size=(100, 5, 3))
    >>> chosen = candidates[np.arange(100), policy.act(candidates)]
    >>> policy.update(chosen, chosen @ [1.0, 0.0, -1.0])
    >>> policy.act(candidates[0])
    2
    """

    def __init__(
        self,
        n_features: int,
        *,
        alpha: float = 0.4,
        l2: float = 1.0,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
    ) -> None:
        super().__init__(n_features, alpha=alpha, l2=l2, gram=gram, moment=moment)

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        widths = self._ridge.widths(candidates.reshape(-1, self.n_features))
        total: NDArray[Any] = candidates @ self.coef_ + self.alpha * widths.reshape(candidates.shape[:-1])
        return total


class SBTS(_Expert):
    """Batched Thompson sampling: the largest <theta~, s> with theta~ drawn from N(theta, alpha^2 Psi^-1).

    Parameters
    ----------
    n_features, alpha, l2, gram, moment
        As of `SBUCB`.
    draws : {"step", "episode"}
        A fresh theta~ at every step, or one after every update that serves until the next.
    random_state : int, Generator or None
    """

    def __init__(
        self,
        n_features: int,
        *,
        alpha: float = 0.4,
        l2: float = 1.0,
        draws: str = "step",
        random_state: int | np.random.Generator | None = None,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
    ) -> None:
        self.draws = one_of("draws", draws, DRAWS)
        self._rng = np.random.default_rng(random_state)
        super().__init__(n_features, alpha=alpha, l2=l2, gram=gram, moment=moment)

    def _refit(self) -> None:
        super()._refit()
        if self.draws == "episode":
            self._drawn = self._draw(1)[0]

    def _draw(self, count: int) -> NDArray[np.float64]:
        """theta + alpha L^-T z, whose covariance is alpha^2 Psi^-1. Shape (count, d)."""
        z = self._rng.standard_normal((count, self.n_features))
        spread = solve_triangular(self._ridge.cholesky, z.T, lower=True, trans="T", check_finite=False)
        drawn: NDArray[np.float64] = self.coef_ + self.alpha * spread.T
        return drawn

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        if self.draws == "episode":
            return np.asarray(candidates @ self._drawn)
        drawn = self._draw(1 if candidates.ndim == 2 else len(candidates))
        if candidates.ndim == 2:
            return np.asarray(candidates @ drawn[0])
        return np.asarray((candidates @ drawn[:, :, None])[:, :, 0])


class TopK:
    """Fairness around an expert: draw from the softmax of its scores, cut to the k best and renormalised.

    Parameters
    ----------
    expert : SBUCB or SBTS
    k : int
        How many of the best candidates can be drawn.
    random_state : int, Generator or None
    """

    def __init__(self, expert: SBUCB | SBTS, k: int, *, random_state: int | np.random.Generator | None = None) -> None:
        if not isinstance(expert, (SBUCB, SBTS)):
            raise TypeError(f"TopK goes around an SBUCB or SBTS expert; got {expert!r}.")
        self.expert = expert
        self.k = whole("k", k, 1, "the number of candidates that can be drawn")
        self._rng = np.random.default_rng(random_state)

    def __repr__(self) -> str:
        return f"TopK({self.expert!r}, k={self.k})"

    @property
    def coef_(self) -> Vector:
        return self.expert.coef_

    @property
    def n_features(self) -> int:
        return self.expert.n_features

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Learn from a batch, as the expert inside does."""
        self.expert.update(contexts, rewards)

    def decision_function(self, log: BehaviorLog | ArrayLike) -> NDArray[Any]:
        """Expected reward of every candidate, without exploration."""
        return self.expert.decision_function(log)

    def act(self, candidates: ArrayLike, *, explore: bool = True) -> Any:
        """Draw: an int for one candidate set (M, d), an array (B,) for a batch (B, M, d)."""
        contexts = _candidates(candidates, self.n_features)
        scores = self.expert.scores(contexts) if explore else self.decision_function(contexts)
        probabilities = top_k_softmax(scores, self.k)
        return _unwrap(draw(probabilities, self._rng.random(probabilities.shape[:-1])))


def top_k_softmax(scores: NDArray[Any], k: int) -> NDArray[np.float64]:
    """Softmax over the last axis, cut to the k largest and renormalised; equals go to the earlier candidate."""
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :k]
    best = np.take_along_axis(scores, order, axis=-1)
    weights = np.exp(best - best[..., :1])
    probabilities = np.zeros(scores.shape)
    np.put_along_axis(probabilities, order, weights / weights.sum(axis=-1, keepdims=True), axis=-1)
    return probabilities


def draw(probabilities: NDArray[np.float64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Candidate at which the cumulative probability passes each uniform number: equal uniforms, equal luck."""
    cumulative = np.cumsum(probabilities, axis=-1)
    # Against the total, which may miss 1 by rounding: the last candidate with weight catches the rest.
    threshold = np.asarray(uniforms)[..., None] * cumulative[..., -1:]
    picked: NDArray[np.int64] = np.argmax(cumulative > threshold, axis=-1)
    return picked


def _state(gram: Any, moment: Any, d: int) -> tuple[NDArray[np.float64], Vector]:
    """What an expert starts with: the given S'S and S'R, or nothing."""
    if gram is None and moment is None:
        return np.zeros((d, d)), np.zeros(d)
    if gram is None or moment is None:
        missing = "gram" if gram is None else "moment"
        raise ValueError(f"{missing} is missing; give both S'S as gram= and S'R as moment=, or neither.")
    try:
        b = np.array(moment, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"moment={moment!r} is not a vector; it must be S'R, {d} numbers.") from None
    if b.shape != (d,) or not np.isfinite(b).all():
        raise ValueError(f"moment is {b} of shape {b.shape}; it must be S'R, {d} finite numbers.")
    return gram_matrix("gram", gram, d).copy(), b


def _candidates(candidates: Any, d: int) -> NDArray[Any]:
    array = candidate_array(candidates)
    if array.shape[-1] != d:
        raise ValueError(f"the candidates have {array.shape[-1]} features but the expert was made for {d} features.")
    return array


def _unwrap(chosen: NDArray[np.int64]) -> Any:
    return int(chosen) if chosen.ndim == 0 else chosen
