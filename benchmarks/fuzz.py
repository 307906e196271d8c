"""Fuzzing: files of every format, and model files, altered at random and read, for as long as it is told.

    python benchmarks/fuzz.py [--minutes 1] [--first-seed 0] [--only NAME ...] [--list]

Each target runs in a process of its own for that long, so that its peak of memory is its own and a crash is seen. Each
seed alters a small log, in its bytes, in its words or in its arrays, and reads it whole and part by part. Both give the
same log, or refuse it with a `LogFormatError` in one printable line that names the file. Model files are loaded and
used: see `altered_models.py`. Prints how many examples each target had, how many were refused, the peak of memory, and
whatever else happened, with its seed. Exits with 1 if there was any.
"""

from __future__ import annotations

import argparse
import copy
import csv
import gzip
import io
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import altered_models
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from mutations import HOSTILE, VALUES, alter_arrays, alter_json, damaged, reworded
from timing import peak

import ibcb

Rng = np.random.Generator
Options = dict[str, Any]
#: what to read, and how
Example = tuple[Any, Options]

_MEMORY = "200MB"
#: seconds that a file of a few kilobytes may take
_SLOW = 20.0


# -- what is altered ---------------------------------------------------------------------------------------------------


def small_log() -> ibcb.BehaviorLog:
    """Two episodes of three steps of two candidates, with all that a log may have beside them."""
    rng = np.random.default_rng(0)
    return ibcb.BehaviorLog.from_episodes(
        [(rng.normal(size=(3, 2, 2)), [0, 1, 0]), (rng.normal(size=(3, 2, 2)), [1, 1, 0])],
        feature_names=["price", "stars"],
        step_ids=list("uvwxyz"),
        timestamps=np.datetime64("2024-01-01T00:00:00") + 8 * np.arange(6).astype("m8[h]"),
        propensities=np.tile([0.25, 0.75], 6),
    )


