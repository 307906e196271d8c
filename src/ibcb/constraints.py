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
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, Rows
from ibcb.ridge import Ridge, gram

__all__ = ["EpisodeView", "Experience", "JointView", "Penalty", "RowSet", "Tally", "View", "experienced"]

Vector = NDArray[np.float64]

#: rows hold when violated by less than this share of the typical bonus
RELATIVE_TOLERANCE = 1e-9

_KEYS_PER_VIEW = 1 << 40


class Tally(NamedTuple):
    """How well the rows hold at some theta.

    Attributes
    ----------
    violated : int
        Rows violated beyond rounding.
    max_violation : float
        The largest violation, at least 0.
    agreeing : int
        Steps whose choice is the best candidate under theta, exploration included.
    """

    violated: int
    max_violation: float
    agreeing: int


class Penalty(NamedTuple):
    """Sum of penalties at theta, and its first two derivatives in theta."""

    value: float
    gradient: Vector
    hessian: NDArray[np.float64]


class RowSet(NamedTuple):
    """Some rows written out, ``matrix @ theta <= rhs``; ``key`` is each row's number in its view."""

    matrix: NDArray[np.float64]
    rhs: Vector
    violation: Vector
    key: NDArray[np.int64]

    @staticmethod
    def join(parts: Sequence[RowSet], n_features: int) -> RowSet:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return RowSet(np.empty((0, n_features)), np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))
        return RowSet(
            np.concatenate([part.matrix for part in parts]),
            np.concatenate([part.rhs for part in parts]),
            np.concatenate([part.violation for part in parts]),
            np.concatenate([part.key for part in parts]),
        )

    def take(self, keep: NDArray[Any]) -> RowSet:
        """Some of the rows, by index or mask."""
        return RowSet(self.matrix[keep], self.rhs[keep], self.violation[keep], self.key[keep])

    def penalty(self, theta: Vector, slope: float, bend: float) -> Penalty:
        """As `View.penalty`, of these rows alone."""
        return _hinge(self.matrix @ theta - self.rhs, self.matrix, slope, bend)

    def worst(self, count: int) -> RowSet:
        """The ``count`` most violated rows; ties fall to the earlier row."""
        if len(self.rhs) <= count:
            return self
        return self.take(np.sort(np.argsort(-self.violation, kind="stable")[:count]))


class Experience(NamedTuple):
    """What an episode teaches its decider: the Gram matrix of its choices; with it, what names the episode.

    ``counts`` and ``chosen``, both of shape (steps,), are the candidates of each step and the position chosen.
    """

    phi: NDArray[np.float64]
    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    @staticmethod
    def join(parts: Sequence[Experience]) -> Experience:
        """Of blocks in order."""
        if len(parts) == 1:
            return parts[0]
        phi = parts[0].phi
        for part in parts[1:]:
            phi = phi + part.phi
        return Experience(
            phi, np.concatenate([part.counts for part in parts]), np.concatenate([part.chosen for part in parts])
        )


class View(Protocol):
    """All that a solver sees of the rows, wherever they live."""

    @property
    def n_features(self) -> int: ...

    @property
    def context_scale(self) -> float:
        """Root mean square length of a context: the unit of 1 / theta."""
        ...

    @property
    def bonus_scale(self) -> float:
        """Root mean square bonus (SBUCB) or the margin (SBTS): the unit of violations."""
        ...

    def tally(self, theta: Vector) -> Tally:
        """How the rows hold at theta."""
        ...

    def penalty(self, theta: Vector, slope: float, bend: float) -> Penalty:
        """Sum over rows of slope * hinge(violation), quadratic up to ``bend`` and linear beyond it."""
        ...

    def worst(self, theta: Vector, count: int, band: float) -> tuple[RowSet, Tally]:
        """The ``count`` most violated rows at theta, then those that hold by less than ``band``; none if all hold."""
        ...

    def rows(self) -> RowSet:
        """Every row, written out; for the paper's solver and for tests."""
        ...

    def places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """(episode, step, chosen, other) of each row, shape (rows, 4)."""
        ...

    def tolerance(self, theta: Vector) -> float:
        """Violations below this are rounding."""
        ...

    def without_violated(self, theta: Vector) -> View:
        """The same rows less those violated at theta (Algorithm 3)."""
        ...


