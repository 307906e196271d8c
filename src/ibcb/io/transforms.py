"""Features made of features: centred and scaled, and multiplied with each other.

A `Source` says by its preparation what has been done to its features; what is still to be done is done here, for every
format alike. Means and deviations, by their own rows or as of another log, are those of all candidates' rows, the
warm-up's included. They are summed up in blocks of a fixed number of rows, so that the same rows give the same bits in
whatever file and however they are read.

Products are made after that: of a user's features with an item's, so that a linear policy can depend on both. What is
the same for all candidates of a step is no feature of its own then.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.io.columns import matches
from ibcb.io.sources import BATCH_NUMBERS, MOST_FEATURES, MappedSource, cuts, some
from ibcb.io.words import listed, refusal, sentence
from ibcb.log.array_checks import LogFormatError, offsets_of, plural
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import Cross, FeatureColumn, Preparation
from ibcb.log.steps import Source, Steps
from ibcb.numerics.contexts import Contexts, dense, is_sparse, ordered, sparse_pays
from ibcb.numerics.printable import shown

_BLOCK = 1 << 14
#: what is subtracted from each feature, and what it is then divided by
_Both = tuple[NDArray[np.float64], NDArray[np.float64]]
#: rows that tell whether products are mostly 0
_SAMPLE = 4096


# -- means and deviations ---------------------------------------------------------------------------------------------


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
        raise refusal("standardize-no-names")
    raw = source.preparation or Preparation(tuple(FeatureColumn(name) for name in source.feature_names))
    return _made_as(source, *with_moments(raw, (steps.contexts for steps in source.batches())))


def with_moments(raw: Preparation, blocks: Iterable[Contexts]) -> tuple[Preparation, tuple[Note, ...]]:
    """A recipe that centres and scales numbers too, as rows of the raw features have them, and what to know of it."""
    numbers = np.flatnonzero([column.categories is None for column in raw.columns for _ in column.feature_names])
    moments, d = Moments(len(numbers)), len(raw.feature_names)
    for X in blocks:
        if is_sparse(X) and not sparse_pays(X.shape[1], len(numbers) / d):
            raise refusal("standardize-sparse", d=d)
        moments.add(dense(X[:, numbers]))
    moments.finish()
    # What has no finite numbers, or none at all, is refused with its place as soon as it is read.
    if moments.rows == 0 or not np.isfinite([moments.low, moments.high]).all():
        return raw, ()
    columns, constant = list[FeatureColumn](), list[str]()
    told = zip(moments.low, moments.high, moments.mean, moments.deviation, strict=True)
    for column in raw.columns:
        if column.categories is not None:
            columns.append(column)
            continue
        low, high, mean, scale = map(float, next(told))
        if low == high:
            constant.append(column.name)
            columns.append(replace(column, center=low))
        elif 0 < scale < np.inf:
            columns.append(replace(column, center=mean, scale=scale))
        else:
            raise refusal("scale-unknown", name=column.name, low=low, high=high)
    text = sentence("constant-not-scaled", columns=", ".join(map(shown, constant)))
    notes = (Note("constant-not-scaled", "info", text, {"columns": tuple(constant)}),) if constant else ()
    return replace(raw, columns=tuple(columns)), notes


def _made_as(source: Source, wanted: Preparation, notes: tuple[Note, ...]) -> Source:
    """The source with its features centred and scaled as a recipe has it, whatever has been done to them before."""
    center, scale = wanted.moments
    made = (np.zeros_like(center), np.ones_like(scale)) if source.preparation is None else source.preparation.moments
    if np.array_equal(made, (center, scale)):
        return source
    if wanted.crosses or wanted.arms is not None:
        raise _multiplied("the features that they are made of are to be centred and scaled in another way")
    return _Standardized(source, wanted, made, notes)


def _multiplied(what: str) -> LogFormatError:
    return refusal("products-made", what=what)


def _check_width(X: Contexts, d: int, what: str) -> None:
    if X.shape[1] != d:
        raise refusal("width-wrong", width=X.shape[1], what=what.format(d))


class _Standardized(MappedSource):
    """A source whose numbers x, which are (raw - c) / s, become (raw - center) / scale; ``made`` has c and s."""

    def __init__(self, source: Source, wanted: Preparation, made: _Both, notes: tuple[Note, ...]) -> None:
        super().__init__(source, wanted, source.feature_names, notes)
        self._made, (self._center, self._scale) = made, wanted.moments

    def _mapped(self, batches: Iterable[Steps]) -> Iterator[Steps]:
        for steps in batches:
            _check_width(steps.contexts, len(self._center), "means and scales are known of {}")
            made = self._sparsely if is_sparse(steps.contexts) else self._densely
            yield steps._replace(contexts=made(steps.contexts))

    def _densely(self, given: NDArray[Any]) -> NDArray[Any]:
        contexts = np.empty(given.shape, dtype=given.dtype if given.dtype.kind == "f" else np.float64)
        c, s = self._made
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, len(given), _BLOCK):
                rows = slice(first, first + _BLOCK)
                # In double precision, since a single one may hold no more than the differences.
                X = given[rows].astype(np.float64)
                if c.any() or (s != 1).any():
                    X = X * s + c
                contexts[rows] = (X - self._center) / self._scale
        return contexts

    def _sparsely(self, given: Contexts) -> Contexts:
        """Likewise; columns that are moved are filled, which `standardized` allows where they are few."""
        (c, s), rows = self._made, given.shape[0]
        factor, shift = s / self._scale, (c - self._center) / self._scale
        moved = np.flatnonzero(shift)
        scaled = given.astype(np.float64) @ sparse.diags_array(factor)
        where = np.tile(moved, rows), np.arange(0, rows * len(moved) + 1, max(len(moved), 1))[: rows + 1]
        filled = sparse.csr_array((np.tile(shift[moved], rows), *where), shape=given.shape) if len(moved) else None
        return ordered((scaled if filled is None else scaled + filled).astype(given.dtype))


# -- products ----------------------------------------------------------------------------------------------------------


def crossed(source: Source, options: ReadOptions) -> Source:
    """The source with the products that the options ask for, or that the features of another log have."""
    wanted = options.preparation
    if wanted is not None:
        if options.cross and not wanted.crosses:
            raise refusal("cross-unlike-model")
        has_all = not wanted.crosses or source.feature_names == wanted.feature_names
        return source if has_all else _Crossed(source, wanted, ())
    if not options.cross:
        return source
    if source.feature_names is None:
        raise refusal("cross-no-names")
    made = source.preparation or Preparation(tuple(FeatureColumn(name) for name in source.feature_names))
    if made.crosses:
        raise refusal("crossed-already")
    #: every feature of the columns, with the name of its column
    homes = [(feature, column.name) for column in made.columns for feature in column.feature_names]
    crosses = tuple(_resolved(homes, names, getattr(source, "separator", None)) for names in options.cross)
    _check_number(crosses, options)
    of_step, not_asked = _of_step(source, made, crosses), set[int]()
    if options.features is not None:
        absent = [name for name in options.features if not any(name in home for home in homes)]
        if absent:
            raise LogFormatError(f"no feature is named {some(absent)}; there are {listed(name for name, _ in homes)}.")
        not_asked = {place for place, home in enumerate(homes) if not {*home} & {*options.features}}
    recipe = replace(made, crosses=crosses, hidden=tuple(sorted(of_step | not_asked)))
    return _Crossed(source, recipe, _remarks(recipe, sorted(of_step)))


def _resolved(homes: list[tuple[str, str]], names: Sequence[str], separator: str | None) -> Cross:
    """The features that each name of a cross stands for: a column, a feature, a pattern, or a namespace."""
    if len(names) == 1 and separator is not None and len(names[0]) > 1:
        # As Vowpal Wabbit's -q ui: the first letters of namespaces.
        names = [f"{letter}*{separator}*" for letter in names[0]]
    if len(names) < 2:
        raise refusal("cross-alone", name=names[0])
    factors = []
    for name in names:
        patterns = [name] if separator is None else [name, f"{name}{separator}*"]
        factors.append(tuple(place for place, home in enumerate(homes) if any(matches(e, patterns) for e in home)))
        if not factors[-1]:
            known = list(dict.fromkeys(column for _, column in homes))
            near = difflib.get_close_matches(name, known, n=1)
            raise refusal(
                "cross-unknown", name=name, meant=f"; did you mean {shown(near[0])}?" if near else "", known=known
            )
    return tuple(factors)


def _check_number(crosses: tuple[Cross, ...], options: ReadOptions) -> None:
    number = sum(prod(len(factor) for factor in cross) for cross in crosses)
    if number > MOST_FEATURES:
        largest = max(crosses, key=lambda cross: prod(map(len, cross)))
        columns = ",".join(options.cross[crosses.index(largest)])
        sizes = " x ".join(str(len(factor)) for factor in largest)
        raise refusal("cross-too-many", number=number, columns=columns, sizes=sizes, most=MOST_FEATURES)


def _of_step(source: Source, made: Preparation, crosses: tuple[Cross, ...]) -> set[int]:
    """Which of the features to be multiplied are the same for all candidates of every step."""
    known = getattr(source, "step_features", None)
    if known is not None:
        return {place for place, name in enumerate(made.column_features) if name in known}
    places = np.unique([place for cross in crosses for factor in cross for place in factor])
    for steps in source.batches():
        owner = np.repeat(np.arange(len(steps.counts)), steps.counts)
        within = np.flatnonzero(owner[1:] == owner[:-1])
        # Rows beside each other: some differ where not all of a step are the same.
        changes: Any = steps.contexts[:, places]
        changes = changes[within + 1] - changes[within]
        places = places[~np.asarray((changes != 0).sum(axis=0) > 0).ravel()]
        if not len(places):
            break
    return set(places.tolist())


def _remarks(recipe: Preparation, of_step: list[int]) -> tuple[Note, ...]:
    names = recipe.feature_names[len(recipe.column_features) - len(recipe.hidden) :]
    text = f"{plural(len(names), 'product')} of features: {some(names)}."
    notes = [Note("products", "info", text, {"features": len(names)})]
    if of_step:
        shared = tuple(recipe.column_features[place] for place in of_step)
        text = f"{some(shared)}: the same for all candidates of a step, so read for products alone."
        notes.append(Note("shared-features", "info", text, {"features": shared}))
    return tuple(notes)


class _Crossed(MappedSource):
    """A source with products; whether they are stored sparsely is told by the first rows."""

    def __init__(self, source: Source, recipe: Preparation, notes: tuple[Note, ...]) -> None:
        super().__init__(source, recipe, recipe.feature_names, notes)
        self._inner, self._d = len(recipe.column_features), len(recipe.feature_names)
        self._alone = np.setdiff1d(np.arange(self._inner), recipe.hidden)
        self._grids = list(_grids(recipe))
        sample = next((self._sparsely(steps.contexts[:_SAMPLE]) for steps in source.batches()), None)
        self._is_sparse = sample is not None and sparse_pays(self._d, sample.nnz / max(sample.shape[0] * self._d, 1))

    def _mapped(self, batches: Iterable[Steps]) -> Iterator[Steps]:
        for steps in batches:
            for some_steps, rows in cuts(steps.counts, BATCH_NUMBERS // self._d):
                part = steps.taken(some_steps, rows)
                yield part._replace(contexts=self._products(part.contexts))

    def _products(self, X: Contexts) -> Contexts:
        _check_width(X, self._inner, "{} are to be multiplied")
        return self._sparsely(X) if self._is_sparse else self._densely(dense(X))

    def _densely(self, X: NDArray[Any]) -> NDArray[Any]:
        result = np.empty((len(X), self._d), dtype=X.dtype)
        first = len(self._alone)
        result[:, :first] = X[:, self._alone]
        for factors, places in self._grids:
            each = np.unravel_index(places, [len(factor) for factor in factors])
            columns = (X[:, factor[at]] for factor, at in zip(factors, each, strict=True))
            result[:, first : first + len(places)] = reduce(np.multiply, columns)
            first += len(places)
        return result

    def _sparsely(self, X: Contexts) -> Contexts:
        X = sparse.csr_array(X)
        blocks = [X[:, self._alone]]
        for factors, places in self._grids:
            blocks.append(reduce(_row_products, [X[:, factor] for factor in factors])[:, places])
        return ordered(sparse.hstack(blocks, format="csr"))


def _grids(recipe: Preparation) -> Iterator[tuple[tuple[NDArray[np.int64], ...], NDArray[np.int64]]]:
    """The crosses of a recipe as they are computed: the features of each factor, and which of their products are kept.

    These are positions in the grid of all products, of which the last factor changes fastest.
    """
    for cross, products in recipe.products_of_crosses():
        index = [{place: at for at, place in enumerate(factor)} for factor in cross]
        if products:
            kept = [[at[place] for at, place in zip(index, factors, strict=True)] for factors in products]
            places = np.ravel_multi_index(tuple(np.array(kept).T), [len(factor) for factor in cross])
            yield tuple(np.array(factor) for factor in cross), places


def _row_products(A: Any, B: Any) -> Any:
    """All products of a number of a row of A and one of the same row of B; column i * b + j has those of i and j."""
    of_A, of_B = np.diff(A.indptr), np.diff(B.indptr)
    partners = np.repeat(of_B, of_A)
    left = np.repeat(np.arange(A.nnz), partners)
    begin = np.repeat(B.indptr[:-1], of_A) - (np.cumsum(partners) - partners)
    right = np.arange(len(left)) + np.repeat(begin, partners)
    b = B.shape[1]
    columns = A.indices[left].astype(np.int64) * b + B.indices[right]
    ends = offsets_of(of_A.astype(np.int64) * of_B)
    return sparse.csr_array((A.data[left] * B.data[right], columns, ends), shape=(A.shape[0], A.shape[1] * b))
