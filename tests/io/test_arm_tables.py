"""Tables with a row per step and a column of arms: the log that `BehaviorLog.from_arms` makes of the same numbers."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io import armtables, open_log
from ibcb.log.recipe import Preparation
from ibcb.numerics.contexts import dense, is_sparse

ARMS = ["a", "b", "c", "d"]


def clinic(steps=60, seed=0, **changes):
    """Patients with an age and a sex, one of three arms each; d comes late and c retires."""
    rng = np.random.default_rng(seed)
    could = [["a", "b", "c"] if t < 20 else ["a", "b", "c", "d"] if t < 40 else ["a", "b", "d"] for t in range(steps)]
    columns = {
        "week": np.arange(steps) // 20,
        "age": rng.normal(50, 10, size=steps).round(1),
        "sex": rng.choice(["f", "m"], size=steps),
        "treatment": [some[rng.integers(len(some))] for some in could],
        "open": could,
        "reward": rng.normal(size=steps),
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


HOW = {"arm": "treatment", "columns": {"episode": "week"}, "one_hot": ["sex"]}


def by_hand(table, available=False, arm_features=None):
    """The same log from arrays."""
    age, sex = table["age"].to_numpy(), np.array(table["sex"].to_pylist())
    X = np.column_stack([np.ones(len(age)), age, sex == "f", sex == "m"])
    arm = np.array([ARMS.index(name) for name in table["treatment"].to_pylist()])
    could = [[ARMS.index(name) for name in names] for names in table["open"].to_pylist()]
    weeks = [np.flatnonzero(table["week"].to_numpy() == week) for week in range(3)]
    return BehaviorLog.from_arms(
        [(X[week], arm[week]) for week in weeks],
        n_arms=4,
        available=[[could[step] for step in week] for week in weeks] if available else None,
        arm_features=arm_features,
        arm_names=ARMS,
    )


def assert_same(found, expected):
    np.testing.assert_array_equal(dense(found.contexts), dense(expected.contexts))
    for name in ("chosen", "step_offsets", "episode_offsets", "candidate_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_every_arm_has_a_constant_and_its_own_weights():
    log = ibcb.read_log(clinic().drop_columns(["open"]), **HOW)
    assert log.feature_names == tuple(f"arm={arm}{name}" for arm in ARMS for name in ("", ":age", ":sex=f", ":sex=m"))
    assert_same(log, by_hand(clinic()))
    assert [note.code for note in log.notes] == ["reward-like-columns"]


@pytest.mark.parametrize("sign", [None, "|", ";", " "])
def test_arms_come_and_go(sign):
    cells = [names if sign is None else sign.join(names) for names in clinic()["open"].to_pylist()]
    log = ibcb.read_log(clinic(open=cells), available="open", **HOW)
    assert_same(log, by_hand(clinic(), available=True))
    assert set(np.diff(log.step_offsets)) == {3, 4}
    # An empty cell: all arms.
    some = ibcb.read_log(clinic(open=[None if t == 0 else c for t, c in enumerate(cells)]), available="open", **HOW)
    assert np.diff(some.step_offsets)[:2].tolist() == [4, 3]


@pytest.mark.parametrize("name", ["arms.csv", "arms.parquet", None])
def test_features_of_arms_have_weights_that_all_share(tmp_path, name):
    table = pa.table({"treatment": ["d", "c", "b", "a", "e"], "dose": [4.0, 3.0, 2.0, 1.0, 5.0], "form": list("xyxyx")})
    source = table if name is None else tmp_path / name
    if name == "arms.csv":
        pacsv.write_csv(table, source)
    elif name is not None:
        pq.write_table(table, source)
    log = ibcb.read_log(clinic(), arm_features=source, drop=["open"], **HOW)
    assert log.feature_names[-3:] == ("dose", "form=x", "form=y")
    shared = dense(log.contexts)[:5, -3:]
    np.testing.assert_array_equal(shared, [[1, 0, 1], [2, 1, 0], [3, 0, 1], [4, 1, 0], [5, 1, 0]])
    (never,) = [note for note in log.notes if note.code == "arms-never-chosen"]
    assert never.figures == {"arms": 1, "of": 5}
    kept = log.preparation
    assert Preparation.from_json(kept.to_json()) == kept
    # New data needs no table of arms.
    np.testing.assert_array_equal(dense(ibcb.read_log(clinic(), preparation=kept).contexts), dense(log.contexts))


def test_without_features_an_arm_is_a_constant():
    table = pa.table({"day": np.arange(12) // 4, "arm": [7, 11, 7, 100] * 3})
    log = ibcb.read_log(table, arm="arm", columns={"episode": "day"})
    assert log.feature_names == ("arm=7", "arm=11", "arm=100")
    np.testing.assert_array_equal(log.contexts[:3], np.eye(3))
    assert log.candidate_ids[:3].tolist() == [7, 11, 100]


def test_features_of_the_step_are_standardized_and_kept():
    log = ibcb.read_log(clinic().drop_columns(["open"]), standardize=True, **HOW)
    age = clinic()["age"].to_numpy()
    found = dense(log.contexts)[::4, log.feature_names.index("arm=a:age")]
    np.testing.assert_allclose(found, (age - age.mean()) / age.std(), rtol=1e-12)
    new = clinic(seed=1).drop_columns(["open", "treatment"])
    again = ibcb.read_log(new, preparation=log.preparation, choices=False)
    later = dense(again.contexts)[::4, log.feature_names.index("arm=a:age")]
    np.testing.assert_allclose(later, (new["age"].to_numpy() - age.mean()) / age.std(), rtol=1e-12)


def test_many_arms_are_sparse_and_read_in_pieces(monkeypatch):
    rng = np.random.default_rng(0)
    table = pa.table({"day": np.arange(400) // 100, "arm": rng.integers(40, size=400), "x": rng.normal(size=400)})
    disk = open_log(table, arm="arm", columns={"episode": "day"})
    whole = disk.read()
    assert is_sparse(whole.contexts)
    assert whole.contexts.nnz == 400 * 40 * 2
    monkeypatch.setattr(armtables, "BATCH_NUMBERS", 40 * 2 * 7)
    parts = [part for _, part in disk.parts()]
    assert max(part.n_steps for part in parts) == 7
    np.testing.assert_array_equal(np.concatenate([dense(part.contexts) for part in parts]), dense(whole.contexts))


def test_a_model_names_arms(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    table = pa.table({"day": np.arange(600) // 100, "x": x, "arm": np.where(x > 0.3, "up", "down")})
    log = ibcb.read_log(table, arm="arm", columns={"episode": "day"})
    model = ibcb.ChoiceModel().fit(log)
    assert model.score(log) > 0.97
    ibcb.save_model(model, tmp_path / "m.safetensors")
    kept = ibcb.load_model(tmp_path / "m.safetensors").preparation_
    assert kept == log.preparation


WRONG = {
    "no such column": ({"arm": "treatmnt"}, {}, r"no column 'treatmnt' \(arm, --arm\) \(did you mean 'treatment'\?\)"),
    "arm not available": (
        {"available": "open"},
        {"treatment": ["d"] * 60},
        r"row 0 \(from 0\): arm 'd' was chosen but column 'open' does not have it .*\('a', 'b', 'c'\); correct it",
    ),
    "no arm available": (
        {"available": "open"},
        {"open": [["a"]] * 3 + [[]] + [["a"]] * 56},
        r"chosen but|names no arm",
    ),
    "arm missing": (
        {"drop": ["open"]},
        {"treatment": [None] + ["a"] * 59},
        r"'treatment' has 1 missing value, the first in row 0",
    ),
    "no row for an arm": (
        {"arm_features": pa.table({"treatment": ["a", "b"], "dose": [1, 2]}), "drop": ["open"]},
        {},
        r"'c', 'd' has no row in the table of arms .*; add one for each",
    ),
    "arms twice": (
        {"arm_features": pa.table({"treatment": list("abcda"), "dose": range(5)}), "drop": ["open"]},
        {},
        r"arm 'a' appears twice in the table of arms",
    ),
    "a cross": ({"cross": [("age", "sex")], "drop": ["open"]}, {}, r"every arm .* has weights of its own"),
    "lists as features": ({}, {}, r"column 'open' holds list.*--drop open"),
}


@pytest.mark.parametrize("options, changes, words", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(options, changes, words):
    with pytest.raises(LogFormatError, match=words):
        ibcb.read_log(clinic(**changes), **(HOW | options))


def test_a_table_without_rows_is_refused():
    with pytest.raises(LogFormatError, match=r"the log is empty: it has no step"):
        ibcb.read_log(clinic().slice(0, 0), available="open", **HOW)


def test_an_arm_that_the_model_does_not_know_is_refused():
    log = ibcb.read_log(clinic(), available="open", **HOW)
    new = clinic(treatment=["z"] * 60)
    with pytest.raises(LogFormatError, match=r"row 0 \(from 0\): arm 'z' is unknown; the arms are 'a', 'b', 'c', 'd'"):
        ibcb.read_log(new, preparation=log.preparation)
    with pytest.raises(LogFormatError, match=r"row 1 \(from 0\): arm 'y' is unknown"):
        ibcb.read_log(clinic(open=[["a", "b", "c", "d"], ["y"]] * 30), preparation=log.preparation, choices=False)
    with pytest.raises(ValueError, match=r"available is about arms; name the column with the chosen arm"):
        ibcb.read_log(clinic(), available="open")


def test_only_tables_have_a_column_of_arms(tmp_path):
    (tmp_path / "log.vw").write_text("0:1:1 |a x:2\n")
    with pytest.raises(LogFormatError, match=r"log\.vw: 'arm' was named as the column of arms; only tables have one"):
        ibcb.read_log(tmp_path / "log.vw", arm="arm", episode_size=1)


def test_names_hide_no_feature_of_arms_and_times_are_said():
    """A table with a row per arm holds no outcome; a number called time may be a feature of the step."""
    log = pa.table({"day": [1, 1, 2, 2], "arm": list("abba"), "time": [3.0, 1.0, 2.0, 0.5]})
    arms = pa.table({"arm": ["a", "b"], "rating": [1.0, 2.0], "time": [3.0, 5.0]})
    options = {"arm": "arm", "arm_features": arms, "columns": {"episode": "day"}}
    read = ibcb.read_log(log, **options)
    assert read.feature_names == ("arm=a", "arm=b", "rating", "time")
    assert [str(note) for note in read.notes if note.code == "times-read"] == [
        "'time' read as the times of the steps (the name suggests it): no feature. If it is one, take it back with "
        "keep=['time'] (--keep time)."
    ]
    kept = ibcb.read_log(log, keep=["time"], **options | {"arm_features": None})
    assert "arm=a:time" in kept.feature_names
    assert kept.timestamps is None
