"""Features centred and scaled: by their own means and standard deviations, or as those of another log.

A `Source` says by its preparation what has been done to its features; what is still to be done is done here, for
every format alike. Means and deviations are those of all candidates' rows, the warm-up's included. They are summed up
in blocks of a fixed number of rows, so that the same rows give the same bits in whatever file and however they are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ibcb.log.arrays import LogFormatError, shown
from ibcb.log.disk import IndexedSource
from ibcb.log.notes import Note
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import ReadOptions, Source, Steps

__all__ = ["Moments", "standardized"]

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
    if options.preparation is not None:
        return _made_as(source, options.preparation, ())
    if not options.standardize or (source.preparation is not None and source.preparation.is_standardized):
        return source
    if source.feature_names is None:
        raise LogFormatError(
            "the features of this log have no names, by which their means and scales are kept (standardize, "
            "--standardize); write the log with feature_names, or leave standardize out."
        )
    moments = Moments(len(source.feature_names))
    for steps in source.batches():
        moments.add(steps.contexts)
    moments.finish()
    # What has no finite numbers, or none at all, is refused with its place as soon as it is read.
    if moments.rows == 0 or not np.isfinite([moments.low, moments.high]).all():
        return source
    raw = source.preparation or Preparation(tuple(FeatureColumn(name) for name in source.feature_names))
    return _made_as(source, *_with_moments(raw, moments))


def _with_moments(raw: Preparation, moments: Moments) -> tuple[Preparation, tuple[Note, ...]]:
    """A recipe that centres and scales numbers too, and what to know of it."""
    columns: list[FeatureColumn] = []
    constant: list[str] = []
    place = 0
    for column in raw.columns:
        at, place = place, place + len(column.feature_names)
        if column.categories is not None:
            columns.append(column)
            continue
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
    return _Standardized(source, wanted, made, notes)


class _Standardized:
    """A source whose numbers x, which are (raw - c) / s, become (raw - center) / scale."""

    def __init__(
        self,
        source: Source,
        wanted: Preparation,
        made: tuple[NDArray[np.float64], NDArray[np.float64]],
        notes: tuple[Note, ...],
    ) -> None:
        self._source, self._made, self._notes = source, made, notes
        self.name = source.name
        self.preparation: Preparation | None = wanted
        self.feature_names = source.feature_names
        self._center, self._scale = wanted.moments

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self._source.notes, *self._notes)

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """As those of the source."""
        return map(self._steps, self._source.batches(whole=whole))

    def index(self) -> list[tuple[int, list[int]]] | None:
        """As that of the source, if it has one."""
        return self._source.index() if isinstance(self._source, IndexedSource) else None

    def step_counts(self, row_groups: Sequence[int]) -> NDArray[np.int64]:
        """As those of the source."""
        return self._indexed.step_counts(row_groups)

    def group_sizes(self) -> list[int]:
        """As those of the source."""
        return self._indexed.group_sizes()

    def episode(self, row_groups: Sequence[int]) -> Iterator[Steps]:
        """The steps of some row groups."""
        return map(self._steps, self._indexed.episode(row_groups))

    @property
    def _indexed(self) -> IndexedSource:
        assert isinstance(self._source, IndexedSource)  # only these have an index
        return self._source

    def _steps(self, steps: Steps) -> Steps:
        given = steps.contexts
        if given.shape[1] != len(self._center):
            raise LogFormatError(
                f"the candidates have {given.shape[1]} features, but means and scales are known of "
                f"{len(self._center)}; give the features of the log that the model was fitted on."
            )
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
