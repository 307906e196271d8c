"""Commands about simulated runs: demo, simulate, evaluate, reproduce."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

import ibcb
from ibcb.cli.shared import (
    ExpertKind,
    Json,
    Row,
    above_zero,
    at_least_zero,
    prepared,
    print_json,
    print_table,
    program,
    reads_logs,
    reports_errors,
    say,
    size,
)

__all__ = ["demo", "evaluate", "reproduce", "simulate"]


@reports_errors
def demo(
    out: Annotated[Path, typer.Option(help="Folder for log, model and report.")] = Path("ibcb-demo"),
    expert: Annotated[ExpertKind, typer.Option(help="The expert to simulate.")] = "sbucb",
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Simulate a log, fit it, compare with behaviour cloning, write the report.

    The log has the size of the paper's. It, the fitted model and a page that shows
    what was found are left in a folder.
    """
    from ibcb.report import write_report

    noise = 0.03
    say(f"Simulating an {expert.upper()} expert that learns over 20 batches of 1000 choices ...")
    run = ibcb.simulate("synthetic", expert=expert, noise=noise, seed=seed)
    rows: list[Row] = [{"policy": "the expert itself", "seconds": None, **_figures(run.expert, run)}]
    model = ibcb.IBCB(expert=expert, l2=run.expert_settings.l2)
    for name, imitator in (("IBCB", model), ("behaviour cloning (LinearSVC)", ibcb.BaseSVC())):
        say(f"Fitting {name} ...")
        start = time.perf_counter()
        imitator.fit(run.log)
        rows.append({"policy": name, "seconds": time.perf_counter() - start, **_figures(imitator, run)})
    out.mkdir(parents=True, exist_ok=True)
    log_path, model_path, page = out / "log.parquet", out / "model.safetensors", out / "report.html"
    ibcb.write_log(run.log, log_path)
    ibcb.save_model(model, model_path)
    say("Writing the report ...")
    write_report(model, run.log, page, title=f"What a simulated {expert.upper()} expert gives away")
    cosine = _cosine(model.coef_, run.expert.coef_)
    if as_json:
        places = {"log": str(log_path), "model": str(model_path), "report": str(page)}
        print_json({"results": rows, "cosine": cosine, **places})
        return
    print()
    print_table(
        rows,
        {
            "policy": "",
            "bt_fitness": "same choice",
            "bt_ar": "mean reward",
            "ol_fitness": "OL-Fitness",
            "seconds": "seconds",
        },
    )
    print(
        f"""
same choice   share of 20,000 fresh steps on which the final expert agrees
mean reward   earned on these steps
OL-Fitness    share of its history the expert repeats if it learns again in the
              recovered reward model; cloning recovers none

From choices alone, without a single reward, IBCB recovered the direction of the
expert's reward parameters (cosine {cosine:.4f}); their length is not identified.

The log and the model are in {out}/. To go on:
  {program()} fit {log_path} --expert {expert}
  {program()} predict {model_path} {log_path} | head

The report, for a browser:
  {page.resolve()}"""
    )


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


