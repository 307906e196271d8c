"""What an environment hands to the simulation, and the two environments that are made of random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ibcb.log.memory import machine_memory
from ibcb.log.pairs import arm_rows
from ibcb.numerics.arrays import Vector
from ibcb.numerics.checks import at_least_zero, finite, whole
from ibcb.numerics.contexts import dense

#: of the random streams; a stream's place seeds it, so new names come last
_STREAMS = (
    "reward parameters, warm-up contexts, warm-up choices, log contexts, log noise, test contexts, test noise, "
    "out-of-distribution contexts, expert exploration, expert fairness, expert test draws, imitator test draws, "
    "log matrix factorisation, test matrix factorisation, log candidates, test candidates, warm-up candidates, "
    "expert walk"
)


class Streams:
    """Independent random streams of one seed, by name; asking twice for a name gives the same stream afresh."""

    def __init__(self, seed: int) -> None:
        self.seed = whole("seed", seed, 0, "it names the random streams, 0 or above", most=None)

    def __getitem__(self, name: str) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(_STREAMS.split(", ").index(name),)))


class Offers(NamedTuple):
    """What is offered at some steps of a world of arms.

    Attributes
    ----------
    features : ndarray of shape (steps, m)
        Of the step.
    available : ndarray of shape (steps, arms), bool
        M of them at every step.
    """

    features: NDArray[np.float64]
    available: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Phase:
    """Some steps of a world.

    Attributes
    ----------
    contexts : ndarray of shape (steps, M, d)
    expected : ndarray of shape (steps, M)
        Mean reward of every candidate.
    noise : ndarray of shape (steps,)
        Added to the reward of whichever candidate is chosen.
    offers : Offers or None
        Of a world of arms: what the contexts were made of.
    """

    contexts: NDArray[np.float64]
    expected: NDArray[np.float64]
    noise: NDArray[np.float64]
    offers: Offers | None = None

    def rewards(self, chosen: NDArray[np.int64], steps: slice = slice(None)) -> NDArray[np.float64]:
        """Observed reward of each choice, for all steps or a slice of them."""
        earned: NDArray[np.float64] = np.take_along_axis(self.expected[steps], chosen[:, None], axis=1)[:, 0]
        return earned + self.noise[steps]

    def first(self, steps: int) -> Phase:
        """The first steps alone, without what they were made of."""
        return Phase(self.contexts[:steps], self.expected[:steps], self.noise[:steps])


@dataclass(frozen=True, slots=True)
class World:
    """The phases of one experiment: a random start, online learning in batches, then a test with a frozen policy."""

    warmup: Phase | None
    learning: Phase
    batch_size: int
    test: Phase
    ood: Phase | None = None
    feature_names: tuple[str, ...] | None = None


def check_sizes(environment: Any, *names: str) -> None:
    """Raise where a setting of an environment that is a size is not 1 or more, or its warm-up or noise below 0."""
    for name in names:
        whole(name, getattr(environment, name), 1, "it is a size")
    if hasattr(environment, "warmup"):
        whole("warmup", environment.warmup, 0, "it is a number of steps, 0 steps or more")
        at_least_zero("noise", environment.noise, "it is a standard deviation")


def check_room(steps: int, candidates: int, features: int) -> None:
    """Raise ValueError where contexts, or an expert's Gram matrix, do not fit in half of the machine's memory."""
    numbers, most = steps * candidates * features + features**2, machine_memory() // 16
    if numbers > most:
        raise ValueError(
            f"{steps} steps of {candidates} candidates with {features} features, log and tests together, and a Gram "
            f"matrix are {numbers} numbers, and at most {most} fit in half of this machine's memory; simulate less."
        )


def _world(setting: Any, streams: Streams, phase: Callable[[str, Vector], Phase], *, ood: bool = False) -> World:
    """The world of a setting with ``noise`` on its rewards; a phase is made of its name and the noise."""
    steps, warmup = setting.n_episodes * setting.batch_size, setting.warmup
    noise = setting.noise * streams["log noise"].standard_normal(warmup + steps)
    test_noise = setting.noise * streams["test noise"].standard_normal(steps)
    return World(
        phase("warm-up", noise[:warmup]) if warmup else None,
        phase("log", noise[warmup:]),
        setting.batch_size,
        phase("test", test_noise),
        phase("out-of-distribution", test_noise) if ood else None,
    )


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """The paper's synthetic data, with its values as defaults.

    Candidate j of every step has mean mu_j = 1, 0.6, ..., -2.6 in every dimension and standard deviation 0.05. Rewards
    are sigmoid(<w, s>) plus noise, with w drawn around 0.1. Out of distribution, the first candidate has another mean.

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

        return _world(self, streams, phase, ood=True)


@dataclass(frozen=True, kw_only=True)
class Arms:
    """A world of arms: one fixed set to choose from, each arm with its own weights on the features of the step.

    Features are a constant 1 and standard normal numbers; weights are N(0, 1 / m), so that what an arm earns on average
    varies by about 1. The contexts of candidates are those of `ibcb.BehaviorLog.from_arms`.

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
        arms, m, offered = self.n_arms, self.n_features, self.n_available or self.n_arms
        check_room(self.warmup + 2 * self.n_episodes * self.batch_size, offered, arms * m)
        weights = streams["reward parameters"].normal(size=(arms, m)) / np.sqrt(m)

        def phase(name: str, noise: Vector) -> Phase:
            steps = len(noise)
            features = np.ones((steps, m))
            features[:, 1:] = streams[f"{name} contexts"].standard_normal((steps, m - 1))
            ranks = streams[f"{name} candidates"].random((steps, arms)).argsort(axis=1).argsort(axis=1)
            available = ranks < offered
            contexts = dense(arm_rows(features, available)[0]).reshape(steps, -1, weights.size)
            return Phase(contexts, contexts @ weights.ravel(), noise, Offers(features, available))

        return _world(self, streams, phase)
