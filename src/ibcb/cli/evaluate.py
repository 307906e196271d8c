"""`ibcb evaluate`: a saved model against the truth of a simulated run, or against a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.options import REMEMBERED, ModelPath, Result, prepared, verb
from ibcb.cli.printing import print_table, say_notes
from ibcb.cli.running import model_of

_METRICS = {
    "bt_fitness": "same choice as the final expert",
    "bt_ar": "mean reward of these choices",
    "ol_fitness": "choices repeated, learning again",
    "train_log_fitness": "same choice as logged",
    "ood_bt_fitness": "same choice, out of distribution",
    "ood_bt_ar": "mean reward, out of distribution",
    "cfr": "cumulative fairness regret, 0 is best",
}


@verb(reading=REMEMBERED)
def evaluate(
    model: ModelPath,
    run: Annotated[Path, typer.Argument(help="A folder written by ibcb simulate, or a log.")],
    *,
    reading: dict[str, Any],
) -> Result:
    """Measure how well a saved model imitates a decider.

    On a simulated run, where the truth is known: the paper's metrics. On a log: the
    share of its choices that the model would make, too.

    Example: ibcb evaluate model.safetensors run/
    """
    imitator = model_of(model, run)
    if not (run / "run.json").exists():
        try:
            log = ibcb.read_log(run, **prepared(imitator, reading, run))
        except ibcb.LogFormatError as error:
            hint = " It is not a folder written by ibcb simulate either: it has no run.json." if run.is_dir() else ""
            raise ibcb.LogFormatError(f"{error}{hint}") from None
        agreement = imitator.score(log)
        say_notes(log.notes)
        words = "with the policy right after the fitted log, without exploration"
        return Result({"agreement": agreement}, lambda: print(f"agreement   {agreement:.4f}   {words}"))
    truth = _read_run(run)
    figures, expert = ibcb.metrics.evaluate(imitator, truth), ibcb.metrics.evaluate(truth.expert, truth)

    def show() -> None:
        own = {name: {"metric": name, "model": figures[name], "expert": expert[name]} for name in figures}
        rows = [row | {"what": _METRICS[name]} for name, row in own.items()]
        print_table(rows, {"metric": "", "model": "model", "expert": "expert", "what": ""})
        if truth.top_k > 1:
            print("\nThis expert draws among its best candidates, so no model can do better than its own column.")

    return Result(figures | {"expert": expert}, show)


def _read_run(folder: Path) -> ibcb.Run:
    """Simulate again what `ibcb simulate` wrote, and check that it is the same."""
    import numpy as np

    from ibcb.numerics.printable import WrongTypeError

    description = folder / "run.json"
    try:
        given = json.loads(description.read_text())
        if not isinstance(given, dict):
            raise ValueError("not a mapping")
        truth = ibcb.simulate(**given)
    except (ValueError, WrongTypeError) as error:
        raise ValueError(f"{description} does not describe a run ({error}); simulate it again.") from None
    if not np.array_equal(ibcb.read_log(folder / "log.parquet").chosen, truth.log.chosen):
        raise ValueError(f"{folder}/log.parquet is not the log that run.json describes; simulate it again.")
    return truth
