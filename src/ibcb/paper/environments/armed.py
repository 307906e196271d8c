"""A world of arms: one fixed set to choose from, each arm with its own weights on the features of the step.

Features are a constant 1 and standard normal numbers; weights are N(0, 1 / m), so that what an arm earns on average
varies by about 1. The contexts of candidates are those of `ibcb.BehaviorLog.from_arms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ibcb.log.arms import arm_rows
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.checks import whole
from ibcb.numerics.contexts import dense
from ibcb.paper.environments.world import Offers, Phase, Streams, World, check_room, check_sizes, noisy_world


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Settings of a world of arms.

    Attributes
    ----------
    noise : float
        Standard deviation of the noise on rewards.
    warmup : int
        Random steps before the first episode.
    n_episodes, batch_size : int
        N and B.
    n_arms : int
    n_available : int, optional
        Arms that can be chosen at a step, drawn anew for each; all unless given.
    n_features : int
        Of a step, the constant included; with 1 an arm has one weight.
    """

    noise: float = 0.3
    warmup: int = 500
    n_episodes: int = 12
    batch_size: int = 500
    n_arms: int = 10
    n_available: int | None = None
    n_features: int = 5

    def __post_init__(self) -> None:
        check_sizes(self, "n_episodes", "batch_size", "n_arms", "n_features")
        if self.n_available is not None and whole("n_available", self.n_available, 1, "it is a size") > self.n_arms:
            raise ValueError(f"n_available={self.n_available} is more than the {self.n_arms} arms there are.")

    def build(self, streams: Streams) -> World:
        """Draw the world of a seed."""
        steps = self.n_episodes * self.batch_size
        check_room(self.warmup + 2 * steps, self.n_available or self.n_arms, self.n_arms * self.n_features)
        weights = streams["reward parameters"].normal(size=(self.n_arms, self.n_features)) / np.sqrt(self.n_features)
        return noisy_world(self, streams, partial(self._phase, streams, weights))

    def _phase(self, streams: Streams, weights: Matrix, name: str, noise: Vector) -> Phase:
        steps, arms = len(noise), self.n_arms
        features = np.ones((steps, self.n_features))
        features[:, 1:] = streams[f"{name} contexts"].standard_normal((steps, self.n_features - 1))
        ranks = streams[f"{name} candidates"].random((steps, arms)).argsort(axis=1).argsort(axis=1)
        available = ranks < (self.n_available or arms)
        contexts = dense(arm_rows(features, available)[0]).reshape(steps, -1, weights.size)
        return Phase(contexts, contexts @ weights.ravel(), noise, Offers(features, available))
