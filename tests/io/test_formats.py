"""Every format through the front door: read_log, open_log, write_log."""

import numpy as np
import pytest
from strategies import assert_same_log

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io import LOST, WRITABLE, formats, npz, open_log
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
