"""Do logged propensities sum to 1, do they tell anything, and were the choices drawn with them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from ibcb.log.behavior_log import BehaviorLog
from ibcb.log.choice_propensities import sum_tolerance

#: how far a propensity may be from 1 / candidates, as a share of it, to be even: they are often rounded
_EVEN = 0.02


class LoggedScan:
    """Counts of the steps of a log by what was logged of their propensities. Steps with one candidate tell nothing.

    ``count`` has all ``steps``; ``chosen``, those whose choice has a propensity; ``complete``, those whose candidates
    all have one; of these those that are ``off``, not summing to 1. The choices of the others have a surprise -log p
    that is known in mean and variance. Of the choices with a propensity between candidates, ``told``, the ``certain``.
    """

    def __init__(self) -> None:
        self.count = Counter[str]()
        self.first_off: tuple[str, float] | None = None
        self.surprise = self.variance = 0.0
        #: of each episode: choices ``told``, and ``even`` ones, which were as likely as all others
        self.episodes: dict[int, Counter[str]] = {}

    def add(self, number: int, part: BehaviorLog, p: NDArray[np.float64] | None, place: Callable[[int], str]) -> None:
        """Count the steps of a part, whose rows have propensities p; ``place`` names them."""
        self.count["steps"] += part.n_steps
        if p is None:
            return
        counts, starts = np.diff(part.step_offsets), part.step_offsets[:-1]
        of_chosen = p[part.chosen_rows]
        known = ~np.isnan(of_chosen)
        sums = np.add.reduceat(p, starts)
        complete = ~np.isnan(sums)
        off = complete & (np.abs(sums - 1) > sum_tolerance(counts))
        if off.any() and self.first_off is None:
            self.first_off = place(int(np.argmax(off))), float(sums[off][0])
        told = known & (counts > 1)
        marks = {"chosen": known, "complete": complete, "off": off, "told": told, "certain": told & (of_chosen == 1)}
        self.count.update({name: int(marked.sum()) for name, marked in marks.items()})
        even = told & (np.abs(of_chosen * counts - 1) < _EVEN)
        self.episodes.setdefault(number, Counter()).update(told=int(told.sum()), even=int(even.sum()))
        sound = complete & ~off & (counts > 1)
        if sound.any():
            # 0 log 0 is 0; candidates with propensity 0 add nothing.
            entropy = -np.add.reduceat(xlogy(p, p), starts)
            log_p = np.log(np.where(p > 0, p, 1.0))
            square = np.add.reduceat(p * log_p**2, starts)
            self.surprise += float((-np.log(of_chosen[sound]) - entropy[sound]).sum())
            self.variance += float((square[sound] - entropy[sound] ** 2).sum())

    @property
    def deviations(self) -> float:
        """By how many standard deviations the choices are less likely than draws would be."""
        return self.surprise / np.sqrt(self.variance) if self.variance > 0 else 0.0

    @property
    def evenly(self) -> dict[int, bool]:
        """Of each episode that the policy chose, as far as it tells: were its choices drawn evenly?"""
        policy = {number: told for number, told in self.episodes.items() if number >= 0 and told["told"]}
        return {number: told["even"] > 0.99 * told["told"] for number, told in policy.items()}
