"""How raw columns became features: kept with a log and its model, so that new data goes the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

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
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True, slots=True)
class Preparation:
    """The columns that a log's features come from, in order, and which columns played which role."""

    columns: tuple[FeatureColumn, ...]
    roles: tuple[tuple[str, str], ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

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
                )
                for column in data["columns"]
            ),
            tuple((str(role), str(column)) for role, column in data["roles"].items()),
        )
