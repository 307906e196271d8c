"""Kinds of deciders, one file each; a new kind is a file and a line in `KINDS`."""

from ibcb.deciders.egreedy import EGreedy, EGreedyKind
from ibcb.deciders.fixed import FixedPolicy
from ibcb.deciders.kind import (
    FIRST_STRAY,
    RANDOM_SHARES,
    Believed,
    Family,
    Kind,
    Life,
    Motions,
    Observed,
    Scales,
    Words,
)
from ibcb.deciders.other import OtherKind
from ibcb.deciders.policy import Policy, draw
from ibcb.deciders.sbts import DRAWS, SBTS, SbtsEpisodeKind, SbtsKind
from ibcb.deciders.sbucb import SBUCB, SbucbKind
from ibcb.deciders.softmax import Softmax, SoftmaxKind
from ibcb.deciders.stationary import StationaryKind
from ibcb.deciders.topk import TopK, TopKKind, top_k_softmax

__all__ = [
    "DRAWS",
    "FIRST_STRAY",
    "KINDS",
    "POLICIES",
    "RANDOM_SHARES",
    "SBTS",
    "SBUCB",
    "Believed",
    "EGreedy",
    "Family",
    "FixedPolicy",
    "Kind",
    "Life",
    "Motions",
    "Observed",
    "Policy",
    "Scales",
    "Softmax",
    "TopK",
    "Words",
    "draw",
    "experts",
    "top_k_softmax",
]

#: in the order in which they are tried, by the name under which a model file has them
KINDS: dict[str, type[Kind]] = {
    "sbucb": SbucbKind,
    "sbts": SbtsKind,
    "sbts-episode": SbtsEpisodeKind,
    "egreedy": EGreedyKind,
    "softmax": SoftmaxKind,
    "topk": TopKKind,
    "other": OtherKind,
    "stationary": StationaryKind,
}

#: what acts as a decider of each kind does
POLICIES: dict[str, type[Policy | TopK]] = {
    "sbucb": SBUCB,
    "sbts": SBTS,
    "egreedy": EGreedy,
    "softmax": Softmax,
    "topk": TopK,
    "stationary": FixedPolicy,
    "other": FixedPolicy,
}


def experts() -> tuple[str, ...]:
    """What users call the kinds: whether a Thompson sampler draws at every step or once an episode is a parameter."""
    return tuple(dict.fromkeys(kind.name for kind in KINDS.values()))
