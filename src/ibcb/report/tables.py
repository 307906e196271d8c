"""Tables of the page with the bars drawn in them, and how numbers are written."""

from __future__ import annotations

import csv
import io
import math
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ibcb.report.facts import Facts, Weight

__all__ = ["count", "decimals", "evidence_rows", "evolution_rows", "middle", "misfit_csv", "number", "weight_rows"]

#: rows that a table begins with, where a script can show the others
SHOWN = 24
#: features up to which a group begins open
_SMALL_GROUP = 4


# -- weights -----------------------------------------------------------------------------------------------------------


def weight_rows(facts: Facts) -> tuple[list[dict[str, Any]], float]:
    """Rows of the table of weights, a group's own before those of its features, and where zero is in their bars."""
    groups = {group.name: group for group in facts.groups}
    signed = [_share(weight, weight.last) for weight in facts.weights]
    low, high = min(0.0, *signed), max(0.0, *signed, *(group.influence for group in facts.groups))
    span = (high - low) or 1.0

    def at(share: float) -> float:
        return round(100 * (min(high, max(low, share)) - low) / span, 3)

    rows: list[dict[str, Any]] = []
    sparks = _sparks(facts)
    seen: set[str] = set()
    tops = 0
    for place, (weight, share) in enumerate(zip(facts.weights, signed, strict=True)):
        group = groups.get(weight.group or "")
        if group is None or group.name not in seen:
            tops += 1
        if group is not None and group.name not in seen:
            seen.add(group.name)
            left, width = at(0.0), round(at(group.influence) - at(0.0), 3)
            bar = {"left": left, "width": width if group.told else 0.0}
            own = [each.name for each in facts.weights if each.group == group.name]
            ends = {"best": own[0], "least": own[-1]}
            top = {"group": group, "name": group.name, "share": group.influence, "more": tops > SHOWN}
            rows.append({**top, **bar, **ends})
        known = facts.determined(weight)
        rows.append(
            {
                "group": None,
                "member": group.name if group is not None else "",
                "closed": group is not None and group.features > _SMALL_GROUP,
                "name": weight.name,
                "place": place,
                "told": known,
                "share": weight.influence,
                "more": tops > SHOWN,
                "left": at(min(0.0, share)) if known else at(0.0),
                "width": round(at(max(0.0, share)) - at(min(0.0, share)), 3) if known else 0.0,
                "down": share < 0,
                "spark": sparks.get(place, "") if known else "",
                **_numbers(weight, known),
                **_whisker(weight, at),
            }
        )
    return rows, at(0.0)


def _share(weight: Weight, value: float) -> float:
    """What a value of the weight would decide, with its sign, at the scale of the feature's influence."""
    return weight.influence * value / abs(weight.last) if weight.last else 0.0


def _whisker(weight: Weight, at: Any) -> dict[str, Any]:
    if weight.low is None or weight.high is None or not weight.last:
        return {"low_at": None, "reach": None}
    low, high = at(_share(weight, weight.low)), at(_share(weight, weight.high))
    return {"low_at": low, "reach": round(high - low, 3)}


def _numbers(weight: Weight, known: bool) -> dict[str, Any]:
    """Per unit of the feature, and per deviation of it among the candidates of a step."""
    ends = (weight.last, weight.low, weight.high, weight.policy, weight.reward)
    names = ("last", "low", "high", "policy", "reward")
    found: dict[str, Any] = {}
    for unit, factor in (("unit", 1.0), ("spread", weight.spread)):
        values = [None if end is None else factor * end for end in ends]
        digits = _own_decimals(values)
        texts = ["" if value is None or not known else number(value, digits) for value in values]
        found[unit] = dict(zip(names, texts, strict=True))
    return found


def _own_decimals(values: Sequence[float | None]) -> int:
    """Decimals that leave three digits to the weight, and two to the width of its interval."""
    last, low, high = values[:3]
    wanted = [decimals([last or 0.0], 3)]
    if low is not None and high is not None and high > low:
        wanted.append(decimals([high - low], 2))
    return min(12, max(wanted))


def _sparks(facts: Facts) -> dict[int, str]:
    """The past of each shown feature as a small line, on its own scale with zero in it."""
    if facts.kind.motions.stays:
        return {}
    history = [*facts.evolution, *facts.forecast[:1]]
    found = {}
    for line, place in enumerate(facts.lines):
        values = [row[line] for row in history]
        bottom, top = min(0.0, *values), max(0.0, *values)
        span = (top - bottom) or 1.0
        found[place] = " ".join(
            f"{100 * i / max(1, len(values) - 1):.1f},{22 - 20 * (value - bottom) / span:.1f}"
            for i, value in enumerate(values)
        )
    return found


# -- episodes, kinds, misfits ------------------------------------------------------------------------------------------


def evolution_rows(facts: Facts) -> list[tuple[str, list[str]]]:
    """Weights by episode, and by update after the log; each column with its own decimals."""
    history = [*facts.evolution, *facts.forecast]
    digits = [decimals(column) for column in zip(*history, strict=True)]
    labels = [str(episode.number) for episode in facts.episodes]
    ahead = [f"+{place}" for place in range(1, len(facts.forecast) + 1)]
    return [
        (label, [number(x, digit) for x, digit in zip(row, digits, strict=True)])
        for label, row in zip([*labels, *ahead], history, strict=True)
    ]


def evidence_rows(facts: Facts) -> list[dict[str, Any]]:
    """The kinds compared, each with a bar from the least likely one to certainty."""
    figures = [row.best.log_likelihood for row in facts.compared]
    least = min(figures, default=0.0)
    span = -1.05 * least or 1.0
    return [
        {
            "name": row.best.name,
            "tried": row.tried,
            "log_likelihood": number(row.best.log_likelihood, 4),
            "agreement": row.best.agreement,
            "outcome": row.outcome,
            "chosen": row.best.chosen,
            "out": bool(row.best.out_after),
            "width": round(100 * (row.best.log_likelihood + span) / span, 2),
        }
        for row in facts.compared
    ]


def misfit_csv(facts: Facts) -> str:
    """The choices that do not fit as a data URL of a CSV file."""
    with_ids = any(each.id is not None for each in facts.misfits.listed)
    with_times = any(each.time is not None for each in facts.misfits.listed)
    own_names = [*["step_id"] * with_ids, *["timestamp"] * with_times]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\r\n")
    rows.writerow(["episode", "step", *own_names, "chosen", "preferred", "probability"])
    for each in facts.misfits.listed:
        own = [*[each.id] * with_ids, *[each.time] * with_times]
        rows.writerow([each.episode, each.step, *own, each.chosen, each.preferred, f"{each.probability:.4f}"])
    return "data:text/csv;charset=utf-8," + quote(text.getvalue().encode("utf-8", "replace"))


# -- numbers and words -------------------------------------------------------------------------------------------------


def decimals(values: Sequence[float], digits: int = 4) -> int:
    """Decimals that leave so many digits to the largest; the same for a whole column, so that points align."""
    most = max((abs(value) for value in values), default=0.0)
    return digits - 1 if most == 0 else min(12, max(0, digits - 1 - math.floor(math.log10(most))))


def number(value: float, places: int) -> str:
    """With a real minus; nothing is -0."""
    text = f"{value:.{places}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "\u2212")


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
