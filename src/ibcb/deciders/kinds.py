"""The register of kinds: those that are known, a row each, and rules of one's own.

A row has a choice rule, motions side by side, and numbers. A rule of one's own becomes a kind of its name, by
`register` or by an entry point of the group ``ibcb.deciders`` that gives the rule, or a kind. Entry points are loaded
once, when a kind is first asked for.

Walks and their like come first among the motions. *settling*: q / (n + 1) after episode n, as a decider moves that
learns from all it has seen; *restless*: q each time, as one that forgets; *reverting*: drawn back to a long-run mean,
as one in a world that changes and comes back.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

from ibcb.deciders.cone import Best
from ibcb.deciders.egreedy import BestOrRandom
from ibcb.deciders.kind import Family, Kind, Motions, Scales, grid
from ibcb.deciders.rule import Parameter, Rule, Words
from ibcb.deciders.sbts import BestOfDraw
from ibcb.deciders.sbucb import UpperBound
from ibcb.deciders.softmax import SoftmaxOfAnyone, SoftmaxOfScores
from ibcb.deciders.topk import OneOfBest
from ibcb.engine import ALL, Past

_GROUP = "ibcb.deciders"
#: what stands for no kind where one is named
_TAKEN = ("auto",)
#: what a rule has, and no more: what each part must be, and whether it is
_PARTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a word, such as 'softucb'", lambda name: isinstance(name, str) and name.isidentifier()),
    "parameters": (
        "a tuple of Parameter",
        lambda listed: isinstance(listed, tuple) and all(isinstance(each, Parameter) for each in listed),
    ),
    "words": ("a Words", lambda words: isinstance(words, Words)),
} | dict.fromkeys(("columns", "observe", "probabilities", "live"), ("a method", callable))

_MOVES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


def _family(motion: str, *axes: Sequence[float], early: tuple[float, ...], few: Sequence[Sequence[float]]) -> Family:
    """Models with all combinations of some parameters, or of fewer where features are many."""
    return Family(motion, grid(*axes), early, grid(*few))


def _learner(*axes: Sequence[float], motion: str = "learner", **fewer: Any) -> Family:
    """The same of a motion that learns as ridge regression does."""
    return replace(_family(motion, *axes, **fewer), learns=True)


#: Evidence of long ago fades, because deciders change most in their youth. Judged by benchmarks/deciders.py, reverting
#: by the Open Bandit Dataset: short episodes of a sample, in which what came long ago tells as much as what came last.
_FOLLOWED = Motions(
    (
        _family("settling", _MOVES, early=(10.0,), few=[(1.0, 10.0)]),
        _family("restless", [q / 10 for q in _MOVES], early=(1.0,), few=[(0.1, 1.0)]),
        _family("reverting", (0.03, 0.06, 0.12, 0.25), (0.85, 0.95), early=(0.06, 0.95), few=[(0.06,), (0.95,)]),
        _family("still", (0.0,), early=(0.0,), few=[(0.0,)]),
    ),
    fading=0.8,
)
#: the learner beside walks of deciders that take the best; twice as many models predict no better
#: (benchmarks/forecast.py)
_LEARNER = _learner((0.1, 0.4, 1.6), (0.0, 0.03, 0.1), early=(0.4, 0.03), few=[(0.4, 1.6), (0.03,)])
#: of deciders that draw by a softmax (judged by benchmarks/propensities.py)
_DRAWING_LEARNER = _learner((0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 0.1), early=(1.0, 0.1), few=[(1.0,), (0.1,)])
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
        Motions((_family("walk", (0.0, 0.006, 0.06, 0.6), early=(0.6,), few=[(0.0, 0.06, 0.6)]), _LEARNER)),
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
                _family("walk", (0.03, 0.3, 3.0), early=(3.0,), few=[(0.3, 3.0)]),
                _learner((0.2, 0.8, 3.2, 8.0), (0.0, 0.03), early=(0.8, 0.03), few=[(0.8, 3.2), (0.03,)]),
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
        Motions(
            (
                _family("restless", (0.1, 0.3, 1.0, 3.0), early=(1.0,), few=[(1.0,)]),
                _learner(
                    (0.4,),
                    (0.03,),
                    _SPREADS,
                    early=(0.4, 0.03, 6.0),
                    few=[(0.4,), (0.03,), (1.0, 6.0)],
                    motion="sampler",
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
        Motions((_family("settling", (0.0, 0.05, 0.2, 0.8, 3.0), early=(3.0,), few=[(0.0, 0.2, 3.0)]), _LEARNER)),
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
        words=Words("the policy does not change", "a policy that stays as it is"),
    ),
)


class Register(UserDict[str, Kind]):
    """Kinds by the name under which a model file has them, in the order in which they are tried."""

    def __init__(self) -> None:
        self._rows = {row.key: row for row in ROWS}
        self._loaded = False

    @property
    def data(self) -> dict[str, Kind]:  # type: ignore[override]
        """All of them, entry points loaded."""
        if not self._loaded:
            # First, so that a rule that asks for kinds while it is loaded does not load all of them again.
            self._loaded, rows = True, dict(self._rows)
            for point in entry_points(group=_GROUP):
                try:
                    _add(rows, _kind_of(point.load()))
                except Exception as error:
                    self._loaded = False
                    error.add_note(f"ibcb met this in the entry point {point.name} = {point.value} of {_GROUP}.")
                    raise
            self._rows = rows
        return self._rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


#: in the order in which they are tried, by the name under which a model file has them
KINDS = Register()


def experts() -> tuple[str, ...]:
    """What users call the kinds: whether a Thompson sampler draws at every step or once an episode is a parameter."""
    return tuple(dict.fromkeys(kind.name for kind in KINDS.values()))


def register(rule: Rule | type[Rule] | Kind, *, name: str | None = None, past: Past = ALL) -> None:
    """Make a choice rule a kind of decider: named in ``IBCB(expert=...)``, tried by "auto", stored by its name.

    Parameters
    ----------
    rule : Rule, or a class that makes one, or Kind
        A rule is tracked with the usual motions: those that assume nothing of how policies move, and the learner. A
        kind, such as ``KINDS["sbucb"]``, keeps its own.
    name : str, optional
        Of the new kind; that of the rule unless given.
    past : Past
        What it has learned from.

    Raises
    ------
    TypeError
        If it lacks a part, which is named.
    ValueError
        If its name is taken.
    """
    if not isinstance(past, Past):
        raise TypeError(f"past is {past!r}; it must be a Past, such as ibcb.deciders.ALL.")
    kind = _kind_of(rule)
    own = kind.name if name is None else name
    _add(KINDS, replace(kind, name=own, key=own, past=past))


def _add(kinds: MutableMapping[str, Kind], kind: Kind) -> None:
    """Add a kind whose name is not taken."""
    if not (isinstance(kind.name, str) and kind.name.isidentifier()):
        raise TypeError(f"{kind.name!r} is no name of a kind; it must be a word, such as 'softucb'.")
    if kind.name in (*kinds, *_TAKEN) or kind.name in {known.name for known in kinds.values()}:
        raise ValueError(f"a kind of decider is called {kind.name!r} already; give it another name.")
    kinds[kind.name] = kind


def _kind_of(rule: Any) -> Kind:
    """A kind itself; that of a rule, after checking it."""
    if isinstance(rule, Kind):
        return rule
    made = rule() if isinstance(rule, type) and not getattr(rule, "__abstractmethods__", None) else rule
    who = rule.__name__ if isinstance(rule, type) else type(rule).__name__
    abstract = getattr(made, "__abstractmethods__", ()) if isinstance(made, type) else ()
    for part in _PARTS:
        if not hasattr(made, part) or part in abstract:
            raise TypeError(f"{who} is no choice rule: it has no {part!r}. A rule has {', '.join(_PARTS)}.")
    for part, (what, fits) in _PARTS.items():
        if not fits(getattr(made, part)):
            raise TypeError(f"{who}.{part} is {getattr(made, part)!r}; it must be {what}.")
    return usual(made)
