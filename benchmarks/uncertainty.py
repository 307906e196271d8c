"""Do 90% intervals hold the truth nine times in ten?

    python benchmarks/uncertainty.py [--logs 100] [--first-seed 400] [--json]

Intervals of `IBCB.policy_interval` for the weights of the last logged episode's policy, against the policy that the
simulated decider had: divided by alpha for SBUCB, as a unit direction for SBTS. Pooled over weights and logs; exit code
1 if a pooled share lies outside 85 to 95%.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np
from tqdm import tqdm

import ibcb

#: episodes, steps, features
SIZES = ((8, 300, 8), (5, 500, 10), (20, 1000, 10), (10, 500, 20))


def covered(kind: str, size: tuple[int, int, int], seed: int, l2: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which weights of one simulated log lie in their intervals."""
    episodes, steps, d = size
    run = ibcb.simulate(
        "synthetic", expert=kind, noise=0.03, n_episodes=episodes, batch_size=steps, n_features=d, seed=seed
    )
    interval = ibcb.IBCB(expert=kind, l2=l2).fit(run.log).policy_interval(0.9)
    truth = run.policy_coefs[episodes - 1]
    truth = truth / run.expert_settings.alpha if kind == "sbucb" else truth / np.linalg.norm(truth)
    inside: np.ndarray[tuple[int], np.dtype[np.bool_]] = (interval.lower <= truth) & (truth <= interval.upper)
    return inside


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", type=int, default=100, help="simulated logs of each kind and size (default 100)")
    parser.add_argument("--first-seed", type=int, default=400)
    parser.add_argument("--l2", type=float, default=0.3, help="as told to the fit; the decider's own is 0.3")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    wrong = 0
    for size in SIZES:
        for kind in ("sbucb", "sbts"):
            seeds = range(options.first_seed, options.first_seed + options.logs)
            bar = tqdm(seeds, desc=f"{kind} {size}", leave=False, disable=None)
            share = float(np.mean([covered(kind, size, seed, options.l2) for seed in bar]))
            wrong += not 0.85 <= share <= 0.95
            if options.json:
                print(json.dumps({"expert": kind, "size": size, "l2": options.l2, "covered": share}), flush=True)
            else:
                print(f"{kind:6} {' x '.join(map(str, size)):14} covered {share:.3f}   bar .85 to .95", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
