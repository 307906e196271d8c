"""How much each feature decides: its weight times how far the candidates of a step differ in it.

A weight alone depends on the unit of its feature: a price in cents has a hundredth of the weight of one in euros. Times
the feature's deviation among the candidates of a step, it is what the feature moves scores by, in any unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log import BehaviorLog

__all__ = ["Influences", "Spreads", "StepSpread", "groups_of", "influences"]

Vector = NDArray[np.float64]


class Spreads(NamedTuple):
    """Deviations among the candidates of a step, root mean square over all rows.

    Attributes
    ----------
    features : ndarray of shape (d,)
    groups : dict of str to float
        Of what the features of a group add to a score together.
    """

    features: Vector
    groups: dict[str, float]


class Influences(NamedTuple):
    """Shares of what decides.

    Attributes
    ----------
    features : ndarray of shape (d,)
        They add up to 1; to 0 where nothing was learned. Those of a group share what it has, in proportion.
    groups : dict of str to float
    """

    features: Vector
    groups: dict[str, float]


def groups_of(names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Features that are one, told by their names: levels of a one-hot feature, weights of many arms.

    >>> groups_of(["price", "genre=drama", "genre=comedy", "arm=a:age", "arm=b:age"])
    {'genre': (1, 2), 'age by arm': (3, 4)}
    """
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        parts = [part.partition("=") for part in name.split(":")]
        kinds = [before for before, sign, _ in parts if sign]
        if kinds and all(before for before, *_ in parts):
            others = [before for before, sign, _ in parts if not sign]
            found.setdefault(" by ".join([*others, *kinds]), []).append(place)
    return {name: tuple(places) for name, places in found.items() if len(places) > 1 and name not in names}


class StepSpread:
    """Gathers `Spreads` while the parts of a log go by.

    Parameters
    ----------
    weights : ndarray of shape (d,)
        What the features of a group are added up with.
    groups : mapping of str to places
    """

    def __init__(self, weights: Vector, groups: Mapping[str, Sequence[int]]) -> None:
        self._weights, self._groups = weights, {name: list(places) for name, places in groups.items()}
        self._rows, self._squares, self._of_groups = 0, np.zeros(len(weights)), dict.fromkeys(groups, 0.0)

    def add(self, part: BehaviorLog) -> None:
        """One more part."""
        X, counts = part.contexts.astype(np.float64, copy=False), np.diff(part.step_offsets)
        means = np.add.reduceat(X, part.step_offsets[:-1], axis=0) / counts[:, None]
        apart = X - np.repeat(means, counts, axis=0)
        self._rows += len(X)
        self._squares += np.einsum("rd,rd->d", apart, apart)
        for name, places in self._groups.items():
            together = apart[:, places] @ self._weights[places]
            self._of_groups[name] += float(together @ together)

    def found(self) -> Spreads:
        """Of all parts so far."""
        rows = max(1, self._rows)
        return Spreads(
            np.sqrt(self._squares / rows),
            {name: float(np.sqrt(square / rows)) for name, square in self._of_groups.items()},
        )


def influences(weights: Vector, spreads: Spreads, groups: Mapping[str, Sequence[int]]) -> Influences:
    """What each feature, and each group, moves scores by, as a share of all.

    Parameters
    ----------
    weights : ndarray of shape (d,)
        Those that `Spreads` was gathered with.
    spreads : Spreads
    groups : mapping of str to places
    """
    moved = np.abs(weights) * spreads.features
    for name, places in groups.items():
        own = moved[list(places)]
        moved[list(places)] = own * (spreads.groups[name] / own.sum()) if own.any() else 0.0
    total = float(moved.sum()) or 1.0
    shares: Vector = moved / total
    return Influences(shares, {name: float(shares[list(places)].sum()) for name, places in groups.items()})
