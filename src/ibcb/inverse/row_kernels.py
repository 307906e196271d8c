"""Kernels on one block of constraint rows, whichever home it lives in, and what they return.

Single precision finds, double decides: of every pass over all rows the products and bonuses are taken in float32, with
a bound on their rounding, and the few rows that come near to mattering are computed again in float64 from the contexts
as they were given. So answers are those of double precision, at half its price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, Experience, Workup, experienced
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.contexts import Contexts, is_sparse, taken
from ibcb.numerics.ridge import Whitener, widths

#: lengths whose squares can be summed in single precision, which ends at 3e38
_LARGEST_IN_SINGLE = 1e15
#: numbers squared and summed at a time; not tuned finely: fewer are slower, more bound a context's length less closely
_NUMBERS_PER_SUM = 160
_EPSILON = {kind.char: float(np.finfo(kind).eps) for kind in (np.dtype(np.float32), np.dtype(np.float64))}


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

    @staticmethod
    def join(parts: Sequence[Tally]) -> Tally:
        """Of blocks or views together."""
        if len(parts) == 1:
            return parts[0]
        return Tally(
            sum(part.violated for part in parts),
            max(part.max_violation for part in parts),
            sum(part.agreeing for part in parts),
        )


class Penalty(NamedTuple):
    """Sum of penalties at theta, and its first two derivatives in theta."""

    value: float
    gradient: Vector
    hessian: Matrix


class RowSet(NamedTuple):
    """Some rows written out, ``matrix @ theta <= rhs``; ``key`` is each row's number in its view."""

    matrix: Matrix
    rhs: Vector
    violation: Vector
    key: NDArray[np.int64]

    @staticmethod
    def join(parts: Sequence[RowSet], n_features: int) -> RowSet:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return RowSet(np.empty((0, n_features)), np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))
        return RowSet(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def take(self, keep: NDArray[Any]) -> RowSet:
        """Some of the rows, by index or mask."""
        return RowSet(*(column[keep] for column in self))

    def without(self, known: RowSet) -> RowSet:
        """Those that ``known`` does not hold."""
        return self.take(np.isin(self.key, known.key, invert=True))

    def penalty(self, theta: Vector, slope: float, bend: float) -> Penalty:
        """As `EpisodeView.penalty`, of these rows alone."""
        return _hinge(self.matrix @ theta - self.rhs, self.matrix, slope, bend)

    def worst(self, count: int) -> RowSet:
        """The ``count`` most violated rows; ties fall to the earlier row."""
        if len(self.rhs) <= count:
            return self
        return self.take(np.sort(np.argsort(-self.violation, kind="stable")[:count]))


class Bonus(NamedTuple):
    """What makes a row's bonus: the whitener of Psi (SBUCB), or the margin of the chosen row (SBTS)."""

    whitener: Whitener | None
    margin: float


class Probe(NamedTuple):
    """A policy to look at rows with, and the violation that is rounding there."""

    policy: Vector
    tolerance: float
    bonus: Bonus


def worked_up(block: Block, *, bonus: Bonus) -> Block:
    """With contexts, bonuses and bounds for looks in single precision."""
    contexts, copy = block.contexts, None
    W = None if bonus.whitener is None else bonus.whitener.matrix
    if contexts.dtype != np.float32 and (W is None or np.abs(W).max() < _LARGEST_IN_SINGLE):
        with np.errstate(over="ignore", invalid="ignore"):
            copy = contexts.astype(np.float32)
            squares, longest = _lengths(copy)
        if 1 / _LARGEST_IN_SINGLE < longest < _LARGEST_IN_SINGLE:
            contexts = copy
        else:
            copy = None
    if copy is None:
        squares, longest = _lengths(contexts.astype(np.float64, copy=False))
    if bonus.whitener is None:
        error = _rounding(contexts) * bonus.margin
        work = Workup(copy, np.zeros(block.n_rows, dtype=contexts.dtype), error, squares, longest)
        work.bonus[_copies_of_chosen(block.with_work(work))] = -np.inf
        work.bonus[block.chosen_rows] = -bonus.margin
    else:
        W, offset = bonus.whitener
        size = longest * math.sqrt(np.vdot(W, W)) + (0.0 if offset is None else math.sqrt(np.vdot(offset, offset)))
        work = Workup(
            copy, widths(bonus.whitener, contexts), _rounding(contexts) * size, squares, longest, bonus.whitener
        )
    return block.with_work(work)


def _lengths(contexts: Contexts) -> tuple[float, float]:
    """The sum of the squared contexts, and a bound on the length of each."""
    rows, d = contexts.shape
    if is_sparse(contexts):
        sums = contexts.multiply(contexts).sum(axis=1, dtype=np.float64)
        return float(sums.sum()), math.sqrt(float(sums.max(initial=0.0)))
    # A few at a time: sums of long vectors are quick, and a few are not much longer than the longest of them.
    few = max(1, _NUMBERS_PER_SUM // d)
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


def without_violated_rows(block: Block, *, probe: Probe) -> Block:
    """The block without the rows that are violated."""
    leads, error = _leads(block, probe)
    rows = np.flatnonzero(leads > probe.tolerance - error)
    work = _work(block)
    bonus = work.bonus.copy()
    bonus[rows[_exactly(block, rows, probe).violation > probe.tolerance]] = -np.inf
    return block.with_work(work._replace(bonus=bonus, whitener=None))


def measure(block: Block) -> tuple[Experience, float, float, float]:
    """What the choices teach, squared contexts, squared bonuses, and the rounding of the float type."""
    work = _work(block)
    return experienced(block), work.squares, float(np.vdot(work.bonus, work.bonus)), _EPSILON[block.contexts.dtype.char]


def penalty_at(block: Block, *, probe: Probe, slope: float, bend: float) -> Penalty:
    """As `EpisodeView.penalty`, of a block's rows and in the policy."""
    leads, error = _leads(block, probe)
    rows = _exactly(block, np.flatnonzero(leads > -error), probe)
    return _hinge(rows.violation, rows.matrix, slope, bend)


def worst_at(block: Block, *, probe: Probe, count: int, band: float) -> tuple[RowSet, Tally]:
    """As `EpisodeView.worst`, of a block's rows: at least the rows asked for, and how all of them hold."""
    leads, error = _leads(block, probe)
    rows = np.flatnonzero(leads > -(band + error))
    if len(rows) <= count:
        exact_rows = _exactly(block, rows, probe)
        return exact_rows, _tally(block, rows, exact_rows.violation, probe)
    # The worst are wanted exactly, and so are those that a quick look cannot tell from a row that holds or agrees.
    excess = leads.take(rows).astype(np.float64)
    wanted = np.abs(excess - probe.tolerance) <= error
    if probe.bonus.margin:
        wanted |= np.abs(excess - probe.tolerance - probe.bonus.margin) <= error
    wanted[np.argpartition(excess, -count)[-count:]] = True
    exact = np.flatnonzero(wanted)
    exact_rows = _exactly(block, rows.take(exact), probe)
    excess[exact] = exact_rows.violation
    return exact_rows.worst(count), _tally(block, rows, excess, probe)


def all_rows(block: Block, *, probe: Probe) -> RowSet:
    """Every row that is not left out."""
    alive = np.isfinite(_work(block).bonus)
    alive[block.chosen_rows] = False
    return _exactly(block, np.flatnonzero(alive), probe)


def row_places(block: Block, *, keys: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which keys lie in this block, and their (step, chosen, other)."""
    inside = (keys >= block.first_row) & (keys < block.first_row + block.n_rows)
    rows = keys[inside] - block.first_row
    steps = block.step_of(rows)
    starts = block.offsets[steps]
    return inside, np.stack([steps + block.first_step, block.chosen_rows[steps] - starts, rows - starts], axis=1)


def _work(block: Block) -> Workup:
    assert block.work is not None  # given by the view, before anything else
    return block.work


def _leads(block: Block, probe: Probe) -> tuple[NDArray[Any], float]:
    """Violation of every row, -inf for the chosen ones, in the precision of a quick look; and how far it may be off."""
    scores, error = _scores(block, probe.policy)
    return block.leads(scores), 2 * (error + _work(block).bonus_error)


def _exactly(block: Block, rows: NDArray[np.int64], probe: Probe) -> RowSet:
    """Some rows in float64; the matrix has contexts less the chosen ones', which the view takes on to theta."""
    count = len(rows)
    chosen = block.chosen_rows.take(block.step_of(rows))
    both = taken(block.contexts, np.concatenate([rows, chosen])).astype(np.float64, copy=False)
    lead = both[:count] - both[count:]
    if probe.bonus.whitener is None:
        rhs = np.full(count, -probe.bonus.margin)
    else:
        wide = widths(probe.bonus.whitener, both)
        rhs = wide[count:] - wide[:count]
    return RowSet(lead, rhs, lead @ probe.policy - rhs, rows + block.first_row)


def _scores(block: Block, policy: Vector) -> tuple[NDArray[Any], float]:
    """u = X w + bonus of every row, so that row o is violated by u_o - u_c; and a bound on the rounding of X w."""
    work = _work(block)
    contexts = block.contexts if work.contexts is None else work.contexts
    length = math.sqrt(policy @ policy)
    size = length * work.longest
    if not max(length, size) < _LARGEST_IN_SINGLE:
        contexts = block.contexts.astype(np.float64, copy=False)
    # Some BLAS multiply what is in the memory of the result by 0 first: that may be anything.
    with np.errstate(invalid="ignore"):
        scores: NDArray[Any] = contexts @ policy.astype(contexts.dtype, copy=False)
    scores += work.bonus
    return scores, _rounding(contexts) * size


def _rounding(contexts: Contexts) -> float:
    """Relative error of a sum of d products in the contexts' precision, with room for that of its factors and sums."""
    return float((contexts.shape[1] + 4) * _EPSILON[contexts.dtype.char])


def _hinge(excess: Vector, lead: Matrix, slope: float, bend: float) -> Penalty:
    """Penalty of rows with these violations (negative: none), and its derivatives in what ``lead`` multiplies."""
    bent = excess.clip(0.0, bend)
    value = slope * (float(bent @ excess) - float(bent @ bent) / 2)
    curved = lead.compress(bent == excess, axis=0)
    return Penalty(value, slope * (bent @ lead), slope * (curved.T @ curved))


def _tally(block: Block, rows: NDArray[np.int64], excess: Vector, probe: Probe) -> Tally:
    """Count from rows that include all violated ones, in order, and their violations."""
    worst = float(excess.max(initial=0.0))
    if worst <= probe.tolerance:
        return Tally(0, worst, len(block.chosen_rows))
    violated = excess > probe.tolerance
    beaten = rows[violated if not probe.bonus.margin else excess > probe.tolerance + probe.bonus.margin]
    steps = block.step_of(beaten)
    lost = 1 + int(np.count_nonzero(steps[1:] != steps[:-1])) if len(steps) else 0
    return Tally(int(np.count_nonzero(violated)), worst, len(block.chosen_rows) - lost)
