"""Epsilon-greedy: the best candidate by <policy, s>, or any at random with probability epsilon.

A choice that was meant bounds the direction of the policy, and tells nothing of its length. It is read as that of a
conditional logit with long weights, in which a share of the steps strays; epsilon is told by what is believed of the
policy once the episode was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.kind import RANDOM_SHARES, Believed, Family, Motions, Observed, Scales, Words, grid
from ibcb.deciders.logit_kind import LogitKind
from ibcb.engine import Block
from ibcb.numerics.averages import best_of_draws
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Ridge

__all__ = ["EGreedyKind"]

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

    def propensities(
        self, block: Block, before: Ridge, believed: Beliefs, draws: int, *, scale: float = 0.0
    ) -> Vector:
        X, mean, covariance = self.drawn(block, before, believed)
        return best_of_draws(X, block.offsets, mean, covariance, draws)

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        scores: NDArray[Any] = contexts @ p.astype(contexts.dtype)
        return scores