@reads_logs
@reports_errors
def evaluate(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    run: Annotated[Path, typer.Argument(help="A folder that `ibcb simulate` wrote, or a log.")],
    *,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Measure a saved model on a simulated run or a log.

    All metrics on a simulated run; on a log, the share of choices that agree.
    """
    imitator = ibcb.load_model(model)
    if not (run / "run.json").exists():
        try:
            log = ibcb.read_log(run, **prepared(imitator, reading))
        except ibcb.LogFormatError as error:
            hint = " Nor did `ibcb simulate` write it: it has no run.json." if run.is_dir() else ""
            raise ibcb.LogFormatError(f"{error}{hint}") from None
        agreement = imitator.score(log)
        if as_json:
            print_json({"agreement": agreement})
        else:
            print(f"agreement   {agreement:.4f}   with the policy right after the fitted log, without exploration")
        return
    truth = _read_run(run)
    figures, expert = ibcb.metrics.evaluate(imitator, truth), ibcb.metrics.evaluate(truth.expert, truth)
    if as_json:
        print_json(figures | {"expert": expert})
        return
    rows = [
        {"metric": name, "model": figures[name], "expert": expert[name], "what": _METRICS[name]} for name in figures
    ]
    print_table(rows, {"metric": "", "model": "model", "expert": "expert", "what": ""})
    if truth.top_k > 1:
        print("\nThis expert draws among its best: its own column is the most one can reach.")


def _read_run(folder: Path) -> ibcb.Run:
    """Simulate again what `ibcb simulate` wrote, and check that it is the same."""
    description = folder / "run.json"
    if not description.exists():
        raise FileNotFoundError(f"{folder} has no run.json; give a folder that `ibcb simulate` wrote, or a log file.")
    try:
        truth = ibcb.simulate(**json.loads(description.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{description} does not describe a run ({error}); simulate it again.") from None
    if not np.array_equal(ibcb.read_log(folder / "log.parquet").chosen, truth.log.chosen):
        raise ValueError(f"{folder}/log.parquet is not the log that run.json describes; simulate it again.")
    return truth


_METRICS = {
    "bt_fitness": "same choice as the final expert",
    "bt_ar": "mean reward of these choices",
    "ol_fitness": "history repeated in the recovered rewards",
    "train_log_fitness": "same choice as logged",
    "ood_bt_fitness": "same choice, out of distribution",
    "ood_bt_ar": "mean reward, out of distribution",
    "cfr": "cumulative fairness regret, 0 is best",
}


@reports_errors
def reproduce(
    table: Annotated[list[int] | None, typer.Option(help="A table of the paper, 1 to 20; repeatable.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All 20 tables.")] = False,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 5,
    jobs: Annotated[int, typer.Option(help="Processes at work.", min=1)] = 1,
    smoke: Annotated[bool, typer.Option(help="Tiny worlds and chains: does it run? Records apart.")] = False,
    results: Annotated[Path, typer.Option(help="Where cells are recorded.")] = Path("results.jsonl"),
    page: Annotated[Path, typer.Option(help="The page to write.")] = Path("results.md"),
    as_json: Json = False,
) -> None:
    """Run the paper's tables again, beside its figures.

    Every finished cell is recorded at once and never computed twice: after an
    interruption the same command goes on. Hours for --all, minutes with --smoke.
    """
    from ibcb.paper import tables

    wanted = list(tables.TABLES) if every else table or []
    unknown = [number for number in wanted if number not in tables.TABLES]
    if unknown or not wanted:
        reason = f"table {unknown[0]} does not exist" if unknown else "no table was named"
        raise typer.BadParameter(f"{reason}; the paper has tables 1 to 20. Say --table N, or --all.")
    if smoke:
        results, page = results.with_suffix(".smoke.jsonl"), page.with_suffix(".smoke.md")
    done = tables.reproduce(tables.cells(wanted, seeds), results, jobs=jobs, smoke=smoke, progress=True)
    if done.torn:
        say(f"note: {results} ended in a torn line, left by an interruption; that cell was computed again.")
    tables.write_page(results, page)
    for failure in done.failed:
        say(f"failed: {failure}")
    if as_json:
        print_json({"recorded": done.done_before, "computed": done.computed, "failed": list(done.failed)})
    else:
        print(f"{page}: {done.computed} cells computed, {done.done_before} recorded before, {len(done.failed)} failed")
    if done.failed:
        raise typer.Exit(1)


def _figures(model: Any, run: ibcb.Run) -> dict[str, float | None]:
    names = ("bt_fitness", "bt_ar", "ol_fitness")
    figures = ibcb.metrics.evaluate(model, run)
    return {name: figures[name] for name in names}


def _cosine(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
