"""Forty unlike logs and all that is answered of them, kept in a file, or beside those that another version has kept.

    python benchmarks/answers.py --keep before.npz      # with one version of the code
    python benchmarks/answers.py --beside before.npz    # with another: what differs, the most first

Kinds of decider, ragged, dirty and tiny logs, mixed units, arms, sparse contexts, one-step episodes, logs that are
streamed or lie on a Dask cluster. Fitted by name and by "auto": policies, rewards, forecasts, propensities, the
verdict's level and the name chosen. Differences are relative to the largest number of an answer; 1e-8 passes.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import ibcb

Answers = dict[str, NDArray[Any]]
#: what rounding may change, relative to an answer's largest number
SAME = 1e-8
SIZES: dict[str, Any] = {"n_episodes": 8, "batch_size": 150, "n_features": 5, "n_candidates": 6, "warmup": 150}
#: names of experts, with what they are simulated and fitted with
DECIDERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sbucb": ("sbucb", {}, {}),
    "sbts": ("sbts", {}, {}),
    "sbts, a draw per episode": ("sbts", {"draws": "episode"}, {"draws": "episode"}),
    "egreedy": ("egreedy", {}, {}),
    "egreedy, falling": ("egreedy", {"decay": 0.7}, {}),
    "softmax": ("softmax", {}, {}),
    "topk": ("topk", {"top_k": 3}, {}),
    "stationary": ("stationary", {}, {}),
    "other": ("other", {}, {}),
}


def logs() -> Iterator[tuple[str, Callable[[], ibcb.BehaviorLog], dict[str, Any]]]:
    """Name, log, and the parameters to fit it with; each log is made when it is asked for."""
    for seed, (name, (expert, how, fitted)) in enumerate(DECIDERS.items()):
        log = partial(simulated, expert, seed, **how)
        yield name, log, {"expert": expert, **fitted}
        yield f"{name}, auto", log, {"expert": "auto"}
        yield f"{name}, dirty", partial(changed, log, dirty), {"expert": expert, **fitted}
    bandit, drawing = partial(simulated, "sbucb", 40), partial(simulated, "sbts", 41)
    yield "mixed units", partial(changed, bandit, scaled), {"expert": "sbucb"}
    yield "mixed units, auto", partial(changed, drawing, scaled), {"expert": "auto"}
    yield "ragged", partial(changed, bandit, ragged), {"expert": "sbucb", "l2": 0.3}
    yield "ragged, auto", partial(changed, drawing, ragged), {"expert": "auto"}
    yield "tiny", partial(changed, bandit, partial(short, episodes=3, steps=8)), {"expert": "sbucb"}
    yield "tiny, auto", partial(changed, drawing, partial(short, episodes=4, steps=12)), {"expert": "auto"}
    one_step = partial(short, episodes=60, steps=1)
    yield "one step an episode", partial(changed, drawing, one_step), {"expert": "softmax", "l2": 1.0}
    few = partial(short, episodes=25, steps=1)
    yield "one step an episode, auto", partial(changed, bandit, few), {"expert": "auto"}
    yield "Algorithm 2 alone", bandit, {"expert": "sbucb", "l2": 0.3, "forecast": None}
    yield "the paper's solver", bandit, {"expert": "sbucb", "l2": 0.3, "solver": "paper"}
    for expert in ("sbucb", "softmax"):
        yield f"arms, {expert}", partial(arms, expert), {"expert": expert}
    yield "sparse", partial(changed, bandit, sparse), {"expert": "sbucb", "l2": 0.3}


def simulated(expert: str, seed: int, **how: Any) -> ibcb.BehaviorLog:
    """A log of the paper's world."""
    return ibcb.simulate("synthetic", expert=expert, seed=seed, noise=0.03, **SIZES, **how).log


def arms(expert: str) -> ibcb.BehaviorLog:
    """A log of arms with weights of their own."""
    world: dict[str, Any] = {"n_episodes": 6, "batch_size": 200, "n_arms": 6, "n_features": 3}
    return ibcb.simulate("arms", expert=expert, seed=42, **world).log


def changed(
    made: Callable[[], ibcb.BehaviorLog], change: Callable[[ibcb.BehaviorLog], ibcb.BehaviorLog]
) -> ibcb.BehaviorLog:
    """A log that is made, and then changed."""
    return change(made())


