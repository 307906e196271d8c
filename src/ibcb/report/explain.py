"""What a decider was thinking: how much of each choice was exploitation, how much exploration, and what it cost.

`ibcb.report.scores` has the formulas. Whether a choice went astray the other choices of its episode tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.imitator import check_log
from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.fingerprint import log_fingerprint
from ibcb.log.history import history
from ibcb.report.misfits import read_alone
from ibcb.report.scores import Decider, EpisodeThoughts, Scores, ThoughtTotals, score

__all__ = ["EpisodeThoughts", "Explanation", "StepThoughts", "explain"]

Vector = NDArray[np.float64]


class StepThoughts(NamedTuple):
    """The two parts of every candidate's score at one step, shape (M,) each.

    Of any decider but "sbucb" the exploration part is what luck must at least have added to the chosen candidate, and 0
    for the others.
    """

    exploitation: Vector
    exploration: Vector


@dataclass(frozen=True, eq=False)
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
        How probable it is that each choice went astray: near 1 for those that contradict the rest. Of a decider of any
        kind: each episode is read alone, by the weights, of the width too, that explain most of its choices as the best
        candidate, or as one of the ``top_k_`` best. Where the chosen candidate was nearly as good as the best, nothing
        can be told. `ranked` lists the steps by it.
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
        entry = next(entry for entry in history(self._log, self._decider.prior_gram) if entry.number == episode)
        rows = entry.part.candidates(step)
        one = BehaviorLog(rows, [0, len(rows)], entry.part.chosen[step : step + 1], [0, 1])
        before = int(self._log.episode_offsets[self._log.warmup + episode])
        scores = score(self._decider, episode, self._decider.ridge(entry, before), one)
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
    if log_fingerprint(log) != model.log_fingerprint_:
        raise ValueError("explain got another log than the model was fitted on; give it that log, or fit on this one.")
    reduction = model._reduction
    if reduction is not None:
        model, log = model.as_tracked(), reduction.reduced(log)
    alpha = float(model.to_policy().alpha) if model.decider_.adds_bonus else None
    # A copy: partial_fit may go on while the explanation is kept.
    policies = model.policy_coefs_.copy()
    decider = Decider.of(model, policies, alpha, model.next_policy_coef_ / (alpha or 1.0))
    episodes, steps = [], []
    for entry in history(log, decider.prior_gram):
        if not entry.by_policy:
            continue
        tally, part = ThoughtTotals(), entry.part
        before = int(log.episode_offsets[log.warmup + entry.number])
        scores = score(decider, entry.number, decider.ridge(entry, before), part)
        tally.add(scores)
        episodes.append(tally.thoughts(decider, entry.number))
        chosen = part.chosen_rows
        astray = read_alone(part, scores.width, model.top_k_ or 1)
        parts = scores.expected[chosen], scores.exploration[chosen], scores.regret, scores.explored
        steps.append((*parts, astray, _preferred(decider, entry.number, scores, part)))
    found = (np.concatenate(of_episodes) for of_episodes in zip(*steps, strict=True))
    exploitation, exploration, regret, explored, strayed, preferred = found
    return Explanation(tuple(episodes), exploitation, exploration, regret, explored, strayed, preferred, decider, log)


def _preferred(decider: Decider, number: int, scores: Scores, episode: BehaviorLog) -> NDArray[np.int64]:
    """The candidate that the policy of an episode put first at each step; -1 where it preferred none."""
    if decider.alpha is not None:
        first, other = argmax_per_step(scores.expected + scores.exploration, episode), scores.unexplained
    elif decider.policies[number].any():
        first, other = argmax_per_step(scores.expected, episode), scores.explored
    else:
        return np.full(episode.n_steps, -1)
    # An exact solution ties the chosen candidate with others, but for rounding.
    return np.where(other, first, episode.chosen)
