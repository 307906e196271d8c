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
from ibcb.cli.printing import print_json, size

__all__ = ["EXAMPLE", "simulate"]

EXAMPLE = "ibcb simulate run/ --expert sbts --noise 0.1 --seed 3"


@reports_errors
def simulate(
    out: Annotated[Path, typer.Argument(help="Folder to write: log.parquet, test.parquet, ood.parquet, run.json.")],
    environment: Annotated[Literal["synthetic", "movielens", "arms"], typer.Option(help="The world.")] = "synthetic",
    expert: Annotated[
        str,
        typer.Option(
            help="The expert: sbucb, sbts, egreedy, softmax, topk, ...", metavar="KIND", callback=kind_of_expert
        ),
    ] = "sbucb",
    seed: Annotated[int, typer.Option(help="The same seed gives the same bits.", min=0)] = 0,
    alpha: Annotated[
        float | None, typer.Option(help="The expert's exploration weight.", callback=at_least_zero)
    ] = None,
    l2: Annotated[float | None, typer.Option(help="The expert's ridge parameter.", callback=above_zero)] = None,
    draws: Annotated[Literal["step", "episode"] | None, typer.Option(help="How often SBTS draws.")] = None,
    top_k: Annotated[
        int | None, typer.Option(help="sbucb, sbts, topk (2): draw from the k best candidates.", metavar="K", min=1)
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="egreedy (0.2), stationary, other (0): share of random choices.", metavar="SHARE", min=0, max=1
        ),
    ] = None,
    decay: Annotated[
        float | None,
        typer.Option(help="egreedy (0): after k updates epsilon is divided by (k+1)^decay.", callback=at_least_zero),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="softmax, stationary, other: scores are divided by it.", callback=above_zero),
    ] = None,
    n_episodes: Annotated[int | None, typer.Option("--episodes", help="N, batches (20; arms 12).", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="B, steps in a batch (1000; arms 500).", min=1)] = None,
    n_candidates: Annotated[
        int | None, typer.Option("--candidates", help="M, candidates at a step (10).", min=1)
    ] = None,
    n_features: Annotated[int | None, typer.Option("--features", help="d (10); of a step, arms (5).", min=1)] = None,
    noise: Annotated[
        float | None, typer.Option(help="Noise on rewards, synthetic (0) and arms (0.3).", callback=at_least_zero)
    ] = None,
    warmup: Annotated[int | None, typer.Option(help="Random steps at the start, synthetic and arms.", min=0)] = None,
    dup: Annotated[int | None, typer.Option(help="Batches that are repeated, synthetic only (0).", min=0)] = None,
    ood_mean: Annotated[float | None, typer.Option(help="Mean of candidate 0 out of distribution (1.4).")] = None,
    n_arms: Annotated[int | None, typer.Option("--arms", help="Arms, arms only (10).", min=1)] = None,
    n_available: Annotated[
        int | None, typer.Option("--available", help="Arms that can be chosen at a step, arms only (all).", min=1)
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="The MovieLens 100K files, a folder or zip.")] = None,
    as_json: Json = False,
) -> None:
    """Let an expert act in a simulated world: one of the paper's, or arms.

    Logs what it does. Unset options take the paper's values.
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
    if as_json:
        print_json({"folder": str(out), "settings": settings})
    else:
        print(f"{out}/  {size(run.log)}")
