"""The paper's baselines, under the same contract as `ibcb.IBCB`."""

from ibcb.paper.rivals.bicb import BICB
from ibcb.paper.rivals.birl import BIRL
from ibcb.paper.rivals.plain import Averaged, BaseSVC

__all__ = ["Averaged", "BICB", "BIRL", "BaseSVC"]
