"""Running times as ratios, in one process and one thread: our fit, the paper's solver, and the floor.

    python benchmarks/speed.py [--repeats 15] [--json]

The fit is without forecast, as the paper's; the default fit has it. The floor is what no method can avoid that looks at
every row once: one matrix product and one matrix-vector product over the contexts of every episode. Contenders take
turns, so that the noise of the machine falls on all alike; of each log the best of the repeats counts, and times are
added up over the logs of several seeds.

In the end, how long a fresh Python takes to import ibcb and to print the help, beside importing NumPy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import ibcb


def floor(log: ibcb.BehaviorLog) -> None:
    """One GEMM and one GEMV over the contexts of every episode."""
    d = log.n_features
    matrix, vector = np.eye(d, dtype=log.contexts.dtype), np.ones(d, dtype=log.contexts.dtype)
    for episode in log:
        episode.contexts @ matrix
        episode.contexts @ vector


def fit(log: ibcb.BehaviorLog, setting: dict[str, Any]) -> None:
    ibcb.IBCB(**setting).fit(log)


def best_times(contenders: dict[str, Callable[[], object]], repeats: dict[str, int]) -> dict[str, float]:
    """Best wall time of each, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(max(repeats.values())):
        for name, run in contenders.items():
            if turn < repeats[name]:
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


STARTS = {
    "python": ["-c", ""],
    "import numpy": ["-c", "import numpy"],
    "import ibcb": ["-c", "import ibcb"],
    "ibcb --help": ["-m", "ibcb", "--help"],
    "ibcb fit --help": ["-m", "ibcb", "fit", "--help"],
}


def start(arguments: list[str]) -> None:
    """A fresh process of Python."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def start_times(repeats: int, as_json: bool) -> None:
    """How light we are to start, as ratios to `import numpy`; what Python itself takes is in both."""
    contenders: dict[str, Callable[[], object]] = {name: partial(start, words) for name, words in STARTS.items()}
    times = best_times(contenders, dict.fromkeys(STARTS, repeats))
    ratios = {name: seconds / times["import numpy"] for name, seconds in times.items()}
    if as_json:
        print(json.dumps({"start": times, "start_over_numpy": ratios}), flush=True)
        return
    print(f"\n{'start':22}{'time':>10}   / import numpy   bar")
    for name, seconds in times.items():
        bar = "<= 5" if "ibcb" in name else ""
        print(f"{name:22}{f'{1000 * seconds:.0f} ms':>10}{ratios[name]:>17.2f}   {bar}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="turns of the fast contenders (default 15)")
    parser.add_argument("--seeds", type=int, default=3, help="how many logs of each kind (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    if not options.json:
        print(f"{'setting':22}{'fit':>10}{'default':>11}{'paper':>11}{'floor':>9}   paper / fit   fit / floor   bars")
    settings: list[dict[str, Any]] = [{"expert": "sbucb"}, {"expert": "sbucb", "l2": 0.3}, {"expert": "sbts"}]
    for setting in settings:
        times = dict.fromkeys(("fit", "default", "floor", "paper"), 0.0)
        for seed in range(options.seeds):
            log = ibcb.simulate("synthetic", expert=setting["expert"], noise=0.03, seed=seed).log
            with threadpool_limits(1):
                found = best_times(
                    {
                        "fit": partial(fit, log, setting | {"forecast": None}),
                        "default": partial(fit, log, setting),
                        "floor": partial(floor, log),
                        "paper": partial(fit, log, setting | {"solver": "paper", "forecast": None}),
                    },
                    {"fit": options.repeats, "default": options.repeats, "floor": options.repeats, "paper": 2},
                )
            times = {name: total + found[name] / options.seeds for name, total in times.items()}
        ratios = {"paper_over_fit": times["paper"] / times["fit"], "fit_over_floor": times["fit"] / times["floor"]}
        if options.json:
            print(json.dumps(setting | times | ratios), flush=True)
            continue
        names = ("fit", "default", "paper", "floor")
        ours, whole, paper, least = (f"{1000 * times[name]:.1f} ms" for name in names)
        ratio, over = f"{ratios['paper_over_fit']:.1f}", f"{ratios['fit_over_floor']:.2f}"
        bars = ">= 15, <= 6" if setting["expert"] == "sbucb" else ""
        name = ", ".join(f"{value}" if key == "expert" else f"{key}={value}" for key, value in setting.items())
        print(f"{name:22}{ours:>10}{whole:>11}{paper:>11}{least:>9}{ratio:>14}{over:>14}   {bars}".rstrip(), flush=True)
    start_times(options.repeats, options.json)


if __name__ == "__main__":
    main()
