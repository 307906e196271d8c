"""Kinds of deciders, as the report tells them apart: its words, and how much it asks of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Kind", "kind_of"]


@dataclass(frozen=True)
class Kind:
    """One kind of decider.

    Attributes
    ----------
    bonus : bool
        Whether it adds the confidence width of a candidate to the score. If not, it explores by luck, which the log
        does not show.
    good, fair : float
        Shares predicted, of what chance leaves to predict, from which on a model is good, or fair. Luck cannot be
        predicted, so that who draws is asked less.
    name : str
        What it does.
    length : str
        How much its choices tell of the length of its weights.
    explored : str
        What is counted as exploration: the end of "choices that ...".
    exploration : str
        The same in a sentence.
    misfit : str
        What choices against the fit mean; empty where an exact fit is to be expected.
    contradictions : str
        What contradicting choices mean.
    """

    bonus: bool
    good: float
    fair: float
    name: str
    length: str
    explored: str
    exploration: str
    misfit: str
    contradictions: str


_SBTS = Kind(
    bonus=False,
    good=0.6,
    fair=0.35,
    name="SBTS: Thompson sampling",
    length="not",
    explored="were not the best expected one",
    exploration="A Thompson sampler draws its weights: a choice that is not the best expected one is exploration, or "
    "noise.",
    misfit="A Thompson sampler's luck has no exact explanation",
    contradictions="No reward weights explain these choices together, as is usual for a decider that draws.",
)
_FOLLOWED = replace(
    _SBTS,
    exploration="How this decider explores is not known: a choice that is not the best expected one is exploration, or "
    "noise.",
    misfit="The choices of a decider of this kind have no exact explanation",
)
_KINDS = {
    "sbucb": Kind(
        bonus=True,
        good=0.8,
        fair=0.6,
        name="SBUCB: adds a confidence bonus, takes the best",
        length="but little of",
        explored="the exploration bonus decided",
        exploration="Exploration decided where the best score with the bonus is another candidate's than the best "
        "score without it.",
        misfit="",
        contradictions="No reward weights explain these choices together. Look here first for changed records, wrong "
        "batch edges, or a decider that is not what was assumed.",
    ),
    "sbts": _SBTS,
    "topk": replace(
        _FOLLOWED,
        name="draws from its {top_k} best candidates",
        exploration="It draws from its best candidates: a choice that is not the best expected one is that draw, or "
        "noise.",
    ),
    "stationary": replace(_FOLLOWED, name="does not learn"),
    "other": replace(_FOLLOWED, name="of no known kind"),
}


def kind_of(model: Any) -> Kind:
    """The kind of decider that a fitted `IBCB` takes its own for."""
    kind = _KINDS[model.expert_]
    return replace(kind, name=kind.name.format(top_k=model.top_k_))
