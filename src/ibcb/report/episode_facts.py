"""What is said of episodes, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.estimators.ibcb import IBCB
from ibcb.report.times import episode_times
from ibcb.report.walking import LogWalk
from ibcb.report.weight_facts import LEVEL, exact

__all__ = ["EpisodeFacts", "episode_facts"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class EpisodeFacts:
    """One episode. Shares are of its steps; None where there is nothing to tell.

    ``explored`` counts choices, see `ibcb.explain`; ``exploration`` is how much the decider explores by its own rule,
    as estimated, with bounds where there are any. ``today`` is the share of today's choices that its policy would make.
    """

    number: int
    time: str | None
    steps: int
    status: str
    violated: int
    predicted: float | None
    rival: float | None
    chance: float | None
    explored: float | None
    exploration: float | None
    exploration_low: float | None
    exploration_high: float | None
    agreed: float | None
    regret: float | None
    today: float
    misfits: int


def episode_facts(model: IBCB, view: LogWalk, shown: list[int], today: Vector) -> tuple[EpisodeFacts, ...]:
    """The episodes shown; ``today``: the shares of today's choices that their policies would make."""
    own = _own_exploration(model, view)
    times = episode_times([view.tallies[number].time for number in shown])
    return tuple(
        EpisodeFacts(
            number=number,
            time=time,
            steps=model.diagnostics_[number].steps,
            status=model.diagnostics_[number].status,
            violated=model.diagnostics_[number].violated,
            predicted=view.tallies[number].predicted,
            rival=view.tallies[number].rival,
            chance=view.tallies[number].chance,
            explored=_known(view.tallies[number].thoughts.explored),
            exploration=own[number].share,
            exploration_low=own[number].low,
            exploration_high=own[number].high,
            agreed=view.tallies[number].agreed,
            regret=_known(view.tallies[number].thoughts.regret_share),
            today=exact(agreed),
            misfits=view.misfits.counts[number],
        )
        for number, time, agreed in zip(shown, times, today, strict=True)
    )


class _Own(NamedTuple):
    share: float | None
    low: float | None = None
    high: float | None = None


def _own_exploration(model: IBCB, view: LogWalk) -> list[_Own]:
    """How much the decider explores in every episode by its own rule, as estimated."""
    kind = model.decider_
    if kind.per_unit is not None:
        return [_Own(_known(tally.thoughts.explored)) for tally in view.tallies]
    if model.epsilon_ is not None:
        found = model.exploration_interval(LEVEL)
        return [_Own(*map(exact, each)) for each in zip(*found, strict=True)][: len(view.tallies)]
    return [_Own(tally.drawn) for tally in view.tallies]


def _known(share: float) -> float | None:
    return None if np.isnan(share) else share
