"""The Open Bandit Dataset's layout: every item a candidate, and no click read."""

import csv
import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from strategies import assembled, assert_same_log

import ibcb
from ibcb import LogFormatError
from ibcb.io import openbandit
from ibcb.io.openbandit import OpenBanditSource, looks_like_openbandit
from ibcb.log.recipe import Preparation
from ibcb.log.steps import ReadOptions
from ibcb.numerics.contexts import dense


def hashed(*words):
    return hashlib.md5(repr(words).encode()).hexdigest()


def dataset(items=5, rows=40, seed=0):
    """Header and rows of both files, as the dataset has them: a row number without a name comes first."""
    rng = np.random.default_rng(seed)
    context = [["", "item_id", *(f"item_feature_{i}" for i in range(4))]]
    for item in range(items):
        categories = [hashed(column, item % (column + 2)) for column in range(1, 4)]
        context.append([str(item), str(item), str(round(rng.normal(), 6)), *categories])
    affinities = [f"user-item_affinity_{item}" for item in range(items)]
    users = [f"user_feature_{i}" for i in range(4)]
    header = ["", "timestamp", "item_id", "position", "click", "propensity_score", *users, *affinities]
    table = [header]
    start = np.datetime64("2019-11-24T00:00:22.579000", "us")
    for row in range(rows):
        time = str(start + np.timedelta64(row * 3_700_000_123, "us")).replace("T", " ") + "+00:00"
        user = [hashed(column, int(rng.integers(3))) for column in range(4)]
        affinity = [str(float(value)) for value in rng.poisson(0.3, size=items)]
        shown = str(int(rng.integers(items)))
        table.append([str(row), time, shown, str(row % 3 + 1), str(int(rng.integers(2))), "0.2", *user, *affinity])
    return context, table


def written(folder, context, table, name="all.csv"):
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, rows in (("item_context.csv", context), (name, table)):
        if rows is not None:
            with (folder / file_name).open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
    return folder


DAILY = ReadOptions(episode_every="1d")


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [".", "all.csv", "item_context.csv"])
def test_every_item_is_a_candidate_with_its_features(tmp_path, given):
    context, table = dataset()
    folder = written(tmp_path / "bts" / "all", context, table)
    source = OpenBanditSource(folder / given, DAILY)
    log = assembled(source, DAILY)
    assert source.name == "all.csv"
    assert log.candidates_per_step == 5
    assert log.chosen.tolist() == [int(row[2]) for row in table[1:]]
    for step, row in enumerate(table[1:]):
        for item, features in enumerate(log.candidates(step)):
            expected = {"item_feature_0": float(context[item + 1][2]), "user-item_affinity": float(row[10 + item])}
            expected |= {f"item_feature_{i}={context[item + 1][2 + i]}": 1.0 for i in (1, 2, 3)}
            found = dict(zip(log.feature_names, features.tolist(), strict=True))
            assert {name: value for name, value in found.items() if value or name in expected} == expected
    times = np.array([row[1].replace(" ", "T").removesuffix("+00:00") for row in table[1:]], "M8[ns]")
    np.testing.assert_array_equal(log.timestamps, times, strict=True)
    assert len(log) == len(np.unique(times.astype("M8[D]")))
    assert tuple(map(str, source.notes)) == (
        "user features (user_feature_0, user_feature_1, user_feature_2, user_feature_3) are the same for all "
        "candidates of a step, so no linear policy can depend on them; left out. To use them, multiply them "
        "with features of the candidates: cross=[('user_feature_*', 'item_feature_0')] (--cross "
        "'user_feature_*,item_feature_0').",
    )


def test_clicks_propensities_and_users_leave_no_trace(tmp_path):
    context, table = dataset()
    without = ReadOptions(episode_every="1d", drop=["propensity_score"])
    plain = assembled(OpenBanditSource(written(tmp_path / "one", context, table), without), DAILY)
    changed = [table[0]] + [[*row[:3], "?", "never", "mind", *["x"] * 4, *row[10:]] for row in table[1:]]
    assert_same_log(assembled(OpenBanditSource(written(tmp_path / "two", context, changed), without), DAILY), plain)


