"""A sample of steps, of bounded size whatever the length of the log, that depends on the log alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.report.reading import in_double

#: numbers (steps x candidates x features) of a sample unless said, 8 MB
MOST_NUMBERS = 1 << 20
#: steps that are kept at least, however large they are
_FEWEST_STEPS = 50
#: what is kept of a step beside its contexts; ``picked`` is what somebody else would have chosen
_STEP = np.dtype([("key", "u8"), ("episode", "i8"), ("count", "i8"), ("chosen", "i8"), ("picked", "i8")])


def step_keys(episode: int, first: int, count: int) -> NDArray[np.uint64]:
    """A number for each of ``count`` steps from ``first`` on, as if drawn at random but always the same.

    The finaliser of SplitMix64 on episode and step. Steps with the smallest numbers are the sample.
    """
    with np.errstate(over="ignore"):
        z = (np.uint64(episode & 0xFFFFFFFF) << np.uint64(32)) + np.arange(first, first + count, dtype=np.uint64)
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return keys


class Lessons:
    """Steps to learn from, however they arrive.

    Parameters
    ----------
    most_numbers, most_steps : int
        What is kept at most; but at least a few steps, however large they are.

    Attributes
    ----------
    contexts : ndarray of shape (rows, d)
    steps : structured ndarray of shape (steps,)
        ``count`` (of candidates), ``chosen`` and ``picked`` of the steps kept, and what the sample goes by.
    seen : int
        Steps offered, kept or not.
    """

    def __init__(self, most_numbers: int = MOST_NUMBERS, most_steps: int = MOST_NUMBERS) -> None:
        self._most_numbers, self._most_steps, self._size = most_numbers, most_steps, 0
        self.contexts: Matrix = np.empty((0, 0))
        self.steps, self.seen = np.empty(0, dtype=_STEP), 0

    def offer(
        self,
        log: BehaviorLog,
        place: tuple[int, int],
        *,
        picked: NDArray[np.int64] | None = None,
        width: Vector | None = None,
    ) -> None:
        """Steps of an episode: ``place`` is its number and the first of them. A ``width`` becomes another feature."""
        contexts = in_double(log) if width is None else np.column_stack([in_double(log), width])
        if self._size == 0:
            fitting = self._most_numbers * log.n_steps // contexts.size
            self._size = min(self._most_steps, max(_FEWEST_STEPS, fitting))
            self.contexts = np.empty((0, contexts.shape[1]))
        steps = np.empty(log.n_steps, dtype=_STEP)
        steps["key"], steps["episode"] = step_keys(*place, log.n_steps), place[0]
        steps["count"], steps["chosen"] = np.diff(log.step_offsets), log.chosen
        steps["picked"] = log.chosen if picked is None else picked
        keys = np.append(self.steps["key"], steps["key"])
        bar = keys.max() if len(keys) <= self._size else np.partition(keys, self._size - 1)[self._size - 1]
        old, new = self.steps["key"] <= bar, steps["key"] <= bar
        rows = self.contexts[np.repeat(old, self.steps["count"])], contexts[np.repeat(new, steps["count"])]
        self.contexts = np.concatenate(rows, axis=0)
        self.steps = np.concatenate([self.steps[old], steps[new]])
        self.seen += log.n_steps

    def some(self, kept: NDArray[np.bool_]) -> Lessons:
        """Those of a mask alone, as if no others had been seen."""
        lessons = Lessons()
        lessons.contexts, lessons.steps = self.contexts[np.repeat(kept, self.steps["count"])], self.steps[kept]
        lessons.seen = len(lessons.steps)
        return lessons

    def since(self, episode: int, most_steps: int, most_numbers: int) -> Lessons:
        """Of the steps kept those from an episode on, so many or so many numbers at most."""
        late = np.flatnonzero(self.steps["episode"] >= episode)
        numbers = self.contexts.shape[1] * float(self.steps["count"][late].mean()) if len(late) else 1.0
        most = min(most_steps, max(_FEWEST_STEPS, int(most_numbers / numbers)))
        first = late[np.argsort(self.steps["key"][late], kind="stable")[:most]]
        return self.some(np.isin(np.arange(len(self.steps)), first))

    @property
    def complete(self) -> bool:
        """Whether all steps offered are kept."""
        return len(self.steps) == self.seen

    def log(self) -> BehaviorLog:
        """The steps as a log of one episode."""
        offsets = np.append(0, self.steps["count"].cumsum())
        return BehaviorLog(self.contexts, offsets, self.steps["chosen"].copy(), [0, len(self.steps)])
