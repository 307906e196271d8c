"""Epsilon-greedy: the best candidate by <policy, s>, and now and then any at random."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders.policy import as_candidate_sets, best, with_random_share
from ibcb.deciders.ridge_policy import RidgePolicy
from ibcb.numerics.checks import at_least_zero, probability, whole

__all__ = ["EGreedy"]


class EGreedy(RidgePolicy):
    """Batched epsilon-greedy: the largest <theta, s>, and with probability epsilon any candidate, the best included.

    Parameters
    ----------
    n_features, l2, gram, moment, origin
        As of `SBUCB`.
    epsilon : float
        Share of choices made at random.
    decay : float
        How fast that share falls: after k updates it is epsilon / (k + 1)^decay, so that 0 keeps it.
    n_updates : int
        Updates before now, of a policy that is given what it has learned.
    random_state : int, Generator or None

    Attributes
    ----------
    epsilon_ : float
        The share now.
    n_updates_ : int
        Updates so far.

    Examples
    --------
    >>> import numpy as np
    >>> policy = EGreedy(2, epsilon=0.2, decay=1.0, random_state=0)
    >>> policy.update(np.eye(2), [1.0, 0.0])
    >>> policy.propensities(np.eye(2))
    array([0.95, 0.05])
    """

    _shown = ("epsilon", "decay")

    def __init__(
        self,
        n_features: int,
        *,
        epsilon: float = 0.1,
        decay: float = 0.0,
        l2: float | ArrayLike = 1.0,
        random_state: int | np.random.Generator | None = None,
        gram: ArrayLike | None = None,
        moment: ArrayLike | None = None,
        origin: ArrayLike | None = None,
        n_updates: int = 0,
    ) -> None:
        self.epsilon = probability("epsilon", epsilon, "it is the share of choices made at random")
        self.decay = at_least_zero("decay", decay, "0 keeps epsilon as it is")
        self.n_updates_ = whole("n_updates", n_updates, 0, "it is a number of updates")
        self._rng = np.random.default_rng(random_state)
        super().__init__(n_features, l2=l2, gram=gram, moment=moment, origin=origin)

    @property
    def epsilon_(self) -> float:
        return float(self.epsilon / (self.n_updates_ + 1) ** self.decay)

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        super().update(contexts, rewards)
        self.n_updates_ += 1

    def propensities(self, candidates: ArrayLike) -> NDArray[np.float64]:
        scores = self.decision_function(as_candidate_sets(candidates, self.n_features))
        return with_random_share(best(scores), self.epsilon_)
