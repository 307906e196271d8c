"""What choices without error say of the policy behind them: rows of a cone, and beliefs that learn from them.

An "sbucb" decider with the policy p prefers its choice c to another candidate o:

    <p, s_o - s_c> + alpha (H(s_o) - H(s_c))  <=  0.

So w = (p, alpha) lies in a cone, whose rows are the differences of (s, H(s)). Choices tell only its direction, which is
p / alpha. Beliefs about w are normal all the same; its length is a matter of the prior. In these coordinates every row
is a half-space through the origin, and expectation propagation (Minka 2001) learns from all of them nearly exactly:
each row gets a normal factor of its own, such that the belief has the moments of the belief without this factor, cut by
the row. Laplace's approximation would not do: it goes by slopes, and the walls of a cone have none.

A row may be wrong with probability STRAY: one that contradicts what is firmly known is left alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from ibcb.engine import Block
from ibcb.numerics.ridge import Ridge, widths

__all__ = ["STRAY", "ConeRows", "Learned", "factor", "learn_rows", "telling_rows"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: probability that a row is wrong
STRAY = 1e-3
#: rows that hold by more than so many deviations tell nothing
_FAR = 8.0
#: what is believed after a look at some rows is widened by this factor before others are put aside
_DOUBT = 4.0
#: rows per weight that are looked at: an errorless episode has fewer that tell
_MOST, _LOOKS = 64, 4
_PASSES, _CLOSE = 24, 0.02
#: by how much the information about each weight may grow in a pass, as a share of itself
_HASTE = 1.0
#: after these passes rows that tell nothing are dropped
_DROPS, _LITTLE = (10, 20), 1e-5
#: a belief this much narrower than before is an accident of numbers
_BEYOND = 1e16
_LOG_STRAY, _LOG_MEANT = np.log(STRAY), np.log1p(-STRAY)
_LOG_ROOT = 0.5 * np.log(2 * np.pi)


class ConeRows(NamedTuple):
    """Rows of a cone, each with a guess of its factor exp(shift y - sharp y^2 / 2) of y = row w.

    Attributes
    ----------
    leads : ndarray of shape (n, o)
    sharp, shift : ndarray of shape (n,)
    """

    leads: Matrix
    sharp: Vector
    shift: Vector

    @classmethod
    def fresh(cls, leads: Matrix) -> ConeRows:
        """Rows of which nothing is guessed."""
        return cls(leads, np.zeros(len(leads)), np.zeros(len(leads)))

    def joined(self, other: ConeRows) -> ConeRows:
        """These rows and then the others."""
        leads, sharp, shift = (np.concatenate(both) for both in zip(self, other, strict=True))
        return ConeRows(leads, sharp, shift)


class Learned(NamedTuple):
    """Beliefs N(m, V) of K models after some rows, in coordinates v with w = m + L v and V = L L'.

    Attributes
    ----------
    root : ndarray of shape (K, o, o)
        L.
    mean : ndarray of shape (K, o)
        Of v.
    covariance : ndarray of shape (K, o, o)
        Of v; it was I before.
    log_likelihood : ndarray of shape (K,)
        Of the rows.
    telling : ndarray of int
        Which rows changed a belief.
    factors : ConeRows
        These rows, with their factors in the first model.
    """

    root: Matrix
    mean: Matrix
    covariance: Matrix
    log_likelihood: Vector
    telling: NDArray[np.int64]
    factors: ConeRows


@np.errstate(all="ignore")
def learn_rows(given: ConeRows, mean: Matrix, covariance: Matrix) -> Learned:
    """Learn that rows w <= 0, by expectation propagation with all factors at once.

    A model that is so far from the rows that no number can say it learns nothing, at a likelihood of zero.

    Parameters
    ----------
    given : ConeRows
    mean, covariance : ndarray of shape (K, o) and (K, o, o)
    """
    L, rows = factor(covariance), given.leads
    B, ahead = rows @ L, mean @ rows.T
    K, n, o = B.shape
    places = np.arange(n)
    # Factors of x = y - ahead, the row's product with L v.
    sharp = np.tile(given.sharp, (K, 1))
    shift = given.shift - sharp * ahead
    v, most, stride, before = np.zeros((K, o)), np.full(K, 0.5), np.ones(K), np.full(K, np.inf)
    lost = np.zeros(K, dtype=bool)
    for passes in range(_PASSES + 1):
        precision = np.swapaxes(B * sharp[:, :, None], 1, 2) @ B
        precision += np.eye(o)
        beyond = ~(np.abs(precision).max(axis=(1, 2)) < _BEYOND)
        if beyond.any():
            lost |= beyond
            sharp[beyond], shift[beyond], precision[beyond] = 0.0, 0.0, np.eye(o)
        C = _symmetric_inverse(precision)
        told = (shift[:, None] @ B)[:, 0]
        reached = (C @ told[:, :, None])[:, :, 0]
        step, v = reached - v, reached
        moved = np.sqrt(np.maximum(np.einsum("ko,kop,kp->k", step, precision, step), 0.0))
        # x in the belief without the row's own factor, and what the row itself makes of it.
        whole = np.maximum(((B @ C) * B).sum(axis=2), np.finfo(np.float64).tiny)
        left = np.maximum(1 - sharp * whole, 1e-3)
        spread = whole / left
        x = ((B @ v[:, :, None])[:, :, 0] - shift * whole) / left
        likelihood, pull, shrink = _tilt(ahead + x, spread)
        if (passes and (moved < _CLOSE * stride).all()) or passes == _PASSES:
            break
        wanted = shrink / (1 - shrink) / spread
        most = np.where(moved > before, np.maximum(0.1, 0.7 * most), np.minimum(0.8, 1.1 * most))
        before = moved
        # Many rows that say the same, learned from at once, would each be believed in full.
        change = np.maximum((np.abs(wanted - sharp) * whole).sum(axis=1), o * _HASTE)
        stride = np.minimum(most, o * _HASTE / change)
        sharp += stride[:, None] * (wanted - sharp)
        shift += stride[:, None] * (wanted * x - pull * (1 + wanted * spread) - shift)
        if passes in _DROPS:
            telling = ((shrink > _LITTLE) | (sharp * spread > _LITTLE)).any(axis=0)
            rows, places, B, ahead = rows[telling], places[telling], B[:, telling], ahead[:, telling]
            sharp, shift = sharp[:, telling], shift[:, telling]
    # What each factor replaces, and what all of them together make of the prior.
    apart = (x + shift * spread) ** 2 / (spread * (1 + sharp * spread))
    each = likelihood + 0.5 * (np.log1p(sharp * spread) + x**2 / spread - apart)
    total = each.sum(axis=1) + 0.5 * (np.einsum("ko,ko->k", told, v) - np.linalg.slogdet(precision)[1])
    known = ~lost & (total <= 0) & np.isfinite(v).all(axis=1)
    telling = (sharp * spread > _LITTLE).any(axis=0)
    return Learned(
        L,
        np.where(known[:, None], v, 0.0),
        np.where(known[:, None, None], C, np.eye(o)),
        np.where(known, total, -np.inf),
        places[telling],
        ConeRows(rows[telling], sharp[0, telling], (shift + sharp * ahead)[0, telling]),
    )


def _tilt(x: Matrix, spread: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Of a row whose product is N(x, spread): its log-likelihood, minus the slope of that, and the share of the spread
    that it takes away.
    """
    deviation = np.sqrt(spread)
    z = -x / deviation
    likelihood: Matrix = np.logaddexp(_LOG_STRAY, _LOG_MEANT + log_ndtr(z))
    r = np.exp(_LOG_MEANT - _LOG_ROOT - 0.5 * z * z - likelihood)
    # A row that is more probably wrong than right would widen the belief: it is left alone.
    r = np.where(r + z > 0, r, 0.0)
    return likelihood, r / deviation, np.clip(r * (r + z), 0.0, 0.999)


