"""Logs in files. Nothing read here can execute code, and files appear whole or not at all."""

from ibcb.io.feedback import to_feedback
from ibcb.io.files import atomic
from ibcb.io.formats import LOST, WRITABLE, open_log, read_log, write_log
from ibcb.io.optionfiles import load_options, save_options

__all__ = [
    "LOST",
    "WRITABLE",
    "atomic",
    "load_options",
    "open_log",
    "read_log",
    "save_options",
    "to_feedback",
    "write_log",
]
