"""What is said of the kind of a decider: how much it explores, and which kinds it was chosen from."""

from __future__ import annotations

import math
from typing import NamedTuple

from ibcb.estimators.ibcb import IBCB
from ibcb.tracking.selection import Candidate

#: how many times as often one candidate is drawn as another, up to which the number is said
_MOST_TIMES = 1000


class Compared(NamedTuple):
    """A kind of decider that the log was compared with.

    Attributes
    ----------
    best : Candidate
        The chosen one, or the likeliest of this kind.
    tried : int
        How many there were of it, each with its own parameter.
    """

    best: Candidate
    tried: int

    @property
    def outcome(self) -> str:
        """What became of it; figures of a kind that was given up are of the episodes until then."""
        if self.best.chosen:
            return "chosen"
        return f"out after {self.best.out_after}" if self.best.out_after else ""


def compared(model: IBCB) -> tuple[Compared, ...]:
    """Every kind compared, the likeliest first and those last that were given up; empty where there was but one."""
    kinds: dict[tuple[str, str | None], list[Candidate]] = {}
    for each in sorted(model.evidence_, key=_rank):
        kinds.setdefault((each.expert, each.draws), []).append(each)
    rows = (Compared(next((one for one in of if one.chosen), of[0]), len(of)) for of in kinds.values())
    return tuple(sorted(rows, key=lambda kind: _rank(kind.best))) if len(kinds) > 1 else ()


def _rank(candidate: Candidate) -> tuple[float, float]:
    """Those that were given up are comparable with no others but those that went as far."""
    return -(candidate.out_after or math.inf), -candidate.log_likelihood


def exploration(model: IBCB, level: float = 0.9) -> str:
    """Epsilon or the temperature with its interval, in a sentence; empty of kinds that have neither, or untracked."""
    if model.epsilon_ is None and model.temperature_ is None:
        return ""
    bounds = model.exploration_interval(level)
    now, low, high = (float(values[-1]) for values in bounds)
    if model.epsilon_ is None:
        return (
            f"Its temperature is {now:.2g} times the deviation of a step's scores ({level:.0%} interval {low:.2g} to "
            f"{high:.2g}): of two candidates one deviation apart, it draws the better {_times(now)} as often."
        )
    between = f"{level:.0%} interval {low:.1%} to {high:.1%}"
    if float(bounds.lower[0]) > high:
        first = float(bounds.estimate[0])
        return (
            f"Epsilon, the share of choices made at random, falls: {first:.1%} in the first episode, {now:.1%} right "
            f"after the last ({between})."
        )
    return f"Epsilon, the share of choices made at random, is {now:.1%} ({between})."


def _times(temperature: float) -> str:
    """exp(1 / temperature), in words."""
    if temperature * math.log(_MOST_TIMES) <= 1:
        return f"over {_MOST_TIMES:,} times"
    return f"about {float(f'{math.exp(1 / temperature):.2g}'):,g} times"
