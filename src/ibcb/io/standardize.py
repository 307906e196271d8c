"""Features centred and scaled: by their own means and standard deviations, or as those of another log.

A `Source` says by its preparation what has been done to its features; what is still to be done is done here, for
every format alike. Means and deviations are those of all candidates' rows, the warm-up's included. They are summed up
in blocks of a fixed number of rows, so that the same rows give the same bits in whatever file and however they are
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.io.sources import MappedSource
from ibcb.log.array_checks import LogFormatError
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import Source, Steps
from ibcb.numerics.contexts import Contexts, dense, is_sparse, ordered, sparse_pays
from ibcb.numerics.printable import shown

_BLOCK = 1 << 14


class Moments:
    """Mean, spread and range of columns, by corrected two-pass sums within a block and Chan's update between blocks.

    Sums are of differences to the first row: what all rows share cancels without rounding.

    >>> moments = Moments(1)
    >>> for value in (1e9, 1e9 + 1, 1e9 + 2):
    ...     moments.add(np.array([[value]]))
    >>> moments.finish()
    >>> moments.mean - 1e9, moments.deviation.round(6)
    (array([1.]), array([0.816497]))
    """

    def __init__(self, d: int) -> None:
        self.rows = 0
        self._first = np.zeros(d)
        self._mean, self._squares = np.zeros(d), np.zeros(d)
        self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)
        self._waiting, self._held = np.empty((_BLOCK, d)), 0

    def add(self, X: NDArray[np.floating] | NDArray[np.integer]) -> None:
        """More rows, shape (rows, d)."""
        first = 0
        while first < len(X):
            some = X[first : first + _BLOCK - self._held]
            self._waiting[self._held : self._held + len(some)] = some
            self._held += len(some)
            first += len(some)
            if self._held == _BLOCK:
                self.finish()

    def finish(self) -> None:
        """Count what waits for a full block, too."""
        X, n = self._waiting[: self._held], self._held
        if n == 0:
            return
        self.low, self.high = np.minimum(self.low, X.min(axis=0)), np.maximum(self.high, X.max(axis=0))
        if self.rows == 0:
            self._first = X[0].copy()
        with np.errstate(over="ignore", invalid="ignore"):
            X -= self._first
            mean = X.mean(axis=0)
            mean += (X - mean).mean(axis=0)
            squares = ((X - mean) ** 2).sum(axis=0)
            away, share = mean - self._mean, n / (self.rows + n)
            self._mean += share * away
            self._squares += squares + away**2 * (share * self.rows)
        self.rows, self._held = self.rows + n, 0

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of each column, shape (d,)."""
        return self._first + self._mean

    @property
    def deviation(self) -> NDArray[np.float64]:
        """Standard deviation of each column, shape (d,)."""
        deviation: NDArray[np.float64] = np.sqrt(self._squares / self.rows)
        return deviation


def standardized(source: Source, options: ReadOptions) -> Source:
    """The source with its features made as the options ask."""
    made = source.preparation
    # Centres and scales are those of the features that products and arms are made of.
    has_products = made is not None and (bool(made.crosses) or made.arms is not None)
    if options.preparation is not None:
        wanted = options.preparation if has_products else options.preparation.uncrossed
        return _made_as(source, wanted, ())
    if not options.standardize or (source.preparation is not None and source.preparation.is_standardized):
        return source
    if has_products:
        raise _multiplied("standardize (--standardize) is for the features that were multiplied")
    if source.feature_names is None:
        raise LogFormatError(
            "the features of this log have no names, by which their means and scales are kept (standardize, "
            "--standardize); write the log with feature_names, or leave standardize out."
        )
    raw = source.preparation or Preparation(tuple(FeatureColumn(name) for name in source.feature_names))
    return _made_as(source, *with_moments(raw, (steps.contexts for steps in source.batches())))


