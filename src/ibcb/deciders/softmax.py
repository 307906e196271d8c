"""Softmax: a draw with probabilities in proportion to exp(<policy, s> / temperature).

Its choices are those of a conditional logit. Policies are in units of the temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ibcb.deciders.kind import Family, Life, Motions, Scales, Words, grid
from ibcb.deciders.logit_kind import LogitKind
from ibcb.deciders.other import FOLLOWED
from ibcb.deciders.policy import as_candidate_sets
from ibcb.deciders.ridge_policy import RidgePolicy
from ibcb.engine import CandidateMoments
from ibcb.numerics.checks import positive
from ibcb.numerics.ridge import Ridge

__all__ = ["Softmax", "SoftmaxKind"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class SoftmaxKind(LogitKind):
    """The kind."""

    name = "softmax"
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
    scales = Scales(policy=10.0, rewards=3.0, first_policy=0.1)
    # Judged by benchmarks/propensities.py.
    motions = Motions(
        (
            *FOLLOWED.families,
            Family("learner", grid((0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 0.1)), early=(1.0, 0.1), few=grid((1.0,), (0.1,))),
        ),
        fading=FOLLOWED.fading,
    )
    learns = True
    # Its choices do not depend on l2 but through what it has learned, soon hardly.
    penalties: ClassVar = {"scaled": (0.3, 3.0), "standardized": (1.0,)}
    has_temperature = True
    most_stray = 0.01
    most_random = 0.02

    def unit(self, candidates: CandidateMoments) -> Matrix:
        """Of all that it learns from, what the candidates of a step share included."""
        return candidates.unit

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        scores: NDArray[Any] = contexts @ p.astype(contexts.dtype)
        scores += rng.gumbel(size=len(scores)).astype(contexts.dtype)
        return scores

    def live(self, life: Life) -> Softmax:
        state: dict[str, Any] = {"gram": life.gram, "moment": life.moment, "random_state": life.random_state}
        return Softmax(len(life.coef), temperature=life.alpha, **self.own_ridge, **state)


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
