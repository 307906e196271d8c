"""How the page writes numbers and names."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any


def exact(value: Any) -> float:
    """Nine digits: more than the page shows, fewer than rounding disturbs."""
    return float(f"{float(value):.9g}")


def decimals(values: Iterable[float], digits: int = 4) -> int:
    """Decimals that leave so many digits to the largest; the same for a whole column, so that points align."""
    most = max((abs(value) for value in values), default=0.0)
    return digits - 1 if most == 0 else min(12, max(0, digits - 1 - math.floor(math.log10(most))))


def number(value: float, places: int) -> str:
    """With a real minus; nothing is -0."""
    text = f"{value:.{places}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "\u2212")


def percent(share: float) -> str:
    """Such as "12.5%"."""
    return f"{share:.1%}"


def count(amount: int, what: str) -> str:
    """Such as "1 step" and "1,200 steps"."""
    return f"{amount:,} {what}{'s' * (amount != 1)}"


def middle(text: str, most: int) -> str:
    """Cut in the middle: names differ at their ends.

    >>> middle("price of the item in cents", 15)
    'price o…n cents'
    """
    if sum(map(_width, text)) <= most:
        return text
    head, tail, used, rest = "", "", 1, deque(text)
    while rest:
        first = len(head) <= len(tail)
        sign = rest.popleft() if first else rest.pop()
        used += _width(sign)
        if used > most:
            break
        head, tail = (head + sign, tail) if first else (head, sign + tail)
    return head + "…" + tail


def _width(sign: str) -> int:
    """Chinese, Japanese and Korean signs, and pictures, are as wide as two others."""
    return 2 if ord(sign) >= 0x1100 else 1
