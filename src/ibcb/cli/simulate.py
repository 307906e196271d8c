"""`ibcb simulate`: a run of an expert in a simulated world, as files."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import ibcb
from ibcb.cli.options import Result, bad_usage, verb
from ibcb.cli.printing import size
from ibcb.cli.running import saved
from ibcb.estimators.parameters import MEANT_KINDS
from ibcb.log.option import COUNT, NUMBER, Form, declared, number, one_of, option, text, whole, whole_number
from ibcb.numerics.printable import WrongTypeError


def _experts() -> tuple[str, ...]:
    from ibcb.paper.simulation import EXPERTS

    return tuple(EXPERTS)


@dataclass(kw_only=True)
class _SimulateOptions:
    """What a user may say about a run; see `ibcb.simulate`, which checks it.

    Attributes
    ----------
    environment : {"synthetic", "movielens", "arms"}
        Where the expert acts: synthetic (the paper's), movielens (MovieLens 100K), or arms.
    expert : str
        Kind of expert: sbucb, sbts, egreedy, softmax, topk, stationary, other.
    seed : int
        Random seed; the same seed gives the same log.
    alpha : float
        The expert's exploration weight, as in 0.4.
    l2 : float
        The expert's ridge parameter, as in 0.3.
    draws : {"step", "episode"}
        With sbts: draw a policy at every step, or once per episode.
    top_k : int
        With sbucb, sbts, topk: choose at random among the K best. Default: 2 with topk, else the best.
    epsilon : float
        With egreedy, stationary, other: share of choices at random. Default: 0.2 with egreedy, else 0.
    decay : float
        With egreedy: after k updates, divide epsilon by (k+1)^NUMBER. Default: 0.
    temperature : float
        With softmax, stationary, other: divide scores by this; higher is more random.
    n_episodes : int
        Number of episodes, the paper's N. Default: 20; arms 12.
    batch_size : int
        Steps per episode, the paper's B. Default: 1000; arms 500.
    n_candidates : int
        Candidates per step, the paper's M. Default: 10.
    n_features : int
        Number of features, the paper's d. Default: 10; arms 5.
    noise : float
        Deviation of the noise on rewards. Default: 0; arms 0.3.
    warmup : int
        Steps chosen at random before the expert acts; not with movielens.
    dup : int
        With synthetic: show the candidates of the first N episodes again in the next N. Default: 0.
    ood_mean : float
        Mean of candidate 0 in ood.parquet. Default: 1.4.
    n_arms : int
        With arms: how many there are. Default: 10.
    n_available : int
        With arms: how many can be chosen at a step. Default: all.
    folder : path
        With movielens: folder or zip of MovieLens 100K. Default: what IBCB_ML100K names, or downloaded once.
    """

    environment: str = option("synthetic", text("NAME"), heading="World")
    seed: int = option(0, COUNT)
    n_episodes: int = option(None, COUNT, flags="--episodes")
    batch_size: int = option(None, COUNT)
    n_candidates: int = option(None, COUNT, flags="--candidates")
    n_features: int = option(None, COUNT, flags="--features")
    noise: float = option(None, NUMBER)
    warmup: int = option(None, COUNT)
    dup: int = option(None, COUNT)
    ood_mean: float = option(None, NUMBER)
    n_arms: int = option(None, COUNT, flags="--arms")
    n_available: int = option(None, COUNT, flags="--available")
    folder: str = option(None, text("PATH"))
    expert: str = option("sbucb", text("KIND"), one_of(_experts, MEANT_KINDS), heading="Expert")
    alpha: float = option(None, NUMBER)
    l2: float = option(None, NUMBER)
    draws: str = option(None, text("step|episode"))
    top_k: int = option(None, Form("K", whole_number), whole(1, "it counts the candidates drawn from"))
    epsilon: float = option(None, Form("SHARE", number))
    decay: float = option(None, NUMBER)
    temperature: float = option(None, NUMBER)


_SIMULATION = declared(_SimulateOptions)


@verb(asked=_SIMULATION)
def simulate(
    out: Annotated[
        Path, typer.Argument(help="Folder to write log.parquet, test.parquet, ood.parquet and run.json to.")
    ],
    *,
    asked: dict[str, Any],
) -> Result:
    """Simulate an expert that learns, and log its choices.

    Options that are not given take the paper's values.

    Example: ibcb simulate run/ --expert sbts --noise 0.1 --seed 3
    """
    from ibcb.io.files import atomic
    from ibcb.io.parquet import write_steps

    try:
        run = ibcb.simulate(**asked)
    except (ValueError, WrongTypeError) as error:
        raise bad_usage(error, _SIMULATION) from None
    settings = {"environment": "synthetic", "expert": "sbucb", "seed": 0} | asked
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
    return Result({"folder": str(out), "settings": settings}, lambda: print(f"{out}/  {size(run.log)}"))
