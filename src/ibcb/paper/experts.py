"""The experts that can be let loose in an environment, and what is usual for each."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders import KINDS, POLICIES, SBTS, SBUCB, EGreedy, FixedPolicy, Learning, Policy, TopK
from ibcb.numerics.checks import positive
from ibcb.paper.environments import Streams

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

Expert = Policy | TopK

#: parameters of experts
_PARAMETERS = ("alpha", "l2", "draws", "top_k", "epsilon", "decay", "temperature")


def _parameters(policy: type[Expert]) -> tuple[str, ...]:
    # Weights that never change were learned once, and what draws from its best is SBUCB.
    own = {"l2", *signature(SBUCB if policy is TopK else policy).parameters}
    if policy in (SBUCB, SBTS, TopK):
        own |= {"draws", "top_k"}
    return tuple(name for name in _PARAMETERS if name in own)


#: every expert with its parameters
EXPERTS: dict[str, tuple[str, ...]] = {kind: _parameters(policy) for kind, policy in POLICIES.items()}

#: What the paper says of its experts, and where it is silent (l2, the random start), what makes the experts' own
#: figures the paper's. Temperatures are such that the best candidate is drawn about every other time.
_USUAL: dict[str, dict[str, Any]] = {
    "synthetic": {"alpha": 0.4, "l2": 0.3, "temperature": 0.08, "warmup": 400},
    "movielens": {"alpha": 0.4, "l2": 1.0, "temperature": 0.06},
    "arms": {"alpha": 0.4, "l2": 1.0, "temperature": 0.3},
}
_OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("synthetic", "sbucb"): {"warmup": 900},
    ("synthetic", "topk"): {"warmup": 900},
    ("movielens", "sbts"): {"alpha": 0.05, "draws": "episode"},
}

#: length of a step of `Walker`, as a share of the length of its first weights
_STRIDE = 0.5


def usual(environment: str, expert: str) -> dict[str, Any]:
    """Parameters of an expert in an environment, and settings of the environment for it."""
    policy = POLICIES[expert]
    everywhere = {
        "draws": "step",
        "top_k": 2 if policy is TopK else None,
        "epsilon": 0.2 if policy is EGreedy else 0.0,
        "decay": 0.0,
    }
    settings = everywhere | _USUAL[environment] | _OWN.get((environment, expert), {})
    return {name: value for name, value in settings.items() if name in (*EXPERTS[expert], "warmup")}


@dataclass(frozen=True, slots=True)
class ExpertSettings:
    """Which expert acts, and how; parameters that it does not have are None."""

    kind: str
    l2: float
    #: a float where there is one, which is what those who ask for it know
    alpha: Any = None
    draws: str | None = None
    top_k: int | None = None
    epsilon: float | None = None
    decay: float | None = None
    temperature: float | None = None

    @property
    def learns(self) -> bool:
        """Whether rewards change what it does."""
        return POLICIES[self.kind] is not FixedPolicy

    def make(self, n_features: int, streams: Streams, lesson: tuple[Matrix, Vector] | None = None) -> Expert:
        """The expert, after a first lesson of contexts (B, d) and rewards (B,) if there is one."""
        own: dict[str, Any] = {name: getattr(self, name) for name in EXPERTS[self.kind]}
        draws, top_k = own.pop("draws", None), own.pop("top_k", None)
        policy: Any = POLICIES[self.kind]
        if policy in (SBUCB, TopK):
            expert = SBUCB(n_features, **own)
        else:
            own |= {"random_state": streams["expert exploration"]} | ({} if draws is None else {"draws": draws})
            if not self.learns:
                return self._fixed(n_features, streams, lesson, **own)
            expert = policy(n_features, **own)
        made: Expert = expert if top_k is None else TopK(expert, top_k, random_state=streams["expert fairness"])
        if lesson is not None:
            made.update(*lesson)
        return made

    def _fixed(self, n_features: int, streams: Streams, lesson: Any, *, l2: float, **own: Any) -> FixedPolicy:
        positive("l2", l2, "it is a ridge parameter")
        weights = np.zeros(n_features) if lesson is None else _ridge_weights(*lesson, l2=l2)
        if KINDS[self.kind].motions.stays:
            return FixedPolicy(weights, **own)
        return Walker(weights, steps=streams["expert walk"], **own)


class Walker(FixedPolicy):
    """A policy that no reward moves: its weights walk at random, a step at every update, and settle nowhere.

    Parameters
    ----------
    coef, temperature, epsilon, random_state
        As of `FixedPolicy`; ``coef`` is where it begins.
    steps : Generator
        Of the walk. Its steps are half as long as the first weights.
    """

    def __init__(self, coef: ArrayLike, *, steps: np.random.Generator, **choice: Any) -> None:
        super().__init__(coef, **choice)
        self._steps = steps
        self._stride = _STRIDE * np.linalg.norm(self.coef_) / np.sqrt(self.n_features)

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Take a step, whatever the batch."""
        self.coef_ = self.coef_ + self._stride * self._steps.standard_normal(self.n_features)


def _ridge_weights(contexts: Matrix, rewards: Vector, *, l2: float) -> Vector:
    """Of ridge regression with an intercept, which decides no choice."""
    nothing = np.zeros((contexts.shape[1], contexts.shape[1]))
    return Learning.begin(l2, nothing).learn(contexts - contexts.mean(axis=0), rewards).coef
