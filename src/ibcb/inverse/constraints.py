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

Single precision finds, double decides: of every pass over all rows the products and bonuses are taken in float32, with
a bound on their rounding, and the few rows that come near to mattering are computed again in float64 from the contexts
as they were given. So answers are those of double precision, at half its price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, Rows, Workup
from ibcb.numerics.ridge import Ridge, gram, widths

__all__ = ["EpisodeView", "Experience", "JointView", "Penalty", "RowSet", "Tally", "View", "experienced"]

Vector = NDArray[np.float64]

#: rows hold when violated by less than this share of the typical bonus
RELATIVE_TOLERANCE = 1e-9

#: numbers whose squares can be summed in single precision
_LARGEST = 1e15
_SUMMED = 160
_EPSILON = {kind.char: float(np.finfo(kind).eps) for kind in (np.dtype(np.float32), np.dtype(np.float64))}
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
    """What an episode teaches its decider: Gram matrix and sum of its chosen contexts; with it, what names the episode.

    ``counts`` and ``chosen``, both of shape (steps,), are the candidates of each step and the position chosen.
    """

    phi: NDArray[np.float64]
    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]
    total: Vector

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    @staticmethod
    def join(parts: Sequence[Experience]) -> Experience:
        """Of blocks in order."""
        if len(parts) == 1:
            return parts[0]
        phi, total = parts[0].phi, parts[0].total
        for part in parts[1:]:
            phi, total = phi + part.phi, total + part.total
        counts, chosen = (np.concatenate(column) for column in zip(*[part[1:3] for part in parts], strict=True))
        return Experience(phi, counts, chosen, total)


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
        self._rule = _Rule(ridge.whitener, 0.0) if margin is None else _Rule(None, margin)
        self._rows = rows.prepared(partial(_worked_up, rule=self._rule))
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
        return self._at(theta).tolerance

    def _at(self, theta: Vector) -> _Look:
        policy = self._shrinkage @ theta
        # Scores are sums of d products: their rounding grows with |policy| |context|.
        size = self.context_scale * math.sqrt(policy @ policy) + self.bonus_scale
        return _Look(policy, RELATIVE_TOLERANCE * self.bonus_scale + 8 * self._epsilon * size, self._rule)

    def tally(self, theta: Vector) -> Tally:
        return self._worst(theta, 1, 0.0)[1]

    def penalty(self, theta: Vector, slope: float, bend: float) -> Penalty:
        d = self.n_features
        value, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
        for part in self._rows.map(partial(_penalty_at, look=self._at(theta), slope=slope, bend=bend)):
            value, gradient, hessian = value + part[0], gradient + part[1], hessian + part[2]
        G = self._shrinkage
        return Penalty(value, gradient @ G, G.T @ hessian @ G)

    def worst(self, theta: Vector, count: int, band: float) -> tuple[RowSet, Tally]:
        parts, tally = self._worst(theta, count, band)
        return self._join(parts if tally.violated else ()).worst(count), tally

    def _worst(self, theta: Vector, count: int, band: float) -> tuple[Sequence[RowSet], Tally]:
        kernel = partial(_worst_at, look=self._at(theta), count=count, band=band)
        parts, tallies = zip(*self._rows.map(kernel), strict=True)
        return parts, _add(tallies)

    def rows(self) -> RowSet:
        return self._join(list(self._rows.map(partial(_all_rows, look=self._at(np.zeros(self.n_features))))))

    def without_violated(self, theta: Vector) -> EpisodeView:
        pruned = object.__new__(EpisodeView)
        pruned.__dict__.update(self.__dict__)
        pruned._rows = self._rows.prepared(partial(_without_violated, look=self._at(theta)))
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


class _Rule(NamedTuple):
    """What makes a row's bonus: the whitener of Psi (SBUCB), or the margin of the chosen row (SBTS)."""

    whitener: NDArray[np.float64] | None
    margin: float


class _Look(NamedTuple):
    """A policy to look at rows with, and the violation that is rounding there."""

    policy: Vector
    tolerance: float
    rule: _Rule


