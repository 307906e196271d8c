"""The kinds that are known, a row each: choice rule, motions side by side, and numbers.

Walks and their like come first among the motions. *settling*: q / (n + 1) after episode n, as a decider moves that
learns from all it has seen; *restless*: q each time, as one that forgets; *reverting*: drawn back to a long-run mean,
as one in a world that changes and comes back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ibcb.deciders.best import Best
from ibcb.deciders.egreedy import BestOrRandom
from ibcb.deciders.kind import Family, Kind, Motions, Scales, grid
from ibcb.deciders.rule import Rule, Words
from ibcb.deciders.sbts import BestOfDraw
from ibcb.deciders.sbucb import UpperBound
from ibcb.deciders.softmax import SoftmaxOfAnyone, SoftmaxOfScores
from ibcb.deciders.topk import OneOfBest

_MOVES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: Evidence of long ago fades, because deciders change most in their youth. Judged by benchmarks/deciders.py, reverting
#: by the Open Bandit Dataset: short episodes of a sample, in which what came long ago tells as much as what came last.
_FOLLOWED = Motions(
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
#: the learner beside walks of deciders that take the best; twice as many models predict no better
#: (benchmarks/forecast.py)
_LEARNER = Family(
    "learner",
    grid((0.1, 0.4, 1.6), (0.0, 0.03, 0.1)),
    early=(0.4, 0.03),
    few=grid((0.4, 1.6), (0.03,)),
    learns=True,
)
#: of deciders that draw by a softmax (judged by benchmarks/propensities.py)
_DRAWING_LEARNER = Family(
    "learner",
    grid((0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 0.1)),
    early=(1.0, 0.1),
    few=grid((1.0,), (0.1,)),
    learns=True,
)
#: alpha of a decider that draws once an episode, in the unit of its policies, between which is told (judged by
#: benchmarks/selection.py)
_SPREADS = (0.4, 1.0, 2.5, 6.0, 15.0)

#: of the direction alone, so that scales are loose
_RATIOS = Scales(policy=3.0, rewards=8.0, per_feature=False, first_policy=3.0)
#: a factor of three, or of ten where features are standardised, because the choice of l2 is not sharp
_PENALTIES = {"scaled": (0.1, 0.3, 1.0, 3.0, 10.0), "standardized": (0.3, 3.0)}
#: where choices do not depend on l2 but through what has been learned, soon hardly
_FEW_PENALTIES = {"scaled": (0.3, 3.0), "standardized": (1.0,)}

#: numbers of kinds that take the best, told by a cone; the last by ML-100K, docs/results.md
_BY_CONE: dict[str, Any] = {"counts_hits": True, "hopeless": 30.0, "most_missed": 0.75}


def _kind(rule: Rule, motions: Motions, scales: Scales, *, words: Words | None = None, **own: Any) -> Kind:
    """A kind that is called and spoken of as its rule is, unless it is given a name, key or words of its own."""
    name = own.pop("name", rule.name)
    return Kind(name, own.pop("key", name), rule, motions, scales, rule.words if words is None else words, **own)


def usual(rule: Rule) -> Kind:
    """A kind by a rule of which nothing else is known: the usual motions, those that are followed and the learner."""
    return _kind(
        rule,
        Motions((*_FOLLOWED.families, _DRAWING_LEARNER), fading=_FOLLOWED.fading),
        Scales(policy=10.0, rewards=3.0, first_policy=0.1),
        penalties=_FEW_PENALTIES,
        most_random=0.02,
    )


#: in the order in which they are tried
ROWS = (
    _kind(
        UpperBound(),
        Motions((Family("walk", grid((0.0, 0.006, 0.06, 0.6)), early=(0.6,), few=grid((0.0, 0.06, 0.6))), _LEARNER)),
        _RATIOS,
        penalties=_PENALTIES,
        most_random=0.06,
        **_BY_CONE,
    ),
    _kind(
        BestOfDraw(),
        # In units of the decider's own draws.
        Motions(
            (
                Family("walk", grid((0.03, 0.3, 3.0)), early=(3.0,), few=grid((0.3, 3.0))),
                Family(
                    "learner",
                    grid((0.2, 0.8, 3.2, 8.0), (0.0, 0.03)),
                    early=(0.8, 0.03),
                    few=grid((0.8, 3.2), (0.03,)),
                    learns=True,
                ),
            )
        ),
        Scales(policy=10.0, rewards=2.0, first_policy=0.1),
        penalties=_PENALTIES,
        # Its factors are found with the variance of one that only walks.
        doubt=0.05,
        most_random=0.06,
        counts_hits=True,
        # Judged by benchmarks/arms.py and benchmarks/forecast.py.
        tempering=0.2,
    ),
    _kind(
        Best(),
        # Judged by benchmarks/selection.py: with walks beside it is mistaken more often.
        Motions(
            (
                Family(
                    "sampler",
                    grid((0.4,), (0.03,), _SPREADS),
                    early=(0.4, 0.03, 6.0),
                    few=grid((0.4,), (0.03,), (1.0, 6.0)),
                    learns=True,
                ),
            )
        ),
        _RATIOS,
        name="sbts",
        key="sbts-episode",
        penalties=_FEW_PENALTIES,
        # The draw is part of what is believed.
        doubt=1.0,
        most_random=0.06,
        **_BY_CONE,
    ),
    _kind(
        BestOrRandom(),
        # Judged by benchmarks/propensities.py and benchmarks/selection.py.
        Motions(
            (Family("settling", grid((0.0, 0.05, 0.2, 0.8, 3.0)), early=(3.0,), few=grid((0.0, 0.2, 3.0))), _LEARNER)
        ),
        _RATIOS,
        penalties=_FEW_PENALTIES,
        **_BY_CONE,
    ),
    usual(SoftmaxOfScores()),
    # More records that are wrong leave nothing that tells its best from the others (benchmarks/selection.py).
    _kind(OneOfBest(), _FOLLOWED, Scales(policy=10.0), most_random=0.25),
    _kind(
        SoftmaxOfAnyone(),
        _FOLLOWED,
        Scales(policy=10.0),
        name="other",
        words=Words(
            "none of the known kinds of decider fits, so its policy is tracked without assuming how it learns",
            "of no known kind",
        ),
    ),
    _kind(
        SoftmaxOfAnyone(),
        # A tracker with the model that is still alone is likelier over a whole log, but predicts learners that settle
        # worse (benchmarks/deciders.py, seed 7: a mean gain of -.006 instead of +.005).
        replace(_FOLLOWED, stays=True),
        Scales(policy=10.0),
        name="stationary",
        words=Words("the decider does not learn", "does not learn"),
    ),
)
