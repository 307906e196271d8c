"""Kinds of deciders: choice rules, one file each, and the register of what they are tracked with."""

from ibcb.deciders.best import Best
from ibcb.deciders.egreedy import BestOrRandom, EGreedy
from ibcb.deciders.fixed import FixedPolicy
from ibcb.deciders.kind import Family, Kind, Motions, Scales
from ibcb.deciders.learning import Learning
from ibcb.deciders.parameter import (
    Interval,
    Known,
    Parameter,
    PolicyLength,
    RandomShare,
    Setting,
    Share,
    Unit,
    Weight,
)
from ibcb.deciders.policy import Policy, draw
from ibcb.deciders.registry import KINDS, experts, register
from ibcb.deciders.rule import (
    FIRST_STRAY,
    RANDOM_SHARES,
    Believed,
    Column,
    Columns,
    Life,
    Observed,
    Rule,
    Values,
    Width,
    Words,
    share_likelihoods,
)
from ibcb.deciders.sbts import DRAWS, SBTS, BestOfDraw
from ibcb.deciders.sbucb import SBUCB, UpperBound
from ibcb.deciders.softmax import TEMPERATURE, Softmax, SoftmaxOfScores
from ibcb.deciders.topk import OneOfBest, TopK, top_k_softmax
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
    "Best",
    "BestOfDraw",
    "BestOrRandom",
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
    "OneOfBest",
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
    "UpperBound",
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