# -- which rows ----------------------------------------------------------------------------------------------------


def telling_rows(block: Block, ridge: Ridge, mean: Vector, covariance: Matrix) -> ConeRows:
    """The rows of an episode's block that can change a belief N(mean, covariance) of w, and alpha > 0.

    Nearly all rows of a log hold anyway. Of those that are not settled by what is known, some are learned from first;
    after that most of the others are settled too.
    """
    seen, most = _Features(block, ridge), _MOST * len(mean)
    found = seen.open_rows(mean, covariance)
    looked = found[: most // 2]
    rows = ConeRows.fresh(seen.leads(looked))
    for _ in range(_LOOKS):
        learned = learn_rows(rows, mean[None], covariance[None])
        after = mean + learned.root[0] @ learned.mean[0]
        shape = learned.root[0] @ learned.covariance[0] @ learned.root[0].T
        all_seen, found = len(looked) == len(found), seen.open_rows(after, _DOUBT * shape)
        # What was learned stays learned, and the rows next to it come in.
        told = looked[learned.telling]
        more = found[~np.isin(found, told)]
        looked = np.concatenate([told, more])[:most]
        fresh = ConeRows.fresh(seen.leads(looked[len(told) :]))
        rows = learned.factors.joined(fresh)
        if all_seen or len(told) + len(more) <= most or not len(fresh.leads):
            break
    positive = np.zeros((1, len(mean)))
    positive[0, -1] = -1.0
    return ConeRows.fresh(positive).joined(rows)


class _Features:
    """(s, H(s)) of a block's candidates, in single precision unless that overflows: it is enough to find rows."""

    def __init__(self, block: Block, ridge: Ridge) -> None:
        self.block, self.whitener = block, ridge.whitener
        with np.errstate(over="ignore", invalid="ignore"):
            contexts = block.contexts.astype(np.float32, copy=False)
            wide = ridge.widths(contexts)
        if not np.isfinite(wide).all():
            contexts = block.contexts.astype(np.float64, copy=False)
            wide = ridge.widths(contexts)
        self.features = np.column_stack([contexts, wide])
        self.counts = np.diff(block.offsets)
        # Candidates that do not differ from the chosen one have no row: either may be the chosen one.
        self.differs = (contexts != self._of_chosen(contexts)).any(axis=1)

    def _of_chosen(self, rows: NDArray[Any]) -> NDArray[Any]:
        """For every row that of the candidate chosen in its step."""
        return np.repeat(rows[self.block.chosen_rows], self.counts, axis=0)

    def open_rows(self, mean: Vector, covariance: Matrix) -> NDArray[np.int64]:
        """ConeRows that neither hold nor fail by _FAR deviations, the most open first; equal ones in any order."""
        kind = self.features.dtype
        lead = self.block.leads(self.features @ mean.astype(kind))
        white = self.features @ factor(covariance).astype(kind)
        white -= self._of_chosen(white)
        typical = float(lead[self.differs].mean()) if self.differs.any() else 0.0
        if typical < 0:
            # The length of w does not matter: deviations at the length that gives the typical row its lead.
            white -= np.outer(np.where(self.differs, lead, 0.0) / typical, white[self.differs].mean(axis=0))
        deviation = np.sqrt(np.einsum("no,no->n", white, white))
        lead = np.abs(lead)
        found = np.random.default_rng(0).permutation(np.flatnonzero(self.differs & (lead < _FAR * deviation)))
        return found[np.argsort(lead[found] / deviation[found], kind="stable")]

    def leads(self, rows: NDArray[np.int64]) -> Matrix:
        """Features of some rows less those of the candidates chosen in their steps, in double precision."""
        chosen = self.block.chosen_rows.take(self.block.step_of(rows))
        both = self.block.contexts.take(np.concatenate([rows, chosen]), axis=0).astype(np.float64, copy=False)
        wide, count = widths(self.whitener, both), len(rows)
        return np.column_stack([both[:count] - both[count:], wide[:count] - wide[count:]])


def factor(covariance: Matrix) -> Matrix:
    """Roots L of covariances L L', which may lack a direction or have features of any unit."""
    unit = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    unit = np.where(unit > 0, unit, 1.0)
    scaled = covariance / unit[..., :, None] / unit[..., None, :]
    try:
        root = np.linalg.cholesky(scaled + 1e-10 * np.eye(scaled.shape[-1]))
    except np.linalg.LinAlgError:
        values, V = np.linalg.eigh(scaled)
        root = V * np.sqrt(np.maximum(values, 1e-10))[..., None, :]
    found: Matrix = unit[..., :, None] * root
    return found


def _symmetric_inverse(matrices: Matrix) -> Matrix:
    inverse = np.linalg.inv(matrices).astype(np.float64, copy=False)
    symmetric: Matrix = (inverse + np.swapaxes(inverse, -1, -2)) / 2
    return symmetric
