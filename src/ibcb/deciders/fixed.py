"""A policy whose weights never change: a live policy for deciders that do not learn, or nobody knows how."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ibcb.deciders.policy import Policy, as_candidate_sets, with_random_share
from ibcb.numerics.checks import finite_array, positive, probability


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
        self,
        coef: ArrayLike,
        *,
        temperature: float = 1.0,
        epsilon: float = 0.0,
        random_state: int | np.random.Generator | None = None,
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

    def propensities(self, candidates: ArrayLike) -> NDArray[np.float64]:
        scores = self.decision_function(as_candidate_sets(candidates, self.n_features))
        return with_random_share(np.asarray(softmax(scores / self.temperature, axis=-1)), self.epsilon)
