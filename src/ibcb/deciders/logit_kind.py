"""Deciders of which only choices are known, read by a conditional logit in which some choices may stray.

The chosen candidate need only be among the ``top_k`` best. Scores are in units of the decider's own randomness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.fixed import FixedPolicy
from ibcb.deciders.kind import FIRST_STRAY, Believed, Kind, Life, Observed, Scales
from ibcb.engine import Block, CandidateMoments, candidate_moments
from ibcb.numerics.averages import softmax_of_draws
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.gaussians import Beliefs, Site, site_at, symmetric_inverse
from ibcb.numerics.laplace import summarise_straying
from ibcb.numerics.ridge import Ridge

__all__ = ["LogitKind"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: the prediction of an episode's policy is trusted this much less than itself (judged by benchmarks/deciders.py)
_WIDENING = 2.0
#: the search for the share of straying steps begins at least here: from 0 no step could lift it again
_LEAST_STRAY = 0.001


@dataclass(frozen=True)
class LogitKind(Kind):
    """The choice rule that these kinds share."""

    scales = Scales(policy=10.0)
    #: the largest share of steps that is taken to stray while an episode is learned from
    most_stray: ClassVar[float] = 0.5

    def unit(self, candidates: CandidateMoments) -> Matrix:
        """Of the candidates about their step's mean."""
        return candidates.unit_within

    def observe(self, block: Block, before: Ridge, believed: Believed, stray: float) -> Observed:
        site, strayed = self._site(block, believed.best, stray)
        return Observed((site,) * len(believed.leaders), strayed)

    def _site(self, block: Block, believed: Beliefs, stray: float) -> tuple[Site, float]:
        """What the choices say, and the share of steps that strayed."""
        centre, precision = believed.mean[0], symmetric_inverse(_WIDENING * believed.covariance[0])
        chosen = block.chosen_rows - block.offsets[:-1]
        stray = min(max(stray, _LEAST_STRAY), self.most_stray)
        loss = ChoiceLoss(block.contexts, block.offsets, chosen, top_k=self.top_k, stray=stray)
        found = summarise_straying(loss, centre, precision, most=self.most_stray)
        slope = -precision @ (found.mode - centre)
        return site_at(found.mode, found.information, slope, found.loss, least=1e-10), found.stray

    def propensities(self, block: Block, before: Ridge, believed: Beliefs, draws: int, *, scale: float = 0.0) -> Vector:
        # Smooth in the scores, so that fewer draws do.
        return softmax_of_draws(
            block.contexts, block.offsets, believed.mean[0], believed.covariance[0], max(1, draws // 2)
        )

    def live(self, life: Life) -> Any:
        """How it learns is not known, so its policy stays."""
        how: dict[str, Any] = {"temperature": life.alpha, "epsilon": life.share, "random_state": life.random_state}
        return FixedPolicy(life.coef, **how)

    def policy_alone(self, block: Block) -> Vector:
        """The policy that explains most of a block's choices, whatever came before. Shape (d,)."""
        d = block.contexts.shape[1]
        prior = Beliefs(np.zeros((1, d)), self.scales.policy**2 * self.unit(candidate_moments(block))[None])
        site, _ = self._site(block, prior, FIRST_STRAY)
        policy: Vector = prior.given(site)[0].mean[0]
        return policy

    def scores(self, block: Block, before: Ridge, policy: Vector) -> Vector:
        scores: Vector = block.contexts @ policy
        return scores
