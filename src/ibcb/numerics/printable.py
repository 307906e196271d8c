"""What messages show, on one line, whatever is in it: names come from files, and a terminal acts on some characters."""

from __future__ import annotations

import math
import sys
from typing import Any


class WrongTypeError(TypeError):
    """Something that was given is of a type that it cannot be; a plain TypeError is a mistake of our own code."""


def printable(text: str) -> str:
    r"""The text with line breaks, control characters and halves of characters written as escapes.

    >>> print(printable("a\nb\x1b[31m"))
    a\nb\x1b[31m
    """
    return text if text.isprintable() else "".join(s if s.isprintable() else repr(s)[1:-1] for s in text)


def shown(value: Any, most: int = 60) -> str:
    """A value as messages show it: on one line, and never long.

    >>> shown(10**5000)
    'a number of 5001 digits'
    """
    # Where nobody has imported NumPy, the value is none of its.
    if (numpy := sys.modules.get("numpy")) is not None and isinstance(value, numpy.generic):
        if isinstance(value, numpy.datetime64):
            return str(value)
        value = value.item()
    try:
        text = repr(value)
    except ValueError:
        # Python does not write out whole numbers of more than 4,300 digits.
        digits = int(value.bit_length() * math.log10(2)) + 1 if isinstance(value, int) else None
        return f"{type(value).__name__} with a very long number" if digits is None else f"a number of {digits} digits"
    return text if len(text) <= most else f"{text[: most - 3]}..."
