"""Choices that do not fit: those of `explain`, of changed records nearly all, and the same however a log is read."""

import csv
import io
from urllib.parse import unquote

import numpy as np
import pytest
from pages import dirty, fitted, hostile

import ibcb
from ibcb.report import facts, render


def test_changed_records_are_named_and_hardly_any_others():
    model, log, clean = dirty()
    found = facts(model, log, steps=False)
    assert found.verdict.level == "good" or model.verdict(log).figures.agreement > 0.97
    changed = np.flatnonzero(log.chosen != clean.chosen)
    first = log.episode_offsets[log.warmup :]
    named = {int(first[each.episode]) + each.step for each in found.misfits.listed}
    assert len(named & set(changed.tolist())) > 0.9 * len(named)
    assert len(named & set(changed.tolist())) > 0.8 * len(changed)
    assert 0.03 < found.misfits.total / found.n_steps < 0.06


@pytest.mark.parametrize("expert", ["sbts", "egreedy"])
def test_they_are_those_of_explain_in_its_order(expert):
    model, run = fitted(expert)
    log, found = run.log, facts(model, run.log, steps=False).misfits
    thoughts = ibcb.explain(model, log)
    table = thoughts.ranked().slice(0, found.total).to_pydict()
    assert found.total == np.count_nonzero(thoughts.strayed > 0.5)
    assert sorted((each.episode, each.step) for each in found.listed) == sorted(
        zip(table["episode"], table["step"], strict=True)
    )
    np.testing.assert_allclose([each.probability for each in found.listed], table["probability"], atol=1e-9)


def test_a_choice_that_the_policy_of_the_time_makes_is_not_accused(rng):
    pairs = [(rng.normal(size=(60, 4, 3)), rng.integers(4, size=60)) for _ in range(6)]
    log = ibcb.BehaviorLog.from_episodes(pairs, warmup=1)
    model = ibcb.IBCB(expert="sbucb").fit(log)
    listed = facts(model, log, steps=False).misfits.listed
    assert listed
    assert all(each.chosen != each.preferred for each in listed)
    rows = ibcb.explain(model, log).ranked().to_pylist()
    assert not [row for row in rows if row["probability"] > 0.5 and row["chosen"] == row["preferred"]]


def test_the_verdict_says_how_many():
    model, log, _ = dirty()
    found = facts(model, log, steps=False)
    (said,) = [reason for reason in model.verdict(log).reasons if "do not fit" in reason]
    assert said.startswith(f"{found.misfits.total:,} of {found.n_steps:,} choices")
    assert found.misfits.counts == tuple(episode.misfits for episode in found.episodes)
    assert not any("do not fit" in reason for reason in facts(*hostile(), steps=False).verdict.reasons)


def test_a_log_on_disk_has_the_same_and_the_beginning_of_an_episode_tells_about_as_much(tmp_path, monkeypatch):
    model, log, _ = dirty()
    ibcb.write_log(log, tmp_path / "log.parquet")
    here = facts(model, log, steps=False).misfits
    monkeypatch.setattr("ibcb.io.parquet._STREAM_NUMBERS", 2000)
    there = facts(model, ibcb.open_log(tmp_path / "log.parquet"), steps=False).misfits
    assert there.counts == here.counts
    assert [each[:-1] for each in there.listed] == [each[:-1] for each in here.listed]
    monkeypatch.setattr("ibcb.report.reading.READ_NUMBERS", 5000)
    assert facts(model, log, steps=False).misfits.total == pytest.approx(here.total, rel=0.1)


def test_the_download_has_every_one_of_them():
    model, log = hostile(changed=True)
    found = facts(model, log)
    rows = list(csv.DictReader(io.StringIO(unquote(found.misfit_csv.partition(",")[2]))))
    assert len(rows) == found.misfits.total > 0
    for row, each in zip(rows, found.misfits.listed, strict=True):
        assert (int(row["episode"]), int(row["step"]), int(row["chosen"])) == (each.episode, each.step, each.chosen)
        assert row["step_id"] == each.id
    bare = facts(model, log, steps=False)
    assert all(each.id is None for each in bare.misfits.listed)
    assert "<b>id" not in unquote(bare.misfit_csv)
    assert found.misfit_csv in render(found)
