"""`ibcb demo`: a log, a fit, a comparison and a report, without any data."""

from __future__ import annotations

import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import ibcb
from ibcb.cli.options import Result, verb
from ibcb.cli.printing import Row, print_table, program, say
from ibcb.cli.running import saved
from ibcb.estimators.parameters import MEANT_KINDS
from ibcb.log.option import COUNT, Form, one_of, option, text, whole


@verb()
def demo(
    *,
    out: Path = option(Path("ibcb-demo"), Form("FOLDER", Path)),
    expert: str = option("sbucb", text("sbucb|sbts"), one_of(lambda: ("sbucb", "sbts"), MEANT_KINDS)),
    seed: int = option(0, COUNT, whole(0, "it seeds the random numbers")),
) -> Result:
    """Simulate a log, fit it, and write a report.

    Needs no data. Compares the fit with behaviour cloning, and leaves the log, which
    has the size of the paper's, the model and the report in a folder.

    Example: ibcb demo --seed 1 --out my-demo

    Parameters
    ----------
    out : path
        Folder to write log, model and report to.
    expert : {"sbucb", "sbts"}
        Kind of expert to simulate: confidence bounds (sbucb) or Thompson sampling (sbts).
    seed : int
        Seed of the simulation; the same seed gives the same log.
    """
    import numpy as np

    from ibcb.report import write_report

    say(f"Simulating an {expert.upper()} expert that learns over 20 episodes of 1000 choices ...")
    run = ibcb.simulate("synthetic", expert=expert, noise=0.03, seed=seed)
    rows: list[Row] = [{"policy": "the expert itself", "seconds": None, **_figures(run.expert, run)}]
    # The unit of all weights; choices do not tell it.
    model = ibcb.IBCB(expert=expert, alpha=run.expert_settings.alpha)
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
    saved(page)
    a, b = model.next_policy_coef_, run.expert.coef_
    cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    places = {"log": str(log_path), "model": str(model_path), "report": str(page)}

    def show() -> None:
        print()
        columns = {"policy": "", "bt_fitness": "same choice", "bt_ar": "mean reward", "ol_fitness": "OL-Fitness"}
        print_table(rows, columns | {"seconds": "seconds"})
        text = files("ibcb.cli").joinpath("demo.txt").read_text(encoding="utf-8")
        names = {"program": program(), "log": log_path, "model": model_path, "page": page.resolve()}
        print(text.format(cosine=cosine, out=out, expert=expert, **names), end="")

    return Result({"results": rows, "cosine": cosine, **places}, show)


def _figures(model: Any, run: ibcb.Run) -> dict[str, float | None]:
    figures = ibcb.metrics.evaluate(model, run)
    return {name: figures[name] for name in ("bt_fitness", "bt_ar", "ol_fitness")}