def test_items_are_ordered_by_their_ids_which_may_have_gaps(tmp_path):
    context = [["item_id", "item_feature_0"], ["30", "0.3"], ["7", "0.07"], ["100", "1"]]
    header = ["timestamp", "item_id", "user-item_affinity_100", "user-item_affinity_7", "user-item_affinity_30"]
    table = [header, ["2020-01-01 00:00:00", "100", "3", "1", "2"], ["2020-01-01 00:00:01", "30", "6", "4", "5"]]
    (steps,) = OpenBanditSource(written(tmp_path, context, table), ReadOptions()).batches()
    assert steps.chosen.tolist() == [2, 1]
    assert steps.contexts.tolist() == [[0.07, 1], [0.3, 2], [1, 3], [0.07, 4], [0.3, 5], [1, 6]]


def test_batches_are_small_and_may_be_read_again(tmp_path, monkeypatch):
    folder = written(tmp_path, *dataset(rows=50))
    whole = assembled(OpenBanditSource(folder, DAILY), DAILY)
    monkeypatch.setattr(openbandit, "BATCH_NUMBERS", 7 * 5 * whole.n_features)
    source = OpenBanditSource(folder, DAILY)
    # The last step of a batch waits for the next one, which might have more of its candidates.
    assert [len(batch.counts) for batch in source.batches()] == [6, *[7] * 6, 2]
    for _ in range(2):
        assert_same_log(assembled(source, DAILY), whole)


def test_rows_out_of_order_are_refused_or_sorted(tmp_path, rng, monkeypatch):
    context, table = dataset(rows=30)
    sorted_log = ibcb.read_log(written(tmp_path / "one", context, table), episode_every="1d")
    mixed = [table[0], *(table[1 + i] for i in rng.permutation(30))]
    folder = written(tmp_path / "two", context, mixed)
    monkeypatch.setattr(openbandit, "BATCH_NUMBERS", 1)
    words = r"all\.csv: row \d+ \(from 0\): timestamp .* follows .*; sort the rows.*--sort"
    with pytest.raises(LogFormatError, match=words):
        ibcb.read_log(folder, episode_every="1d")
    assert_same_log(ibcb.read_log(folder, episode_every="1d", sort=True), sorted_log)
    # What is wrong is still named by its row in the file.
    mixed[1][2] = "99"
    with pytest.raises(LogFormatError, match=r"all\.csv: row 0 \(from 0\): item_id is 99"):
        ibcb.read_log(written(tmp_path / "two", context, mixed), sort=True, episode_every="1d")


@pytest.mark.parametrize(
    "texts",
    [
        ["2020-01-01 00:00:00+00:00", "2020-01-01 00:00:00.5+00:00"],
        ["2020-01-01T02:00:00+02:00", "2020-01-01T00:00:00.5Z"],
        ["2020-01-01 00:00:00", "2020-01-01 00:00:00.5Z"],
    ],
)
def test_times_are_read_as_utc(tmp_path, texts):
    context, table = dataset(rows=2)
    for row, text in zip(table[1:], texts, strict=True):
        row[1] = text
    (steps,) = OpenBanditSource(written(tmp_path, context, table), ReadOptions()).batches()
    np.testing.assert_array_equal(steps.timestamps, np.array(["2020-01-01", "2020-01-01T00:00:00.5"], "M8[ns]"))


def test_the_preparation_reads_new_data_the_same_way(tmp_path):
    context, table = dataset()
    first = OpenBanditSource(written(tmp_path / "one", context, table), ReadOptions())
    preparation = Preparation.from_json(first.preparation.to_json())
    context[1][4] = "new category"
    source = OpenBanditSource(written(tmp_path / "two", context, table), ReadOptions(preparation=preparation))
    assert source.feature_names == first.feature_names
    assert str(source.notes[0]) == "item_feature_2: categories unknown to the model count as none: new category."
    (steps,), (before,) = source.batches(), first.batches()
    gone = first.feature_names.index(f"item_feature_2={hashed(2, 0)}")
    expected = before.contexts.copy()
    expected[::5, gone] = 0
    np.testing.assert_array_equal(steps.contexts, expected)
    written(tmp_path, without(context, "item_feature_2"), table)
    with pytest.raises(LogFormatError, match=r"item_context\.csv: column 'item_feature_2' is missing; the model"):
        OpenBanditSource(tmp_path, ReadOptions(preparation=preparation))


