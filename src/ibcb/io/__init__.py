"""Logs in files. Nothing read here can execute code, and files appear whole or not at all."""

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
    "write_log",
]
