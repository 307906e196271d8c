"""Text on one line, whatever is in it: names come from files, and a terminal acts on some of their characters."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""The text with line breaks, control characters and halves of characters written as escapes.

    >>> print(printable("a\nb\x1b[31m"))
    a\nb\x1b[31m
    """
    return text if text.isprintable() else "".join(s if s.isprintable() else repr(s)[1:-1] for s in text)