def with_moments(raw: Preparation, blocks: Iterable[Contexts]) -> tuple[Preparation, tuple[Note, ...]]:
    """A recipe that centres and scales numbers too, as rows of the raw features have them, and what to know of it."""
    numbers = np.flatnonzero([column.categories is None for column in raw.columns for _ in column.feature_names])
    moments, d = Moments(len(numbers)), len(raw.feature_names)
    for X in blocks:
        if is_sparse(X) and not sparse_pays(X.shape[1], len(numbers) / d):
            raise LogFormatError(
                f"most of the {d} features are 0 in most rows, and would not be once they are centred (standardize, "
                '--standardize); leave it out. IBCB(l2="auto"), the default, needs no scaling.'
            )
        moments.add(dense(X[:, numbers]))
    moments.finish()
    # What has no finite numbers, or none at all, is refused with its place as soon as it is read.
    if moments.rows == 0 or not np.isfinite([moments.low, moments.high]).all():
        return raw, ()
    columns: list[FeatureColumn] = []
    constant: list[str] = []
    place = 0
    for column in raw.columns:
        if column.categories is not None:
            columns.append(column)
            continue
        at, place = place, place + 1
        low, high, scale = float(moments.low[at]), float(moments.high[at]), float(moments.deviation[at])
        if low == high:
            constant.append(column.name)
            columns.append(replace(column, center=low))
        elif 0 < scale < np.inf:
            columns.append(replace(column, center=float(moments.mean[at]), scale=scale))
        else:
            raise LogFormatError(
                f"feature {shown(column.name)} lies between {low:g} and {high:g}, of which the standard deviation "
                "cannot be computed (standardize, --standardize); give it in other units, or leave it out (--drop)."
            )
    text = (
        f"{', '.join(map(shown, constant))}: the same for all candidates of the log, so centred, and scaled by 1 for "
        "want of a standard deviation."
    )
    notes = (Note("constant-not-scaled", "info", text, {"columns": tuple(constant)}),) if constant else ()
    return replace(raw, columns=tuple(columns)), notes


def _made_as(source: Source, wanted: Preparation, notes: tuple[Note, ...]) -> Source:
    """The source with its features centred and scaled as a recipe has it, whatever has been done to them before."""
    made = None if source.preparation is None else source.preparation.moments
    center, scale = wanted.moments
    if made is None:
        made = np.zeros(len(center)), np.ones(len(center))
    if np.array_equal(made, (center, scale)):
        return source
    if wanted.crosses or wanted.arms is not None:
        raise _multiplied("the features that they are made of are to be centred and scaled in another way")
    return _Standardized(source, wanted, made, notes)


def _multiplied(what: str) -> LogFormatError:
    return LogFormatError(
        f"the log has products of features (cross), or arms, and {what}; read the file that it was made of."
    )


class _Standardized(MappedSource):
    """A source whose numbers x, which are (raw - c) / s, become (raw - center) / scale."""

    def __init__(
        self,
        source: Source,
        wanted: Preparation,
        made: tuple[NDArray[np.float64], NDArray[np.float64]],
        notes: tuple[Note, ...],
    ) -> None:
        super().__init__(source, wanted, source.feature_names, notes)
        self._made = made
        self._center, self._scale = wanted.moments

    def _mapped(self, batches: Iterable[Steps]) -> Iterator[Steps]:
        return map(self._steps, batches)

    def _steps(self, steps: Steps) -> Steps:
        given = steps.contexts
        if given.shape[1] != len(self._center):
            raise LogFormatError(
                f"the candidates have {given.shape[1]} features, but means and scales are known of "
                f"{len(self._center)}; give the features of the log that the model was fitted on."
            )
        if is_sparse(given):
            return steps._replace(contexts=self._sparsely(given))
        contexts = np.empty(given.shape, dtype=given.dtype if given.dtype.kind == "f" else np.float64)
        (c, s), undo = self._made, any(part.any() for part in (self._made[0], self._made[1] - 1))
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, len(given), _BLOCK):
                rows = slice(first, first + _BLOCK)
                # In double precision, since a single one may hold no more than the differences.
                X = given[rows].astype(np.float64)
                if undo:
                    X = X * s + c
                contexts[rows] = (X - self._center) / self._scale
        return steps._replace(contexts=contexts)

    def _sparsely(self, given: Contexts) -> Contexts:
        """Likewise; columns that are moved are filled, which `standardized` allows where they are few."""
        (c, s), rows = self._made, given.shape[0]
        factor, shift = s / self._scale, (c - self._center) / self._scale
        moved = np.flatnonzero(shift)
        scaled = given.astype(np.float64) @ sparse.diags_array(factor)
        where = np.tile(moved, rows), np.arange(0, rows * len(moved) + 1, max(len(moved), 1))[: rows + 1]
        filled = sparse.csr_array((np.tile(shift[moved], rows), *where), shape=given.shape) if len(moved) else None
        return ordered((scaled if filled is None else scaled + filled).astype(given.dtype))
