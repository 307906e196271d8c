"""Live policies: they score candidate sets, choose from them, say how probable each choice is, and learn.

Most are around one ridge model of the rewards (Algorithm 1); one never changes, for deciders that do not learn, or
nobody knows how.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ibcb.log import BehaviorLog, is_log
from ibcb.log.array_checks import candidate_array
from ibcb.numerics.arrays import Matrix, Vector, lazy
from ibcb.numerics.checks import at_least_zero, finite_array, gram_matrix, positive, probability, whole
from ibcb.numerics.contexts import dense
from ibcb.numerics.ridge import Ridge, gram, ridge

Probabilities = NDArray[np.float64]
#: of `numpy.random.default_rng`
RandomState = int | np.random.Generator | None
Given = ArrayLike | None


@dataclass(frozen=True)
class Learning:
    """What has been learned so far, by ridge regression; it is never changed, `learn` gives the next one.

    Attributes
    ----------
    ridge : Ridge
        Of the contexts chosen so far, measured from its origin.
    moment : ndarray of shape (d,)
        b = S'R.
    """

    ridge: Ridge
    moment: Vector

    @classmethod
    def begin(
        cls, l2: float | Vector, gram: Matrix, moment: Vector | None = None, origin: Vector | None = None
    ) -> Learning:
        """From S'S and S'R: zeros where nothing has been learned."""
        return cls(ridge(gram, l2, origin), np.zeros(len(gram)) if moment is None else moment)

    @property
    def gram(self) -> Matrix:
        """Phi = S'S, shape (d, d)."""
        return self.ridge.phi

    @lazy
    def coef(self) -> Vector:
        """The policy: theta = Psi^-1 b, shape (d,)."""
        return self.ridge.solve(self.moment)

    def learn(self, rows: Matrix, rewards: Vector, weights: Vector | None = None) -> Learning:
        """After a batch of chosen contexts, shape (B, d), and their rewards; each counts ``weights`` times, or once."""
        S = rows if self.ridge.origin is None else rows - self.ridge.origin
        if weights is None:
            phi, moment = gram(S), S.T @ rewards
        else:
            phi, moment = (S.T * weights) @ S, S.T @ (weights * rewards)
        return Learning(ridge(self.gram + phi, self.ridge.penalty, self.ridge.origin), self.moment + moment)


class Policy(ABC):
    """A linear policy that draws its choices from its propensities; subclasses say which those are.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        The policy's weights theta.
    """

    coef_: Vector
    _rng: np.random.Generator

    @property
    def n_features(self) -> int:
        return len(self.coef_)

    @abstractmethod
    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Learn from a batch: the chosen contexts, shape (B, d), and their rewards, shape (B,)."""

    def decision_function(self, log: BehaviorLog | ArrayLike) -> NDArray[Any]:
        """Expected reward of every candidate, without exploration."""
        contexts = log.read().contexts if is_log(log) else as_candidate_sets(log, self.n_features)
        return contexts @ self.coef_

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        """Score of every candidate with exploration: shape (..., M, d) to (..., M)."""
        return self.decision_function(candidates)

    @abstractmethod
    def _chances(self, scores: NDArray[Any]) -> Probabilities:
        """How probable candidates with these scores are: shape (..., M) to the same."""

    def average(self, candidates: NDArray[Any], rule: Callable[[NDArray[Any]], Probabilities]) -> Probabilities:
        """Mean of rule(scores) over what the scores may be: shape (..., M, d) to (..., M)."""
        return rule(self.scores(candidates))

    def propensities(self, candidates: ArrayLike) -> Probabilities:
        """Probability that `act` takes each candidate, exploration included: (M, d) to (M,), (B, M, d) to (B, M)."""
        return self.average(as_candidate_sets(candidates, self.n_features), self._chances)

    def act(self, candidates: ArrayLike, *, explore: bool = True) -> Any:
        """Choose: an int for one candidate set (M, d), an array (B,) for a batch (B, M, d).

        Without exploration the best is taken, of equals the first.
        """
        if not explore:
            contexts = as_candidate_sets(candidates, self.n_features)
            return as_choice(self.decision_function(contexts).argmax(axis=-1))
        return self._drawn(self.propensities(candidates))

    def _drawn(self, probabilities: Probabilities) -> Any:
        return as_choice(draw(probabilities, self._rng.random(probabilities.shape[:-1])))


class FixedPolicy(Policy):
    """Fixed weights: a draw from the softmax of <coef, s> / temperature, and with probability epsilon any candidate.

    Parameters
    ----------
    coef : array of shape (d,)
        The weights, which `update` leaves as they are.
    temperature : float
    epsilon : float
        Share of choices made at random.
    random_state : int, Generator or None

    Examples
    --------
    >>> import numpy as np
    >>> policy = FixedPolicy([1.0, 0.0], temperature=0.5, epsilon=0.1, random_state=0)
    >>> policy.propensities(np.eye(2)).round(3)
    array([0.843, 0.157])
    """

    def __init__(
        self, coef: ArrayLike, *, temperature: float = 1.0, epsilon: float = 0.0, random_state: RandomState = None
    ) -> None:
        weights = finite_array(coef, "coef").copy()
        if weights.ndim != 1 or not len(weights):
            raise ValueError(f"coef is {weights} of shape {weights.shape}; give finite weights, one for each feature.")
        self.coef_ = weights
        self.temperature = positive("temperature", temperature, "scores are divided by it")
        self.epsilon = probability("epsilon", epsilon, "it is the share of choices made at random")
        self._rng = np.random.default_rng(random_state)

    def __repr__(self) -> str:
        how = f"temperature={self.temperature:g}, epsilon={self.epsilon:g}"
        return f"{type(self).__name__}({self.n_features} weights, {how})"

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Do nothing: this policy does not learn. It takes batches so that any policy can stand in its place."""

    def _chances(self, scores: NDArray[Any]) -> Probabilities:
        return with_random_share(np.asarray(softmax(scores / self.temperature, axis=-1)), self.epsilon)


