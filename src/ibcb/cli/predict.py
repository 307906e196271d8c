"""`ibcb predict`: what a saved model chooses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import check_output, reports_errors
from ibcb.cli.options import LOG, Json, prepared, reads_logs
from ibcb.cli.printing import print_json, say, say_notes

__all__ = ["EXAMPLE", "predict"]

EXAMPLE = "ibcb predict model.safetensors candidates.parquet --at-episode 30 -o choices.csv"
#: updates after the log that are predicted at most
_FURTHEST = 1000


@reports_errors
@reads_logs
def predict(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    log: Annotated[Path, typer.Argument(help=f"Candidate sets, with or without choices: {LOG}", readable=False)],
    *,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A .csv or .parquet file instead of stdout.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="A row for every candidate.")] = False,
    certainty: Annotated[
        bool, typer.Option("--certainty", help="Add the probability that the decider prefers the choice.")
    ] = False,
    at_episode: Annotated[
        int | None,
        typer.Option(
            help="Choose as in this episode of the fitted log, from 0; beyond its end as predicted.", min=0, metavar="N"
        ),
    ] = None,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Say what a saved model chooses at every step.

    Writes episode, step, chosen, score: CSV on stdout, or a file; where candidates
    or arms have names, candidate_id too. Chooses without exploration, with the
    policy right after the fitted log. The log is read, and its features are made,
    as the one that the model was fitted on: what is saved with the model wins over
    --features, --drop, --keep, --one-hot, --min-count, --cross, --missing and
    --standardize.

    A model of 20 episodes chooses as in the first with --at-episode 0, as in the
    last with 19, as right after the log with 20, and ten updates later with 30.
    """
    from ibcb.estimators.predictions import csv_writer, predictions, write_predictions

    if out is not None:
        check_output(out, (".csv", ".parquet"), log, model)
    imitator = ibcb.load_model(model)
    how = {"scores": scores, "certainty": certainty, "policy": _policy_at(imitator, at_episode)}
    if certainty:
        _check_certainty(imitator, scores, at_episode)
    candidates = ibcb.open_log(log, **prepared(imitator, reading, log, choices=False), choices=False)
    if out is not None:
        steps = write_predictions(imitator, candidates, out, **how)
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
        write = csv_writer(sys.stdout.buffer)
        for table in predictions(imitator, candidates, **how):
            write(table)
    say_notes(candidates.notes)


def _policy_at(model: Any, episode: int | None) -> Any:
    """Policy of an episode, logged or predicted; None where none was asked for."""
    if episode is None:
        return None
    if not isinstance(model, ibcb.IBCB):
        raise typer.BadParameter(
            f"--at-episode needs a model of how a policy evolved; this is a {type(model).__name__}."
        )
    count = len(model.policy_coefs_)
    if episode > count and model.forecast_model_ is None:
        raise typer.BadParameter(
            f"--at-episode {episode} lies beyond the log's episodes 0 to {count - 1}, and the model was fitted without "
            "forecast; fit it with --forecast, or give 0 to "
            f"{count}, where {count} is right after the log."
        )
    if episode > count + _FURTHEST:
        raise typer.BadParameter(
            f"--at-episode {episode} lies {episode - count} updates after the log; at most {_FURTHEST} are predicted."
        )
    policy = model.policy_at(episode)
    if not policy.any():
        raise typer.BadParameter(
            f"--at-episode {episode}: nothing had been learned by then, so that no candidate was preferred; give a "
            "later episode."
        )
    return policy


def _check_certainty(model: Any, scores: bool, at_episode: int | None) -> None:
    if scores:
        raise typer.BadParameter("--certainty is of choices; leave --scores out.")
    if at_episode is not None:
        raise typer.BadParameter("--certainty is of the policy right after the log; leave --at-episode out.")
    if not isinstance(model, ibcb.IBCB) or model.forecast_model_ is None:
        raise typer.BadParameter("--certainty needs an IBCB model that was fitted with --forecast.")
