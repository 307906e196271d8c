"""Softmax: a draw with probabilities in proportion to exp(<policy, s> / temperature).

Its choices are those of a conditional logit, in which some may stray; of a decider that draws from its best candidates
the chosen one need only be among the ``top_k`` best. Policies are in units of the temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ibcb.deciders.live import FixedPolicy, Learned, Probabilities, RandomState, RidgePolicy
from ibcb.deciders.rule import (
    FIRST_STRAY,
    Believed,
    Columns,
    Life,
    Observed,
    Parameter,
    PolicyLength,
    Rule,
    Unit,
    Values,
    Words,
)
from ibcb.engine import Block, candidate_moments
from ibcb.numerics.arrays import Vector
from ibcb.numerics.averages import softmax_of_draws
from ibcb.numerics.checks import positive
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.contexts import Contexts
from ibcb.numerics.gaussians import Beliefs, Site, site_at, symmetric_inverse
from ibcb.numerics.laplace import summarise_straying


class LogitSettings(NamedTuple):
    """How the choices of an episode are read as draws by a softmax; set by benchmarks/deciders.py."""

    #: the largest share of steps that is taken to stray while an episode is learned from, where nothing else is known
    most_stray: float = 0.5
    #: the search for that share begins at least here: from 0 no step could lift it again
    least_stray: float = 0.001
    #: the prediction of an episode's policy is trusted this much less than itself
    widening: float = 2.0
    #: deviation of the scores by a policy of which nothing is known
    at_first: float = 10.0


LOGIT = LogitSettings()
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
    most_stray = LOGIT.most_stray


def observed(block: Block, columns: Columns, belief: Believed, parameters: Values, most_stray: float) -> Observed:
    """What the choices of an episode say; the same to all families."""
    contexts = columns.of(block.contexts.astype(np.float64, copy=False)) if columns.added else block.contexts
    site, strayed = _site(block, contexts, belief.best, parameters.stray, parameters.top_k, most_stray)
    return Observed((site,) * len(belief.leaders), strayed)


def policy_alone(block: Block, top_k: int) -> Vector:
    """The policy that explains most of a block's choices, whatever came before. Shape (d,)."""
    d = block.contexts.shape[1]
    prior = Beliefs(np.zeros((1, d)), LOGIT.at_first**2 * candidate_moments(block).unit_within[None])
    site, _ = _site(block, block.contexts, prior, FIRST_STRAY, top_k, LOGIT.most_stray)
    policy: Vector = prior.given(site)[0].mean[0]
    return policy


def _site(
    block: Block, contexts: Contexts, belief: Beliefs, stray: float, top_k: int, most_stray: float
) -> tuple[Site, float]:
    """What the choices say, and the share of steps that strayed."""
    centre, precision = belief.mean[0], symmetric_inverse(LOGIT.widening * belief.covariance[0])
    chosen = block.chosen_rows - block.offsets[:-1]
    stray = min(max(stray, LOGIT.least_stray), most_stray)
    loss = ChoiceLoss(contexts, block.offsets, chosen, top_k=top_k, stray=stray)
    summary = summarise_straying(loss, centre, precision, most=most_stray)
    slope = -precision @ (summary.mode - centre)
    return site_at(summary.mode, summary.information, slope, summary.loss, least=1e-10), summary.stray


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
        random_state: RandomState = None,
        **learned: Unpack[Learned],
    ) -> None:
        self.temperature = positive("temperature", temperature, "scores are divided by it")
        self._rng = np.random.default_rng(random_state)
        super().__init__(n_features, **learned)

    def _chances(self, scores: NDArray[Any]) -> Probabilities:
        return np.asarray(softmax(scores / self.temperature, axis=-1), dtype=np.float64)
