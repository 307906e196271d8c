"""What an environment hands to the simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log.memory import machine_memory
from ibcb.numerics.arrays import Vector
from ibcb.numerics.checks import at_least_zero, whole

_NAMES = (
    "reward parameters",
    "warm-up contexts",
    "warm-up choices",
    "log contexts",
    "log noise",
    "test contexts",
    "test noise",
    "out-of-distribution contexts",
    "expert exploration",
    "expert fairness",
    "expert test draws",
    "imitator test draws",
    "log matrix factorisation",
    "test matrix factorisation",
    "log candidates",
    "test candidates",
    "warm-up candidates",
    "expert walk",
)


def check_room(steps: int, candidates: int, features: int) -> None:
    """Raise ValueError where contexts, or an expert's Gram matrix, do not fit in half of the machine's memory."""
    numbers, most = steps * candidates * features + features**2, machine_memory() // 16
    if numbers > most:
        raise ValueError(
            f"{steps} steps of {candidates} candidates with {features} features, log and tests together, and a Gram "
            f"matrix are {numbers} numbers, and at most {most} fit in half of this machine's memory; simulate less."
        )


def check_sizes(environment: Any, *names: str) -> None:
    """Raise where a setting of an environment that is a size is not 1 or more, or its warm-up or noise below 0."""
    for name in names:
        whole(name, getattr(environment, name), 1, "it is a size")
    if hasattr(environment, "warmup"):
        whole("warmup", environment.warmup, 0, "it is a number of steps, 0 steps or more")
        at_least_zero("noise", environment.noise, "it is a standard deviation")


class Streams:
    """Independent random streams of one seed, by name; asking twice for a name gives the same stream afresh."""

    def __init__(self, seed: int) -> None:
        self.seed = whole("seed", seed, 0, "it names the random streams, 0 or above", most=None)

    def __getitem__(self, name: str) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(_NAMES.index(name),)))


def noisy_world(setting: Any, streams: Streams, phase: Callable[[str, Vector], Phase], *, ood: bool = False) -> World:
    """The world of a setting with ``noise`` on its rewards; a phase is made of its name and the noise."""
    steps, warmup = setting.n_episodes * setting.batch_size, setting.warmup
    noise = setting.noise * streams["log noise"].standard_normal(warmup + steps)
    test_noise = setting.noise * streams["test noise"].standard_normal(steps)
    return World(
        warmup=phase("warm-up", noise[:warmup]) if warmup else None,
        learning=phase("log", noise[warmup:]),
        batch_size=setting.batch_size,
        test=phase("test", test_noise),
        ood=phase("out-of-distribution", test_noise) if ood else None,
    )


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
    ood: Phase | None
    feature_names: tuple[str, ...] | None = None
