"""The command line: parses, delegates, prints. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

import ibcb
from ibcb.io import ModelFileError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    help="Recover what a learning decision-maker values from a log of its choices, without its rewards.\n\n"
    "Start with: ibcb demo",
)


def _above_zero(value: float | None) -> float | None:
    if value is not None and not (value > 0 and np.isfinite(value)):
        raise typer.BadParameter(f"{value:g} is not above 0.")
    return value


def _at_least_zero(value: float | None) -> float | None:
    if value is not None and not (value >= 0 and np.isfinite(value)):
        raise typer.BadParameter(f"{value:g} is not 0 or above.")
    return value


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ExpertKind = Literal["sbucb", "sbts"]
SolverName = Literal["auto", "hard", "soft", "robust", "paper"]
Row = dict[str, Any]


def main() -> None:
    """Run the command line: exit 0, 1 for a failure, 2 for bad usage, 130 when interrupted."""
    # Warnings come again as notes of the fitted model, with the rest of what a reader should know.
    warnings.simplefilter("ignore", UserWarning)
    # So that a polite kill, too, runs the clean-up of half-written files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    app()


def _reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that users can cause into one line and exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output has seen enough (`| head`). Python must not flush the rest at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            _say("interrupted; nothing half-written is left behind.")
            raise typer.Exit(130) from None
        except (ImportError, ValueError, TypeError, OSError, ibcb.SolverError, ModelFileError) as error:
            _say(f"error: {error}")
            raise typer.Exit(1) from None

    return run


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        print(ibcb.__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(epilog="Example: ibcb demo --seed 1 --out my-demo")
@_reports_errors
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the log and the model.")] = Path("ibcb-demo"),
    expert: Annotated[ExpertKind, typer.Option(help="The expert to simulate.")] = "sbucb",
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Simulate a log, fit it, compare with behaviour cloning.

    The log has the size of the paper's. It and the fitted model are left in a folder.
    """
    noise = 0.03
    _say(f"Simulating an {expert.upper()} expert that learns over 20 batches of 1000 choices ...")
    run = ibcb.simulate("synthetic", expert=expert, noise=noise, seed=seed)
    rows: list[Row] = [{"policy": "the expert itself", "seconds": None, **_figures(run.expert, run)}]
    model = ibcb.IBCB(expert=expert, l2=run.expert_settings.l2)
    for name, imitator in (("IBCB", model), ("behaviour cloning (LinearSVC)", ibcb.BaseSVC())):
        _say(f"Fitting {name} ...")
        start = time.perf_counter()
        imitator.fit(run.log)
        rows.append({"policy": name, "seconds": time.perf_counter() - start, **_figures(imitator, run)})
    out.mkdir(parents=True, exist_ok=True)
    log_path, model_path = out / "log.parquet", out / "model.safetensors"
    ibcb.write_log(run.log, log_path)
    ibcb.save_model(model, model_path)
    cosine = _cosine(model.coef_, run.expert.coef_)
    if as_json:
        _print_json({"results": rows, "cosine": cosine, "log": str(log_path), "model": str(model_path)})
        return
    print()
    _print_table(
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
  {_program()} fit {log_path} --expert {expert}
  {_program()} predict {model_path} {log_path} | head"""
    )


@app.command(epilog="Example: ibcb simulate run/ --expert sbts --noise 0.1 --seed 3")
@_reports_errors
def simulate(
    out: Annotated[Path, typer.Argument(help="Folder to write: log.parquet, test.parquet, ood.parquet, run.json.")],
    environment: Annotated[Literal["synthetic", "movielens"], typer.Option(help="The world.")] = "synthetic",
    expert: Annotated[ExpertKind, typer.Option(help="The expert.")] = "sbucb",
    seed: Annotated[int, typer.Option(help="The same seed gives the same bits.", min=0)] = 0,
    alpha: Annotated[
        float | None, typer.Option(help="The expert's exploration weight.", callback=_at_least_zero)
    ] = None,
    l2: Annotated[float | None, typer.Option(help="The expert's ridge parameter.", callback=_above_zero)] = None,
    draws: Annotated[Literal["step", "episode"] | None, typer.Option(help="How often SBTS draws.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k best candidates.", min=1)] = None,
    n_episodes: Annotated[int | None, typer.Option("--episodes", help="N, the number of batches (20).", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="B, steps in a batch (1000).", min=1)] = None,
    n_candidates: Annotated[
        int | None, typer.Option("--candidates", help="M, candidates at a step (10).", min=1)
    ] = None,
    n_features: Annotated[int | None, typer.Option("--features", help="d, synthetic only (10).", min=1)] = None,
    noise: Annotated[
        float | None, typer.Option(help="Noise on rewards, synthetic only (0).", callback=_at_least_zero)
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
        _print_json({"folder": str(out), "settings": settings})
    else:
        print(f"{out}/  {_size(run.log)}")


@app.command(epilog="Example: ibcb fit log.parquet -o model.safetensors --expert sbucb --l2 0.3")
@_reports_errors
def fit(
    log: Annotated[Path, typer.Argument(help="The log: Parquet with episode, step, chosen, n_candidates, contexts.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to save the model.")] = Path("model.safetensors"),
    expert: Annotated[ExpertKind, typer.Option(help="How the decider explored.")] = "sbucb",
    alpha: Annotated[float, typer.Option(help="Exploration weight: the scale of theta.", callback=_above_zero)] = 1.0,
    l2: Annotated[float, typer.Option(help="The decider's ridge parameter.", callback=_above_zero)] = 1.0,
    margin: Annotated[float, typer.Option(help="Epsilon of the SBTS rows.", callback=_above_zero)] = 0.01,
    solver: Annotated[SolverName, typer.Option(help="How episodes are solved.")] = "auto",
    incremental: Annotated[
        bool, typer.Option("--incremental/--full", help="Episode by episode, or all at once.")
    ] = True,
    prune: Annotated[bool, typer.Option(help="Drop violated rows and solve again.")] = False,
    as_json: Json = False,
) -> None:
    """Recover reward and policy parameters from a log.

    Saves the model. What a reader should know of the result goes to stderr.
    """
    _check_output(out, ".safetensors", log)
    behaviour = ibcb.read_log(log)
    model = ibcb.IBCB(
        expert=expert,
        alpha=alpha,
        l2=l2,
        margin=margin,
        solver=solver,
        incremental=incremental,
        prune=prune,
        verbose=True,
    )
    start = time.perf_counter()
    model.fit(behaviour)
    seconds = time.perf_counter() - start
    ibcb.save_model(model, out)
    for note in model.notes_:
        _say(f"note: {note}")
    foreseen = [entry.next_agreement for entry in model.diagnostics_ if entry.next_agreement is not None]
    agreement = float(np.mean(foreseen)) if foreseen else None
    if as_json:
        _print_json(
            {
                "model": str(out),
                "solver": model.solver_,
                "seconds": seconds,
                "next_agreement": agreement,
                "coef": model.coef_.tolist(),
                "policy_coefs": model.policy_coefs_.tolist(),
                "diagnostics": [entry._asdict() for entry in model.diagnostics_],
                "notes": list(model.notes_),
            }
        )
        return
    print(f"log         {_size(behaviour)}")
    print(f"solver      {model.solver_}, {seconds:.3f} s")
    if agreement is not None:
        print(f"foreseen    {agreement:.1%} of each episode's choices from the episodes before it")
    print(f"saved       {out}\n")
    _print_table(_weights(model), {"feature": "feature", "weight": "reward weight", "policy": "policy now"})


@app.command(epilog="Example: ibcb predict model.safetensors candidates.parquet -o choices.csv")
@_reports_errors
def predict(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    log: Annotated[Path, typer.Argument(help="Candidate sets: a log, whose own choices are ignored.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A CSV file instead of stdout.")] = None,
    as_json: Json = False,
) -> None:
    """Say what a saved model chooses at every step.

    Prints CSV: episode, step, chosen, score.
    """
    if out is not None:
        _check_output(out, ".csv", log, model)
    imitator, behaviour = ibcb.load_model(model), ibcb.read_log(log)
    scores = imitator.decision_function(behaviour)
    chosen = imitator.predict(behaviour)
    best = scores[behaviour.step_offsets[:-1] + chosen]
    steps = np.diff(behaviour.episode_offsets)
    episode = np.repeat(np.arange(len(steps)) - behaviour.warmup, steps)
    step = np.concatenate([np.arange(count) for count in steps])
    columns = {"episode": episode, "step": step, "chosen": chosen, "score": best}
    if as_json and out is None:
        _print_json({name: values.tolist() for name, values in columns.items()})
    elif out is None:
        _write_csv(sys.stdout, columns)
    else:
        with ibcb.io.atomic(out) as path, path.open("w", newline="") as file:
            _write_csv(file, columns)
        if as_json:
            _print_json({"out": str(out), "steps": len(chosen)})
        else:
            _say(f"{out}: {len(chosen)} choices")


@app.command(epilog="Example: ibcb evaluate model.safetensors run/")
@_reports_errors
def evaluate(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    run: Annotated[Path, typer.Argument(help="A folder that `ibcb simulate` wrote, or a log.")],
    as_json: Json = False,
) -> None:
    """Measure a saved model on a simulated run or a log.

    All metrics on a simulated run; on a log, the share of choices that agree.
    """
    imitator = ibcb.load_model(model)
    if not run.is_dir():
        agreement = imitator.score(ibcb.read_log(run))
        if as_json:
            _print_json({"agreement": agreement})
        else:
            print(f"agreement   {agreement:.4f}   with the policy right after the fitted log, without exploration")
        return
    truth = _read_run(run)
    figures, expert = ibcb.metrics.evaluate(imitator, truth), ibcb.metrics.evaluate(truth.expert, truth)
    if as_json:
        _print_json(figures | {"expert": expert})
        return
    rows = [
        {"metric": name, "model": figures[name], "expert": expert[name], "what": _METRICS[name]} for name in figures
    ]
    _print_table(rows, {"metric": "", "model": "model", "expert": "expert", "what": ""})
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


@app.command(epilog="Example: ibcb reproduce --table 3 --table 17 --seeds 5 --jobs 2")
@_reports_errors
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
    from ibcb import reproduce as tables

    wanted = list(tables.TABLES) if every else table or []
    unknown = [number for number in wanted if number not in tables.TABLES]
    if unknown or not wanted:
        reason = f"table {unknown[0]} does not exist" if unknown else "no table was named"
        raise typer.BadParameter(f"{reason}; the paper has tables 1 to 20. Say --table N, or --all.")
    if smoke:
        results, page = results.with_suffix(".smoke.jsonl"), page.with_suffix(".smoke.md")
    done = tables.reproduce(tables.cells(wanted, seeds), results, jobs=jobs, smoke=smoke, progress=True)
    if done.torn:
        _say(f"note: {results} ended in a torn line, left by an interruption; that cell was computed again.")
    tables.write_page(results, page)
    for failure in done.failed:
        _say(f"failed: {failure}")
    if as_json:
        _print_json({"recorded": done.done_before, "computed": done.computed, "failed": list(done.failed)})
    else:
        print(f"{page}: {done.computed} cells computed, {done.done_before} recorded before, {len(done.failed)} failed")
    if done.failed:
        raise typer.Exit(1)


# -- printing ------------------------------------------------------------------------------------------------------


def _figures(model: Any, run: ibcb.Run) -> dict[str, float | None]:
    names = ("bt_fitness", "bt_ar", "ol_fitness")
    figures = ibcb.metrics.evaluate(model, run)
    return {name: figures[name] for name in names}


def _weights(model: ibcb.IBCB) -> list[Row]:
    names = model.feature_names_in_ or tuple(str(column) for column in range(len(model.coef_)))
    order = np.argsort(-np.abs(model.coef_), kind="stable")
    return [
        {
            "feature": names[column],
            "weight": float(model.coef_[column]),
            "policy": float(model.next_policy_coef_[column]),
        }
        for column in order
    ]


def _cosine(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def _print_table(rows: list[Row], columns: dict[str, str]) -> None:
    """Figures right-aligned under their headings, words left-aligned."""
    wordy = {name for name in columns if all(isinstance(row[name], str) for row in rows)}
    texts = [list(columns.values()), *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for line in texts:
        cells = zip(columns, line, widths, strict=True)
        padded = (text.ljust(width) if name in wordy else text.rjust(width) for name, text, width in cells)
        print("   ".join(padded).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if 0 < abs(value) < 1e-3 else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3f}"


def _size(log: ibcb.BehaviorLog) -> str:
    return f"{len(log)} episodes, {log.n_steps} steps, {log.n_rows} candidate rows, {log.n_features} features"


def _program() -> str:
    """How this program was called, for commands to copy."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "ibcb" and called.parent != Path(".") and not called.is_absolute() else "ibcb"


def _check_output(out: Path, suffix: str, *inputs: Path) -> None:
    """Refuse, before any work is done, a place where the result could not or must not be written."""
    if any(out.exists() and given.exists() and out.samefile(given) for given in inputs):
        raise ValueError(f"{out} is an input; give another path for the output.")
    if out.suffix.lower() != suffix and not (out.exists() and not out.is_file()):
        raise ValueError(f"{out} must end in {suffix}.")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; give the path of a file.")
    folder = next(parent for parent in out.resolve().parents if parent.exists())
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{out} cannot be written: no permission in {folder}.")


def _write_csv(file: Any, columns: dict[str, Any]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))


def _print_json(value: Any) -> None:
    print(json.dumps(value, allow_nan=False))


def _say(message: str) -> None:
    print(message, file=sys.stderr)
