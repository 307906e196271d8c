"""Recovered propensities as tables, and what importance weights made of them are worth."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ibcb.cli.choice_tables import columns_of_steps, parts_with_steps
from ibcb.estimators.ibcb import IBCB
from ibcb.log import BehaviorLog, Log
from ibcb.log.array_checks import plural
from ibcb.log.notes import Note
from ibcb.numerics.arrays import Vector

__all__ = ["Overlap", "RecoveredTables", "not_drawn", "of_another_log", "worth"]

#: below it a single choice weighs more than a hundred
_RARE = 0.01


class RecoveredTables:
    """Recovered propensities of a log: a table for each of its parts, and what importance weights are worth.

    A row per candidate: episode, step, step_id, candidate, candidate_id (ids where the log has them), chosen,
    propensity, with ``ahead`` the one predicted one episode ahead too, and last, where the log has propensities of its
    own, logged.

    Attributes
    ----------
    fitted : bool
        Whether the log is the one that was fitted.
    used : ndarray of shape (rows,)
        The propensities, or those one episode ahead where they were asked for.
    """

    def __init__(self, model: IBCB, log: Log, *, ahead: bool = False) -> None:
        names = ("propensity", "ahead") if ahead else ("propensity",)
        values, self.fitted = model._recovered(log, *(name == "ahead" for name in names))
        self._columns, self.used = dict(zip(names, values, strict=True)), values[-1]
        self._model, self._log = model, log
        self._weights: list[tuple[Vector, Vector, Vector]] = []

    def __iter__(self) -> Iterator[pa.Table]:
        self._weights, row = [], 0
        for number, first, part in parts_with_steps(self._log):
            rows = slice(row, row + part.n_rows)
            row += part.n_rows
            p, greedy = self.used[rows][part.chosen_rows], part.chosen == self._model.predict(part)
            self._weights.append((p, 1 / np.diff(part.step_offsets), greedy.astype(np.float64)))
            yield _table(number, first, part, {name: values[rows] for name, values in self._columns.items()})

    @property
    def overlap(self) -> Overlap:
        """What the weights are worth: known once the tables have gone by, which they do now if they have not."""
        if not self._weights:
            deque(self, maxlen=0)
        return Overlap.of(*(np.concatenate(parts) for parts in zip(*self._weights, strict=True)))


def _table(number: int, first: int, part: BehaviorLog, columns: dict[str, Vector]) -> pa.Table:
    """A part of an episode that begins with its step ``first``, a row per candidate."""
    owner = np.repeat(np.arange(part.n_steps), np.diff(part.step_offsets))
    place = np.arange(part.n_rows) - part.step_offsets[owner]
    cells = columns_of_steps(number, first, part, owner) | {"candidate": place}
    if part.candidate_ids is not None:
        cells["candidate_id"] = part.candidate_ids
    cells["chosen"] = place == part.chosen[owner]
    numbers = columns | ({} if part.propensities is None else {"logged": part.propensities})
    return pa.table(cells | {name: pa.array(values, mask=np.isnan(values)) for name, values in numbers.items()})


@dataclass(frozen=True)
class Overlap:
    """How far a log tells what other policies would have earned, by the weights 1 / propensity of its choices.

    Attributes
    ----------
    steps : int
    uniform : float
        Effective sample size, in steps, of a policy that draws evenly from the candidates: (sum w)^2 / sum w^2.
    greedy : float
        That of a policy that takes what `predict` does.
    uniform_weight, greedy_weight : float
        Mean weight of the choices, for each of the two: about 1 where the decider could have taken whatever the policy
        takes, less where it could not.
    smallest : float
        Propensity of the least likely choice.
    rare : float
        Share of choices whose propensity is below 0.01.
    """

    steps: int
    uniform: float
    greedy: float
    uniform_weight: float
    greedy_weight: float
    smallest: float
    rare: float

    @classmethod
    def of(cls, p: Vector, evenly: Vector, greedy: Vector) -> Overlap:
        """Of the propensities of choices, and their probabilities under the two policies."""
        sizes, weights = zip(worth(evenly, p), worth(greedy, p), strict=True)
        return cls(len(p), *sizes, *weights, float(p.min()), float(np.mean(p < _RARE)))

    def to_json(self) -> dict[str, Any]:
        """As plain data; a mean weight that is not finite becomes None."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}

    def __str__(self) -> str:
        sizes = "; ".join(
            f"{size:.0f} ({size / self.steps:.0%}) for {who}, mean weight {weight:.2f}"
            for who, size, weight in (
                ("a uniform policy", self.uniform, self.uniform_weight),
                ("the model's greedy one", self.greedy, self.greedy_weight),
            )
        )
        return (
            f"effective sample size of {plural(self.steps, 'step')}: {sizes} (1 where the log covers the policy). "
            f"Smallest propensity of a choice {self.smallest:.2g}, {self.rare:.1%} of choices below {_RARE}."
        )


def worth(target: Vector, propensities: Vector) -> tuple[float, float]:
    """Of choices, each with its probability under a target policy and its propensity: how many equal ones they are, and
    the mean of their weights target / propensity.

    A choice with propensity 0 has no weight that is finite; one alone is what is left then.
    """
    with np.errstate(divide="ignore", over="ignore"):
        weights = np.divide(target, propensities, out=np.zeros(len(target)), where=target > 0)
        mean = float(weights.mean())
    if ((propensities == 0) & (target > 0)).any():
        return 1.0, mean
    # In units of the largest, whose square may be beyond all numbers.
    weights /= max(weights.max(initial=0.0), np.finfo(float).tiny)
    return (float(weights.sum() ** 2 / max((weights**2).sum(), 1.0)) if weights.any() else 0.0), mean


def not_drawn(kind: str) -> Note:
    """That a decider of this kind does not draw, so that propensities are degrees of belief."""
    text = (
        f"a decider of the kind {kind} does not draw: given its policy each choice is certain, and these are degrees "
        "of belief about that policy. Importance weights made of them rest on the model alone: what the decider would "
        "never have taken was never tried, whatever the weights say."
    )
    return Note("propensities-of-belief", "warning", text, {"kind": kind})


def of_another_log() -> Note:
    """That a log is not the fitted one, so that one policy counts for all of it."""
    text = (
        "this is not the log that the model was fitted on, so all propensities are those of the policy right after the "
        "fitted log, and one episode ahead they are the same."
    )
    return Note("another-log", "info", text, {})
