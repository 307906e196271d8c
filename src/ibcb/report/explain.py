"""What a decider was thinking: how much of each choice was exploitation, how much exploration, and what it cost.

The score that a recovered SBUCB decider gives a candidate s in episode n has two parts, <p_n, s> for what it expects of
s and alpha H_n(s) for what it might learn, with p_n the policy of that time and H_n the width of the choices before it.
A Thompson sampler explores by a draw that the log does not show; the least that it can have added to the chosen
candidate is what that one lacked to the best. Regret is seen with the reward parameters of the whole log: with what the
observer knows now, not the decider then. Whether a choice went astray the other choices of its episode tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ibcb.deciders.topk import Topk
from ibcb.engine import Block
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.imitator import check_log
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.fingerprint import log_fingerprint
from ibcb.numerics.laplace import read_choices
from ibcb.numerics.ridge import Ridge, gram, ridge

__all__ = ["EpisodeThoughts", "Explanation", "StepThoughts", "explain", "explored_choices", "seen_regret"]

Vector = NDArray[np.float64]

#: scores that differ by less than this share of the largest are equal
_TIE = 1e-8


class EpisodeThoughts(NamedTuple):
    """Exploration and regret of one episode.

    Attributes
    ----------
    episode, steps : int
    explored : float
        Share of choices that exploration decided. Of an "sbucb" decider: the best candidate is another one without the
        bonus; all of them while nothing had been learned. Of an "sbts" decider: the chosen candidate is not the best;
        NaN while nothing had been learned.
    unexplained : float
        Share of choices that are not the best candidate even with exploration; 0 for "sbts", where a draw explains all.
    regret : float
        Mean over the steps of max_j <coef_, s_j> - <coef_, s_chosen>, divided by alpha for "sbucb". The unit is that of
        ``coef_``, which the log does not tell: compare episodes, not models.
    regret_share : float
        The same as a share of what choices at random would have cost: 0 for the best choices, 1 for random ones. NaN
        where candidates do not differ.
    """

    episode: int
    steps: int
    explored: float
    unexplained: float
    regret: float
    regret_share: float


class StepThoughts(NamedTuple):
    """The two parts of every candidate's score at one step, shape (M,) each.

    Of an "sbts" decider the exploration part is what the draw must at least have added to the chosen candidate, and 0
    for the others.
    """

    exploitation: Vector
    exploration: Vector


class Explanation:
    """What `explain` found.

    Attributes
    ----------
    episodes : tuple of EpisodeThoughts
    exploitation, exploration : ndarray of shape (steps,)
        Parts of the chosen candidate's score at each step that the policy chose, the warm-up left out.
    regret : ndarray of shape (steps,)
        Of each step, in the unit of `EpisodeThoughts`.
    explored : ndarray of bool, shape (steps,)
        Which choices exploration decided.
    strayed : ndarray of shape (steps,)
        How probable it is that each choice went astray.
    """

    episodes: tuple[EpisodeThoughts, ...]
    exploitation: Vector
    exploration: Vector
    regret: Vector
    explored: NDArray[np.bool_]

    def __init__(self, model: IBCB, log: BehaviorLog) -> None:
        self._log, self._policies = log, model.policy_coefs_.copy()
        self._l2, self._top_k = model.l2_, model.top_k_ or 1
        self._alpha = float(model.to_policy().alpha) if model.decider_.adds_bonus else None
        d = log.n_features
        self._prior = np.zeros((d, d)) if model.prior_gram is None else np.asarray(model.prior_gram, dtype=np.float64)
        coef = model.coef_ / (self._alpha or 1.0)
        found = [self._read(episode, number, now, coef) for number, episode, now in self._walk()]
        self.episodes = tuple(thoughts for thoughts, _ in found)
        parts = zip(*(arrays for _, arrays in found), strict=True)
        self.exploitation, self.exploration, self.regret, self.explored = (np.concatenate(part) for part in parts)

    @cached_property
    def strayed(self) -> Vector:
        """How probable it is, at each step, that the choice went astray: near 1 for those that contradict the rest.

        Of a decider of any kind: each episode is read alone, by the weights, of the width too, that explain most of its
        choices as the best candidate, or as one of the ``top_k_`` best. Where the chosen candidate was nearly as good
        as the best, nothing can be told. Found when it is first asked for. Shape (steps,).
        """
        found = []
        for _, episode, now in self._walk():
            contexts = episode.contexts.astype(np.float64, copy=False)
            seen = np.column_stack([contexts, now.widths(contexts)])
            block = Block(seen, episode.chosen_rows, episode.step_offsets, episode.candidates_per_step, 0, 0)
            scores, counts = seen @ Topk(top_k=self._top_k).policy_alone(block), np.diff(episode.step_offsets)
            found.append(read_choices(scores, counts, episode.chosen, self._top_k).strayed)
        return np.concatenate(found)

    def _walk(self) -> Iterator[tuple[int, BehaviorLog, Ridge]]:
        """The episodes that the policy chose, each with what the choices before it leave behind."""
        phi = self._prior
        for number, (by_policy, episode) in enumerate(self._log.episodes(), start=-self._log.warmup):
            if by_policy:
                yield number, episode, ridge(phi, self._l2)
            # After the episode: its own choices were made before this update.
            phi = phi + gram(episode.contexts[episode.chosen_rows])

    def candidates(self, episode: int, step: int) -> StepThoughts:
        """Both parts of the score of every candidate at one step of an episode; both are counted from 0.

        Walks through the choices before the episode, whose Gram matrix tells the widths; nothing of it is kept.
        """
        if not 0 <= episode < len(self.episodes):
            raise IndexError(f"episode {episode} does not exist; the log has episodes 0 to {len(self.episodes) - 1}.")
        if not 0 <= step < self.episodes[episode].steps:
            raise IndexError(
                f"step {step} does not exist; the episode has steps 0 to {self.episodes[episode].steps - 1}."
            )
        part, now = next((part, now) for number, part, now in self._walk() if number == episode)
        rows = part.candidates(step)
        one = BehaviorLog(rows, [0, len(rows)], part.chosen[step : step + 1], [0, 1])
        return StepThoughts(*self._scores(one, episode, now))

    def _scores(self, episode: BehaviorLog, number: int, now: Ridge) -> tuple[Vector, Vector]:
        """Exploitation and exploration part of every row of an episode."""
        contexts = episode.contexts.astype(np.float64, copy=False)
        value: Vector = contexts @ self._policies[number]
        if self._alpha is not None:
            return value, self._alpha * now.widths(contexts)
        added = np.zeros(len(value))
        added[episode.chosen_rows] = _best(value, episode) - value[episode.chosen_rows]
        return value, added

    def _read(self, episode: BehaviorLog, number: int, now: Ridge, coef: Vector) -> tuple[EpisodeThoughts, Any]:
        value, added = self._scores(episode, number, now)
        chosen, total = episode.chosen_rows, value + added
        explored = explored_choices(value, total, episode, bonus=self._alpha is not None)
        blank = self._alpha is None and not self._policies[number].any()
        regret, at_random = seen_regret(episode.contexts.astype(np.float64, copy=False) @ coef, episode)
        thoughts = EpisodeThoughts(
            number,
            episode.n_steps,
            np.nan if blank else float(explored.mean()),
            float(np.mean(total[chosen] < _best(total, episode) - _slack(total, episode))),
            float(regret.mean()),
            float(regret.sum()) / at_random if at_random > 0 else np.nan,
        )
        return thoughts, (value[chosen], added[chosen], regret, explored)


def explain(model: IBCB, log: BehaviorLog) -> Explanation:
    """How far exploration made the choices of a log, and what they cost in the eyes of the recovered reward model.

    Parameters
    ----------
    model : IBCB
        Fitted on ``log``.
    log : BehaviorLog
        Read episode by episode; only a few numbers per step are kept.

    Examples
    --------
    >>> import ibcb
    >>> run = ibcb.simulate("synthetic", n_episodes=5, batch_size=200, seed=0)
    >>> thoughts = ibcb.explain(ibcb.IBCB(l2=0.3).fit(run.log), run.log)
    >>> thoughts.episodes[0].explored > thoughts.episodes[-1].explored
    True
    >>> first = thoughts.candidates(0, 0)
    >>> first.exploitation.shape, first.exploration.shape
    ((10,), (10,))
    """
    check_is_fitted(model, "policy_coefs_")
    check_log(log)
    if log_fingerprint(log) != model.log_fingerprint_:
        raise ValueError("explain got another log than the model was fitted on; give it that log, or fit on this one.")
    return Explanation(model, log)


def explored_choices(value: Vector, total: Vector, episode: BehaviorLog, *, bonus: bool) -> NDArray[np.bool_]:
    """Which choices of an episode, or of a part of one, exploration decided; see `EpisodeThoughts`.

    Parameters
    ----------
    value, total : ndarray of shape (rows,)
        Scores without and with exploration.
    bonus : bool
        True for "sbucb"; False for a decider that draws, whose exploration the log does not show.
    """
    if bonus and not value.any():
        return np.ones(episode.n_steps, dtype=bool)
    slack = _slack(total, episode)
    decided: NDArray[np.bool_]
    if bonus:
        decided = total[_best_rows(value, episode)] < _best(total, episode) - slack
    else:
        decided = _best(value, episode) - value[episode.chosen_rows] > slack
    return decided


def seen_regret(worth: Vector, episode: BehaviorLog) -> tuple[Vector, float]:
    """What each choice cost against the step's best, and what choices at random would cost in all; ``worth`` of a row
    is <coef_, s>."""
    top = _best(worth, episode)
    means = np.add.reduceat(worth, episode.step_offsets[:-1]) / np.diff(episode.step_offsets)
    return top - worth[episode.chosen_rows], float((top - means).sum())


def _slack(total: Vector, episode: BehaviorLog) -> float:
    # An exact solution lies on the boundary of its rows: there the chosen candidate ties with another, but for
    # rounding in the float type of the contexts.
    rounding = max(_TIE, 16 * float(np.finfo(episode.contexts.dtype).eps))
    return rounding * float(np.abs(total).max(initial=0.0))


def _best_rows(scores: Vector, log: BehaviorLog) -> NDArray[np.int64]:
    rows: NDArray[np.int64] = log.step_offsets[:-1] + argmax_per_step(scores, log)
    return rows


def _best(scores: Vector, log: BehaviorLog) -> Vector:
    """The largest score of each step."""
    best: Vector = scores[_best_rows(scores, log)]
    return best
