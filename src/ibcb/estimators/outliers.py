"""The number that stands out most in a log: what to look at first where numbers cannot hold what a fit needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.engine import Block, Episode, Subscriber, replay
from ibcb.log import Log

#: times the typical size of its feature above which a number stands out; not tuned
_FAR = 1e4


class _Sizes(NamedTuple):
    """Of each feature of a block: the largest number with its step and candidate, and the median of those not 0."""

    value: NDArray[np.float64]
    step: NDArray[np.int64]
    candidate: NDArray[np.int64]
    typical: NDArray[np.float64]


@dataclass(frozen=True)
class _Outliers(Subscriber):
    """A subscriber: the sizes of every block, with the number of its episode."""

    sizes: tuple[tuple[int, _Sizes], ...] = ()

    def step(self, episode: Episode) -> _Outliers:
        return _Outliers((*self.sizes, *((episode.number, each) for each in episode.rows.map(_sizes))))

    def finish(self) -> tuple[tuple[int, _Sizes], ...]:
        return self.sizes


def largest_outlier(logs: Sequence[Log], client: Any = None) -> str:
    """Which number is the most times as large as its feature mostly is, in words; "" where none is far off."""
    (blocks,) = replay(logs, _Outliers(), client=client)
    typical = np.array([sizes.typical for _, sizes in blocks])
    typical = np.nanmedian(np.where(typical > 0, typical, np.nan), axis=0) if np.any(typical > 0) else typical[0]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.array([np.abs(sizes.value) for _, sizes in blocks]) / typical
    ratios = np.where(np.isfinite(ratios), ratios, 0.0)
    block, column = np.unravel_index(int(ratios.argmax()), ratios.shape)
    if ratios[block, column] < _FAR:
        return ""
    (episode, sizes), names = blocks[block], logs[0].feature_names
    name = str(column) if names is None else repr(names[column])
    where = f"episode {episode}{' (warm-up)' * (episode < 0)}, step {sizes.step[column]}"
    return (
        f"Look at {where}, candidate {sizes.candidate[column]}: feature {name} is {sizes.value[column]:.6g}, but about "
        f"{typical[column]:.3g} elsewhere. Correct it, or leave the step out."
    )


def _sizes(block: Block) -> _Sizes:
    X = sparse.csc_array(block.contexts)
    d = X.shape[1]
    value, row, typical = np.zeros(d), np.zeros(d, dtype=np.int64), np.zeros(d)
    for column, (first, end) in enumerate(pairwise(X.indptr)):
        numbers = X.data[first:end]
        sizes = np.abs(numbers[numbers != 0]).astype(np.float64)
        if len(sizes):
            place = int(np.abs(numbers).argmax())
            value[column], row[column], typical[column] = numbers[place], X.indices[first + place], np.median(sizes)
    step = block.step_of(row)
    return _Sizes(value, block.first_step + step, row - block.offsets[step], typical)
