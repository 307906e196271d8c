"""The choice model that an engineer would try first: a conditional logit (McFadden 1974) on the latest episodes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Experience, History, blocks, experienced, one_blas_thread
from ibcb.estimators.imitator import Imitator, check_log
from ibcb.estimators.remarks import largest_outlier
from ibcb.estimators.state import number
from ibcb.log import BehaviorLog
from ibcb.numerics.checks import boolean, positive, whole
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.contexts import SMALLEST, Contexts, is_sparse, shown_counts, with_column
from ibcb.numerics.laplace import summarise
from ibcb.numerics.newton import SolverError, Stopping
from ibcb.numerics.ridge import Regularization

#: Far below what the rounding of a score does to a choice. Passes are not tuned: 5 to 30 are needed, most by separable
#: choices.
_STOPPING = Stopping(gain=1e-11, slack=1e-12, max_passes=200)


class ChoiceModel(Imitator):
    """Conditional logit on the choices of the last episodes.

    Minimises, over one weight w_f per feature (and one for the width, if asked for),

        F(w) = sum_steps -log softmax(<w, s>)[chosen]  +  ridge / 2 sum_f (u_f w_f)^2,

    the log-loss summed, not averaged, over the steps. u_f is the feature's unit: its root mean square where it is not
    0, among the chosen candidates, or among all if these never show it. So units do not matter: a feature times a
    number has its weight divided by it. The warm-up's steps are left out; a step with one candidate contributes
    nothing. A decider that always takes its best candidate leaves choices that are separable, so without the ridge the
    weights would grow for ever. ``coef_`` is what it prefers, in units of its choices' randomness.

    Parameters
    ----------
    episodes : int, optional
        How many of the last episodes to learn from, all of them if the log has fewer; None: all.
    width : bool
        Let the decider also seek the confidence width H(s) = sqrt(s' Psi^-1 s), Psi = l2 I + the Gram matrix of all
        choices made before the episode, the warm-up's included. It explains exploration, so that the other weights
        need not; `predict` acts greedily, without it.
    ridge : float
        Of the formula above.
    l2 : float
        Ridge parameter lambda of the decider, used by ``width`` only.

    Attributes
    ----------
    coef_, next_policy_coef_ : ndarray of shape (d,)
    width_coef_ : float or None
        Weight of the width; None without it.
    n_passes_ : int
        Passes over the choices that Newton's method took.

    Examples
    --------
    >>> import ibcb
    >>> from ibcb.estimators.choice_model import ChoiceModel
    >>> run = ibcb.simulate("synthetic", n_episodes=3, batch_size=300, seed=0)
    >>> ChoiceModel(episodes=1).fit(run.log).score(run.log[2]) > 0.9
    True
    """

    width_coef_: float | None
    n_passes_: int

    def __init__(self, *, episodes: int | None = 1, width: bool = False, ridge: float = 1e-3, l2: float = 1.0) -> None:
        self.episodes = episodes
        self.width = width
        self.ridge = ridge
        self.l2 = l2

    def fit(self, log: BehaviorLog, y: None = None) -> Self:
        """Newton's method on the choices of the last episodes."""
        check_log(log)
        count = len(log)
        if self.episodes is not None:
            count = min(count, whole("episodes", self.episodes, 1, "it counts episodes to learn from, None takes all"))
        penalty = positive("ridge", self.ridge, "separable choices would have no finite weights")
        l2 = positive("l2", self.l2, "without it Psi has no inverse before the first update")
        width = boolean("width", self.width)

        first = len(log) - count
        steps = slice(int(log.episode_offsets[log.warmup + first]), log.n_steps)
        contexts, offsets, chosen = log.step_arrays(steps)
        if width:
            contexts = with_column(contexts, _widths(log, first, Regularization(l2)))
        loss = ChoiceLoss(contexts, offsets, chosen)
        if loss.empty:
            raise ValueError(
                f"no step of the last {count} episode{'s' * (count != 1)} has candidates that differ, so there is "
                "nothing to tell the chosen ones apart from. Raise episodes, or set it to None."
            )
        n = loss.n_features
        squares = _mean_squares(contexts, offsets, chosen)
        for column in np.flatnonzero(squares < SMALLEST**2)[:1].tolist():
            name = column if log.feature_names is None else repr(log.feature_names[column])
            size = np.sqrt(squares[column])
            raise ValueError(
                f"feature {name} is about {size:.3g}; squares of numbers below {SMALLEST:g} vanish. Rescale it to "
                "about 1, or leave it out."
            )
        try:
            summary = summarise(loss, np.zeros(n), penalty * np.diag(squares), stopping=_STOPPING)
        except SolverError as error:
            raise SolverError(f"{error} {largest_outlier([log])}".rstrip()) from error
        coef, of_width = summary.mode[: log.n_features], summary.mode[log.n_features :]
        return self._become(
            log,
            coef_=coef,
            next_policy_coef_=coef,
            width_coef_=float(of_width[0]) if width else None,
            n_passes_=summary.passes,
        )

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything that fitting set, as named arrays and JSON: what `ibcb.save_model` stores."""
        arrays, state = super().get_state()
        return arrays, state | {"width_coef": self.width_coef_, "n_passes": self.n_passes_}

    def set_state(self, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> None:
        """Become fitted with what `get_state` gave."""
        super().set_state(arrays, state)
        width = state["width_coef"]
        self.width_coef_ = None if width is None else number(float, width, "width_coef")
        self.n_passes_ = number(int, state["n_passes"], "n_passes")


def _widths(log: BehaviorLog, first: int, l2: Regularization) -> NDArray[Any]:
    """H of all candidates from the policy's episode ``first`` on, each with the Gram matrix of the choices before."""
    d, widths = log.n_features, list[NDArray[Any]]()
    before = History.before_the_log(np.zeros((d, d)))
    with one_blas_thread():
        for by_policy, episode in log.episodes():
            if by_policy and before.episodes >= first:
                widths.append(before.ridge(l2).widths(episode.contexts))
            before = before.after(Experience.join([*map(experienced, blocks(episode))]), by_policy=by_policy)
    return np.concatenate(widths)


def _mean_squares(contexts: Contexts, offsets: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each feature where it is not 0, among the chosen candidates or, if none of these shows it, among all.

    1 if none does. Steps with one candidate are left out.
    """
    means, counts = np.ones(contexts.shape[1]), np.diff(offsets)
    several = counts > 1
    for rows in (contexts[np.flatnonzero(np.repeat(several, counts))], contexts[(offsets[:-1] + chosen)[several]]):
        if is_sparse(rows):
            values = rows.data.astype(np.float64)
            squares = np.bincount(rows.indices, values**2, minlength=len(means))
        else:
            squares = np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
        present = shown_counts(rows)
        means = np.where(present > 0, squares / np.maximum(present, 1), means)
    return means
