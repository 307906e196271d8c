"""What an episode teaches its decider, summed over its chosen contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine.block import Block
from ibcb.numerics.arrays import Vector
from ibcb.numerics.ridge import Chosen, gram


class Experience(NamedTuple):
    """What an episode teaches its decider: Gram matrix and sum of its chosen contexts; with it, what names the episode.

    ``counts`` and ``chosen``, both of shape (steps,), are the candidates of each step and the position chosen.
    """

    phi: NDArray[np.float64]
    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]
    total: Vector

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    def of_chosen(self, origin: Vector | None) -> Chosen:
        """Sums over the chosen contexts, measured from an origin; None for 0."""
        own = Chosen(float(len(self.chosen)), self.total, self.phi)
        return own if origin is None else Chosen(own.count, self.total - own.count * origin, own.about(origin))

    @staticmethod
    def join(parts: Sequence[Experience]) -> Experience:
        """Of blocks in order."""
        if len(parts) == 1:
            return parts[0]
        phi, total = parts[0].phi, parts[0].total
        for part in parts[1:]:
            phi, total = phi + part.phi, total + part.total
        counts, chosen = (np.concatenate(column) for column in zip(*[part[1:3] for part in parts], strict=True))
        return Experience(phi, counts, chosen, total)


def experienced(block: Block) -> Experience:
    """What the choices of a block teach."""
    chosen = block.chosen_rows - block.offsets[:-1]
    counts = np.diff(block.offsets) if block.width is None else np.full(len(chosen), block.width)
    S = block.contexts[block.chosen_rows]
    return Experience(gram(S), counts, chosen, S.sum(axis=0, dtype=np.float64))
