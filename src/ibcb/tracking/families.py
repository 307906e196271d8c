"""The models that are tracked of a kind, family by family, and where each stands when all are counted through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.numerics.arrays import Vector, lazy
from ibcb.numerics.gaussians import Beliefs
from ibcb.tracking.motions import Models, Motion, motions_of

T = TypeVar("T", bound=np.generic)
Flags = NDArray[np.bool_]


class Model(NamedTuple):
    """A model: which family, and which of its members."""

    family: int
    member: int


@dataclass(frozen=True)
class Families:
    """Families of models side by side; K counts the models of all.

    Attributes
    ----------
    kind : Kind
    models : tuple of Models
        Their parameters, by family.
    """

    kind: Kind
    models: tuple[Models, ...]

    def of(self, models: tuple[Models, ...]) -> Families:
        """With these models of the same kind; itself where none has been dropped."""
        return self if models == self.models else Families(self.kind, models)

    @lazy
    def motions(self) -> tuple[Motion, ...]:
        """One for each family, those that only walk first."""
        return motions_of(self.kind, self.models)

    @lazy
    def names(self) -> tuple[str, ...]:
        """Of all models."""
        return tuple(name for motion in self.motions for name in motion.names)

    @lazy
    def still(self) -> Flags:
        """Which models stand still, or only grow longer and shorter. Shape (K,)."""
        return np.array([still for motion in self.motions for still in motion.still])

    @lazy
    def settling(self) -> Flags:
        """Which models move by less and less. Shape (K,)."""
        return np.array([motion.settles for motion in self.motions for _ in motion.names]) & ~self.still

    @lazy
    def units(self) -> Vector:
        """What policies are per unit of, as each model has it, at the scale of its state. Shape (K,)."""
        return np.concatenate([motion.units for motion in self.motions])

    @lazy
    def _members(self) -> list[Model]:
        counts = enumerate(len(motion.names) for motion in self.motions)
        return [Model(family, member) for family, count in counts for member in range(count)]

    @lazy
    def _edges(self) -> list[int]:
        return list(accumulate((len(motion.names) for motion in self.motions), initial=0))

    def by_family(self, values: NDArray[T]) -> list[NDArray[T]]:
        """Values of all models by family."""
        return [values[start:end] for start, end in pairwise(self._edges)]

    def model_at(self, place: int) -> Model:
        """The model at a place, counted through all families."""
        return self._members[place]

    def place_of(self, family: int, member: int) -> int:
        """Where a model stands, counted through all families."""
        return self._edges[family] + member

    def belief_of(self, beliefs: Sequence[Beliefs], place: int, observed: int) -> Beliefs:
        """Of one model, and of the first entries of its state."""
        family, member = self.model_at(place)
        own, one = beliefs[family], slice(member, member + 1)
        return Beliefs(own.mean[one, :observed], own.covariance[one, :observed, :observed])
