"""How the page writes numbers, names and times, and its sentences: by their codes, in the words of words.toml."""

from __future__ import annotations

import math
import tomllib
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any

import numpy as np

_WORDS = tomllib.loads(files("ibcb.report").joinpath("words.toml").read_text(encoding="utf-8"))


def said(code: str, **figures: Any) -> str:
    """A sentence, with figures."""
    text: str = _WORDS[code].format(**figures)
    return text


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


def episode_times(times: Sequence[Any]) -> list[str | None]:
    """The first times of episodes as text, no finer than it takes to tell them apart; None where they are no dates.

    >>> episode_times([np.datetime64("2024-03-01T08:00"), "2024-03-02T09:30:00"])
    ['2024-03-01', '2024-03-02']
    >>> episode_times(["2024-03-01T08:00", "2024-03-01T09:30"])
    ['2024-03-01 08:00', '2024-03-01 09:30']
    >>> episode_times([3, None])
    [None, None]
    """
    dates = [date for date in map(_date, times) if date is not None]
    if len(dates) < len(times):
        return [None] * len(times)
    texts = list[str | None]()
    for length in (len("2024-03-01"), len("2024-03-01 08:00"), len("2024-03-01 08:00:00")):
        texts = [str(date).replace("T", " ")[:length] for date in dates]
        if len(set(texts)) == len(texts):
            break
    return texts


def _date(time: Any) -> np.datetime64 | None:
    # Numbers may be seconds, days or anything.
    if time is None or not isinstance(time, (str, bytes, np.datetime64)):
        return None
    try:
        if not isinstance(time, np.datetime64):
            time = datetime.fromisoformat(time.decode() if isinstance(time, bytes) else time).replace(tzinfo=None)
        date = np.datetime64(time, "s")
    except ValueError:
        return None
    return None if np.isnat(date) else date
