"""Logs in tables: every form and every home of them comes back as the log it was."""

import gzip
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from strategies import assert_same_log, logs, reproducible

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io import csvfiles, open_log, parquet
from ibcb.log.recipe import FeatureColumn, Preparation


def long_table(**changes):
    """Three steps in two batches, two or three candidates each, under names of somebody else."""
    columns = {
        "batch": [7, 7, 7, 7, 7, 9, 9],
        "request_id": ["a", "a", "b", "b", "b", "c", "c"],
        "picked": [0, 1, 1, 0, 0, 0, 1],
        "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
        "stars": [5, 4, 3, 2, 1, 0, 1],
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


EXPECTED = BehaviorLog.from_episodes(
    [
        ([[[1.0, 5.0], [2.0, 4.0]], [[3.0, 3.0], [4.0, 2.0], [5.0, 1.0]]], [1, 0]),
        ([[[6.0, 0.0], [7.0, 1.0]]], [1]),
    ],
    feature_names=["price", "stars"],
    step_ids=np.array(["a", "b", "c"]),
)


def joined(disk):
    """What `parts` gives, put together by hand."""
    parts = list(disk.parts())
    numbers = np.concatenate([np.full(part.n_steps, number) for number, part in parts])
    counts = np.concatenate([np.diff(part.step_offsets) for _, part in parts])
    edges = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1, [len(numbers)]])
    first = parts[0][1]
    return BehaviorLog(
        np.concatenate([part.contexts for _, part in parts]),
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([part.chosen for _, part in parts]),
        edges,
        warmup=len({number for number, _ in parts if number < 0}),
        feature_names=first.feature_names,
        **{
            name: None if getattr(first, name) is None else np.concatenate([getattr(part, name) for _, part in parts])
            for name in ("timestamps", "step_ids", "propensities")
        },
    )


# -- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, long", [("log.parquet", False), ("log.parquet", True), ("log.arrow", True)])
@reproducible
@given(log=logs())
def test_what_is_written_comes_back(tmp_path_factory, name, long, log):
    path = tmp_path_factory.mktemp("log") / name
    ibcb.write_log(log, path, long=long)
    again = ibcb.read_log(path)
    assert_same_log(again, log)
    assert again.contexts.tobytes() == log.contexts.tobytes()
    assert_same_log(joined(open_log(path)), log)


@reproducible
@given(log=logs())
def test_csv_keeps_all_but_the_float_type_and_that_names_were_missing(tmp_path_factory, log):
    path = tmp_path_factory.mktemp("log") / "log.csv"
    plain = log.feature_names is None
    if not plain:
        names = tuple(f"f{place}" for place in range(log.n_features))
        log = BehaviorLog(
            log.contexts, log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup, feature_names=names
        )
    else:
        log = BehaviorLog(log.contexts, log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup)
    ibcb.write_log(log, path)
    back = ibcb.read_log(path)
    np.testing.assert_array_equal(back.contexts, log.contexts.astype(np.float64))
    for name in ("step_offsets", "chosen", "episode_offsets"):
        np.testing.assert_array_equal(getattr(back, name), getattr(log, name))
    assert back.warmup == log.warmup
    assert back.feature_names == (tuple(f"x{i}" for i in range(log.n_features)) if plain else log.feature_names)


