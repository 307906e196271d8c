"""Parameters of choice rules: what each means, and how a log tells it.

A rule lists its parameters; whatever is published of them (`epsilon_`, `temperature_`, `top_k_` ...) is what their
estimates make of what is known. An estimate is a small value of its own:

`Unit`           policies are per unit of it, so that choices do not tell it
`Weight`         the weight of a column that the rule adds, tracked beside the policy
`RandomShare`    told by how many choices are made at random, episode by episode
`PolicyLength`   told by how long policies are
`Setting`        one value of the kind, fixed or chosen with it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.gaussians import Beliefs


class Interval(NamedTuple):
    """Values between which the true ones lie with the asked probability, an array of one shape each."""

    estimate: Vector
    lower: Vector
    upper: Vector


class Share(NamedTuple):
    """The share of choices at random in an episode, and its standard deviation."""

    mean: float
    deviation: float


class Known(NamedTuple):
    """What a log told, from which parameters are estimated.

    Attributes
    ----------
    believed : Beliefs
        Of the last episode's policy and the weights of the added columns, by the model believed.
    within : ndarray of shape (d, d)
        Mean covariance of the candidates of a step.
    shares : tuple of Share
        Of choices at random in every episode, and in the one to come; empty of rules that make none.
    """

    believed: Beliefs
    within: Matrix
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Estimate:
    """How a parameter is told; this one is not."""

    #: whether policies are per unit of the parameter
    is_unit: ClassVar[bool] = False
    #: whether a log can tell it
    told: ClassVar[bool] = False
    #: whether it is told by the share of choices at random
    by_share: ClassVar[bool] = False
    #: prior deviation of the weight of an added column; None of what is none
    deviation: float | None = None

    def setting(self, own: Any) -> Any:
        """Its value where a kind has one, of which ``own`` are the settings by name; None where the log tells it."""
        return None

    def interval(self, known: Known, reach: float, column: int) -> Interval | None:
        """``reach`` deviations either way; None where nothing tells it. ``column``: of which of the added ones."""
        return None


@dataclass(frozen=True)
class Unit(Estimate):
    """Policies are per unit of it; of a column's weight they are brought to that unit after tracking."""

    is_unit: ClassVar[bool] = True


@dataclass(frozen=True)
class Weight(Estimate):
    """The weight of an added column, in the unit of the policy; it is above 0, and does not move."""

    told: ClassVar[bool] = True

    def interval(self, known: Known, reach: float, column: int) -> Interval | None:
        place = len(known.within) + column
        mean = known.believed.mean[0, place : place + 1]
        spread = reach * np.sqrt(known.believed.covariance[0, place, place])
        return Interval(mean, np.maximum(mean - spread, 0.0), mean + spread)


@dataclass(frozen=True)
class RandomShare(Estimate):
    """One value for every episode, and last for the one to come."""

    told: ClassVar[bool] = True
    by_share: ClassVar[bool] = True

    def interval(self, known: Known, reach: float, column: int) -> Interval | None:
        if not known.shares:
            return None
        mean, deviation = np.array(known.shares).T
        # Shares are positive: normal intervals of their logarithms.
        factor = np.exp(reach * deviation / mean)
        return Interval(mean, mean / factor, np.minimum(mean * factor, 1.0))


@dataclass(frozen=True)
class PolicyLength(Estimate):
    """In deviations of the scores among the candidates of a step: one over the deviation that the policy gives them."""

    told: ClassVar[bool] = True

    def interval(self, known: Known, reach: float, column: int) -> Interval | None:
        d = len(known.within)
        p, C = known.believed.mean[0, :d], known.believed.covariance[0, :d, :d]
        along = known.within @ p
        size = float(p @ along)
        if size <= 0:
            return None
        relative = float(np.sqrt(max(float(along @ C @ along), 0.0))) / size
        value = np.array([1 / np.sqrt(size)])
        return Interval(value, value * np.exp(-reach * relative), value * np.exp(reach * relative))


@dataclass(frozen=True)
class Setting(Estimate):
    """One of the kind's own parameters, or a value that is always the same."""

    name: str = ""
    value: Any = None

    def setting(self, own: Any) -> Any:
        return own[self.name] if self.name else self.value


class Parameter(NamedTuple):
    """A parameter of a choice rule.

    Attributes
    ----------
    name : str
        It is published under this name and an underscore.
    unit : str
    range : tuple
        The least and the largest, or all values that there are.
    prior : str
        What is believed of it before anything is seen.
    words : str
        What it means.
    estimate : Estimate
    luck : bool
        Whether it makes choices a matter of luck, so that no policy explains all of them.
    """

    name: str
    unit: str
    range: tuple[Any, ...]
    prior: str
    words: str
    estimate: Estimate
    luck: bool = False
