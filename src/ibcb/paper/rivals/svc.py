"""Behaviour cloning: a linear classifier that separates chosen candidates from the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from sklearn.svm import LinearSVC

from ibcb.estimators.imitator import Imitator, check_log
from ibcb.log import BehaviorLog

#: liblinear squares squares, and never ends where these overflow
_LARGEST = 1e60


@dataclass(kw_only=True, eq=False, repr=False)
class BaseSVC(Imitator):
    """The paper's behaviour cloning baseline: `LinearSVC` on rows (candidate, chosen or not).

    The candidate with the largest margin wins. The warm-up's rows, chosen at random, are left out. ``coef_`` separates
    the chosen from the rest; it is no estimate of reward parameters.

    Parameters
    ----------
    C : float
        Weight of the hinge.
    max_iter : int

    Examples
    --------
    >>> import ibcb
    >>> run = ibcb.simulate("synthetic", n_episodes=2, batch_size=200, seed=0)
    >>> ibcb.BaseSVC().fit(run.log).predict(run.test_log).shape
    (400,)
    """

    learns_rewards = False

    C: float = 1.0
    max_iter: int = 1_000_000

    def fit(self, log: BehaviorLog, y: None = None) -> Self:
        """Learn from all steps that the policy chose."""
        check_log(log).check_sizes(_LARGEST)
        first = int(log.step_offsets[log.policy_steps.start])
        chosen = np.zeros(log.n_rows, dtype=np.int8)
        chosen[log.chosen_rows] = 1
        if chosen[first:].all():
            raise ValueError(
                "every step of the log has one candidate, so there is nothing to tell the chosen ones apart from."
            )
        # dual=False is the same problem, solved a hundred times sooner where rows outnumber features.
        classifier = LinearSVC(C=self.C, max_iter=self.max_iter, dual=False)
        classifier.fit(log.contexts[first:], chosen[first:])
        coef = classifier.coef_[0].astype(np.float64)
        return self._become(log, coef_=coef, next_policy_coef_=coef)
