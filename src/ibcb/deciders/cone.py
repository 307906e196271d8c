"""Choices without error: half-spaces for (policy, alpha), learned from by expectation propagation.

An "sbucb" decider with the policy p prefers its choice c to another candidate o:

    <p, s_o - s_c> + alpha (H(s_o) - H(s_c))  <=  0.

So w = (p, alpha) lies in a cone, whose rows are the differences of (s, H(s)). Choices tell only its direction, which is
p / alpha. Beliefs about w are normal all the same; its length is a matter of the prior. In these coordinates every row
is a half-space through the origin, and expectation propagation (Minka 2001) learns from all of them nearly exactly:
each row has a Gaussian site of its own, chosen so that the belief has the moments of the cavity (the belief without
this site) cut by the row. Laplace's approximation would not do: it goes by slopes, and the walls of a cone have none.

The product of the sites is one Gaussian factor, which stands for the whole episode. Beliefs that are not far from the
one it was found with can learn from it by a Kalman update.

A row may be wrong with probability ``stray``: one that contradicts what is firmly known is left alone. Where more rows
fail than that, they are learned from once more, with the share that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.special import log_ndtr

from ibcb.engine import Block
from ibcb.numerics.contexts import is_sparse, row_lengths, taken, with_column
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
#: place of the row that says alpha > 0, which is none of the log's
_ALPHA = -1


class ConeRows(NamedTuple):
    """Rows of a cone, each with its site exp(shift y - precision y^2 / 2) of y = row w.

    Attributes
    ----------
    leads : ndarray of shape (n, o)
    places : ndarray of shape (n,)
        Where each is among the rows of its block.
    precision, shift : ndarray of shape (n,)
        Natural parameters of the sites; zeros of rows of which nothing is known yet.
    """

    leads: Matrix
    places: NDArray[np.int64]
    precision: Vector
    shift: Vector

    @classmethod
    def fresh(cls, leads: Matrix, places: NDArray[np.int64]) -> ConeRows:
        """Rows of which nothing is known yet."""
        return cls(leads, places, np.zeros(len(leads)), np.zeros(len(leads)))

    def joined(self, other: ConeRows) -> ConeRows:
        """These rows and then the others."""
        leads, places, precision, shift = (np.concatenate(both) for both in zip(self, other, strict=True))
        return ConeRows(leads, places, precision, shift)


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
    # In coordinates v with w = mean + root v the belief is N(0, I).
    B, ahead, o = rows.leads @ root, rows.leads @ mean, len(mean)
    places = np.arange(len(B))
    # Sites of x = y - ahead, the row's product with v: natural parameters tau (precision) and nu (shift).
    tau, nu = rows.precision, rows.shift - rows.precision * ahead
    v, longest, stride, moved_before, of_dropped = np.zeros(o), 1.0, 1.0, np.inf, 0.0
    for passes in range(_EP.max_passes + 1):
        scaled = B * np.sqrt(tau)[:, None]
        precision = scaled.T @ scaled
        precision.flat[:: o + 1] += 1.0
        C, failed = lapack.dpotrf(precision, lower=1, clean=1)
        if failed:
            raise FloatingPointError("numbers cannot hold what the choices of an episode say of the policy")
        half = blas.dtrsv(C, nu @ B, lower=1)
        reached = blas.dtrsv(C, half, lower=1, trans=1)
        step, v = blas.dtrmv(C, reached - v, lower=1, trans=1), reached
        moved = float(step @ step) ** 0.5
        # The cavity of x, and what the row itself makes of it.
        white = blas.dtrsm(1.0, C, B.T, lower=1)
        marginal = np.maximum(np.einsum("on,on->n", white, white), _TINY)
        share_left = np.maximum(1 - tau * marginal, 1e-3)
        cavity = marginal / share_left
        x = (half @ white - nu * marginal) / share_left
        likelihood, pull, shrink = _tilt(ahead + x, cavity, stray)
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
            places, B, ahead, tau, nu = places[kept], B[kept], ahead[kept], tau[kept], nu[kept]
    # What each site replaces, and what all of them together make of the prior.
    apart = (x + nu * cavity) ** 2 / (cavity * (1 + tau * cavity))
    each = likelihood + 0.5 * (np.log1p(tau * cavity) + x**2 / cavity - apart)
    log_scale = float(each.sum()) + of_dropped
    total = log_scale + 0.5 * float(half @ half) - float(np.log(C.diagonal()).sum())
    if not (np.isfinite(total) and np.isfinite(v).all()):
        raise FloatingPointError("numbers cannot hold what the choices of an episode say of the policy")
    # An approximation may be more than certain of what it has seen.
    excess = max(total, 0.0)
    return Posterior(
        mean + root @ v,
        blas.dtrsm(1.0, C, root, side=1, lower=1, trans_a=1),
        total - excess,
        log_scale - excess - float((nu + 0.5 * tau * ahead) @ ahead),
        ConeRows(rows.leads[places], rows.places[places], tau, nu + tau * ahead),
    )


def _tilt(x: Vector, spread: Vector, stray: float) -> tuple[Vector, Vector, Vector]:
    """Of a row whose product is N(x, spread): its log-likelihood, minus the slope of that, and the share of the spread
    that it takes away.
    """
    deviation = np.sqrt(spread)
    z = -x / deviation
    likelihood: Vector = np.logaddexp(np.log(stray), np.log1p(-stray) + log_ndtr(z))
    r = np.exp(np.log1p(-stray) - _LOG_ROOT - 0.5 * z * z - likelihood)
    # A row that is more probably wrong than right would widen the belief: it is left alone.
    r = np.where(r + z > 0, r, 0.0)
    return likelihood, r / deviation, np.clip(r * (r + z), 0.0, 0.999)


def cone_sites(block: Block, ridge: Ridge, beliefs: Sequence[Beliefs], stray: float) -> tuple[list[Site], float]:
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

    Returns
    -------
    sites : list of Site
    stray : float
        The same share of this episode.
    """
    cone, found, learned = Cone(block, ridge), list[Site](), None
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
            logged = learned.rows.places != _ALPHA
            rows = ConeRows.fresh(learned.rows.leads[logged], learned.rows.places[logged])
            learned = cone.learn_all(_alpha_row(len(mean)).joined(rows), mean, root)
        found.append(_as_one(learned))
    return found, failed