def long_table() -> pa.Table:
    """A row per candidate, with categories and a time."""
    rows = 12
    return pa.table(
        {
            "time": np.datetime64("2024-01-01T00:00:00") + 6 * (np.arange(rows) // 2).astype("m8[h]"),
            "step": np.arange(rows) // 2,
            "chosen": np.arange(rows) % 2,
            "price": np.random.default_rng(0).normal(size=rows),
            "genre": np.array(["a", "b", "c"])[np.arange(rows) % 3],
            "item_id": np.arange(rows) % 5,
        }
    )


_OPTIONS: list[Options] = [
    {},
    {"one_hot": ["genre"], "standardize": True},
    {"one_hot": True, "cross": [("price", "genre")], "min_count": 2},
    {"missing": "mean", "sort": True},
    {"missing": "zero", "deduplicate": True, "skip_unlabelled": True},
]
_WIDE = b"id,choice,price_car,price_bus,av_car,av_bus,age\n1,car,1.5,2,1,1,30\n2,bus,2.5,1,1,1,40\n3,bus,,1,0,1,35\n"
_ARMS = b"day,arm,age,free\n1,a,30,a|b\n1,b,40,a|b|c\n2,c,35,\n2,a,31,a|c\n"
_LISTS = b"".join(
    json.dumps(
        {"id": k, "user": {"age": 3 * k}, "items": [{"id": 3, "p": 1.5}, {"id": 9, "p": k}], "chosen": 9}
    ).encode()
    + b"\n"
    for k in range(4)
)
_VW = (
    b"shared |user age:31\n|item:2 price:0.5 red\n2:-1:0.25 |item price:0.25 |text sale\n\n"
    b"1:0:0.5 |item price:1 blue |text a:0.5\n|item price:2 city:paris\n\n"
)
_DSJSON = b"".join(
    json.dumps(
        {
            "_labelIndex": 1,
            "_label_Action": 2,
            "_label_cost": -1,
            "_label_probability": 0.8,
            "Timestamp": f"2020-11-15T17:09:3{second}.835Z",
            "EventId": f"38cb{second}",
            "a": [2, 1],
            "p": [0.8, 0.2],
            "c": {"user": {"age": 31}, "_multi": [{"item": {"price": 0.5, "colour": "red"}}, {"item": {"price": 2}}]},
        }
    ).encode()
    + b"\n"
    for second in range(4)
)
_ITEMS = b"item_id,item_feature_0,item_feature_1\n0,0.5,aa\n1,-1,bb\n2,2,aa\n"
_IMPRESSIONS = b"timestamp,item_id,position,click,propensity_score,user_feature_0," + (
    b"user-item_affinity_0,user-item_affinity_1,user-item_affinity_2\n"
    b"2019-11-24 00:00:22.579000+00:00,1,1,0,0.3,u,0,1,0\n2019-11-24 12:00:22+00:00,0,2,1,0.3,v,0,1,0\n"
    b"2019-11-25 00:00:22+00:00,2,3,0,0.3,u,1,0,4\n"
)
_TOML = b"""one_hot = ["genre"]
episode_every = "1d"
missing = "mean"
min_count = 2
cross = [["price", "genre"]]
drop = ["item_id"]

[columns]
chosen = "chosen"
timestamp = "time"
"""


def written(suffix: str, log: ibcb.BehaviorLog | None = None, **how: Any) -> bytes:
    """A log as a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log{suffix}"
        ibcb.write_log(log or small_log(), path, **how)
        return path.read_bytes()


def csv_bytes(table: pa.Table, delimiter: str = ",") -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return file.getvalue().encode()


def one_of(rng: Rng, *these: Any) -> Any:
    return these[rng.integers(len(these))]


# -- examples of each format -------------------------------------------------------------------------------------------


def saved(path: Path, content: bytes, options: Options) -> Example:
    path.write_bytes(content)
    return path, options


def csv_file(folder: Path, rng: Rng, delimiter: str = ",", packed: bool = False) -> Example:
    content, options = one_of(
        rng,
        (written(".csv"), {}),
        (csv_bytes(long_table(), delimiter), {"episode_every": "1d"} | one_of(rng, *_OPTIONS)),
        (_WIDE, {"alternatives": ["car", "bus"], "episode_size": 1, "missing": "zero"}),
        (_ARMS, {"arm": "arm", "available": "free", "columns": {"episode": "day"}}),
    )
    content = one_of(rng, damaged, reworded, reworded)(content, rng)
    if packed:
        content = gzip.compress(content)
        content = damaged(content, rng) if rng.random() < 0.7 else content
    return saved(folder / f"log.{'csv' if delimiter == ',' else 'tsv'}{'.gz' * packed}", content, options)


def json_lines(folder: Path, rng: Rng, packed: bool = False) -> Example:
    rows = "".join(json.dumps(row, default=str) + "\n" for row in long_table().to_pylist()).encode()
    content, options = one_of(
        rng, (rows, {"episode_every": "1d"} | one_of(rng, *_OPTIONS)), (_LISTS, {"episode_size": 2})
    )
    content = one_of(rng, damaged, reworded, altered_lines)(content, rng)
    if packed:
        content = gzip.compress(content)
        content = damaged(content, rng) if rng.random() < 0.7 else content
    return saved(folder / f"log.jsonl{'.gz' * packed}", content, options)


def altered_lines(content: bytes, rng: Rng) -> bytes:
    """Lines of JSON of which one is altered."""
    lines = [json.loads(line) for line in content.splitlines()]
    alter_json(lines, rng)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def vw_text(folder: Path, rng: Rng) -> Example:
    content = one_of(rng, damaged, reworded)(one_of(rng, written(".vw"), _VW), rng)
    options = one_of(rng, {}, {"cross": [("user", "item")]}, {"skip_unlabelled": True}, {"standardize": True})
    name = "log.vw"
    if rng.random() < 0.2:
        content, name = damaged(gzip.compress(content), rng), "log.vw.gz"
    return saved(folder / name, content, {"episode_size": 2} | options)


def dsjson(folder: Path, rng: Rng) -> Example:
    content = one_of(rng, damaged, reworded, altered_lines)(one_of(rng, written(".dsjson"), _DSJSON), rng)
    options = one_of(rng, {}, {"cross": [("user", "item")]}, {"episode_every": "1d", "sort": True})
    return saved(folder / "log.dsjson", content, {"episode_size": 2} | options if "sort" not in options else options)


def npz(folder: Path, rng: Rng) -> Example:
    content = written(".npz", one_of(rng, small_log(), sparse_log()))
    if rng.random() < 0.5:
        return saved(folder / "log.npz", damaged(content, rng), {})
    with np.load(io.BytesIO(content)) as file:
        arrays = dict(file)
    for _ in range(rng.integers(1, 3)):
        alter_numbers(arrays, rng)
    sink = io.BytesIO()
    np.savez(sink, **{name: array for name, array in arrays.items() if name != "file"}, allow_pickle=False)
    return saved(folder / "log.npz", sink.getvalue(), {})


def sparse_log() -> ibcb.BehaviorLog:
    rng = np.random.default_rng(0)
    return ibcb.BehaviorLog.from_arms([(rng.normal(size=(4, 2)), [0, 1, 2, 0])] * 2, n_arms=3)


def alter_numbers(arrays: dict[str, Any], rng: Rng) -> None:
    """Alter an array; text has no negative, and is left alone then."""
    try:
        alter_arrays(arrays, rng)
    except (TypeError, ValueError):
        return


def parquet(folder: Path, rng: Rng) -> Example:
    if rng.random() < 0.5:
        content = written(".parquet", one_of(rng, small_log(), sparse_log()), long=bool(rng.random() < 0.3))
        return saved(folder / "log.parquet", damaged(content, rng), {})
    sink = io.BytesIO()
    pq.write_table(altered_table(rng), sink, compression=one_of(rng, "snappy", "none", "zstd"))
    return saved(folder / "log.parquet", sink.getvalue(), {"episode_size": 2} | one_of(rng, *_OPTIONS))


def arrow(folder: Path, rng: Rng) -> Example:
    sink, new = io.BytesIO(), one_of(rng, pa.ipc.new_file, pa.ipc.new_stream)
    table = altered_table(rng) if rng.random() < 0.5 else long_table()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    content = one_of(rng, written(".arrow"), sink.getvalue())
    if rng.random() < 0.7:
        content = damaged(content, rng)
    return saved(folder / "log.arrow", content, {"episode_size": 2} | one_of(rng, *_OPTIONS))


_TYPES = [
    *(pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.string(), pa.large_string(), pa.binary(), pa.bool_()),
    *(pa.timestamp("ns"), pa.timestamp("s", "Europe/Berlin"), pa.date32(), pa.time64("us"), pa.duration("s")),
    *(pa.decimal128(30, 5), pa.list_(pa.float64()), pa.dictionary(pa.int32(), pa.string()), pa.null()),
]


def altered_table(rng: Rng) -> pa.Table:
    """A table of which columns have other types, names, values, or none."""
    table = long_table()
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(table.num_columns))
        name, column = table.column_names[at], table.column(at)
        way = rng.integers(6)
        try:
            if way == 0:
                table = table.remove_column(at) if table.num_columns > 1 else table
            elif way == 1:
                new = [
                    one_of(rng, HOSTILE, "", "x" * 300, "reward", "episode", *table.column_names),
                    *table.column_names,
                ]
                table = table.rename_columns([new[0] if place == at else old for place, old in enumerate(new[1:])])
            elif way == 2:
                table = table.set_column(at, name, column.cast(one_of(rng, *_TYPES), safe=False))
            elif way == 3:
                holes = pa.array(rng.random(len(table)) < rng.random())
                table = table.set_column(at, name, pa.compute.if_else(holes, None, column))
            elif way == 4:
                cells = column.to_pylist()
                cells[rng.integers(len(cells))] = one_of(rng, *VALUES)
                table = table.set_column(at, name, pa.array(cells))
            else:
                table = table.take(pa.array(rng.integers(len(table), size=rng.integers(20))))
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError):
            continue
    return table


def frame(folder: Path, rng: Rng) -> Example:
    table, options = altered_table(rng), {"episode_size": 2} | one_of(rng, *_OPTIONS)
    return (
        table.to_pandas() if rng.random() < 0.3 and len(set(table.column_names)) == table.num_columns else table
    ), options


def tables_folder(folder: Path, rng: Rng) -> Example:
    place = folder / "tables"
    rows = csv_bytes(long_table())
    for day in (1, 2):
        (place / f"day={day}").mkdir(parents=True, exist_ok=True)
        content = one_of(rng, damaged, reworded)(rows, rng) if rng.random() < 0.6 else rows
        (place / f"day={day}" / "log.csv").write_bytes(content)
    return place, {"columns": {"episode": "day"}} | one_of(rng, *_OPTIONS)


def open_bandit(folder: Path, rng: Rng) -> Example:
    place = folder / "bandit"
    place.mkdir(exist_ok=True)
    which = rng.random()
    way = one_of(rng, damaged, reworded, reworded)
    (place / "item_context.csv").write_bytes(_ITEMS if which < 0.5 else way(_ITEMS, rng))
    (place / "all.csv").write_bytes(way(_IMPRESSIONS, rng) if which < 0.7 else _IMPRESSIONS)
    more = one_of(rng, {}, {"sort": True}, {"one_hot": ["item_id"]}, {"cross": [("user_feature_*", "item_feature_0")]})
    return place, {"episode_every": "1d"} | more


def feedback(folder: Path, rng: Rng) -> Example:
    n, k = 12, 4
    found: dict[str, Any] = {
        "context": rng.normal(size=(n, 3)),
        "action_context": rng.normal(size=(k, 2)),
        "action": rng.integers(k, size=n),
        "reward": rng.integers(2, size=n),
        "pi_b": np.full((n, k, 1), 1 / k),
        "pscore": np.full(n, 1 / k),
    }
    for _ in range(rng.integers(1, 3)):
        alter_numbers(found, rng)
    found |= {"n_rounds": n, "n_actions": k, "position": None}
    if rng.random() < 0.4:
        found[one_of(rng, *found)] = copy.deepcopy(one_of(rng, *VALUES))
    # Without these it is no feedback.
    found.setdefault("action", rng.integers(k, size=n))
    return found, {"episode_size": 4}


def option_file(folder: Path, rng: Rng) -> Example:
    (folder / "log.csv").write_bytes(csv_bytes(long_table()))
    (folder / "options.toml").write_bytes(one_of(rng, damaged, reworded, reworded)(_TOML, rng))
    return folder / "log.csv", {"options": folder / "options.toml"}


def side_tables(folder: Path, rng: Rng) -> Example:
    items = csv_bytes(pa.table({"item_id": range(5), "size": [1.0, 2, 3, 4, 5], "brand": list("abcab")}))
    arms = csv_bytes(pa.table({"arm": list("abc"), "size": [1.0, 2, 3]}))
    log, name, table, options = one_of(
        rng,
        (csv_bytes(long_table()), "items", items, {"episode_every": "1d", "columns": {"candidate": "item_id"}}),
        (_ARMS, "arm_features", arms, {"arm": "arm", "available": "free", "columns": {"episode": "day"}}),
    )
    (folder / "log.csv").write_bytes(log)
    (folder / "side.csv").write_bytes(one_of(rng, damaged, reworded, reworded)(table, rng))
    return folder / "log.csv", options | {name: folder / "side.csv"}


READERS: dict[str, Callable[[Path, Rng], Example]] = {
    "csv": csv_file,
    "csv.gz": partial(csv_file, packed=True),
    "tsv": partial(csv_file, delimiter="\t"),
    "parquet": parquet,
    "arrow": arrow,
    "jsonl": json_lines,
    "jsonl.gz": partial(json_lines, packed=True),
    "npz": npz,
    "vw": vw_text,
    "dsjson": dsjson,
    "openbandit": open_bandit,
    "feedback": feedback,
    "frame": frame,
    "folder": tables_folder,
    "options": option_file,
    "side tables": side_tables,
}
TARGETS = (*READERS, "models")


# -- what must come of it ----------------------------------------------------------------------------------------------


def outcome(target: str, folder: Path, seed: int) -> str:
    """What becomes of one example: "refused", "sound", or what went wrong."""
    if target == "models":
        return altered_models.outcome(altered_models.NAMES[seed % len(altered_models.NAMES)], folder, seed)
    began = time.perf_counter()
    try:
        source, options = READERS[target](folder, np.random.default_rng(seed))
    except pa.ArrowException:  # not a table that Arrow can write
        return "refused"
    try:
        with np.errstate(all="ignore"):
            found = compared(source, {"max_memory": _MEMORY} | options)
    except Exception as error:
        return f"{target} {seed}: {error!r}, read with {options}"
    if time.perf_counter() - began > _SLOW:
        return f"{target} {seed}: took {time.perf_counter() - began:.0f} s"
    return found if found in altered_models.GOOD else f"{target} {seed}: {found}, read with {options}"


def compared(source: Any, options: Options) -> str:
    """Reading whole and part by part: the same log, or refusals in one line."""
    whole, parts = attempted(ibcb.read_log, source, options), attempted(in_parts, source, options)
    for found in (whole, parts):
        if isinstance(found, str) and not (found.isprintable() and len(found) < 3000):
            return f"the message is not one short line: {found!r}"
    if isinstance(parts, str):
        # What only all of it tells, such as that every episode is warm-up, the parts cannot.
        if whole != parts:
            return f"part by part it is refused in other words: {parts!r} instead of {whole!r}"
        return "refused"
    if isinstance(whole, str):
        return "refused"
    rows = np.concatenate([part.contexts @ np.eye(part.n_features) for part in parts])
    chosen = np.concatenate([part.chosen for part in parts])
    same = np.array_equal(rows, whole.contexts @ np.eye(whole.n_features)) and np.array_equal(chosen, whole.chosen)
    return "sound" if same else "part by part it is another log"


def attempted(read: Callable[..., Any], source: Any, options: Options) -> Any:
    """What is read, or the message with which it is refused."""
    try:
        return read(source, **options)
    except ibcb.LogFormatError as error:
        return str(error)
    except (ValueError, TypeError) as error:
        # Options of a file are no matter of the log.
        if "options" in options and type(error) in (ValueError, TypeError):
            return str(error)
        raise


def in_parts(source: Any, **options: Any) -> list[ibcb.BehaviorLog]:
    return [part for _, part in ibcb.open_log(source, **options).parts()]


# -- processes ---------------------------------------------------------------------------------------------------------


def fuzz(target: str, minutes: float, seed: int) -> int:
    """Run one target in this process."""
    warnings.simplefilter("ignore")
    end, found = time.monotonic() + 60 * minutes, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            told = outcome(target, Path(folder), seed)
            if told not in altered_models.GOOD:
                print(told, flush=True)
                told = "wrong"
            found[told] += 1
            seed += 1
    counts = ", ".join(f"{found[name]} {name}" for name in (*altered_models.GOOD, "wrong"))
    print(f"{target}: {found.total()} examples ({counts}), to seed {seed - 1}, peak {peak():.0f} MiB", flush=True)
    return 1 if found["wrong"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long each target runs")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=TARGETS, help="these targets", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="name the targets and stop")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        print(*TARGETS, sep="\n")
        return 0
    targets = options.only or TARGETS
    if options.here:
        return fuzz(targets[0], options.minutes, options.first_seed)
    wrong = 0
    for target in targets:
        how = ["--minutes", str(options.minutes), "--first-seed", str(options.first_seed)]
        ended = subprocess.run([sys.executable, __file__, "--here", "--only", target, *how], check=False).returncode
        wrong += ended != 0
        if ended not in (0, 1):
            print(f"{target}: the process ended with {ended}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
