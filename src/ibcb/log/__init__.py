"""Logs: choices without rewards, in memory or on disk, what came before each episode, and what is wrong with them."""

from typing import TypeGuard

from ibcb.log.behavior_log import BehaviorLog, LogFormatError, argmax_per_step
from ibcb.log.protocol import Log

__all__ = ["BehaviorLog", "Log", "LogFormatError", "argmax_per_step", "is_log"]


def is_log(value: object) -> TypeGuard[Log]:
    """Whether this is a log, in memory or on disk, and not a table or an array of candidates."""
    return isinstance(value, Log)
