"""Every format through the front door: read_log, open_log, write_log."""

import numpy as np
import pyarrow as pa
import pytest
from strategies import assembled, assert_same_log

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io import LOST, WRITABLE, formats, npz, open_log, sparse
from ibcb.io.format import Format
from ibcb.log.recipe import FeatureColumn, Preparation


@pytest.fixture
def log(rng):
    sets = [[rng.normal(size=(m, 2)) for m in rng.integers(1, 5, size=6)] for _ in range(3)]
    return BehaviorLog.from_episodes([(s, [0] * 6) for s in sets], warmup=1, feature_names=["a", "b"])


@pytest.mark.parametrize("suffix", WRITABLE)
def test_every_format_that_is_written_is_read(tmp_path, log, suffix):
    ibcb.write_log(log, tmp_path / f"log{suffix}")
    options = {"episode_size": 6, "warmup": 1} if suffix == ".vw" else {}
    assert_same_log(ibcb.read_log(tmp_path / f"log{suffix}", **options), log)


@pytest.mark.parametrize("suffix", [".npz", ".vw", ".dsjson"])
def test_batches_are_small_whole_steps_and_may_be_read_again(tmp_path, monkeypatch, rng, suffix):
    sets = [[rng.normal(size=(m, 3)) for m in rng.integers(1, 9, size=20)] for _ in range(3)]
    log = BehaviorLog.from_episodes([(s, [0] * 20) for s in sets], feature_names=["a", "b", "c"])
    ibcb.write_log(log, tmp_path / f"log{suffix}")
    for module in (npz, sparse):
        monkeypatch.setattr(module, "BATCH_NUMBERS", 30)
    disk = open_log(tmp_path / f"log{suffix}", max_memory="400kB", **({"episode_size": 20} if suffix == ".vw" else {}))
    for _ in range(2):
        batches = list(disk._source.batches())
        assert len(batches) > 20
        assert all(batch.contexts.size <= 30 for batch in batches)
        assert_same_log(assembled(disk._source, disk._options), log)


def test_a_new_format_is_one_declaration_in_the_list(tmp_path, monkeypatch, log):
    """One that holds a log as another format does, under names of its own."""
    story = Format(name="story", open=npz.NpzSource, suffixes=(".story", ".tale"), write=npz.write_npz)
    story.write(log.parts(), tmp_path / "log.TALE")
    with pytest.raises(LogFormatError, match=r"must end in one of .*\.parquet.*\.npz"):
        ibcb.read_log(tmp_path / "log.TALE")
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, story))
    assert_same_log(ibcb.read_log(tmp_path / "log.TALE"), log)


@pytest.mark.parametrize("suffix", [".npz", ".dsjson"])
def test_a_log_on_disk_is_converted_and_back(tmp_path, log, suffix):
    ibcb.write_log(log, tmp_path / "log.parquet")
    ibcb.write_log(open_log(tmp_path / "log.parquet"), tmp_path / f"log{suffix}")
    ibcb.write_log(open_log(tmp_path / f"log{suffix}"), tmp_path / "again.parquet")
    assert_same_log(ibcb.read_log(tmp_path / "again.parquet"), log)


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"])
@pytest.mark.parametrize("what", ["timestamps", "step_ids"])
def test_times_of_any_unit_come_back(tmp_path, unit, what):
    times = np.array([2, 3, 4, 5], f"M8[{unit}]")
    log = BehaviorLog.from_episodes([(np.ones((2, 2, 2)), [0, 1])] * 2, **{what: times})
    np.testing.assert_array_equal(getattr(log, what), times)
    for suffix in WRITABLE:
        path = tmp_path / f"log{suffix}"
        if (suffix, what) == (".dsjson", "step_ids"):
            with pytest.raises(LogFormatError, match=r"step_ids holds times, such as 19.*an id is a number or a text"):
                ibcb.write_log(log, path)
        elif suffix != ".vw":
            ibcb.write_log(log, path)
            np.testing.assert_array_equal(getattr(ibcb.read_log(path), what), times)


def test_times_finer_than_nanoseconds_are_refused():
    with pytest.raises(LogFormatError, match=r"timestamps has dtype datetime64\[ps\]; give times in nanoseconds"):
        BehaviorLog.from_episodes([(np.ones((2, 2, 2)), [0, 1])], timestamps=np.array([1, 2], "M8[ps]"))


def test_columns_of_the_same_name_are_refused_of_every_table(tmp_path):
    names, words = ["step", "chosen", "item_id", "price"], "column 'price' appears twice; names must differ"
    columns = [[0, 0, 1, 1], [1, 0, 0, 1], ["a", "b", "a", "b"], [1.0, 2.0, 3.0, 4.0]]
    log = pa.table(columns, names)
    with pytest.raises(LogFormatError, match=words):
        ibcb.read_log(pa.table([*columns, columns[-1]], [*names, "price"]), episode_size=1)
    twice = pa.table([["a", "b"], [1.0, 2.0], [1.0, 2.0]], ["item_id", "price", "price"])
    (tmp_path / "side.csv").write_text("item_id,price,price\na,1,1\nb,2,2\n")
    for side in (twice, tmp_path / "side.csv"):
        with pytest.raises(LogFormatError, match=words):
            ibcb.read_log(log.drop_columns("price"), episode_size=1, items=side)
        with pytest.raises(LogFormatError, match=words):
            ibcb.read_log(log.drop_columns("chosen"), episode_size=1, arm="item_id", arm_features=side)


def test_what_is_not_lost_is_kept(tmp_path):
    preparation = Preparation((FeatureColumn("a", fill=0.5),))
    log = BehaviorLog(
        np.ones((2, 1), np.float32),
        [0, 1, 2],
        [0, 0],
        [0, 1, 2],
        feature_names=["a"],
        preparation=preparation,
    )
    for suffix in WRITABLE:
        ibcb.write_log(log, tmp_path / f"log{suffix}")
        again = ibcb.read_log(tmp_path / f"log{suffix}", **({"episode_size": 1} if suffix == ".vw" else {}))
        lost = LOST.get(suffix, "")
        assert (again.contexts.dtype == np.float32) == ("the float type" not in lost)
        assert (again.preparation == preparation) == ("how the features were made" not in lost)


@pytest.mark.parametrize("suffix", [".vw", ".txt", ".dsjson", ".json", ".jsonl", ".npz"])
def test_errors_name_the_file_once(tmp_path, suffix):
    path = tmp_path / f"log{suffix}"
    path.write_text("0:1:1 |a x:nan\n" if suffix in (".vw", ".txt") else '{"c": {"_multi": []}}')
    with pytest.raises(LogFormatError, match=rf"log\{suffix}") as caught:
        ibcb.read_log(path)
    assert str(caught.value).count("log.") == 1


@pytest.mark.parametrize("name", ["log.txt", "log.json"])
def test_text_and_json_of_another_kind_are_not_known(tmp_path, name):
    (tmp_path / name).write_text('{"hello": "world"}')
    with pytest.raises(LogFormatError, match=r"the name does not tell the format; it must end in one of .*\.dsjson"):
        ibcb.read_log(tmp_path / name)
