"""A model's choices on new candidate sets, as tables: a part at a time, so that the sets may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.estimators.imitator import Imitator
from ibcb.log import Log, argmax_per_step


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