class EpisodeView:
    """Rows of one episode.

    Parameters
    ----------
    rows : Rows
        The episode's rows, wherever they live.
    ridge : Ridge
        Of all choices before the episode.
    margin : float or None
        None for SBUCB rows; the margin epsilon for SBTS rows.
    episode : int
        Number of the episode, used to name rows.
    """

    def __init__(self, rows: Rows, ridge: Ridge, *, margin: float | None, episode: int) -> None:
        self._shrinkage = ridge.shrinkage
        self._episode = episode
        self._margin = 0.0 if margin is None else margin
        give = partial(_with_widths, ridge=ridge) if margin is None else partial(_with_margin, margin=margin)
        self._rows = rows.prepared(give)
        #: what the episode teaches its decider, found on the way
        self.experience, squares, epsilon = _total(self._rows.map(_measure))
        count = self.experience.n_rows
        self.context_scale = math.sqrt(squares[0] / count) or 1.0
        self.bonus_scale = (math.sqrt(squares[1] / count) or 1.0) if margin is None else margin
        self._epsilon = epsilon

    @property
    def n_features(self) -> int:
        return len(self._shrinkage)

    def tolerance(self, theta: Vector) -> float:
        return self._at(theta)[1]

    def _at(self, theta: Vector) -> tuple[Vector, float]:
        """The policy that theta leads to, and the violation that is rounding there."""
        policy = self._shrinkage @ theta
        # Scores are sums of d products: their rounding grows with |policy| |context|.
        size = self.context_scale * math.sqrt(policy @ policy) + self.bonus_scale
        return policy, RELATIVE_TOLERANCE * self.bonus_scale + 8 * self._epsilon * size

    def tally(self, theta: Vector) -> Tally:
        policy, tolerance = self._at(theta)
        kernel = partial(_tally_at, policy=policy, tolerance=tolerance, margin=self._margin)
        return _add(list(self._rows.map(kernel)))

    def penalty(self, theta: Vector, slope: float, bend: float) -> Penalty:
        policy, tolerance = self._at(theta)
        d = self.n_features
        value, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
        for part in self._rows.map(partial(_penalty_at, policy=policy, tolerance=tolerance, slope=slope, bend=bend)):
            value, gradient, hessian = value + part[0], gradient + part[1], hessian + part[2]
        G = self._shrinkage
        return Penalty(value, gradient @ G, G.T @ hessian @ G)

    def worst(self, theta: Vector, count: int, band: float) -> tuple[RowSet, Tally]:
        policy, tolerance = self._at(theta)
        kernel = partial(_worst_at, policy=policy, tolerance=tolerance, margin=self._margin, count=count, band=band)
        parts, tallies = zip(*self._rows.map(kernel), strict=True)
        tally = _add(tallies)
        if tally.violated == 0:
            parts = ()
        return self._join(parts).worst(count), tally

    def rows(self) -> RowSet:
        return self._join(list(self._rows.map(_all_rows)))

    def without_violated(self, theta: Vector) -> EpisodeView:
        policy, tolerance = self._at(theta)
        pruned = object.__new__(EpisodeView)
        pruned.__dict__.update(self.__dict__)
        pruned._rows = self._rows.prepared(partial(_without_violated, policy=policy, tolerance=tolerance))
        return pruned

    def places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        table = np.empty((len(keys), 4), dtype=np.int64)
        table[:, 0] = self._episode
        for inside, places in self._rows.map(partial(_places, keys=keys)):
            table[inside, 1:] = places
        return table

    def _join(self, parts: Sequence[RowSet]) -> RowSet:
        """Rows of several blocks, their contexts taken to what multiplies theta."""
        found = RowSet.join(parts, self.n_features)
        return RowSet(found.matrix @ self._shrinkage, found.rhs, found.violation, found.key)


