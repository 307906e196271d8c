"""Logs: choices without rewards, in memory or on disk, what came before each episode, and what is wrong with them."""

from ibcb.log.behavior_log import BehaviorLog, LogFormatError, argmax_per_step

__all__ = ["BehaviorLog", "LogFormatError", "argmax_per_step"]
