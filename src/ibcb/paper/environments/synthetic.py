"""The paper's synthetic data set.

Candidate j of every step has mean mu_j = 1, 0.6, ..., -2.6 in every dimension and standard deviation 0.05. Rewards are
sigmoid(<w, s>) plus noise, with w drawn around 0.1. Out of distribution, the first candidate's mean becomes 1.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ibcb.numerics.checks import finite, whole
from ibcb.paper.environments.world import Phase, Streams, World, check_room, check_sizes

__all__ = ["Synthetic"]


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Settings of the synthetic data, with the paper's values as defaults.

    Attributes
    ----------
    noise : float
        Standard deviation of the noise on rewards (the paper's std: 0, 0.03, 0.07, 0.1).
    ood_mean : float
        Mean of the first candidate in the out-of-distribution test.
    dup : int
        Episodes dup to 2 dup - 1 repeat the candidate sets of episodes 0 to dup - 1.
    warmup : int
        Random steps before the first episode.
    n_episodes, batch_size, n_candidates, n_features : int
        N, B, M and d.
    """

    noise: float = 0.0
    ood_mean: float = 1.4
    dup: int = 0
    warmup: int = 0
    n_episodes: int = 20
    batch_size: int = 1000
    n_candidates: int = 10
    n_features: int = 10

    def __post_init__(self) -> None:
        check_sizes(self, "n_episodes", "batch_size", "n_candidates", "n_features")
        finite("ood_mean", self.ood_mean)
        if whole("dup", self.dup, 0, "it is a number of episodes") > self.n_episodes // 2:
            raise ValueError(
                f"dup={self.dup!r} repeats episodes 0 to dup - 1 right after themselves; with {self.n_episodes} "
                f"episodes it lies between 0 and {self.n_episodes // 2}."
            )

    def build(self, streams: Streams) -> World:
        """Draw the world of a seed."""
        steps = self.n_episodes * self.batch_size
        check_room(self.warmup + 3 * steps, self.n_candidates, self.n_features)
        w = streams["reward parameters"].normal(0.1, 0.01, self.n_features)
        means = 1.0 - 0.4 * np.arange(self.n_candidates)
        shifted = means.copy()
        shifted[0] = self.ood_mean
        learning = self._contexts(streams["log contexts"], steps, means)
        cloned = self.dup * self.batch_size
        learning[cloned : 2 * cloned] = learning[:cloned]
        noise = self.noise * streams["log noise"].standard_normal(self.warmup + steps)
        test_noise = self.noise * streams["test noise"].standard_normal(steps)
        start = self._contexts(streams["warm-up contexts"], self.warmup, means)
        test = self._contexts(streams["test contexts"], steps, means)
        ood = self._contexts(streams["out-of-distribution contexts"], steps, shifted)
        return World(
            warmup=_phase(start, w, noise[: self.warmup]) if self.warmup else None,
            learning=_phase(learning, w, noise[self.warmup :]),
            batch_size=self.batch_size,
            test=_phase(test, w, test_noise),
            ood=_phase(ood, w, test_noise),
        )

    def _contexts(self, rng: np.random.Generator, steps: int, means: NDArray[Any]) -> NDArray[np.float64]:
        contexts = rng.standard_normal((steps, self.n_candidates, self.n_features))
        contexts *= 0.05
        contexts += means[:, None]
        return contexts


def _phase(contexts: NDArray[np.float64], w: NDArray[np.float64], noise: NDArray[np.float64]) -> Phase:
    return Phase(contexts, expit(contexts @ w), noise)
