"""`ibcb simulate`: a run of one of the paper's experts, as files."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import ExpertKind, Json, above_zero, at_least_zero
from ibcb.cli.printing import print_json, size

__all__ = ["EXAMPLE", "simulate"]

EXAMPLE = "ibcb simulate run/ --expert sbts --noise 0.1 --seed 3"


@reports_errors
def simulate(
    out: Annotated[Path, typer.Argument(help="Folder to write: log.parquet, test.parquet, ood.parquet, run.json.")],
    environment: Annotated[Literal["synthetic", "movielens"], typer.Option(help="The world.")] = "synthetic",
    expert: Annotated[ExpertKind, typer.Option(help="The expert.")] = "sbucb",
    seed: Annotated[int, typer.Option(help="The same seed gives the same bits.", min=0)] = 0,
    alpha: Annotated[
        float | None, typer.Option(help="The expert's exploration weight.", callback=at_least_zero)
    ] = None,
    l2: Annotated[float | None, typer.Option(help="The expert's ridge parameter.", callback=above_zero)] = None,
    draws: Annotated[Literal["step", "episode"] | None, typer.Option(help="How often SBTS draws.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k best candidates.", min=1)] = None,
    n_episodes: Annotated[int | None, typer.Option("--episodes", help="N, the number of batches (20).", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="B, steps in a batch (1000).", min=1)] = None,
    n_candidates: Annotated[
        int | None, typer.Option("--candidates", help="M, candidates at a step (10).", min=1)
    ] = None,
    n_features: Annotated[int | None, typer.Option("--features", help="d, synthetic only (10).", min=1)] = None,
    noise: Annotated[
        float | None, typer.Option(help="Noise on rewards, synthetic only (0).", callback=at_least_zero)
    ] = None,
    warmup: Annotated[int | None, typer.Option(help="Random steps at the start, synthetic only.", min=0)] = None,
    dup: Annotated[int | None, typer.Option(help="Batches that are repeated, synthetic only (0).", min=0)] = None,
    ood_mean: Annotated[float | None, typer.Option(help="Mean of candidate 0 out of distribution (1.4).")] = None,
    folder: Annotated[Path | None, typer.Option(help="The MovieLens 100K files, a folder or zip.")] = None,
    as_json: Json = False,
) -> None:
    """Let an expert learn in one of the paper's worlds.

    Logs what it does. Unset options take the paper's values.
    """
    options: dict[str, Any] = {
        "alpha": alpha,
        "l2": l2,
        "draws": draws,
        "top_k": top_k,
        "n_episodes": n_episodes,
        "batch_size": batch_size,
        "n_candidates": n_candidates,
        "n_features": n_features,
        "noise": noise,
        "warmup": warmup,
        "dup": dup,
        "ood_mean": ood_mean,
        "folder": None if folder is None else str(folder),
    }
    settings: dict[str, Any] = {"environment": environment, "expert": expert, "seed": seed}
    settings |= {name: value for name, value in options.items() if value is not None}
    run = ibcb.simulate(**settings)
    settings |= asdict(run.environment) | asdict(run.expert_settings)
    settings["expert"] = settings.pop("kind")
    logs = {"log": run.log, "test": run.test_log, "ood": run.ood_log}
    out.parent.mkdir(parents=True, exist_ok=True)
    # All files are written aside first: an interrupted simulation leaves the folder as it was.
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as aside:
        for name, log in logs.items():
            if log is not None:
                ibcb.write_log(log, Path(aside) / f"{name}.parquet")
        (Path(aside) / "run.json").write_text(json.dumps(settings, indent=2) + "\n")
        out.mkdir(exist_ok=True)
        for file in sorted(Path(aside).iterdir()):
            file.replace(out / file.name)
    if as_json:
        print_json({"folder": str(out), "settings": settings})
    else:
        print(f"{out}/  {size(run.log)}")