@pytest.mark.parametrize("name, long", [("big.parquet", False), ("big.parquet", True), ("big.csv", True)])
def test_a_log_in_small_pieces_is_the_same_log(tmp_path, monkeypatch, name, long):
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 6, size=500)
    edges = [0, 100, 101, 350, 500]
    log = BehaviorLog(
        rng.normal(size=(counts.sum(), 3)),
        np.concatenate([[0], np.cumsum(counts)]),
        rng.integers(counts),
        edges,
        warmup=1,
        feature_names=["a", "b", "c"],
    )
    ibcb.write_log(log, tmp_path / name, long=long)
    monkeypatch.setattr(parquet, "_STREAM_NUMBERS", 200)
    monkeypatch.setattr(csvfiles, "_CSV_BLOCK", 2000)
    disk = open_log(tmp_path / name)
    assert len(list(disk.parts())) > 2 * len(edges)
    assert_same_log(joined(disk), log)
    assert_same_log(disk.read(), log)
    ibcb.write_log(disk, tmp_path / "again.parquet")
    ibcb.write_log(log, tmp_path / "direct.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "direct.parquet").read_bytes() or long
    assert_same_log(ibcb.read_log(tmp_path / "again.parquet"), log)


def test_a_large_episode_gets_several_row_groups(tmp_path, monkeypatch):
    from ibcb.io import parquet

    monkeypatch.setattr(parquet, "_GROUP_NUMBERS", 60)
    monkeypatch.setattr("ibcb.log.behavior_log._PART_ROWS", 10)
    rng = np.random.default_rng(0)
    log = BehaviorLog.from_episodes([(rng.normal(size=(40, 3, 2)), rng.integers(3, size=40))] * 2)
    ibcb.write_log(log, tmp_path / "log.parquet")
    assert pq.ParquetFile(tmp_path / "log.parquet").num_row_groups > 2
    assert_same_log(ibcb.read_log(tmp_path / "log.parquet"), log)


# -- homes of a long table -------------------------------------------------------------------------------------------


def as_pandas(table):
    return pytest.importorskip("pandas", reason="pandas is not installed") and table.to_pandas()


def as_pandas_with_index(table):
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = table.to_pandas()
    frame.index = [f"row {i}" for i in range(len(frame))]
    return frame


def as_polars(table):
    return pytest.importorskip("polars", reason="polars is not installed").from_arrow(table)


def as_duckdb(table):
    return pytest.importorskip("duckdb", reason="duckdb is not installed").from_arrow(table)


@pytest.mark.parametrize("convert", [lambda t: t, as_pandas, as_pandas_with_index, as_polars, as_duckdb])
def test_tables_in_memory(convert):
    assert_same_log(ibcb.read_log(convert(long_table())), EXPECTED)


def write_parquet(table, folder):
    pq.write_table(table, folder / "log.parquet")
    return folder / "log.parquet"


def write_one_row_groups(table, folder):
    pq.write_table(table, folder / "log.pq", row_group_size=1)
    return folder / "log.pq"


def write_csv(table, folder, delimiter=",", name="log.csv"):
    options = pacsv.WriteOptions(delimiter=delimiter, quoting_style="none")
    pacsv.write_csv(table, folder / name, options)
    return folder / name


def write_gzip(table, folder):
    path = write_csv(table, folder)
    (folder / "log.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    return folder / "log.csv.gz"


def write_stream(table, folder):
    with pa.ipc.new_stream(folder / "log.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "log.arrow"


def write_feather(table, folder):
    with pa.ipc.new_file(folder / "log.feather", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return folder / "log.feather"


def write_folder(table, folder):
    for place in range(len(table)):
        pq.write_table(table.slice(place, 1), folder / f"part-{place + 5}.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def write_partitions(table, folder):
    for batch in (7, 9):
        mask = pa.compute.equal(table["batch"], batch)
        (folder / f"batch={batch}").mkdir()
        pq.write_table(table.filter(mask).drop_columns(["batch"]), folder / f"batch={batch}" / "part.parquet")
    return folder


@pytest.mark.parametrize(
    "write",
    [
        write_parquet,
        write_one_row_groups,
        write_csv,
        lambda t, f: write_csv(t, f, "\t", "log.tsv"),
        write_gzip,
        write_stream,
        write_feather,
        write_folder,
        write_partitions,
    ],
)
def test_tables_in_files(tmp_path, write):
    path = write(long_table(), tmp_path)
    assert_same_log(ibcb.read_log(path), EXPECTED)
    assert_same_log(joined(open_log(path)), EXPECTED)


def test_fractions_that_come_late(tmp_path, monkeypatch):
    """Whole numbers in the first block of a CSV file do not make a column whole."""
    monkeypatch.setattr(csvfiles, "_CSV_BLOCK", 64)
    rows = [f"0,{step},{int(c == 0)},{c}" for step in range(20) for c in range(2)] + ["0,20,1,0.5", "0,20,0,2"]
    (tmp_path / "log.csv").write_text("episode,step,chosen,x\n" + "\n".join(rows) + "\n")
    assert ibcb.read_log(tmp_path / "log.csv").contexts[-2:].tolist() == [[0.5], [2.0]]


# -- one row per step ------------------------------------------------------------------------------------------------


def test_nested_lists_need_no_count(tmp_path):
    table = pa.table(
        {
            "episode": [0, 0, 1],
            "step": ["a", "b", "c"],
            "chosen": [1, 0, 1],
            "contexts": [[[1.0, 5.0], [2.0, 4.0]], [[3.0, 3.0], [4.0, 2.0], [5.0, 1.0]], [[6.0, 0.0], [7.0, 1.0]]],
        }
    )
    log = ibcb.read_log(table)
    np.testing.assert_array_equal(log.contexts, EXPECTED.contexts)
    np.testing.assert_array_equal(log.step_offsets, EXPECTED.step_offsets)
    assert log.step_ids.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 4), pa.list_(pa.float16())])
def test_lists_of_a_fixed_size_and_half_precision_are_single(kind):
    numbers = pa.array([np.array([0.5, 1.5, 2.5, 3.5], "f2")] * 3, pa.list_(pa.float16())).cast(kind)
    log = ibcb.read_log(
        pa.table({"episode": [0, 0, 1], "chosen": [1, 0, 1], "n_candidates": [2] * 3, "contexts": numbers})
    )
    assert log.contexts.dtype == np.float32
    assert log.contexts.tolist() == [[0.5, 1.5], [2.5, 3.5]] * 3


# -- roles and features ----------------------------------------------------------------------------------------------


def test_columns_by_name_and_by_option():
    table = long_table().rename_columns(["day", "who", "mark", "price", "stars"])
    options = {"columns": {"episode": "day", "step": "who", "chosen": "mark"}}
    assert_same_log(ibcb.read_log(table, **options), EXPECTED)


@pytest.mark.parametrize(
    "flags",
    [
        [False, True, True, False, False, False, True],
        [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        ["false", "TRUE", "true", "False", "false", "false", "true"],
        ["no", "yes", "yes", "no", "no", "no", "yes"],
    ],
)
def test_flags_of_all_kinds(flags):
    assert_same_log(ibcb.read_log(long_table(picked=flags)), EXPECTED)


def test_rewards_are_never_features():
    table = long_table(reward=[0.1] * 7, click=[1] * 7, rating=[0.5] * 7, item_id=[3] * 7)
    disk = open_log(table)
    assert_same_log(disk.read(), EXPECTED)
    asked = ibcb.read_log(table, features=["price", "click"])
    assert asked.feature_names == ("price", "click")
    assert asked.notes == ()


def test_what_is_left_out_by_name_is_said_with_the_reason_and_the_remedy():
    table = long_table(
        **{"Travel Cost": [1.0] * 7, "cost": [2.0] * 7, "pscore": [0.5] * 7, "item_id": [1] * 7, "arm": [1] * 7}
    )
    (reward_like, labels, logged) = ibcb.read_log(table).notes
    assert (reward_like.code, reward_like.severity) == ("reward-like-columns", "warning")
    assert reward_like.figures == {"columns": ("cost",)}
    for words in ("'cost' (the name suggests an outcome", "keep=['cost'] (--keep cost)", "--drop cost"):
        assert words in str(reward_like)
    assert (logged.code, logged.severity, logged.figures) == ("propensities-read", "info", {"column": "pscore"})
    for words in ("(the name suggests it)", "never fitted", "--keep pscore", "--drop pscore"):
        assert words in str(logged)
    assert (labels.code, labels.severity, labels.figures) == ("label-columns", "info", {"columns": ("arm",)})
    assert "keep=['arm'] (--keep arm)" in str(labels)
    assert ibcb.read_log(table, drop=["cost", "pscore", "arm"]).notes == ()


def test_kept_columns_are_features_in_their_place_and_with_the_model():
    table = long_table(cost=[7.0, 6, 5, 4, 3, 2, 1], click=[1] * 7)
    log = ibcb.read_log(table, keep=["cost", "price"])
    assert log.feature_names == ("price", "stars", "cost")
    np.testing.assert_array_equal(log.contexts[:, 2], [7, 6, 5, 4, 3, 2, 1])
    assert log.notes[0].figures == {"columns": ("click",)}
    assert_same_log(ibcb.read_log(table, features=["price", "stars", "cost"]), log)
    assert_same_log(ibcb.read_log(table, preparation=log.preparation, keep=["cost"]), log)
    kinds = long_table(label=list("abababa"))
    assert ibcb.read_log(kinds, keep=["label"], one_hot=["label"]).feature_names[2:] == ("label=a", "label=b")
    with pytest.raises(LogFormatError, match=r"'label'.*encoded.*keep=\['label'\] \(--keep label\)"):
        ibcb.read_log(kinds, one_hot=["label"])


@pytest.mark.parametrize(
    "options, words",
    [
        ({"keep": ["csot"]}, r"no column 'csot' to keep \(keep, --keep\) \(did you mean 'cost'\?\); the columns are"),
        ({"keep": ["picked"]}, r"no column marks the chosen .*'picked' would, but was named among the features"),
        (
            {"keep": ["picked"], "columns": {"chosen": "picked"}},
            r"'picked' cannot be kept \(keep, --keep\): it is the chosen;.*features=\[...\]",
        ),
        ({"keep": ["cost"], "drop": ["cost"]}, r"'cost' cannot be kept .*dropped as well; leave it out of one"),
        ({"keep": ["cost"], "features": ["price"]}, r"'cost' cannot be kept .*not among the features asked for"),
        ({"keep": ["cost"], "preparation": Preparation((FeatureColumn("price"),))}, r"made as for the model.*'price'"),
        ({"keep": ["csot"], "preparation": Preparation((FeatureColumn("price"),))}, r"no column 'csot' to keep"),
    ],
)
def test_what_cannot_be_kept_is_refused(options, words):
    with pytest.raises(LogFormatError, match=words):
        ibcb.read_log(long_table(cost=[1.0] * 7), **options)


@pytest.mark.parametrize("name", ["log.parquet", "long.parquet", "log.npz", "log.vw", "log.dsjson"])
def test_nothing_is_kept_where_nothing_is_left_out_by_name(tmp_path, name):
    log = ibcb.read_log(long_table(cost=[1.0] * 7), keep=["cost"])
    ibcb.write_log(log, tmp_path / name, long=name.startswith("long"))
    how = {"episode_size": 2} if name == "log.vw" else {}
    assert ibcb.read_log(tmp_path / name, **how).n_features == 3
    with pytest.raises(LogFormatError, match=r"no column 'cost' to keep \(keep, --keep\): .*(read|every feature)"):
        ibcb.read_log(tmp_path / name, keep=["cost"], **how)
    with pytest.raises(TypeError, match=r"keep='cost' is text; give a list"):
        ibcb.read_log(tmp_path / name, keep="cost", **how)


def test_one_hot_encoding_is_kept_and_repeated():
    table = long_table(colour=["red", "blue", "red", "green", "red", "blue", "blue"])
    log = ibcb.read_log(table, one_hot=["colour"])
    names = ("price", "stars", "colour=blue", "colour=green", "colour=red")
    assert log.feature_names == names
    expected = [[colour == name for name in ("blue", "green", "red")] for colour in table["colour"].to_pylist()]
    np.testing.assert_array_equal(log.contexts[:, 2:], np.array(expected, dtype=float))
    assert_same_log(ibcb.read_log(table, one_hot=True), log)

    model = ibcb.ChoiceModel(episodes=None).fit(log)
    new = long_table(colour=["red", "pink", "red", "green", "red", "blue", "blue"], extra=[1] * 7)
    again = open_log(new, preparation=model.preparation_, one_hot=["colour"])
    read = again.read()
    assert read.feature_names == names
    assert read.contexts[1, 2:].tolist() == [0, 0, 0]
    left, unknown = read.notes
    assert again.notes == read.notes == read[0].notes
    assert (left.code, left.severity, left.figures) == ("columns-not-fitted", "info", {"columns": ("extra",)})
    assert (unknown.code, unknown.severity) == ("unknown-categories", "warning")
    assert unknown.figures == {"column": "colour", "values": 1}


def test_dictionaries_are_text():
    table = long_table(colour=pa.array(["r", "b", "r", "g", "r", "b", "b"]).dictionary_encode())
    assert ibcb.read_log(table, one_hot=["colour"]).feature_names[2:] == ("colour=b", "colour=g", "colour=r")


@pytest.mark.parametrize("missing", ["mean", "zero"])
def test_missing_numbers_are_imputed_on_request_and_again_alike(missing):
    table = long_table(price=[1.0, None, 3.0, float("nan"), 5.0, 6.0, 7.0])
    with pytest.raises(LogFormatError, match=r"'price' has 1 missing value.*--missing mean"):
        ibcb.read_log(table)
    disk = open_log(table, missing=missing)
    log = disk.read()
    value = np.mean([1, 3, 5, 6, 7]) if missing == "mean" else 0.0
    np.testing.assert_array_equal(log.contexts[:, 0], [1, value, 3, value, 5, 6, 7])
    (note,) = log.notes
    assert (note.code, note.figures) == ("missing-replaced", {"columns": ("price",), "values": (2,)})
    assert "'price' (2 values)" in str(note)
    later = ibcb.read_log(long_table(price=[None] * 6 + [1.0]), preparation=log.preparation)
    assert later.contexts[0, 0] == value


def test_the_preparation_travels_with_files_and_models(tmp_path):
    table = long_table(colour=["r", "b", "r", "g", "r", "b", "b"], price=[1.0, None, 3.0, 4.0, 5.0, 6.0, 7.0])
    log = ibcb.read_log(table, one_hot=True, missing="mean")
    ibcb.write_log(log, tmp_path / "log.parquet")
    back = ibcb.read_log(tmp_path / "log.parquet")
    assert back.preparation == log.preparation is not None
    ibcb.save_model(ibcb.ChoiceModel(episodes=None).fit(back), tmp_path / "m.safetensors")
    assert ibcb.load_model(tmp_path / "m.safetensors").preparation_ == log.preparation
    assert back[0].preparation == log.preparation


def test_single_precision_stays():
    table = long_table(price=pa.array(np.arange(7, dtype=np.float32)), stars=None)
    assert ibcb.read_log(table).contexts.dtype == np.float32
    assert ibcb.read_log(long_table(price=pa.array(np.arange(7, dtype=np.float32)))).contexts.dtype == np.float64


def test_candidate_sets_without_choices_or_episodes():
    log = ibcb.read_log(long_table(batch=None, picked=None), choices=False)
    np.testing.assert_array_equal(log.contexts, EXPECTED.contexts)
    assert len(log) == 1
    assert not log.chosen.any()


# -- episodes --------------------------------------------------------------------------------------------------------


def test_episodes_by_count():
    assert ibcb.read_log(long_table(batch=None), episode_size=2).episode_offsets.tolist() == [0, 2, 3]


@pytest.mark.parametrize("kind", ["timestamp", "text", "number", "zoned"])
def test_episodes_by_time(kind, tmp_path):
    times = np.array(["2024-03-01T23:59:59", "2024-03-02T00:00:00", "2024-03-04T12:00:00"], dtype="datetime64[s]")
    rows = np.repeat(times, [2, 3, 2])
    column = {
        "timestamp": pa.array(rows),
        "text": pa.array([str(t) for t in rows]),
        "number": pa.array(rows.astype(np.int64)),
        "zoned": pa.array(rows, pa.timestamp("s", tz="Europe/Rome")),
    }[kind]
    table = long_table(batch=None, timestamp=column)
    if kind == "text":  # times are texts only in CSV, whose reader finds them
        pacsv.write_csv(table, tmp_path / "log.csv")
        table = tmp_path / "log.csv"
    log = ibcb.read_log(table, episode_every="1d")
    assert log.episode_offsets.tolist() == [0, 1, 2, 3]
    assert ibcb.read_log(table, episode_every="1w").episode_offsets.tolist() == [0, 3]
    assert ibcb.read_log(table, episode_every="1d", warmup=1).warmup == 1


@pytest.mark.parametrize("form", ["{}", "{}Z", "{}+00:00"])
def test_times_as_text(form):
    rows = np.repeat(["2024-03-01T23:59:59", "2024-03-02T00:00:00", "2024-03-04T12:00:00"], [2, 3, 2])
    table = long_table(batch=None, timestamp=[form.format(time) for time in rows])
    assert ibcb.read_log(table, episode_every="1d").episode_offsets.tolist() == [0, 1, 2, 3]


def test_categories_of_polars(tmp_path):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    colours = ["r", "b", "r", "g", "r", "b", "b"]
    plain = ibcb.read_log(long_table(colour=colours), one_hot=True)
    frame = polars.from_arrow(long_table(colour=colours)).with_columns(polars.col("colour").cast(polars.Categorical))
    frame.write_ipc(tmp_path / "log.arrow")
    for source in (frame, tmp_path / "log.arrow"):
        assert_same_log(ibcb.read_log(source, one_hot=True), plain)


def test_labels_of_any_kind_make_episodes():
    table = long_table(batch=["monday"] * 5 + ["friday"] * 2)
    assert_same_log(ibcb.read_log(table), EXPECTED)
    assert ibcb.read_log(table, warmup=1).warmup == 1


def test_sorting_on_request():
    order = np.random.default_rng(0).permutation(7)
    mixed = long_table(rank=list(range(7))).take(order)
    with pytest.raises(LogFormatError, match="--sort"):
        ibcb.read_log(mixed)
    log = ibcb.read_log(mixed, sort=True, columns={"candidate": "rank"})
    assert sorted(map(tuple, log.contexts.tolist())) == sorted(map(tuple, EXPECTED.contexts.tolist()))
    chosen = {tuple(log.contexts[row]) for row in log.chosen_rows}
    assert chosen == {tuple(EXPECTED.contexts[row]) for row in EXPECTED.chosen_rows}


# -- what is wrong is named ------------------------------------------------------------------------------------------

WRONG = {
    "time feature": ({"stars": pa.array([0] * 7, pa.date32())}, {}, r"'stars' holds date32.*--drop stars"),
    "one-hot of no column": (
        {"colour": list("rgbrgbr")},
        {"one_hot": ["color"]},
        r"no column 'color' to encode.*did you mean 'colour'\?\); the columns are 'batch', 'request_id'",
    ),
    "one-hot of a role": (
        {"query": list("aabbbcc")},
        {"one_hot": ["query"], "columns": {"step_id": "query"}},
        r"'query' cannot be encoded .*it is the step_id; .*--features.*The features are 'price', 'stars'",
    ),
    "one-hot of rewards": (
        {"reward": list("rgbrgbr")},
        {"one_hot": ["reward"]},
        r"'reward' cannot be encoded .*its name suggests that it is not a feature",
    ),
    "column that the model needs": (
        {"price": None},
        {"preparation": Preparation((FeatureColumn("price"),))},
        r"the columns 'price' are missing, which the model was fitted on; the columns are 'batch'",
    ),
    "one-hot, another than the model's": (
        {"colour": list("rgbrgbr")},
        {"one_hot": ["colour"], "preparation": Preparation((FeatureColumn("price"),))},
        r"'colour' cannot be encoded .*made as for the model, which was not fitted on it, but on 'price'",
    ),
    "one-hot of the model's number": (
        {},
        {"one_hot": ["price"], "preparation": Preparation((FeatureColumn("price"),))},
        r"'price' cannot be encoded .*made as for the model, which took it as a number",
    ),
    "one-hot of no column, for a model": (
        {},
        {"one_hot": ["prize"], "preparation": Preparation((FeatureColumn("price"),))},
        r"no column 'prize' to encode.*did you mean 'price'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(tmp_path, name):
    changes, options, words = WRONG[name]
    table = long_table(**changes)
    with pytest.raises(LogFormatError, match=rf"the Table: .*({words})"):
        ibcb.read_log(table, **options)
    pq.write_table(table, tmp_path / "log.parquet")
    for read in (lambda path, **o: list(open_log(path, **o).parts()), ibcb.read_log):
        with pytest.raises(LogFormatError, match=rf"log\.parquet: .*({words})"):
            read(tmp_path / "log.parquet", **options)


def test_a_feature_that_csv_has_a_column_for_is_not_written(tmp_path):
    log = BehaviorLog.from_episodes([(np.ones((2, 2, 1)), [0, 1])], feature_names=["step"])
    with pytest.raises(
        LogFormatError, match=r"a feature is called 'step', which is a column of its own in CSV; rename"
    ):
        ibcb.write_log(log, tmp_path / "log.csv")
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_exist():
    with pytest.raises(TypeError, match="no option 'onehot'"):
        ibcb.read_log(long_table(), onehot=True)
    with pytest.raises(TypeError, match="path, or a table.*list"):
        ibcb.read_log([1, 2])


def test_places_in_a_later_part_are_those_of_the_log(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(400, 2))
    contexts[333, 1] = np.nan
    table = pa.table(
        {
            "episode": np.repeat([0, 1], 200),
            "step": np.repeat(np.arange(200), 2),
            "chosen": np.tile([1, 0], 200),
            "x": contexts[:, 0],
            "y": contexts[:, 1],
        }
    )
    pq.write_table(table, tmp_path / "log.parquet")
    monkeypatch.setattr(parquet, "_STREAM_NUMBERS", 100)
    for read in (ibcb.read_log, lambda path: list(open_log(path).parts())):
        with pytest.raises(LogFormatError, match=r"episode 1, step 66, candidate 1: feature 'y' is nan"):
            read(tmp_path / "log.parquet")


def test_a_folder_of_two_formats_is_no_log(tmp_path):
    pq.write_table(long_table(), tmp_path / "a.parquet")
    write_csv(long_table(), tmp_path)
    with pytest.raises(LogFormatError, match=r"several formats \(\.csv, \.parquet\)"):
        ibcb.read_log(tmp_path)
    (tmp_path / "log.csv").unlink()
    pq.write_table(long_table(stars=None), tmp_path / "b.parquet")
    with pytest.raises(LogFormatError, match=r"b\.parquet: it has no column 'stars'"):
        ibcb.read_log(tmp_path)


def test_a_lazy_frame_is_to_be_collected_first():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    with pytest.raises(TypeError, match=r"got LazyFrame; collect it first: read_log\(frame.collect\(\)\)"):
        ibcb.read_log(polars.LazyFrame({"step": [0]}))


def test_times_that_differ_between_candidates_are_said(rng):
    """A feature called time is read as the time of the step: a note says so, and how to take it back."""
    table = pa.table(
        {
            "episode": np.arange(24) // 8,
            "step": np.arange(24) // 4,
            "chosen": np.arange(24) % 4 == 1,
            "time": np.where(np.arange(24) < 12, np.arange(24) // 4, rng.normal(size=24)),
            "price": rng.normal(size=24),
        }
    )
    log = ibcb.read_log(table)
    (note,) = [note for note in log.notes if note.code == "varying-times"]
    assert note.severity == "warning"
    assert re.search(r"in 3 steps it differs .* take it back with keep=\['time'\] \(--keep time\)", str(note))
    assert log.feature_names == ("price",)
    assert ibcb.read_log(table, keep=["time"]).feature_names == ("time", "price")
    named = ibcb.read_log(table, columns={"timestamp": "time"})
    assert not named.notes
