"""Logs in files. Nothing read here can execute code, and files appear whole or not at all."""

from ibcb.io.files import atomic
from ibcb.io.formats import LOST, WRITABLE, open_log, read_log, write_log

__all__ = [
    "LOST",
    "WRITABLE",
    "atomic",
    "open_log",
    "read_log",
    "write_log",
]