def sets(log: ibcb.BehaviorLog) -> list[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Candidates and choices of every stored episode of a log whose steps are alike."""
    return [(each.contexts.reshape(each.n_steps, -1, each.n_features), each.chosen) for _, each in log.episodes()]


def dirty(log: ibcb.BehaviorLog) -> ibcb.BehaviorLog:
    """One choice in twenty drawn again."""
    rng, episodes = np.random.default_rng(0), []
    for X, chosen in sets(log):
        again = rng.random(len(chosen)) < 0.05
        episodes.append((X, np.where(again, rng.integers(X.shape[1], size=len(chosen)), chosen)))
    return ibcb.BehaviorLog.from_episodes(episodes, warmup=log.warmup)


def scaled(log: ibcb.BehaviorLog) -> ibcb.BehaviorLog:
    """Features in units far apart."""
    units = 10.0 ** np.linspace(-3, 3, log.n_features)
    return ibcb.BehaviorLog.from_episodes([(X * units, chosen) for X, chosen in sets(log)], warmup=log.warmup)


def ragged(log: ibcb.BehaviorLog) -> ibcb.BehaviorLog:
    """From three to six candidates a step: those behind the chosen one go."""
    episodes = []
    for X, chosen in sets(log):
        counts = np.maximum(chosen + 1, 3 + np.arange(len(chosen)) % 4)
        episodes.append(([own[:count] for own, count in zip(X, counts, strict=True)], chosen))
    return ibcb.BehaviorLog.from_episodes(episodes, warmup=log.warmup)


def short(log: ibcb.BehaviorLog, episodes: int, steps: int) -> ibcb.BehaviorLog:
    """The first steps after the warm-up, cut into short episodes."""
    parts = sets(log)[log.warmup :]
    X, chosen = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    cuts = range(0, episodes * steps, steps)
    return ibcb.BehaviorLog.from_episodes([(X[at : at + steps], chosen[at : at + steps]) for at in cuts])


def sparse(log: ibcb.BehaviorLog) -> ibcb.BehaviorLog:
    """Small numbers are zeros, and are not stored."""
    episodes = []
    for X, chosen in sets(log):
        rows = np.where(np.abs(X) > 0.3, X, 0.0)
        episodes.append(([csr_array(own) for own in rows], chosen))
    return ibcb.BehaviorLog.from_episodes(episodes, warmup=log.warmup)


def answers(model: ibcb.IBCB, log: Any) -> Answers:
    """All that is answered of a log."""
    told: Answers = {
        "rewards": np.append(model.coef_, model.intercept_),
        "policies": model.policy_coefs_,
        "next policy": model.next_policy_coef_,
        "propensities": model.propensities(log),
        "propensities ahead": model.propensities(log, ahead=True),
        "kind": np.array(model.expert_),
        "verdict": np.array(model.verdict(log).level),
    }
    if model.forecast is not None:
        told["forecast"] = np.array([model.forecast(updates=k) for k in (1, 3, 8)])
    return told


def everything() -> Answers:
    """The answers of all logs, by the names of both."""
    kept: Answers = {}

    def keep(name: str, log: Any, how: dict[str, Any], client: Any = None) -> None:
        try:
            told = answers(ibcb.IBCB(**how).fit(log, client=client), log)
        except (ValueError, ibcb.SolverError) as error:
            told = {"refused": np.array(type(error).__name__)}
        kept.update({f"{name}: {what}": np.asarray(value) for what, value in told.items()})
        print(name, flush=True)

    for name, made, how in logs():
        keep(name, made(), how)
    with tempfile.TemporaryDirectory() as folder:
        for name, made, how in [each for each in logs() if each[0] in ("sbucb", "sbts, auto", "ragged")]:
            for suffix in (".parquet", ".csv"):
                path = Path(folder) / f"log{suffix}"
                ibcb.write_log(made(), path)
                keep(f"{name}, streamed{suffix}", ibcb.open_log(path), how)
        _on_a_cluster(Path(folder) / "log.parquet", keep)
    return kept


def _on_a_cluster(path: Path, keep: Callable[..., None]) -> None:
    from distributed import Client

    options: dict[str, Any] = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with Client(**options) as client:  # type: ignore[no-untyped-call]
        keep("ragged, on Dask", ibcb.open_log(path), {"expert": "sbucb", "l2": 0.3}, client)


def difference(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Of two answers, relative to the largest number; infinite where they cannot be compared."""
    if one.dtype.kind == "U" or one.shape != other.shape:
        return 0.0 if np.array_equal(one, other) else np.inf
    with np.errstate(invalid="ignore"):
        return float(np.max(np.abs(one - other), initial=0.0) / max(np.max(np.abs(other), initial=0.0), 1e-300))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="file to keep the answers in")
    parser.add_argument("--beside", type=Path, help="file with the answers of another version")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    now = everything()
    if given.keep is not None:
        np.savez_compressed(given.keep, **now)  # type: ignore[arg-type]
    if given.beside is None:
        return 0
    before = dict(np.load(given.beside))
    apart = {name: difference(now[name], before[name]) if name in now else np.inf for name in before}
    for name in sorted(apart, key=lambda name: -apart[name]):
        if apart[name] > SAME:
            shown = f"{before[name]} -> {now.get(name)}" if before[name].dtype.kind == "U" else ""
            print(f"{apart[name]:9.1e}  {name}  {shown}")
    print(f"{sum(value <= SAME for value in apart.values())} of {len(apart)} answers are the same to {SAME:g}.")
    return int(any(value > SAME for value in apart.values()))


if __name__ == "__main__":
    raise SystemExit(main())