class JointView:
    """Rows of several episodes under one theta: the paper's full, non-incremental problem."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views
        self.n_features = views[0].n_features
        self.context_scale = _root_mean_square([view.context_scale for view in views])
        self.bonus_scale = _root_mean_square([view.bonus_scale for view in views])

    def tolerance(self, theta: Vector) -> float:
        # A slack that every view accepts.
        return min(view.tolerance(theta) for view in self._views)

    def tally(self, theta: Vector) -> Tally:
        return _add([view.tally(theta) for view in self._views])

    def penalty(self, theta: Vector, slope: float, bend: float) -> Penalty:
        parts = [view.penalty(theta, slope, bend) for view in self._views]
        value, gradients, hessians = zip(*parts, strict=True)
        return Penalty(sum(value), np.sum(gradients, axis=0), np.sum(hessians, axis=0))

    def worst(self, theta: Vector, count: int, band: float) -> tuple[RowSet, Tally]:
        parts = [view.worst(theta, count, band) for view in self._views]
        return self._join([rows for rows, _ in parts]).worst(count), _add([tally for _, tally in parts])

    def rows(self) -> RowSet:
        return self._join([view.rows() for view in self._views])

    def places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        owner, inner = np.divmod(keys, _KEYS_PER_VIEW)
        table = np.empty((len(keys), 4), dtype=np.int64)
        for number, view in enumerate(self._views):
            table[owner == number] = view.places(inner[owner == number])
        return table

    def _join(self, parts: Sequence[RowSet]) -> RowSet:
        return RowSet.join(
            [
                RowSet(part.matrix, part.rhs, part.violation, part.key + number * _KEYS_PER_VIEW)
                for number, part in enumerate(parts)
            ],
            self.n_features,
        )

    def without_violated(self, theta: Vector) -> JointView:
        return JointView([view.without_violated(theta) for view in self._views])


# -- kernels on one block ------------------------------------------------------------------------------------------


def _with_widths(block: Block, *, ridge: Ridge) -> Block:
    """SBUCB: every row's bonus is its confidence width."""
    return replace(block, bonus=ridge.widths(block.contexts))


def _with_margin(block: Block, *, margin: float) -> Block:
    """SBTS: -margin on the chosen row, -inf on exact copies of it, which no theta could tell apart, 0 elsewhere."""
    contexts = block.contexts
    bonus = np.zeros(len(contexts), dtype=contexts.dtype)
    # Copies agree in any projection: one product with a fixed vector finds the few rows worth comparing.
    probe = np.cos(np.arange(1, contexts.shape[1] + 1)).astype(contexts.dtype)
    size = math.sqrt(float(np.vdot(contexts, contexts)) / len(contexts) * len(probe))
    close = 64 * float(np.finfo(contexts.dtype).eps) * size
    rows = (np.abs(block.lead(contexts @ probe)) <= close).nonzero()[0]
    if len(rows) > len(block.chosen_rows):
        bonus[rows[~block.lead_contexts(rows, block.step_of(rows)).any(axis=1)]] = -np.inf
    bonus[block.chosen_rows] = -margin
    return replace(block, bonus=bonus)


def _without_violated(block: Block, *, policy: Vector, tolerance: float) -> Block:
    bonus = _bonus(block)
    violated = block.lead(_scores(block, policy)) > tolerance
    return replace(block, bonus=np.where(violated, -np.inf, bonus).astype(bonus.dtype, copy=False))


def experienced(block: Block) -> Experience:
    """What the choices of a block teach."""
    chosen = block.chosen_rows - block.offsets[:-1]
    counts = np.diff(block.offsets) if block.width is None else np.full(len(chosen), block.width)
    return Experience(gram(block.contexts.take(block.chosen_rows, axis=0)), counts, chosen)


def _measure(block: Block) -> tuple[Experience, tuple[float, float], float]:
    """What the choices teach, squared contexts and bonuses, and the rounding of the float type."""
    contexts, bonus = block.contexts, _bonus(block)
    squares = float(np.vdot(contexts, contexts)), float(np.vdot(bonus, bonus))
    return experienced(block), squares, float(np.finfo(contexts.dtype).eps)


def _total(
    parts: Iterable[tuple[Experience, tuple[float, float], float]],
) -> tuple[Experience, tuple[float, float], float]:
    found = list(parts)
    contexts, bonus = (sum(part[1][place] for part in found) for place in (0, 1))
    return Experience.join([part[0] for part in found]), (contexts, bonus), found[0][2]


def _tally_at(block: Block, *, policy: Vector, tolerance: float, margin: float) -> Tally:
    _, steps, excess = block.leading(_scores(block, policy), 0.0)
    return _tally(block, steps, excess, tolerance, margin)


def _penalty_at(block: Block, *, policy: Vector, tolerance: float, slope: float, bend: float) -> Penalty:
    return _hinge(*_exact_excess(block, policy, tolerance), slope, bend)


