"""Logs and models on disk: what is written comes back, and what is broken is named."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import slow
from safetensors import safe_open
from safetensors.numpy import save_file
from strategies import assert_same_log

import ibcb
from ibcb import IBCB, BaseSVC, BehaviorLog, LogFormatError
from ibcb.estimators.models import ModelFileError, content_digest
from ibcb.io import atomic
from ibcb.log.fingerprint import log_fingerprint


def some_log(n=3, warmup=0, dtype=np.float64, seed=0, **extras):
    rng = np.random.default_rng(seed)
    episodes = [(rng.normal(size=(6, 3, 2)).astype(dtype), rng.integers(3, size=6)) for _ in range(n + warmup)]
    return BehaviorLog.from_episodes(episodes, warmup=warmup, **extras)


# -- logs: round trip ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        np.arange(18, dtype=np.int32),
        np.arange(18, dtype=np.uint64) + 2**63,
        np.linspace(0, 1, 18),
        np.datetime64("2024-02-29T12:00:00.123456789") + np.arange(18),
        np.datetime64("2024-02-29T12:00:00.123456") + np.arange(18),
        np.datetime64("2024-02-29T12:00:00.123") + np.arange(18),
        np.datetime64("2024-02-29T12:00:00") + np.arange(18),
        np.array([f"étape {i}" for i in range(18)]),
    ],
    ids=lambda values: str(values.dtype),
)
def test_timestamps_and_ids_of_any_kind_come_back(tmp_path, values):
    log = some_log(timestamps=values, step_ids=values[::-1])
    for name in ("log.parquet", "log.npz"):
        ibcb.write_log(log, tmp_path / name)
        again = ibcb.read_log(tmp_path / name)
        assert_same_log(again, log)
        if values.dtype.kind in "iuf" or name == "log.npz":
            assert again.timestamps.dtype == again.step_ids.dtype == values.dtype


@pytest.mark.parametrize("part", [slice(1, 3), slice(None, 2), 2])
def test_a_slice_is_written_as_the_log_it_is(tmp_path, part):
    log = some_log(warmup=2, timestamps=np.arange(30), step_ids=np.arange(30), feature_names=["a", "b"])[part]
    ibcb.write_log(log, tmp_path / "log.parquet")
    assert_same_log(ibcb.read_log(tmp_path / "log.parquet"), log)


def test_the_columns_are_what_the_documentation_says(tmp_path):
    log = some_log(n=2, warmup=1, timestamps=np.arange(18))
    ibcb.write_log(log, tmp_path / "log.parquet")
    file = pq.ParquetFile(tmp_path / "log.parquet")
    table = file.read().to_pydict()
    assert table["episode"] == [-1] * 6 + [0] * 6 + [1] * 6
    assert table["step"] == list(range(6)) * 3
    assert table["n_candidates"] == [3] * 18
    assert table["chosen"] == log.chosen.tolist()
    assert table["timestamp"] == list(range(18))
    np.testing.assert_array_equal(np.array(table["contexts"]).reshape(-1, 2), log.contexts)
    assert file.metadata.num_row_groups == 3


def test_a_file_of_somebody_else_with_these_columns_is_a_log(tmp_path):
    table = pa.table(
        {
            "episode": pa.array([0, 0, 7], pa.int16()),
            "step": [0, 1, 0],
            "chosen": pa.array([1, 0, 0], pa.uint8()),
            "n_candidates": pa.array([2, 1, 2], pa.int32()),
            "contexts": pa.array([[1, 2, 3, 4], [5, 6], [7, 8, 9, 10]], pa.large_list(pa.int32())),
            "country": ["fr", "fr", "de"],
        }
    )
    pq.write_table(table, tmp_path / "log.parquet")
    log = ibcb.read_log(tmp_path / "log.parquet")
    expected = [([[[1, 2], [3, 4]], [[5, 6]]], [1, 0]), ([[[7, 8], [9, 10]]], [0])]
    assert_same_log(log, BehaviorLog.from_episodes(expected))


def test_the_folder_of_a_log_does_not_matter(tmp_path):
    log = some_log(n=2)
    path = tmp_path / "episode=7" / "a ä" / "log.parquet"
    ibcb.write_log(log, path)
    assert_same_log(ibcb.read_log(path), log)
    assert_same_log(ibcb.read_log(str(path)), log)


def test_the_same_log_gives_the_same_bytes(tmp_path):
    for name in ("one.parquet", "two.parquet"):
        ibcb.write_log(some_log(), tmp_path / name)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_what_is_not_a_log_is_not_written(tmp_path):
    with pytest.raises(TypeError, match=r"BehaviorLog.*list|list.*BehaviorLog"):
        ibcb.write_log([1, 2], tmp_path / "log.parquet")
    assert list(tmp_path.iterdir()) == []


# -- logs: broken files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log.docx", "log", "log.parquet.gz"])
def test_other_suffixes_are_refused_with_the_right_one(tmp_path, name):
    with pytest.raises(LogFormatError, match=rf"{name}: .*\.parquet"):
        ibcb.write_log(some_log(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).write_text("hello")
    with pytest.raises(LogFormatError, match=rf"{name}: .*\.parquet"):
        ibcb.read_log(tmp_path / name)


# -- models: round trip --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run():
    return ibcb.simulate(n_episodes=5, batch_size=60, warmup=60, n_candidates=4, n_features=3, noise=0.03, seed=1)


def assert_same_model(one, other):
    assert type(one) is type(other)
    for name in ("coef_", "next_policy_coef_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
    assert (one.n_features_in_, one.feature_names_in_) == (other.n_features_in_, other.feature_names_in_)
    assert one.log_fingerprint_ == other.log_fingerprint_
    if isinstance(one, IBCB):
        np.testing.assert_array_equal(one.policy_coefs_, other.policy_coefs_, strict=True)
        assert (one.diagnostics_, one.solver_, one.notes_) == (other.diagnostics_, other.solver_, other.notes_)


def stored(model, path):
    ibcb.save_model(model, path)
    return ibcb.load_model(path)


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize("solver", ["auto", "soft", "paper"])
def test_a_model_comes_back_to_the_bit(tmp_path, run, solver, incremental):
    model = IBCB(solver=solver, l2=0.3, alpha=0.7, incremental=incremental).fit(run.log.head(0.4))
    again = stored(model, tmp_path / "m.safetensors")
    assert_same_model(again, model)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(run.test_log), model.predict(run.test_log))


def altered(log, episode, step):
    """The log with one choice changed, which an exact solution may not survive."""
    chosen = log.chosen.copy()
    at = log.episode_offsets[log.warmup + episode] + step
    chosen[at] = (chosen[at] + 1) % 4
    return BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=log.warmup)


CONTINUED = {
    **{f"sbucb {solver}": {"solver": solver} for solver in ("auto", "hard", "soft", "robust", "paper")},
    **{f"sbts {solver}": {"solver": solver, "expert": "sbts"} for solver in ("auto", "soft", "robust", "paper")},
    "auto, robust since episode 1": {"solver": "auto", "log": "altered"},
    "pruned": {"solver": "robust", "prune": True, "log": "altered"},
    "prior": {"solver": "auto", "prior_gram": 5 * np.eye(3)},
    "prior, sbts": {"solver": "soft", "expert": "sbts", "prior_gram": 5 * np.eye(3), "alpha": 0.7},
    "single precision": {"solver": "robust", "log": "single"},
}


@pytest.mark.parametrize("after", [2, slow(4)])
@pytest.mark.parametrize("name", CONTINUED)
def test_a_loaded_model_goes_on_to_what_a_fit_of_everything_finds(tmp_path, run, name, after):
    """To the bit, as if it had never been stored."""
    setting = {"l2": 0.3} | CONTINUED[name]
    log = {
        "plain": lambda: run.log,
        "altered": lambda: altered(run.log, 1, 30),
        "single": lambda: BehaviorLog(
            run.log.contexts.astype(np.float32), run.log.step_offsets, run.log.chosen, run.log.episode_offsets, warmup=1
        ),
    }[setting.pop("log", "plain")]()
    whole = IBCB(**setting).fit(log)
    if name.startswith("auto"):
        assert whole.solver_ == "robust"
    model = stored(IBCB(**setting).fit(log[:after]), tmp_path / "m.safetensors")
    for episode in log[after:]:
        model.partial_fit(episode)
    assert_same_model(model, whole)
    assert_same_model(stored(model, tmp_path / "m.safetensors"), whole)


def test_names_priors_and_notes_come_back(tmp_path, run):
    rng = np.random.default_rng(0)
    episodes = [(rng.normal(size=(40, 4, 3)), rng.integers(4, size=40)) for _ in range(3)]
    log = BehaviorLog.from_episodes(episodes, feature_names=["a", "b", "ç"])
    model = IBCB(prior_gram=3 * np.eye(3), prune=True).fit(log)
    assert model.solver_ == "robust"
    assert any(entry.certificate for entry in model.diagnostics_)
    again = stored(model, tmp_path / "m.safetensors")
    assert_same_model(again, model)
    assert [type(entry.certificate) for entry in again.diagnostics_] == [
        type(entry.certificate) for entry in model.diagnostics_
    ]
    np.testing.assert_array_equal(again.prior_gram, model.prior_gram)
    assert_same_model(again.fit(log), model)


def test_behaviour_cloning_comes_back(tmp_path, run):
    model = BaseSVC(C=0.5).fit(run.log)
    again = stored(model, tmp_path / "m.safetensors")
    assert_same_model(again, model)
    assert again.C == 0.5


def test_the_metadata_say_what_is_in_the_file(model_path, run):
    with safe_open(model_path, framework="numpy") as file:
        meta = json.loads(file.metadata()["ibcb"])
    assert meta["class"] == "IBCB"
    assert meta["library_version"] == ibcb.__version__
    assert meta["parameters"]["l2"] == 0.3
    assert meta["state"]["feature_names"] is None
    assert meta["state"]["log_fingerprint"] == log_fingerprint(run.log)
    assert [entry["episode"] for entry in meta["state"]["fit"]["evolution"]["diagnostics"]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("change", [{"alpha": 5.0}, {"l2": 50.0}, {"expert": "sbts"}], ids=str)
def test_parameters_changed_after_fit_do_not_change_what_was_fitted(tmp_path, run, change):
    model = IBCB(l2=0.3).fit(run.log)
    model.set_params(**change)
    assert_same_model(stored(model, tmp_path / "m.safetensors"), model)


def test_a_stored_auto_model_says_what_to_do_when_it_would_need_its_logs(tmp_path, run):
    model = stored(IBCB(l2=0.3).fit(run.log), tmp_path / "m.safetensors")
    assert model.solver_ == "hard"
    before = model.coef_
    rng = np.random.default_rng(0)
    nonsense = BehaviorLog.from_episodes([(rng.normal(size=(60, 4, 3)), rng.integers(4, size=60))])
    words = r"episode 5 has no exact solution.*steps 5:\d+.*keeps no logs.*fit on the whole log.*solver='robust'"
    with pytest.raises(ibcb.SolverError, match=words) as caught:
        model.partial_fit(nonsense)
    assert {row.episode for row in caught.value.__cause__.certificate} == {5}
    np.testing.assert_array_equal(model.coef_, before)
    assert model.log_fingerprint_ == log_fingerprint(run.log)
    kept = IBCB(l2=0.3).fit(run.log).partial_fit(nonsense)
    assert kept.solver_ == "robust"


def test_only_fitted_models_of_ours_are_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        ibcb.save_model(IBCB(), tmp_path / "m.safetensors")
    with pytest.raises(TypeError, match=r"IBCB, .*BaseSVC.*dict"):
        ibcb.save_model({}, tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


# -- models: broken files ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model_bytes(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    ibcb.save_model(IBCB(l2=0.3).fit(run.log), path)
    return path.read_bytes()


@pytest.fixture
def model_path(tmp_path, model_bytes):
    path = tmp_path / "model.safetensors"
    path.write_bytes(model_bytes)
    return path


def tamper(path, change):
    """Rewrite a model file with ``change(arrays, meta)`` applied."""
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        meta = json.loads(file.metadata()["ibcb"])
    change(arrays, meta)
    content = json.dumps(meta)
    # The digest of what is there now: the checks behind it must hold alone.
    save_file(arrays, path, {"ibcb": content, "blake2b": content_digest(arrays, content)})


TAMPERING = {
    "newer version": lambda arrays, meta: meta.update(version=99),
    "no version": lambda arrays, meta: meta.pop("version"),
    "unknown class": lambda arrays, meta: meta.update({"class": "Oracle"}),
    "no class": lambda arrays, meta: meta.pop("class"),
    "no parameters": lambda arrays, meta: meta.pop("parameters"),
    "unknown parameter": lambda arrays, meta: meta["parameters"].update(gamma=1),
    "impossible parameter": lambda arrays, meta: meta["parameters"].update(l2=-1.0),
    "no state": lambda arrays, meta: meta.pop("state"),
    "no diagnostics": lambda arrays, meta: meta["state"]["fit"]["evolution"].pop("diagnostics"),
    "odd diagnostics": lambda arrays, meta: meta["state"]["fit"]["evolution"].update(diagnostics=[{"episode": 0}]),
    "too few names": lambda arrays, meta: meta["state"].update(feature_names=["a"]),
    "no coef": lambda arrays, meta: arrays.pop("coef"),
    "no gram": lambda arrays, meta: arrays.pop("fit.evolution.history.chosen.phi"),
    "gram of other shape": lambda arrays, meta: arrays.update({"fit.evolution.history.chosen.phi": np.eye(5)}),
    "theta not finite": lambda arrays, meta: arrays.update({"fit.evolution.theta": np.full(3, np.nan)}),
    "gram negative": lambda arrays, meta: arrays.update({"fit.evolution.history.chosen.phi": -100 * np.eye(3)}),
    "theta in single precision": lambda arrays, meta: arrays.update(
        {"fit.evolution.theta": arrays["fit.evolution.theta"].astype(np.float32)}
    ),
    "track of other size": lambda arrays, meta: arrays.update({"fit.track.now.unit": np.eye(4)}),
    "models of other number": lambda arrays, meta: arrays.update({"fit.track.now.evidence": np.zeros(3)}),
    "no track": lambda arrays, meta: meta["state"]["fit"]["track"].pop("chosen"),
    "note is text": lambda arrays, meta: meta["state"]["fit"].update(solving=["all is well"]),
    "prior not finite": lambda arrays, meta: arrays.update({"parameter.prior_gram": np.full((3, 3), np.nan)}),
    "no library version": lambda arrays, meta: meta.pop("library_version"),
    "no fingerprint": lambda arrays, meta: meta["state"].pop("log_fingerprint"),
    "fingerprint a number": lambda arrays, meta: meta["state"].update(log_fingerprint=12),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_tampered_models_are_refused_by_name(model_path, name):
    tamper(model_path, TAMPERING[name])
    with pytest.raises(ModelFileError, match=r"model\.safetensors: (?!damaged: its digest)"):
        ibcb.load_model(model_path)


def test_a_newer_version_asks_for_an_upgrade(model_path):
    tamper(model_path, TAMPERING["newer version"])
    with pytest.raises(ModelFileError, match=r"version 99.*reads version 3.*Upgrade"):
        ibcb.load_model(model_path)


def test_a_model_of_the_release_before_asks_for_a_new_fit(model_path):
    tamper(model_path, lambda arrays, meta: meta.update(version=1, library_version="0.1.0"))
    with pytest.raises(ModelFileError, match=r"ibcb 0\.1\.0.*version 1.*reads version 3.*fit the model again"):
        ibcb.load_model(model_path)


def test_a_file_that_release_0_2_wrote_asks_for_a_new_fit():
    """`ibcb.IBCB(l2=0.3, forecast=None)`, fitted there to two episodes of 20 steps: what a fit holds has changed."""
    with pytest.raises(
        ModelFileError, match=r"model-0\.2\..*written by ibcb 0\.2\.0 in .*version 2.*fit the model again"
    ):
        ibcb.load_model(Path(__file__).with_name("model-0.2.safetensors"))


@pytest.mark.parametrize("version", ["0.2.1", "9.0.0.dev3"])
def test_a_newer_library_with_the_same_format_can_be_read(model_path, version):
    """It may have added what this one does not know of."""
    before = ibcb.load_model(model_path)

    def newer(arrays, meta):
        meta.update(library_version=version, licence="MIT")
        meta["state"].update(weather="fine")
        arrays.update(intercepts=np.zeros(7))

    tamper(model_path, newer)
    assert_same_model(ibcb.load_model(model_path), before)


def test_what_only_a_newer_library_knows_asks_for_it(model_path):
    def newer(arrays, meta):
        meta.update(library_version="9.0.0")
        meta["parameters"].update(gamma=1)

    tamper(model_path, newer)
    with pytest.raises(ModelFileError, match=r"gamma.*written by ibcb 9\.0\.0 and this is .*upgrade, or save"):
        ibcb.load_model(model_path)


@pytest.mark.parametrize("content", ["not json", "[]", "3", "{}"])
def test_metadata_that_is_not_ours_is_refused(tmp_path, content):
    save_file({"coef": np.zeros(3)}, tmp_path / "odd.safetensors", {"ibcb": content})
    with pytest.raises(ModelFileError, match=r"odd\.safetensors"):
        ibcb.load_model(tmp_path / "odd.safetensors")


def test_foreign_safetensors_are_refused(tmp_path):
    save_file({"weight": np.zeros(3)}, tmp_path / "foreign.safetensors")
    with pytest.raises(ModelFileError, match=r"foreign\.safetensors: .*not one written by ibcb"):
        ibcb.load_model(tmp_path / "foreign.safetensors")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_truncated_models_are_refused(model_path, share):
    content = model_path.read_bytes()
    model_path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelFileError, match=r"model\.safetensors: not a readable model file"):
        ibcb.load_model(model_path)


@pytest.mark.parametrize("every", [41, slow(3)])
def test_no_flipped_bit_goes_unseen(model_path, every):
    """Of so many bytes of the header, and of the arrays, a bit: refused by name, or the very same model (blanks)."""
    content, before = model_path.read_bytes(), ibcb.load_model(model_path)
    rng = np.random.default_rng(0)
    harmless = 0
    arrays = 8 + int.from_bytes(content[:8], "little")
    apart = max(every, every * (len(content) - arrays) // 3000)
    for place in (*range(0, arrays, every), *range(arrays, len(content), apart)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        model_path.write_bytes(damaged)
        try:
            again = ibcb.load_model(model_path)
        except ModelFileError as error:
            assert "model.safetensors" in str(error)  # noqa: PT017
        else:
            assert_same_model(again, before)
            assert again.get_params() == before.get_params()
            harmless += 1
    assert harmless < 8  # what fills the header up


def test_damaged_numbers_are_told_from_other_damage(model_path):
    content = bytearray(model_path.read_bytes())
    content[-3] ^= 1
    model_path.write_bytes(content)
    with pytest.raises(
        ModelFileError, match=r"model\.safetensors: damaged: its digest is \w{32}.*save the model again"
    ):
        ibcb.load_model(model_path)


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "U8"])
def test_number_formats_that_are_not_ours_are_refused(tmp_path, kind):
    size = {"BF16": 2}.get(kind, 1)
    header = json.dumps(
        {
            "__metadata__": {"ibcb": '{"version": 1}'},
            "coef": {"dtype": kind, "shape": [3], "data_offsets": [0, 3 * size]},
        }
    ).encode()
    (tmp_path / "odd.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(3 * size))
    with pytest.raises(ModelFileError, match=r"odd\.safetensors"):
        ibcb.load_model(tmp_path / "odd.safetensors")


def test_logs_and_noise_are_not_models(tmp_path):
    ibcb.write_log(some_log(), tmp_path / "log.parquet")
    (tmp_path / "noise.safetensors").write_bytes(np.random.default_rng(0).bytes(500))
    for name in ("log.parquet", "noise.safetensors"):
        with pytest.raises(ModelFileError, match=name):
            ibcb.load_model(tmp_path / name)


def test_a_pickle_is_never_executed(tmp_path):
    trap = b"cos\nsystem\n(S'touch " + os.fsencode(tmp_path / "trapped") + b"'\ntR."
    (tmp_path / "evil.safetensors").write_bytes(trap)
    with pytest.raises(ModelFileError, match="evil"):
        ibcb.load_model(tmp_path / "evil.safetensors")
    assert not (tmp_path / "trapped").exists()


def test_a_missing_model_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.safetensors does not exist"):
        ibcb.load_model(tmp_path / "nowhere.safetensors")


def test_a_folder_is_not_a_model(tmp_path):
    with pytest.raises((ModelFileError, OSError), match=tmp_path.name):
        ibcb.load_model(tmp_path)


# -- files appear whole or not at all ------------------------------------------------------------------------------


@pytest.mark.parametrize("old, interruption", [(None, RuntimeError), ("old", KeyboardInterrupt), ("old", SystemExit)])
def test_an_interrupted_write_leaves_no_trace(tmp_path, old, interruption):
    path = tmp_path / "file.txt"
    if old is not None:
        path.write_text(old)

    def write():
        with atomic(path) as temporary:
            temporary.write_text("half of the n")
            raise interruption

    with pytest.raises(interruption):
        write()
    assert [file.name for file in tmp_path.iterdir()] == ([] if old is None else ["file.txt"])
    assert old is None or path.read_text() == old


def test_a_finished_write_replaces_the_old_file_at_once(tmp_path):
    path = tmp_path / "new" / "file.txt"
    for content in ("one", "two"):
        with atomic(path) as temporary:
            temporary.write_text(content)
            assert temporary.parent == path.parent
            assert not path.exists() or path.read_text() == "one"
        assert path.read_text() == content
    assert list(path.parent.iterdir()) == [path]


def test_permissions_are_those_of_a_plain_file(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic(tmp_path / "careful") as temporary:
        temporary.write_text("")
    assert (tmp_path / "careful").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_a_file_that_is_replaced_passes_its_permissions_on(tmp_path):
    (tmp_path / "private").write_text("")
    (tmp_path / "private").chmod(0o600)
    with atomic(tmp_path / "private") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("é" * 120 + "n" * 10)
    with atomic(path) as temporary:
        temporary.write_text("new")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_is_being_written_by_another_is_left_alone(tmp_path):
    """Two writers of one file: the last wins, and neither loses its temporary file to the other."""
    path = tmp_path / "file.txt"
    with atomic(path) as first:
        first.write_text("first")
        with atomic(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_log_that_fails_half_way_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    ibcb.write_log(some_log(seed=1), path)
    before = path.read_bytes()
    write = pq.ParquetWriter.write_table
    calls = []

    def fails_at_the_second(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise OSError("disk full")
        return write(self, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fails_at_the_second)
    with pytest.raises(OSError, match="disk full"):
        ibcb.write_log(some_log(seed=2), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_that_cannot_be_written_leaves_the_old_one(model_path, run, monkeypatch):
    before = model_path.read_bytes()

    def fails(path, content):
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_bytes", fails)
    with pytest.raises(OSError, match="disk full"):
        ibcb.save_model(BaseSVC().fit(run.log), model_path)
    assert model_path.read_bytes() == before
    assert list(model_path.parent.iterdir()) == [model_path]
