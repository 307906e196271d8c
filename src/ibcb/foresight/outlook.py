"""Foresight: the policy of a decider as its log unfolds, the one it will have next, and how sure that is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.special import ndtri

from ibcb.constraints import Experience, experienced
from ibcb.engine import Block, MemoryRows, Rows, blocks
from ibcb.foresight.bank import Bank, learner, walk
from ibcb.foresight.cell import draw_from_cell
from ibcb.foresight.sample import ContextSample, picked
from ibcb.foresight.sites import Bounds, Site, observe
from ibcb.log import BehaviorLog
from ibcb.ridge import Ridge, ridge

__all__ = ["Foreseen", "Foresight", "Interval"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: size of a policy's scores, and of rewards, before anything is seen; in units of alpha
_SCORES, _REWARDS = 10.0, 5.0
_SHARE = 0.05
#: how far the first policy may lie from what the learner's law makes of the warm-up
_START = 0.1
#: q of the walks; sigma and q of the learners
_WALKS = np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
_SIGMA, _WANDER = (grid.ravel() for grid in np.meshgrid([0.05, 0.2, 0.8, 1.6, 3.2, 8.0], [0.0, 0.03]))
#: the expansion point of an episode trusts the walk's forecast this much less than the walk does
_VAGUE = 25.0
_JUDGED_STEPS = 256
_SIGNIFICANT = 2.0
_DRAWS = 200


class Foreseen(NamedTuple):
    """One episode as the model then preferred foresaw it."""

    model: str
    log_likelihood: float
    agreement: float


class Interval(NamedTuple):
    """Policy weights between which the true ones lie with the asked probability, each shape (d,)."""

    estimate: Vector
    lower: Vector
    upper: Vector


class Foresight:
    """Filters the policy of a decider, episode by episode.

    Every episode is summarised once (`ibcb.foresight.sites`); then models of two families (`ibcb.foresight.bank`) learn
    from it side by side. The model with the highest evidence is believed, unless others foresaw significantly more of
    the choices: then the best of these. A learner's forecast runs the recovered decider forward, a walk's stays where
    it is.

    Policies are for alpha = 1. Of an "sbts" decider that draws once an episode only the direction is meant.

    Parameters
    ----------
    l2 : float
        Ridge parameter of the decider.
    draws : bool
        True for "sbts", False for "sbucb".
    gram : ndarray of shape (d, d)
        Gram matrix of the contexts chosen before the log begins, zeros if there were none.

    Attributes
    ----------
    foreseen : list of Foreseen
        One entry per episode.
    """

    #: S^-1 of the first episode's candidates, the unit of policies
    spread: Matrix
    walks: Bank
    learners: Bank
    #: log-likelihood and foreseen steps of every model, and for every two the steps that only the first foresaw
    evidence: Vector
    hits: NDArray[np.int64]
    apart: NDArray[np.int64]
    judged: int
    best: int
    #: episodes before the first policy that had learned anything
    blank: int
    #: what all episodes together told of p, the rows of the last, and its k
    information: Matrix
    bounds: Bounds | None
    sharpness: float
    #: mean and covariance of the last episode's policy by its own rows alone
    alone: tuple[Vector, Matrix]
    #: of the last episode: what is believed of its policy, by the model preferred and by a walk
    policy: Vector
    walked: tuple[Vector, Matrix]
    #: for running on: candidate sets, and the steps of an episode
    sample: ContextSample
    steps: int

    def __init__(self, l2: float, gram: Matrix, *, draws: bool) -> None:
        self.l2, self.draws, self.phi = l2, draws, gram
        # Of choices before the log the Gram matrix may be known, but never the sum.
        self.past: Vector | None = None if gram.any() else np.zeros(len(gram))
        self.foreseen: list[Foreseen] = []
        #: episodes so far, the warm-up's counted
        self.stored = 0

    def copy(self) -> Foresight:
        """A twin that can go its own way."""
        twin = copy.copy(self)
        twin.foreseen = self.foreseen.copy()
        if self.foreseen:
            twin.walks, twin.learners = copy.copy(self.walks), copy.copy(self.learners)
        return twin

    # -- learning --------------------------------------------------------------------------------------------------

    def skip(self, lesson: Experience) -> None:
        """Count an episode that the policy did not choose: it only taught the decider."""
        self.past = None if self.past is None else self.past + lesson.total
        self.phi, self.stored = self.phi + lesson.phi, self.stored + 1

    def add(self, rows: Rows, before: Ridge, lesson: Experience) -> None:
        """Learn from one more episode of the policy's choices.

        Of a long episode the first block is enough: its policy made the others too.

        Parameters
        ----------
        rows : Rows
            The episode's.
        before : Ridge
            Of all choices before it.
        lesson : Experience
        """
        number = len(self.foreseen)
        if number == 0:
            self._begin(rows.head(_measure), before)
        look = partial(
            _look,
            ridge=before,
            policies=self.next_policies,
            centre=self.next_policies[self.best],
            precision=self._vague(),
            draws=self.draws,
            sharpness=self.sharpness,
            sample=partial(picked, most=self.sample.bar, episode=number),
        )
        hits, site, fresh = rows.head(look)
        gained = np.concatenate([self.walks.learn(site), self.learners.learn(site)])
        self.foreseen.append(Foreseen(_NAMES[self.best], float(gained[self.best]), float(hits[:, self.best].mean())))
        self.sharpness, self.bounds, self.evidence = site.sharpness, site.bounds, self.evidence + gained
        told = site.root @ site.root.T
        shape = _inverse(told + _inverse(_SCORES**2 * self.spread))
        self.information, self.alone = self.information + told, (shape @ (site.root @ site.seen), shape)
        if number > self.blank:
            # Nothing could be foreseen of an episode whose policy is the first that had learned anything.
            self.judged += len(hits)
            self.hits = self.hits + hits.sum(axis=0)
            self.apart = self.apart + hits.T.astype(np.int64) @ ~hits
        self.best = self._choose()
        likeliest = int(np.argmax(self.evidence[: len(_WALKS)]))
        self.policy, self.walked = self._belief(self.best)[0], self._belief(likeliest)
        self.sample = self.sample.extend(fresh)
        self.steps, self.phi, self.stored = len(lesson.counts), before.phi + lesson.phi, self.stored + 1
        self.walks.move(walk(_WALKS, self.spread))
        self.learners.move(learner(_SIGMA, _WANDER, self.spread, _psi(before.phi, self.l2), lesson.phi, lesson.total))

    def follow(self, log: BehaviorLog) -> Self:
        """Learn from the episodes of a log in memory, without solving anything."""
        for by_policy, episode in log.episodes():
            self.learn(episode, by_policy)
        return self

    def learn(self, episode: BehaviorLog, by_policy: bool) -> None:
        """Learn from an episode in memory, chosen by the policy or not."""
        rows = MemoryRows(blocks(episode))
        lesson = Experience.join(list(rows.map(experienced)))
        if by_policy:
            self.add(rows, ridge(self.phi, self.l2), lesson)
        else:
            self.skip(lesson)

    def _begin(self, measured: tuple[Matrix, Vector, int], before: Ridge) -> None:
        d, K = len(before.phi), len(_SIGMA)
        S, present, count = measured
        # Scores are bounded where a feature shows, however rarely it does; of one that never does any scale will do.
        shown = np.where(present > 0, S.diagonal() / np.maximum(present, 1.0), 1.0)
        S = S / count
        S.flat[:: d + 1] += _SHARE * shown
        self.spread = _inverse(S)
        prior = _SCORES**2 * self.spread
        self.walks = Bank(np.zeros((len(_WALKS), d)), np.broadcast_to(prior, (len(_WALKS), d, d)))
        state = np.zeros((K, 2 * d + 1, 2 * d + 1))
        state[:, d:-1, d:-1], state[:, -1, -1] = _REWARDS**2 * self.spread, _REWARDS**2
        self.learners = Bank(np.zeros((K, 2 * d + 1)), state)
        if self.past is None:
            state[:, :d, :d] = prior
        else:
            # The choices before the log taught the decider as any others.
            start = learner(_SIGMA, 0 * _WANDER, self.spread, _psi(0 * S, self.l2), before.phi, self.past)
            self.learners.move(start._replace(noise=start.noise + _START**2 * self.spread))
        self.evidence, self.hits = np.zeros(len(_NAMES)), np.zeros(len(_NAMES), dtype=np.int64)
        self.apart, self.judged = np.zeros((len(_NAMES), len(_NAMES)), dtype=np.int64), 0
        self.information = np.zeros((d, d))
        self.best, self.sharpness, self.blank = len(_WALKS) - 1, 0.0, int(not before.phi.any())
        self.sample = ContextSample.empty(d)

    @property
    def next_policies(self) -> Matrix:
        """Every model's policy for the coming episode, shape (models, d)."""
        d = len(self.spread)
        return np.concatenate([self.walks.mean, self.learners.mean[:, :d]])

    def _belief(self, model: int) -> tuple[Vector, Matrix]:
        """Mean and covariance of p in one of the models."""
        d, number = len(self.spread), model - len(_WALKS)
        bank, number = (self.learners, number) if number >= 0 else (self.walks, model)
        return bank.mean[number, :d], bank.covariance[number, :d, :d]

    def _vague(self) -> Matrix:
        """Precision of the prior around which the next episode is expanded."""
        best = int(np.argmax(self.evidence[: len(_WALKS)])) if len(self.foreseen) > 1 else -1
        return _inverse(_VAGUE * self.walks.covariance[best])

    def _choose(self) -> int:
        best = int(np.argmax(self.evidence))
        # A sign test of every model against the likeliest, on the steps that only one of the two foresaw.
        lead = self.hits - self.hits[best]
        better = lead > _SIGNIFICANT * np.sqrt(self.apart[best] + self.apart[:, best])
        if better.any():
            best = int(np.argmax(np.where(better, self.hits, -1)))
        return best

    # -- storing ---------------------------------------------------------------------------------------------------

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything learned so far, as named arrays of float64 and JSON."""
        arrays: dict[str, NDArray[Any]] = {"phi": self.phi}
        state: dict[str, Any] = {
            "l2": self.l2,
            "draws": self.draws,
            "stored": self.stored,
            "foreseen": [list(f) for f in self.foreseen],
        }
        if self.past is not None:
            arrays["past"] = self.past
        if self.foreseen:
            arrays |= {name: getattr(self, name) for name in _ARRAYS}
            for name, group in self._groups().items():
                arrays |= {f"{name}_{part}": array for part, array in group.items()}
            state |= {name: getattr(self, name) for name in _NUMBERS}
        return {name: array.astype(np.float64) for name, array in arrays.items()}, state

    def _groups(self) -> dict[str, dict[str, NDArray[Any]]]:
        groups: dict[str, dict[str, NDArray[Any]]] = {
            "walks": vars(self.walks),
            "learners": vars(self.learners),
            "walked": dict(zip(("mean", "covariance"), self.walked, strict=True)),
            "alone": dict(zip(("mean", "covariance"), self.alone, strict=True)),
            "sample": {name: getattr(self.sample, name) for name in ContextSample.__slots__},
        }
        return groups | ({} if self.bounds is None else {"bounds": self.bounds._asdict()})

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> Foresight:
        """The object whose `get_state` this was."""
        made = cls(float(state["l2"]), arrays["phi"], draws=bool(state["draws"]))
        made.past, made.stored = arrays.get("past"), int(state["stored"])
        made.foreseen = [Foreseen(*entry) for entry in state["foreseen"]]
        if not made.foreseen:
            return made
        for name in _ARRAYS:
            setattr(made, name, arrays[name].astype(_ARRAYS[name]))
        for name, kind in _NUMBERS.items():
            setattr(made, name, kind(state[name]))

        def group(name: str, parts: Sequence[str]) -> list[NDArray[Any]]:
            return [arrays[f"{name}_{part}"] for part in parts]

        made.walks, made.learners = (Bank(*group(name, ("mean", "covariance"))) for name in ("walks", "learners"))
        mean, covariance = group("walked", ("mean", "covariance"))
        made.walked = mean, covariance
        mean, covariance = group("alone", ("mean", "covariance"))
        made.alone = mean, covariance
        contexts, counts, keys = group("sample", ContextSample.__slots__)
        made.sample = ContextSample(contexts.astype(np.float32), counts.astype(np.int64), keys)
        made.bounds = Bounds(*group("bounds", Bounds._fields)) if "bounds_A" in arrays else None
        return made

    # -- answers ---------------------------------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The model believed."""
        return _NAMES[self.best]

    @property
    def learns(self) -> bool:
        """Whether the model believed is a learner, so that later policies differ from the last."""
        return self.best >= len(_WALKS)

    def note(self) -> str:
        """What the choice of the model means, in a sentence."""
        share = f"{self.hits[self.best] / self.judged:.1%}" if self.judged else "an unknown share"
        if self.learns:
            rival = self.hits[: len(_WALKS)].max() / self.judged if self.judged else 0.0
            return (
                f"the decider learns as ridge regression does: run on from each episode of the log to the next, it "
                f"foresees {share} of the choices (a policy that does not learn: {rival:.1%}), so the forecast runs it "
                "on."
            )
        return (
            "from each episode of the log to the next, no learner foresees more of the choices than the last policy "
            f"does ({share}), so the forecast is the last policy."
        )

    def forecast(self, updates: int = 1) -> Vector:
        """The policy ``updates`` updates after the one that made the last episode's choices. Shape (d,)."""
        p = self.next_policies[self.best] if updates else self.policy
        if not self.learns or updates < 2:
            return p
        d = len(p)
        x = self.learners.mean[self.best - len(_WALKS)]
        theta, c, phi = x[d:-1], x[-1], self.phi
        b, rng = _psi(phi, self.l2) @ p, np.random.default_rng(0)
        for _ in range(updates - 1):
            now = ridge(phi, self.l2)
            S = self.sample.choose(self._explore(p, now, rng))
            weight = self.steps / len(S)
            taught = weight * (S.T @ S)
            phi, b = phi + taught, b + taught @ theta + weight * c * S.sum(axis=0)
            p = ridge(phi, self.l2).solve(b)
        return p

    def _explore(self, p: Vector, now: Ridge, rng: np.random.Generator) -> NDArray[np.float32]:
        """Scores of the sampled candidates, exploration included."""
        X, counts = self.sample.contexts, self.sample.counts
        scores: NDArray[np.float32] = X @ p.astype(np.float32)
        if not self.draws:
            scores += now.widths(X)
            return scores
        # L'^-1 z has the covariance Psi^-1.
        drawn = (rng.standard_normal((len(counts), len(p))) @ now.whitener).astype(np.float32)
        scores += np.einsum("rd,rd->r", X, np.repeat(drawn, counts, axis=0))
        return scores

    def interval(self, level: float = 0.9, *, direction: bool = False) -> Interval:
        """Intervals for the weights of the last episode's policy, per unit alpha for "sbucb", of its unit direction for
        "sbts" and where ``direction`` is asked for.

        Of errorless "sbucb" choices, quantiles of the cell that they leave; otherwise normal ones of the likeliest
        walk. The learner's own law is not used: it would be surer than its linear rewards deserve.
        """
        p, C = self.walked
        if self.bounds is not None and not self.draws:
            # Where no choice looks the cell has no end: it is drawn from without these directions.
            Q = self._told()
            W, (centre, shape) = block_diag(Q, 1.0), self.alone
            drawn = draw_from_cell(
                self.bounds.A @ Q, self.bounds.h, centre @ Q, Q.T @ shape @ Q, W.T @ self.bounds.moment @ W
            )
            if drawn is not None:
                drawn = drawn @ Q.T
                if direction:
                    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
                lower, upper = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
                return Interval(np.median(drawn, axis=0), lower, upper)
        if self.draws or direction:
            p = self.identified(p)
            C = self.identified(self.identified(C).T)
            length = float(np.linalg.norm(p)) or 1.0
            p = p / length
            across = (np.eye(len(p)) - np.outer(p, p)) / length
            C = across @ C @ across
        reach = float(ndtri((1 + level) / 2)) * np.sqrt(np.maximum(C.diagonal(), 0.0))
        return Interval(p, p - reach, p + reach)

    def certainty(self, contexts: NDArray[np.floating], offsets: NDArray[np.int64]) -> Vector:
        """Probability that the next policy prefers the candidate which its forecast prefers, of each step."""
        p, C = self._belief(self.best)
        values, V = np.linalg.eigh(C)
        z = np.random.default_rng(0).standard_normal((_DRAWS, len(p)))
        policies = np.column_stack([p, p[:, None] + (V * np.sqrt(np.maximum(values, 0.0))) @ z.T])
        scores = contexts @ policies
        tops = scores == np.repeat(np.maximum.reduceat(scores, offsets[:-1]), np.diff(offsets), axis=0)
        agreeing = np.add.reduceat(tops[:, 1:] & tops[:, :1], offsets[:-1])
        certain: Vector = agreeing.mean(axis=1)
        return certain

    def unidentified(self) -> NDArray[np.int64]:
        """Features whose weights the choices do not determine, alone or in combination."""
        _, blind = self._blind()
        return np.flatnonzero((blind**2).sum(axis=1) > 0.01)

    def identified(self, policies: NDArray[np.float64]) -> NDArray[np.float64]:
        """Policies, shape (..., d), without their part on which no choice depends."""
        Q = self._told()
        return policies if Q.shape[1] == len(Q) else policies @ Q @ Q.T

    def _told(self) -> Matrix:
        """An orthonormal basis of what choices tell of policies, shape (d, r)."""
        unit, blind = self._blind()
        return np.linalg.qr(blind / unit[:, None], mode="complete")[0][:, blind.shape[1] :]

    def _blind(self) -> tuple[Vector, Matrix]:
        """Units that make features alike, and directions, in these units, of which all episodes told nothing."""
        unit = np.sqrt(self.information.diagonal())
        unit[unit == 0] = 1.0
        values, V = np.linalg.eigh(self.information / unit / unit[:, None])
        return unit, V[:, values <= 1e-9 * max(values[-1], np.finfo(np.float64).tiny)]


