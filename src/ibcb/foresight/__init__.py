"""What the decider will do next: its policy filtered from the log, run forward, with the evidence and the doubt."""

from ibcb.foresight.deferred import Deferred
from ibcb.foresight.outlook import Foreseen, Foresight, Interval
from ibcb.foresight.sites import Site, observe

__all__ = ["Deferred", "Foreseen", "Foresight", "Interval", "Site", "observe"]
