"""Standardised features: the same bits however a log is read, and new data prepared as the fitted log was."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from commands import succeeds
from hypothesis import given
from hypothesis import strategies as st
from same import assert_same
from strategies import assert_same_log, reproducible

import ibcb
from ibcb import LogFormatError
from ibcb.io import open_log, transforms
from ibcb.io.transforms import Moments
from ibcb.log.recipe import FeatureColumn, Preparation

CONVERTED = {"log.parquet": {}, "long.parquet": {"long": True}, "log.arrow": {}, "log.npz": {}}


def shop(seed=0, steps=60, **columns):
    """A table of three candidates a step, with features of very different units."""
    rng = np.random.default_rng(seed)
    n = 3 * steps
    flags = np.zeros((steps, 3), dtype=bool)
    flags[np.arange(steps), rng.integers(3, size=steps)] = True
    table = {
        "episode": np.repeat(np.arange(4), n // 4),
        "request_id": np.repeat([f"r{step}" for step in range(steps)], 3),
        "chosen": flags.ravel(),
        "price": rng.lognormal(3, 1, size=n),
        "stock": rng.integers(0, 100_000, size=n),
        "genre": rng.choice(["a", "b", "c"], size=n),
        "new": rng.random(n) < 0.3,
    }
    return pa.table({name: values for name, values in (table | columns).items() if values is not None})


def columns_of(table):
    return np.column_stack([table[name].to_numpy().astype(np.float64) for name in ("price", "stock", "new")])


OPTIONS = {"one_hot": ["genre"], "standardize": True}


@pytest.fixture
def log():
    return ibcb.read_log(shop(), **OPTIONS)


# -- the same bits -------------------------------------------------------------------------------------------------


@reproducible
@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(0, 9))
def test_moments_do_not_depend_on_how_rows_come(sizes, seed):
    X = np.random.default_rng(seed).normal(loc=[0, 1e6, -3], scale=[1, 1e-3, 1e8], size=(sum(sizes), 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transforms, "_BLOCK", 256)
        whole, parts = Moments(3), Moments(3)
        whole.add(X)
        for part in np.split(X, np.cumsum(sizes)[:-1]):
            parts.add(part)
        for moments in (whole, parts):
            moments.finish()
    assert_same((parts.mean, parts.deviation, parts.low), (whole.mean, whole.deviation, whole.low))
    assert whole.rows == len(X)
    np.testing.assert_allclose(whole.mean, X.mean(axis=0), rtol=1e-12, atol=1e-12 * np.abs(X).max(axis=0).max())
    # About the first row: differences keep their digits.
    np.testing.assert_allclose(whole.deviation, (X - X[0]).std(axis=0), rtol=1e-9)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_read_whole_or_streamed_from_whatever_file(tmp_path, monkeypatch, log, kind):
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        pacsv.write_csv(shop(), path)
        monkeypatch.setattr(ibcb.io.csvfiles, "_CSV_BLOCK", 1 << 10)
    else:
        pq.write_table(shop(), path, row_group_size=50)
        monkeypatch.setattr(ibcb.io.parquet, "_STREAM_NUMBERS", 200)
    disk, whole = open_log(path, **OPTIONS), ibcb.read_log(path, **OPTIONS)
    assert_same_log(whole, log)
    assert disk.preparation == whole.preparation
    for _ in range(2):  # again from the start, as every pass over a log on disk does
        assert_same(np.concatenate([part.contexts for _, part in disk.parts()]), whole.contexts)


# -- what is computed ----------------------------------------------------------------------------------------------


def test_numbers_are_centred_and_scaled_and_categories_left(log):
    raw = columns_of(shop())
    expected = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    names = log.feature_names
    assert names == ("price", "stock", "genre=a", "genre=b", "genre=c", "new")
    np.testing.assert_allclose(log.contexts[:, [0, 1, 5]], expected, rtol=1e-12, atol=1e-12)
    plain = ibcb.read_log(shop(), one_hot=["genre"])
    np.testing.assert_array_equal(log.contexts[:, 2:5], plain.contexts[:, 2:5])
    assert log.notes == ()
    recipe = {column.name: column for column in log.preparation.columns}
    assert (recipe["genre"].center, recipe["genre"].scale) == (0.0, 1.0)
    assert recipe["price"].center == pytest.approx(raw[:, 0].mean(), rel=1e-14)
    assert recipe["price"].scale == pytest.approx(raw[:, 0].std(), rel=1e-14)
    assert log.preparation.raw == plain.preparation


@pytest.mark.parametrize("offset, unit", [(0, 1e-12), (0, 1e12), (1e9, 1.0), (-1e6, 1e-3), (0, 1e-100), (0, 1e100)])
def test_offsets_and_units_keep_their_digits(offset, unit):
    draw = np.random.default_rng(1).normal(size=180)
    log = ibcb.read_log(shop(price=offset + unit * draw), **OPTIONS)
    expected = (draw - draw.mean()) / draw.std()
    lost = 1e-15 * max(abs(offset) / unit, 1)
    np.testing.assert_allclose(log.contexts[:, 0], expected, rtol=0, atol=20 * lost)


def test_a_constant_column_is_centred_and_named():
    log = ibcb.read_log(shop(price=np.full(180, 0.1)), **OPTIONS)
    assert not log.contexts[:, 0].any()
    assert log.preparation.columns[0] == FeatureColumn("price", center=0.1)
    (note,) = log.notes
    assert (note.code, note.severity, note.figures) == ("constant-not-scaled", "info", {"columns": ("price",)})
    assert "'price': the same for all candidates" in str(note)


def test_what_stood_for_missing_numbers_is_standardised_too():
    price = np.random.default_rng(2).normal(5, 2, size=180)
    holes = pa.array(price, mask=np.arange(180) % 10 == 0)
    log = ibcb.read_log(shop(price=holes), missing="mean", **OPTIONS)
    np.testing.assert_allclose(log.contexts[::10, 0], 0, atol=1e-14)
    np.testing.assert_allclose([log.contexts[:, 0].mean(), log.contexts[:, 0].std()], [0, 1], atol=1e-14)


def test_single_precision_stays_and_is_centred_in_double():
    price = (1e6 + np.arange(180, dtype=np.float32)).astype(np.float32)
    log = ibcb.read_log(shop(price=price, stock=None, new=None), **OPTIONS)
    assert log.contexts.dtype == np.float32
    expected = (price.astype(float) - price.astype(float).mean()) / price.astype(float).std()
    np.testing.assert_allclose(log.contexts[:, 0], expected, rtol=1e-6, atol=1e-7)


# -- new data ------------------------------------------------------------------------------------------------------


def test_new_data_goes_the_same_way_with_a_stored_model(tmp_path, log):
    ibcb.save_model(ibcb.ChoiceModel(episodes=None).fit(log), tmp_path / "m.safetensors")
    model = ibcb.load_model(tmp_path / "m.safetensors")
    assert_same(model.preparation_.to_json(), log.preparation.to_json())
    assert_same_log(ibcb.read_log(shop(), preparation=model.preparation_), log)
    center, scale = log.preparation.moments
    new = ibcb.read_log(shop(seed=5), preparation=model.preparation_)
    raw = ibcb.read_log(shop(seed=5), one_hot=["genre"])
    assert_same(new.contexts, (raw.contexts - center) / scale)
    # Weights per standard deviation choose as weights per unit do.
    np.testing.assert_array_equal(
        model.predict(new), [int((raw.candidates(t) @ (model.coef_ / scale)).argmax()) for t in range(raw.n_steps)]
    )


@pytest.mark.parametrize("name", CONVERTED)
def test_converted_logs_know_that_they_are_standardised(tmp_path, log, name):
    ibcb.write_log(log, tmp_path / name, **CONVERTED[name])
    back = ibcb.read_log(tmp_path / name)
    assert_same_log(back, log)
    assert back.preparation.columns == log.preparation.columns
    # Not again: neither because it is asked for, nor for the model.
    assert_same_log(ibcb.read_log(tmp_path / name, standardize=True), log)
    assert_same_log(ibcb.read_log(tmp_path / name, preparation=log.preparation), log)
    # As they were, for a model of the raw numbers; otherwise, for a model of another log.
    plain, other = ibcb.read_log(shop(), one_hot=["genre"]), ibcb.read_log(shop(seed=5), **OPTIONS)
    undone = ibcb.read_log(tmp_path / name, preparation=plain.preparation)
    np.testing.assert_allclose(undone.contexts, plain.contexts, rtol=1e-9, atol=1e-9)
    again = ibcb.read_log(tmp_path / name, preparation=other.preparation)
    expected = ibcb.read_log(shop(), preparation=other.preparation)
    np.testing.assert_allclose(again.contexts, expected.contexts, rtol=1e-9, atol=1e-9)
    assert again.preparation == other.preparation


@pytest.mark.parametrize("name", [*CONVERTED, "log.dsjson"])
def test_logs_with_plain_numbers_are_standardised_and_some_features_keep_their_means(tmp_path, log, name):
    ibcb.write_log(ibcb.read_log(shop(), one_hot=["genre"]), tmp_path / name, **CONVERTED.get(name, {}))
    again = ibcb.read_log(tmp_path / name, standardize=True)
    np.testing.assert_allclose(again.contexts[:, [0, 1, 5]], log.contexts[:, [0, 1, 5]], rtol=1e-12, atol=1e-12)
    assert_same_log(ibcb.read_log(tmp_path / name, preparation=again.preparation), again)
    if name == "log.dsjson":  # to which categories are numbers like all others
        return
    assert_same_log(again, log)
    ibcb.write_log(log, tmp_path / name, **CONVERTED[name])
    asked = ["genre=c", "stock", "genre=a"]
    some = ibcb.read_log(tmp_path / name, features=asked)
    assert some.feature_names == some.preparation.feature_names == tuple(asked)
    assert_same(some.contexts, np.ascontiguousarray(log.contexts[:, [4, 1, 2]]))
    assert_same(ibcb.read_log(shop(), preparation=some.preparation).contexts, some.contexts)


def test_an_indexed_log_stays_indexed_and_is_opened_again_with_its_means(tmp_path, log):
    ibcb.write_log(ibcb.read_log(shop(), one_hot=["genre"]), tmp_path / "log.parquet")
    disk = open_log(tmp_path / "log.parquet", standardize=True)
    path, options = disk.elsewhere
    assert (options["preparation"], options["standardize"]) == (disk.preparation, False)
    again = open_log(path, **options)
    for one, other in zip(disk, again, strict=True):
        assert_same_log(one.read(), other.read())
    assert_same(np.concatenate([part.contexts for part in again.steps(2, 3, 9)]), log[2].contexts[9:27])
    model, streamed = (ibcb.IBCB(expert="sbts", forecast=None).fit(either) for either in (log, disk))
    assert_same(streamed.coef_, model.coef_)
    assert_same(streamed.preparation_, model.preparation_)


def test_on_the_command_line_raw_tables_come_in_as_they_are(tmp_path):
    raw, model, again = tmp_path / "log.csv", tmp_path / "m.safetensors", tmp_path / "again.safetensors"
    pacsv.write_csv(shop(), raw)
    reading = ["--one-hot", "genre", "--standardize"]
    succeeds("fit", raw, "-o", model, "--expert", "sbts", *reading)
    succeeds("convert", raw, tmp_path / "log.parquet", *reading)
    succeeds("fit", tmp_path / "log.parquet", "-o", again, "--expert", "sbts", "--stream")
    fitted, streamed = ibcb.load_model(model), ibcb.load_model(again)
    assert_same(streamed.coef_, fitted.coef_)
    assert (streamed.preparation_, streamed.log_fingerprint_) == (fitted.preparation_, fitted.log_fingerprint_)
    predicted = [succeeds("predict", model, path).stdout for path in (raw, tmp_path / "log.parquet")]
    assert predicted[0] == predicted[1]


# -- what is refused -----------------------------------------------------------------------------------------------


def test_what_cannot_be_standardised_is_refused_with_its_place(tmp_path):
    ibcb.write_log(ibcb.simulate(n_episodes=2, batch_size=20, seed=0).log, tmp_path / "log.parquet")
    with pytest.raises(LogFormatError, match=r"log\.parquet: the features .* no names.*leave standardize out"):
        ibcb.read_log(tmp_path / "log.parquet", standardize=True)
    price = np.ones(180)
    price[7] = np.nan
    with pytest.raises(LogFormatError, match=r"episode 0, step 2, candidate 1: feature 'price' is nan"):
        ibcb.read_log(shop(price=price), **OPTIONS)
    price[7] = 1e200
    with pytest.raises(LogFormatError, match=r"'price' lies between 1 and 1e\+200,.*other units.*--drop"):
        ibcb.read_log(shop(price=price), **OPTIONS)
    named = ibcb.read_log(shop(), **OPTIONS)
    wide = ibcb.BehaviorLog(np.ones((2, 9)), [0, 2], [0], [0, 1])
    ibcb.write_log(wide, tmp_path / "wide.parquet")
    with pytest.raises(LogFormatError, match=r"have 9 features, but means and scales are known of 6"):
        ibcb.read_log(tmp_path / "wide.parquet", preparation=named.preparation)


@pytest.mark.parametrize("change", [{"scale": 0.0}, {"scale": -1}, {"center": float("inf")}, {"scale": "much"}])
def test_a_damaged_recipe_is_refused(tmp_path, log, change):
    data = log.preparation.to_json()
    assert Preparation.from_json(json.loads(json.dumps(data))) == log.preparation
    data["columns"][0] |= change
    with pytest.raises(ValueError, match=r"center|scale|could not convert"):
        Preparation.from_json(data)


def test_recipes_from_before_there_were_means_are_read():
    data = Preparation((FeatureColumn("price", fill=1.0),)).to_json()
    for column in data["columns"]:
        del column["center"], column["scale"]
    assert Preparation.from_json(data) == Preparation((FeatureColumn("price", fill=1.0),))
