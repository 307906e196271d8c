"""The paper's "averaged" variants (Table 19): one model per episode, their parameters averaged."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone

from ibcb.estimators.imitator import Imitator, check_log
from ibcb.log import BehaviorLog
from ibcb.numerics.refusals import WrongTypeError


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
