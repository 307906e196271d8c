"""What a decider was thinking: how much of each choice was exploitation, how much exploration, and what it cost.

`ibcb.report.reading` has the formulas. Whether a choice went astray the other choices of its episode tell.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ibcb.engine import Episode, History, Subscriber, replay
from ibcb.estimators.fitting import AnotherLogError, Fit
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.imitator import check_log
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Vector
from ibcb.numerics.contexts import dense
from ibcb.report.reading import Decider, EpisodeThoughts, Scores, in_double, read_parts, score
from ibcb.report.verdict import explained_exactly


class StepThoughts(NamedTuple):
    """The two parts of every candidate's score at one step, shape (M,) each.

    Of any decider but "sbucb" the exploration part is what luck must at least have added to the chosen candidate, and 0
    for the others.
    """

    exploitation: Vector
    exploration: Vector


@dataclass(frozen=True, eq=False)
class Explanation:
    """What `explain` gives.

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
        How probable it is that each choice went astray: near 1 for those that contradict the rest. Of a decider of any
        kind: each episode is read alone, by the weights, of the width too, that explain most of its choices as the best
        candidate, or as one of the ``top_k_`` best. Where the chosen candidate was nearly as good as the best, nothing
        can be told. A choice that the policy of the time makes too is not accused, and none is where reward weights
        explain every choice exactly. `ranked` lists the steps by it.
    preferred : ndarray of shape (steps,)
        The candidate that the policy of the time put first, of an "sbucb" decider with the bonus: the chosen one where
        that is as good as any. -1 while nothing had been learned that could prefer one.
    """

    episodes: tuple[EpisodeThoughts, ...]
    exploitation: Vector
    exploration: Vector
    regret: Vector
    explored: NDArray[np.bool_]
    strayed: Vector
    preferred: NDArray[np.int64]
    _decider: Decider = field(repr=False)
    _log: BehaviorLog = field(repr=False)
    _before: History = field(repr=False)

    def ranked(self) -> pa.Table:
        """All steps that the policy chose, those first whose choice most probably went astray.

        Returns
        -------
        steps : pyarrow.Table
            ``episode`` and ``step``, each counted from 0; ``step_id`` and ``timestamp`` where the log has them;
            ``chosen``, ``preferred`` (null while nothing had been learned) and ``probability``, which is `strayed`.
        """
        counts = [episode.steps for episode in self.episodes]
        columns: dict[str, Any] = {
            "episode": np.repeat(np.arange(len(counts)), counts),
            "step": np.concatenate([np.arange(count) for count in counts]),
        }
        steps = self._log.policy_steps
        both = {"step_id": self._log.step_ids, "timestamp": self._log.timestamps}
        columns |= {name: values[steps] for name, values in both.items() if values is not None}
        columns |= {
            "chosen": self._log.chosen[steps],
            "preferred": pa.array(self.preferred, mask=self.preferred < 0),
            "probability": self.strayed,
        }
        return pa.table(columns).take(np.argsort(-self.strayed, kind="stable"))

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
        (scores,) = replay([self._log], _OneStep(self._decider, episode, step), before=self._before)
        return StepThoughts(scores.expected, scores.exploration)


def explain(model: IBCB, log: BehaviorLog) -> Explanation:
    """How far exploration made the choices of a log, and what they cost in the eyes of the policy right after it.

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
    >>> thoughts.ranked().column_names
    ['episode', 'step', 'chosen', 'preferred', 'probability']
    """
    check_is_fitted(model, "policy_coefs_")
    check_log(log)
    before, lens = model._starts(log), model._lens
    model, log = model.as_tracked(), lens.log(log).read()
    alpha = float(model.to_policy().alpha) if model.decider_.per_unit is not None else None
    # A copy: partial_fit may go on while the explanation is kept.
    policies = model.policy_coefs_.copy()
    decider = Decider.of(model, policies, alpha, model.next_policy_coef_ / (alpha or 1.0))
    try:
        (told,) = replay([log], _Explaining(decider, model._fit), before=before)
    except AnotherLogError:
        raise ValueError(
            "explain got another log than the model was fitted on; give it that log, or fit on this one."
        ) from None
    episodes, (exploitation, exploration, regret, explored, strayed, preferred) = told
    return Explanation(episodes, exploitation, exploration, regret, explored, strayed, preferred, decider, log, before)


class _Explaining(Subscriber):
    """A subscriber; ``names``: of the fitted log after each episode. Raises where another log goes by."""

    def __init__(self, decider: Decider, fit: Fit) -> None:
        self._decider, self._fit, self._names = decider, fit, fit.evolution.names
        self._excused = explained_exactly(fit.evolution.theta, fit.evolution.diagnostics)
        self._stored = 0
        self._episodes: list[EpisodeThoughts] = []
        self._steps: list[tuple[NDArray[Any], ...]] = []

    def step(self, episode: Episode) -> _Explaining:
        """One more episode."""
        if self._names[self._stored : self._stored + 1] != (episode.after.fingerprint,):
            raise AnotherLogError(self._stored)
        self._stored += 1
        if not episode.by_policy:
            return self
        decider, number, sums = self._decider, episode.number, Counter[str]()
        nothing = decider.alpha is None and not decider.policies[number].any()
        for part in read_parts(episode, self._fit, decider.kind.ridge(episode.before), excused=self._excused):
            scores, chosen = score(decider, number, part.log, part.width), part.log.chosen_rows
            sums.update(scores.sums)
            parts = scores.expected[chosen], scores.exploration[chosen], scores.regret, scores.explored
            self._steps.append((*parts, part.strayed, np.full(len(part.picked), -1) if nothing else part.picked))
        self._episodes.append(EpisodeThoughts.of(decider, number, sums))
        return self

    def finish(self) -> tuple[tuple[EpisodeThoughts, ...], list[NDArray[Any]]]:
        """What is told of each episode, and of each step."""
        if self._stored != len(self._names):
            raise AnotherLogError(self._stored)
        return tuple(self._episodes), [np.concatenate(column) for column in zip(*self._steps, strict=True)]


class _OneStep(Subscriber):
    """A subscriber: the scores of one step."""

    def __init__(self, decider: Decider, number: int, step: int) -> None:
        self._decider, self._number, self._place = decider, number, step
        self._scores: Scores | None = None

    def step(self, episode: Episode) -> _OneStep:
        """One more episode."""
        if episode.number == self._number:
            (part,) = episode.rows.parts()
            rows = dense(part.candidates(self._place))
            one = BehaviorLog(rows, [0, len(rows)], part.chosen[self._place : self._place + 1], [0, 1])
            width = self._decider.kind.ridge(episode.before).widths(in_double(one))
            self._scores = score(self._decider, self._number, one, width)
        return self

    def finish(self) -> Scores | None:
        return self._scores
