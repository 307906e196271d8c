"""Imitators to compare with, under the same contract as `ibcb.IBCB`."""

from ibcb.baselines.averaged import Averaged
from ibcb.baselines.bicb import BICB
from ibcb.baselines.birl import BIRL
from ibcb.baselines.choice import ChoiceModel
from ibcb.baselines.svc import BaseSVC

__all__ = ["Averaged", "BICB", "BIRL", "BaseSVC", "ChoiceModel"]
