"""`ibcb explain`: doubtful steps printed, all of them in a file."""

import csv
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import succeeds
from conftest import ragged_log

import ibcb


@pytest.fixture(params=["nothing", "names", "times"])
def fitted(request, rng, tmp_path):
    """A log with some wrong choices, and its model; steps with names, with times, or with neither."""
    plain = ragged_log(rng, steps=100)
    chosen, counts, steps = plain.chosen.copy(), np.diff(plain.step_offsets), np.arange(plain.n_steps)
    chosen[[250, 420]] = (chosen[[250, 420]] + 1) % counts[[250, 420]]
    names = np.array([f"request, {step} {'of a customer with a long name' * (step % 2)}" for step in steps])
    times = np.datetime64("2024-03-01T00:00:00", "us") + steps * 1_234_567
    labels = {"nothing": {}, "names": {"step_ids": names}, "times": {"timestamps": times}}[request.param]
    log = ibcb.BehaviorLog(plain.contexts, plain.step_offsets, chosen, plain.episode_offsets, warmup=1, **labels)
    ibcb.write_log(log, tmp_path / "log.parquet")
    model = ibcb.IBCB(l2=0.7, forecast=None).fit(log)
    ibcb.save_model(model, tmp_path / "m.safetensors")
    return tmp_path, ibcb.explain(model, log).ranked()


def test_the_most_doubtful_steps_fit_into_80_columns(fitted):
    folder, table = fitted
    text = succeeds("explain", folder / "m.safetensors", "--log", folder / "log.parquet", "--most", "7").stdout
    lines = text.splitlines()
    astray = int(np.count_nonzero(table["probability"].to_numpy() > 0.5))
    assert astray >= 1
    assert lines[0] == f"steps       400, of which {astray} probably went astray"
    assert max(map(len, lines)) <= 80
    rows = lines[3:]
    assert len(rows) == 7
    for line, row in zip(rows, table.to_pylist(), strict=False):
        assert line.split()[:2] == [str(row["episode"]), str(row["step"])]
        assert re.search(rf" {row['chosen']} +{row['preferred']} +(?:[01]\.\d+|\S+e-\d+)$", line)


def test_all_steps_are_written_with_their_ids(fitted):
    folder, table = fitted
    command = ["explain", folder / "m.safetensors", "--log", folder / "log.parquet", "-o"]
    told = json.loads(succeeds(*command, folder / "steps.csv", "--json").stdout)
    assert (told["out"], told["steps"], len(told["most"])) == (str(folder / "steps.csv"), 400, 20)
    assert told["most"][0]["probability"] == table["probability"][0].as_py()
    succeeds(*command, folder / "steps.parquet")
    assert pq.read_table(folder / "steps.parquet").equals(table)
    with (folder / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == table.column_names
    for row, expected in zip(rows, table.to_pylist(), strict=True):
        assert all(int(row[name]) == expected[name] for name in ("episode", "step", "chosen"))
        assert float(row["probability"]) == expected["probability"]
        assert row.get("step_id") == expected.get("step_id")
