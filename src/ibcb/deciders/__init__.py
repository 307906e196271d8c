"""Kinds of deciders: choice rules, one file each, and the register of what they are tracked with."""

from ibcb.deciders.egreedy import EGreedy
from ibcb.deciders.kind import Family, Kind, Motions, Scales
from ibcb.deciders.kinds import KINDS, experts, register
from ibcb.deciders.live import FixedPolicy, Learning, Policy, draw
from ibcb.deciders.rule import (
    FIRST_STRAY,
    RANDOM_SHARES,
    Believed,
    Column,
    Columns,
    Interval,
    Known,
    Life,
    Observed,
    Parameter,
    PolicyLength,
    RandomShare,
    Rule,
    Setting,
    Share,
    Unit,
    Values,
    Weight,
    Width,
    Words,
    share_likelihoods,
)
from ibcb.deciders.sbts import DRAWS, SBTS
from ibcb.deciders.sbucb import SBUCB
from ibcb.deciders.softmax import TEMPERATURE, Softmax, SoftmaxOfScores
from ibcb.deciders.topk import TopK, top_k_softmax
from ibcb.engine import ALL, Past

__all__ = [
    "ALL",
    "DRAWS",
    "FIRST_STRAY",
    "KINDS",
    "RANDOM_SHARES",
    "SBTS",
    "SBUCB",
    "TEMPERATURE",
    "Believed",
    "Column",
    "Columns",
    "EGreedy",
    "Family",
    "FixedPolicy",
    "Interval",
    "Kind",
    "Known",
    "Learning",
    "Life",
    "Motions",
    "Observed",
    "Parameter",
    "Past",
    "Policy",
    "PolicyLength",
    "RandomShare",
    "Rule",
    "Scales",
    "Setting",
    "Share",
    "Softmax",
    "SoftmaxOfScores",
    "TopK",
    "Unit",
    "Values",
    "Weight",
    "Width",
    "Words",
    "draw",
    "experts",
    "register",
    "share_likelihoods",
    "top_k_softmax",
]
