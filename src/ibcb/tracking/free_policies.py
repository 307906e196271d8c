"""How a decider chooses, asked with a free policy in every episode: no motion and no forecast muddies the answer.

Each choice rule gets the policy that explains an episode best. With scores u = X w in units in which the candidates of
a step have second moment 1, and e the share of steps whose choice is made at random among M candidates,

    P(c) = (1 - e) softmax(u)_c + e / M,

and rules differ in what is free (`Manner`): whether w is so long that the softmax takes the best; whether e is free,
or as small as records are wrong; which columns a rule adds to the features; how many of the best may be drawn; and
whether the best of a draw from the posterior is taken, where w is in units of the draws. The score of an episode is its
log-likelihood less the number of free parameters (Akaike 1973). What a rule says of lengths from episode to episode is
in `ibcb.tracking.posterior`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.engine import Block
from ibcb.numerics.arrays import Matrix, Stored, Vector, lazy
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.contexts import dense, step_counts
from ibcb.numerics.laplace import Summary, draw_scale, stray_rate, summarise, summarise_straying
from ibcb.numerics.newton import Stopping
from ibcb.numerics.ridge import Ridge

#: steps of an episode that are looked at, and choices per weight below which an episode tells nothing: the number of
#: free parameters stands for what fitting them gains only where choices are many
LOOKED_AT, CHOICES_PER_WEIGHT = 512, 10
#: numbers of candidates that are held, 32 MB
_MOST_NUMBERS = 1 << 22
#: length of w at which a softmax takes the best but where scores differ by less than a 64th of their deviation; lengths
#: on the way there, and beyond
HARD = 64.0
_ANNEALED = (4.0, 8.0, 16.0, 32.0, HARD, 4 * HARD, 16 * HARD)
#: share of records that may be wrong of a decider that makes no random choices, and that a free share begins with
_WRONG_RECORDS, _FIRST_SHARE = 5e-4, 0.02
#: prior precision of w: its deviation is the length at which it is hard
_VAGUE = 1 / HARD**2
#: turns of Newton's method at each length, halvings of a turn, and the gain in log-likelihood that ends them; not tuned
_MAX_TURNS, _MAX_HALVINGS, _SETTLED = 12, 8, 1e-2
#: directions in which candidates differ by less than this share of the largest are told by nothing; rounding
_DEGENERATE = 1e-9
#: draws from the posterior, fewer for a first look, and lengths of the fitted ray at which they are counted, by factors
_DRAWS, _FEW_DRAWS = 1024, 128
_RAY = np.exp(np.linspace(-1.2, 1.2, 13))
#: score of what an episode cannot be, such as draws from more than there are
IMPOSSIBLE = -1e12
#: normal noise over logistic, by their deviations, of a difference of two
_LOGISTIC = math.sqrt(6) / math.pi
_QUICK = Stopping(gain=1e-5, slack=1e-8, max_passes=60, floor=1.0)


class Manner(NamedTuple):
    """What is free of how a decider chooses: what a choice rule declares, without its parameters' values.

    Attributes
    ----------
    name : str
    soft : bool
        Whether it draws by a softmax.
    share : bool
        Whether it chooses at random in a share of steps.
    top_k : int
        Of how many of its best it draws; 1 where that is no limit.
    drawn : bool
        Whether it takes the best of a draw from the posterior at every step.
    kind : Kind or None
        Where choices depend on what had been learned: a kind with such columns, or such a posterior.
    """

    name: str
    soft: bool = False
    share: bool = False
    top_k: int = 1
    drawn: bool = False
    kind: Kind | None = None

    @property
    def adds(self) -> bool:
        """Whether its rule adds columns."""
        return self.kind is not None and not self.drawn


@dataclass(frozen=True)
class FreeFit:
    """What an episode says of some manners.

    Attributes
    ----------
    scores : ndarray of shape (manners,)
        Log-likelihood less the number of free parameters; `IMPOSSIBLE` where it cannot be, or was not asked for. Of all
        0 where the episode is too short to tell, or nothing had been learned before it.
    lengths, errors : ndarray of shape (manners,)
        Logarithm of the length of w, and its standard error, where a manner has a length of its own; else 0.
    misfits, variances : ndarray of shape (manners,)
        What checks the manner by its own probabilities, expected to be 0, and its variance; both 0 where nothing does.
        Of one with a length: how much more the log probabilities of its choices scatter than they should. Of one that
        takes the best but for a share at random: how much better than the others the candidates are that it took so.
    """

    scores: Annotated[Vector, Stored("manners")]
    lengths: Annotated[Vector, Stored("manners")]
    errors: Annotated[Vector, Stored("manners")]
    misfits: Annotated[Vector, Stored("manners")]
    variances: Annotated[Vector, Stored("manners")]

    @classmethod
    def of_nothing(cls, manners: int) -> FreeFit:
        """Of an episode that tells nothing."""
        return cls(*np.zeros((5, manners)))


def free_fit(
    block: Block, *, manners: Sequence[Manner], before: Sequence[Ridge | None], asked: Sequence[bool]
) -> FreeFit:
    """The first steps of a block by each manner that is asked for; ``before``: what the choices before the episode left
    behind, of those that depend on it.
    """
    count, d = len(manners), block.contexts.shape[1]
    most = max(LOOKED_AT, 2 * CHOICES_PER_WEIGHT * d)
    while block.first(most).n_rows * d > _MOST_NUMBERS and most > 1:
        most //= 2
    seen = _Steps(block.first(most))
    few = seen.steps < CHOICES_PER_WEIGHT
    if few or not seen.plain.rank or seen.steps < CHOICES_PER_WEIGHT * seen.plain.rank:
        return FreeFit.of_nothing(count)
    with np.errstate(all="ignore"):
        fits = [
            seen.by(manner, known) if is_asked else _Found(IMPOSSIBLE)
            for manner, known, is_asked in zip(manners, before, asked, strict=True)
        ]
    table = np.array(fits).T
    return FreeFit(np.where(np.isfinite(table[0]), table[0], IMPOSSIBLE), *np.nan_to_num(table[1:]))


class _Found(NamedTuple):
    """Of one manner; as `FreeFit`."""

    score: float
    length: float = 0.0
    error: float = 0.0
    misfit: float = 0.0
    variance: float = 0.0


@dataclass(frozen=True)
class _Frame:
    """Candidates less the mean of their step, in coordinates in which their second moment is 1. Shape (rows, rank)."""

    rows: Matrix
    offsets: NDArray[np.int64]
    chosen: NDArray[np.int64]

    @lazy
    def loss(self) -> ChoiceLoss:
        return ChoiceLoss(self.rows, self.offsets, self.chosen)

    @property
    def rank(self) -> int:
        return int(self.rows.shape[1])


@dataclass(frozen=True)
class _Steps:
    """Some steps, and what several manners ask of them."""

    block: Block

    @lazy
    def counts(self) -> NDArray[np.int64]:
        return step_counts(self.block.offsets)

    @lazy
    def chosen(self) -> NDArray[np.int64]:
        return self.block.chosen_rows - self.block.offsets[:-1]

    @lazy
    def steps(self) -> int:
        """Those with something to choose."""
        return int(np.count_nonzero(self.counts > 1))

    @lazy
    def contexts(self) -> Matrix:
        return self.centred(dense(self.block.contexts).astype(np.float64, copy=False))

    @lazy
    def plain(self) -> _Frame:
        return self.framed(self.contexts)

    @lazy
    def soft(self) -> Summary:
        """The softmax of the features that explains the choices best."""
        return _softmax(self.plain)

    def centred(self, X: Matrix) -> Matrix:
        """Less the mean of the step."""
        means = np.add.reduceat(X, self.block.offsets[:-1], axis=0) / self.counts[:, None]
        return X - np.repeat(means, self.counts, axis=0)

    def framed(self, centred: Matrix) -> _Frame:
        """In coordinates of one scale, without what no candidates differ in."""
        deviations = np.sqrt(np.mean(centred**2, axis=0))
        own = deviations > 0
        unit = centred[:, own] / deviations[own]
        values, vectors = np.linalg.eigh(unit.T @ unit / len(unit))
        kept = values > _DEGENERATE * values.max(initial=0.0)
        rows = unit @ (vectors[:, kept] / np.sqrt(values[kept]))
        return _Frame(rows, self.block.offsets, self.chosen)

    def by(self, manner: Manner, before: Ridge | None) -> _Found:
        """The likeliest policy of a manner."""
        frame, soft = self.plain, self.soft
        if before is not None and manner.kind is not None:
            if manner.drawn:
                return self.of_draw(before)
            added = manner.kind.rule.columns(self.block, before).quick
            frame = self.framed(np.column_stack([self.contexts, self.centred(added.astype(np.float64))]))
            soft = _softmax(frame)
        if manner.top_k > 1:
            return _Found(self.of_best(manner.top_k) - frame.rank)
        if manner.soft and not manner.share:
            return _Found(-soft.loss - frame.rank, *_length(soft), *self.scatter(self.drawn(frame, soft)))
        strayed = _strayed(frame, soft) if manner.share or not manner.adds else soft
        if manner.soft:
            p = self.drawn(frame, strayed)
            p = (1 - strayed.stray) * p + strayed.stray / np.repeat(self.counts, self.counts)
            return _Found(max(-strayed.loss, -soft.loss) - frame.rank - 1, *_length(strayed), *self.scatter(p))
        fits = (_hard(frame.loss, each.mode, free=manner.share) for each in (soft, strayed))
        likelihood, u = max(fits, key=lambda each: each[0])
        lean = self.lean(frame.rows @ u) if manner.share else (0.0, 0.0)
        return _Found(likelihood - frame.rank + (not manner.share), 0.0, 0.0, *lean)

    def drawn(self, frame: _Frame, fit: Summary) -> Vector:
        """Probability of every candidate by a softmax."""
        scores, starts = frame.rows @ fit.mode, self.block.offsets[:-1]
        weights = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), self.counts))
        p: Vector = weights / np.repeat(np.add.reduceat(weights, starts), self.counts)
        return p

    def scatter(self, p: Vector) -> tuple[float, float]:
        """How much more the log probabilities of the choices scatter than they should, and its variance.

        Their mean is as it should be, because the length was fitted to it.
        """
        starts, log_p = self.block.offsets[:-1], np.log(np.maximum(p, 1e-300))

        def mean(values: Vector) -> Vector:
            """Of every step, by the probabilities."""
            return np.repeat(np.add.reduceat(p * values, starts), self.counts)

        square = (log_p - mean(log_p)) ** 2
        beyond = square - mean(square)
        return float(beyond[self.block.chosen_rows].sum()), float(mean(beyond**2)[starts].sum())

    def lean(self, scores: Vector) -> tuple[float, float]:
        """By how much choices that are not the best are better than others that are not, and its variance."""
        starts, chosen = self.block.offsets[:-1], self.block.chosen_rows
        best = np.maximum.reduceat(scores, starts)
        others, rest = scores < np.repeat(best, self.counts), np.maximum(self.counts - 1, 1)
        mean = np.add.reduceat(np.where(others, scores, 0.0), starts) / rest
        variance = np.add.reduceat(np.where(others, (scores - np.repeat(mean, self.counts)) ** 2, 0.0), starts) / rest
        astray = scores[chosen] < best
        return float((scores[chosen] - mean)[astray].sum()), float(variance[astray].sum())

    def of_best(self, k: int) -> float:
        """Log-likelihood where one of the k best is drawn, by a softmax of a sharpness of its own."""
        if k >= self.counts[self.counts > 1].min():
            return IMPOSSIBLE
        offsets, chosen, steps = self.block.offsets, self.chosen, np.arange(len(self.counts))
        several = ChoiceLoss(self.plain.rows, offsets, chosen, top_k=k, stray=_WRONG_RECORDS)
        u = _direction(self.soft.mode)
        for length in _ANNEALED:
            u = _turned(several, u, length)
        scores = self.plain.rows @ u
        table = np.full((len(steps), int(self.counts.max())), -np.inf)
        table[np.arange(table.shape[1]) < self.counts[:, None]] = scores
        best, own = -np.sort(-table, axis=1)[:, :k], table[steps, chosen]
        among = own >= best[steps, np.minimum(self.counts, k) - 1]
        leads = draw_scale(scores, offsets, chosen, k).scale * (best - own[:, None])[among]
        drawn = math.log1p(-_WRONG_RECORDS) - np.log(np.exp(leads).sum(axis=1))
        return float(drawn.sum() + np.log(_WRONG_RECORDS / self.counts[~among]).sum())

    def of_draw(self, before: Ridge) -> _Found:
        """As `by`, of the best of a draw from the posterior.

        A logit in units of each step's own deviation tells the direction, and nearly the length; then draws are counted
        along that ray. The length is that of the policy, in units of the draws.
        """
        spread = self.contexts @ before.whitener.matrix.T
        starts, counts = self.block.offsets[:-1], self.counts
        widths = np.sqrt(np.add.reduceat((spread**2).sum(axis=1), starts) / counts)
        widths[widths <= 0] = 1.0
        frame = self.framed(self.contexts / np.repeat(widths, counts)[:, None])
        fit = _softmax(frame)
        ray = (frame.rows @ fit.mode) * np.repeat(widths, counts)
        draws = np.random.default_rng(0).standard_normal((spread.shape[1], _DRAWS)).astype(np.float32)
        spread, chosen = spread.astype(np.float32), self.block.chosen_rows

        def wins(factor: float, some: NDArray[np.float32]) -> Vector:
            """Of how many draws each candidate was the best, one more shared among the candidates of each step."""
            scores = spread @ some + (factor * ray).astype(np.float32)[:, None]
            won = scores >= np.repeat(np.maximum.reduceat(scores, starts, axis=0), counts, axis=0)
            counted: Vector = won.sum(axis=1) + np.repeat(1 / counts, counts)
            return counted

        few = draws[:, :_FEW_DRAWS]
        likelihoods = [np.log(wins(each, few)[chosen]).sum() for each in (_LOGISTIC * _RAY).tolist()]
        factor = _LOGISTIC * float(_RAY[int(np.argmax(likelihoods))])
        won = wins(factor, draws)
        shares, won = won / (_DRAWS + 1), won[chosen]
        # The logarithm of a share of draws is below that of its mean by half its relative variance.
        likelihood = float(np.sum(np.log(shares[chosen]) + np.maximum(1 / won - 1 / _DRAWS, 0.0) / 2))
        size = math.sqrt(float(np.mean(ray**2))) * factor
        length = math.log(size) if size > 0 else 0.0
        return _Found(likelihood - frame.rank, length, _length(fit)[1], *self.scatter(shares))


def _softmax(frame: _Frame) -> Summary:
    nothing = np.zeros(frame.rank)
    return summarise(frame.loss, nothing, _VAGUE * np.eye(frame.rank), start=nothing, stopping=_QUICK)


def _strayed(frame: _Frame, soft: Summary) -> Summary:
    """The same with a share of steps at random."""
    loss, prior = frame.loss.with_stray(_FIRST_SHARE), _VAGUE * np.eye(frame.rank)
    return summarise_straying(loss, np.zeros(frame.rank), prior, start=soft.mode)


def _length(fit: Summary) -> tuple[float, float]:
    """Logarithm of the length of w, at most that at which it is hard, and its standard error."""
    length = float(np.linalg.norm(fit.mode))
    if length <= 0:
        return 0.0, HARD
    along = fit.mode / length
    variance = max(float(along @ np.linalg.solve(fit.hessian, along)), 0.0)
    return math.log(min(length, HARD)), math.sqrt(variance) / length


def _direction(w: Vector) -> Vector:
    length = float(np.linalg.norm(w))
    direction: Vector = w / length if length > 0 else np.eye(len(w))[0]
    return direction


def _hard(loss: ChoiceLoss, w: Vector, *, free: bool) -> tuple[float, Vector]:
    """Log-likelihood by the best direction to be found from that of w on, of a w without end, and the direction;
    ``free``: the share of steps at random.
    """
    u, least, share = _direction(w), np.inf, _WRONG_RECORDS
    if free:
        share = stray_rate(*loss.likelihoods(max(float(np.linalg.norm(w)), _ANNEALED[0]) * u))
    for length in _ANNEALED:
        u = _turned(loss.with_stray(share), u, length)
        if free:
            share = stray_rate(*loss.likelihoods(length * u))
        if length >= HARD:
            least = min(least, loss.with_stray(share)(length * u))
    return -least, u


def _turned(loss: ChoiceLoss, u: Vector, length: float) -> Vector:
    """The direction in which a w of that length explains the choices best: Newton's method on the sphere."""
    here = loss.expand(length * u)
    for _ in range(_MAX_TURNS):
        gradient, bend = length * here.gradient, length**2 * here.hessian
        along = float(gradient @ u)
        across = np.eye(len(u)) - np.outer(u, u)
        # The sphere bends, too; u itself is no direction to turn to.
        stiffness = across @ bend @ across + (max(-along, 0.0) + _DEGENERATE * (1.0 + float(np.trace(bend)))) * across
        turn = np.linalg.solve(stiffness + np.outer(u, u), along * u - gradient)
        for _ in range(_MAX_HALVINGS):
            turned = _direction(u + turn)
            gain = here.loss - loss(length * turned)
            if gain > 0:
                break
            turn = turn / 2
        if not gain > 0:
            return u
        u = turned
        if gain < _SETTLED:
            return u
        here = loss.expand(length * u)
    return u
