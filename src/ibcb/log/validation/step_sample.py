"""Some steps of an episode, evenly spread, for tests that take more than a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ibcb.log import BehaviorLog
from ibcb.numerics.contexts import taken

#: of a sample; decision 0006 tells what is found with so many steps and candidates. Numbers: 8 MB
_MOST_STEPS, _MOST_CANDIDATES, _MOST_NUMBERS = 768, 16, 2**20


def due(number: int) -> bool:
    """Whether an episode is looked at closely: the first 32, then 16 each time the number doubles."""
    return number % (1 << max(0, abs(number).bit_length() - 5)) == 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Steps of one episode, with the chosen candidate first in each.

    ``steps`` are their numbers within the episode; the t-th of them owns the rows offsets[t] to offsets[t + 1] - 1.
    """

    steps: NDArray[np.int64]
    contexts: NDArray[np.float64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, part: BehaviorLog, steps: NDArray[np.int64], first_step: int) -> Self:
        """Some steps of a part whose own first step has the number ``first_step``.

        Of more than 16 candidates, the chosen one and 15 others: McFadden's sampling of alternatives.
        """
        M, c = np.diff(part.step_offsets)[steps], part.chosen[steps]
        m = np.minimum(M, _MOST_CANDIDATES)
        offsets = np.concatenate([[0], np.cumsum(m)])
        k = np.arange(offsets[-1]) - np.repeat(offsets[:-1], m)
        # Positions counted from the chosen candidate: 0 is itself, then m - 1 of the M - 1 others, evenly spread.
        ahead = np.where(k > 0, 1 + (k - 1) * np.repeat(M - 1, m) // np.repeat(np.maximum(m - 1, 1), m), 0)
        rows = np.repeat(part.step_offsets[steps], m) + (np.repeat(c, m) + ahead) % np.repeat(M, m)
        return cls(steps + first_step, taken(part.contexts, rows).astype(np.float64), offsets)

    def centred(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The contexts about the mean of their step, and the means."""
        counts, chosen = np.diff(self.offsets), self.contexts[self.offsets[:-1]]
        # First about the chosen candidate, which comes first: what all candidates share cancels without rounding.
        centred = self.contexts - np.repeat(chosen, counts, axis=0)
        means = per_step(centred, self.offsets) / counts[:, None]
        centred -= np.repeat(means, counts, axis=0)
        return centred, means + chosen

    def where(self, keep: NDArray[np.bool_]) -> Self:
        """Only the steps marked."""
        counts = np.diff(self.offsets)
        offsets = np.concatenate([[0], np.cumsum(counts[keep])])
        return type(self)(self.steps[keep], self.contexts[np.repeat(keep, counts)], offsets)

    def between(self, first: int, last: int) -> Self:
        """Its steps first to last - 1."""
        offsets = self.offsets[first : last + 1]
        return type(self)(self.steps[first:last], self.contexts[offsets[0] : offsets[-1]], offsets - offsets[0])

    def join(self, other: Self) -> Self:
        """These steps and then the other's."""
        return type(self)(
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.contexts, other.contexts]),
            np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
        )

    def across(self, following: Self) -> Self:
        """The end of this episode and the beginning of the next, equally many steps of both."""
        half = min(len(self.steps), len(following.steps)) // 2
        before = np.arange(len(self.steps)) >= len(self.steps) - half
        return self.where(before).join(following.where(np.arange(len(following.steps)) < half))

    def log(self) -> BehaviorLog:
        """As a log of one episode."""
        n = len(self.steps)
        return BehaviorLog(self.contexts, self.offsets, np.zeros(n, dtype=np.int64), [0, n])


class Sampler:
    """Every k-th step of an episode that comes in parts, k being the least power of two that keeps the sample small.

    So the sample does not depend on where the parts were cut.
    """

    def __init__(self, most_steps: int = _MOST_STEPS, most_numbers: int = _MOST_NUMBERS) -> None:
        self.sample: Sample | None = None
        self._stride = 1
        self._most_steps, self._most_numbers = most_steps, most_numbers

    def add(self, part: BehaviorLog, first_step: int) -> None:
        """The next part; ``first_step`` is the number of its first step within the episode."""
        most = self._most_steps
        for first in range(0, part.n_steps, most):
            steps = np.arange(first, min(first + most, part.n_steps))
            fresh = Sample.of(part, steps[(steps + first_step) % self._stride == 0], first_step)
            sample: Sample = fresh if self.sample is None else self.sample.join(fresh)
            while len(sample.steps) > most or (len(sample.steps) > 1 and sample.contexts.size > self._most_numbers):
                self._stride *= 2
                sample = sample.where(sample.steps % self._stride == 0)
            self.sample = sample


def per_step(values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Sums over the rows of each step."""
    sums: NDArray[Any] = np.add.reduceat(values, offsets[:-1], axis=0)
    return sums


def probabilities(u: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each row's choice, by a logit with utilities u."""
    counts = np.diff(offsets)
    p: NDArray[np.float64] = np.exp(u - np.repeat(np.maximum.reduceat(u, offsets[:-1]), counts))
    p /= np.repeat(per_step(p, offsets), counts)
    return p
