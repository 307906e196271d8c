"""The experts that can be let loose in an environment, and what is usual for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders import SBTS, SBUCB, EGreedy, FixedPolicy, Policy, Softmax, TopK
from ibcb.numerics.checks import positive
from ibcb.numerics.ridge import gram, ridge
from ibcb.paper.environments import Streams

__all__ = ["EXPERTS", "Expert", "ExpertSettings", "Walker", "usual"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

Expert = Policy | TopK

#: every expert with its parameters
EXPERTS: dict[str, tuple[str, ...]] = {
    "sbucb": ("alpha", "l2", "draws", "top_k"),
    "sbts": ("alpha", "l2", "draws", "top_k"),
    "egreedy": ("l2", "epsilon", "decay"),
    "softmax": ("l2", "temperature"),
    "topk": ("alpha", "l2", "top_k"),
    "stationary": ("l2", "epsilon", "temperature"),
    "other": ("l2", "epsilon", "temperature"),
}

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

#: parameters of how an expert is used, not of its policy
_NOT_OWN = ("draws", "top_k")
#: length of a step of `Walker`, as a share of the length of its first weights
_STRIDE = 0.5


def usual(environment: str, expert: str) -> dict[str, Any]:
    """Parameters of an expert in an environment, and settings of the environment for it."""
    everywhere = {
        "draws": "step",
        "top_k": 2 if expert == "topk" else None,
        "epsilon": 0.2 if expert == "egreedy" else 0.0,
        "decay": 0.0,
    }
    found = everywhere | _USUAL[environment] | _OWN.get((environment, expert), {})
    return {name: value for name, value in found.items() if name in (*EXPERTS[expert], "warmup")}


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
        return self.kind not in ("stationary", "other")

    def make(self, n_features: int, streams: Streams, lesson: tuple[Matrix, Vector] | None = None) -> Expert:
        """The expert, after a first lesson of contexts (B, d) and rewards (B,) if there is one."""
        luck: dict[str, Any] = {"random_state": streams["expert exploration"]}
        own: dict[str, Any] = {name: getattr(self, name) for name in EXPERTS[self.kind] if name not in _NOT_OWN}
        if not self.learns:
            l2 = positive("l2", own.pop("l2"), "it is a ridge parameter")
            weights = np.zeros(n_features) if lesson is None else _ridge_weights(*lesson, l2)
            if self.kind == "stationary":
                return FixedPolicy(weights, **own, **luck)
            return Walker(weights, **own, **luck, steps=streams["expert walk"])
        expert: Any = self._learner(n_features, own, luck)
        if self.top_k is not None:
            expert = TopK(expert, self.top_k, random_state=streams["expert fairness"])
        if lesson is not None:
            expert.update(*lesson)
        made: Expert = expert
        return made

    def _learner(self, n_features: int, own: dict[str, Any], luck: dict[str, Any]) -> Policy:
        if self.kind == "egreedy":
            return EGreedy(n_features, **own, **luck)
        if self.kind == "softmax":
            return Softmax(n_features, **own, **luck)
        if self.kind == "sbts":
            return SBTS(n_features, **own, draws=str(self.draws), **luck)
        return SBUCB(n_features, **own)


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


def _ridge_weights(contexts: Matrix, rewards: Vector, l2: float) -> Vector:
    """Of ridge regression with an intercept, which decides no choice."""
    S = contexts - contexts.mean(axis=0)
    weights: Vector = ridge(gram(S), l2).solve(S.T @ rewards)
    return weights
