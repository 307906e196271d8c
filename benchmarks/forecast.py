"""What the forecast is worth: BT-Fitness against the final expert, beside ChoiceModel, BaseSVC and the paper's IBCB.

    python benchmarks/forecast.py [--seeds 5] [--first-seed 200] [--movielens] [--json]

Prints a row per setting and expert: our fit on the log, or on its first episodes with the forecast run to the end; the
same fit without a forecast; the conditional logit on the last episode and the last 3; BaseSVC; what the paper has for
its IBCB there; and the bar that this project has set itself. `--movielens` adds MovieLens 100K (IBCB_ML100K, or a
download). Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ibcb
from ibcb.estimators.choice_model import ChoiceModel
from ibcb.paper.rivals import BaseSVC


class Setting(NamedTuple):
    """A world, how many of its episodes are seen, and the bars: absolute for each expert, and against ChoiceModel."""

    name: str
    world: dict[str, Any]
    seen: int | None = None
    bars: tuple[float | None, float | None] = (None, None)
    paper: tuple[float | None, float | None] = (None, None)
    seeds: int = 1
    split: str = "test"


STANDARD: dict[str, Any] = {"noise": 0.03}
SETTINGS = (
    Setting("20 episodes", STANDARD, None, (0.994, 0.992), (0.972, 0.963)),
    Setting("first 10", STANDARD, 10, (0.96, 0.96), (0.89, None)),
    Setting("first 4", STANDARD, 4, (0.86, 0.85), seeds=2),
    Setting("3 episodes", STANDARD | {"n_episodes": 3}),
    Setting("3 episodes of 100", STANDARD | {"n_episodes": 3, "batch_size": 100}, seeds=2),
    Setting("B = 50", STANDARD | {"batch_size": 50}, seeds=2),
    Setting("B = 100", STANDARD | {"batch_size": 100}),
    Setting("d = 30, B = 500", STANDARD | {"n_features": 30, "batch_size": 500}),
    Setting("std 0", {"noise": 0.0}),
    Setting("std 0.1", {"noise": 0.1}),
    Setting("out of distribution", STANDARD, split="ood"),
)
#: at most this far behind the better ChoiceModel
BEHIND = 0.003


def agreement(policy: NDArray[np.float64], log: ibcb.BehaviorLog) -> float:
    """Share of steps where the greedy choice under the policy is the logged one."""
    assert log.candidates_per_step is not None
    return float(np.mean((log.contexts @ policy).reshape(-1, log.candidates_per_step).argmax(axis=1) == log.chosen))


def measure(run: ibcb.Run, setting: Setting) -> dict[str, float]:
    """BT-Fitness of every contender on one run."""
    kind, log = run.expert_settings.kind, run.log
    updates = 1
    if setting.seen is not None:
        updates, log = len(log) + 1 - setting.seen, log.head(setting.seen / len(log))
    test = run.ood_log if setting.split == "ood" else run.test_log
    assert test is not None
    policies = {
        "ours": ibcb.IBCB(expert=kind).fit(log).forecast(updates),
        "no forecast": ibcb.IBCB(expert=kind, forecast=None).fit(log).next_policy_coef_,
        "logit, last": ChoiceModel(episodes=1).fit(log).coef_,
        "logit, last 3": ChoiceModel(episodes=3).fit(log).coef_,
        "BaseSVC": BaseSVC().fit(log).coef_,
    }
    return {name: agreement(policy, test) for name, policy in policies.items()}


def rows(seeds: range, movielens: bool) -> Iterator[dict[str, Any]]:
    settings = SETTINGS + ((Setting("MovieLens 100K", {}, paper=(0.925, 0.925)),) if movielens else ())
    for setting in settings:
        for number, kind in enumerate(("sbucb", "sbts")):
            found = []
            for seed in range(seeds.start, seeds.start + len(seeds) * setting.seeds):
                environment = "synthetic" if setting.world else "movielens"
                found.append(measure(ibcb.simulate(environment, expert=kind, seed=seed, **setting.world), setting))
            means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
            rival = max(means["logit, last"], means["logit, last 3"])
            bar = max(setting.bars[number] or 0.0, rival - BEHIND)
            if not setting.world:
                bar = max(means["no forecast"], rival)
            yield {
                "setting": setting.name,
                "expert": kind,
                **means,
                "paper": setting.paper[number],
                "bar": bar,
                "met": means["ours"] >= bar,
            }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--movielens", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    missed = 0
    for row in rows(range(options.first_seed, options.first_seed + options.seeds), options.movielens):
        missed += not row["met"]
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        figures = "  ".join(f"{name} {value:.4f}" for name, value in row.items() if isinstance(value, float))
        print(f"{row['setting']:20} {row['expert']:6} {figures}  {'' if row['met'] else 'MISSED'}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
