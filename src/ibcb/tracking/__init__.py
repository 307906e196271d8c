"""What the decider will do next: its policy filtered from the log, run forward, with the evidence and the doubt."""

from ibcb.deciders.sites import Site, observe
from ibcb.tracking.deferred import Deferred
from ibcb.tracking.outlook import Foreseen, Foresight, Interval

__all__ = ["Deferred", "Foreseen", "Foresight", "Interval", "Site", "observe"]
