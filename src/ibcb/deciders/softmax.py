"""Softmax: a draw with probabilities in proportion to exp(<policy, s> / temperature).

Its choices are those of a conditional logit. Policies are in units of the temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.kind import Family, Motions, Scales, Words, grid
from ibcb.deciders.logit_kind import LogitKind
from ibcb.deciders.other import FOLLOWED
from ibcb.numerics.ridge import Ridge

__all__ = ["SoftmaxKind"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SoftmaxKind(LogitKind):
    """The kind."""

    name = "softmax"
    words = Words(
        "the decider learns, and draws by the softmax of its scores",
        "draws by the softmax of its scores",
        length="much of",
        exploration="It draws with probabilities that rise with the score: a choice that is not the best expected one "
        "is that draw, or noise.",
        misfit="The draws of a softmax have no exact explanation",
    )
    scales = Scales(policy=10.0, rewards=3.0, first_policy=0.1)
    # Judged by benchmarks/propensities.py.
    motions = Motions(
        (
            *FOLLOWED.families,
            Family(
                "learner", grid((0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 0.1)), early=(1.0, 0.1), few=grid((1.0,), (0.1,))
            ),
        ),
        fading=FOLLOWED.fading,
    )
    learns = True
    most_stray = 0.01
    most_random = 0.02

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        scores: NDArray[Any] = contexts @ p.astype(contexts.dtype)
        scores += rng.gumbel(size=len(scores)).astype(contexts.dtype)
        return scores