class Learned(TypedDict, total=False):
    """What a live policy around a ridge regression goes on from, see `SBUCB`."""

    l2: ArrayLike
    gram: Given
    moment: Given
    origin: Given


class RidgePolicy(Policy):
    """One shared ridge model: Phi = S'S, b = S'R and theta = Psi^-1 b, kept as ``gram_``, ``moment_`` and ``coef_``.

    With an ``origin`` the contexts S are measured from there.
    """

    #: parameters beside l2 that are shown
    _shown: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, n_features: int, *, l2: ArrayLike = 1.0, gram: Given = None, moment: Given = None, origin: Given = None
    ) -> None:
        d = whole("n_features", n_features, 1, "the length of a context")
        self.l2 = _penalty(l2, d)
        self.origin = np.zeros(d) if origin is None else _vector("origin", origin, d, "a point among the contexts")
        if (gram is None) != (moment is None):
            missing = "gram" if gram is None else "moment"
            raise ValueError(f"{missing} is missing; give both S'S as gram= and S'R as moment=, or neither.")
        b = np.zeros(d) if moment is None else _vector("moment", moment, d, "S'R")
        phi = np.zeros((d, d)) if gram is None else gram_matrix("gram", gram, d).copy()
        self._adopt(Learning.begin(self.l2, phi, b, self.origin if self.origin.any() else None))

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

    def pseudo_data(self) -> tuple[Matrix, Vector]:
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
        #: policy parameters theta_n, shape (d,); S'S and S'R of what has been learned
        self.coef_, self.gram_, self.moment_ = learning.coef, learning.gram, learning.moment

    def decision_function(self, log: BehaviorLog | ArrayLike) -> NDArray[Any]:
        """Expected reward of every candidate, without exploration."""
        scores = super().decision_function(log)
        return scores - self.origin @ self.coef_ if self.origin.any() else scores


class IndexPolicy(RidgePolicy):
    """Takes the candidate with the largest score, exploration included; how much there is of it is ``alpha``."""

    _shown = ("alpha",)

    def __init__(self, n_features: int, *, alpha: float = 0.4, **learned: Unpack[Learned]) -> None:
        self.alpha = at_least_zero("alpha", alpha, "0 never explores")
        super().__init__(n_features, **learned)

    def _chances(self, scores: NDArray[Any]) -> Probabilities:
        return best(scores)

    def act(self, candidates: ArrayLike, *, explore: bool = True) -> Any:
        if not explore:
            return super().act(candidates, explore=False)
        return as_choice(self.scores(as_candidate_sets(candidates, self.n_features)).argmax(axis=-1))


def as_candidate_sets(candidates: Any, d: int) -> NDArray[Any]:
    """Candidate sets of d features: shape (M, d), or (B, M, d)."""
    array = dense(candidate_array(candidates))
    if array.shape[-1] != d:
        raise ValueError(f"the candidates have {array.shape[-1]} features but the expert was made for {d} features.")
    return array


def as_choice(chosen: NDArray[np.int64]) -> Any:
    """An int for one candidate set, an array for several."""
    return int(chosen) if chosen.ndim == 0 else chosen


def best(scores: NDArray[Any]) -> Probabilities:
    """1 for the best candidate, of equals the first, and 0 for the others. Shape (..., M) to (..., M)."""
    probabilities = np.zeros(scores.shape)
    np.put_along_axis(probabilities, scores.argmax(axis=-1)[..., None], 1.0, axis=-1)
    return probabilities


def with_random_share(probabilities: Probabilities, epsilon: float) -> Probabilities:
    """With probability epsilon any candidate instead, all alike: (1 - epsilon) p + epsilon / M."""
    mixed: Probabilities = (1.0 - epsilon) * probabilities + epsilon / probabilities.shape[-1]
    return mixed


def draw(probabilities: Probabilities, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Candidate at which the cumulative probability passes each uniform number: equal uniforms, equal luck."""
    cumulative = np.cumsum(probabilities, axis=-1)
    # Against the total, which may miss 1 by rounding: the last candidate with weight catches the rest.
    threshold = np.asarray(uniforms)[..., None] * cumulative[..., -1:]
    picked: NDArray[np.int64] = np.argmax(cumulative > threshold, axis=-1)
    return picked


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