#: attributes that are stored as they are
_ARRAYS = {
    "spread": np.float64,
    "evidence": np.float64,
    "hits": np.int64,
    "apart": np.int64,
    "information": np.float64,
    "policy": np.float64,
}
_NUMBERS = {"judged": int, "best": int, "sharpness": float, "steps": int, "blank": int}


def _measure(block: Block) -> tuple[Matrix, Vector, int]:
    """X'X of the candidates, how often each feature shows, and how many candidates there are."""
    X = block.contexts.astype(np.float64, copy=False)
    return X.T @ X, np.count_nonzero(X, axis=0).astype(np.float64), len(X)


def _look(
    block: Block,
    *,
    ridge: Ridge,
    policies: Matrix,
    centre: Vector,
    precision: Matrix,
    draws: bool,
    sharpness: float,
    sample: Callable[[Block], ContextSample],
) -> tuple[NDArray[np.bool_], Site, ContextSample]:
    """Of the first block of an episode: what each policy foresaw, what it says of its own, and some of its steps."""
    site = observe(block, ridge, centre, precision, draws=draws, sharpness=sharpness)
    return _judge(block, ridge, policies, draws), site, sample(block)


def _judge(block: Block, before: Ridge, policies: Matrix, draws: bool) -> NDArray[np.bool_]:
    """Which of the first choices each policy foresees. Shape (steps, policies)."""
    steps = min(_JUDGED_STEPS, len(block.chosen_rows))
    X = block.contexts[: block.offsets[steps]]
    scores = X @ policies.T.astype(X.dtype)
    if not draws:
        scores += before.widths(X)[:, None]
    foreseen: NDArray[np.bool_] = scores[block.chosen_rows[:steps]] >= np.maximum.reduceat(
        scores, block.offsets[:steps]
    )
    return foreseen


def _inverse(matrix: Matrix) -> Matrix:
    inverse = np.linalg.inv(matrix).astype(np.float64, copy=False)
    symmetric: Matrix = (inverse + inverse.T) / 2
    return symmetric


def _psi(phi: Matrix, l2: float) -> Matrix:
    psi = phi.copy()
    psi.flat[:: len(psi) + 1] += l2
    return psi


_NAMES = (
    *(f"walk(q={q:g})" for q in _WALKS),
    *(f"learner(sigma={sigma:g}, q={q:g})" for sigma, q in zip(_SIGMA, _WANDER, strict=True)),
)
