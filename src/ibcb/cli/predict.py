"""`ibcb predict`: what a saved model chooses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import LOG, Json, prepared, reads_logs
from ibcb.cli.outputs import check_output, saved
from ibcb.cli.printing import print_json, say, say_notes

__all__ = ["EXAMPLE", "predict"]

EXAMPLE = "ibcb predict model.safetensors candidates.parquet --at-episode 30 -o choices.csv"
#: updates after the log that are predicted at most
_FURTHEST = 1000


@reports_errors
@reads_logs
def predict(
    model: Annotated[Path, typer.Argument(help="A saved model, as ibcb fit writes it.")],
    log: Annotated[
        Path, typer.Argument(help=f"Candidates to choose from, with or without choices: {LOG}", readable=False)
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write to this .csv or .parquet file. Default: CSV on stdout.")
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Write a row per candidate, with its score, not one per step.")
    ] = False,
    certainty: Annotated[
        bool,
        typer.Option("--certainty", help="Add a column: the probability that the decider prefers this candidate, too."),
    ] = False,
    at_episode: Annotated[
        int | None,
        typer.Option(
            help="Choose with the policy of this episode of the fitted log, counted from 0, "
            "or with a predicted one beyond its end.",
            min=0,
            metavar="N",
        ),
    ] = None,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Choose a candidate at every step, as the decider would.

    Uses the policy right after the fitted log, without exploration. Writes the
    columns episode, step, chosen and score, and candidate_id where candidates have
    names.

    Features are made as they were for the fit: what the model has saved wins over
    --features, --drop, --keep, --one-hot, --min-count, --cross, --missing and
    --standardize.

    For a model of 20 episodes, --at-episode 0 is the first one, 19 the last, 20 the
    policy right after the log, and 30 the policy predicted ten updates later.
    """
    from ibcb.cli.choice_tables import predictions
    from ibcb.io.tablefiles import TableWriter, table_file

    if out is not None:
        check_output(out, (".csv", ".parquet"), log, model)
    imitator = ibcb.load_model(model)
    how = {"scores": scores, "certainty": certainty, "policy": _policy_at(imitator, at_episode)}
    if certainty:
        _check_certainty(imitator, scores, at_episode)
    candidates = ibcb.open_log(log, **prepared(imitator, reading, log, choices=False), choices=False)
    if out is not None:
        steps = 0
        with table_file(out) as file:
            for table in predictions(imitator, candidates, **how):
                # A row for each candidate says whether it is chosen; one for each step says which.
                steps += int(table["chosen"].to_numpy().sum()) if scores else len(table)
                file.write(table)
        saved(out)
        say_notes(candidates.notes)
        if as_json:
            print_json({"out": str(out), "steps": steps})
        else:
            say(f"{out}: {steps} choices")
        return
    if as_json:
        tables = list(predictions(imitator, candidates, **how))
        print_json({name: [v for table in tables for v in table[name].to_pylist()] for name in tables[0].column_names})
    else:
        stdout = TableWriter(sys.stdout.buffer)
        for table in predictions(imitator, candidates, **how):
            stdout.write(table)
    say_notes(candidates.notes)


def _policy_at(model: Any, episode: int | None) -> Any:
    """Policy of an episode, logged or predicted; None where none was asked for."""
    if episode is None:
        return None
    if not isinstance(model, ibcb.IBCB):
        raise typer.BadParameter(
            f"--at-episode needs an IBCB model; a {type(model).__name__} has one policy for all episodes."
        )
    count = len(model.policy_coefs_)
    if episode > count and model.forecast_model_ is None:
        raise typer.BadParameter(
            f"--at-episode {episode} is beyond the log's episodes 0 to {count - 1}, and the model was fitted without "
            f"forecast; fit it with --forecast, or give 0 to {count}, where {count} is right after the log."
        )
    if episode > count + _FURTHEST:
        raise typer.BadParameter(
            f"--at-episode {episode} is {episode - count} updates after the log; at most {_FURTHEST} can be predicted."
        )
    policy = model.policy_at(episode)
    if not policy.any():
        raise typer.BadParameter(
            f"--at-episode {episode}: nothing had been learned by then, so no candidate was preferred; give a "
            "later episode."
        )
    return policy


def _check_certainty(model: Any, scores: bool, at_episode: int | None) -> None:
    if scores:
        raise typer.BadParameter("--certainty is about choices; leave out --scores.")
    if at_episode is not None:
        raise typer.BadParameter("--certainty is about the policy right after the log; leave out --at-episode.")
    if not isinstance(model, ibcb.IBCB) or model.forecast_model_ is None:
        raise typer.BadParameter("--certainty needs an IBCB model fitted with --forecast.")
