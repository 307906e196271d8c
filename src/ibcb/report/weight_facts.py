"""What is said of features: their weights, how sure they are, and how much each decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.estimators.ibcb import IBCB
from ibcb.report.influence import Influences, Spreads
from ibcb.tracking import Interval, undetermined

__all__ = [
    "LEVEL",
    "Group",
    "Weight",
    "exact",
    "feature_names",
    "group_facts",
    "intervals",
    "last_policy",
    "ranked",
    "told",
    "weight_facts",
]

Vector = NDArray[np.float64]

#: probability of the intervals
LEVEL = 0.9
#: of what a group adds to scores, the share that may be lost without its being undetermined; rounding
_LOST = 1e-6


@dataclass(frozen=True)
class Weight:
    """One feature: its weight in the last logged policy, with an interval, in the policy right after it, and in the
    rewards. ``told`` is False where the choices do not determine it; it has no interval then. ``spread`` is its
    deviation among the candidates of a step, ``influence`` its share of what decides, ``group`` the name of the `Group`
    it belongs to, if any.
    """

    name: str
    group: str | None
    influence: float
    spread: float
    last: float
    low: float | None
    high: float | None
    policy: float
    reward: float
    told: bool


@dataclass(frozen=True)
class Group:
    """Features that are one, such as the levels of a one-hot feature: their share of what decides, together.

    ``told`` is False where the choices do not even determine how they compare with each other.
    """

    name: str
    features: int
    influence: float
    told: bool


def intervals(model: IBCB) -> Interval | None:
    """Of the last logged policy's direction; None where the model has none, or has learned nothing."""
    if model.forecast_model_ is None or not model.coef_.any():
        return None
    return model.policy_interval(LEVEL, direction=True)


def told(model: IBCB) -> NDArray[np.bool_]:
    """Which features' weights the choices determine, shape (d,)."""
    names = model.feature_names_in_ or tuple(map(str, range(model.n_features_in_)))
    unidentified = set(model.unidentified_features_ or ())
    return np.array([name not in unidentified for name in names])


def feature_names(model: IBCB) -> tuple[str, ...]:
    """Names of the features, made up where the log had none."""
    return model.feature_names_in_ or tuple(f"feature {column}" for column in range(model.n_features_in_))


def ranked(decides: Influences, groups: Mapping[str, tuple[int, ...]], last: Vector) -> list[int]:
    """Features, those that decide most first; those of a group together, the most wanted of them first."""
    inside = {feature for places in groups.values() for feature in places}
    alone = [(float(share), (feature,)) for feature, share in enumerate(decides.features) if feature not in inside]
    grouped = [(decides.groups[name], tuple(sorted(of, key=lambda each: -last[each]))) for name, of in groups.items()]
    return [feature for _, places in sorted([*alone, *grouped], key=lambda one: -one[0]) for feature in places]


def weight_facts(
    model: IBCB,
    order: list[int],
    decides: Influences,
    spreads: Spreads,
    groups: Mapping[str, tuple[int, ...]],
    bounds: Interval | None,
) -> tuple[Weight, ...]:
    """The features of ``order``, with ``bounds`` where the choices determine them."""
    names, known, last = feature_names(model), told(model), last_policy(model)
    group = {feature: name for name, places in groups.items() for feature in places}
    reward, policy = model.direction(model.coef_), model.direction(model.next_policy_coef_)
    return tuple(
        Weight(
            name=names[feature],
            group=group.get(feature),
            influence=exact(decides.features[feature]),
            spread=exact(spreads.features[feature]),
            last=exact(last[feature]),
            low=exact(bounds.lower[feature]) if bounds is not None and known[feature] else None,
            high=exact(bounds.upper[feature]) if bounds is not None and known[feature] else None,
            policy=exact(policy[feature]),
            reward=exact(reward[feature]),
            told=bool(known[feature]),
        )
        for feature in order
    )


def last_policy(model: IBCB) -> Vector:
    """The direction of the policy behind the last episode's choices; the estimate that `intervals` are about."""
    last: Vector = model.direction(model.policy_coefs_[-1])
    return last


def group_facts(model: IBCB, groups: Mapping[str, tuple[int, ...]], decides: Influences) -> tuple[Group, ...]:
    """All groups, those that decide most first."""
    order = sorted(groups, key=lambda name: -decides.groups[name])
    return tuple(
        Group(name, len(groups[name]), exact(decides.groups[name]), _told_together(model, groups[name]))
        for name in order
    )


def _told_together(model: IBCB, places: tuple[int, ...]) -> bool:
    """Whether the choices determine how the features of a group compare with each other.

    They do where what no choice depends on leaves their scores alike: a constant that all levels of a one-hot feature
    share, say.
    """
    track, some = model._fit.track, list(places)
    if told(model)[some].all() or track is None or track.now is None:
        return True
    unit, blind = undetermined(track)
    lost = (blind / unit[:, None])[some]
    within = track.now.within[np.ix_(some, some)]
    moved = np.einsum("ik,ij,jk->k", lost, within, lost)
    alone = np.einsum("ik,i,ik->k", lost, within.diagonal(), lost)
    return bool(blind.shape[1]) and bool(moved.max() <= _LOST * alone.max())


def exact(value: Any) -> float:
    """Nine digits: more than the page shows, fewer than rounding disturbs."""
    return float(f"{float(value):.9g}")
