"""How a decider's policy evolved and what it will be next: beliefs move by a motion and learn by a choice rule."""

from ibcb.deciders.rule import Interval
from ibcb.tracking.forecast import forecast, learns, logged_policies, projects, rewards
from ibcb.tracking.futures import Futures, futures
from ibcb.tracking.intervals import (
    certainty,
    exploration_interval,
    forecast_interval,
    identified,
    interval,
    next_models,
    parameter_intervals,
    reward_interval,
    spread_to_one,
    undetermined,
    unidentified,
)
from ibcb.tracking.reward_fit import Rewards
from ibcb.tracking.tracker import Predicted, Track

__all__ = [
    "Futures",
    "Interval",
    "Predicted",
    "Rewards",
    "Track",
    "certainty",
    "exploration_interval",
    "forecast",
    "forecast_interval",
    "futures",
    "identified",
    "interval",
    "learns",
    "logged_policies",
    "next_models",
    "parameter_intervals",
    "projects",
    "reward_interval",
    "rewards",
    "spread_to_one",
    "undetermined",
    "unidentified",
]
