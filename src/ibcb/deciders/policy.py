"""Live policies: they score candidate sets, choose from them, and say how probable each choice is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.log import BehaviorLog, is_log
from ibcb.log.array_checks import candidate_array
from ibcb.numerics.arrays import Vector
from ibcb.numerics.contexts import dense


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

    @abstractmethod
    def propensities(self, candidates: ArrayLike) -> NDArray[np.float64]:
        """Probability that `act` takes each candidate, exploration included: (M, d) to (M,), (B, M, d) to (B, M)."""

    def act(self, candidates: ArrayLike, *, explore: bool = True) -> Any:
        """Choose: an int for one candidate set (M, d), an array (B,) for a batch (B, M, d).

        Without exploration the best is taken, of equals the first.
        """
        if not explore:
            contexts = as_candidate_sets(candidates, self.n_features)
            return as_choice(self.decision_function(contexts).argmax(axis=-1))
        probabilities = self.propensities(candidates)
        return as_choice(draw(probabilities, self._rng.random(probabilities.shape[:-1])))


def as_candidate_sets(candidates: Any, d: int) -> NDArray[Any]:
    """Candidate sets of d features: shape (M, d), or (B, M, d)."""
    array = dense(candidate_array(candidates))
    if array.shape[-1] != d:
        raise ValueError(f"the candidates have {array.shape[-1]} features but the expert was made for {d} features.")
    return array


def as_choice(chosen: NDArray[np.int64]) -> Any:
    """An int for one candidate set, an array for several."""
    return int(chosen) if chosen.ndim == 0 else chosen


def best(scores: NDArray[Any]) -> NDArray[np.float64]:
    """1 for the best candidate, of equals the first, and 0 for the others. Shape (..., M) to (..., M)."""
    probabilities = np.zeros(scores.shape)
    np.put_along_axis(probabilities, scores.argmax(axis=-1)[..., None], 1.0, axis=-1)
    return probabilities


def with_random_share(probabilities: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """With probability epsilon any candidate instead, all alike: (1 - epsilon) p + epsilon / M."""
    mixed: NDArray[np.float64] = (1.0 - epsilon) * probabilities + epsilon / probabilities.shape[-1]
    return mixed


def draw(probabilities: NDArray[np.float64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Candidate at which the cumulative probability passes each uniform number: equal uniforms, equal luck."""
    cumulative = np.cumsum(probabilities, axis=-1)
    # Against the total, which may miss 1 by rounding: the last candidate with weight catches the rest.
    threshold = np.asarray(uniforms)[..., None] * cumulative[..., -1:]
    picked: NDArray[np.int64] = np.argmax(cumulative > threshold, axis=-1)
    return picked
