"""How a decider's policy evolved and what it will be next: beliefs move by a motion and learn by a choice rule."""

from ibcb.tracking.forecast import (
    Interval,
    certainty,
    exploration_interval,
    forecast,
    identified,
    interval,
    parameter_intervals,
    reward_interval,
    spread_to_one,
    unidentified,
)
from ibcb.tracking.rewards import Rewards
from ibcb.tracking.tracker import Predicted, Track

__all__ = [
    "Interval",
    "Predicted",
    "Rewards",
    "Track",
    "certainty",
    "exploration_interval",
    "forecast",
    "identified",
    "interval",
    "parameter_intervals",
    "reward_interval",
    "spread_to_one",
    "unidentified",
]
