"""Choices without error: half-spaces for (policy, alpha), learned from by expectation propagation.

An "sbucb" decider with the policy p prefers its choice c to another candidate o:

    <p, s_o - s_c> + alpha (H(s_o) - H(s_c))  <=  0.

So w = (p, alpha) lies in a cone, whose rows are the differences of (s, H(s)). An "egreedy" decider adds no bonus: then
w = p, and rows are differences of s. Choices tell only the direction of w, which is p / alpha. Beliefs about w are
normal all the same; its length is a matter of the prior. In these coordinates every row is a half-space through the
origin, and expectation propagation (Minka 2001) learns from all of them nearly exactly:
each row has a Gaussian site of its own, chosen so that the belief has the moments of the cavity (the belief without
this site) cut by the row. Laplace's approximation would not do: it goes by slopes, and the walls of a cone have none.

The product of the sites is one Gaussian factor, which stands for the whole episode. Beliefs that are not far from the
one it was found with can learn from it by a Kalman update.

A row may be wrong with probability ``stray``, and all copies of it with that to the power of their number: one that
contradicts what is firmly known is left alone. Where more rows
fail than that, they are learned from once more, with the share that failed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.special import log_ndtr

from ibcb.engine import Block
from ibcb.numerics.contexts import Contexts, dense, few_pairs, is_sparse, row_lengths, scaled_rows, stacked, with_column
from ibcb.numerics.gaussians import Beliefs, Site, factor, site_at
from ibcb.numerics.ridge import Ridge, widths

__all__ = ["Cone", "ConeRows", "EPSettings", "Posterior", "RowSearch", "cone_sites", "propagate"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class EPSettings:
    """Expectation propagation; judged by benchmarks/forecast.py and benchmarks/dirty.py."""

    #: probability that a row is wrong, at least and at most; and how many times more must fail to be looked at again
    stray: float = 1e-3
    most_stray: float = 0.25
    surprising: float = 2.0
    #: passes over the sites, and the move in posterior deviations at which they end
    max_passes: int = 16
    tolerance: float = 0.02
    #: by how much the information about each weight may grow in a pass, as a share of itself: many rows that say the
    #: same, learned from at once, would each be believed in full
    growth: float = 1.0
    #: rows whose site is weaker than this are dropped, once they are more than `dropped` of all
    settled: float = 1e-5
    dropped: float = 0.2


@dataclass(frozen=True)
class RowSearch:
    """Which rows are learned from; judged by benchmarks/forecast.py."""

    #: rows that hold by more deviations than this tell nothing
    far: float = 8.0
    #: rows thought to be settled that fail by no more than this are learned from after all; others may be wrong
    near: float = 2.0
    #: what is believed after a look at some rows has its deviations widened by this factor before others are called
    #: settled
    widening: float = 2.0
    #: rows per weight that are looked at first, and at most (an errorless episode has fewer that matter); rows that any
    #: number of weights may have
    first_rows: int = 16
    most_rows: int = 32
    few_rows: int = 256
    #: looks at all rows, and how closely propagation comes to its end between them
    looks: int = 3
    tolerance: float = 0.5
    #: of all rows one part, the closest to 0, is looked at first
    parts: int = 4


_EP, _SEARCH = EPSettings(), RowSearch()
_LOG_ROOT = 0.5 * np.log(2 * np.pi)
_TINY = float(np.finfo(np.float64).tiny)
#: rows among which copies are looked for first, and the share of distinct ones below which they are counted; not tuned
_LOOKED_AT, _FEW_COPIES = 1024, 0.9
#: log-probability of a wrong row below which it need not go: 1 in 1e9
_SURELY_RIGHT = -20.7
#: digits that equal products have in common, whatever their rounding
_NAME_BITS = 36
#: place of the row that says alpha > 0, which is none of the log's
_ALPHA = -1


class ConeRows(NamedTuple):
    """Rows of a cone, each with its site exp(shift y - precision y^2 / 2) of y = row w.

    Attributes
    ----------
    leads : Contexts of shape (n, o)
        Dense, or sparse where the contexts are.
    places : ndarray of shape (n,)
        Where each is among the rows of its block.
    times : ndarray of shape (n,)
        How often it is there, more often than its opposite: equal rows are one.
    precision, shift : ndarray of shape (n,)
        Natural parameters of the sites; zeros of rows of which nothing is known yet.
    """

    leads: Contexts
    places: NDArray[np.int64]
    times: Vector
    precision: Vector
    shift: Vector

    @classmethod
    def fresh(cls, leads: Contexts, places: NDArray[np.int64], times: Vector | None = None) -> ConeRows:
        """Rows of which nothing is known yet; each is there once unless ``times`` says otherwise."""
        n = len(places)
        return cls(leads, places, np.ones(n) if times is None else times, np.zeros(n), np.zeros(n))

    def joined(self, other: ConeRows) -> ConeRows:
        """These rows and then the others."""
        rest = (np.concatenate(both) for both in zip(self[1:], other[1:], strict=True))
        return ConeRows(stacked([self.leads, other.leads]), *rest)


class Posterior(NamedTuple):
    """A belief about w after some rows.

    Attributes
    ----------
    mean : ndarray of shape (o,)
    root : ndarray of shape (o, o)
        L, of the covariance L L'.
    log_likelihood : float
        Of the rows.
    log_scale : float
        Of the factor that the sites are together, exp(log_scale + sum over rows of shift y - precision y^2 / 2).
    rows : ConeRows
        Those that told something, with their sites.
    """

    mean: Vector
    root: Matrix
    log_likelihood: float
    log_scale: float
    rows: ConeRows


@np.errstate(all="ignore")
def propagate(
    rows: ConeRows, mean: Vector, root: Matrix, *, stray: float = _EP.stray, tolerance: float = _EP.tolerance
) -> Posterior:
    """Learn that leads w <= 0, by expectation propagation with all sites at once; it begins with the sites given.

    Raises FloatingPointError where numbers cannot hold the belief.

    Parameters
    ----------
    rows : ConeRows
    mean, root : ndarray of shape (o,) and (o, o)
        What is believed of w: N(mean, root root').
    stray : float
        Probability that a row is wrong.
    tolerance : float
        The move in posterior deviations at which passes end.
    """
    ahead, o = rows.leads @ mean, len(mean)
    belief = _SparseRows(rows.leads, root) if few_pairs(rows.leads) else _DenseRows(dense(rows.leads), root)
    places = np.arange(len(ahead))
    # That all copies of a row are wrong.
    astray = _log_wrong(rows.times, stray)
    # Sites of x = y - ahead, the row's product with w - mean: natural parameters tau (precision) and nu (shift).
    tau, nu = rows.precision, rows.shift - rows.precision * ahead
    longest, stride, moved_before, of_dropped = 1.0, 1.0, np.inf, 0.0
    for passes in range(_EP.max_passes + 1):
        moved = belief.given(tau, nu)
        # The cavity of x, and what the row itself makes of it.
        marginal = np.maximum(belief.marginal, _TINY)
        share_left = np.maximum(1 - tau * marginal, 1e-3)
        cavity = marginal / share_left
        x = (belief.middle - nu * marginal) / share_left
        likelihood, pull, shrink = _tilt(ahead + x, cavity, astray)
        if (passes and moved < tolerance * stride) or passes == _EP.max_passes:
            break
        wanted = shrink / (1 - shrink) / cavity
        if passes > 1:
            longest = max(0.1, 0.7 * longest) if moved > moved_before else min(1.0, 1.1 * longest)
        if passes:
            moved_before = moved
        change = float(np.abs(wanted - tau) @ marginal)
        stride = min(longest, o * _EP.growth / max(change, _TINY))
        tau = tau + stride * (wanted - tau)
        nu = nu + stride * (wanted * x - pull * (1 + wanted * cavity) - nu)
        kept = (shrink > _EP.settled) | (tau * cavity > _EP.settled)
        if passes and np.count_nonzero(kept) < (1 - _EP.dropped) * len(kept):
            of_dropped += float(likelihood[~kept].sum())
            belief.keep(kept)
            places, ahead, tau, nu, astray = places[kept], ahead[kept], tau[kept], nu[kept], astray[kept]
    # What each site replaces, and what all of them together make of the prior.
    apart = (x + nu * cavity) ** 2 / (cavity * (1 + tau * cavity))
    each = likelihood + 0.5 * (np.log1p(tau * cavity) + x**2 / cavity - apart)
    log_scale = float(each.sum()) + of_dropped
    total = log_scale + belief.log_mass
    offset, after = belief.posterior()
    if not (np.isfinite(total) and np.isfinite(offset).all()):
        raise FloatingPointError("numbers cannot hold what the choices of an episode say of the policy")
    # An approximation may be more than certain of what it has seen.
    excess = max(total, 0.0)
    return Posterior(
        mean + offset,
        after,
        total - excess,
        log_scale - excess - float((nu + 0.5 * tau * ahead) @ ahead),
        ConeRows(rows.leads[places], rows.places[places], rows.times[places], tau, nu + tau * ahead),
    )


class _DenseRows:
    """A belief N(0, root root') about w - mean, given sites of the products of dense rows with it.

    In coordinates v with w = mean + root v, where it is N(0, I).
    """

    #: mean and variance of each row's product, and the log of what the sites make of the belief's mass
    middle: Vector
    marginal: Vector
    log_mass: float

    def __init__(self, leads: Matrix, root: Matrix) -> None:
        self._B, self._root, self._v = leads @ root, root, np.zeros(len(root))

    def given(self, tau: Vector, nu: Vector) -> float:
        """Learn from sites; returns how far the mean moved since the last ones, in deviations."""
        B, o = self._B, len(self._v)
        scaled = B * np.sqrt(tau)[:, None]
        precision = scaled.T @ scaled
        precision.flat[:: o + 1] += 1.0
        C = self._C = _cholesky(precision)
        half = blas.dtrsv(C, nu @ B, lower=1)
        reached = blas.dtrsv(C, half, lower=1, trans=1)
        step, self._v = blas.dtrmv(C, reached - self._v, lower=1, trans=1), reached
        white = blas.dtrsm(1.0, C, B.T, lower=1)
        self.middle, self.marginal = half @ white, np.einsum("on,on->n", white, white)
        self.log_mass = 0.5 * float(half @ half) - float(np.log(C.diagonal()).sum())
        return math.sqrt(float(step @ step))

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Leave the others out."""
        self._B = self._B[rows]

    def posterior(self) -> tuple[Vector, Matrix]:
        """Mean of w less what it was, and a root of its covariance."""
        return self._root @ self._v, blas.dtrsm(1.0, self._C, self._root, side=1, lower=1, trans_a=1)


class _SparseRows:
    """The same of sparse rows: in the coordinates of w, where a row's own square touches few entries of a matrix."""

    middle: Vector
    marginal: Vector
    log_mass: float

    def __init__(self, leads: Contexts, root: Matrix) -> None:
        self._A, self._offset = leads, np.zeros(len(root))
        back = np.linalg.inv(root)
        self._precision = back.T @ back
        self._log_det = float(np.linalg.slogdet(root)[1])
        self._pair_up()

    def _pair_up(self) -> None:
        """Of each row: places and products of every two of its numbers, those below the diagonal once."""
        A, o = self._A, len(self._offset)
        counts = np.diff(A.indptr)
        owners, places, products = list[NDArray[Any]](), list[NDArray[Any]](), list[NDArray[Any]]()
        for count in np.unique(counts[counts > 0]).tolist():
            rows = np.flatnonzero(counts == count)
            at = A.indptr[rows][:, None] + np.arange(count)
            column, value = A.indices[at].astype(np.int64), A.data[at]
            i, j = np.tril_indices(count)
            owners.append(np.repeat(rows, len(i)))
            places.append((column[:, i] * o + column[:, j]).ravel())
            products.append((value[:, i] * value[:, j]).ravel())
        none = [np.empty(0, dtype=np.int64)]
        self._owner, self._place = np.concatenate(owners or none), np.concatenate(places or none)
        self._product = np.concatenate(products or [np.empty(0)])
        self._below = np.where(self._place // o == self._place % o, 1.0, 2.0) * self._product

    def given(self, tau: Vector, nu: Vector) -> float:
        """Learn from sites; returns how far the mean moved since the last ones, in deviations."""
        A, o = self._A, len(self._offset)
        lower = _sums(self._place, tau[self._owner] * self._product, o * o).reshape(o, o)
        precision = self._precision + lower
        precision += np.tril(lower, -1).T
        # At unit diagonal: features may have any unit.
        unit = self._unit = np.sqrt(precision.diagonal())
        C = self._C = _cholesky(precision / unit / unit[:, None])
        slope = (nu @ A) / unit
        half = blas.dtrsv(C, slope, lower=1)
        reached = blas.dtrsv(C, half, lower=1, trans=1) / unit
        step, self._offset = blas.dtrmv(C, unit * (reached - self._offset), lower=1, trans=1), reached
        covariance = lapack.dpotri(C, lower=1)[0] / unit / unit[:, None]
        each = covariance.ravel()[self._place] * self._below
        self.middle, self.marginal = A @ reached, _sums(self._owner, each, A.shape[0])
        log_det = float(np.log(C.diagonal()).sum() + np.log(unit).sum()) + self._log_det
        self.log_mass = 0.5 * float(half @ half) - log_det
        return math.sqrt(float(step @ step))

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Leave the others out."""
        self._A = self._A[np.flatnonzero(rows)]
        kept = rows[self._owner]
        self._owner = (np.cumsum(rows) - 1)[self._owner[kept]]
        self._place, self._product, self._below = self._place[kept], self._product[kept], self._below[kept]

    def posterior(self) -> tuple[Vector, Matrix]:
        """Mean of w less what it was, and a root of its covariance."""
        return self._offset, lapack.dtrtri(self._C, lower=1)[0].T / self._unit[:, None]


def _sums(places: NDArray[np.int64], values: Vector, count: int) -> Vector:
    """Sum of the values at each place. Shape (count,)."""
    sums: NDArray[Any] = np.bincount(places, values, minlength=count)
    return sums.astype(np.float64, copy=False)


def _cholesky(precision: Matrix) -> Matrix:
    C, failed = lapack.dpotrf(precision, lower=1, clean=1)
    if failed:
        raise FloatingPointError("numbers cannot hold what the choices of an episode say of the policy")
    found: Matrix = C
    return found


def _log_wrong(times: Vector, stray: float) -> Vector:
    """Log-probability that so many copies of a row are wrong; beyond `_SURELY_RIGHT` more of them add nothing."""
    return np.maximum(times * math.log(stray), _SURELY_RIGHT)


def _tilt(x: Vector, spread: Vector, astray: Vector) -> tuple[Vector, Vector, Vector]:
    """Of a row whose product is N(x, spread): its log-likelihood, minus the slope of that, and the share of the spread
    that it takes away. ``astray``: the log-probability that it is wrong.
    """
    deviation = np.sqrt(spread)
    z = -x / deviation
    meant = np.log1p(-np.exp(astray))
    likelihood: Vector = np.logaddexp(astray, meant + log_ndtr(z))
    r = np.exp(meant - _LOG_ROOT - 0.5 * z * z - likelihood)
    # A row that is more probably wrong than right would widen the belief: it is left alone.
    r = np.where(r + z > 0, r, 0.0)
    return likelihood, r / deviation, np.clip(r * (r + z), 0.0, 0.999)


def cone_sites(
    block: Block, ridge: Ridge, beliefs: Sequence[Beliefs], stray: float, *, bonus: bool = True
) -> tuple[list[Site], float]:
    """What the choices of an episode's block say of w, as a factor for each of some beliefs about it.

    Rows are searched for the first belief only: what is told by rows that the choices of one and the same policy leave
    open is not much different for another.

    Parameters
    ----------
    block : Block
    ridge : Ridge
        Of the choices before the episode.
    beliefs : sequence of Beliefs
        One each.
    stray : float
        Share of rows that were wrong in the episode before.
    bonus : bool
        Whether the decider adds alpha H(s) to <p, s>, and alpha > 0 is the last entry of w.

    Returns
    -------
    sites : list of Site
    stray : float
        The same share of this episode.
    """
    cone, found, learned = Cone(block, ridge, bonus=bonus), list[Site](), None
    cone.stray = min(max(stray, _EP.stray), _EP.most_stray)
    for belief in beliefs:
        mean, root = belief.mean[0], factor(belief.covariance[0])
        if learned is None:
            learned = cone.learn(mean, root)
            if cone.failing_share(learned) > _EP.surprising * cone.stray:
                cone.stray = min(cone.failing_share(learned), _EP.most_stray)
                learned = cone.learn(mean, root)
            failed = cone.failing_share(learned)
        else:
            # Not from the sites of another belief: where rows contradict each other they would lead back to it.
            logged, known = np.flatnonzero(learned.rows.places != _ALPHA), learned.rows
            rows = ConeRows.fresh(known.leads[logged], known.places[logged], known.times[logged])
            learned = cone.learn_all(cone.beforehand(len(mean)).joined(rows), mean, root)
        found.append(_as_one(learned))
    return found, failed


def _as_one(learned: Posterior) -> Site:
    """The product of the sites."""
    rows, w = learned.rows, learned.mean
    information = dense(rows.leads.T @ scaled_rows(rows.leads, rows.precision))
    site = site_at(w, information, information @ w - rows.shift @ rows.leads, 0.0, least=1e-12)
    return replace(site, constant=learned.log_scale + 0.5 * float(site.seen @ site.seen))


class Cone:
    """All rows of an episode's block, and which of them tell something. Nearly all rows of a log hold anyway.

    Rows are searched in single precision, unless that overflows, and learned from in double.
    """

    stray = _EP.stray

    def __init__(self, block: Block, ridge: Ridge, *, bonus: bool = True) -> None:
        self._block, self._whitener = block, ridge.whitener if bonus else None
        self._leads, self._squares = _differences(block, block.widths(ridge) if bonus else None)
        self._rows, times, self._both_ways = _distinct(block)
        if len(times) < block.n_rows:
            self._leads, self._squares = self._leads[self._rows], self._squares[self._rows]
        self._times = times
        self._sum = times.astype(self._leads.dtype) @ self._leads

    def beforehand(self, o: int) -> ConeRows:
        """What is known of w before any choice: alpha > 0, where it is part of it."""
        if self._whitener is None:
            return ConeRows.fresh(np.zeros((0, o)), np.zeros(0, dtype=np.int64))
        return ConeRows.fresh(-np.eye(1, o, o - 1), np.array([_ALPHA]))

    def learn(self, mean: Vector, root: Matrix) -> Posterior:
        """What a belief N(mean, root root') becomes, with alpha > 0 where it is tracked.

        Of the rows that are not settled by what is known, some are learned from first; after that most of the others
        are settled too.
        """
        rows = self.beforehand(len(mean))
        centre, spread, most = mean, root, max(_SEARCH.few_rows, _SEARCH.first_rows * len(mean))
        for _ in range(_SEARCH.looks - 1):
            open_rows, lead, deviation = self._open(centre, spread, rows)
            rows = rows.joined(self._some(open_rows, lead, deviation, most))
            if len(open_rows) <= most:
                break
            learned = propagate(rows, mean, root, stray=self.stray, tolerance=_SEARCH.tolerance)
            rows, centre, spread = learned.rows, learned.mean, _SEARCH.widening * learned.root
            most = max(2 * _SEARCH.few_rows, _SEARCH.most_rows * len(mean)) - len(rows.places)
        return self.learn_all(rows, mean, root)

    def learn_all(self, rows: ConeRows, mean: Vector, root: Matrix) -> Posterior:
        """What a belief becomes by some rows, and by any others that do not hold after them."""
        learned = propagate(rows, mean, root, stray=self.stray)
        failing, lead = self._failing(learned.mean, rows)
        near = lead < _SEARCH.near * self._deviations(learned.mean.astype(lead.dtype), learned.root, failing)
        if near.any():
            rows = learned.rows.joined(self._exactly(failing[near]))
            learned = propagate(rows, mean, root, stray=self.stray)
            failing, lead = self._failing(learned.mean, rows)
        # The others must be wrong. They still count as unlikely, for every belief alike.
        white = self._leads[failing] @ learned.root.astype(lead.dtype)
        spread = np.maximum(np.einsum("no,no->n", white, white), np.finfo(lead.dtype).tiny)
        astray = _log_wrong(self._times[failing], self.stray)
        with np.errstate(over="ignore"):
            unlikely = float(_tilt(lead.astype(np.float64), spread.astype(np.float64), astray)[0].sum())
        # Nor do rows that are there both ways: as many of them are wrong as there are of the rarer.
        unlikely += self._both_ways * math.log(self.stray)
        return learned._replace(
            log_likelihood=learned.log_likelihood + unlikely, log_scale=learned.log_scale + unlikely
        )

    def failing_share(self, learned: Posterior) -> float:
        """Share of the rows that fail by what was learned."""
        fails = self._leads @ learned.mean.astype(self._leads.dtype) > 0
        return (self._both_ways + float(self._times[fails].sum())) / (float(self._times.sum()) + 2 * self._both_ways)

    def _deviations(self, w: NDArray[Any], root: Matrix, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Of the products of some rows with w."""
        L, typical = root.astype(w.dtype), self._sum @ w
        if typical < 0:
            # The length of w does not matter: deviations at the length that gives the typical row its lead.
            L = L - np.outer(w, (self._sum @ L) / typical)
        if is_sparse(self._leads):
            return row_lengths(self._leads[rows], L)
        white = L.T @ self._leads.take(rows, axis=0).T
        np.multiply(white, white, out=white)
        found: NDArray[Any] = np.sqrt(np.add.reduce(white, axis=0))
        return found

    def _open(
        self, mean: Vector, root: Matrix, known: ConeRows
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """Rows that neither hold nor fail by `RowSearch.far` deviations, but those known; by how much each does, and
        its deviation.
        """
        w = mean.astype(self._leads.dtype)
        lead = np.abs(self._leads @ w)
        # Deviations as if weights were uncorrelated. Rows that are many of these from 0 are the further ones by the
        # real deviations too, unless correlation adds more to theirs than to those of all rows that are close.
        rough = np.sqrt(self._squares @ np.einsum("ij,ij->i", root, root).astype(w.dtype))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = lead / rough
        part = len(ratio) // _SEARCH.parts
        close = np.partition(ratio, part)[part]
        rows = np.flatnonzero(ratio <= close)
        deviation = self._deviations(w, root, rows)
        if not close >= _SEARCH.far * (deviation / rough[rows]).max(initial=0.0):
            rows = np.arange(len(lead))
            deviation = self._deviations(w, root, rows)
        is_open = lead[rows] < _SEARCH.far * deviation
        is_open &= ~np.isin(rows, known.places)
        rows, deviation = rows[is_open], deviation[is_open]
        return rows, lead[rows], deviation

    def _some(self, rows: NDArray[np.int64], lead: NDArray[Any], deviation: NDArray[Any], most: int) -> ConeRows:
        """The most open rows; where nothing is known any, the same for every order of candidates and features."""
        if most <= 0:
            return self._exactly(rows[:0])
        if len(rows) > most and lead.any():
            rows = rows[np.argpartition(lead / deviation, most - 1)[:most]]
        elif len(rows) > most:
            named = np.lexsort((deviation, self._block.step_of(self._rows[rows])))
            rows = rows[named[np.random.default_rng(0).permutation(len(rows))[:most]]]
        return self._exactly(rows)

    def _failing(self, mean: Vector, known: ConeRows) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Rows that fail, but those known, and by how much."""
        lead = self._leads @ mean.astype(self._leads.dtype)
        fails = lead > 0
        fails[known.places[known.places != _ALPHA]] = False
        found = np.flatnonzero(fails)
        return found, lead[found]

    def _exactly(self, rows: NDArray[np.int64]) -> ConeRows:
        """Some rows in double precision."""
        own = self._rows[rows]
        steps, step = np.unique(self._block.step_of(own), return_inverse=True)
        places = np.concatenate([own, self._block.chosen_rows.take(steps)])
        contexts = self._block.contexts[places].astype(np.float64, copy=False)
        features = contexts
        if self._whitener is not None:
            features = with_column(contexts, widths(self._whitener, contexts))
        count = len(rows)
        return ConeRows.fresh(features[:count] - features[count:][step], rows, self._times[rows])


def _differences(block: Block, wide: NDArray[Any] | None) -> tuple[Contexts, Contexts]:
    """Contexts of all rows less those chosen, and so their widths where a bonus is added; and the squares of these."""
    d, dtype = block.contexts.shape[1], _single(block.contexts) if wide is None else wide.dtype
    # Candidates that do not differ from the chosen one have a row of zeros, which is never open; exactly, whatever the
    # rounding of their widths.
    if is_sparse(block.contexts):
        leads = block.all_leads(dtype)
        if wide is not None:
            of_widths = np.empty((len(wide), 1), dtype=dtype)
            block.less_chosen(wide[:, None], out=of_widths)
            of_widths[np.diff(leads.indptr) == 0] = 0.0
            leads = with_column(leads, of_widths[:, 0])
        return leads, leads.multiply(leads).tocsr()
    leads = np.empty((block.n_rows, d + (wide is not None)), dtype=dtype)
    block.less_chosen(block.contexts, out=leads[:, :d])
    if wide is not None:
        block.less_chosen(wide[:, None], out=leads[:, d:])
        leads[~leads[:, :d].any(axis=1), d] = 0.0
    return leads, leads * leads


def _single(contexts: Contexts) -> Any:
    """Single precision, unless contexts overflow in it."""
    values = contexts.data if is_sparse(contexts) else contexts
    fits = float(np.abs(values).max(initial=0.0)) < np.sqrt(np.finfo(np.float32).max)
    return np.float32 if fits else np.float64


def _distinct(block: Block) -> tuple[NDArray[np.int64], Vector, float]:
    """Rows of a block of which no two are equal or opposite; all of them where hardly any are.

    Steps among a few arms, or items known by their names alone, have the same candidates again and again. Where one of
    two is preferred k times and the other j times, k - j rows remain.

    Returns
    -------
    rows : ndarray of shape (n,)
    times : ndarray of shape (n,)
        How much more often each is there than its opposite.
    both_ways : float
        How many rows of the block have an opposite, and are the rarer.
    """
    n, d = block.n_rows, block.contexts.shape[1]
    # Equal candidates have equal products with any vector; with this one others hardly do.
    mixture = np.cos(np.arange(1, d + 1))
    some = _rows_of_some_steps(block)
    of_chosen = block.chosen_rows[block.step_of(some)]
    names = _pair_names(block.contexts[some] @ mixture, block.contexts[of_chosen] @ mixture)[0]
    if len(np.unique(names)) > _FEW_COPIES * len(some):
        return np.arange(n), np.ones(n), 0.0
    products = block.contexts @ mixture
    names, way = _pair_names(products, np.repeat(products[block.chosen_rows], np.diff(block.offsets)))
    _, pair = np.unique(names, return_inverse=True)
    counts = np.zeros((int(pair.max()) + 1, 2))
    np.add.at(counts, (pair, way), 1.0)
    more = counts.argmax(axis=1)
    # The first row of each pair that goes the way of the majority.
    going = np.flatnonzero(way == more[pair])[::-1]
    first = np.empty(len(counts), dtype=np.int64)
    first[pair[going]] = going
    times = counts.max(axis=1) - counts.min(axis=1)
    order = np.argsort(first)
    order = order[times[order] > 0]
    return first[order], times[order], float(counts.min(axis=1).sum())


def _rows_of_some_steps(block: Block) -> NDArray[np.int64]:
    """At least `_LOOKED_AT` rows of a block, or all: those of random steps, so that their order there is no matter."""
    counts = np.diff(block.offsets)
    steps = np.random.default_rng(0).permutation(len(counts))
    kept = np.zeros(len(counts), dtype=bool)
    kept[steps[: int(np.searchsorted(np.cumsum(counts[steps]), _LOOKED_AT)) + 1]] = True
    return np.flatnonzero(np.repeat(kept, counts))


def _pair_names(one: Vector, other: Vector) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """One number for every two, equal where they are, up to rounding and order; and which of the two is larger."""
    size = max(float(np.abs(one).max()), float(np.abs(other).max()), _TINY)
    whole = [np.round(values * (2.0**_NAME_BITS / size)).astype(np.int64) for values in (one, other)]
    low, high = np.minimum(*whole).astype(np.uint64), np.maximum(*whole).astype(np.uint64)
    return low * np.uint64(0x9E3779B97F4A7C15) + high, (whole[0] > whole[1]).astype(np.int64)
