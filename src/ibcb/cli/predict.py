"""`ibcb predict`: what a saved model chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import ibcb
from ibcb.cli.options import REMEMBERED, LogPath, ModelPath, Result, opened, verb
from ibcb.cli.printing import columns_of, say, say_notes, write_tables
from ibcb.cli.running import saved
from ibcb.log.option import COUNT, FLAG, PATH, option, whole

#: updates after the log that are predicted at most
_FURTHEST = 1000


@verb(reading=REMEMBERED)
def predict(
    model: ModelPath,
    log: LogPath,
    *,
    out: Path | None = option(None, PATH, flags="-o --out"),
    scores: bool = option(False, FLAG),
    certainty: bool = option(False, FLAG),
    at_episode: int | None = option(None, COUNT, whole(0, "episodes are counted from 0")),
    as_json: bool,
    reading: dict[str, Any],
) -> Result:
    """Choose a candidate at every step, as the decider would.

    Uses the policy right after the fitted log, without exploration. Writes the
    columns episode, step, chosen and score, and candidate_id where candidates have
    names.

    Reads the file as the fitted log was read, and makes features in the same way.

    For a model of 20 episodes, --at-episode 0 is the first one, 19 the last, 20 the
    policy right after the log, and 30 the policy predicted ten updates later.

    Example: ibcb predict model.safetensors candidates.parquet --at-episode 30 -o choices.csv

    Parameters
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
    from ibcb.cli.choice_tables import predictions
    from ibcb.io.written import table_file

    imitator, candidates = opened(model, log, reading, out=out, suffixes=(".csv", ".parquet"), choices=False)
    if certainty:
        _check_certainty(imitator, scores, at_episode)
    policy = _policy_at(imitator, at_episode)
    tables = predictions(imitator, candidates, scores=scores, certainty=certainty, policy=policy)
    if out is not None:
        steps = 0
        with table_file(out) as file:
            for table in tables:
                # A row for each candidate says whether it is chosen; one for each step says which.
                steps += int(table["chosen"].to_numpy().sum()) if scores else len(table)
                file.write(table)
        saved(out)
        say_notes(candidates.notes)
        return Result({"out": str(out), "steps": steps}, lambda: say(f"{out}: {steps} choices"))
    told: dict[str, Any] = {}
    if as_json:
        told = columns_of(list(tables))
    else:
        write_tables(tables)
    say_notes(candidates.notes)
    return Result(told)


def _policy_at(model: Any, episode: int | None) -> Any:
    """Policy of an episode, logged or predicted; None where none was asked for."""
    if episode is None:
        return None
    if not isinstance(model, ibcb.IBCB):
        raise typer.BadParameter(
            f"--at-episode needs an IBCB model; a {type(model).__name__} has one policy for all episodes."
        )
    count, refused = len(model.policy_coefs_), ""
    if episode > count and model.forecast_model_ is None:
        refused = (
            f" is beyond the log's episodes 0 to {count - 1}, and the model was fitted without forecast; fit it with "
            f"--forecast, or give 0 to {count}, where {count} is right after the log."
        )
    elif episode > count + _FURTHEST:
        refused = f" is {episode - count} updates after the log; at most {_FURTHEST} can be predicted."
    elif not (policy := model.policy_at(episode)).any():
        refused = ": nothing had been learned by then, so no candidate was preferred; give a later episode."
    else:
        return policy
    raise typer.BadParameter(f"--at-episode {episode}{refused}")


def _check_certainty(model: Any, scores: bool, at_episode: int | None) -> None:
    known = isinstance(model, ibcb.IBCB) and model.forecast_model_ is not None
    for words, applies in {
        "is about choices; leave out --scores.": scores,
        "is about the policy right after the log; leave out --at-episode.": at_episode is not None,
        "needs an IBCB model fitted with --forecast.": not known,
    }.items():
        if applies:
            raise typer.BadParameter(f"--certainty {words}")
