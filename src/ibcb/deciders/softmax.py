"""Softmax: a draw with probabilities in proportion to exp(<policy, s> / temperature).

Its choices are those of a conditional logit. Policies are in units of the temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ibcb.deciders.fixed import FixedPolicy
from ibcb.deciders.logit import MOST_STRAY, observed
from ibcb.deciders.parameter import Parameter, PolicyLength, Unit
from ibcb.deciders.policy import as_candidate_sets
from ibcb.deciders.ridge_policy import RidgePolicy
from ibcb.deciders.rule import Believed, Columns, Life, Observed, Rule, Values, Words
from ibcb.engine import Block
from ibcb.numerics.arrays import Vector
from ibcb.numerics.averages import softmax_of_draws
from ibcb.numerics.checks import positive
from ibcb.numerics.gaussians import Beliefs

#: the unit of the policies of whoever draws by a softmax
TEMPERATURE = Parameter(
    "temperature",
    "deviations of the scores of a step",
    (0.0, math.inf),
    "that of the policy's length",
    "how far apart scores are of which one is drawn e times as often",
    PolicyLength(),
    luck=True,
)


@dataclass(frozen=True)
class SoftmaxOfScores(Rule):
    """The rule."""

    name = "softmax"
    parameters: ClassVar[tuple[Parameter, ...]] = (TEMPERATURE,)
    words = Words(
        "the decider learns, and draws by the softmax of its scores",
        "draws by the softmax of its scores",
        length="and much of",
        explored="its draws decide",
        exploration="It draws with probabilities that rise with the score. Shown is how often it draws another "
        "candidate than the one it expects most of.",
        misfits="They are further off than its draws explain: look here for changed records.",
        misfit="The draws of a softmax have no exact explanation",
    )

    #: the largest share of steps that is taken to stray while an episode is learned from
    most_stray: ClassVar[float] = 0.01

    def observe(self, block: Block, columns: Columns, belief: Believed, parameters: Values) -> Observed:
        return observed(block, columns, belief, parameters, self.most_stray)

    def probabilities(self, block: Block, columns: Columns, belief: Beliefs, parameters: Values) -> Vector:
        # Smooth in the scores, so that fewer draws do.
        draws = max(1, parameters.draws // 2)
        return softmax_of_draws(columns.whole, block.offsets, belief.mean[0], belief.covariance[0], draws)

    def live(self, state: Life) -> Softmax | FixedPolicy:
        if not state.learns:
            how: dict[str, Any] = {"temperature": state.alpha, "epsilon": state.share}
            return FixedPolicy(state.coef, random_state=state.random_state, **how)
        return Softmax(len(state.coef), temperature=state.alpha, random_state=state.random_state, **state.learned)


@dataclass(frozen=True)
class SoftmaxOfAnyone(SoftmaxOfScores):
    """Of a decider of which only choices are known: its randomness is the unit of its policy, and nothing more."""

    parameters = (TEMPERATURE._replace(estimate=Unit()),)
    most_stray = MOST_STRAY


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
