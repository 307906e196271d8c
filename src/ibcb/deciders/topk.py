"""Top-k: a draw from the softmax of the scores, cut to the k best candidates; fairness around another decider."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders.live import Policy, Probabilities, RandomState, as_candidate_sets
from ibcb.deciders.rule import Believed, Columns, Life, Observed, Parameter, Rule, Setting, Values, Words
from ibcb.deciders.sbts import SBTS
from ibcb.deciders.sbucb import SBUCB
from ibcb.deciders.softmax import LOGIT, observed
from ibcb.engine import Block
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Vector
from ibcb.numerics.averages import top_k_of_draws
from ibcb.numerics.checks import positive, whole
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.printable import WrongTypeError

#: draws that probabilities are averaged over where there are few rows, so that no more than so many numbers are needed
_DRAWS, _NUMBERS = 1024, 1 << 16


@dataclass(frozen=True)
class OneOfBest(Rule):
    """The rule."""

    name = "topk"
    parameters = (
        Parameter(
            "top_k",
            "candidates",
            (2, math.inf),
            "2, 3 or 4",
            "how many of the best are drawn from",
            Setting(name="top_k"),
            luck=True,
        ),
    )
    words = Words(
        "the decider draws from its best candidates",
        "draws from its {top_k} best candidates",
        explored="its draws decide",
        exploration="It draws from its best candidates. Shown is how often it draws another than the very best.",
        misfits="They are not among its best candidates: look here for changed records.",
    )

    def observe(self, block: Block, columns: Columns, belief: Believed, parameters: Values) -> Observed:
        return observed(block, columns, belief, parameters, LOGIT.most_stray)

    def probabilities(self, block: Block, columns: Columns, belief: Beliefs, parameters: Values) -> Vector:
        own: dict[str, Any] = {"top_k": parameters.top_k, "scale": parameters.scale}
        # Of a few choices, which k is told by little more than what too few draws would leave.
        draws = max(1, parameters.draws // 2, min(_DRAWS, _NUMBERS // block.n_rows))
        return top_k_of_draws(columns.whole, block.offsets, belief.mean[0], belief.covariance[0], draws, **own)

    def live(self, state: Life) -> TopK:
        """Around a ridge regression of the rewards, without a bonus."""
        expert = SBUCB(len(state.coef), alpha=0.0, **state.learned)
        return TopK(expert, state.top_k, temperature=state.alpha, random_state=state.random_state)


class TopK(Policy):
    """Fairness around an expert: draw from the softmax of scores / temperature, cut to the k best and renormalised.

    Parameters
    ----------
    expert : SBUCB or SBTS
    k : int
        How many of the best candidates can be drawn.
    temperature : float
        In units of rewards; 1 in the paper.
    random_state : int, Generator or None
    """

    def __init__(
        self, expert: SBUCB | SBTS, k: int, *, temperature: float = 1.0, random_state: RandomState = None
    ) -> None:
        if not isinstance(expert, (SBUCB, SBTS)):
            raise WrongTypeError(f"TopK goes around an SBUCB or SBTS expert; got {expert!r}.")
        self.expert = expert
        self.k = whole("k", k, 1, "the number of candidates that can be drawn")
        self.temperature = positive("temperature", temperature, "scores are divided by it")
        self._rng = np.random.default_rng(random_state)

    def __repr__(self) -> str:
        return f"TopK({self.expert!r}, k={self.k}, temperature={self.temperature:g})"

    @property
    def coef_(self) -> Vector:  # type: ignore[override]
        """The policy parameters of the expert inside."""
        return self.expert.coef_

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Learn from a batch, as the expert inside does."""
        self.expert.update(contexts, rewards)

    def decision_function(self, log: BehaviorLog | ArrayLike) -> NDArray[Any]:
        """Expected reward of every candidate, without exploration."""
        return self.expert.decision_function(log)

    def scores(self, candidates: NDArray[Any]) -> NDArray[Any]:
        """Those of the expert inside, its exploration included: shape (..., M, d) to (..., M)."""
        return self.expert.scores(candidates)

    def average(self, candidates: NDArray[Any], rule: Callable[[NDArray[Any]], Probabilities]) -> Probabilities:
        return self.expert.average(candidates, rule)

    def _chances(self, scores: NDArray[Any]) -> Probabilities:
        return top_k_softmax(scores / self.temperature, self.k)

    def act(self, candidates: ArrayLike, *, explore: bool = True) -> Any:
        """Draw: an int for one candidate set (M, d), an array (B,) for a batch (B, M, d)."""
        contexts = as_candidate_sets(candidates, self.n_features)
        scores = self.scores(contexts) if explore else self.decision_function(contexts)
        return self._drawn(self._chances(scores))


def top_k_softmax(scores: NDArray[Any], k: int) -> NDArray[np.float64]:
    """Softmax over the last axis, cut to the k largest and renormalised; equals go to the earlier candidate."""
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :k]
    best = np.take_along_axis(scores, order, axis=-1)
    weights = np.exp(best - best[..., :1])
    probabilities = np.zeros(scores.shape)
    np.put_along_axis(probabilities, order, weights / weights.sum(axis=-1, keepdims=True), axis=-1)
    return probabilities
