"""A decider of no known kind: it chooses by a linear policy, which moves from update to update in no known way."""

from __future__ import annotations

from dataclasses import dataclass

from ibcb.deciders.kind import Family, Motions, Words, grid
from ibcb.deciders.logit_kind import LogitKind

__all__ = ["FOLLOWED", "OtherKind"]

_MOVES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: *settling*: q / (n + 1) after episode n, as a decider moves that learns from all it has seen; *restless*: q / 10 each
#: time, as one that forgets; *reverting*: drawn back to a long-run mean, as one in a world that changes and comes back.
#: Evidence of long ago fades, because deciders change most in their youth. Judged by benchmarks/deciders.py, reverting
#: by the Open Bandit Dataset: short episodes of a sample, in which what came long ago tells as much as what came last.
FOLLOWED = Motions(
    (
        Family("settling", grid(_MOVES), early=(10.0,), few=grid((1.0, 10.0))),
        Family("restless", grid([q / 10 for q in _MOVES]), early=(1.0,), few=grid((0.1, 1.0))),
        Family(
            "reverting", grid((0.03, 0.06, 0.12, 0.25), (0.85, 0.95)), early=(0.06, 0.95), few=grid((0.06,), (0.95,))
        ),
        Family("still", grid((0.0,)), early=(0.0,), few=grid((0.0,))),
    ),
    fading=0.8,
)


@dataclass(frozen=True)
class OtherKind(LogitKind):
    """The kind."""

    name = "other"
    words = Words(
        "none of the known kinds of decider fits, so its policy is tracked without assuming how it learns",
        "of no known kind",
    )
    motions = FOLLOWED
