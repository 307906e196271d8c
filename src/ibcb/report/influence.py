"""How much each feature decides: its weight times how far the candidates of a step differ in it.

A weight alone depends on the unit of its feature: a price in cents has a hundredth of the weight of one in euros. Times
the feature's deviation among the candidates of a step, it is what the feature moves scores by, in any unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Vector
from ibcb.report.reading import in_double

__all__ = ["Influences", "StepSpread", "groups_of"]


class Influences(NamedTuple):
    """What features, and groups of them, do.

    Attributes
    ----------
    spreads : ndarray of shape (d,)
        Deviation of each feature among the candidates of a step, root mean square over all rows.
    features : ndarray of shape (d,)
        What each moves scores by, as a share of all. They add up to 1; to 0 where nothing was learned. Those of a group
        share what it has, in proportion.
    groups : dict of str to float
    """

    spreads: Vector
    features: Vector
    groups: dict[str, float]


def groups_of(names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Features that are one, told by their names: levels of a one-hot feature, weights of many arms.

    >>> groups_of(["price", "genre=drama", "genre=comedy", "arm=a:age", "arm=b:age"])
    {'genre': (1, 2), 'age by arm': (3, 4)}
    """
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        parts = [part.partition("=") for part in name.split(":")]
        kinds = [before for before, sign, _ in parts if sign]
        if kinds and all(before for before, *_ in parts):
            others = [before for before, sign, _ in parts if not sign]
            groups.setdefault(" by ".join([*others, *kinds]), []).append(place)
    return {name: tuple(places) for name, places in groups.items() if len(places) > 1 and name not in names}


class StepSpread:
    """Gathers `Influences` while the parts of a log go by.

    Parameters
    ----------
    weights : ndarray of shape (d,)
    groups : mapping of str to places
    """

    def __init__(self, weights: Vector, groups: Mapping[str, Sequence[int]]) -> None:
        self._weights, self._groups = weights, {name: list(places) for name, places in groups.items()}
        self._rows, self._squares, self._of_groups = 0, np.zeros(len(weights)), dict.fromkeys(groups, 0.0)

    def add(self, part: BehaviorLog) -> None:
        """One more part."""
        X, counts = in_double(part), np.diff(part.step_offsets)
        means = np.add.reduceat(X, part.step_offsets[:-1], axis=0) / counts[:, None]
        apart = X - np.repeat(means, counts, axis=0)
        self._rows += len(X)
        self._squares += np.einsum("rd,rd->d", apart, apart)
        for name, places in self._groups.items():
            together = apart[:, places] @ self._weights[places]
            self._of_groups[name] += float(together @ together)

    def finish(self) -> Influences:
        """Of all parts so far."""
        rows = max(1, self._rows)
        spreads: Vector = np.sqrt(self._squares / rows)
        moved = np.abs(self._weights) * spreads
        for name, places in self._groups.items():
            own = moved[places]
            moved[places] = own * (np.sqrt(self._of_groups[name] / rows) / own.sum()) if own.any() else 0.0
        shares: Vector = moved / (float(moved.sum()) or 1.0)
        return Influences(spreads, shares, {name: float(shares[places].sum()) for name, places in self._groups.items()})
