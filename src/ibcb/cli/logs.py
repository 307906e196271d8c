"""Commands about logs: validate, convert, fit, predict, report."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import ibcb
from ibcb.cli.shared import (
    DeciderKind,
    Json,
    Row,
    SolverName,
    above_zero,
    above_zero_or_auto,
    check_output,
    cluster,
    prepared,
    print_json,
    print_table,
    reads_logs,
    reports_errors,
    say,
    size,
)
from ibcb.engine.cluster import ClusterError
from ibcb.estimators.checkpoints import checkpoint_of, fit_in_steps
from ibcb.estimators.predictions import csv_writer, predictions, write_predictions
from ibcb.log.disk import DiskLog

__all__ = ["convert", "fit", "predict", "report", "validate"]

#: updates after the log that are foreseen at most
_FURTHEST = 1000
_LOG = "Parquet, CSV, Arrow or npz, VW text or dsjson, or a folder of such files."


@reads_logs
@reports_errors
def validate(
    log: Annotated[Path, typer.Argument(help=f"The log: {_LOG}", readable=False)],
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings, too, make the command fail.")] = False,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Explain a log: what it holds, what is wrong, what would fail.

    Exit code 1 if something is wrong, with --strict also if something is doubtful.
    """
    disk = ibcb.open_log(log, **reading)
    found = ibcb.validate(disk)
    if as_json:
        print_json(found.to_json() | {"log": str(log), "notes": list(disk.notes)})
    else:
        print(found.render())
        _notes(disk)
    if not found.ok or (strict and any(finding.severity == "warning" for finding in found.findings)):
        raise typer.Exit(1)


