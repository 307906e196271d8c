"""The paper's baselines that sample nothing: behaviour cloning, and one model per episode (Table 19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.svm import LinearSVC

from ibcb.estimators.imitator import Imitator, check_log
from ibcb.log import BehaviorLog
from ibcb.numerics.printable import WrongTypeError

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


class Averaged(Imitator):
    """Fit a fresh copy of an estimator to every episode alone, and average the parameters.

    Each copy sees a log of one episode; the first carries the warm-up, which no baseline learns from. An estimator
    that needs the choices *before* an episode misses them here: `ibcb.IBCB` refuses a log of one episode without a
    warm-up, and ``ChoiceModel(width=True)`` computes its widths as if each episode were the decider's first. With
    ``BICB(sample=...)`` the share is taken of each episode.

    Parameters
    ----------
    estimator : Imitator
        Left as it is; its copies are fitted. A seed in it is every copy's seed.

    Attributes
    ----------
    coef_, next_policy_coef_ : ndarray of shape (d,)
        Means of the copies'.
    estimators_ : list of Imitator
        The copies, one per episode.

    Examples
    --------
    >>> import ibcb
    >>> from ibcb import Averaged, ChoiceModel
    >>> run = ibcb.simulate("synthetic", n_episodes=3, batch_size=200, seed=0)
    >>> model = Averaged(ChoiceModel()).fit(run.log)
    >>> len(model.estimators_)
    3
    """

    estimators_: list[Imitator]

    def __init__(self, estimator: Imitator) -> None:
        self.estimator = estimator

    @property
    def learns_rewards(self) -> bool:  # type: ignore[override]
        """As the estimator it averages."""
        return bool(getattr(self.estimator, "learns_rewards", True))

    def fit(self, log: BehaviorLog, y: None = None) -> Self:
        """One fit per episode that the policy chose."""
        check_log(log)
        estimator: Any = self.estimator
        if not isinstance(estimator, Imitator):
            shown = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
            raise WrongTypeError(
                f"estimator is {'the class ' if isinstance(estimator, type) else 'a '}{shown}; give an unfitted "
                "imitator such as BaseSVC()."
            )
        fitted = []
        for number, episode in enumerate(log):
            try:
                fitted.append(clone(estimator).fit(episode))
            except ValueError as error:
                raise ValueError(f"episode {number} alone: {error}") from error
        coef = np.mean([model.coef_ for model in fitted], axis=0)
        policy = np.mean([model.next_policy_coef_ for model in fitted], axis=0)
        return self._become(log, estimators_=fitted, coef_=coef, next_policy_coef_=policy)
