"""Softmax (Boltzmann) exploration: candidates are drawn with probability proportional to exp(<policy, s> / T)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ibcb.deciders.policy import as_candidate_sets
from ibcb.deciders.ridge_policy import RidgePolicy
from ibcb.numerics.checks import positive

__all__ = ["Softmax"]


class Softmax(RidgePolicy):
    """Batched Boltzmann exploration: a draw with probability proportional to exp(<theta, s> / temperature).

    Parameters
    ----------
    n_features, l2, gram, moment, origin
        As of `SBUCB`.
    temperature : float
        In units of rewards: candidates whose expected rewards differ by less are drawn about as often.
    random_state : int, Generator or None

    Examples
    --------
    >>> import numpy as np
    >>> policy = Softmax(2, temperature=0.5, random_state=0)
    >>> policy.update(np.eye(2), [1.0, 0.0])
    >>> policy.propensities(np.eye(2)).round(3)
    array([0.731, 0.269])
    """

    _shown = ("temperature",)

    def __init__(
        self,
        n_features: int,
        *,
        temperature: float = 1.0,
        l2: float | ArrayLike = 1.0,
        random_state: int | np.random.Generator | None = None,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
        origin: ArrayLike | None = None,
    ) -> None:
        self.temperature = positive("temperature", temperature, "scores are divided by it")
        self._rng = np.random.default_rng(random_state)
        super().__init__(n_features, l2=l2, gram=gram, moment=moment, origin=origin)

    def propensities(self, candidates: ArrayLike) -> NDArray[np.float64]:
        scores = self.decision_function(as_candidate_sets(candidates, self.n_features))
        return np.asarray(softmax(scores / self.temperature, axis=-1), dtype=np.float64)
