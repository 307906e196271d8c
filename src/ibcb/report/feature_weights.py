"""What the decider values: the weights of features, how sure they are, and how much each decides.

A weight alone depends on the unit of its feature: a price in cents has a hundredth of the weight of one in euros. Times
the feature's deviation among the candidates of a step, it is what the feature moves scores by, in any unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.estimators.ibcb import IBCB
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Vector
from ibcb.report.reading import in_double
from ibcb.report.writing import decimals, exact, number
from ibcb.tracking import Interval, undetermined

#: probability of the intervals
LEVEL = 0.9
#: of what a group adds to scores, the share that may be lost without its being undetermined; rounding
_LOST = 1e-6
#: weights on a page
MOST_WEIGHTS = 200
#: features named first, and a share that would be shown as 0%
_MOST_DRIVERS, _LEAST_SHARE = 3, 0.005


class Influences(NamedTuple):
    """What features, and groups of them, do.

    Attributes
    ----------
    spreads : ndarray of shape (d,)
        Deviation of each feature among the candidates of a step, root mean square over all rows.
    features : ndarray of shape (d,)
        What each moves scores by, as a share of all. They add up to 1; to 0 where nothing was learned. Those of a group
        share what it has, in proportion.
    groups : dict of str to float
    """

    spreads: Vector
    features: Vector
    groups: dict[str, float]


def groups_of(names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Features that are one, told by their names: levels of a one-hot feature, weights of many arms.

    >>> groups_of(["price", "genre=drama", "genre=comedy", "arm=a:age", "arm=b:age"])
    {'genre': (1, 2), 'age by arm': (3, 4)}
    """
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        parts = [part.partition("=") for part in name.split(":")]
        kinds = [before for before, sign, _ in parts if sign]
        if kinds and all(before for before, *_ in parts):
            others = [before for before, sign, _ in parts if not sign]
            groups.setdefault(" by ".join([*others, *kinds]), []).append(place)
    return {name: tuple(places) for name, places in groups.items() if len(places) > 1 and name not in names}


class StepSpread:
    """Gathers `Influences` while the parts of a log go by.

    Parameters
    ----------
    weights : ndarray of shape (d,)
    groups : mapping of str to places
    """

    def __init__(self, weights: Vector, groups: Mapping[str, Sequence[int]]) -> None:
        self._weights, self._groups = weights, {name: list(places) for name, places in groups.items()}
        self._rows, self._squares, self._of_groups = 0, np.zeros(len(weights)), dict.fromkeys(groups, 0.0)

    def add(self, part: BehaviorLog) -> None:
        """One more part."""
        X, counts = in_double(part), np.diff(part.step_offsets)
        means = np.add.reduceat(X, part.step_offsets[:-1], axis=0) / counts[:, None]
        apart = X - np.repeat(means, counts, axis=0)
        self._rows += len(X)
        self._squares += np.einsum("rd,rd->d", apart, apart)
        for name, places in self._groups.items():
            together = apart[:, places] @ self._weights[places]
            self._of_groups[name] += float(together @ together)

    def finish(self) -> Influences:
        """Of all parts so far."""
        rows = max(1, self._rows)
        spreads: Vector = np.sqrt(self._squares / rows)
        moved = np.abs(self._weights) * spreads
        for name, places in self._groups.items():
            own = moved[places]
            moved[places] = own * (np.sqrt(self._of_groups[name] / rows) / own.sum()) if own.any() else 0.0
        shares: Vector = moved / (float(moved.sum()) or 1.0)
        return Influences(spreads, shares, {name: float(shares[places].sum()) for name, places in self._groups.items()})


class FeatureWeight(SimpleNamespace):
    """One feature.

    Attributes
    ----------
    name : str
    group : str or None
        Name of the `Group` it belongs to, if any.
    influence : float
        Its share of what decides.
    spread : float
        Its deviation among the candidates of a step.
    last, low, high : float, or None
        Weight in the last logged policy, and its interval, where there is one.
    policy, reward : float
        Weight in the policy right after the log, and in the rewards.
    told : bool
        False where the choices do not determine it; it has no interval then.
    """

    def as_share(self, value: float) -> float:
        """What a value of the weight would decide, with its sign, at the scale of the feature's influence."""
        return self.influence * value / abs(self.last) if self.last else 0.0


class Group(SimpleNamespace):
    """Features that are one, such as the levels of a one-hot feature.

    Attributes
    ----------
    name : str
    features : int
        How many there are.
    influence : float
        Their share of what decides, together.
    told : bool
        False where the choices do not even determine how they compare with each other.
    """


class Driver(NamedTuple):
    """A feature, or a group of features, that decides: its share, and the way it works.

    ``way`` is "up" where more of it is preferred, "down" where less is, "both" for a group; ``best`` then names the
    feature of the group that is preferred most.
    """

    name: str
    share: float
    way: str
    best: str | None


