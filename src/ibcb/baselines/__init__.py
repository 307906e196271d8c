"""Imitators to compare with, under the same contract as `ibcb.IBCB`."""

from ibcb.baselines.svc import BaseSVC

__all__ = ["BaseSVC"]