def _worked_up(block: Block, *, rule: _Rule) -> Block:
    """With contexts, bonuses and bounds for looks in single precision."""
    contexts, copy = block.contexts, None
    if contexts.dtype != np.float32:
        with np.errstate(over="ignore"):
            copy = contexts.astype(np.float32)
        squares, longest = _lengths(copy)
        if longest < _LARGEST:
            contexts = copy
        else:
            copy = None
    if copy is None:
        squares, longest = _lengths(contexts.astype(np.float64, copy=False))
    if rule.whitener is None:
        error = _rounding(contexts) * rule.margin
        work = Workup(copy, np.zeros(len(contexts), dtype=contexts.dtype), error, squares, longest)
        work.bonus[_copies_of_chosen(block.with_work(work))] = -np.inf
        work.bonus[block.chosen_rows] = -rule.margin
    else:
        W = rule.whitener
        error = _rounding(contexts) * math.sqrt(np.vdot(W, W)) * longest
        work = Workup(copy, widths(W, contexts), error, squares, longest)
    return block.with_work(work)


def _lengths(contexts: NDArray[Any]) -> tuple[float, float]:
    """The sum of the squared contexts, and a bound on the length of each."""
    rows, d = contexts.shape
    # A few at a time: sums of long vectors are quick, and a few are not much longer than the longest of them.
    few = max(1, _SUMMED // d)
    whole = rows - rows % few
    squares = [float(np.vdot(contexts[whole:], contexts[whole:]))]
    longest = squares[0]
    if whole:
        sums = np.vecdot(grouped := contexts[:whole].reshape(-1, few * d), grouped)
        squares.append(float(sums.sum(dtype=np.float64)))
        longest = max(longest, float(sums.max()))
    return sum(squares), math.sqrt(longest)


def _copies_of_chosen(block: Block) -> NDArray[np.int64]:
    """Rows that are exact copies of the candidate chosen in their step: no theta tells them apart."""
    # Copies agree in any projection: one product with a fixed vector finds the few rows worth comparing.
    scores, error = _scores(block, np.cos(np.arange(1, block.contexts.shape[1] + 1)))
    rows = np.flatnonzero(np.abs(block.leads(scores)) <= 2 * error)
    if not len(rows):
        return rows
    return rows[~block.lead_contexts(rows, block.step_of(rows)).any(axis=1)]


def _without_violated(block: Block, *, look: _Look) -> Block:
    leads, error = _leads(block, look)
    rows = np.flatnonzero(leads > look.tolerance - error)
    work = _work(block)
    bonus = work.bonus.copy()
    bonus[rows[_exactly(block, rows, look).violation > look.tolerance]] = -np.inf
    return block.with_work(work._replace(bonus=bonus))


def experienced(block: Block) -> Experience:
    """What the choices of a block teach."""
    chosen = block.chosen_rows - block.offsets[:-1]
    counts = np.diff(block.offsets) if block.width is None else np.full(len(chosen), block.width)
    S = block.contexts.take(block.chosen_rows, axis=0)
    return Experience(gram(S), counts, chosen, S.sum(axis=0, dtype=np.float64))


def _measure(block: Block) -> tuple[Experience, tuple[float, float], float]:
    """What the choices teach, squared contexts and bonuses, and the rounding of the float type."""
    work = _work(block)
    squares = work.squares, float(np.vdot(work.bonus, work.bonus))
    return experienced(block), squares, _EPSILON[block.contexts.dtype.char]


def _total(
    parts: Iterable[tuple[Experience, tuple[float, float], float]],
) -> tuple[Experience, tuple[float, float], float]:
    found = list(parts)
    contexts, bonus = (sum(part[1][place] for part in found) for place in (0, 1))
    return Experience.join([part[0] for part in found]), (contexts, bonus), found[0][2]


def _penalty_at(block: Block, *, look: _Look, slope: float, bend: float) -> Penalty:
    leads, error = _leads(block, look)
    found = _exactly(block, np.flatnonzero(leads > -error), look)
    return _hinge(found.violation, found.matrix, slope, bend)


def _worst_at(block: Block, *, look: _Look, count: int, band: float) -> tuple[RowSet, Tally]:
    leads, error = _leads(block, look)
    rows = np.flatnonzero(leads > -(band + error))
    if len(rows) <= count:
        found = _exactly(block, rows, look)
        return found, _tally(block, rows, found.violation, look)
    # The worst are wanted exactly, and so are those that a quick look cannot tell from a row that holds or agrees.
    excess = leads.take(rows).astype(np.float64)
    wanted = np.abs(excess - look.tolerance) <= error
    if look.rule.margin:
        wanted |= np.abs(excess - look.tolerance - look.rule.margin) <= error
    wanted[np.argpartition(excess, -count)[-count:]] = True
    exact = np.flatnonzero(wanted)
    found = _exactly(block, rows.take(exact), look)
    excess[exact] = found.violation
    return found.worst(count), _tally(block, rows, excess, look)


def _all_rows(block: Block, *, look: _Look) -> RowSet:
    alive = np.isfinite(_work(block).bonus)
    alive[block.chosen_rows] = False
    return _exactly(block, np.flatnonzero(alive), look)


def _places(block: Block, *, keys: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which keys lie in this block, and their (step, chosen, other)."""
    inside = (keys >= block.first_row) & (keys < block.first_row + len(block.contexts))
    rows = keys[inside] - block.first_row
    steps = block.step_of(rows)
    starts = block.offsets[steps]
    return inside, np.stack([steps + block.first_step, block.chosen_rows[steps] - starts, rows - starts], axis=1)


def _work(block: Block) -> Workup:
    assert block.work is not None  # given by the view, before anything else
    return block.work


def _leads(block: Block, look: _Look) -> tuple[NDArray[Any], float]:
    """Violation of every row, -inf for the chosen ones, in the precision of a quick look; and how far it may be off."""
    scores, error = _scores(block, look.policy)
    return block.leads(scores), 2 * (error + _work(block).bonus_error)


def _exactly(block: Block, rows: NDArray[np.int64], look: _Look) -> RowSet:
    """Some rows in float64; the matrix has contexts less the chosen ones', which the view takes on to theta."""
    count = len(rows)
    chosen = block.chosen_rows.take(block.step_of(rows))
    both = block.contexts.take(np.concatenate([rows, chosen]), axis=0).astype(np.float64, copy=False)
    lead = both[:count] - both[count:]
    if look.rule.whitener is None:
        rhs = np.full(count, -look.rule.margin)
    else:
        wide = widths(look.rule.whitener, both)
        rhs = wide[count:] - wide[:count]
    return RowSet(lead, rhs, lead @ look.policy - rhs, rows + block.first_row)


def _scores(block: Block, policy: Vector) -> tuple[NDArray[Any], float]:
    """u = X w + bonus of every row, so that row o is violated by u_o - u_c; and a bound on the rounding of X w."""
    work = _work(block)
    contexts = block.contexts if work.contexts is None else work.contexts
    size = math.sqrt(policy @ policy) * work.longest
    if not size < _LARGEST:
        contexts = block.contexts.astype(np.float64, copy=False)
    scores: NDArray[Any] = contexts @ policy.astype(contexts.dtype, copy=False)
    scores += work.bonus
    return scores, _rounding(contexts) * size


def _rounding(contexts: NDArray[Any]) -> float:
    """Relative error of a sum of d products in the contexts' precision, with room for that of its factors and sums."""
    return float((contexts.shape[1] + 4) * _EPSILON[contexts.dtype.char])


def _hinge(excess: Vector, lead: NDArray[np.float64], slope: float, bend: float) -> Penalty:
    """Penalty of rows with these violations (negative: none), and its derivatives in what ``lead`` multiplies."""
    bent = excess.clip(0.0, bend)
    value = slope * (float(bent @ excess) - float(bent @ bent) / 2)
    curved = lead.take((bent == excess).nonzero()[0], axis=0)
    return Penalty(value, slope * (bent @ lead), slope * (curved.T @ curved))


def _tally(block: Block, rows: NDArray[np.int64], excess: Vector, look: _Look) -> Tally:
    """Count from rows that include all violated ones, in order, and their violations."""
    worst = float(excess.max(initial=0.0))
    if worst <= look.tolerance:
        return Tally(0, worst, len(block.chosen_rows))
    violated = excess > look.tolerance
    beaten = rows[violated if not look.rule.margin else excess > look.tolerance + look.rule.margin]
    steps = block.step_of(beaten)
    lost = 1 + int(np.count_nonzero(steps[1:] != steps[:-1])) if len(steps) else 0
    return Tally(int(np.count_nonzero(violated)), worst, len(block.chosen_rows) - lost)


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
