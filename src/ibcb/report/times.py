"""When episodes began, in words short enough for an axis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np


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
