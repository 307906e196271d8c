"""Reading options that are kept: in a file, and with a model; and what predict says of candidates."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from commands import succeeds
from hypothesis import given
from hypothesis import strategies as st
from strategies import assert_same_log, reproducible

import ibcb
from ibcb.io import load_options, save_options
from ibcb.log.steps import ReadOptions


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with a log under other names than ours, and a model of it."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    step = np.repeat(np.arange(240), 3)
    age, price = np.repeat(rng.normal(size=240), 3), rng.normal(size=720)
    best = (age * price).reshape(-1, 3).argmax(axis=1)
    columns = {
        "when": np.datetime64("2024-01-01") + (step * 3600).astype("m8[s]"),
        "query": [f"q{number}" for number in step],
        "shown": (np.arange(720) % 3 == best[step]).astype(int),
        "user_age": age,
        "item_price": price,
        "item_id": rng.integers(50, size=720),
    }
    pacsv.write_csv(pa.table(columns), folder / "shop.csv")
    return folder


OPTIONS = [
    *("--column", "step=query", "--column", "chosen=shown", "--column", "timestamp=when"),
    *("--episode-every", "1d", "--cross", "user_*,item_price"),
]


@pytest.fixture(scope="module")
def fitted(shop):
    succeeds("validate", shop / "shop.csv", *OPTIONS, "--save-options", shop / "shop.toml")
    succeeds(
        "fit", shop / "shop.csv", "--options", shop / "shop.toml", "--expert", "other", "-o", shop / "m.safetensors"
    )
    return shop / "m.safetensors"


def test_options_are_saved_and_read(shop, fitted):
    kept = load_options(shop / "shop.toml")
    assert kept == {
        "columns": {"step": "query", "chosen": "shown", "timestamp": "when"},
        "episode_every": "1d",
        "cross": [["user_*", "item_price"]],
    }
    log = ibcb.read_log(shop / "shop.csv", options=shop / "shop.toml")
    assert_same_log(log, ibcb.read_log(shop / "shop.csv", **kept))
    assert len(log) == 10
    assert len(ibcb.read_log(shop / "shop.csv", options=shop / "shop.toml", episode_every="12h")) == 20


def test_what_is_given_on_the_command_line_comes_first(shop, fitted):
    def validated(*more):
        return json.loads(
            succeeds("validate", shop / "shop.csv", "--options", shop / "shop.toml", *more, "--json").stdout
        )

    assert validated()["summary"]["episodes"] == 10
    assert validated("--episode-every", "12h")["summary"]["episodes"] == 20
    # One way to cut replaces another, and a role is replaced by itself.
    assert validated("--episode-size", "60")["summary"]["episodes"] == 4
    assert validated("--column", "candidate=item_id")["summary"]["features"] == 2


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@reproducible
@given(
    names=st.lists(texts, max_size=3, unique=True),
    cross=st.lists(st.lists(texts, min_size=2, max_size=3), max_size=2),
    columns=st.dictionaries(st.sampled_from(["step", "chosen"]), texts),
    every=st.sampled_from([None, "1d"]),
    sort=st.booleans(),
    warmup=st.none() | st.integers(0, 9),
)
def test_any_options_come_back(tmp_path_factory, names, cross, columns, every, sort, warmup):
    path = tmp_path_factory.mktemp("options") / "log.toml"
    given_ = {"drop": names, "cross": cross, "columns": columns, "episode_every": every, "sort": sort, "warmup": warmup}
    save_options(given_, path)
    usual = ReadOptions()
    assert load_options(path) == {
        name: value for name, value in given_.items() if value not in (getattr(usual, name), [], None)
    }


WRONG = {
    "unknown": (
        "onehot = ['a']",
        r"bad\.toml: there is no option 'onehot' \(did you mean one_hot\?\); the options are",
    ),
    "long": ("x" * 5000 + " = 1", r"there is no option 'x{50,60}\.\.\.; the options are"),
    "a long role": ("columns = {" + "x" * 5000 + ' = "a"}', r"columns has a role 'x{50,60}\.\.\.; the roles are"),
    "a long duration": (f'episode_every = "{"9" * 5000}"', r"episode_every='9{50,60}\.\.\. is not a duration"),
    "not stored": ("preparation = 1", r"there is no option 'preparation'"),
    "no TOML": ("one_hot = [", r"bad\.toml: not a readable TOML file"),
    "wrong value": ("missing = 'guess'", r"bad\.toml: missing='guess' is unknown"),
    "text for a list": ("one_hot = 'a'", r"bad\.toml: one_hot='a' is text; give a list"),
    "several": (
        "delimiter = 3\nsort = 'no'\ncolumns = 'x'",
        r"bad\.toml: 3 problems. \(1\) columns='x' is no mapping.*\(2\) sort='no' must be True.*\(3\) delimiter=3",
    ),
    "two cuts": ("episode_every = '1d'\nepisode_size = 3", r"bad\.toml: episode_every and episode_size exclude"),
}


@pytest.mark.parametrize("text, words", WRONG.values(), ids=WRONG)
def test_a_file_with_mistakes_is_refused(tmp_path, text, words):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        load_options(tmp_path / "bad.toml")


def test_options_that_cannot_be_kept_are_refused(tmp_path, shop):
    with pytest.raises(ValueError, match=r"arm_features is a Table, which a file of options cannot hold; give a path"):
        save_options({"arm_features": pa.table({"a": [1]})}, tmp_path / "log.toml")


def test_a_model_reads_as_its_log_was_read(shop, fitted):
    model = ibcb.load_model(fitted)
    assert dict(model.preparation_.reading) == {"episode_every": "1d"}
    report = succeeds("report", fitted, "--log", shop / "shop.csv", "-o", shop / "page.html", "--json")
    assert json.loads(report.stdout)["verdict"]["level"] in ("good", "fair")
    assert json.loads(succeeds("evaluate", fitted, shop / "shop.csv", "--json").stdout)["agreement"] > 0.95
    # A log that was converted has its episodes, and other ways to cut come first.
    succeeds("convert", shop / "shop.csv", shop / "log.parquet", "--options", shop / "shop.toml")
    succeeds("report", fitted, "--log", shop / "log.parquet", "-o", shop / "page.html")
    succeeds("evaluate", fitted, shop / "shop.csv", "--episode-size", "50")


def test_predictions_name_candidates(shop, fitted):
    frame = pd.read_csv(shop / "shop.csv")
    model = ibcb.load_model(fitted)
    lines = succeeds("predict", fitted, shop / "shop.csv").stdout.splitlines()
    assert lines[0] == "episode,step,step_id,chosen,candidate_id,score"
    best = model.predict(frame)
    for step, line in enumerate(lines[1:]):
        chosen, name = line.split(",")[3:5]
        assert (int(chosen), int(name)) == (best[step], frame["item_id"][3 * step + best[step]])
    every = json.loads(succeeds("predict", fitted, shop / "shop.csv", "--scores", "--json").stdout)
    assert every["candidate_id"] == frame["item_id"].tolist()


def test_predictions_name_arms(tmp_path):
    x = np.random.default_rng(0).normal(size=300)
    table = pa.table({"day": np.arange(300) // 50, "x": x, "arm": np.where(x > 0.3, "up", "down")})
    pacsv.write_csv(table, tmp_path / "log.csv")
    pacsv.write_csv(table.select(["x"]), tmp_path / "new.csv")
    how = ["--arm", "arm", "--column", "episode=day", "--expert", "stationary"]
    succeeds("fit", tmp_path / "log.csv", *how, "-o", tmp_path / "m.safetensors")
    found = json.loads(succeeds("predict", tmp_path / "m.safetensors", tmp_path / "new.csv", "--json").stdout)
    agree = np.mean(np.array(found["candidate_id"]) == table["arm"].to_numpy(zero_copy_only=False))
    assert agree > 0.97


def test_models_take_dataframes_and_give_them(shop, fitted):
    frame = pd.read_csv(shop / "shop.csv")
    model = ibcb.load_model(fitted)
    log = ibcb.read_log(shop / "shop.csv", options=shop / "shop.toml")
    for source in (frame, frame.drop(columns="shown"), pa.Table.from_pandas(frame)):
        np.testing.assert_array_equal(model.predict(source), model.predict(log))
        # Some pandas read the last bit of a number otherwise.
        np.testing.assert_allclose(
            model.decision_function(source), model.decision_function(log), rtol=1e-12, atol=1e-12
        )
    np.testing.assert_allclose(model.certainty(frame), model.certainty(log), rtol=1e-9)
    assert model.score(frame) == model.score(log)
    weights = model.weights()
    assert weights["feature"].tolist() == list(model.feature_names_in_)
    np.testing.assert_array_equal(weights["policy"], model.next_policy_coef_)
    assert model.weights(as_frame=False).column_names == ["feature", "policy"]
    learner = ibcb.IBCB(expert="sbucb", l2=1.0).fit(ibcb.simulate(n_episodes=3, batch_size=60, seed=0).log)
    np.testing.assert_array_equal(learner.weights()["reward"], learner.coef_)
    # One set of candidates without a step, as a matrix of features.
    sets = pd.DataFrame(log.contexts[:3], columns=log.feature_names)
    assert model.predict(sets) == model.predict(log)[0]


def test_a_model_of_a_wide_table_reads_the_next(tmp_path):
    rng = np.random.default_rng(0)
    price = rng.normal(size=(200, 2))
    columns = {"day": np.arange(200) // 40, "price_car": price[:, 0], "price_bus": price[:, 1]}
    table = pa.table(columns | {"choice": np.where(price[:, 0] > price[:, 1], "car", "bus")})
    pacsv.write_csv(table, tmp_path / "trips.dat", pacsv.WriteOptions(delimiter=";"))
    pacsv.write_csv(table.drop_columns(["choice", "day"]), tmp_path / "next.csv", pacsv.WriteOptions(delimiter=";"))
    how = ["--format", "csv", "--delimiter", ";", "--column", "episode=day", "--column", "chosen=choice"]
    how += ["--alternatives", "car,bus", "--expert", "stationary", "-o", tmp_path / "m.safetensors"]
    succeeds("fit", tmp_path / "trips.dat", *how)
    agreement = json.loads(succeeds("evaluate", tmp_path / "m.safetensors", tmp_path / "trips.dat", "--json").stdout)
    assert agreement["agreement"] > 0.97
    model = ibcb.load_model(tmp_path / "m.safetensors")
    assert dict(model.preparation_.reading)["alternatives"] == ["car", "bus"]
    np.testing.assert_array_equal(model.predict(table.drop_columns(["choice"])), np.argmax(price, axis=1))
    # New candidates, and the fitted table with the choices that are in it.
    for name in ("next.csv", "trips.dat"):
        told = json.loads(succeeds("predict", tmp_path / "m.safetensors", tmp_path / name, "--json").stdout)
        assert told["chosen"] == np.argmax(price, axis=1).tolist()


def test_a_notebook_shows_logs_and_what_was_found_in_them(shop, fitted):
    disk = ibcb.open_log(shop / "shop.csv", options=shop / "shop.toml")
    log, validation = disk.read(), ibcb.validate(disk)
    for words in ("BehaviorLog", "240", "720, 3 each", "user_age*item_price", "2024-01-01"):
        assert words in log._repr_html_()
    assert "shop.csv" in disk._repr_html_()
    assert all(
        told in validation._repr_html_() for told in (validation.verdict, *(f.code for f in validation.findings))
    )
    odd = ibcb.BehaviorLog.from_episodes([(np.ones((2, 2, 1)), [0, 1])], feature_names=["<b>&"])
    assert "&lt;b&gt;&amp;" in odd._repr_html_()
    assert "<b>" not in odd._repr_html_() + ibcb.validate(odd)._repr_html_()
