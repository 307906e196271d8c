"""What the choices of an episode say of the policy behind them: its weights, how sure they are, which steps contradict.

The observation model is the conditional logit of `ibcb.numerics.choice_likelihood` with both of its allowances: the
chosen candidate need only be among the ``top_k`` best, and a share of steps strays. With a normal prior on the weights,

    F(w) = f(w) + (w - centre)' P (w - centre) / 2,

the mode of F and the Hessian there (Laplace's approximation) summarise the episode: centre and P of the next one, for
whoever filters the episodes of a log one after the other. To let the decider seek confidence width too, give the loss
contexts with a column H(s); its weight over the others' is then alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize_scalar

from ibcb.numerics.arrays import Matrix, Vector, lazy
from ibcb.numerics.choice_likelihood import ChoiceLoss, Expansion
from ibcb.numerics.contexts import step_counts
from ibcb.numerics.newton import Stopping, descend

#: A likelihood known to 1e-9 is known far better than any comparison of models needs. Passes are not tuned: 2 to 12
#: are usual, and kinks (top_k > 1) may take more.
_FILTERING = Stopping(gain=1e-9, slack=1e-10, max_passes=300, floor=1.0)
#: turns between weights and the share of straying steps, and the relative change of the share that ends them; not
#: tuned: two are usual, and the weights hardly depend on the share
_MAX_TURNS, _SHARE_SETTLED = 12, 0.02
#: the shares of straying steps that are considered: fewer cannot be told from none, more leave nothing to explain
_LEAST_STRAYING, _MOST_STRAYING = 1e-5, 0.5
#: share of the bound's Hessian that f's own must have in every direction to be believed, and rounding at unit diagonal:
#: with .03 a few choices still promise more than certainty, with .3 benchmarks/deciders.py finds the worse kind of one
_LEAST_BEND, _BEND_ROUNDING = 0.1, 1e-9
#: where the search for the share begins, and how it ends; not tuned
_FIRST_STRAYING, _STRAY_SETTLED, _MAX_STRAY_STEPS = 0.01, 1e-4, 50
#: log of the sharpness, in units of the leads' root mean square, that `read_choices` looks at, and how finely:
#: from choices all but even to choices all but certain; not tuned
_SHARPNESS_RANGE, _SHARPNESS_STEP = (-4.0, 8.0), 0.05
#: steps of Newton's method for the sharpness of draws, and the standard errors that the last may be long; not tuned
_MAX_DRAW_STEPS, _DRAW_SETTLED = 300, 1e-6


class Summary(NamedTuple):
    """Laplace's approximation of an episode.

    Attributes
    ----------
    mode : ndarray of shape (d,)
        Minimiser of F.
    hessian : ndarray of shape (d, d)
        Of F there, P included: the precision of the weights given the episode and the prior. That of the convex bound,
        a little larger, if F is not convex there.
    information : ndarray of shape (d, d)
        Hessian of f there, or of its convex bound where f tells too little: what the choices tell, and never less than
        nothing. f itself bends the other way wherever a step may have strayed.
    loss : float
        f at the mode: minus the log-likelihood of the choices.
    stray : float
        Share of steps that stray.
    passes : int
        Passes over the choices.
    """

    mode: Vector
    hessian: Matrix
    information: Matrix
    loss: float
    stray: float
    passes: int


class DrawScale(NamedTuple):
    """The factor on the scores that explains which of the top k was drawn, and its standard error."""

    scale: float
    error: float


class ChoiceFit(NamedTuple):
    """What choices look like to somebody who knows the scores behind them.

    Attributes
    ----------
    log_likelihoods : ndarray of shape (steps,)
    strayed : ndarray of shape (steps,)
        How probable it is that each step strayed: near 1 for the choices that contradict the rest.
    agreement : float
        Share of steps whose choice had the best score.
    """

    log_likelihoods: Vector
    strayed: Vector
    agreement: float


class WithPrior:
    """F at a point, and its derivatives if they are asked for; f is a `ChoiceLoss` or works like one."""

    def __init__(self, x: Vector, loss: Any, centre: Vector, precision: Matrix) -> None:
        self.x, self._loss, self._precision, offset = x, loss, precision, x - centre
        self._pull = precision @ offset
        self.value = loss(x) + float(offset @ self._pull) / 2

    @lazy
    def here(self) -> Expansion:
        """Of f alone."""
        expansion: Expansion = self._loss.expand(self.x)
        return expansion

    @lazy
    def gradient(self) -> Vector:
        return self.here.gradient + self._pull

    @lazy
    def hessians(self) -> Sequence[Matrix]:
        bound = self.here.hessian + self._precision
        return (bound,) if self.here.excess is None else (bound - self.here.excess, bound)


def summarise(
    loss: ChoiceLoss, centre: Vector, precision: Matrix, *, start: Vector | None = None, stopping: Stopping = _FILTERING
) -> Summary:
    """Mode and Hessian of F by Newton's method; where F is not convex, on the bound of f that touches it there.

    Every step lowers F. Where choices may stray or be drawn from several, F has more than one minimum (with top_k > 1
    it has a kink wherever two candidates change places, and small minima between them): the lowest point is that below
    ``start``, which is the mode without these allowances unless given.
    """
    if start is None:
        plain = loss.plain()
        if plain is not loss:
            before = summarise(plain, centre, precision, start=centre, stopping=stopping)
            summary = summarise(loss, centre, precision, start=before.mode, stopping=stopping)
            return summary._replace(passes=summary.passes + before.passes)
        start = centre
    done = descend(lambda w: WithPrior(w, loss, centre, precision), start, stopping)
    if not done.solved:
        remedy = "Rescale the contexts to about 1, or raise the ridge, which is the precision of the prior."
        raise done.error("conditional logit", remedy)
    here = done.point.here
    return Summary(done.point.x, done.hessian, _information(here), here.loss, loss.stray, done.passes)


def _information(here: Expansion) -> Matrix:
    """The Hessian of f, unless it is less than a share of that of the bound in any direction: then that of the bound.

    Where f hardly bends, or the wrong way, its expansion peaks far away, at likelihoods above 1.
    """
    bound, excess = here.hessian, here.excess
    if excess is None:
        return bound
    unit = np.sqrt(bound.diagonal())
    unit[unit == 0] = 1.0
    left = ((1 - _LEAST_BEND) * bound - excess) / unit / unit[:, None]
    left.flat[:: len(left) + 1] += _BEND_ROUNDING
    return bound if lapack.dpotrf(left, lower=1)[1] else bound - excess


def summarise_straying(
    loss: ChoiceLoss, centre: Vector, precision: Matrix, *, start: Vector | None = None, most: float = _MOST_STRAYING
) -> Summary:
    """As `summarise`, with the share of straying steps, at most ``most``, estimated by turns with the weights, from
    ``loss.stray`` on.
    """
    passes, summary = 0, summarise(loss, centre, precision, start=start)
    for _ in range(_MAX_TURNS):
        passes += summary.passes
        stray = min(stray_rate(*loss.likelihoods(summary.mode)), most)
        if abs(stray - loss.stray) <= _SHARE_SETTLED * stray:
            break
        loss = loss.with_stray(stray)
        summary = summarise(loss, centre, precision, start=summary.mode)
    return summary._replace(passes=passes)


def stray_rate(meant: Vector, astray: Vector) -> float:
    """The share e of steps that stray, given each step's likelihoods if it does not and if it does.

    Maximises sum log((1 - e) meant + e astray) + log(e (1 - e)) / 2, which is concave; the last term keeps e from 0,
    from where no step could lift it again.
    """

    difference = astray - meant

    def slopes(e: float) -> tuple[float, float]:
        """First derivative, and minus the second."""
        ratio = difference / (meant + e * difference)
        return float(ratio.sum()) + 0.5 / e - 0.5 / (1 - e), float(ratio @ ratio) + 0.5 / e**2 + 0.5 / (1 - e) ** 2

    low, high = _LEAST_STRAYING, _MOST_STRAYING
    if slopes(high)[0] >= 0:
        return high
    if slopes(low)[0] <= 0:
        return low
    e = _FIRST_STRAYING
    for _ in range(_MAX_STRAY_STEPS):
        slope, fall = slopes(e)
        low, high = (e, high) if slope > 0 else (low, e)
        # Newton's step in log e, in which the slope is about straight; in the middle of what is left if it leaves that.
        bend = e * fall - slope
        stepped = e * math.exp(min(slope / bend, 20.0)) if bend > 0 else 0.0
        before, e = e, stepped if low < stepped < high else math.sqrt(low * high)
        if abs(e - before) <= _STRAY_SETTLED * e:
            break
    return e


def read_choices(scores: Vector, counts: NDArray[np.int64], chosen: NDArray[np.int64], top_k: int) -> ChoiceFit:
    """Read choices as drawn from the softmax of scores that are given up to their unit, a share of them going astray.

    Unit and share are those that make the choices likeliest.

    Parameters
    ----------
    scores : ndarray of shape (rows,)
        Of every candidate.
    counts : ndarray of shape (steps,)
        How many candidates each step has.
    chosen : ndarray of shape (steps,)
    top_k : int
        The chosen candidate need only be among so many best.
    """
    table, rows = _by_step(scores, counts), np.arange(len(counts))
    leads = table - table[rows, chosen][:, None]
    agreement = float(np.mean(leads.max(axis=1) <= 0))
    leads[rows, chosen] = -np.inf
    if top_k > 1:
        # The best k - 1 others need not lose.
        leads = np.sort(leads, axis=1)[:, : max(0, leads.shape[1] - top_k + 1)]
    of_best, astray = np.minimum(top_k, counts), 1.0 / counts
    size = float(np.sqrt(np.mean(np.square(leads[np.isfinite(leads)])))) if np.isfinite(leads).any() else 0.0

    def read(sharpness: float) -> ChoiceFit:
        k = np.exp(sharpness) / (size or 1.0)
        meant = 1 / (1 + np.exp(np.minimum(k * leads, 600.0)).sum(axis=1)) / of_best
        e = stray_rate(meant, astray)
        likely = (1 - e) * meant + e * astray
        return ChoiceFit(np.log(likely), e * astray / likely, agreement)

    likeliest = minimize_scalar(
        lambda s: -read(s).log_likelihoods.sum(),
        bounds=_SHARPNESS_RANGE,
        method="bounded",
        options={"xatol": _SHARPNESS_STEP},
    )
    return read(float(likeliest.x))


def draw_scale(scores: NDArray[Any], offsets: NDArray[np.int64], chosen: NDArray[np.int64], top_k: int) -> DrawScale:
    """How sharply a decider draws among its k best candidates: softmax(scale * scores), at least 0.

    Which candidates are the best does not tell the unit of the scores; how often the better of them are drawn does.
    Maximum likelihood over the steps whose choice is among the k best. It is 0, with an infinite error, if the scores
    of the k best never differ.

    Parameters
    ----------
    scores : ndarray of shape (rows,)
        Of every candidate, each step's with the policy of its time.
    offsets : ndarray of shape (steps + 1,)
    chosen : ndarray of shape (steps,)
    top_k : int
    """
    counts = step_counts(offsets)
    table, steps = _by_step(scores.astype(np.float64, copy=False), counts), np.arange(len(counts))
    # The k best of each step less the best one (-inf where there are fewer), and the drawn one.
    best, of_chosen = -np.sort(-table, axis=1)[:, :top_k], table[steps, chosen]
    among = of_chosen >= best[steps, np.minimum(counts, top_k) - 1]
    leads, drawn = (best - best[:, :1])[among], (of_chosen - best[:, 0])[among]
    scale, there = 0.0, np.isfinite(leads)
    for _ in range(_MAX_DRAW_STEPS):
        # Where a step has fewer than k candidates, none stands for the rest, at a scale of 0 either.
        weights = np.exp(scale * np.where(there, leads, 0.0)) * there
        weights /= weights.sum(axis=1, keepdims=True)
        mean = np.sum(weights * np.where(weights > 0, leads, 0.0), axis=1)
        gradient = float((drawn - mean).sum())
        curvature = float(np.sum(weights * np.square(np.where(weights > 0, leads - mean[:, None], 0.0))))
        if curvature <= 0:
            return DrawScale(0.0, np.inf)
        # At most a doubling: where every draw was the best, the likelihood rises for ever, and soon by nothing.
        step = min(gradient / curvature, max(scale, 1 / np.sqrt(curvature)))
        if scale + step <= 0:
            step = -scale
        scale += step
        if abs(step) * np.sqrt(curvature) < _DRAW_SETTLED:
            break
    return DrawScale(scale, float(1 / np.sqrt(curvature)))


def _by_step(scores: Vector, counts: NDArray[np.int64]) -> Matrix:
    """Scores of all candidates as a table with a row for each step, -inf where it has fewer candidates than others."""
    table = np.full((len(counts), int(counts.max())), -np.inf)
    table[np.arange(table.shape[1]) < counts[:, None]] = scores
    return table
