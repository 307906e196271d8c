"""Logs: choices without rewards, in memory or on disk, what came before each episode, and what is wrong with them.

What stands here is imported when somebody asks for it: options can be listed without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from ibcb.log.array_checks import LogFormatError
    from ibcb.log.behavior_log import BehaviorLog, argmax_per_step
    from ibcb.log.protocol import Log

__all__ = ["BehaviorLog", "Log", "LogFormatError", "argmax_per_step", "is_log"]


def is_log(value: object) -> "TypeGuard[Log]":
    """Whether this is a log, in memory or on disk, and not a table or an array of candidates."""
    from ibcb.log.protocol import Log

    return isinstance(value, Log)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ibcb.log' has no attribute {name!r}")
    return getattr(import_module("ibcb.log.protocol" if name == "Log" else "ibcb.log.behavior_log"), name)
