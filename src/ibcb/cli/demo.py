"""`ibcb demo`: a log, a fit, a comparison and a report, without any data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ibcb
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import ExpertKind, Json
from ibcb.cli.outputs import saved
from ibcb.cli.printing import Row, print_json, print_table, program, say

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EXAMPLE", "demo"]

EXAMPLE = "ibcb demo --seed 1 --out my-demo"


@reports_errors
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write log, model and report to.")] = Path("ibcb-demo"),
    expert: Annotated[
        ExpertKind,
        typer.Option(help="Kind of expert to simulate: confidence bounds (sbucb) or Thompson sampling (sbts)."),
    ] = "sbucb",
    seed: Annotated[
        int, typer.Option(help="Seed of the simulation; the same seed gives the same log.", min=0, metavar="N")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Simulate a log, fit it, and write a report.

    Needs no data. Compares the fit with behaviour cloning, and leaves the log, which
    has the size of the paper's, the model and the report in a folder.
    """
    from ibcb.report import write_report

    noise = 0.03
    say(f"Simulating an {expert.upper()} expert that learns over 20 episodes of 1000 choices ...")
    run = ibcb.simulate("synthetic", expert=expert, noise=noise, seed=seed)
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
    cosine = _cosine(model.next_policy_coef_, run.expert.coef_)
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
OL-Fitness    share of its choices that the expert repeats if it learns again
              from the recovered rewards; cloning recovers none

From choices alone, without a single reward, IBCB recovered the expert's policy
(cosine {cosine:.4f}) and the rewards that it was learning.

The log and the model are in {out}/. Try next:
  {program()} fit {log_path} --expert {expert}
  {program()} predict {model_path} {log_path} | head

Open the report in a browser:
  {page.resolve()}"""
    )


def _figures(model: Any, run: ibcb.Run) -> dict[str, float | None]:
    names = ("bt_fitness", "bt_ar", "ol_fitness")
    figures = ibcb.metrics.evaluate(model, run)
    return {name: figures[name] for name in names}


def _cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    import numpy as np

    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
