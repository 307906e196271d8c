"""Blocks: the fixed pieces of an episode over which everything is summed, in order; and what they teach a decider."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Vector, plain
from ibcb.numerics.contexts import Contexts, arranged, nbytes, repeated, stacked, step_counts, taken
from ibcb.numerics.ridge import Chosen, Ridge, Whitener, gram

#: a block ends after so many steps, or before the step that would give it more than so many rows (decision 0007);
#: results depend on these in their last bits
BLOCK_STEPS, BLOCK_ROWS = 4096, 1 << 16


class Workup(NamedTuple):
    """A copy of a block's contexts for quick looks, its rows' bonuses, and how far both may be off.

    Attributes
    ----------
    contexts : ndarray of shape (rows, d), optional
        In single precision; None where the block's own contexts serve.
    bonus : ndarray of shape (rows,)
        What each row's score gets on top of <policy, s>; -inf leaves a row out.
    bonus_error : float
        Bound on the rounding of a bonus.
    squares, longest : float
        Sum of the squared contexts, and a bound on the length of each.
    whitener : Whitener, optional
        Of the `Ridge` whose confidence widths the bonuses are; None where they are something else.
    """

    contexts: Contexts | None
    bonus: NDArray[Any]
    bonus_error: float
    squares: float
    longest: float
    whitener: Whitener | None = None

    @property
    def nbytes(self) -> int:
        return self.bonus.nbytes + (0 if self.contexts is None else nbytes(self.contexts))


@dataclass(frozen=True, slots=True)
class Block:
    """A run of whole steps of one episode.

    Attributes
    ----------
    contexts : Contexts of shape (rows, d)
        Dense or sparse.
    chosen_rows : ndarray of shape (steps,)
        Row of the chosen candidate of each step.
    offsets : ndarray of shape (steps + 1,)
        First row of each step.
    width : int or None
        The number of candidates of every step, None where it varies.
    first_step, first_row : int
        Position of the block's first step, and of its first row, within the episode.
    work : Workup, optional
        What `ibcb.inverse.constraints` has worked out for the block's rows before the first look at them.
    """

    contexts: Contexts
    chosen_rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    width: int | None
    first_step: int
    first_row: int
    work: Workup | None = None

    def __post_init__(self) -> None:
        # Blocks come from Dask, mapped files and Arrow too; kernels give the same bits only for the same layout.
        object.__setattr__(self, "contexts", arranged(self.contexts))
        for name in ("chosen_rows", "offsets"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        if self.work is not None:
            own = self.work.contexts
            work = self.work._replace(contexts=None if own is None else arranged(own), bonus=plain(self.work.bonus))
            object.__setattr__(self, "work", work)

    def __reduce__(self) -> tuple[Any, ...]:
        # Through __init__, so that what arrives is brought into order.
        return Block, tuple(getattr(self, name) for name in self.__slots__)

    def with_work(self, work: Workup | None) -> Block:
        """The same rows, with what has been worked out for them."""
        return replace(self, work=work)

    def first(self, steps: int) -> Block:
        """The first so many steps."""
        if steps >= len(self.chosen_rows):
            return self
        count = int(self.offsets[steps])
        place = (self.width, self.first_step, self.first_row)
        return Block(self.contexts[:count], self.chosen_rows[:steps], self.offsets[: steps + 1], *place)

    def step_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Step, within the block, that owns each row."""
        if self.width is not None:
            return rows // self.width
        return np.searchsorted(self.offsets, rows, side="right") - 1

    def leads(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Score of each row less that of the candidate chosen in its step, -inf for the chosen; written over scores."""
        of_chosen = scores.take(self.chosen_rows)
        scores[self.chosen_rows] = -np.inf
        scores -= np.repeat(of_chosen, np.diff(self.offsets) if self.width is None else self.width)
        return scores

    def widths(self, ridge: Ridge) -> NDArray[Any]:
        """Confidence widths of all rows, in single precision unless that overflows."""
        if self.work is not None and ridge.whitener.same(self.work.whitener):
            return self.work.bonus
        return self.in_single(ridge.widths)

    def in_single(self, of: Callable[[Contexts], NDArray[Any]]) -> NDArray[Any]:
        """Numbers of all rows, worked out in single precision unless that overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = of(self.contexts.astype(np.float32, copy=False))
        return numbers if np.isfinite(numbers).all() else of(self.contexts.astype(np.float64, copy=False))

    def less_chosen(self, values: NDArray[Any], *, out: NDArray[Any]) -> None:
        """Values of each row less those of the candidate chosen in its step: shape (rows, k), written to ``out``."""
        of_chosen, k = values.take(self.chosen_rows, axis=0), values.shape[1]
        if self.width is None:
            np.subtract(values, np.repeat(of_chosen, np.diff(self.offsets), axis=0), out=out, casting="same_kind")
            return
        steps = (len(of_chosen), self.width, k)
        np.subtract(values.reshape(steps), of_chosen[:, None], out=out.reshape(steps), casting="same_kind")

    @property
    def n_rows(self) -> int:
        return int(self.contexts.shape[0])

    def all_leads(self, dtype: Any) -> Contexts:
        """Contexts of all rows minus those of the candidates chosen in their steps, of sparse contexts."""
        X = self.contexts.astype(dtype, copy=False)
        leads = X - repeated(X[self.chosen_rows], np.diff(self.offsets))
        leads.eliminate_zeros()
        return leads

    def lead_contexts(self, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Contexts of some rows minus those of the candidates chosen in their steps, dense, in float64."""
        lead = taken(self.contexts, rows).astype(np.float64, copy=False)
        lead -= taken(self.contexts, self.chosen_rows.take(steps))
        return lead


def block_edges(offsets: NDArray[np.int64]) -> list[int]:
    """First step of every block of an episode, and the number of its steps; from the first rows of its steps alone.

    Wherever the rows live, the blocks are the same, so that all sums are.
    """
    steps, edges = len(offsets) - 1, [0]
    if steps <= BLOCK_STEPS and offsets[-1] - offsets[0] <= BLOCK_ROWS:
        return [0, steps]
    while edges[-1] < steps:
        first = edges[-1]
        full = int(np.searchsorted(offsets, offsets[first] + BLOCK_ROWS, side="right")) - 1
        edges.append(min(max(full, first + 1), first + BLOCK_STEPS, steps))
    return edges


def blocks(episode: BehaviorLog, before: tuple[int, int] = (0, 0)) -> list[Block]:
    """The blocks of a log of one episode, or of a part of it; they share its arrays. ``before``: as of `_block`."""
    edges = pairwise(block_edges(episode.step_offsets))
    return [_block(episode.contexts, episode.step_offsets, episode.chosen, *pair, before) for pair in edges]


def _block(
    contexts: Contexts,
    offsets: NDArray[np.int64],
    chosen: NDArray[np.int64],
    first: int,
    end: int,
    before: tuple[int, int],
) -> Block:
    """Some steps of a part of an episode; ``before``: steps and rows before that part."""
    start, stop = int(offsets[first]), int(offsets[end])
    own = offsets[first : end + 1] - start
    counts = step_counts(own)
    return Block(
        contexts=contexts[start:stop],
        chosen_rows=own[:-1] + chosen[first:end],
        offsets=own,
        width=int(counts[0]) if (counts == counts[0]).all() else None,
        first_step=before[0] + first,
        first_row=before[1] + start,
    )


def reblocked(parts: Iterable[BehaviorLog]) -> Iterator[Block]:
    """The blocks of an episode from parts of any size."""
    contexts: Contexts | None = None
    counts = chosen = np.empty(0, dtype=np.int64)
    first_step = first_row = 0

    def cut(last: bool) -> Iterator[Block]:
        """Blocks that are complete; what remains waits for the next part."""
        nonlocal contexts, counts, chosen, first_step, first_row
        assert contexts is not None
        offsets = np.concatenate([[0], np.cumsum(counts)])
        edges = block_edges(offsets)
        for first, end in pairwise(edges if last else edges[:-1]):
            yield _block(contexts, offsets, chosen, first, end, (first_step, first_row))
        rest = edges[-1] if last else edges[-2]
        first_step, first_row = first_step + rest, first_row + int(offsets[rest])
        contexts, counts, chosen = contexts[int(offsets[rest]) :], counts[rest:], chosen[rest:]

    for part in parts:
        waiting = contexts is not None and contexts.shape[0] > 0
        contexts = stacked([contexts, part.contexts]) if waiting else part.contexts
        counts = np.concatenate([counts, np.diff(part.step_offsets)])
        chosen = np.concatenate([chosen, part.chosen])
        yield from cut(last=False)
    if contexts is not None and len(counts):
        yield from cut(last=True)


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

    def of_chosen(self, origin: Vector | None) -> Chosen:
        """Sums over the chosen contexts, measured from an origin; None for 0."""
        own = Chosen(float(len(self.chosen)), self.total, self.phi)
        return own if origin is None else Chosen(own.count, self.total - own.count * origin, own.about(origin))

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


def experienced(block: Block) -> Experience:
    """What the choices of a block teach."""
    chosen = block.chosen_rows - block.offsets[:-1]
    counts = np.diff(block.offsets) if block.width is None else np.full(len(chosen), block.width)
    S = block.contexts[block.chosen_rows]
    return Experience(gram(S), counts, chosen, S.sum(axis=0, dtype=np.float64))
