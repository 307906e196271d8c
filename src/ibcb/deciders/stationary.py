"""A decider that does not learn: one policy made all choices.

It is tracked beside models that move, around which the sites of an episode are expanded, and believed by the model that
is still. A tracker with that model alone is likelier over a whole log, but predicts learners that settle worse
(benchmarks/deciders.py, seed 7: a mean gain of -.006 instead of +.005).
"""

from __future__ import annotations

from dataclasses import dataclass

from ibcb.deciders.kind import Words
from ibcb.deciders.logit_kind import LogitKind
from ibcb.deciders.other import FOLLOWED

__all__ = ["StationaryKind"]


@dataclass(frozen=True)
class StationaryKind(LogitKind):
    """The kind."""

    name = "stationary"
    words = Words("the decider does not learn", "does not learn")
    motions = FOLLOWED
    moves = False