@reads_logs
@reports_errors
def convert(
    log: Annotated[Path, typer.Argument(help=f"The log: {_LOG}", readable=False)],
    out: Annotated[Path, typer.Argument(help="Where to write it; the suffix tells the format.")],
    *,
    long: Annotated[bool, typer.Option("--long", help="Parquet with a row per candidate.")] = False,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Write a log in another format; Parquet carries everything.

    Goes through the log part by part: it may be larger than memory.
    """
    check_output(out, ibcb.io.WRITABLE, log)
    disk = ibcb.open_log(log, **reading)
    ibcb.write_log(disk, out, long=long)
    lost = ibcb.io.LOST.get(out.suffix.lower())
    _notes(disk)
    if lost is not None:
        say(f"note: {out.suffix} does not carry {lost}.")
    if as_json:
        print_json({"out": str(out), "bytes": out.stat().st_size, "notes": list(disk.notes), "lost": lost})
    else:
        say(f"{out}: {out.stat().st_size / 1e6:.1f} MB")


@reads_logs
@reports_errors
def fit(
    log: Annotated[Path, typer.Argument(help=f"The log: {_LOG}", readable=False)],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to save the model.")] = Path("model.safetensors"),
    expert: Annotated[DeciderKind, typer.Option(help="How the decider chose; 'auto' asks the log.")] = "sbucb",
    alpha: Annotated[float, typer.Option(help="Exploration weight: the scale of theta.", callback=above_zero)] = 1.0,
    l2: Annotated[
        str, typer.Option(help="The decider's ridge parameter, or 'auto'.", callback=above_zero_or_auto)
    ] = "1.0",
    top_k: Annotated[
        int | None, typer.Option(help="Of topk: the best candidates it draws from; from the log.", min=2)
    ] = None,
    margin: Annotated[float, typer.Option(help="Epsilon of the SBTS rows.", callback=above_zero)] = 0.01,
    solver: Annotated[SolverName, typer.Option(help="How episodes are solved.")] = "auto",
    incremental: Annotated[
        bool, typer.Option("--incremental/--full", help="Episode by episode, or all at once.")
    ] = True,
    prune: Annotated[bool, typer.Option(help="Drop violated rows and solve again.")] = False,
    forecast: Annotated[
        bool, typer.Option("--forecast/--no-forecast", help="Foresee the policy after the log, and act on it.")
    ] = True,
    jobs: Annotated[int, typer.Option(help="Threads; the result does not depend on it.", min=1)] = 1,
    scheduler: Annotated[
        str | None, typer.Option(help="Fit on the Dask cluster at tcp://HOST:PORT.", metavar="ADDRESS")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Leave the log on disk; a checkpoint after every episode.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint; implies --stream.")] = False,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Recover reward and policy parameters from a log.

    Saves the model. What a reader should know of the result goes to stderr. A log
    larger than memory is converted once (ibcb convert), then fitted with --stream.
    --expert auto --l2 auto let the log itself tell what kind of decider made it.
    """
    check_output(out, (".safetensors",), log)
    disk = ibcb.open_log(log, **reading)
    streamed = stream or resume or scheduler is not None
    if streamed and "auto" in (expert, l2):
        raise typer.BadParameter(
            "what a decider was like takes several episodes at once, and --stream, --resume and --scheduler go one by "
            "one; name --expert and --l2, or leave these out."
        )
    model = ibcb.IBCB(
        expert=expert,
        alpha=alpha,
        l2=l2 if l2 == "auto" else float(l2),
        top_k=top_k or "auto",
        margin=margin,
        solver=solver,
        incremental=incremental,
        prune=prune,
        forecast="auto" if forecast else None,
        n_jobs=jobs,
        verbose=True,
    )
    start = time.perf_counter()
    if streamed:
        try:
            with cluster(scheduler) as client:
                model = fit_in_steps(model, disk, out, resume=resume, client=client, progress=True)
        except (KeyboardInterrupt, ClusterError):
            kept = checkpoint_of(out)
            if kept.exists():
                say(f"the episodes finished so far are kept in {kept}; the same command with --resume goes on.")
            raise
    else:
        behaviour = disk.read()
        model.fit(behaviour)
        ibcb.save_model(model, out)
    seconds = time.perf_counter() - start
    notes = [*disk.notes, *model.notes_]
    for note in notes:
        say(f"note: {note}")
    foreseen = [entry.next_agreement for entry in model.diagnostics_ if entry.next_agreement is not None]
    agreement = float(np.mean(foreseen)) if foreseen else None
    if as_json:
        print_json(
            {
                "model": str(out),
                "expert": model.expert_,
                "l2": model.l2_,
                "top_k": model.top_k_,
                "evidence": [entry._asdict() for entry in model.evidence_],
                "solver": model.solver_,
                "seconds": seconds,
                "next_agreement": agreement,
                "coef": model.coef_.tolist(),
                "policy_coefs": model.policy_coefs_.tolist(),
                "next_policy_coef": model.next_policy_coef_.tolist(),
                "forecast_model": model.forecast_model_,
                "forecast_note": model.forecast_note_,
                "last_policy": _interval(model),
                "unidentified_features": model.unidentified_features_,
                "diagnostics": [entry._asdict() for entry in model.diagnostics_],
                "notes": notes,
            }
        )
        return
    print(f"log         {log if streamed else size(behaviour)}")
    print(f"solver      {model.solver_}, {seconds:.3f} s")
    if model.evidence_:
        detail = f", l2 {model.l2_:g}" if model.top_k_ is None else f", from its {model.top_k_} best"
        print(f"decider     {model.expert_}{detail}")
    if agreement is not None:
        print(f"foreseen    {agreement:.1%} of each episode's choices from the episodes before it")
    if model.forecast_note_ is not None:
        print(f"forecast    {model.forecast_note_}")
    print(f"saved       {out}\n")
    columns = {"feature": "feature", "weight": "reward weight", "policy": "next policy"}
    if model.forecast_model_ is not None:
        columns |= {"last": "last policy", "interval": "90% interval"}
    print_table(_weights(model), columns)
    print("\nWeights are scaled to length 1: choices tell their direction, but little of their length.")


@reads_logs
@reports_errors
def predict(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    log: Annotated[Path, typer.Argument(help=f"Candidate sets, with or without choices: {_LOG}", readable=False)],
    *,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A .csv or .parquet file instead of stdout.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="A row for every candidate.")] = False,
    certainty: Annotated[
        bool, typer.Option("--certainty", help="Add the probability that the decider prefers the choice.")
    ] = False,
    at_episode: Annotated[
        int | None,
        typer.Option(
            help="Choose as in this episode of the fitted log, from 0; beyond its end as foreseen.", min=0, metavar="N"
        ),
    ] = None,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Say what a saved model chooses at every step.

    Writes episode, step, chosen, score: CSV on stdout, or a file. Chooses without
    exploration, with the policy right after the fitted log. The features are made
    as they were for the log that the model was fitted on: what is saved with the
    model wins over --features, --drop, --one-hot and --missing.

    A model of 20 episodes chooses as in the first with --at-episode 0, as in the
    last with 19, as right after the log with 20, and ten updates later with 30.
    """
    if out is not None:
        check_output(out, (".csv", ".parquet"), log, model)
    imitator = ibcb.load_model(model)
    how = {"scores": scores, "certainty": certainty, "policy": _policy_at(imitator, at_episode)}
    if certainty:
        _check_certainty(imitator, scores, at_episode)
    candidates = ibcb.open_log(log, **prepared(imitator, reading), choices=False)
    if out is not None:
        steps = write_predictions(imitator, candidates, out, **how)
        _notes(candidates)
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
    _notes(candidates)


@reads_logs
@reports_errors
def report(
    model: Annotated[Path, typer.Argument(help="A saved IBCB model.")],
    *,
    log: Annotated[Path, typer.Option("--log", help=f"The log it was fitted to: {_LOG}", readable=False)],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Of the page.")] = "",
    no_steps: Annotated[bool, typer.Option("--no-steps", help="Leave contexts and ids out, for sharing.")] = False,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Write one page that shows what a model found, and how far to trust it.

    The page needs no network. The log is gone through part by part: it may be
    larger than memory.
    """
    from ibcb.report import write_report

    check_output(out, (".html", ".htm"), log, model)
    imitator = ibcb.load_model(model)
    if not isinstance(imitator, ibcb.IBCB):
        raise ValueError(
            f"{model} holds a {type(imitator).__name__}; a report shows how a policy evolved, which IBCB recovers."
        )
    disk = ibcb.open_log(log, **prepared(imitator, reading))
    found = write_report(imitator, disk, out, steps=not no_steps, title=title)
    _notes(disk)
    for note in found.notes:
        say(f"note: {note}")
    if as_json:
        judged = {"verdict": found.verdict.level, "headline": found.verdict.headline, "notes": list(found.notes)}
        print_json({"out": str(out), "bytes": out.stat().st_size, **judged})
    else:
        print(f"verdict     {found.verdict.headline}")
        print(f"report      {out}, {out.stat().st_size / 1e6:.1f} MB")


