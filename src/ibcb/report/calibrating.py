"""Recovered propensities beside those that were logged: how likely each makes the choices, and how far they agree.

Logged propensities are never fitted, so that what they say of a model is a check of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ibcb.engine import Episode, History, Subscriber, replay
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.published import NotTheFittedLogError, Recovering
from ibcb.log import BehaviorLog, Log
from ibcb.log.choice_propensities import sum_tolerance
from ibcb.numerics.arrays import Vector
from ibcb.tracking.choice_probabilities import Next

#: equally many candidates each, so that no point of a curve is a matter of chance; not tuned
_BINS = 10
#: below it a propensity counts as this much: one impossible choice would outweigh all others
_LEAST = 1e-6


#: of choices, what their log-likelihood is given by: logged propensities, recovered ones of the policy in force, those
#: that are predicted one episode ahead, and even ones
_BY = ("logged", "recovered", "ahead", "uniform")


def _likelihoods(sums: Vector) -> dict[str, Any]:
    """Of the number of choices and sums of their log-likelihoods: ``steps``, and the means by each."""
    return {"steps": int(sums[0])} | dict(zip(_BY, (sums[1:] / sums[0]).tolist(), strict=True))


class Calibration(SimpleNamespace):
    """How recovered propensities compare with logged ones, over the choices of the policy that have one.

    Attributes
    ----------
    steps : int
    logged, recovered, ahead, uniform : float
        Log-likelihood per choice: by the logged propensities, by those recovered of the policy in force, by those
        predicted one episode ahead, and by even ones.
    fitted : bool
        Whether the log is the one that was fitted; of any other all propensities are those of the policy after it.
    complete : int
        Steps whose candidates all have a logged propensity.
    total_variation, total_variation_ahead : float or None
        Half the sum of absolute differences at a step, on average over those; None where there are none.
    curve, curve_ahead : tuple
        Of ``candidates`` with like recovered propensities, how many they are, and the means of the ``recovered`` and
        the ``logged`` ones, the least first. Where only that of the choice was logged, it stands for as many as one
        over it: likely candidates are chosen, and so logged, more often.
    episodes : tuple
        Of each its ``number``, and what ``steps``, ``logged``, ``recovered``, ``ahead`` and ``uniform`` are of it.
    """

    def told(self, log_likelihood: float) -> float | None:
        """Of what logged propensities tell of the choices beyond even ones, the share that others tell."""
        beyond = self.logged - self.uniform
        return None if beyond < 0.01 else (log_likelihood - self.uniform) / beyond

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        told: dict[str, Any] = json.loads(json.dumps(self, default=vars))
        return told

    def __str__(self) -> str:
        now, ahead = self.told(self.recovered), self.told(self.ahead)
        words = "" if now is None or ahead is None else f" ({now:.0%} and {ahead:.0%} of what the logged ones tell)"
        apart = "" if self.total_variation is None else f"; total variation {self.total_variation:.3f} on average"
        return (
            f"log-likelihood per choice {self.logged:.3f} by the logged propensities, {self.recovered:.3f} by those of "
            f"the policy in force, {self.ahead:.3f} one episode ahead{words}, {self.uniform:.3f} evenly{apart}."
        )


def calibration(model: IBCB, log: Log) -> Calibration | None:
    """Compare recovered propensities with the logged ones; None where the policy's choices have none.

    Parameters
    ----------
    model : IBCB
        Fitted.
    log : BehaviorLog, or what `ibcb.open_log` gave
        The log that the model was fitted to, or another one.
    """
    tracked, log, before = model.as_tracked(), model._lens.log(log), model._starts(log)
    try:
        (compared,) = replay([log], Calibrating(tracked, before), before=before)
    except NotTheFittedLogError:
        track, scale = tracked._known("for propensities"), tracked._fit.scale
        (compared,) = replay([log], Calibrating(tracked, before, lambda _: Next(track, scale)), before=before)
    return compared if isinstance(compared, Calibration) else None


class Calibrating(Subscriber):
    """Compares propensities as the log goes by.

    Parameters
    ----------
    model : IBCB
        In the features that were tracked.
    before : History
        Where its log begins.
    going : callable, optional
        Gives the subscriber that recovers propensities, ahead or not; by default for the fitted log as long as it is.
    """

    def __init__(self, model: IBCB, before: History, going: Callable[[bool], Any] | None = None) -> None:
        fit = model._fit
        make = going or (lambda ahead: Recovering.of(fit, before, ahead=ahead))
        self._going = [make(False), make(True)]
        self._logged: bool | None = None
        self._episodes: dict[int, Vector] = {}
        self._complete, self._apart = 0, np.zeros(2)
        self._known: list[Vector] = []

    def step(self, episode: Episode) -> Calibrating:
        """One more episode; nothing is done for a log without propensities."""
        if self._logged is None:
            self._logged = next(iter(episode.rows.parts())).propensities is not None
        if not self._logged:
            return self
        self._going = [each.step(episode) for each in self._going]
        recovered, row = [each.values[-1] for each in self._going], 0
        for part in episode.rows.parts() if episode.by_policy else ():
            rows = slice(row, row + part.n_rows)
            row += part.n_rows
            if part.propensities is not None:
                self._add(episode.number, part, part.propensities, *(each[rows] for each in recovered))
        return self

    def _add(self, number: int, part: BehaviorLog, logged: Vector, *recovered: Vector) -> None:
        rows, starts, counts = part.chosen_rows, part.step_offsets[:-1], np.diff(part.step_offsets)
        known = ~np.isnan(logged[rows])
        if known.any():
            by = np.stack([logged[rows], *(each[rows] for each in recovered), 1 / counts])[:, known]
            total = np.array([known.sum(), *np.log(np.maximum(by, _LEAST)).sum(axis=1)])
            self._episodes[number] = self._episodes.get(number, 0) + total
        sums = np.add.reduceat(logged, starts)
        complete = np.abs(sums - 1) <= sum_tolerance(counts)
        self._complete += int(complete.sum())
        apart = [np.add.reduceat(np.abs(each - logged), starts)[complete].sum() / 2 for each in recovered]
        self._apart += apart
        weights = np.repeat(complete, counts).astype(np.float64)
        alone = rows[known & ~complete]
        weights[alone] = 1 / logged[alone]
        self._known.append(np.stack([weights, logged, *recovered])[:, weights > 0])

    def finish(self) -> Calibration | None:
        """None where there is nothing to compare; raises where the log ends before the fitted one does."""
        if not self._episodes:
            return None
        for each in self._going:
            each.finish()
        whole = _likelihoods(np.sum(list(self._episodes.values()), axis=0))
        apart = [float(each) / self._complete if self._complete else None for each in self._apart]
        weights, logged, recovered, ahead = np.concatenate(self._known, axis=1)
        return Calibration(
            **whole,
            fitted=all(getattr(each, "fitted", False) for each in self._going),
            complete=self._complete,
            total_variation=apart[0],
            total_variation_ahead=apart[1],
            curve=tuple(_curve(recovered, logged, weights)),
            curve_ahead=tuple(_curve(ahead, logged, weights)),
            episodes=tuple(
                SimpleNamespace(number=number, **_likelihoods(sums)) for number, sums in self._episodes.items()
            ),
        )


def _curve(recovered: Vector, logged: Vector, weights: Vector) -> Iterator[SimpleNamespace]:
    """Bins of about as many candidates each; what is equal stays together."""
    order = np.argsort(recovered, kind="stable")
    values = recovered[order]
    # Where the next bin begins: behind all that is equal to the last of this one.
    cuts = np.unique(np.searchsorted(values, values[[len(values) * k // _BINS for k in range(1, _BINS)]], side="left"))
    for some in np.split(order, cuts):
        if len(some):
            means = [float(np.average(values[some], weights=weights[some])) for values in (recovered, logged)]
            yield SimpleNamespace(candidates=len(some), recovered=means[0], logged=means[1])
