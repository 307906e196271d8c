"""Reading logs: speed beside pyarrow alone, and the memory that streaming through a large one takes.

    python benchmarks/logs.py [--bytes 2e9] [--folder DIR] [--repeats 3] [--json]

Speed: `read_log` against `pyarrow.parquet.read_table` plus a copy of every column to numpy, same file, turn by turn, as
a ratio of the best wall-clock times (0.5 means half as fast). Memory: a log of the given size, with a row per step and
with a row per candidate, is validated and converted, each in a process of its own; its peak resident memory is given
above what the interpreter had at its start, before anything was imported. Exit code 1 if a bar is missed: ratio 0.5,
and 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ibcb
from ibcb.io.parquet import write_steps
from ibcb.io.written import long_tables
from ibcb.log.steps import Steps

CHILD = """
import re, sys

def peak():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", file.read())[1]) * 1024

start = peak()
import ibcb
log = ibcb.open_log(sys.argv[2])
if sys.argv[1] == "validate":
    ibcb.validate(log)
else:
    ibcb.write_log(log, sys.argv[3])
print(peak() - start)
"""
EPISODES, CANDIDATES, FEATURES = 20, 10, 50


def parts(size: float) -> Iterator[tuple[int, ibcb.BehaviorLog]]:
    """Episodes of a log of about that many bytes in float32."""
    steps = max(1, round(size / (EPISODES * CANDIDATES * FEATURES * 4)))
    rng = np.random.default_rng(0)
    for number in range(EPISODES):
        first = 0
        while first < steps:
            count = min(20_000, steps - first)
            contexts = rng.standard_normal((count * CANDIDATES, FEATURES), dtype=np.float32)
            chosen = rng.integers(CANDIDATES, size=count)
            yield number, ibcb.BehaviorLog.part(Steps(contexts, np.full(count, CANDIDATES), chosen), (number, first))
            first += count


def write_long(size: float, path: Path) -> None:
    writer: Any = None
    for table in long_tables(parts(size)):
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def copied(table: pa.Table) -> list[Any]:
    """Every column as numpy, copied."""
    arrays = []
    for column in table.columns:
        flat = column.combine_chunks()
        values = flat.flatten() if hasattr(flat, "flatten") and not pa.types.is_primitive(flat.type) else flat
        arrays.append(np.array(values.to_numpy(zero_copy_only=False)))
    return arrays


def best(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def speed(path: Path, repeats: int) -> float:
    """How fast we are, in units of pyarrow's speed."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(repeats):
        theirs.append(best(lambda: copied(pq.read_table(path))))
        ours.append(best(lambda: ibcb.read_log(path)))
    return min(theirs) / min(ours)


def peak(what: str, path: Path, out: Path) -> int:
    """Bytes of resident memory above the interpreter's start."""
    command = [sys.executable, "-c", CHILD, what, str(path), str(out)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bytes", type=float, default=2e9, help="size of the large log (default 2e9)")
    parser.add_argument("--folder", type=Path, help="where to put it (default: a temporary folder)")
    parser.add_argument("--repeats", type=int, default=3, help="turns (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        for form in ("steps", "candidates"):
            small, large = folder / f"small-{form}.parquet", folder / f"large-{form}.parquet"
            for path, size in ((small, 1e8), (large, options.bytes)):
                write_steps(parts(size), path) if form == "steps" else write_long(size, path)
            figures: dict[str, float] = {"speed": speed(small, options.repeats)}
            for what in ("validate", "convert"):
                figures[what] = peak(what, large, folder / "out.parquet")
            missed |= figures["speed"] < 0.5 or max(figures["validate"], figures["convert"]) > 2**30
            size = large.stat().st_size
            if options.json:
                print(json.dumps({"rows": form, "bytes": size, **figures}))
                continue
            print(f"a row per {form[:-1]}: speed {figures['speed']:.2f} of pyarrow's; {size / 1e9:.2f} GB", end="")
            print(f" validated with {figures['validate'] / 2**20:.0f} MiB,", end="")
            print(f" converted with {figures['convert'] / 2**20:.0f} MiB")
            large.unlink()
    sys.exit(missed)


if __name__ == "__main__":
    main()
