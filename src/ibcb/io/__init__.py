"""Logs and models on disk. Nothing read here can execute code, and files appear whole or not at all."""

from ibcb.io.files import atomic
from ibcb.io.formats import LOST, WRITABLE, DiskLog, open_log, read_log, write_log
from ibcb.io.modelfile import ModelFileError, read_model_file, write_model_file

__all__ = [
    "LOST",
    "WRITABLE",
    "DiskLog",
    "ModelFileError",
    "atomic",
    "open_log",
    "read_log",
    "read_model_file",
    "write_log",
    "write_model_file",
]
