"""Deciders that take the best by scores without luck: what they choose bounds the policy by the rows of a cone.

See `ibcb.deciders.cone`. Only the direction of the policy is told, or its ratio to alpha where a bonus is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.cone import cone_sites
from ibcb.deciders.kind import Believed, Kind, Observed
from ibcb.engine import Block, CandidateMoments
from ibcb.numerics.gaussians import Site
from ibcb.numerics.ridge import Ridge

__all__ = ["BestKind"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: factors are found with this much more variance than a family's leader has: its other models are to learn from them
#: too, and would be too sure otherwise (judged by benchmarks/uncertainty.py)
_WIDENING = 3.0


@dataclass(frozen=True)
class BestKind(Kind):
    """What these kinds share."""

    learns = True
    draws = False
    compares_predictions = True
    hopeless = 30.0

    def unit(self, candidates: CandidateMoments) -> Matrix:
        return candidates.unit

    def observe(self, block: Block, before: Ridge, believed: Believed, stray: float) -> Observed:
        families = len(believed.leaders)
        if not before.phi.any():
            # Nothing had been learned: p is 0, and the choices do not tell more.
            return Observed((Site.empty(believed.best.mean.shape[1]),) * families, stray)
        # The likeliest family first; of equals the learner, whose narrower belief leaves fewer rows open. A family
        # that has no chance learns from the factor of the likeliest.
        order = sorted(range(families), key=lambda family: (believed.evidence[family], family), reverse=True)
        least = believed.evidence[order[0]] - self.hopeless
        asked = [family for family in order if believed.evidence[family] >= least]
        wide = [believed.leaders[family].widened(_WIDENING) for family in asked]
        sites, strayed = cone_sites(block, before, wide, stray, bonus=self.adds_bonus)
        found = dict(zip(asked, sites, strict=True))
        return Observed(tuple(found.get(family, found[asked[0]]) for family in range(families)), strayed)

    def scores(self, block: Block, before: Ridge, policy: Vector) -> Vector:
        scores: Vector = block.contexts @ policy
        return scores

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        scores: NDArray[Any] = contexts @ p.astype(contexts.dtype)
        return scores
