"""Which models of a kind are believed: the likeliest, unless others predicted significantly more of the choices.

Then it is the best of these. Models that are much less likely than the best of their family are dropped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ibcb.numerics.arrays import Vector
from ibcb.tracking.families import Families
from ibcb.tracking.look import Tracked

#: standard errors of a sign test at which a model that is less likely, but predicts more, is believed instead
_SIGNIFICANT = 2.0


def leaders(models: Families, now: Tracked, episodes: int) -> list[int]:
    """The member of each family that speaks for it."""
    if episodes < 2:
        # One episode tells no model from another.
        return [own.index(family.early) for own, family in zip(now.models, models.kind.motions.families, strict=True)]
    return [int(np.argmax(each)) for each in models.by_family(now.evidence)]


def asked(models: Families, now: Tracked, leaders: list[int]) -> tuple[int, ...]:
    """The families that have a chance, the likeliest first; of equals the last, a learner, who is surer."""
    evidence = [float(each[place]) for each, place in zip(models.by_family(now.evidence), leaders, strict=True)]
    order = sorted(range(len(evidence)), key=lambda family: (evidence[family], family), reverse=True)
    return tuple(family for family in order if evidence[family] >= evidence[order[0]] - models.kind.hopeless)


def preferred(models: Families, now: Tracked, episodes: int) -> int:
    """The place of the model believed after so many episodes."""
    if models.kind.learns and now.compared == 0:
        # Nothing has been predicted yet. A learner at least knows what the choices so far can have taught.
        last = models.by_family(now.evidence)[-1]
        return models.place_of(len(models.motions) - 1, int(np.argmax(last)))
    best = int(np.argmax(now.evidence))
    if not models.kind.counts_hits:
        return best if episodes > 1 else now.best
    # A sign test of every model against the likeliest, on the steps that only one of the two predicted.
    lead = now.hits - now.hits[best]
    better = _hopeful(models, now) & (lead > _SIGNIFICANT * np.sqrt(now.apart[best] + now.apart[:, best]))
    return int(np.argmax(np.where(better, now.hits, -1))) if better.any() else best


def weights(models: Families, now: Tracked, place: int) -> Vector:
    """How far each model in the family of the one at ``place`` is believed; they add up to 1."""
    family, member = models.model_at(place)
    evidence = models.by_family(now.evidence)[family]
    if not models.kind.tempering:
        alone = np.zeros(len(evidence))
        alone[member] = 1.0
        return alone
    told = max(1, int(np.count_nonzero(now.within.diagonal())))
    likely = np.exp((evidence - evidence.max()) / (models.kind.tempering * told))
    believed: Vector = likely / likely.sum()
    return believed


def without_hopeless(models: Families, now: Tracked) -> Tracked:
    """Without the models that are much less likely than the best of their family: they would not come back."""
    if models.kind.hopeless == np.inf:
        return now
    hopeful = _hopeful(models, now)
    if hopeful.all():
        return now
    places = np.flatnonzero(hopeful)
    kept = [np.flatnonzero(each) for each in models.by_family(hopeful)]
    return replace(
        now,
        models=tuple(tuple(own[place] for place in each) for own, each in zip(now.models, kept, strict=True)),
        families=tuple(family[each] for family, each in zip(now.families, kept, strict=True)),
        last=tuple(family[each] for family, each in zip(now.last, kept, strict=True)),
        evidence=now.evidence[places],
        whole_evidence=now.whole_evidence[places],
        hits=now.hits[places],
        apart=now.apart[np.ix_(places, places)],
        best=int(np.searchsorted(places, now.best)),
    )


def _hopeful(models: Families, now: Tracked) -> NDArray[np.bool_]:
    """Which models are not much less likely than the best of their family. Shape (K,)."""
    return np.concatenate([each >= each.max() - models.kind.hopeless for each in models.by_family(now.evidence)])
