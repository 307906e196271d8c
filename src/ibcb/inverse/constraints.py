"""The paper's inequalities for one episode, kept implicit.

At every step of an episode the chosen candidate c beats every other candidate o under the policy of that time
(paper, label eq:inverse:opt:constriant)::

    (s_o - s_c)' G theta  <=  alpha (H(s_c) - H(s_o))        SBUCB
    (s_o - s_c)' G theta  <=  -margin                        SBTS

with G = Psi^-1 Phi and H built from the choices *before* the episode: these choices were made before the update.
Only theta / alpha is identified, so rows are written for alpha = 1 and the answer is scaled afterwards.

Both cases are one: give every row a bonus (H for SBUCB; for SBTS 0, and -margin on the chosen row). Then with
u = X (G theta) + bonus, row o is violated by v_o = u_o - u_c, and its right-hand side is bonus_c - bonus_o. A row
with bonus -inf can never be violated, which is how rows are left out. No matrix of rows is ever built for the fast
solvers; a look at theta costs one matrix-vector product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Experience, Rows
from ibcb.inverse import row_kernels as kernels
from ibcb.inverse.row_kernels import Bonus, Penalty, Probe, RowSet, Tally
from ibcb.numerics.arrays import Vector
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Ridge

#: rows hold when violated by less than this share of the typical bonus: far above the rounding of float64, and of no
#: effect on any choice
RELATIVE_TOLERANCE = 1e-9
#: more rows than an episode can have, so that one number names view and row
_KEYS_PER_VIEW = 1 << 40


@dataclass(frozen=True, slots=True)
class Solution:
    """A solved problem, with the evidence that it is one; every figure is computed here, not by a back end.

    Attributes
    ----------
    theta : ndarray of shape (d,)
        Reward parameters for alpha = 1.
    status : str
        "solved", or what else was accepted (the paper's second tolerance).
    objective : float
        Value of the problem that was solved.
    gap : float
        Objective minus a lower bound on it (weak duality), at least 0. Zero proves optimality.
    iterations : int
        Passes over the rows.
    before, after : Tally
        How the rows held at the centre, before solving, and at theta.
    """

    theta: Vector
    status: str
    objective: float
    gap: float
    iterations: int
    before: Tally
    after: Tally


class EpisodeView:
    """Rows of one episode, wherever they live: all that a solver sees of them.

    Parameters
    ----------
    rows : Rows
        The episode's rows, wherever they live.
    ridge : Ridge
        Of all choices before the episode.
    metric : Metric or None
        None: Euclid's, at the size of the contexts.
    margin : float or None
        None for SBUCB rows; the margin epsilon for SBTS rows.
    episode : int
        Number of the episode, used to name rows.

    Attributes
    ----------
    metric : Metric
        In which theta moves as little as it can: the mean square of its scores, times the number of features.
    bonus_scale : float
        Root mean square bonus (SBUCB) or the margin (SBTS): the unit of violations.
    prepared : Rows
        With what has been worked out for them.
    experience : Experience
        What the episode teaches its decider, found on the way.
    """

    def __init__(
        self, rows: Rows, ridge: Ridge, *, metric: Metric | None = None, margin: float | None, episode: int
    ) -> None:
        self._shrinkage = ridge.shrinkage
        self._episode = episode
        self._bonus = Bonus(ridge.whitener, 0.0) if margin is None else Bonus(None, margin)
        self.prepared = self._rows = rows.prepared(partial(kernels.worked_up, bonus=self._bonus))
        experiences, squares, bonuses, epsilons = zip(*self._rows.map(kernels.measure), strict=True)
        self.experience = Experience.join(experiences)
        count = self.experience.n_rows
        self.metric = metric or Metric((sum(squares) / count or 1.0) * np.eye(self.n_features))
        self.bonus_scale = (math.sqrt(sum(bonuses) / count) or 1.0) if margin is None else margin
        self._epsilon = epsilons[0]

    @property
    def n_features(self) -> int:
        return len(self._shrinkage)

    def tolerance(self, theta: Vector) -> float:
        """Violations below this are rounding."""
        return self._at(theta).tolerance

    def _at(self, theta: Vector) -> Probe:
        policy = self._shrinkage @ theta
        # Scores are sums of d products: their rounding grows with |policy| |context|, in any units.
        size = math.sqrt(self.metric.square(policy)) + self.bonus_scale
        return Probe(policy, RELATIVE_TOLERANCE * self.bonus_scale + 8 * self._epsilon * size, self._bonus)

    def tally(self, theta: Vector) -> Tally:
        """How the rows hold at theta."""
        return self._worst(theta, 1, 0.0)[1]

    def penalty(self, theta: Vector, slope: float, bend: float) -> Penalty:
        """Sum over rows of slope * hinge(violation), quadratic up to ``bend`` and linear beyond it."""
        d = self.n_features
        value, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
        for part in self._rows.map(partial(kernels.penalty_at, probe=self._at(theta), slope=slope, bend=bend)):
            value, gradient, hessian = value + part[0], gradient + part[1], hessian + part[2]
        G = self._shrinkage
        return Penalty(value, gradient @ G, G.T @ hessian @ G)

    def worst(self, theta: Vector, count: int, band: float) -> tuple[RowSet, Tally]:
        """The ``count`` most violated rows at theta, then those that hold by less than ``band``; none if all hold."""
        parts, tally = self._worst(theta, count, band)
        return self._join(parts if tally.violated else ()).worst(count), tally

    def _worst(self, theta: Vector, count: int, band: float) -> tuple[Sequence[RowSet], Tally]:
        kernel = partial(kernels.worst_at, probe=self._at(theta), count=count, band=band)
        parts, tallies = zip(*self._rows.map(kernel), strict=True)
        return parts, Tally.join(tallies)

    def rows(self) -> RowSet:
        """Every row, written out; for the paper's solver and for tests."""
        return self._join(list(self._rows.map(partial(kernels.all_rows, probe=self._at(np.zeros(self.n_features))))))

    def without_violated(self, theta: Vector) -> EpisodeView:
        """The same rows less those violated at theta (Algorithm 3)."""
        pruned = object.__new__(EpisodeView)
        pruned.__dict__.update(self.__dict__)
        pruned._rows = self._rows.prepared(partial(kernels.without_violated_rows, probe=self._at(theta)))
        return pruned

    def places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """(episode, step, chosen, other) of each row, shape (rows, 4)."""
        table = np.empty((len(keys), 4), dtype=np.int64)
        table[:, 0] = self._episode
        for inside, places in self._rows.map(partial(kernels.row_places, keys=keys)):
            table[inside, 1:] = places
        return table

    def _join(self, parts: Sequence[RowSet]) -> RowSet:
        """Rows of several blocks, their contexts taken to what multiplies theta."""
        rows = RowSet.join(parts, self.n_features)
        return rows._replace(matrix=rows.matrix @ self._shrinkage)


class JointView:
    """Rows of several episodes under one theta: the paper's full, non-incremental problem."""

    def __init__(self, views: Sequence[EpisodeView]) -> None:
        self._views = views
        self.n_features = views[0].n_features
        self.metric = Metric(np.mean([view.metric.matrix for view in views], axis=0))
        self.bonus_scale = float(np.sqrt(np.mean(np.square([view.bonus_scale for view in views]))))

    def tolerance(self, theta: Vector) -> float:
        # A slack that every view accepts.
        return min(view.tolerance(theta) for view in self._views)

    def tally(self, theta: Vector) -> Tally:
        return Tally.join([view.tally(theta) for view in self._views])

    def penalty(self, theta: Vector, slope: float, bend: float) -> Penalty:
        parts = [view.penalty(theta, slope, bend) for view in self._views]
        value, gradients, hessians = zip(*parts, strict=True)
        return Penalty(sum(value), np.sum(gradients, axis=0), np.sum(hessians, axis=0))

    def worst(self, theta: Vector, count: int, band: float) -> tuple[RowSet, Tally]:
        parts = [view.worst(theta, count, band) for view in self._views]
        return self._join([rows for rows, _ in parts]).worst(count), Tally.join([tally for _, tally in parts])

    def rows(self) -> RowSet:
        return self._join([view.rows() for view in self._views])

    def places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        owner, inner = np.divmod(keys, _KEYS_PER_VIEW)
        table = np.empty((len(keys), 4), dtype=np.int64)
        for number, view in enumerate(self._views):
            table[owner == number] = view.places(inner[owner == number])
        return table

    def _join(self, parts: Sequence[RowSet]) -> RowSet:
        named = [part._replace(key=part.key + number * _KEYS_PER_VIEW) for number, part in enumerate(parts)]
        return RowSet.join(named, self.n_features)

    def without_violated(self, theta: Vector) -> JointView:
        return JointView([view.without_violated(theta) for view in self._views])


#: what a solver talks to
View = EpisodeView | JointView
