"""Choices and recovered propensities as tables, a part of a log at a time, and what importance weights are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.engine import Episode, Subscriber, replay
from ibcb.estimators.ibcb import IBCB
from ibcb.estimators.imitator import Imitator
from ibcb.estimators.published import NotTheFittedLogError, Recovering
from ibcb.log import BehaviorLog, Log, argmax_per_step
from ibcb.log.array_checks import plural
from ibcb.log.fingerprint import log_fingerprint
from ibcb.log.notes import Note
from ibcb.numerics.arrays import Vector
from ibcb.report.writing import said
from ibcb.tracking.choice_probabilities import Next

#: below it a single choice weighs more than a hundred
_RARE = 0.01


def predictions(
    model: Imitator,
    log: Log,
    *,
    scores: bool = False,
    certainty: bool = False,
    policy: NDArray[np.float64] | None = None,
) -> Iterator[pa.Table]:
    """Tables of episode, step, step_id (where there is one), chosen, candidate_id (likewise) and score.

    A row for every step, with the position of the chosen candidate, its name and its score; with ``scores`` a row for
    every candidate, with its position, whether it is chosen, and its score; with ``certainty``, of an IBCB model, the
    probability of each choice. Another ``policy`` than the model's next, such as `IBCB.policy_at` gives, is used for
    the scores.
    """
    before, first = None, 0
    for number, part in log.parts():
        first = first if number == before else 0
        values = model.decision_function(part)
        if policy is not None:
            values = part.contexts @ policy.astype(part.contexts.dtype, copy=False)
        best = argmax_per_step(values, part)
        owner = np.repeat(np.arange(part.n_steps), np.diff(part.step_offsets)) if scores else np.arange(part.n_steps)
        columns: dict[str, Any] = {"episode": np.full(len(owner), number), "step": first + owner}
        if part.step_ids is not None:
            columns["step_id"] = part.step_ids[owner]
        if scores:
            position = np.arange(part.n_rows) - part.step_offsets[owner]
            columns |= {"candidate": position, "chosen": position == best[owner]}
        else:
            columns["chosen"] = best
        rows = slice(None) if scores else part.step_offsets[:-1] + best
        if part.candidate_ids is not None:
            columns["candidate_id"] = part.candidate_ids[rows]
        columns["score"] = values[rows]
        if certainty:
            columns["certainty"] = model.certainty(part)
        yield pa.table(columns)
        before, first = number, first + part.n_steps


class Told(NamedTuple):
    """What is told of recovered propensities beside their tables.

    Attributes
    ----------
    fitted : bool
        Whether the log is the one that was fitted.
    rows : int
    overlap : Overlap
        By the propensities, or those one episode ahead where they were asked for.
    used : ndarray of shape (rows,)
        These.
    """

    fitted: bool
    rows: int
    overlap: Overlap
    used: Vector


def recover_tables(
    model: IBCB, log: Log, sink: Callable[[], Callable[[pa.Table], None]], *, ahead: bool = False
) -> Told:
    """Recover the propensities of a log, and write a table of each of its parts, in one pass.

    A row per candidate: episode, step, step_id, candidate, candidate_id (ids where the log has them), chosen,
    propensity, with ``ahead`` the one predicted one episode ahead too, and last, where the log has propensities of its
    own, logged.

    Parameters
    ----------
    model : IBCB
    log : Log
    sink : callable
        Called before the first table; gives what takes one table after the other. Called again, to begin afresh, where
        a log begins as the fitted one and goes on otherwise.
    ahead : bool
    """
    before, track, scale = model._starts(log), model._known("for propensities"), model._fit.scale
    names = ("propensity", "ahead") if ahead else ("propensity",)

    def told(going: dict[str, Any]) -> Told:
        (written,) = replay([log], _Tabling(model, going, sink()), before=None if model._lens.reduces else before)
        assert isinstance(written, Told)
        return written

    if model._lens.reduces:
        # Read whole: what is recovered is recovered of fewer features.
        log = log.read()
        fitted = log_fingerprint(log) == model.log_fingerprint_
        return told({name: _ByEpisode(model.propensities(log, ahead=name == "ahead"), fitted) for name in names})
    try:
        return told({name: Recovering.of(model._fit, before, ahead=name == "ahead") for name in names})
    except NotTheFittedLogError:
        return told({name: Next(track, scale) for name in names})


class _ByEpisode(Subscriber):
    """Propensities that are known already, episode by episode."""

    def __init__(self, rest: Vector, fitted: bool) -> None:
        self._rest, self.fitted = rest, fitted
        self.values: list[Vector] = []

    def step(self, episode: Episode) -> _ByEpisode:
        rows = episode.lesson.n_rows
        self.values.append(self._rest[:rows])
        self._rest = self._rest[rows:]
        return self

    def finish(self) -> None:
        return None


class _Tabling(Subscriber):
    """Writes the tables of each episode once its propensities are recovered, and sums up what they are worth."""

    def __init__(self, model: IBCB, going: dict[str, Any], write: Callable[[pa.Table], None]) -> None:
        self._model, self._going, self._write = model, going, write
        self._weights: list[tuple[Vector, Vector, Vector]] = []

    def step(self, episode: Episode) -> _Tabling:
        """One more episode."""
        self._going = {name: each.step(episode) for name, each in self._going.items()}
        columns, first, row = {name: each.values[-1] for name, each in self._going.items()}, 0, 0
        for part in episode.rows.parts():
            some = {name: values[row : row + part.n_rows] for name, values in columns.items()}
            self._write(_table(episode.number, first, part, some))
            used = list(some.values())[-1][part.chosen_rows]
            greedy = (part.chosen == self._model.predict(part)).astype(np.float64)
            self._weights.append((used, 1 / np.diff(part.step_offsets), greedy))
            first, row = first + part.n_steps, row + part.n_rows
        return self

    def finish(self) -> Told:
        """What is told beside them."""
        last = list(self._going.values())[-1]
        for each in self._going.values():
            each.finish()
        used = np.concatenate(last.values)
        p, evenly, greedy = (np.concatenate(parts) for parts in zip(*self._weights, strict=True))
        return Told(bool(getattr(last, "fitted", False)), len(used), Overlap.of(p, evenly, greedy), used)


def _table(number: int, first: int, part: BehaviorLog, columns: dict[str, Vector]) -> pa.Table:
    """A part of an episode that begins with its step ``first``, a row per candidate."""
    owner = np.repeat(np.arange(part.n_steps), np.diff(part.step_offsets))
    place = np.arange(part.n_rows) - part.step_offsets[owner]
    cells: dict[str, Any] = {"episode": np.full(part.n_rows, number), "step": first + owner}
    if part.step_ids is not None:
        cells["step_id"] = part.step_ids[owner]
    cells["candidate"] = place
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
    return Note("propensities-of-belief", "warning", said("not-drawn", kind=kind), {"kind": kind})


def of_another_log() -> Note:
    """That a log is not the fitted one, so that one policy counts for all of it."""
    return Note("another-log", "info", said("propensities-of-another-log"), {})
