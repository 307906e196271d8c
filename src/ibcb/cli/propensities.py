"""`ibcb propensities`: with which probability the decider chose each candidate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibcb
from ibcb.cli.inputs import check_output, model_of, saved
from ibcb.cli.options import REMEMBERED, LogPath, ModelPath, Printed, prepared, takes
from ibcb.cli.printing import columns_of, print_json, say, say_notes, write_tables
from ibcb.log.option import FLAG, PATH, option

__all__ = ["propensities"]

_TABLES, _FEEDBACK, _LABELS = (".csv", ".parquet"), ".npz", (".vw", ".dsjson")


@dataclass(frozen=True, kw_only=True)
class _PropensitiesOptions(Printed):
    """What is written.

    Attributes
    ----------
    out : path
        File to write: a table (.csv, .parquet), feedback of the Open Bandit Pipeline (.npz), or the log with Vowpal
        Wabbit's labels (.vw, .dsjson). Default: CSV on stdout.
    ahead : bool
        Predict one episode ahead: a column beside the other; in .npz, .vw and .dsjson in its place.
    """

    out: Path | None = option(None, PATH, flags="-o --out")
    ahead: bool = option(False, FLAG)


@takes(how=_PropensitiesOptions, reading=REMEMBERED)
def propensities(model: ModelPath, log: LogPath, *, how: _PropensitiesOptions, reading: dict[str, Any]) -> None:
    """Compute the probability of every candidate of every step.

    For the log that the model was fitted on, the policy in force in each episode
    counts; for any other log, the policy right after the fitted one. Writes a row
    per candidate with the columns episode, step, candidate, chosen and propensity;
    ahead with --ahead; logged where the log has propensities of its own. At each
    step they sum to 1.

    A .npz file holds the arrays of a feedback dict (context, action, pscore, pi_b,
    position, n_rounds, n_actions, and action_context where features belong to the
    candidate). Add the rewards yourself: the log has none. For the same reason the
    labels of Vowpal Wabbit, action:cost:probability, have cost 0.

    Messages tell the effective sample size for evaluating two policies, and how
    rare the rarest choices were.

    Example: ibcb propensities model.safetensors log.parquet -o propensities.parquet
    """
    import numpy as np

    from ibcb.cli.propensity_tables import RecoveredTables, not_drawn, of_another_log

    out = how.out
    check_output(out, (*_TABLES, _FEEDBACK, *_LABELS), log, model)
    imitator = model_of(model, log, needs="propensities need")
    steps: Any = ibcb.open_log(log, **prepared(imitator, reading, log))
    if out is not None and out.suffix.lower() not in _TABLES:
        # These forms need the log in memory.
        steps = steps.read()
    recovered = RecoveredTables(imitator, steps, ahead=how.ahead)
    columns: dict[str, Any] = {}
    if out is None and how.as_json:
        columns = columns_of(list(recovered))
    elif out is None or out.suffix.lower() in _TABLES:
        write_tables(recovered, out)
    elif out.suffix.lower() in _LABELS:
        ibcb.write_log(steps.with_propensities(recovered.used), out)
    else:
        feedback = ibcb.io.to_feedback(steps.with_propensities(recovered.used))
        with ibcb.io.atomic(out) as temporary, temporary.open("wb") as archive:
            np.savez(archive, **feedback)
    overlap, rows = recovered.overlap, len(recovered.used)
    if out is not None:
        saved(out)
    kind = imitator.decider_
    notes = [*steps.notes]
    notes += [] if recovered.fitted else [of_another_log()]
    notes += [not_drawn(kind.label)] if kind.deterministic else []
    if how.as_json:
        told: dict[str, Any] = {
            "steps": overlap.steps,
            "rows": rows,
            "fitted_log": recovered.fitted,
            "overlap": overlap,
            "notes": notes,
        }
        print_json(told | (columns if out is None else {"out": str(out)}))
    elif out is not None:
        say(f"{out}: {rows} propensities")
    say_notes(notes)
    say(f"overlap: {overlap}")