def test_columns_can_be_chosen_dropped_and_taken_for_categories(tmp_path):
    folder = written(tmp_path, *dataset())
    asked = OpenBanditSource(folder, ReadOptions(features=["user-item_affinity", "item_feature_0"]))
    assert asked.feature_names == ("user-item_affinity", "item_feature_0")
    dropped = OpenBanditSource(folder, ReadOptions(drop=["item_feature_1", "item_feature_2", "user-item_affinity"]))
    assert {name.partition("=")[0] for name in dropped.feature_names} == {"item_feature_0", "item_feature_3"}
    one_hot = OpenBanditSource(folder, ReadOptions(features=["item_feature_0"], one_hot=["item_feature_0"]))
    assert len(one_hot.feature_names) == 5
    for source in (asked, dropped, one_hot):
        (steps,) = source.batches()
        assert steps.contexts.shape == (200, len(source.feature_names))


@pytest.mark.parametrize("packed", [False, True])
def test_items_are_one_hot_and_crossed_with_users(tmp_path, monkeypatch, packed):
    context, table = dataset(items=3, rows=12)
    folder = written(tmp_path, context, [table[0], *reversed(table[1:])])
    monkeypatch.setattr(ibcb.io.columns, "sparse_pays", lambda d, filled: packed)
    how = {"sort": True, "episode_every": "1d"}
    log = ibcb.read_log(folder, one_hot=["item_id"], cross=[("user_feature_0", "item_id")], **how)
    columns = dict(zip(log.feature_names, dense(log.contexts).T, strict=True))
    users = np.repeat([row[6] for row in table[1:]], 3)
    for item in range(3):
        mine = np.tile(np.arange(3) == item, 12).astype(float)
        np.testing.assert_array_equal(columns.pop(f"item_id={item}"), mine)
        for user in set(users):
            np.testing.assert_array_equal(columns.pop(f"user_feature_0={user}*item_id={item}"), mine * (users == user))
    np.testing.assert_array_equal(
        columns["user-item_affinity"], np.ravel([row[10:] for row in table[1:]]).astype(float)
    )
    assert not [name for name in columns if "user_feature" in name]
    assert_same_log(ibcb.read_log(folder, preparation=log.preparation, **how), log)


@pytest.mark.parametrize("missing, number", [("zero", 0.0), ("mean", None)])
def test_what_is_missing_is_imputed_where_asked(tmp_path, missing, number):
    context, table = dataset(rows=2)
    rest = [float(row[2]) for row in context[2:]]
    context[1][2] = context[2][3] = ""
    folder = written(tmp_path, context, table)
    source = OpenBanditSource(folder, ReadOptions(features=["item_feature_0", "item_feature_1"], missing=missing))
    (steps,) = source.batches()
    assert steps.contexts[0, 0] == (pytest.approx(np.mean(rest), rel=1e-12) if number is None else number)
    assert source.preparation.columns[0].fill == steps.contexts[0, 0]
    assert steps.contexts[:5, 1:].sum(axis=1).tolist() == [1, 0, 1, 1, 1]  # a missing category is all zeros
    table[1][10 + 3] = ""
    written(tmp_path, context, table)
    (steps,) = OpenBanditSource(folder, ReadOptions(features=["user-item_affinity"], missing="zero")).batches()
    assert steps.contexts[[3, 8], 0].tolist() == [0, float(table[2][13])]


def test_without_choices_the_item_may_be_missing(tmp_path):
    context, table = dataset(rows=3)
    options = ReadOptions(choices=False)
    (steps,) = OpenBanditSource(written(tmp_path / "one", context, without(table, "item_id")), options).batches()
    assert steps.chosen.tolist() == [0, 0, 0]
    (steps,) = OpenBanditSource(written(tmp_path / "two", context, table), options).batches()
    assert steps.chosen.tolist() == [int(row[2]) for row in table[1:]]


@pytest.mark.parametrize("write, name", [(pq.write_table, "all.parquet"), (pa.feather.write_feather, "all.arrow")])
def test_impressions_may_be_a_table_of_any_format(tmp_path, write, name):
    folder = written(tmp_path, *dataset())
    log = ibcb.read_log(folder, episode_every="1d")
    write(pacsv.read_csv(folder / "all.csv"), folder / name)
    (folder / "all.csv").unlink()
    assert_same_log(ibcb.read_log(folder, episode_every="1d"), log)
    assert_same_log(ibcb.read_log(folder / name, episode_every="1d"), log)


# -- broken files --------------------------------------------------------------------------------------------------


def cell(table, row, column, value):
    """The table with one cell changed."""
    index = table[0].index(column)
    return [[*line[:index], value, *line[index + 1 :]] if number == row else line for number, line in enumerate(table)]


