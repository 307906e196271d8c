"""The version of this library, where every module can read it."""

__all__ = ["__version__"]

__version__ = "0.3.0"
