"""NumPy archives: nothing is lost, nothing is executed, and what is broken is named."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from strategies import NAMES, assembled, assert_same_log, in_parts, logs, reproducible

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io import npz, open_log
from ibcb.io.npz import NpzSource, write_npz
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import ReadOptions


def source_of(tmp_path, *, options=None, **arrays):
    np.savez(tmp_path / "log.npz", **arrays)
    return NpzSource(tmp_path / "log.npz", options or ReadOptions())


def fine(**changes):
    """Arrays of a log of four steps and two episodes; None takes an array away."""
    arrays = {
        "contexts": np.arange(18.0).reshape(9, 2),
        "step_offsets": np.array([0, 2, 5, 6, 9]),
        "chosen": np.array([1, 2, 0, 0]),
        "episode": np.array([-1, 0, 0, 1]),
    }
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def refused(path, words, **options):
    with pytest.raises(LogFormatError, match=rf"^log\.npz: .*({words})"):
        list(open_log(path, **options).parts())


# -- round trip ----------------------------------------------------------------------------------------------------


@reproducible
@given(logs(names=NAMES.filter(lambda name: not name.endswith("\0"))))
def test_a_log_comes_back_to_the_bit(tmp_path_factory, log):
    path = tmp_path_factory.getbasetemp() / "round-trip.npz"
    write_npz(in_parts(log), path)
    again = assembled(NpzSource(path, ReadOptions()))
    assert_same_log(again, log)
    assert again.contexts.tobytes() == log.contexts.tobytes()


def test_numpy_reads_what_we_write_and_the_bytes_repeat(tmp_path):
    ids = np.array(["a", "bcd"], dtype=object)
    log = BehaviorLog(np.ones((3, 2)), [0, 1, 3], [0, 1], [0, 1, 2], warmup=1, feature_names=["a", "é"], step_ids=ids)
    for name in ("one.npz", "two.npz"):
        write_npz(in_parts(log), tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].tolist() for name in arrays} == {
            "contexts": log.contexts.tolist(),
            "chosen": [0, 1],
            "episode": [-1, 0],
            "step_offsets": [0, 1, 3],
            "step_ids": ["a", "bcd"],
            "feature_names": ["a", "é"],
        }
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.npz", "two.npz"]


@pytest.mark.parametrize(
    "extras, words",
    [
        ({"feature_names": ["a\0"]}, r"feature_names holds 'a\\x00'"),
        ({"step_ids": np.array([(1, 2), None], dtype=object)[:1]}, r"step_ids holds \(1, 2\)"),
    ],
)
def test_what_npz_cannot_hold_is_not_written(tmp_path, extras, words):
    log = BehaviorLog([[1.0]], [0, 1], [0], [0, 1], **extras)
    with pytest.raises(LogFormatError, match=words):
        write_npz(in_parts(log), tmp_path / "log.npz")
    single = BehaviorLog(np.ones((1, 1), "f4"), [0, 1], [0], [0, 1])
    with pytest.raises(LogFormatError, match="episode 1: contexts are float64, those before float32"):
        write_npz([(0, single), (1, BehaviorLog([[1.0]], [0, 1], [0], [0, 1]))], tmp_path / "log.npz")


def test_how_the_features_were_made_comes_back(tmp_path):
    preparation = Preparation((FeatureColumn("a", fill=0.5), FeatureColumn("b", ("x",))), (("step", "request"),))
    log = BehaviorLog(
        np.ones((1, 2)), [0, 1], [0], [0, 1], feature_names=preparation.feature_names, preparation=preparation
    )
    write_npz([(0, log)], tmp_path / "log.npz")
    assert NpzSource(tmp_path / "log.npz", ReadOptions()).preparation == preparation
    assert NpzSource(tmp_path / "log.npz", ReadOptions(drop=["a"])).preparation == preparation.only(["b=x"])


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f4", "f8", ">f8", "i2", "u8", "?"])
@pytest.mark.parametrize("save, order", [(np.savez, "F"), (np.savez_compressed, "C")])
def test_arrays_of_any_kind_and_order(tmp_path, save, kind, order):
    contexts = np.asarray(np.arange(24).reshape(3, 4, 2) % 5, dtype=kind, order=order)
    save(tmp_path / "log.npz", contexts=contexts, chosen=[0, 3, 1.0], episode=["a", "a", "b"])
    log = assembled(NpzSource(tmp_path / "log.npz", ReadOptions()))
    assert log.contexts.dtype == (np.float32 if kind == "f4" else np.float64)
    np.testing.assert_array_equal(log.contexts, contexts.reshape(12, 2))
    assert log.episode_offsets.tolist() == [0, 2, 3]
    assert log.candidates_per_step == 4


def test_labels_or_offsets_and_a_number_of_warm_up_episodes(tmp_path):
    log = assembled(source_of(tmp_path, **fine(episode=np.array(["x", "y", "y", "z"]), warmup=np.array(2))))
    assert (log.warmup, log.episode_offsets.tolist()) == (2, [0, 1, 3, 4])
    log = assembled(source_of(tmp_path, **fine(episode=None, episode_offsets=[0, 1, 4], warmup=np.array(1))))
    assert (log.warmup, log.episode_offsets.tolist()) == (1, [0, 1, 4])


def test_features_are_chosen_by_name(tmp_path):
    arrays = fine(feature_names=np.array(["a", "b"]))
    for options in (ReadOptions(features=["b"]), ReadOptions(drop=["a"])):
        log = assembled(source_of(tmp_path, options=options, **arrays))
        assert log.feature_names == ("b",)
        np.testing.assert_array_equal(log.contexts[:, 0], arrays["contexts"][:, 1])
    preparation = Preparation((FeatureColumn("b"), FeatureColumn("a")))
    log = assembled(source_of(tmp_path, options=ReadOptions(preparation=preparation), **arrays))
    np.testing.assert_array_equal(log.contexts, arrays["contexts"][:, ::-1])
    unnamed = source_of(tmp_path, options=ReadOptions(preparation=preparation), **fine())
    assert unnamed.feature_names == ("b", "a")
    np.testing.assert_array_equal(assembled(unnamed).contexts, arrays["contexts"])


def test_without_choices_chosen_may_be_missing_and_other_arrays_are_left_out(tmp_path):
    options = ReadOptions(choices=False)
    assert assembled(source_of(tmp_path, options=options, **fine(chosen=None))).chosen.tolist() == [0, 0, 0, 0]
    source = source_of(tmp_path, options=options, **fine(rewards=np.array([1.0]), user=np.array([{}], dtype=object)))
    assert tuple(map(str, source.notes)) == ("arrays left out: rewards, user.",)
    assert assembled(source).chosen.tolist() == [1, 2, 0, 0]


def test_sorting_by_episode_and_time(tmp_path, rng, monkeypatch):
    sizes = rng.integers(1, 4, size=30)
    order = rng.permutation(30)
    rows = [np.full((size, 2), step, dtype=float) for step, size in enumerate(sizes)]
    arrays = {
        "contexts": np.concatenate([rows[step] for step in order]),
        "step_offsets": np.cumsum([0, *sizes[order]]),
        "chosen": np.zeros(30, int),
        "episode": order // 10,
        "timestamps": order / 7,
    }
    with pytest.raises(LogFormatError, match=r"follows.*sort=True"):
        assembled(source_of(tmp_path, **arrays))
    monkeypatch.setattr(npz, "BATCH_NUMBERS", 20)
    log = assembled(source_of(tmp_path, options=ReadOptions(sort=True), **arrays))
    np.testing.assert_array_equal(log.contexts, np.concatenate(rows))
    assert log.episode_offsets.tolist() == [0, 10, 20, 30]
    np.savez(tmp_path / "log.npz", **fine(episode=None))
    refused(tmp_path / "log.npz", "nothing to sort by", sort=True)


# -- broken files --------------------------------------------------------------------------------------------------

NAN = np.where(np.arange(18).reshape(9, 2) == 9, np.nan, 1.0)
BROKEN = {
    "no contexts": (fine(contexts=None), "array 'contexts' is missing: .*this file has step_offsets, chosen, episode"),
    "no choices": (fine(chosen=None), "array 'chosen' is missing"),
    "no offsets": (fine(step_offsets=None), "array 'step_offsets' is missing"),
    "offsets for a cube": (fine(contexts=np.ones((4, 2, 2))), "leave out step_offsets"),
    "flat contexts": (fine(contexts=np.ones(18)), r"contexts has shape \(18,\)"),
    "contexts text": (fine(contexts=np.full((9, 2), "a")), "contexts has dtype <U1; use float32 or float64"),
    "contexts nan": (fine(contexts=NAN), "episode 0, step 0, candidate 2: feature 1 is nan; contexts must be finite"),
    "choice too large": (fine(chosen=[0, 3, 0, 0]), "step 1: chosen is 3 but the step has 3 candidates"),
    "choice fractional": (fine(chosen=[0, 0.5, 0, 0]), "chosen of step 1 is 0.5"),
    "choice text": (fine(chosen=["a"] * 4), "chosen has dtype <U1; save it as whole numbers"),
    "offsets fall": (fine(step_offsets=[0, 5, 2, 6, 9]), r"step_offsets\[2\] is 2, below 5"),
    "offsets too many": (fine(step_offsets=[0] * 11 + [9]), r"step_offsets has shape \(12,\), but there are 9 rows"),
    "offsets empty": (fine(step_offsets=np.zeros(0, int)), "The log is empty"),
    "episodes twice": (fine(episode_offsets=[0, 4]), "both 'episode' and 'episode_offsets'"),
    "episode empty": (fine(episode=None, episode_offsets=[0, 2, 2, 4]), "episode 1 has no steps"),
    "episode no number, with warm-up": (fine(episode=[0.0, 1.0, np.nan, 2.0], warmup=1), "step 2: the episode is nan"),
    "warm-up twice": (fine(warmup=1), "some episodes are below 0"),
    "warm-up alone": (fine(episode=None, warmup=1), "warmup needs the episodes"),
    "warm-up only": (fine(episode=[0, 0, 1, 1], warmup=2), "warmup is 2 but the log has 2 episodes"),
    "other preparation": (
        fine(preparation='{"columns": [], "roles": {}}'),
        "array 'preparation' makes other features than feature_names",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_arrays_are_refused_by_the_name_of_the_file(tmp_path, name):
    arrays, words = BROKEN[name]
    np.savez(tmp_path / "log.npz", **arrays)
    refused(tmp_path / "log.npz", words)


SPARSE = {
    "columns beyond": ({"contexts_columns": 10**6}, "and contexts_columns 360, of 90 features; they do not match"),
    "no number of features": ({"n_features": None}, "a sparse log has .*, but n_features is missing"),
    "number of features a list": ({"n_features": [9]}, r"n_features has shape \(1,\)"),
    "offsets": ({"contexts_offsets": 0}, "contexts_offsets must rise from 0 to the number of numbers, 360"),
    "whole numbers": ({"contexts": 1}, "contexts has dtype int64; use float32 or float64"),
}


@pytest.mark.parametrize("name", SPARSE)
def test_broken_sparse_arrays_are_refused(tmp_path, rng, name):
    log = BehaviorLog.from_arms([(rng.normal(size=(4, 3)), [0, 1, 2, 0])], n_arms=30)
    changes, words = SPARSE[name]
    write_npz([(0, log)], tmp_path / "log.npz")
    with np.load(tmp_path / "log.npz") as file:
        arrays = dict(file)
    for array, value in changes.items():
        arrays[array] = np.full(arrays[array].shape, value) if isinstance(value, int) else value
    np.savez(tmp_path / "log.npz", **{name: array for name, array in arrays.items() if array is not None})
    refused(tmp_path / "log.npz", words)


ASKED = {
    "unknown feature": ({"features": ["c"]}, "no feature is named c; the file has a, b"),
    "all dropped": ({"drop": ["a", "b"]}, "every feature was dropped"),
    "one-hot": ({"one_hot": ["a"]}, "no column 'a' to encode .*an archive holds numbers; encode columns before"),
    "columns": ({"columns": {"episode": "day"}}, "'day' was named as column 'episode'"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_cannot_be_asked_is_refused(tmp_path, name):
    options, words = ASKED[name]
    np.savez(tmp_path / "log.npz", **fine(feature_names=["a", "b"]))
    refused(tmp_path / "log.npz", words, **options)
    np.savez(tmp_path / "log.npz", **fine())
    refused(tmp_path / "log.npz", "asked for by name, but array 'feature_names' is missing", features=["a"])


# -- files that are no archive, or a dangerous one -----------------------------------------------------------------


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize("array", ["contexts", "episode", "feature_names", "rewards"])
def test_a_pickle_within_an_archive_is_never_executed(tmp_path, array):
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    np.savez(tmp_path / "log.npz", **fine(**{array: trap}))
    if array == "rewards":
        assert ibcb.read_log(tmp_path / "log.npz").n_steps == 4
    else:
        refused(tmp_path / "log.npz", f"array '{array}' holds Python objects.*pickle")
    assert not (tmp_path / "sprung").exists()
    with np.load(tmp_path / "log.npz", allow_pickle=True) as arrays:
        assert arrays[array].size  # it would have sprung
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY", bytes(range(256)) * 4, pickle.dumps(1)])
def test_files_that_are_no_archive_are_refused_by_name(tmp_path, content):
    (tmp_path / "log.npz").write_bytes(content)
    refused(tmp_path / "log.npz", "not a readable NumPy archive")


def header(shape, descr="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


DAMAGED = {
    "more than it holds": (
        header((10**12, 10**6)) + bytes(80),
        r"says it has shape .*, 8000000000000000000 bytes, but",
    ),
    "odd shape": (header((-3, 2)), r"shape \(-3, 2\) of float64, -48 bytes, but holds 0; the file is damaged"),
    "odd version": (b"\x93NUMPY\x09\x00" + bytes(100), r"array 'contexts' cannot be read .*\(9, 0\)"),
    **{
        f"header with {new}": (header((9, 2)).replace(old, new) + bytes(144), "the header of array 'contexts' cannot")
        for old, new in ((b"{", b"("), (b"(9, 2)", b"(09,2)"), (b"'<f8'", b"'<q8'"), (b"'shape'", b"'shade'"))
    },
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_header_that_cannot_be_is_refused_before_the_array_is_read(tmp_path, name):
    content, words = DAMAGED[name]
    with zipfile.ZipFile(tmp_path / "log.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("contexts.npy", content)
    refused(tmp_path / "log.npz", words)


def test_an_array_that_is_there_twice_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as file:
        file.writestr("contexts.npy", header((0,)))
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("contexts.npy", header((0,)))
    refused(tmp_path / "log.npz", "'contexts' appears twice")
