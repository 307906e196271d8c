"""The version of this library, where every module can read it."""

__version__ = "0.3.0"
