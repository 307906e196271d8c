"""The best by its score, without luck: half-spaces for the policy and what is added to it, and which tell something.

So chooses a decider that adds a bonus, one whose luck is in its policy, as one draw an episode, and an epsilon-greedy
one where it means to.

A decider with the policy p that adds a bonus prefers its choice c to another candidate o:

    <p, s_o - s_c> + alpha (H(s_o) - H(s_c))  <=  0.

So w = (p, alpha) lies in a cone, whose rows are the differences of (s, H(s)); without added columns w = p. Choices tell
only the direction of w, such as p / alpha. Beliefs about w are normal all the same; its length is a matter of the
prior. In these coordinates every row is a half-space through the origin, and expectation propagation learns from all of
them nearly exactly (`ibcb.numerics.half_spaces`).

The product of the sites is one Gaussian factor, which stands for the whole episode. Beliefs that are not far from the
one it was found with can learn from it by a Kalman update. Where more rows fail than were thought to be wrong, they are
learned from once more, with the share that failed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.rule import Believed, Columns, Life, Observed, Parameter, Rule, Setting, Unit, Values, Words
from ibcb.deciders.sbts import DRAWS, SBTS
from ibcb.engine import Block
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.averages import best_of_draws
from ibcb.numerics.contexts import (
    Contexts,
    best_rows,
    dense,
    is_sparse,
    row_lengths,
    scaled_rows,
    step_counts,
    with_column,
)
from ibcb.numerics.gaussians import Beliefs, Site, factor, site_at
from ibcb.numerics.half_spaces import EP, ConeRows, Posterior, propagate, row_likelihoods


@dataclass(frozen=True)
class RowSearch:
    """Which rows are learned from, and how; set by benchmarks/forecast.py."""

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
    #: factors are found with this much more variance than a family's leader has: its other models are to learn from
    #: them too, and would be too sure otherwise; set by benchmarks/uncertainty.py
    shared: float = 3.0


_SEARCH = RowSearch()
#: rows among which copies are looked for first, and the share of distinct ones below which they are counted; not tuned
_LOOKED_AT, _FEW_COPIES = 1024, 0.9
#: digits that equal products have in common, whatever their rounding
_NAME_BITS = 36
#: place of the rows that say that added weights are above 0, which are none of the log's
_POSITIVE = -1


@dataclass(frozen=True)
class Best(Rule):
    """The rule of one that draws once an episode, and of those that take the best without luck."""

    name = "best"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("alpha", "rewards", (0.0, math.inf), "none", "how widely the policy is drawn", Unit()),
        Parameter("draws", "", DRAWS, "none", "how often the policy is drawn", Setting(value="episode")),
    )
    words = Words(
        "the decider learns, and draws from its posterior once an episode",
        "SBTS: Thompson sampling, one draw per episode",
        misfit="The luck of a Thompson sampler has no exact explanation",
    )

    def observe(self, block: Block, columns: Columns, belief: Believed, parameters: Values) -> Observed:
        families = range(len(belief.leaders))
        if not columns.before.phi.any():
            # Nothing had been learned: p is 0, and the choices do not tell more.
            return Observed((Site.empty(belief.best.mean.shape[1]),) * len(families), parameters.stray)
        # A family that has no chance learns from the factor of the likeliest.
        wide = [belief.leaders[family].widened(_SEARCH.shared) for family in belief.asked]
        sites, strayed = cone_sites(block, columns, wide, parameters.stray)
        by_family = dict(zip(belief.asked, sites, strict=True))
        return Observed(tuple(by_family.get(family, sites[0]) for family in families), strayed)

    def probabilities(self, block: Block, columns: Columns, belief: Beliefs, parameters: Values) -> Vector:
        mean, covariance = belief.mean[0], belief.covariance[0]
        if not covariance.any():
            # Nothing to draw: the best, the first of equals.
            certain = np.zeros(block.n_rows)
            certain[best_rows(columns.scores(mean.astype(block.contexts.dtype)), block.offsets)] = 1.0
            return certain
        return best_of_draws(columns.whole, block.offsets, mean, covariance, parameters.draws)

    def live(self, state: Life) -> Any:
        how: Any = {"alpha": state.alpha, "draws": state.draws, "random_state": state.random_state}
        return SBTS(len(state.coef), **how, **state.learned)


def cone_sites(block: Block, columns: Columns, beliefs: Sequence[Beliefs], stray: float) -> tuple[list[Site], float]:
    """What the choices of an episode's block say of w, as a factor for each of some beliefs about it.

    Rows are searched for the first belief only: what is told by rows that the choices of one and the same policy leave
    open is not much different for another.

    Parameters
    ----------
    block : Block
    columns : Columns
        Its candidates as the decider sees them. The weights of the added columns, the last entries of w, are above 0.
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
    cone = Cone(block, columns)
    if not cone.tells:
        return [Site.empty(belief.mean.shape[1]) for belief in beliefs], stray
    cone.stray = min(max(stray, EP.stray), EP.most_stray)
    around = [(belief.mean[0], factor(belief.covariance[0])) for belief in beliefs]
    learned = cone.learn(*around[0])
    if cone.failing > EP.surprising * cone.stray:
        cone.stray = min(cone.failing, EP.most_stray)
        learned = cone.learn(*around[0])
    failed, sites = cone.failing, [_as_one(learned)]
    for mean, root in around[1:]:
        # Not from the sites of another belief: where rows contradict each other they would lead back to it.
        logged, known = np.flatnonzero(learned.rows.places != _POSITIVE), learned.rows
        rows = ConeRows.fresh(known.leads[logged], known.places[logged], known.times[logged])
        learned = cone.learn_all(cone.beforehand.joined(rows), mean, root)
        sites.append(_as_one(learned))
    return sites, failed


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

    #: share of rows that are thought to be wrong, and that failed by what was learned last
    stray, failing = EP.stray, 0.0

    def __init__(self, block: Block, columns: Columns) -> None:
        self._block, self._columns = block, columns
        self._leads, self._squares = _differences(block, columns)
        self._rows, times, self._both_ways = _distinct(block)
        known = columns.before.phi.diagonal() != 0
        if not known.all():
            learned = _learned(self._leads, known)[self._rows]
            self._rows, times = self._rows[learned], times[learned]
        if len(times) < block.n_rows:
            self._leads, self._squares = self._leads[self._rows], self._squares[self._rows]
        self._times = times
        self._sum = times.astype(self._leads.dtype) @ self._leads
        # What is known of w before any choice: that the weights of added columns are above 0.
        o, added = self._leads.shape[1], len(columns.added)
        self.beforehand = ConeRows.fresh(-np.eye(added, o, o - added), np.full(added, _POSITIVE))
        self._count = float(times.sum()) + 2 * self._both_ways

    @property
    def tells(self) -> bool:
        """Whether any candidates are compared of which something had been learned."""
        return len(self._rows) > 0

    def learn(self, mean: Vector, root: Matrix) -> Posterior:
        """What a belief N(mean, root root') becomes.

        Of the rows that are not settled by what is known, some are learned from first; after that most of the others
        are settled too.
        """
        rows = self.beforehand
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
        if len(failing):
            near = lead < _SEARCH.near * self._deviations(learned.mean.astype(lead.dtype), learned.root, failing)
            if near.any():
                rows = learned.rows.joined(self._exactly(failing[near]))
                learned = propagate(rows, mean, root, stray=self.stray)
                failing, lead = self._failing(learned.mean, rows)
        # Rows that are there both ways do not hold either: as many of them are wrong as there are of the rarer.
        unlikely = self._both_ways * math.log(self.stray)
        if len(failing):
            # The others must be wrong. They still count as unlikely, for every belief alike.
            white = self._leads[failing] @ learned.root.astype(lead.dtype)
            spread = np.maximum(np.einsum("no,no->n", white, white), np.finfo(lead.dtype).tiny)
            products = lead.astype(np.float64), spread.astype(np.float64)
            with np.errstate(over="ignore"):
                unlikely += float(row_likelihoods(*products, self._times[failing], self.stray).sum())
        return learned._replace(
            log_likelihood=learned.log_likelihood + unlikely, log_scale=learned.log_scale + unlikely
        )

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
        deviations: NDArray[Any] = np.sqrt(np.add.reduce(white, axis=0))
        return deviations

    def _open(
        self, mean: Vector, root: Matrix, known: ConeRows
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """Rows that neither hold nor fail by `RowSearch.far` deviations, but those known; by how much each does, and
        its deviation.
        """
        w = mean.astype(self._leads.dtype)
        lead = np.abs(self._leads @ w)
        rows, deviation = np.arange(len(lead)), None
        if len(rows) > _SEARCH.few_rows:
            # Deviations as if weights were uncorrelated. Rows that are many of these from 0 are the further ones by the
            # real deviations too, unless correlation adds more to theirs than to those of all rows that are close.
            rough = np.sqrt(self._squares @ np.einsum("ij,ij->i", root, root).astype(w.dtype))
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = lead / rough
            part = len(ratio) // _SEARCH.parts
            bound = np.partition(ratio, part)[part]
            close = np.flatnonzero(ratio <= bound)
            closely = self._deviations(w, root, close)
            if bound >= _SEARCH.far * (closely / rough[close]).max(initial=0.0):
                rows, deviation = close, closely
        if deviation is None:
            deviation = self._deviations(w, root, rows)
        is_new = np.ones(len(lead), dtype=bool)
        is_new[known.places[known.places != _POSITIVE]] = False
        is_open = (lead[rows] < _SEARCH.far * deviation) & is_new[rows]
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
        self.failing = (self._both_ways + float(self._times[fails].sum())) / self._count
        fails[known.places[known.places != _POSITIVE]] = False
        failing = np.flatnonzero(fails)
        return failing, lead[failing]

    def _exactly(self, rows: NDArray[np.int64]) -> ConeRows:
        """Some rows in double precision."""
        own, count = self._rows[rows], len(rows)
        places = np.concatenate([own, self._block.chosen_rows.take(self._block.step_of(own))])
        features = self._columns.of(self._block.contexts[places].astype(np.float64, copy=False))
        return ConeRows.fresh(features[:count] - features[count:], rows, self._times[rows])


def _differences(block: Block, columns: Columns) -> tuple[Contexts, Contexts]:
    """Features and added columns of all rows less those of the chosen; and the squares of these."""
    d, k = block.contexts.shape[1], len(columns.added)
    dtype = columns.quick.dtype if k else _single(block.contexts)
    # Candidates that do not differ from the chosen one have a row of zeros, which is never open; exactly, whatever the
    # rounding of what was added.
    if is_sparse(block.contexts):
        leads = block.all_leads(dtype)
        alike = np.diff(leads.indptr) == 0
        if k:
            added = np.empty((block.n_rows, k), dtype=dtype)
            block.less_chosen(columns.quick, out=added)
            added[alike] = 0.0
            for column in added.T:
                leads = with_column(leads, column)
        return leads, leads.multiply(leads).tocsr()
    leads = np.empty((block.n_rows, d + k), dtype=dtype)
    block.less_chosen(block.contexts, out=leads[:, :d])
    if k:
        block.less_chosen(columns.quick, out=leads[:, d:])
        leads[~leads[:, :d].any(axis=1), d:] = 0.0
    return leads, leads * leads


def _learned(leads: Contexts, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows that compare candidates by some feature that had been chosen before.

    Others compare what the decider knew nothing of, as arms that were never taken: their scores were equal, and which
    of them was taken is a matter of order. Taken for preferences, they would leave no policy but the one by which all
    are equal, exactly.
    """
    own = leads[:, : len(known)]
    if is_sparse(own):
        own = abs(own)
        return np.asarray((own @ known > 0) | (own @ np.ones(len(known)) == 0))
    return np.asarray(own[:, known].any(axis=1) | ~own.any(axis=1))


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
    if n > _LOOKED_AT:
        some = _rows_of_some_steps(block)
        of_chosen = block.chosen_rows[block.step_of(some)]
        names = _pair_names(block.contexts[some] @ mixture, block.contexts[of_chosen] @ mixture)[0]
        if len(np.unique(names)) > _FEW_COPIES * len(some):
            return np.arange(n), np.ones(n), 0.0
    products = block.contexts @ mixture
    names, way = _pair_names(products, np.repeat(products[block.chosen_rows], step_counts(block.offsets)))
    if n <= _LOOKED_AT and len(np.unique(names)) > _FEW_COPIES * n:
        return np.arange(n), np.ones(n), 0.0
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
    counts = step_counts(block.offsets)
    steps = np.random.default_rng(0).permutation(len(counts))
    kept = np.zeros(len(counts), dtype=bool)
    kept[steps[: int(np.searchsorted(np.cumsum(counts[steps]), _LOOKED_AT)) + 1]] = True
    return np.flatnonzero(np.repeat(kept, counts))


def _pair_names(one: Vector, other: Vector) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """One number for every two, equal where they are, up to rounding and order; and which of the two is larger."""
    size = max(float(np.abs(one).max()), float(np.abs(other).max()), np.finfo(np.float64).tiny)
    whole = [np.round(values * (2.0**_NAME_BITS / size)).astype(np.int64) for values in (one, other)]
    low, high = np.minimum(*whole).astype(np.uint64), np.maximum(*whole).astype(np.uint64)
    return low * np.uint64(0x9E3779B97F4A7C15) + high, (whole[0] > whole[1]).astype(np.int64)
