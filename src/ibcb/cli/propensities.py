"""`ibcb propensities`: with which probability the decider chose each candidate."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibcb
from ibcb.cli.options import REMEMBERED, LogPath, ModelPath, Result, opened, verb
from ibcb.cli.printing import columns_of, say, say_notes
from ibcb.cli.running import saved
from ibcb.log.option import FLAG, PATH, option

if TYPE_CHECKING:
    from ibcb.cli.choice_tables import Told

_TABLES, _FEEDBACK, _LABELS = (".csv", ".parquet"), ".npz", (".vw", ".dsjson")


@verb(reading=REMEMBERED)
def propensities(
    model: ModelPath,
    log: LogPath,
    *,
    out: Path | None = option(None, PATH, flags="-o --out"),
    ahead: bool = option(False, FLAG),
    as_json: bool,
    reading: dict[str, Any],
) -> Result:
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

    Parameters
    ----------
    out : path
        File to write: a table (.csv, .parquet), feedback of the Open Bandit Pipeline (.npz), or the log with Vowpal
        Wabbit's labels (.vw, .dsjson). Default: CSV on stdout.
    ahead : bool
        Predict one episode ahead: a column beside the other; in .npz, .vw and .dsjson in its place.
    """
    from ibcb.cli.choice_tables import not_drawn, of_another_log

    steps: Any
    suffixes = (*_TABLES, _FEEDBACK, *_LABELS)
    imitator, steps = opened(model, log, reading, out=out, suffixes=suffixes, needs="propensities need")
    if out is not None and out.suffix.lower() not in _TABLES:
        # These forms need the log in memory.
        steps = steps.read()
    tables: list[Any] = []
    recovered = _recovered(imitator, steps, out, tables, ahead=ahead, as_json=as_json)
    if out is not None:
        saved(out)
    kind = imitator.decider_
    notes = [*steps.notes]
    notes += [] if recovered.fitted else [of_another_log()]
    notes += [not_drawn(kind.label)] if kind.deterministic else []
    if out is not None and not as_json:
        say(f"{out}: {recovered.rows} propensities")
    say_notes(notes)
    say(f"overlap: {recovered.overlap}")
    told: dict[str, Any] = {
        "steps": recovered.overlap.steps,
        "rows": recovered.rows,
        "fitted_log": recovered.fitted,
        "overlap": recovered.overlap,
        "notes": notes,
    }
    return Result(told | (columns_of(tables) if tables else {"out": out and str(out)}))


def _recovered(model: ibcb.IBCB, log: Any, out: Path | None, tables: list[Any], *, ahead: bool, as_json: bool) -> Told:
    """Recover, and write what was asked for: a file, CSV on stdout, or into ``tables`` for JSON."""
    import numpy as np

    from ibcb.cli.choice_tables import recover_tables
    from ibcb.io.written import TableWriter, table_file

    def kept() -> Any:
        tables.clear()
        return tables.append

    if out is None and as_json:
        return recover_tables(model, log, kept, ahead=ahead)
    if out is None:
        with tempfile.TemporaryFile() as file:
            recovered = recover_tables(model, log, TableWriter(file).begin, ahead=ahead)
            file.seek(0)
            shutil.copyfileobj(file, sys.stdout.buffer)
        return recovered
    suffix = out.suffix.lower()
    if suffix in _TABLES:
        with table_file(out) as writer:
            return recover_tables(model, log, writer.begin, ahead=ahead)
    recovered = recover_tables(model, log, lambda: lambda table: None, ahead=ahead)
    whole = log.with_propensities(recovered.used)
    if suffix in _LABELS:
        ibcb.write_log(whole, out)
        return recovered
    feedback = ibcb.io.to_feedback(whole)
    with ibcb.io.atomic(out) as temporary, temporary.open("wb") as archive:
        np.savez(archive, **feedback)
    return recovered
