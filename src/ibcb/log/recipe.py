"""How raw columns became features: kept with a log and its model, so that new data goes the same way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FeatureColumn", "Preparation"]


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """One raw column and what is made of it.

    Attributes
    ----------
    name : str
    categories : tuple of str, optional
        One feature for each, 1 where the column has that value; None: the column's number is the feature.
    fill : float, optional
        What stands for a missing number; None: none was missing, and none may be. Missing text is all zeros.
    center, scale : float
        The feature is (number - center) / scale, where the log was standardised. Categories stay 0 and 1.
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float | None = None
    center: float = 0.0
    scale: float = 1.0

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True, slots=True)
class Preparation:
    """The columns that a log's features come from, in order, and which columns played which role.

    >>> made = Preparation((FeatureColumn("price", center=3.0, scale=2.0), FeatureColumn("genre", ("a", "b"))))
    >>> made.feature_names
    ('price', 'genre=a', 'genre=b')
    >>> made.moments
    (array([3., 0., 0.]), array([2., 1., 1.]))
    >>> made.only(["genre=b", "price"]).feature_names
    ('genre=b', 'price')
    """

    columns: tuple[FeatureColumn, ...]
    roles: tuple[tuple[str, str], ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What is subtracted from each feature, and what it is then divided by; shape (d,) each."""
        both = [(column.center, column.scale) for column in self.columns for _ in column.feature_names]
        center, scale = np.array(both, dtype=np.float64).reshape(-1, 2).T
        return center, scale

    @property
    def is_standardized(self) -> bool:
        """Whether some feature is centred or scaled."""
        return any((column.center, column.scale) != (0.0, 1.0) for column in self.columns)

    @property
    def raw(self) -> Preparation:
        """The same without centring and scaling."""
        return replace(self, columns=tuple(replace(column, center=0.0, scale=1.0) for column in self.columns))

    def only(self, names: Iterable[str]) -> Preparation:
        """How some of the features are made, in that order."""
        home = {feature: column for column in self.columns for feature in column.feature_names}
        columns: list[FeatureColumn] = []
        for feature in names:
            column = home[feature]
            if column.categories is None:
                columns.append(column)
                continue
            category = column.categories[column.feature_names.index(feature)]
            begun = columns.pop().categories or () if columns and columns[-1].name == column.name else ()
            columns.append(replace(column, categories=(*begun, category)))
        return replace(self, columns=tuple(columns))

    def to_json(self) -> dict[str, Any]:
        """As plain data, for a file's metadata."""
        return {"columns": [asdict(column) for column in self.columns], "roles": dict(self.roles)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preparation:
        """What `to_json` gave."""
        return cls(
            tuple(
                FeatureColumn(
                    name=str(column["name"]),
                    categories=None if column["categories"] is None else tuple(map(str, column["categories"])),
                    fill=None if column["fill"] is None else float(column["fill"]),
                    center=_finite(column.get("center", 0.0)),
                    scale=_above_zero(column.get("scale", 1.0)),
                )
                for column in data["columns"]
            ),
            tuple((str(role), str(column)) for role, column in data["roles"].items()),
        )


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"center or scale is {number}, which is not finite")
    return number


def _above_zero(value: Any) -> float:
    number = _finite(value)
    if number <= 0:
        raise ValueError(f"scale is {number}, which is not above 0")
    return number
