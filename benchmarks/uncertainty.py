"""Do 90% intervals hold the truth nine times in ten, and are probabilities what they say?

    python benchmarks/uncertainty.py [--logs 40] [--first-seed 400] [--only TEXT] [--json]

*policy*: intervals of `IBCB.policy_interval` for the weights of the last logged episode's policy, against the policy
that the simulated decider had; *direction*: the same at a common length; *rewards*: intervals of
`IBCB.reward_interval`, against least squares with an intercept on the true rewards of the choices. Pooled over weights
and logs; the bar is 85 to 95%. *certainty*: of fresh candidate sets, the largest difference between what
`IBCB.certainty` says and the share of steps on which the decider's next policy agrees, in any tenth of the
probabilities that holds 5% of the steps; the bar is .02. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import ibcb

#: episodes, steps, features
SIZES = ((8, 300, 8), (5, 500, 10), (20, 1000, 10), (20, 100, 10), (10, 500, 20), (2, 500, 10))
#: fresh candidate sets of each log whose choices are compared
FRESH = 500
LOW, HIGH, MOST_OFF = 0.85, 0.95, 0.02

Flags = NDArray[np.bool_]


def inside(interval: Any, truth: NDArray[np.float64]) -> Flags:
    found: Flags = (interval.lower <= truth) & (truth <= interval.upper)
    return found


def measure(kind: str, size: tuple[int, int, int], seed: int) -> dict[str, NDArray[Any]]:
    """Which weights of one simulated log lie in their intervals; what was said of fresh choices, and what happened."""
    episodes, steps, d = size
    run = ibcb.simulate(
        "synthetic", expert=kind, noise=0.03, n_episodes=episodes, batch_size=steps, n_features=d, seed=seed
    )
    alpha, l2 = run.expert_settings.alpha, run.expert_settings.l2
    model = ibcb.IBCB(expert=kind, l2=l2, alpha=alpha).fit(run.log)
    last = run.policy_coefs[episodes - 1]
    S = run.log.contexts[run.log.chosen_rows]
    squares = np.linalg.lstsq(np.column_stack([S, np.ones(len(S))]), run.rewards, rcond=None)[0]
    fresh = run.test_log.contexts.reshape(-1, 10, d)[:FRESH]
    return {
        "policy": inside(model.policy_interval(0.9), last),
        "direction": inside(model.policy_interval(0.9, direction=True), model.direction(last)),
        "rewards": inside(model.reward_interval(0.9), squares),
        "said": model.certainty(fresh),
        "happened": model.predict(fresh) == run.test_log.chosen[:FRESH],
    }


def most_off(said: NDArray[np.float64], happened: Flags) -> float:
    """The largest difference between probability and frequency in a tenth that holds 5% of the steps."""
    tenth = np.minimum((10 * said).astype(int), 9)
    parts = [tenth == place for place in range(10)]
    return max(abs(float(said[part].mean() - happened[part].mean())) for part in parts if part.mean() >= 0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", type=int, default=40, help="simulated logs of each kind and size (default 40)")
    parser.add_argument("--first-seed", type=int, default=400)
    parser.add_argument("--only", default="", help="only settings whose name contains this text")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    missed = 0
    for size in SIZES:
        for kind in ("sbucb", "sbts"):
            name = f"{kind} {' x '.join(map(str, size))}"
            if options.only not in name:
                continue
            seeds = range(options.first_seed, options.first_seed + options.logs)
            found = [measure(kind, size, seed) for seed in tqdm(seeds, desc=name, leave=False, disable=None)]
            pooled = {key: np.concatenate([each[key] for each in found]) for key in found[0]}
            shares = {key: float(pooled[key].mean()) for key in ("policy", "direction", "rewards")}
            off = most_off(pooled["said"], pooled["happened"])
            missed += sum(not LOW <= share <= HIGH for share in shares.values()) + (off > MOST_OFF)
            if options.json:
                print(json.dumps({"setting": name, **shares, "certainty_off": off}), flush=True)
            else:
                figures = "  ".join(f"{key} {share:.3f}" for key, share in shares.items())
                print(f"{name:20} {figures}  certainty off by {off:.3f}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
