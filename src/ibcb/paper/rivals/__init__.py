"""The paper's baselines, under the same contract as `ibcb.IBCB`."""

from ibcb.paper.rivals.averaged import Averaged
from ibcb.paper.rivals.bicb import BICB
from ibcb.paper.rivals.birl import BIRL
from ibcb.paper.rivals.svc import BaseSVC

__all__ = ["Averaged", "BICB", "BIRL", "BaseSVC"]
