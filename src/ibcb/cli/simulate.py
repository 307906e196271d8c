"""`ibcb simulate`: a run of an expert in a simulated world, as files."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import Json, above_zero, at_least_zero, kind_of_expert
from ibcb.cli.outputs import saved
from ibcb.cli.printing import print_json, size

__all__ = ["EXAMPLE", "simulate"]

EXAMPLE = "ibcb simulate run/ --expert sbts --noise 0.1 --seed 3"


@reports_errors
def simulate(
    out: Annotated[
        Path, typer.Argument(help="Folder to write log.parquet, test.parquet, ood.parquet and run.json to.")
    ],
    environment: Annotated[
        Literal["synthetic", "movielens", "arms"],
        typer.Option(help="Where the expert acts: the paper's synthetic data, MovieLens 100K, or arms."),
    ] = "synthetic",
    expert: Annotated[
        str,
        typer.Option(
            help="Kind of expert: sbucb, sbts, egreedy, softmax, topk, stationary, other.",
            metavar="KIND",
            callback=kind_of_expert,
        ),
    ] = "sbucb",
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same log.", min=0, metavar="N")] = 0,
    alpha: Annotated[
        float | None,
        typer.Option(help="The expert's exploration weight, as in 0.4.", metavar="NUMBER", callback=at_least_zero),
    ] = None,
    l2: Annotated[
        float | None,
        typer.Option(help="The expert's ridge parameter, as in 0.3.", metavar="NUMBER", callback=above_zero),
    ] = None,
    draws: Annotated[
        Literal["step", "episode"] | None,
        typer.Option(help="With sbts: draw a policy at every step, or once per episode."),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            help="With sbucb, sbts, topk: choose at random among the K best. Default: 2 with topk, else the best.",
            metavar="K",
            min=1,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="With egreedy, stationary, other: share of choices at random. Default: 0.2 with egreedy, else 0.",
            metavar="SHARE",
            min=0,
            max=1,
        ),
    ] = None,
    decay: Annotated[
        float | None,
        typer.Option(
            help="With egreedy: after k updates, divide epsilon by (k+1)^NUMBER. Default: 0.",
            metavar="NUMBER",
            callback=at_least_zero,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="With softmax, stationary, other: divide scores by this; higher is more random.",
            metavar="NUMBER",
            callback=above_zero,
        ),
    ] = None,
    n_episodes: Annotated[
        int | None,
        typer.Option("--episodes", help="Number of episodes, the paper's N. Default: 20; arms 12.", metavar="N", min=1),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Steps per episode, the paper's B. Default: 1000; arms 500.", metavar="N", min=1)
    ] = None,
    n_candidates: Annotated[
        int | None,
        typer.Option("--candidates", help="Candidates per step, the paper's M. Default: 10.", metavar="N", min=1),
    ] = None,
    n_features: Annotated[
        int | None, typer.Option("--features", help="Features, the paper's d. Default: 10; arms 5.", metavar="N", min=1)
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            help="Deviation of the noise on rewards. Default: 0; arms 0.3.", metavar="NUMBER", callback=at_least_zero
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(help="Steps chosen at random before the expert acts; not with movielens.", metavar="N", min=0),
    ] = None,
    dup: Annotated[
        int | None,
        typer.Option(
            help="With synthetic: show the candidates of the first N episodes again in the next N. Default: 0.",
            metavar="N",
            min=0,
        ),
    ] = None,
    ood_mean: Annotated[
        float | None, typer.Option(help="Mean of candidate 0 in ood.parquet. Default: 1.4.", metavar="NUMBER")
    ] = None,
    n_arms: Annotated[
        int | None, typer.Option("--arms", help="With arms: how many there are. Default: 10.", metavar="N", min=1)
    ] = None,
    n_available: Annotated[
        int | None,
        typer.Option(
            "--available", help="With arms: how many can be chosen at a step. Default: all.", metavar="N", min=1
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="With movielens: folder or zip of MovieLens 100K. Default: what IBCB_ML100K names, or downloaded once."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate an expert that learns, and log its choices.

    Options that are not given take the paper's values.
    """
    from ibcb.io.files import atomic
    from ibcb.io.parquet import write_steps

    options: dict[str, Any] = {
        "alpha": alpha,
        "l2": l2,
        "draws": draws,
        "top_k": top_k,
        "epsilon": epsilon,
        "decay": decay,
        "temperature": temperature,
        "n_episodes": n_episodes,
        "batch_size": batch_size,
        "n_candidates": n_candidates,
        "n_features": n_features,
        "noise": noise,
        "warmup": warmup,
        "dup": dup,
        "ood_mean": ood_mean,
        "n_arms": n_arms,
        "n_available": n_available,
        "folder": None if folder is None else str(folder),
    }
    settings: dict[str, Any] = {"environment": environment, "expert": expert, "seed": seed}
    settings |= {name: value for name, value in options.items() if value is not None}
    run = ibcb.simulate(**settings)
    settings |= asdict(run.environment) | asdict(run.expert_settings)
    settings["expert"] = settings.pop("kind")
    logs = {"log": run.log, "test": run.test_log, "ood": run.ood_log}
    # All files are written aside first, and what describes them takes its name last: without it a folder is not whole.
    with contextlib.ExitStack() as stack:
        description = stack.enter_context(atomic(out / "run.json"))
        for name, log in logs.items():
            if log is not None:
                write_steps(log.parts(), stack.enter_context(atomic(out / f"{name}.parquet")))
        description.write_text(json.dumps(settings, indent=2) + "\n")
        (out / "run.json").unlink(missing_ok=True)
    saved(out)
    if as_json:
        print_json({"folder": str(out), "settings": settings})
    else:
        print(f"{out}/  {size(run.log)}")