def _notes(log: DiskLog) -> None:
    for note in log.notes:
        say(f"note: {note}")


def _policy_at(model: Any, episode: int | None) -> Any:
    """Policy of an episode, logged or foreseen; None where none was asked for."""
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
            f"--at-episode {episode} lies {episode - count} updates after the log; at most {_FURTHEST} are foreseen."
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


def _interval(model: ibcb.IBCB) -> dict[str, list[float]] | None:
    """The last policy's direction, with 90% intervals."""
    if model.forecast_model_ is None:
        return None
    return {name: values.tolist() for name, values in model.policy_interval(direction=True)._asdict().items()}


def _weights(model: ibcb.IBCB) -> list[Row]:
    names = model.feature_names_in_ or tuple(str(column) for column in range(len(model.coef_)))
    reward, policy, last = model.direction(model.coef_), model.direction(model.next_policy_coef_), _interval(model)
    free = set(model.unidentified_features_ or ())
    rows: list[Row] = []
    for column in np.argsort(-np.abs(reward), kind="stable").tolist():
        row: Row = {"feature": names[column], "weight": float(reward[column]), "policy": float(policy[column])}
        if last is not None:
            ends = f"{last['lower'][column]:.3f} to {last['upper'][column]:.3f}"
            row |= {"last": last["estimate"][column], "interval": "not determined" if names[column] in free else ends}
        rows.append(row)
    return rows
