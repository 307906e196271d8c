"""How a decider's policy evolved and what it will be next: beliefs move by a motion and learn by a choice rule."""

from ibcb.tracking.forecast import Interval, certainty, forecast, identified, interval, unidentified
from ibcb.tracking.tracker import Predicted, Track, track_log

__all__ = [
    "Interval",
    "Predicted",
    "Track",
    "certainty",
    "forecast",
    "identified",
    "interval",
    "track_log",
    "unidentified",
]