def _alpha_row(o: int) -> ConeRows:
    """That alpha > 0."""
    return ConeRows.fresh(-np.eye(1, o, o - 1), np.array([_ALPHA]))


def _as_one(learned: Posterior) -> Site:
    """The product of the sites."""
    rows, w = learned.rows, learned.mean
    information = rows.leads.T @ (rows.precision[:, None] * rows.leads)
    site = site_at(w, information, information @ w - rows.shift @ rows.leads, 0.0, least=1e-12)
    return replace(site, constant=learned.log_scale + 0.5 * float(site.seen @ site.seen))


class Cone:
    """All rows of an episode's block, and which of them tell something. Nearly all rows of a log hold anyway.

    Rows are searched in single precision, unless that overflows, and learned from in double.
    """

    stray = _EP.stray

    def __init__(self, block: Block, ridge: Ridge) -> None:
        self._block, self._whitener = block, ridge.whitener
        wide, d = block.widths(ridge), block.contexts.shape[1]
        # Candidates that do not differ from the chosen one have a row of zeros, which is never open; exactly, whatever
        # the rounding of their widths.
        if is_sparse(block.contexts):
            leads, of_widths = block.all_leads(wide.dtype), np.empty((len(wide), 1), dtype=wide.dtype)
            block.less_chosen(wide[:, None], out=of_widths)
            of_widths[np.diff(leads.indptr) == 0] = 0.0
            self._leads = with_column(leads, of_widths[:, 0])
            self._squares = self._leads.multiply(self._leads).tocsr()
        else:
            self._leads = np.empty((len(wide), d + 1), dtype=wide.dtype)
            block.less_chosen(block.contexts, out=self._leads[:, :d])
            block.less_chosen(wide[:, None], out=self._leads[:, d:])
            self._leads[~self._leads[:, :d].any(axis=1), d] = 0.0
            self._squares = self._leads * self._leads
        self._sum = np.ones(len(wide), dtype=wide.dtype) @ self._leads

    def learn(self, mean: Vector, root: Matrix) -> Posterior:
        """What a belief N(mean, root root') becomes, with alpha > 0.

        Of the rows that are not settled by what is known, some are learned from first; after that most of the others
        are settled too.
        """
        rows = _alpha_row(len(mean))
        centre, spread, most = mean, root, max(_SEARCH.few_rows, _SEARCH.first_rows * len(mean))
        for _ in range(_SEARCH.looks - 1):
            open_rows, ratio = self._open(centre, spread, rows)
            rows = rows.joined(self._some(open_rows, ratio, most))
            if len(open_rows) <= most:
                break
            learned = propagate(rows, mean, root, stray=self.stray, tolerance=_SEARCH.tolerance)
            rows, centre, spread = learned.rows, learned.mean, _SEARCH.widening * learned.root
            most = max(2 * _SEARCH.few_rows, _SEARCH.most_rows * len(mean)) - len(rows.leads)
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
        with np.errstate(over="ignore"):
            unlikely = float(_tilt(lead.astype(np.float64), spread.astype(np.float64), self.stray)[0].sum())
        return learned._replace(
            log_likelihood=learned.log_likelihood + unlikely, log_scale=learned.log_scale + unlikely
        )

    def failing_share(self, learned: Posterior) -> float:
        """Share of the rows that fail by what was learned."""
        return float(np.mean(self._leads @ learned.mean.astype(self._leads.dtype) > 0))

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

    def _open(self, mean: Vector, root: Matrix, known: ConeRows) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Rows that neither hold nor fail by `RowSearch.far` deviations, but those known, and by how many each does."""
        w = mean.astype(self._leads.dtype)
        lead = np.abs(self._leads @ w)
        # Deviations as if weights were uncorrelated. Rows that are many of these from 0 are the further ones by the
        # real deviations too, unless correlation adds more to theirs than to those of all rows that are close.
        rough = np.sqrt(self._squares @ np.einsum("ij,ij->i", root, root).astype(w.dtype))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = lead / rough
        sample = ratio[:: _SEARCH.parts]
        close = np.partition(sample, len(sample) // _SEARCH.parts)[len(sample) // _SEARCH.parts]
        rows = np.flatnonzero(ratio <= close)
        deviation = self._deviations(w, root, rows)
        if not close >= _SEARCH.far * (deviation / rough[rows]).max(initial=0.0):
            rows = np.arange(len(lead))
            deviation = self._deviations(w, root, rows)
        is_open = lead[rows] < _SEARCH.far * deviation
        is_open &= ~np.isin(rows, known.places)
        rows, deviation = rows[is_open], deviation[is_open]
        return rows, lead[rows] / deviation

    def _some(self, rows: NDArray[np.int64], ratio: NDArray[Any], most: int) -> ConeRows:
        """The most open rows; equals in any order."""
        if len(rows) > most:
            mixed = np.random.default_rng(0).permutation(len(rows))
            rows = rows[mixed[np.argpartition(ratio[mixed], most - 1)[:most]]] if most > 0 else rows[:0]
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
        steps, step = np.unique(self._block.step_of(rows), return_inverse=True)
        places = np.concatenate([rows, self._block.chosen_rows.take(steps)])
        contexts = taken(self._block.contexts, places).astype(np.float64, copy=False)
        features = np.column_stack([contexts, widths(self._whitener, contexts)])
        count = len(rows)
        return ConeRows.fresh(features[:count] - features[count:].take(step, axis=0), rows)
