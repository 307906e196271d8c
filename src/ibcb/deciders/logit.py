"""Choices that are drawn, read by a conditional logit in which some choices may stray.

The chosen candidate need only be among the ``top_k`` best. Scores are in units of the decider's own randomness.
"""

from __future__ import annotations

import numpy as np

from ibcb.deciders.rule import FIRST_STRAY, Believed, Columns, Observed, Values
from ibcb.engine import Block, candidate_moments
from ibcb.numerics.arrays import Vector
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.contexts import Contexts
from ibcb.numerics.gaussians import Beliefs, Site, site_at, symmetric_inverse
from ibcb.numerics.laplace import summarise_straying

#: the largest share of steps that is taken to stray while an episode is learned from, where nothing else is known
MOST_STRAY = 0.5
#: the prediction of an episode's policy is trusted this much less than itself (judged by benchmarks/deciders.py)
_WIDENING = 2.0
#: the search for the share of straying steps begins at least here: from 0 no step could lift it again
_LEAST_STRAY = 0.001
#: deviation of the scores by a policy of which nothing is known
_AT_FIRST = 10.0


def observed(block: Block, columns: Columns, belief: Believed, parameters: Values, most_stray: float) -> Observed:
    """What the choices of an episode say; the same to all families."""
    contexts = columns.of(block.contexts.astype(np.float64, copy=False)) if columns.added else block.contexts
    site, strayed = _site(block, contexts, belief.best, parameters.stray, parameters.top_k, most_stray)
    return Observed((site,) * len(belief.leaders), strayed)


def policy_alone(block: Block, top_k: int) -> Vector:
    """The policy that explains most of a block's choices, whatever came before. Shape (d,)."""
    d = block.contexts.shape[1]
    prior = Beliefs(np.zeros((1, d)), _AT_FIRST**2 * candidate_moments(block).unit_within[None])
    site, _ = _site(block, block.contexts, prior, FIRST_STRAY, top_k, MOST_STRAY)
    policy: Vector = prior.given(site)[0].mean[0]
    return policy


def _site(
    block: Block, contexts: Contexts, belief: Beliefs, stray: float, top_k: int, most_stray: float
) -> tuple[Site, float]:
    """What the choices say, and the share of steps that strayed."""
    centre, precision = belief.mean[0], symmetric_inverse(_WIDENING * belief.covariance[0])
    chosen = block.chosen_rows - block.offsets[:-1]
    stray = min(max(stray, _LEAST_STRAY), most_stray)
    loss = ChoiceLoss(contexts, block.offsets, chosen, top_k=top_k, stray=stray)
    summary = summarise_straying(loss, centre, precision, most=most_stray)
    slope = -precision @ (summary.mode - centre)
    return site_at(summary.mode, summary.information, slope, summary.loss, least=1e-10), summary.stray
