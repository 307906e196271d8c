"""The first screen: what drives the decider, how predictable it is, where it stands in learning, what does not fit."""

from __future__ import annotations

from typing import NamedTuple

from ibcb.report.facts import Facts

__all__ = ["Cards", "Driver", "cards"]

_MOST_DRIVERS = 3
#: what would be shown as 0%
_LEAST_SHARE = 0.005


class Driver(NamedTuple):
    """A feature, or a group of features, that decides: its share, and the way it works.

    ``way`` is "up" where more of it is preferred, "down" where less is, "both" for a group; ``best`` then names the
    feature of the group that is preferred most.
    """

    name: str
    share: float
    way: str
    best: str | None


class Cards(NamedTuple):
    """What the four cards say.

    Attributes
    ----------
    drivers : tuple of Driver
        At most three, those that decide most first.
    predicted, rival, chance : float or None
        Shares of choices predicted one episode ahead in the later half: by the model, by the best simple rival, by
        chance.
    rival_name : str or None
    first, last : float
        Shares of today's choices that the first policy and the last logged one would have made.
    learns, learned : bool
        Whether its kind learns, and whether anything was learned of it.
    misfits, steps : int
        Choices that do not fit, and all.
    """

    drivers: tuple[Driver, ...]
    predicted: float | None
    rival: float | None
    chance: float | None
    rival_name: str | None
    first: float
    last: float
    learns: bool
    learned: bool
    misfits: int
    steps: int


def cards(facts: Facts) -> Cards:
    """What the first screen says."""
    figures = facts.verdict.figures
    return Cards(
        drivers=_drivers(facts),
        predicted=None if figures is None else figures.predicted,
        rival=None if figures is None else figures.rival_predicted,
        chance=None if figures is None else figures.chance,
        rival_name=None if figures is None else figures.rival,
        first=facts.episodes[0].today,
        last=facts.episodes[-1].today,
        learns=not facts.kind.motions.stays,
        learned=any(weight.policy for weight in facts.weights),
        misfits=facts.misfits.total,
        steps=facts.n_steps,
    )


def _drivers(facts: Facts) -> tuple[Driver, ...]:
    alone = [
        Driver(weight.name, weight.influence, "up" if weight.last > 0 else "down", None)
        for weight in facts.weights
        if weight.group is None and weight.told
    ]
    of = {group.name: [weight for weight in facts.weights if weight.group == group.name] for group in facts.groups}
    together = [
        Driver(group.name, group.influence, "both", max(of[group.name], key=lambda weight: weight.last).name)
        for group in facts.groups
        if group.told and of[group.name]
    ]
    found = [driver for driver in (*alone, *together) if driver.share >= _LEAST_SHARE]
    return tuple(sorted(found, key=lambda driver: -driver.share)[:_MOST_DRIVERS])
