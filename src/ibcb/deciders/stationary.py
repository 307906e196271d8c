"""A decider that does not learn: one policy made all choices."""

from __future__ import annotations

from dataclasses import dataclass

from ibcb.deciders.kind import Family, Motions, Words, grid
from ibcb.deciders.logit_kind import LogitKind

__all__ = ["StationaryKind"]


@dataclass(frozen=True)
class StationaryKind(LogitKind):
    """The kind."""

    name = "stationary"
    words = Words("the decider does not learn", "does not learn")
    motions = Motions((Family("still", grid((0.0,))),))
