"""What the candidates of a log look like: the moments by which weights of features in different units are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibcb.engine.block import Block
from ibcb.engine.episode_rows import Rows
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.contexts import SMALLEST, dense, is_sparse, scaled_rows, shown_counts, step_sums
from ibcb.numerics.gaussians import symmetric_inverse
from ibcb.numerics.ridge import Frame

#: a feature's own share of the second moment that every direction has at least, so that it can be inverted; not tuned
_RIDGE_SHARE = 0.05
#: features whose sizes are further apart than this factor have different units: contexts that are merely unlike each
#: other, or rare, are not; not tuned
_MIXED = 10.0


@dataclass(frozen=True)
class CandidateMoments:
    """Moments over the candidates of some steps, the chosen ones included.

    Attributes
    ----------
    mean : ndarray of shape (d,)
    second : ndarray of shape (d, d)
        Mean of s s'.
    within : ndarray of shape (d, d)
        The same of the candidates less the mean of their step.
    shown : ndarray of shape (d,)
        Mean square of each feature where it is not 0; 0 if it never is.
    """

    mean: Vector
    second: Matrix
    within: Matrix
    shown: Vector

    @property
    def unit(self) -> Matrix:
        """S^-1 of the candidates as they are: a learner's scores depend on where its features have their zero.

        Scores are bounded where a feature shows, however rarely it does; of one that never does any scale will do.
        """
        return _inverse(self.second, np.where(self.shown > 0, self.shown, 1.0))

    @property
    def unit_within(self) -> Matrix:
        """S^-1 of the candidates about their step's mean, which alone tells of choices."""
        own = self.within.diagonal()
        # Of a feature in which candidates do not differ any scale will do, such as its own.
        return _inverse(self.within, np.where(own > 0, own, 20.0 * np.where(self.shown > 0, self.shown, 1.0)))

    @property
    def metric(self) -> Matrix:
        """Mean square of each feature, on a diagonal: lengths of weights in it do not depend on units.

        Without the features' correlations: with them Algorithm 2 predicts a little less (docs/decisions/0014).
        """
        squares = self.second.diagonal()
        return np.diag(np.where(squares > 0, squares, 1.0))

    @property
    def mixed(self) -> bool:
        """Whether features seem to be in different units."""
        sizes = np.sqrt(self.shown[self.shown > 0])
        return len(sizes) > 1 and bool(sizes.max() > _MIXED * sizes.min())

    def frames(self) -> tuple[Frame, Frame]:
        """The units of a decider that brings its features to one scale, and of one that takes off their means too.

        The scale of a feature is its root mean square where it shows: 1 for one that is 0 or 1, however rare.
        """
        size = np.sqrt(np.where(self.shown > 0, self.shown, 1.0))
        spread = np.sqrt(np.maximum(self.second.diagonal() - self.mean**2, 0.0))
        # A constant feature has no spread; its width about the mean is 0 whatever its unit.
        constant = spread <= 1e-6 * size
        return (
            Frame("scaled", size, np.zeros(len(size))),
            Frame("standardized", np.where(constant, size, spread), self.mean),
        )


def candidate_moments(block: Block) -> CandidateMoments:
    """Of a block's candidates."""
    X, counts, rows = block.contexts.astype(np.float64, copy=False), np.diff(block.offsets), block.n_rows
    second = dense(X.T @ X)
    if is_sparse(X):
        sums = step_sums(X, block.offsets)
        within = second - dense(sums.T @ scaled_rows(sums, 1 / counts))
    else:
        means = np.add.reduceat(X, block.offsets[:-1], axis=0) / counts[:, None]
        centred = X - np.repeat(means, counts, axis=0)
        within = centred.T @ centred
    return CandidateMoments(
        mean=X.mean(axis=0),
        second=second / rows,
        within=within / rows,
        shown=second.diagonal() / np.maximum(shown_counts(X), 1),
    )


def first_look(rows: Rows, feature_names: tuple[str, ...] | None) -> CandidateMoments:
    """Moments of the candidates of an episode, or of its first block; refuses features whose squares vanish."""
    moments, peak = rows.head(_first_look)
    for column in np.flatnonzero((peak > 0) & (peak < SMALLEST))[:1].tolist():
        name = str(column) if feature_names is None else repr(feature_names[column])
        raise ValueError(
            f"feature {name} is {peak[column]:.3g} at most among the first candidates; squares of numbers below "
            f"{SMALLEST:g} vanish. Rescale it to about 1, or leave it out."
        )
    return moments


def _first_look(block: Block) -> tuple[CandidateMoments, Vector]:
    """Moments of a block, and the size of the largest number of each feature."""
    largest = abs(block.contexts).max(axis=0)
    return candidate_moments(block), np.asarray(dense(largest), dtype=np.float64)


def _inverse(second_moment: Matrix, own: Vector) -> Matrix:
    """The inverse of a second moment, with a share of each feature's ``own`` size on its diagonal."""
    S = second_moment.copy()
    S.flat[:: len(S) + 1] += _RIDGE_SHARE * own
    return symmetric_inverse(S)