def _worst_at(
    block: Block, *, policy: Vector, tolerance: float, margin: float, count: int, band: float
) -> tuple[RowSet, Tally]:
    rows, steps, excess = block.leading(_scores(block, policy), band)
    tally = _tally(block, steps, excess, tolerance, margin)
    if len(rows) > count:
        keep = np.argpartition(excess, len(rows) - count)[-count:]
        keep.sort()
        rows, steps, excess = rows[keep], steps[keep], excess[keep]
    return _written_out(block, rows, steps, excess), tally


def _all_rows(block: Block) -> RowSet:
    alive = np.isfinite(_bonus(block))
    alive[block.chosen_rows] = False
    rows = alive.nonzero()[0]
    return _written_out(block, rows, block.step_of(rows), np.zeros(len(rows)))


def _written_out(block: Block, rows: NDArray[np.int64], steps: NDArray[np.int64], violation: NDArray[Any]) -> RowSet:
    """Some rows; the matrix has contexts less the chosen ones', which the view takes on to theta."""
    bonus = _bonus(block)
    rhs = bonus.take(block.chosen_rows.take(steps)).astype(np.float64, copy=False) - bonus.take(rows)
    violation = violation.astype(np.float64, copy=False)
    return RowSet(block.lead_contexts(rows, steps), rhs, violation, rows + block.first_row)


def _places(block: Block, *, keys: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which keys lie in this block, and their (step, chosen, other)."""
    inside = (keys >= block.first_row) & (keys < block.first_row + len(block.contexts))
    rows = keys[inside] - block.first_row
    steps = block.step_of(rows)
    starts = block.offsets[steps]
    return inside, np.stack([steps + block.first_step, block.chosen_rows[steps] - starts, rows - starts], axis=1)


def _bonus(block: Block) -> NDArray[Any]:
    assert block.bonus is not None  # given by the view, before anything else
    return block.bonus


def _scores(block: Block, policy: Vector) -> NDArray[Any]:
    """u = X w + bonus of every row; row o is violated by u_o - u_c."""
    scores: NDArray[Any] = block.contexts @ policy.astype(block.contexts.dtype, copy=False)
    scores += _bonus(block)
    return scores


def _exact_excess(block: Block, policy: Vector, tolerance: float) -> tuple[Vector, NDArray[np.float64]]:
    """Violations of the violated rows, and their contexts less the chosen ones', in float64.

    Newton's method needs a penalty and a gradient that belong together. Single precision is good for finding the rows;
    their violations are then computed again in double.
    """
    double = block.contexts.dtype == np.float64
    rows, steps, excess = block.leading(_scores(block, policy), 0.0 if double else tolerance)
    lead = block.lead_contexts(rows, steps)
    if not double:
        chosen, bonus = block.chosen_rows.take(steps), _bonus(block)
        excess = lead @ policy + (bonus.take(rows).astype(np.float64) - bonus.take(chosen))
    return excess, lead


def _hinge(excess: Vector, lead: NDArray[np.float64], slope: float, bend: float) -> Penalty:
    """Penalty of rows with these violations (negative: none), and its derivatives in what ``lead`` multiplies."""
    bent = excess.clip(0.0, bend)
    value = slope * (float(bent @ excess) - float(bent @ bent) / 2)
    curved = lead.take((bent == excess).nonzero()[0], axis=0)
    return Penalty(value, slope * (bent @ lead), slope * (curved.T @ curved))


def _tally(block: Block, steps: NDArray[np.int64], excess: NDArray[Any], tolerance: float, margin: float) -> Tally:
    """Count from the leads of some rows and the steps they belong to, in order."""
    worst = float(excess.max(initial=0.0))
    if worst <= tolerance:
        return Tally(0, worst, len(block.chosen_rows))
    beaten = steps[excess > tolerance + margin]
    lost = 1 + int(np.count_nonzero(beaten[1:] != beaten[:-1])) if len(beaten) else 0
    return Tally(int(np.count_nonzero(excess > tolerance)), worst, len(block.chosen_rows) - lost)


def _add(tallies: Sequence[Tally]) -> Tally:
    if len(tallies) == 1:
        return tallies[0]
    return Tally(
        sum(tally.violated for tally in tallies),
        max(tally.max_violation for tally in tallies),
        sum(tally.agreeing for tally in tallies),
    )


def _root_mean_square(values: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
