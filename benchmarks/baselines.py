"""B-IRL and B-ICB beside plain implementations of the same algorithms, in one process and one thread.

    python benchmarks/baselines.py [--fraction 0.02] [--repeats 3] [--json]

The plain ones, tests/baselines/plain.py, are oracles of the tests: same random numbers, same chains. They are run for a
fraction of the paper's iterations, from the same start, and CPU time is compared per iteration; contenders take turns
and the best of the repeats counts. For B-ICB there are two: one inverts the rewards' precision in every sweep, as the
public script is written, the other once for all sweeps, as a compiler may make of it. A whole fit of each estimator, at
the paper's settings, comes last.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import ibcb
from ibcb.numerics.checks import generator
from ibcb.paper.rivals import BICB, BIRL
from ibcb.paper.rivals.bicb import expectation
from ibcb.paper.rivals.gibbs import GibbsBeliefs, GibbsSteps


def load_plain() -> Any:
    path = Path(__file__).parents[1] / "tests" / "paper" / "plain.py"
    spec = importlib.util.spec_from_file_location("plain", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cpu_times(contenders: dict[str, tuple[Callable[[], object], int]], repeats: int) -> dict[str, float]:
    """Best CPU seconds per iteration of each, taking turns; an entry is what to run and the iterations it makes."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, (run, iterations) in contenders.items():
            start = time.process_time()
            run()
            times[name].append((time.process_time() - start) / iterations)
    return {name: min(values) for name, values in times.items()}


def birl_contenders(log: ibcb.BehaviorLog, fraction: float) -> dict[str, tuple[Callable[[], object], int]]:
    """The first steps of the plain chain, all of which cost the same, and the whole of ours, where they do not."""
    plain = load_plain()
    contexts, chosen = plain.arrays(log)
    few = max(20, round(20_000 * fraction))
    return {
        "plain": (lambda: plain.birl_chain(contexts, chosen, generator(0), few), few),
        "ibcb": (lambda: BIRL(random_state=0).fit(log), 19_991),
    }


def bicb_contenders(log: ibcb.BehaviorLog, fraction: float) -> dict[str, tuple[Callable[[], object], int]]:
    plain = load_plain()
    steps = np.linspace(log.policy_steps.start, log.n_steps - 1, 200).astype(np.int64)
    contexts, chosen = plain.arrays(log, steps)
    d = log.n_features
    beliefs = GibbsBeliefs(GibbsSteps(log, steps, 20.0), 1.0, 0.1)
    coef, few = np.full(d, -1 / d), max(4, round(2_000 * fraction))

    def ours() -> object:
        return expectation(beliefs, coef, generator(0), n_sweeps=2_000, n_dropped=1_000, determinant=True)

    def as_written() -> object:
        return plain.bicb_expectation(contexts, chosen, 1.0, coef, generator(0), few, 0)

    def hoisted() -> object:
        return plain.bicb_expectation(contexts, chosen, 1.0, coef, generator(0), 20 * few, 0, hoist=True)

    return {"plain": (as_written, few), "plain, hoisted": (hoisted, 20 * few), "ibcb": (ours, 2_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fraction", type=float, default=0.02, help="of the plain iterations to run (default 0.02)")
    parser.add_argument("--repeats", type=int, default=3, help="turns (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    log = ibcb.simulate("synthetic", expert="sbucb", noise=0.03, seed=0).log
    with threadpool_limits(1):
        for name, contenders in (
            ("B-IRL", birl_contenders(log, options.fraction)),
            ("B-ICB", bicb_contenders(log, options.fraction)),
        ):
            times = cpu_times(contenders, options.repeats)
            for other, seconds in times.items():
                ratio = seconds / times["ibcb"]
                if options.json:
                    print(json.dumps({"algorithm": name, "code": other, "seconds": seconds, "ratio": ratio}))
                else:
                    print(f"{name:8}{other:16}{seconds * 1e6:12.1f} us per iteration{ratio:10.1f} x ibcb's")
        for name, model in (("B-IRL", BIRL(random_state=0)), ("B-ICB", BICB(random_state=0))):
            start = time.process_time()
            model.fit(log)
            seconds = time.process_time() - start
            if options.json:
                print(json.dumps({"algorithm": name, "code": "ibcb, whole fit", "seconds": seconds}))
            else:
                print(f"{name:8}{'whole fit':16}{seconds:12.1f} s of CPU")


if __name__ == "__main__":
    main()
