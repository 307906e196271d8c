"""A learner of Vowpal Wabbit with -q ui, read with --cross and without.

    python benchmarks/crosses.py [--seeds 3] [--first-seed 0] [--json]

What an item is worth depends on the user. The learner (``--cb_explore_adf -q ui``) sees features of both, the user's on
the ``shared`` line, learns between batches and is frozen within them; its log is Vowpal Wabbit text. IBCB is fitted to
it with ``cross=[("ui",)]`` and without. Printed is how often each agrees with the learner's greedy choices after the
log, on fresh steps. Exit code 1 if the cross does not gain 10 points on average, for each of the ways to explore.

Needs ``pip install "ibcb[test]"``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ibcb

EXPLORES = {"epsilon": "--epsilon 0.1", "softmax": "--softmax --lambda 8", "squarecb": "--squarecb --gamma_scale 10"}
EPISODES, STEPS, FRESH, CANDIDATES = 10, 400, 1000, 6
LEAST_GAIN = 0.10


def lines(user: NDArray[Any], items: NDArray[Any]) -> list[str]:
    """One step as text: the user's features, then each item's."""
    text = [
        " ".join(f"{name}{place}:{value:.4f}" for place, value in enumerate(row))
        for name, row in [("a", user), *(("b", item) for item in items)]
    ]
    return [f"shared |user {text[0]}", *(f"|item {item}" for item in text[1:])]


def block(step: list[str], chosen: int) -> str:
    """A step of the log; costs and probabilities are never read."""
    return "\n".join(f"0:0:1 {line}" if place == chosen + 1 else line for place, line in enumerate(step)) + "\n\n"


def logs(folder: Path, explore: str, seed: int) -> None:
    """Write what the learner chose while it learned, and what it would choose on fresh steps."""
    from vowpalwabbit import Workspace

    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(4, 5))
    vw = Workspace(f"--cb_explore_adf {EXPLORES[explore]} -q ui --power_t 0 --random_seed {seed + 1} --quiet")
    learned: list[tuple[list[str], int, float, float]] = []
    with (folder / "log.vw").open("w") as file:
        for step in range(EPISODES * STEPS):
            if step % STEPS == 0:
                for seen, pick, paid, chance in learned:
                    labelled = list(seen)
                    labelled[pick + 1] = f"0:{paid:.4f}:{chance:.6f} {seen[pick + 1]}"
                    vw.learn(labelled)
                learned = []
            user, items = rng.normal(size=4), rng.normal(size=(CANDIDATES, 5))
            shown = lines(user, items)
            p = np.array(vw.predict(shown))
            chosen = int(rng.choice(CANDIDATES, p=p / p.sum()))
            cost = -float(user @ taste @ items[chosen]) / 4 + rng.normal(scale=0.1)
            learned.append((shown, chosen, cost, float(p[chosen])))
            file.write(block(shown, chosen))
    with (folder / "fresh.vw").open("w") as file:
        for _ in range(FRESH):
            shown = lines(rng.normal(size=4), rng.normal(size=(CANDIDATES, 5)))
            file.write(block(shown, int(np.argmax(vw.predict(shown)))))
    vw.finish()


def agreement(folder: Path, cross: Sequence[tuple[str, ...]]) -> float:
    """Of a model of the log with the learner's own choices on fresh steps."""
    log = ibcb.read_log(folder / "log.vw", episode_size=STEPS, cross=cross)
    model = ibcb.IBCB(expert="auto").fit(log)
    return model.score(ibcb.read_log(folder / "fresh.vw", episode_size=FRESH, preparation=model.preparation_))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    missed = 0
    for explore in EXPLORES:
        found = []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            with tempfile.TemporaryDirectory() as name:
                logs(Path(name), explore, seed)
                crosses: tuple[list[tuple[str, ...]], ...] = ([], [("ui",)])
                found.append([agreement(Path(name), cross) for cross in crosses])
        without, crossed = np.mean(found, axis=0)
        ok = crossed - without >= LEAST_GAIN
        missed += not ok
        if options.json:
            print(json.dumps({"explore": explore, "without": without, "crossed": crossed}), flush=True)
        else:
            gain = f"gain {100 * (crossed - without):+.1f} points"
            print(
                f"{explore:9} without {without:.3f}  crossed {crossed:.3f}  {gain}{'' if ok else '  MISSED'}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
