"""`ibcb predict`: what a saved model chooses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

import ibcb
from ibcb.cli.inputs import check_output, model_of, saved
from ibcb.cli.options import REMEMBERED, LogPath, ModelPath, Printed, prepared, takes
from ibcb.cli.printing import columns_of, print_json, say, say_notes, write_tables
from ibcb.log.option import COUNT, FLAG, PATH, option, whole

#: updates after the log that are predicted at most
_FURTHEST = 1000


@dataclass(frozen=True, kw_only=True)
class _PredictOptions(Printed):
    """What is predicted.

    Attributes
    ----------
    out : path
        Write to this .csv or .parquet file. Default: CSV on stdout.
    scores : bool
        Write a row per candidate, with its score, not one per step.
    certainty : bool
        Add a column: the probability that the decider prefers this candidate, too.
    at_episode : int
        Choose with the policy of this episode of the fitted log, counted from 0; beyond its end, with a predicted one.
    """

    out: Path | None = option(None, PATH, flags="-o --out")
    scores: bool = option(False, FLAG)
    certainty: bool = option(False, FLAG)
    at_episode: int | None = option(None, COUNT, whole(0, "episodes are counted from 0"))


@takes(how=_PredictOptions, reading=REMEMBERED)
def predict(model: ModelPath, log: LogPath, *, how: _PredictOptions, reading: dict[str, Any]) -> None:
    """Choose a candidate at every step, as the decider would.

    Uses the policy right after the fitted log, without exploration. Writes the
    columns episode, step, chosen and score, and candidate_id where candidates have
    names.

    Reads the file as the fitted log was read, and makes features in the same way.

    For a model of 20 episodes, --at-episode 0 is the first one, 19 the last, 20 the
    policy right after the log, and 30 the policy predicted ten updates later.

    Example: ibcb predict model.safetensors candidates.parquet --at-episode 30 -o choices.csv
    """
    from ibcb.cli.choice_tables import predictions
    from ibcb.io.tablefiles import table_file

    out = how.out
    check_output(out, (".csv", ".parquet"), log, model)
    imitator = model_of(model, log)
    asked = {"scores": how.scores, "certainty": how.certainty, "policy": _policy_at(imitator, how.at_episode)}
    if how.certainty:
        _check_certainty(imitator, how.scores, how.at_episode)
    candidates = ibcb.open_log(log, **prepared(imitator, reading, log, choices=False), choices=False)
    if out is not None:
        steps = 0
        with table_file(out) as file:
            for table in predictions(imitator, candidates, **asked):
                # A row for each candidate says whether it is chosen; one for each step says which.
                steps += int(table["chosen"].to_numpy().sum()) if how.scores else len(table)
                file.write(table)
        saved(out)
        say_notes(candidates.notes)
        if how.as_json:
            print_json({"out": str(out), "steps": steps})
        else:
            say(f"{out}: {steps} choices")
        return
    if how.as_json:
        print_json(columns_of(list(predictions(imitator, candidates, **asked))))
    else:
        write_tables(predictions(imitator, candidates, **asked))
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
