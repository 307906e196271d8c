"""Are the rewards those that the decider found?

    python benchmarks/rewards.py [--seeds 5] [--first-seed 640] [--movielens] [--json]

OL-Fitness: the expert learns again, with the same luck, in a world whose rewards are the recovered ones. Beside ours
(with an intercept) are the bare Algorithm 2 (without), and least squares on the true rewards of the choices, with an
intercept and without. "cosine" is that of our weights with least squares, over the scores of candidates. With
--movielens the files are needed, see `ibcb.simulate`. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

import ibcb

#: least OL-Fitness of ours: on the synthetic data, and the paper's own on MovieLens
BARS = {
    ("synthetic", "sbucb"): 0.97,
    ("synthetic", "sbts"): 0.94,
    ("movielens", "sbucb"): 0.862,
    ("movielens", "sbts"): 0.835,
}


def measure(run: ibcb.Run) -> dict[str, float]:
    """OL-Fitness of all rewards on one run."""
    log, kind, alpha = run.log, run.expert_settings.kind, run.expert_settings.alpha
    S, first = log.contexts[log.chosen_rows], log.policy_steps
    with_one = np.column_stack([S, np.ones(len(S))])
    full = np.linalg.lstsq(with_one, run.rewards, rcond=None)[0]
    plain = np.linalg.lstsq(S, run.rewards, rcond=None)[0]
    ours = ibcb.IBCB(expert=kind, alpha=alpha).fit(log)
    bare = ibcb.IBCB(expert=kind, alpha=alpha, forecast=None).fit(log)
    steps = np.repeat(np.arange(log.n_steps), np.diff(log.step_offsets))
    means = np.add.reduceat(log.contexts, log.step_offsets[:-1]) / np.diff(log.step_offsets)[:, None]
    spread = (log.contexts - means[steps]) @ np.column_stack([ours.coef_, full[:-1]])
    return {
        "ours": ibcb.metrics.ol_fitness(ours, run),
        "bare": ibcb.metrics.ol_fitness(bare, run),
        "least squares": float(np.mean(run.replay(full[:-1], float(full[-1])) == log.chosen[first])),
        "without intercept": float(np.mean(run.replay(plain) == log.chosen[first])),
        "cosine": float(np.corrcoef(spread.T)[0, 1]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=640)
    parser.add_argument("--movielens", action="store_true", help="on MovieLens 100K too")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    missed = 0
    worlds: list[tuple[str, dict[str, Any]]] = [("synthetic", {"noise": 0.0}), ("synthetic", {"noise": 0.1})]
    worlds += [("movielens", {})] if options.movielens else []
    for world, settings in worlds:
        for kind in ("sbucb", "sbts"):
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            found = [measure(ibcb.simulate(world, expert=kind, seed=seed, **settings)) for seed in seeds]
            means = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
            bar = BARS[world, kind]
            missed += means["ours"] < bar
            noise = f" noise {settings['noise']:g}" if settings else ""
            if options.json:
                print(json.dumps({"world": world, "decider": kind, **settings, **means, "bar": bar}), flush=True)
            else:
                figures = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
                print(f"{world}{noise:10} {kind:6} {figures}  bar {bar}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
