"""Epsilon-greedy: the best candidate by <policy, s>, or any at random with probability epsilon.

Steps that look random are set aside; the others bound the direction of the policy by the rows of a cone, see
`ibcb.deciders.cone`. Epsilon is told by what is believed of the policy once the episode was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders.cone import Best
from ibcb.deciders.live import Learned, Probabilities, RandomState, RidgePolicy, best, with_random_share
from ibcb.deciders.rule import (
    Believed,
    Columns,
    Life,
    Observed,
    Parameter,
    RandomShare,
    Values,
    Words,
    share_likelihoods,
)
from ibcb.engine import Block
from ibcb.numerics.checks import at_least_zero, probability, whole
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.contexts import step_counts
from ibcb.numerics.gaussians import Beliefs, symmetric_inverse
from ibcb.numerics.laplace import summarise_straying
from ibcb.numerics.newton import SolverError


class MeantSettings(NamedTuple):
    """Which choices are taken to be meant; set by benchmarks/propensities.py."""

    #: how much longer than a belief the weights of the logit are that tells random choices from meant ones: the rule
    #: has no luck of its own; 30 is as good
    length: float = 10.0
    #: share of random steps that the search for it begins at
    few_stray: float = 0.001
    #: share of wrong rows that is allowed for in the steps that look meant: with less, rows that contradict each other
    #: break the belief
    left_stray: float = 0.02
    #: draws from what is believed of the policy, for the share of choices at random; not tuned finely
    draws: int = 32


_MEANT = MeantSettings()


@dataclass(frozen=True)
class BestOrRandom(Best):
    """The rule."""

    name = "egreedy"
    parameters = (
        Parameter(
            "epsilon",
            "share of choices",
            (0.0, 1.0),
            "even in its logarithm, constant or falling",
            "how many choices are made at random",
            RandomShare(),
            luck=True,
        ),
    )
    words = Words(
        "the decider learns, takes the best, and now and then any candidate at random",
        "epsilon-greedy: takes the best, now and then any at random",
        explored="are made at random",
        exploration="Shown is epsilon with its interval, not what happened to be random.",
        misfits="An epsilon-greedy decider chooses at random now and then: most of these are such choices.",
        misfit="Choices at random have no explanation",
        contradictions="No reward weights explain these choices together, as is usual where some are made at random.",
    )

    def observe(self, block: Block, columns: Columns, belief: Believed, parameters: Values) -> Observed:
        if not columns.before.phi.any():
            return super().observe(block, columns, belief, parameters)
        meant, strayed = _meant(block, belief.leaders[-1], parameters.stray)
        own = self.columns(meant, columns.before)
        seen = super().observe(meant, own, belief, parameters._replace(stray=_MEANT.left_stray))
        posterior, _ = belief.leaders[-1].given(seen.sites[-1])
        p = self.probabilities(block, columns, posterior, parameters._replace(draws=_MEANT.draws))[block.chosen_rows]
        return Observed(seen.sites, strayed, share_likelihoods(p, 1.0 / step_counts(block.offsets)))

    def live(self, state: Life) -> EGreedy:
        return EGreedy(len(state.coef), epsilon=state.share, random_state=state.random_state, **state.learned)


def _meant(block: Block, believed: Beliefs, stray: float) -> tuple[Block, float]:
    """The steps that were more probably meant than not, and the share of those that were not.

    By a conditional logit with long weights, in which a share of the steps strays.
    """
    centre = _MEANT.length * believed.mean[0]
    precision = symmetric_inverse(2 * _MEANT.length**2 * believed.covariance[0])
    chosen, counts = block.chosen_rows - block.offsets[:-1], step_counts(block.offsets)
    loss = ChoiceLoss(block.contexts, block.offsets, chosen, stray=max(stray, _MEANT.few_stray))
    try:
        summary = summarise_straying(loss, centre, precision)
    except SolverError:
        # Choices that contradict each other everywhere: none stands out.
        return block, stray
    e = summary.stray
    meant, astray = loss.with_stray(e).likelihoods(summary.mode)
    # They come by number of candidates, without the steps that leave no choice.
    steps = np.argsort(counts, kind="stable")
    kept = np.ones(len(counts), dtype=bool)
    kept[steps[counts[steps] > 1]] = (1 - e) * meant > e * astray
    if kept.all() or not kept.any():
        return block, e
    rows, offsets = np.repeat(kept, counts), np.append(0, counts[kept].cumsum())
    chosen_rows = offsets[:-1] + chosen[kept]
    return replace(block, contexts=block.contexts[rows], chosen_rows=chosen_rows, offsets=offsets, work=None), e


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
        random_state: RandomState = None,
        n_updates: int = 0,
        **learned: Unpack[Learned],
    ) -> None:
        self.epsilon = probability("epsilon", epsilon, "it is the share of choices made at random")
        self.decay = at_least_zero("decay", decay, "0 keeps epsilon as it is")
        self.n_updates_ = whole("n_updates", n_updates, 0, "it is a number of updates")
        self._rng = np.random.default_rng(random_state)
        super().__init__(n_features, **learned)

    @property
    def epsilon_(self) -> float:
        return float(self.epsilon / (self.n_updates_ + 1) ** self.decay)

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        super().update(contexts, rewards)
        self.n_updates_ += 1

    def _chances(self, scores: NDArray[Any]) -> Probabilities:
        return with_random_share(best(scores), self.epsilon_)
