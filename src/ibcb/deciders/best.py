"""The best by its score, without luck: the rule of a decider whose luck is in its policy, as one draw an episode.

What is chosen bounds the policy by the rows of a cone, see `ibcb.deciders.cone`. Only the direction of the policy is
told, or its ratio to the weight of what is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ibcb.deciders.cone import cone_sites
from ibcb.deciders.parameter import Parameter, Setting, Unit
from ibcb.deciders.rule import Believed, Columns, Life, Observed, Rule, Values, Words
from ibcb.deciders.sbts import DRAWS, SBTS
from ibcb.engine import Block
from ibcb.numerics.arrays import Vector
from ibcb.numerics.averages import best_of_draws
from ibcb.numerics.contexts import best_rows
from ibcb.numerics.gaussians import Beliefs, Site

#: factors are found with this much more variance than a family's leader has: its other models are to learn from them
#: too, and would be too sure otherwise (judged by benchmarks/uncertainty.py)
_WIDENING = 3.0


@dataclass(frozen=True)
class Best(Rule):
    """The rule."""

    name = "best"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("alpha", "rewards", (0.0, math.inf), "none", "how widely the policy is drawn", Unit()),
        Parameter("draws", "", DRAWS, "none", "how often the policy is drawn", Setting(value="episode")),
    )
    words = Words(
        "the decider learns, and draws from its posterior once an episode",
        "SBTS: Thompson sampling, one draw per episode",
        misfit="The luck of a Thompson sampler has no exact explanation",
    )

    def observe(self, block: Block, columns: Columns, belief: Believed, parameters: Values) -> Observed:
        families = range(len(belief.leaders))
        if not columns.before.phi.any():
            # Nothing had been learned: p is 0, and the choices do not tell more.
            return Observed((Site.empty(belief.best.mean.shape[1]),) * len(families), parameters.stray)
        # A family that has no chance learns from the factor of the likeliest.
        wide = [belief.leaders[family].widened(_WIDENING) for family in belief.asked]
        sites, strayed = cone_sites(block, columns, wide, parameters.stray)
        by_family = dict(zip(belief.asked, sites, strict=True))
        return Observed(tuple(by_family.get(family, sites[0]) for family in families), strayed)

    def probabilities(self, block: Block, columns: Columns, belief: Beliefs, parameters: Values) -> Vector:
        mean, covariance = belief.mean[0], belief.covariance[0]
        if not covariance.any():
            # Nothing to draw: the best, the first of equals.
            certain = np.zeros(block.n_rows)
            certain[best_rows(columns.scores(mean.astype(block.contexts.dtype)), block.offsets)] = 1.0
            return certain
        return best_of_draws(columns.whole, block.offsets, mean, covariance, parameters.draws)

    def live(self, state: Life) -> Any:
        how: dict[str, Any] = {"draws": state.draws, "random_state": state.random_state}
        return SBTS(len(state.coef), alpha=state.alpha, **how, **state.learned)
