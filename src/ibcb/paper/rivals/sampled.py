"""What B-IRL and B-ICB share: choices as a softmax of scores, a seed, a bar that shows how far the sampler is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from tqdm import tqdm

from ibcb.estimators.imitator import Imitator, check_log
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Vector
from ibcb.numerics.checks import generator, positive


@dataclass(kw_only=True, eq=False, repr=False)
class Sampled(Imitator):
    """An imitator whose rewards are sampled."""

    inverse_temperature: float = 20.0
    random_state: int | None = None
    verbose: bool = False

    def _begin(self, log: BehaviorLog) -> tuple[float, np.random.Generator]:
        """The k of the softmax and the random numbers, of a log that is one."""
        check_log(log)
        scale = positive("inverse_temperature", self.inverse_temperature, "choices would be random")
        return scale, generator(self.random_state)

    def _recovered(self, log: BehaviorLog, coef: Vector, **fitted: Any) -> Self:
        """Fitted, with one vector for rewards and policy."""
        return self._become(log, coef_=coef, next_policy_coef_=coef, **fitted)


def progress(count: int, name: str, unit: str, *, shown: bool) -> Any:
    """Numbers from 0, with a bar on a terminal if it takes longer than a second."""
    # disable=None: silent unless stderr is a terminal.
    return tqdm(range(count), desc=name, unit=unit, delay=1, leave=False, disable=None if shown else True)
