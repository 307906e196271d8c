"""What a decider has learned from: all that it chose, or less. A past says how much each episode still counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Past:
    """All of the log: the base of every other past, which overrides `weights`.

    A decider whose rewards are linear has b_n = sum over the episodes i before the n-th of w_i (Phi_i theta + m_i c),
    by the Gram matrix and the sum of the contexts chosen in each. Where w is 1 for all of them, that is plain ridge
    regression.
    """

    name: ClassVar[str] = "all"
    #: by which factor an update shrinks the weights of what was known before, as a discount does
    kept: ClassVar[float] = 1.0

    def weights(self, episodes: int) -> NDArray[np.float64]:
        """How much each of the first so many episodes that the policy chose counts after them. Shape (episodes,).

        What was chosen before the policy's first episode counts in full.
        """
        return np.ones(episodes)


#: all of the log
ALL = Past()
