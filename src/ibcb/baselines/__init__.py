"""Imitators to compare with, under the same contract as `ibcb.IBCB`."""

from ibcb.baselines.bicb import BICB
from ibcb.baselines.birl import BIRL
from ibcb.baselines.svc import BaseSVC

__all__ = ["BICB", "BIRL", "BaseSVC"]