class WeightsSection(SimpleNamespace):
    """What the decider values.

    Attributes
    ----------
    unit : str
        Of all weights.
    weights : tuple of FeatureWeight
        Those that decide most first; the features of a group stand together.
    groups : tuple of Group
    level : float
        Probability of their intervals.
    n_features : int
        Of the model; ``weights`` may have fewer.
    """

    def determined(self, weight: FeatureWeight) -> bool:
        """Whether the choices determine a weight, alone or against the others of its group."""
        return weight.told or any(group.told and group.name == weight.group for group in self.groups)

    def of_group(self, group: Group) -> list[FeatureWeight]:
        """The weights of a group that are shown, the most wanted first."""
        return [weight for weight in self.weights if weight.group == group.name]

    @property
    def drivers(self) -> list[Driver]:
        """Features and groups that decide most, three at most."""
        drivers = [
            Driver(weight.name, weight.influence, "up" if weight.last > 0 else "down", None)
            for weight in self.weights
            if weight.group is None and weight.told
        ]
        drivers += [
            Driver(group.name, group.influence, "both", max(own, key=lambda weight: weight.last).name)
            for group in self.groups
            if group.told and (own := self.of_group(group))
        ]
        deciding = (driver for driver in drivers if driver.share >= _LEAST_SHARE)
        return sorted(deciding, key=lambda driver: -driver.share)[:_MOST_DRIVERS]

    @property
    def learned(self) -> bool:
        """Whether anything was learned of the decider."""
        return any(weight.policy for weight in self.weights)

    @property
    def axis(self) -> Callable[[float], float]:
        """Where a share of what decides, with its sign, is on the axis that all bars have in common: a percentage."""
        signed = [weight.as_share(weight.last) for weight in self.weights]
        low, high = min(0.0, *signed), max(0.0, *signed, *(group.influence for group in self.groups))
        span = (high - low) or 1.0
        return lambda share: round(100 * (min(high, max(low, share)) - low) / span, 3)


def valued(
    model: IBCB, decides: Influences, groups: Mapping[str, tuple[int, ...]], *, bounded: bool
) -> tuple[WeightsSection, list[int]]:
    """The section, and the features that it has, in its order; ``bounded``: whether intervals are claimed."""
    names, known, bounds = feature_names(model), told(model), intervals(model) if bounded else None
    policies = (model.policy_coefs_[-1], model.next_policy_coef_, model.coef_)
    columns = dict(zip(("last", "policy", "reward"), map(model.direction, policies), strict=True))
    columns |= {"influence": decides.features, "spread": decides.spreads}
    order = _ranked(decides, groups, columns["last"])[:MOST_WEIGHTS]
    group, weights = {feature: name for name, places in groups.items() for feature in places}, []
    for place in order:
        weight = FeatureWeight(name=names[place], group=group.get(place), low=None, high=None, told=bool(known[place]))
        vars(weight).update({name: exact(column[place]) for name, column in columns.items()})
        if bounds is not None and weight.told:
            weight.low, weight.high = exact(bounds.lower[place]), exact(bounds.upper[place])
        weights.append(weight)
    together = [
        Group(
            name=name,
            features=len(places),
            influence=exact(decides.groups[name]),
            told=_told_together(model, known, places),
        )
        for name, places in groups.items()
    ]
    section = WeightsSection(
        unit="scaled so that the scores of a step spread by 1",
        weights=tuple(weights),
        groups=tuple(sorted(together, key=lambda group: -decides.groups[group.name])),
        level=LEVEL,
        n_features=len(names),
    )
    return section, order


def weight_numbers(weight: FeatureWeight, factor: float) -> dict[str, str]:
    """Per ``factor`` of the feature: its unit, or its deviation among the candidates of a step.

    With decimals that leave three digits to the weight, and two to the width of its interval.
    """
    names = ("last", "low", "high", "policy", "reward")
    values = {name: None if (end := getattr(weight, name)) is None else factor * end for name in names}
    digits, low, high = decimals([values["last"] or 0.0], 3), values["low"], values["high"]
    if low is not None and high is not None and high > low:
        digits = max(digits, decimals([high - low], 2))
    return {name: "" if end is None else number(end, min(12, digits)) for name, end in values.items()}


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


def _ranked(decides: Influences, groups: Mapping[str, tuple[int, ...]], last: Vector) -> list[int]:
    """Features, those that decide most first; those of a group together, the most wanted of them first."""
    inside = {feature for places in groups.values() for feature in places}
    alone = [(float(share), (feature,)) for feature, share in enumerate(decides.features) if feature not in inside]
    grouped = [(decides.groups[name], tuple(sorted(of, key=lambda each: -last[each]))) for name, of in groups.items()]
    return [feature for _, places in sorted([*alone, *grouped], key=lambda one: -one[0]) for feature in places]


def _told_together(model: IBCB, known: NDArray[np.bool_], places: Sequence[int]) -> bool:
    """Whether the choices determine how the features of a group compare with each other.

    They do where what no choice depends on leaves their scores alike: a constant that all levels of a one-hot feature
    share, say.
    """
    track, some = model._fit.track, list(places)
    if known[some].all() or track is None or track.now is None:
        return True
    unit, blind = undetermined(track)
    lost = (blind / unit[:, None])[some]
    within = track.now.within[np.ix_(some, some)]
    moved = np.einsum("ik,ij,jk->k", lost, within, lost)
    alone = np.einsum("ik,i,ik->k", lost, within.diagonal(), lost)
    return bool(blind.shape[1]) and bool(moved.max() <= _LOST * alone.max())
