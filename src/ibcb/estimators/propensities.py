"""Recovered propensities as tables, and what importance weights made of them are worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.estimators.imitator import Imitator
from ibcb.log import BehaviorLog
from ibcb.log.arrays import plural
from ibcb.log.disk import DiskLog
from ibcb.log.notes import Note

__all__ = ["Overlap", "effective_size", "not_drawn", "overlap", "propensity_tables"]

#: below it a single choice weighs more than a hundred
_RARE = 0.01


def propensity_tables(log: BehaviorLog | DiskLog, **columns: NDArray[np.float64]) -> Iterator[pa.Table]:
    """Tables with a row per candidate: episode, step, step_id, candidate, candidate_id, chosen, and ``columns``.

    The ids where the log has them; ``columns`` are one per row of the log, such as ``propensity``. Last comes
    ``logged``, where the log has propensities of its own.
    """
    before, first, row = None, 0, 0
    for number, part in log.parts():
        first = first if number == before else 0
        owner = np.repeat(np.arange(part.n_steps), np.diff(part.step_offsets))
        place = np.arange(part.n_rows) - part.step_offsets[owner]
        cells: dict[str, Any] = {"episode": np.full(part.n_rows, number), "step": first + owner}
        if part.step_ids is not None:
            cells["step_id"] = part.step_ids[owner]
        cells["candidate"] = place
        if part.candidate_ids is not None:
            cells["candidate_id"] = part.candidate_ids
        cells["chosen"] = place == part.chosen[owner]
        some = {name: values[row : row + part.n_rows] for name, values in columns.items()}
        if part.propensities is not None:
            some["logged"] = part.propensities
        cells |= {name: pa.array(values, mask=np.isnan(values)) for name, values in some.items()}
        yield pa.table(cells)
        before, first, row = number, first + part.n_steps, row + part.n_rows


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
    smallest : float
        Propensity of the least likely choice.
    rare : float
        Share of choices whose propensity is below 0.01.
    """

    steps: int
    uniform: float
    greedy: float
    smallest: float
    rare: float

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def __str__(self) -> str:
        sizes = ", ".join(f"{size:.0f} ({size / self.steps:.0%}) for {who}" for who, size in self._policies.items())
        return (
            f"effective sample size of {plural(self.steps, 'step')}: {sizes}; smallest propensity of a choice "
            f"{self.smallest:.2g}, {self.rare:.1%} of choices below {_RARE}."
        )

    @property
    def _policies(self) -> dict[str, float]:
        return {"a uniform policy": self.uniform, "the model's greedy one": self.greedy}


def overlap(model: Imitator, log: BehaviorLog | DiskLog, propensities: NDArray[np.float64]) -> Overlap:
    """What importance weights made of propensities, one per row of a log, are worth."""
    found, row = [], 0
    for _, part in log.parts():
        p = propensities[row + part.chosen_rows]
        found.append((p, 1 / np.diff(part.step_offsets), (part.chosen == model.predict(part)).astype(np.float64)))
        row += part.n_rows
    p, evenly, greedy = (np.concatenate(parts) for parts in zip(*found, strict=True))
    sizes = effective_size(evenly, p), effective_size(greedy, p)
    return Overlap(len(p), *sizes, smallest=float(p.min()), rare=float(np.mean(p < _RARE)))


def effective_size(target: NDArray[np.float64], propensities: NDArray[np.float64]) -> float:
    """Of the choices, each with its probability under a target policy and its propensity: how many equal ones they are.

    A choice with propensity 0 has no weight that is finite; one alone is what is left then.
    """
    if ((propensities == 0) & (target > 0)).any():
        return 1.0
    weights = np.divide(target, propensities, out=np.zeros(len(target)), where=target > 0)
    # In units of the largest, whose square may be beyond all numbers.
    weights /= max(weights.max(initial=0.0), np.finfo(float).tiny)
    return float(weights.sum() ** 2 / max((weights**2).sum(), 1.0)) if weights.any() else 0.0


def not_drawn(kind: str) -> Note:
    """That the decider drew nothing, so that propensities are degrees of belief."""
    text = (
        f"the decider was found to draw nothing ({kind}): given its policy each choice was certain, and these are "
        "probabilities of what is believed about the policy. Importance weights made of them rest on the model alone: "
        "candidates that it would never have taken have not been tried, whatever their weights say."
    )
    return Note("propensities-of-belief", "warning", text, {"kind": kind})
