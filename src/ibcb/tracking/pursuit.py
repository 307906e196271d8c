"""A decider of no known kind, pursued from episode to episode by its choices alone.

Each episode is read by the tolerant conditional logit of `ibcb.numerics.laplace`: some choices may stray, and the
chosen candidate need only be among the ``top_k`` best. Between two episodes the policy may move. How far is not known,
so models that differ in it (`ibcb.tracking.bank`) learn side by side:

*settling*  moves q / (n + 1) after episode n, as one that learns from all it has seen;
*restless*  moves q / 10 each time, as one that forgets;
*still*     does not move.

Scores are in units of the decider's own randomness, and that may change too: of every move a share of the policy's
length is noise. The evidence for a model is the likelihood of each episode given those before; that of long ago counts
less, because deciders change most in their youth.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.laplace import summarise_straying
from ibcb.tracking import Interval, Site
from ibcb.tracking.bank import Bank, walk

__all__ = ["Pursuit", "Steps"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: size of a policy's scores before anything is seen, and how much less than itself a forecast is trusted
_SCORES, _VAGUE = 10.0, 2.0
_SHARE = 0.05
#: q, and how much the length of a policy may change in a move
_MOVES = np.array([0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
_LENGTH = 0.05
_FADE = 0.8
#: where the search for the share of straying steps begins, and the least to count on
_FIRST, _SURE = 0.01, 0.001
#: the model believed before there is evidence: it settles, from wide moves
_EARLY = len(_MOVES) - 2
_NAMES = (*(f"settling(q={q:g})" for q in _MOVES), *(f"restless(q={q / 10:g})" for q in _MOVES), "still")


class Steps(NamedTuple):
    """Choices: step t owns the rows offsets[t] to offsets[t + 1] - 1 of the contexts, and took the chosen[t]-th."""

    contexts: NDArray[Any]
    offsets: NDArray[np.int64]
    chosen: NDArray[np.int64]


class Pursuit:
    """Filters the policy of a decider that may be of any kind.

    Attributes
    ----------
    policies : list of ndarray of shape (d,)
        What the model then preferred believed of each episode's policy, the episode seen.
    moved : list of float
        How long the decider's own move to each episode but the first is expected to be, as a share of that between the
        policies: the rest is error of the estimates.
    stray : float
        Share of the last episode's steps that strayed.
    moves : bool
        False: the decider is known not to move.
    """

    def __init__(self, n_features: int, top_k: int = 1) -> None:
        self.top_k, self.stray, self.moves = top_k, _FIRST, True
        self.policies: list[Vector] = []
        self.moved: list[float] = []
        self.spread, self.evidence = np.eye(n_features), np.zeros(len(_NAMES))
        wide = np.tile(_SCORES**2 * self.spread, (len(_NAMES), 1, 1))
        self.bank = Bank(np.zeros((len(_NAMES), n_features)), wide)
        #: of the last policy
        self.covariance = wide[0]

    def copy(self) -> Pursuit:
        """A twin that can go its own way."""
        twin = copy.copy(self)
        twin.policies, twin.moved, twin.bank = self.policies.copy(), self.moved.copy(), copy.copy(self.bank)
        return twin

    @property
    def best(self) -> int:
        """The model preferred."""
        if not self.moves:
            return len(_NAMES) - 1
        return int(np.argmax(self.evidence)) if len(self.policies) > 1 else _EARLY

    @property
    def model(self) -> str:
        """Its name."""
        return _NAMES[self.best]

    @property
    def coming(self) -> Vector:
        """The policy of the coming episode, shape (d,)."""
        coming: Vector = self.bank.mean[self.best]
        return coming

    @property
    def still(self) -> Vector:
        """The same, of a decider that never moves."""
        still: Vector = self.bank.mean[-1]
        return still

    def add(self, steps: Steps) -> None:
        """Learn from one more episode."""
        if not self.policies:
            self.spread = _unit(steps)
            self.bank.covariance = np.tile(_SCORES**2 * self.spread, (len(_NAMES), 1, 1))
        moves, foreseen, centre = self._moves(), self.bank.covariance, self.coming
        precision = _inverse(_VAGUE * self.bank.covariance[self.best])
        loss = ChoiceLoss(*steps, top_k=self.top_k, stray=max(self.stray, _SURE))
        found = summarise_straying(loss, centre, precision)
        pull = precision @ (found.mode - centre)
        gained = self.bank.learn(_site(found.mode, found.hessian - precision, pull, found.loss))
        self.stray = found.stray
        if self.policies:
            # Nothing was foreseen of the first episode.
            self.evidence = _FADE * self.evidence + gained
        self.policies.append(self.coming)
        # With this episode counted, the model preferred may be another.
        self.policies[-1], self.covariance = self.coming, self.bank.covariance[self.best]
        if len(self.policies) > 1:
            self.moved.append(self._share(moves[self.best], foreseen[self.best] - self.covariance))
        length = np.append(np.full(len(_NAMES) - 1, _LENGTH), 0.0)
        move, means = walk(self._moves(), self.spread), length[:, None] * self.bank.mean
        self.bank.move(move._replace(noise=move.noise + means[:, :, None] * means[:, None]))

    def _moves(self) -> Vector:
        """How far each model moves before the coming episode."""
        return np.concatenate([_MOVES / (len(self.policies) + 1), _MOVES / 10, [0.0]])

    def _share(self, move: float, known: Matrix) -> float:
        """The entry of ``moved``, of an episode that took ``known`` off the covariance of its policy.

        That is the covariance of the estimate's change, which holds the decider's own move and what was learned of
        where it had been. Only what is across the policy changes choices.
        """
        p, S = self.policies[-1], _inverse(self.spread)
        along = S @ p
        change = float(np.sum(S * known)) - float(along @ known @ along) / (float(p @ along) or 1.0)
        return float(min(1.0, move * np.sqrt((len(p) - 1) / change))) if change > 0 else 1.0

    def interval(self, level: float) -> Interval:
        """Intervals for the weights of the last policy's unit direction."""
        p, C = self.policies[-1], self.covariance
        length = float(np.linalg.norm(p)) or 1.0
        p = p / length
        across = (np.eye(len(p)) - np.outer(p, p)) / length
        reach = float(ndtri((1 + level) / 2)) * np.sqrt(np.maximum((across @ C @ across).diagonal(), 0.0))
        return Interval(p, p - reach, p + reach)

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything learned so far, as named arrays and JSON."""
        arrays = {name: getattr(self, name) for name in ("spread", "evidence", "covariance")}
        arrays |= {"means": self.bank.mean, "covariances": self.bank.covariance}
        arrays |= {"policies": np.array(self.policies), "moved": np.array(self.moved)}
        return arrays, {"top_k": self.top_k, "stray": self.stray, "moves": self.moves}

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> Pursuit:
        """The object whose `get_state` this was."""
        made = cls(len(arrays["spread"]), int(state["top_k"]))
        made.stray, made.moves, made.policies = float(state["stray"]), bool(state["moves"]), list(arrays["policies"])
        made.moved = arrays["moved"].tolist()
        made.spread, made.evidence, made.covariance = arrays["spread"], arrays["evidence"], arrays["covariance"]
        made.bank = Bank(arrays["means"], arrays["covariances"])
        return made


def _site(mode: Vector, information: Matrix, pull: Vector, loss: float) -> Site:
    """An episode as a normal observation of its policy; ``pull`` is minus the gradient of its loss at the mode."""
    unit = np.sqrt(np.maximum(information.diagonal(), 0.0))
    unit[unit == 0] = 1.0
    values, V = np.linalg.eigh((information + information.T) / 2 / unit / unit[:, None])
    kept = values > 1e-10 * max(values[-1], 0.0)
    scale, V = np.sqrt(values[kept]), V[:, kept]
    root = unit[:, None] * V * scale
    ahead = V.T @ (pull / unit) / scale
    return Site(root, root.T @ mode + ahead, 0.5 * float(ahead @ ahead) - loss)


def _unit(steps: Steps) -> Matrix:
    """The inverse second moment of the candidates about their step's mean."""
    X, counts = steps.contexts.astype(np.float64, copy=False), np.diff(steps.offsets)
    centred = X - np.repeat(np.add.reduceat(X, steps.offsets[:-1], axis=0) / counts[:, None], counts, axis=0)
    S: Matrix = centred.T @ centred / len(X)
    own = S.diagonal()
    # Of a feature in which candidates never differ any scale will do.
    S.flat[:: len(S) + 1] += np.where(own > 0, _SHARE * own, 1.0)
    return _inverse(S)


def _inverse(matrix: Matrix) -> Matrix:
    inverse = np.linalg.inv(matrix).astype(np.float64, copy=False)
    symmetric: Matrix = (inverse + inverse.T) / 2
    return symmetric
