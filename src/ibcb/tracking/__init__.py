"""How a decider's policy evolved and what it will be next: beliefs move by a motion and learn by a choice rule."""

from ibcb.tracking.forecast import (
    Interval,
    certainty,
    exploration_interval,
    forecast,
    identified,
    interval,
    reward_interval,
    spread_to_one,
    unidentified,
)
from ibcb.tracking.propensities import propensities_next, propensities_of_log
from ibcb.tracking.rewards import Rewards
from ibcb.tracking.tracker import Predicted, Track, track_log

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
    "propensities_next",
    "propensities_of_log",
    "reward_interval",
    "spread_to_one",
    "track_log",
    "unidentified",
]
