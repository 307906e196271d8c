"""Recovered propensities as tables, and what importance weights made of them are worth."""

from __future__ import annotations

import math
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
from ibcb.log.fingerprint import log_fingerprint
from ibcb.log.notes import Note

__all__ = ["Overlap", "effective_size", "not_drawn", "of_another_log", "overlap", "propensity_tables"]

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

    def to_json(self) -> dict[str, Any]:
        """As plain data; a mean weight that is not finite becomes None."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}

    def __str__(self) -> str:
        policies = {
            "a uniform policy": (self.uniform, self.uniform_weight),
            "the model's greedy one": (self.greedy, self.greedy_weight),
        }
        sizes = "; ".join(
            f"{size:.0f} ({size / self.steps:.0%}) for {who}, mean weight {weight:.2f}"
            for who, (size, weight) in policies.items()
        )
        return (
            f"effective sample size of {plural(self.steps, 'step')}: {sizes} (1 where the log covers the policy). "
            f"Smallest propensity of a choice {self.smallest:.2g}, {self.rare:.1%} of choices below {_RARE}."
        )


def overlap(model: Imitator, log: BehaviorLog | DiskLog, propensities: NDArray[np.float64]) -> Overlap:
    """What importance weights made of propensities, one per row of a log, are worth."""
    found, row = [], 0
    for _, part in log.parts():
        p = propensities[row + part.chosen_rows]
        found.append((p, 1 / np.diff(part.step_offsets), (part.chosen == model.predict(part)).astype(np.float64)))
        row += part.n_rows
    p, evenly, greedy = (np.concatenate(parts) for parts in zip(*found, strict=True))
    sizes = effective_size(evenly, p), effective_size(greedy, p)
    weights = _mean_weight(evenly, p), _mean_weight(greedy, p)
    return Overlap(len(p), *sizes, *weights, smallest=float(p.min()), rare=float(np.mean(p < _RARE)))


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


def _mean_weight(target: NDArray[np.float64], propensities: NDArray[np.float64]) -> float:
    """Mean of target / propensity, infinite where the target takes what has propensity 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return float(np.divide(target, propensities, out=np.zeros(len(target)), where=target > 0).mean())


def not_drawn(kind: str) -> Note:
    """That a decider of this kind does not draw, so that propensities are degrees of belief."""
    text = (
        f"a decider of the kind {kind} does not draw: given its policy each choice is certain, and these are degrees "
        "of belief about that policy. Importance weights made of them rest on the model alone: what the decider would "
        "never have taken was never tried, whatever the weights say."
    )
    return Note("propensities-of-belief", "warning", text, {"kind": kind})


def of_another_log(model: Imitator, log: BehaviorLog | DiskLog) -> tuple[Note, ...]:
    """That a log is not the fitted one, so that one policy counts for all of it; empty where it is."""
    found = log_fingerprint(log)
    if found == model.log_fingerprint_:
        return ()
    text = (
        "this is not the log that the model was fitted on, so all propensities are those of the policy right after the "
        "fitted log, and one episode ahead they are the same."
    )
    return (Note("another-log", "info", text, {"fingerprint": found, "fitted": model.log_fingerprint_}),)