def without(table, column):
    index = table[0].index(column)
    return [[*line[:index], *line[index + 1 :]] for line in table]


AFFINITY = "user-item_affinity_3"
BROKEN = {
    "item twice": (lambda c, t: ([*c, c[1]], t), r"item_context\.csv: item_id 0 appears twice"),
    "item number missing": (
        lambda c, t: (cell(c, 2, "item_feature_0", ""), t),
        r"item_context\.csv: row 1 \(from 0\): item_feature_0 is missing; .*--drop item_feature_0",
    ),
    "header only": (lambda c, t: (c, t[:1]), "all.csv: the log is empty"),
    "no affinity": (lambda c, t: (c, without(t, AFFINITY)), rf"1 column missing: {AFFINITY}.*--drop"),
    "item unknown": (
        lambda c, t: (c, cell(t, 3, "item_id", "5")),
        r"all\.csv: row 2 .*item_id is 5, .* 5 items are 0 to 4",
    ),
    "affinity missing": (
        lambda c, t: (c, cell(t, 3, AFFINITY, "")),
        rf"all\.csv: row 2 .*: {AFFINITY} is missing; exp",
    ),
    "affinity text": (lambda c, t: (c, cell(t, 3, AFFINITY, "x")), r"holds string, .*--drop user-item_affinity\)"),
    "time text": (lambda c, t: (c, cell(t, 3, "timestamp", "noon")), r"all\.csv: row 2 .*: timestamp is 'noon'"),
    "row short": (lambda c, t: (c, [*t[:3], t[3][:4]]), r"all\.csv: row 4 .* has 4 values but the header, .* has 15"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_by_file_place_and_reason(tmp_path, name):
    change, words = BROKEN[name]
    folder = written(tmp_path, *change(*dataset(rows=6)))
    with pytest.raises(LogFormatError, match=words):
        ibcb.read_log(folder, episode_every="1d", format="openbandit")


AFFINE = ["user-item_affinity"]
ASKED = {
    "unknown feature": ({"features": ["item_feature_9"]}, "no feature column item_feature_9; there are item_feature_0"),
    "one-hot of no column": (
        {"one_hot": ["item_feature_9"]},
        "no column 'item_feature_9' to encode .*did you mean 'item",
    ),
    "one-hot of the affinity": ({"one_hot": AFFINE}, "'user-item_affinity' cannot be encoded .*it holds numbers"),
    "all dropped": ({"features": ["item_feature_0"], "drop": ["item_feature_0"]}, "every feature was dropped"),
    "columns": ({"columns": {"chosen": "item_id"}}, "'item_id' was named as column 'chosen'"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_cannot_be_asked_is_refused(tmp_path, name):
    options, words = ASKED[name]
    folder = written(tmp_path, *dataset(rows=2))
    with pytest.raises(LogFormatError, match=words):
        OpenBanditSource(folder, ReadOptions(**options))


def test_a_folder_must_have_one_file_of_impressions(tmp_path):
    context, table = dataset(rows=2)
    with pytest.raises(LogFormatError, match=r"item_context\.csv is missing .*bts/all"):
        OpenBanditSource(tmp_path, ReadOptions())
    written(tmp_path, context, None)
    with pytest.raises(LogFormatError, match=r"no table beside item_context\.csv; give the path"):
        OpenBanditSource(tmp_path, ReadOptions())
    written(tmp_path, context, table, "all.csv")
    written(tmp_path, context, table, "men.csv")
    with pytest.raises(LogFormatError, match=r"several tables beside item_context\.csv \(all\.csv, men\.csv\)"):
        OpenBanditSource(tmp_path, ReadOptions())
    assert assembled(OpenBanditSource(tmp_path / "men.csv", DAILY), DAILY).n_steps == 2
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        OpenBanditSource(tmp_path / "nowhere", ReadOptions())


def test_the_layout_is_recognised(tmp_path):
    folder = written(tmp_path / "all", *dataset(rows=1))
    assert all(looks_like_openbandit(path) for path in (folder, folder / "all.csv", folder / "item_context.csv"))
    (folder / "other.csv").write_text("episode,step\n")
    (folder / "text.txt").write_text("timestamp,item_id\n")
    (tmp_path / "alone.csv").write_text("timestamp,item_id\n")
    others = (tmp_path, folder / "other.csv", folder / "text.txt", tmp_path / "alone.csv", tmp_path / "nowhere")
    assert not any(looks_like_openbandit(path) for path in others)
