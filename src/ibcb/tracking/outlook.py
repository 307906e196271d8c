"""Foresight: the policy of a decider as its log unfolds, the one it will have next, and how sure that is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.special import ndtr, ndtri

from ibcb.deciders.cone import ConeRows, factor, telling_rows
from ibcb.deciders.sites import Site, observe
from ibcb.engine import Block, MemoryRows, Rows, blocks
from ibcb.inverse.constraints import Experience, experienced
from ibcb.log import BehaviorLog
from ibcb.numerics.ridge import Ridge, ridge
from ibcb.tracking.bank import Bank, Move, learner, walk
from ibcb.tracking.context_sample import ContextSample, picked
from ibcb.tracking.grid import DRAWN, FREE

__all__ = ["Foreseen", "Foresight", "Interval"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_SHARE = 0.05
#: alpha is not taken for less
_LEAST = 1e-9
#: the expansion point of an episode trusts the walk's forecast this much less than the walk does
_VAGUE = 25.0
#: rows are put aside by what is believed, made wider by this factor
_DOUBT = 4.0
_JUDGED_STEPS = 256
_SIGNIFICANT = 2.0
#: share of a walk's errors that a learner may make and be run on
_SPARED = 0.75
#: a model this much less likely than the best of its family is given up
_HOPELESS = 30.0
#: policies drawn for a probability, and for an interval
_DRAWS, _MANY = 200, 4000


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

    Models of two families (`ibcb.tracking.bank`) learn from every episode side by side: from the rows that bound the
    policy of an "sbucb" decider (`ibcb.deciders.cone`), or from a summary of an "sbts" decider's draws
    (`ibcb.deciders.sites`). The model with the highest evidence is believed, unless others foresaw significantly more
    of the choices: then the best of these. A learner's forecast runs the recovered decider forward, a walk's stays
    where it is.

    Policies are per unit alpha. Of an "sbts" decider that draws once an episode only the direction is meant.

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
    #: what all episodes together told of p
    information: Matrix
    #: what every model believes of the last episode's policy: mean and covariance of p, or of p and alpha
    last: tuple[Matrix, Matrix]
    #: what was believed of each episode's policy once it was seen
    policies: list[Vector]
    #: for running on: candidate sets, and the steps of an episode
    sample: ContextSample
    steps: int

    def __init__(self, l2: float, gram: Matrix, *, draws: bool) -> None:
        self.l2, self.draws, self.phi = l2, draws, gram
        self._grid = DRAWN if draws else FREE
        #: where alpha is unknown it stands beside p
        self._beside = 0 if draws else 1
        # Of choices before the log the Gram matrix may be known, but never the sum.
        self.past: Vector | None = None if gram.any() else np.zeros(len(gram))
        self.foreseen, self.policies = list[Foreseen](), list[Vector]()
        #: episodes so far, the warm-up's counted
        self.stored = 0

    def copy(self) -> Foresight:
        """A twin that can go its own way."""
        twin = copy.copy(self)
        twin.foreseen, twin.policies = self.foreseen.copy(), self.policies.copy()
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
            states=self._next[0],
            sample=partial(picked, most=self.sample.bar, episode=number),
            told=self._observer(before),
        )
        hits, told, fresh = rows.head(look)
        gained, information = self._learn(told)
        likely = float(gained[self.best])
        self.foreseen.append(Foreseen(self._grid.names[self.best], likely, float(hits[:, self.best].mean())))
        self.evidence, self.information = self.evidence + gained, self.information + information
        if number > self.blank:
            # Nothing could be foreseen of an episode whose policy is the first that had learned anything.
            self.judged += len(hits)
            self.hits = self.hits + hits.sum(axis=0)
            self.apart = self.apart + hits.T.astype(np.int64) @ ~hits
        self.best, self.last = self._choose(), self._next
        self.policies.append(self.forecast(0))
        self.sample = self.sample.extend(fresh)
        self.steps, self.phi, self.stored = len(lesson.counts), before.phi + lesson.phi, self.stored + 1
        self.walks.move(walk(self._grid.walks, self.spread, self._beside))
        self.learners.move(self._lesson(before.phi, lesson.phi, lesson.total))

    def _observer(self, before: Ridge) -> Callable[[Block], Site | ConeRows] | None:
        """What is to be seen of an episode: of an "sbts" decider a site, of an "sbucb" decider rows."""
        if self.draws:
            return partial(observe, ridge=before, centre=self._next[0][self.best], precision=self._vague())
        if not before.phi.any():
            # Nothing had been learned: p is 0, and the choices do not tell more.
            return None
        # One episode tells no model from another: before the third the widest walk is asked.
        asked = self.best if len(self.foreseen) > 1 else len(self._grid.walks) - 1
        mean, covariance = (part[asked] for part in self._next)
        return partial(telling_rows, ridge=before, mean=mean, covariance=_DOUBT * covariance)

    def _learn(self, told: Site | ConeRows | None) -> tuple[Vector, Matrix]:
        """Let every model learn; log-likelihoods, and the information about p."""
        d = len(self.spread)
        if told is None:
            return np.zeros(len(self.evidence)), np.zeros((d, d))
        if isinstance(told, Site):
            return np.concatenate([bank.learn(told) for bank in (self.walks, self.learners)]), told.root @ told.root.T
        likely, walks, alive = np.full(len(self.evidence), -np.inf), len(self._grid.walks), self._alive()
        for bank, first, last in ((self.walks, 0, walks), (self.learners, walks, len(likely))):
            models = np.flatnonzero(alive[first:last])
            learned = bank.learn_rows(told, models)
            likely[first + models] = learned.log_likelihood
        A = learned.factors.leads[:, :d]
        # A model that did not learn, or could not, is as bad as the worst that could.
        likely = np.where(np.isfinite(likely), likely, likely[np.isfinite(likely)].min(initial=0.0))
        return likely, A.T @ (learned.factors.sharp[:, None] * A)

    def _alive(self) -> NDArray[np.bool_]:
        """Models with a chance. The others are left behind: they would not come back, and would take most of the time.

        Learning from a Thompson sampler's site costs nothing: there all are.
        """
        walks = len(self._grid.walks)
        families = np.split(self.evidence, [walks])
        return np.concatenate([family >= family.max() - (np.inf if self.draws else _HOPELESS) for family in families])

    def _lesson(self, before: Matrix, phi: Matrix, total: Vector, wander: Vector | None = None) -> Move:
        """The learners' move by an episode."""
        grid = self._grid
        q = grid.wander if wander is None else wander
        return learner(grid.sigma, q, self.spread, _psi(before, self.l2), phi, total, self._beside)

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
        grid, d = self._grid, len(before.phi)
        S, present, count = measured
        # Scores are bounded where a feature shows, however rarely it does; of one that never does any scale will do.
        shown = np.where(present > 0, S.diagonal() / np.maximum(present, 1.0), 1.0)
        S = S / count
        S.flat[:: d + 1] += _SHARE * shown
        self.spread = _inverse(S)
        unit = self.spread if grid.apart else self.spread / d
        prior, alpha = grid.scores**2 * unit, np.full((self._beside, self._beside), grid.alpha**2)
        first = prior if self.past is None else np.zeros((d, d))
        walks, learners = (
            block_diag(prior, alpha),
            block_diag(first, alpha, grid.rewards**2 * unit, grid.rewards**2),
        )
        self.walks, self.learners = (
            Bank(np.zeros((models, len(state))), np.tile(state, (models, 1, 1)))
            for models, state in ((len(grid.walks), walks), (len(grid.sigma), learners))
        )
        if self.past is not None:
            # The choices before the log taught the decider as any others.
            start = self._lesson(0 * S, before.phi, self.past, 0 * grid.wander)
            self.learners.move(start._replace(noise=start.noise + grid.start**2 * unit))
        models = len(grid.names)
        self.evidence, self.hits = np.zeros(models), np.zeros(models, dtype=np.int64)
        self.apart, self.judged = np.zeros((models, models), dtype=np.int64), 0
        self.information = np.zeros((d, d))
        self.best, self.blank = len(grid.walks) - 1, int(not before.phi.any())
        self.sample = ContextSample.empty(d)

    @property
    def _next(self) -> tuple[Matrix, Matrix]:
        """What every model believes of the coming episode's policy: mean and covariance of p, or of p and alpha."""
        o = len(self.spread) + self._beside
        banks = (self.walks, self.learners)
        return (
            np.concatenate([bank.mean[:, :o] for bank in banks]),
            np.concatenate([bank.covariance[:, :o, :o] for bank in banks]),
        )

    def _alpha(self, state: Vector) -> float:
        """The unit of a state's policy."""
        return max(float(state[len(self.spread)]), _LEAST) if self._beside else 1.0

    def _vague(self) -> Matrix:
        """Precision of the prior around which the next episode is expanded."""
        best = int(np.argmax(self.evidence[: len(self._grid.walks)])) if len(self.foreseen) > 1 else -1
        return _inverse(_VAGUE * self.walks.covariance[best])

    def _choose(self) -> int:
        if self.judged == 0:
            # Nothing has been foreseen yet. A learner at least knows what the choices so far can have taught.
            walks = len(self._grid.walks)
            return walks + int(np.argmax(self.evidence[walks:]))
        best = int(np.argmax(self.evidence))
        # A sign test of every model against the likeliest, on the steps that only one of the two foresaw.
        lead = self.hits - self.hits[best]
        better = self._alive() & (lead > _SIGNIFICANT * np.sqrt(self.apart[best] + self.apart[:, best]))
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
            arrays |= {name: getattr(self, name) for name in _ARRAYS} | {"policies": np.array(self.policies)}
            for name, group in self._groups().items():
                arrays |= {f"{name}_{part}": array for part, array in group.items()}
            state |= {name: getattr(self, name) for name in _NUMBERS}
        return {name: array.astype(np.float64) for name, array in arrays.items()}, state

    def _groups(self) -> dict[str, dict[str, NDArray[Any]]]:
        return {
            "walks": vars(self.walks),
            "learners": vars(self.learners),
            "last": dict(zip(("mean", "covariance"), self.last, strict=True)),
            "sample": {name: getattr(self.sample, name) for name in ContextSample.__slots__},
        }

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> Foresight:
        """The object whose `get_state` this was."""
        made = cls(float(state["l2"]), arrays["phi"], draws=bool(state["draws"]))
        made.past, made.stored = arrays.get("past"), int(state["stored"])
        made.foreseen = [Foreseen(*entry) for entry in state["foreseen"]]
        if not made.foreseen:
            return made
        made.policies = list(arrays["policies"])
        for name in _ARRAYS:
            setattr(made, name, arrays[name].astype(_ARRAYS[name]))
        for name, kind in _NUMBERS.items():
            setattr(made, name, kind(state[name]))

        def group(name: str, parts: Sequence[str]) -> list[NDArray[Any]]:
            return [arrays[f"{name}_{part}"] for part in parts]

        made.walks, made.learners = (Bank(*group(name, ("mean", "covariance"))) for name in ("walks", "learners"))
        mean, covariance = group("last", ("mean", "covariance"))
        made.last = mean, covariance
        contexts, counts, keys = group("sample", ContextSample.__slots__)
        made.sample = ContextSample(contexts.astype(np.float32), counts.astype(np.int64), keys)
        return made

    # -- answers ---------------------------------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The model believed."""
        return self._grid.names[self.best]

    @property
    def learns(self) -> bool:
        """Whether the model believed is a learner, so that later policies differ from the last."""
        return self.best >= len(self._grid.walks)

    @property
    def runs_on(self) -> bool:
        """Whether it is believed further than one update: of errorless choices, only a learner that is spared a good
        part of the errors of the best walk.
        """
        missed = self.judged - self.hits
        spared = self.judged == 0 or self.draws or missed[self.best] <= _SPARED * missed[: len(self._grid.walks)].min()
        return self.learns and bool(spared)

    def note(self) -> str:
        """What the choice of the model means, in a sentence."""
        share = f"{self.hits[self.best] / self.judged:.1%}" if self.judged else "an unknown share"
        if self.learns:
            rival = self.hits[: len(self._grid.walks)].max() / self.judged if self.judged else 0.0
            follows = "the forecast runs it on" if self.runs_on else "the forecast runs it on by one update, no further"
            return (
                f"the decider learns as ridge regression does: run on from each episode of the log to the next, it "
                f"foresees {share} of the choices (a policy that does not learn: {rival:.1%}), so {follows}."
            )
        return (
            "from each episode of the log to the next, no learner foresees more of the choices than the last policy "
            f"does ({share}), so the forecast is the last policy."
        )

    def forecast(self, updates: int = 1) -> Vector:
        """The policy ``updates`` updates after the one that made the last episode's choices. Shape (d,)."""
        d = len(self.spread)
        state = (self._next if updates else self.last)[0][self.best]
        alpha = self._alpha(state)
        p: Vector = state[:d] / alpha
        if not self.runs_on or updates < 2:
            return p
        x = self.learners.mean[self.best - len(self._grid.walks), d + self._beside :] / alpha
        theta, c, phi = x[:-1], x[-1], self.phi
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

        Of "sbucb", quantiles of what all models of the family believed say together, each as far as the evidence
        supports it. Of "sbts", normal ones of the likeliest walk: a learner would be surer than its linear rewards
        deserve.
        """
        walks = len(self._grid.walks)
        if not self.draws:
            family = slice(walks, None) if self.learns else slice(0, walks)
            drawn = self._drawn(family)
            if direction:
                drawn = self.identified(drawn)
                drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
            lower, middle, upper = np.quantile(drawn, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
            return Interval(middle, lower, upper)
        likeliest = int(np.argmax(self.evidence[:walks]))
        p, C = self.identified(self.last[0][likeliest]), self.last[1][likeliest]
        C = self.identified(self.identified(C).T)
        length = float(np.linalg.norm(p)) or 1.0
        p = p / length
        across = (np.eye(len(p)) - np.outer(p, p)) / length
        C = across @ C @ across
        reach = float(ndtri((1 + level) / 2)) * np.sqrt(np.maximum(C.diagonal(), 0.0))
        return Interval(p, p - reach, p + reach)

    def _drawn(self, family: slice) -> Matrix:
        """Draws of the last episode's p / alpha from what some models believe, as far as each is supported."""
        support = np.exp(self.evidence[family] - self.evidence[family].max())
        counts = np.round(_MANY * support / support.sum()).astype(int)
        rng, drawn = np.random.default_rng(0), []
        for mean, covariance, count in zip(self.last[0][family], self.last[1][family], counts.tolist(), strict=True):
            # alpha first, which is positive, and p given alpha.
            deviation = float(np.sqrt(covariance[-1, -1]))
            below = ndtr(-mean[-1] / deviation)
            alpha = mean[-1] + deviation * ndtri(below + (1 - below) * rng.random(count))
            slope = covariance[:-1, -1] / covariance[-1, -1]
            root = factor(covariance[:-1, :-1] - np.outer(slope, covariance[:-1, -1]))
            p = mean[:-1] + np.outer(alpha - mean[-1], slope) + rng.standard_normal((count, len(root))) @ root.T
            drawn.append(p / np.maximum(alpha, _LEAST)[:, None])
        return np.concatenate(drawn)

    def certainty(self, contexts: NDArray[np.floating], offsets: NDArray[np.int64]) -> Vector:
        """Probability that the next policy prefers the candidate which its forecast prefers, of each step."""
        d = len(self.spread)
        p, C = self._next[0][self.best, :d], self._next[1][self.best, :d, :d]
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
}
_NUMBERS = {"judged": int, "best": int, "steps": int, "blank": int}


def _measure(block: Block) -> tuple[Matrix, Vector, int]:
    """X'X of the candidates, how often each feature shows, and how many candidates there are."""
    X = block.contexts.astype(np.float64, copy=False)
    return X.T @ X, np.count_nonzero(X, axis=0).astype(np.float64), len(X)


def _look(
    block: Block,
    *,
    ridge: Ridge,
    states: Matrix,
    sample: Callable[[Block], ContextSample],
    told: Callable[[Block], Site | ConeRows] | None,
) -> tuple[NDArray[np.bool_], Site | ConeRows | None, ContextSample]:
    """Of the first block of an episode: what each state foresaw, what it says of its own, and some of its steps."""
    return _judge(block, ridge, states), told and told(block), sample(block)


def _judge(block: Block, before: Ridge, states: Matrix) -> NDArray[np.bool_]:
    """Which of the first choices each p, or p and alpha, foresees. Shape (steps, states)."""
    steps = min(_JUDGED_STEPS, len(block.chosen_rows))
    X = block.contexts[: block.offsets[steps]]
    if states.shape[1] > X.shape[1]:
        X = np.column_stack([X, before.widths(X)])
    scores = X @ states.T.astype(X.dtype)
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
