"""Do conclusions depend on the units of the features?

    python benchmarks/units.py [--seeds 4] [--first-seed 600] [--json]

Features of simulated logs are multiplied by 10^U(-2, 3), as columns in euros, days and counts are, and fitted before
and after. Printed are the cosine of the last policy with the decider's own, brought back to its units, BT-Fitness, and
the kind found. Fits are named, with the decider's l2 as a number and with l2="auto", and expert="auto". Exit code 1 if
a cosine is below .98, if more than .01 of BT-Fitness is lost, or if another kind is found.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ibcb

#: episodes and steps
SIZES = ((10, 400), (20, 1000))
LEAST_COSINE, MOST_LOST = 0.98, 0.01


def scaled(log: ibcb.BehaviorLog, factors: NDArray[np.float64]) -> ibcb.BehaviorLog:
    """The log with its features multiplied."""
    offsets = (log.step_offsets, log.chosen, log.episode_offsets)
    return ibcb.BehaviorLog(log.contexts * factors, *offsets, warmup=log.warmup)


def measure(run: ibcb.Run, settings: dict[str, Any], factors: NDArray[np.float64]) -> tuple[float, float, str]:
    """Cosine with the decider's last policy, BT-Fitness and kind, with features multiplied."""
    model = ibcb.IBCB(**settings).fit(scaled(run.log, factors))
    mine, its = model.policy_coefs_[-1] * factors, run.policy_coefs[len(run.log) - 1]
    cosine = float(mine @ its / np.linalg.norm(mine) / np.linalg.norm(its))
    return cosine, model.score(scaled(run.test_log, factors)), model.expert_


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=600)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    missed = 0
    for kind in ("sbucb", "sbts"):
        fits: dict[str, dict[str, Any]] = {
            "named, l2 a number": {"expert": kind, "l2": 0.3},
            "named": {"expert": kind},
            "auto": {"expert": "auto"},
        }
        for episodes, steps in SIZES:
            for name, settings in fits.items():
                found = []
                for seed in range(options.first_seed, options.first_seed + options.seeds):
                    run = ibcb.simulate("synthetic", expert=kind, n_episodes=episodes, batch_size=steps, seed=seed)
                    factors = 10 ** np.random.default_rng(seed).uniform(-2, 3, run.log.n_features)
                    plain, mixed = (measure(run, settings, by) for by in (np.ones(len(factors)), factors))
                    found.append((mixed[0], plain[1], mixed[1], plain[2] == mixed[2]))
                cosine, before, after, same = np.array(found, dtype=np.float64).T
                ok = cosine.min() >= LEAST_COSINE and (before - after).max() <= MOST_LOST and same.all()
                missed += not ok
                row = {
                    "decider": kind,
                    "size": f"{episodes} x {steps}",
                    "fit": name,
                    "least_cosine": float(cosine.min()),
                    "bt_own_units": float(before.mean()),
                    "bt_mixed_units": float(after.mean()),
                    "same_kind": int(same.sum()),
                }
                if options.json:
                    print(json.dumps(row), flush=True)
                else:
                    figures = f"cosine at least {cosine.min():.4f}  BT {before.mean():.4f} -> {after.mean():.4f}"
                    kinds = f"same kind {int(same.sum())} of {len(same)}"
                    print(
                        f"{kind:6} {row['size']:10} {name:20} {figures}  {kinds}{'' if ok else '  MISSED'}", flush=True
                    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
