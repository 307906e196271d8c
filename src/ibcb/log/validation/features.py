"""Linear relations of features within steps, and how they are written out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

#: a relation between features holds where its variance, of features with unit variance, is below: it holds to
#: a thousandth of their spread, and to rounding
_COLLINEAR, EXACT = 1e-6, 1e-12


class Relation(NamedTuple):
    """The features of a relation, by position, their weights in it, and how much variance it leaves."""

    members: NDArray[np.int64]
    weights: NDArray[np.float64]
    variance: float

    def written(self, labels: list[str]) -> str:
        """Such as "price + 2 tax - total"."""
        least, most = np.abs(self.weights).min(), np.abs(self.weights).max()
        weights = np.sign(self.weights[0]) * self.weights / (least if most <= 100 * least else most)
        terms = []
        for label, weight in zip(labels[:6], weights.tolist(), strict=False):
            factor = f"{abs(weight):.3g}"
            terms.append(f"{'-' if weight < 0 else '+'} {label if factor == '1' else f'{factor} {label}'}")
        return " ".join(terms).removeprefix("+ ") + (" ..." if len(labels) > 6 else "")


def relations(scatter: NDArray[np.float64]) -> list[Relation]:
    """Linear relations of features with this scatter within steps.

    They span the null space of the correlation matrix. A basis of it with the identity in some rows, which pivoted QR
    finds, names few features in each relation: separate groups stay separate.
    """
    sd = np.sqrt(np.diag(scatter))
    correlation = scatter / np.outer(sd, sd)
    values, vectors = np.linalg.eigh(correlation)
    null = vectors[:, values <= _COLLINEAR]
    if null.shape[1] == 0:
        return []
    _, _, pivots = qr(null.T, mode="economic", pivoting=True)
    basis = np.linalg.solve(null[pivots[: null.shape[1]]].T, null.T)
    related = []
    for weights in basis:
        members = np.flatnonzero(np.abs(weights) > 1e-2 * np.abs(weights).max())
        variance = float(weights @ correlation @ weights / (weights @ weights))
        raw = weights[members] / sd[members]
        related.append(Relation(members, raw / np.abs(raw).max(), max(variance, 0.0)))
    return sorted(related, key=lambda relation: int(relation.members[0]))
