"""The paper's synthetic data set.

Candidate j of every step has mean mu_j = 1, 0.6, ..., -2.6 in every dimension and standard deviation 0.05. Rewards are
sigmoid(<w, s>) plus noise, with w drawn around 0.1. Out of distribution, the first candidate's mean becomes 1.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ibcb.numerics.arrays import Vector
from ibcb.numerics.checks import finite, whole
from ibcb.paper.environments.world import Phase, Streams, World, check_room, check_sizes, noisy_world


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

        def phase(name: str, noise: Vector) -> Phase:
            means = 1.0 - 0.4 * np.arange(self.n_candidates)
            if name == "out-of-distribution":
                means[0] = self.ood_mean
            contexts = streams[f"{name} contexts"].standard_normal((len(noise), self.n_candidates, self.n_features))
            contexts *= 0.05
            contexts += means[:, None]
            if name == "log":
                cloned = self.dup * self.batch_size
                contexts[cloned : 2 * cloned] = contexts[:cloned]
            return Phase(contexts, expit(contexts @ w), noise)

        return noisy_world(self, streams, phase, ood=True)
