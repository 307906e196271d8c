"""Epsilon-greedy: the best candidate by <policy, s>, or any at random with probability epsilon.

A choice that was meant bounds the direction of the policy, and tells nothing of its length. It is read as that of a
conditional logit with long weights, in which a share of the steps strays; epsilon is told by what is believed of the
policy once the episode was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders.kind import RANDOM_SHARES, Believed, Family, Motions, Observed, Scales, Words, grid
from ibcb.deciders.logit_kind import LogitKind
from ibcb.deciders.policy import as_candidate_sets, best, with_random_share
from ibcb.deciders.ridge_policy import RidgePolicy
from ibcb.engine import Block
from ibcb.numerics.averages import best_of_draws
from ibcb.numerics.checks import at_least_zero, probability, whole
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Ridge

__all__ = ["EGreedy", "EGreedyKind"]

Vector = NDArray[np.float64]

_MOVES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
#: draws from what is believed of the policy, for the share of choices at random; not tuned finely
_DRAWS = 64


@dataclass(frozen=True)
class EGreedyKind(LogitKind):
    """The kind."""

    name = "egreedy"
    words = Words(
        "the decider learns, takes the best, and now and then any candidate at random",
        "epsilon-greedy: takes the best, now and then any at random",
        exploration="It takes a candidate at random now and then: a choice that is not the best expected one is that, "
        "or noise.",
        misfit="Choices at random have no explanation",
    )
    # Weights are as long as choices without error can tell apart.
    scales = Scales(policy=30.0, rewards=3.0, first_policy=0.3)
    # As of SoftmaxKind, at that length.
    motions = Motions(
        (
            Family("settling", grid(_MOVES), early=(30.0,), few=grid((3.0, 30.0))),
            Family("restless", grid([q / 10 for q in _MOVES]), early=(3.0,), few=grid((0.3, 3.0))),
            Family("still", grid((0.0,)), early=(0.0,), few=grid((0.0,))),
            Family(
                "learner", grid((0.3, 1.0, 3.0, 10.0, 30.0), (0.0, 0.3)), early=(3.0, 0.3), few=grid((3.0,), (0.3,))
            ),
        ),
        fading=0.8,
    )
    learns = True
    explores_at_random = True
    most_random = 1.0

    def observe(self, block: Block, before: Ridge, believed: Believed, stray: float) -> Observed:
        site, strayed = self._site(block, believed.best, stray)
        posterior, _ = believed.best.given(site)
        meant = self.propensities(block, before, posterior, _DRAWS)[block.chosen_rows]
        shares, chance = np.array(RANDOM_SHARES), 1.0 / np.diff(block.offsets)
        likely = np.outer(meant, 1 - shares) + np.outer(chance, shares)
        return Observed((site,) * len(believed.leaders), strayed, np.log(likely).sum(axis=0))

    def propensities(self, block: Block, before: Ridge, believed: Beliefs, draws: int, *, scale: float = 0.0) -> Vector:
        X, mean, covariance = self.drawn(block, before, believed)
        return best_of_draws(X, block.offsets, mean, covariance, draws)

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        scores: NDArray[Any] = contexts @ p.astype(contexts.dtype)
        return scores


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
