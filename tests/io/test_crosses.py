"""Products of features, and columns that are encoded whatever they hold: recomputed from the raw columns."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from strategies import assert_same_log

import ibcb
from ibcb import LogFormatError
from ibcb.io import open_log, transforms
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.numerics.contexts import dense, is_sparse


def shop(steps=60, items=5, seed=0, **changes):
    """Users with an age and a city, items with a price, a size and an id; four candidates a step."""
    rng = np.random.default_rng(seed)
    rows = 4 * steps
    step = np.repeat(np.arange(steps), 4)
    columns = {
        "episode": step // 20,
        "step": step,
        "chosen": np.arange(rows) % 4 == np.repeat(rng.integers(4, size=steps), 4),
        "user_age": np.repeat(rng.normal(size=steps).round(2), 4),
        "user_city": np.repeat(rng.choice(["oslo", "rome", "riga"], size=steps), 4),
        "item_price": rng.normal(size=rows).round(2),
        "item_size": rng.choice(["s", "m"], size=rows),
        "item_id": rng.integers(items, size=rows),
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


def raw(table, name):
    """The features of one column, recomputed: {feature: numbers}."""
    values = table[name].to_pylist()
    if isinstance(values[0], float):
        return {name: np.array(values)}
    return {f"{name}={level}": np.array([value == level for value in values], float) for level in dict.fromkeys(values)}


def expected(table, cross):
    """Every product of a cross by name."""
    found = {"": np.ones(table.num_rows)}
    for names in cross:
        factor = {feature: values for name in names for feature, values in raw(table, name).items()}
        found = {f"{a}*{b}".removeprefix("*"): x * y for a, x in found.items() for b, y in factor.items()}
    return found


def by_name(log):
    return dict(zip(log.feature_names, dense(log.contexts).T, strict=True))


USER, ITEM = ("user_age", "user_city"), ("item_price", "item_size")


@pytest.mark.parametrize(
    "cross, factors",
    [
        (("user_*", "item_*"), (USER, ITEM)),
        (("user_age", "item_price"), (("user_age",), ("item_price",))),
        (("user_city", "item_size", "item_price"), (("user_city",), ("item_size",), ("item_price",))),
        (("item_price", "item_price"), (("item_price",), ("item_price",))),
    ],
)
def test_products_are_those_of_the_columns_and_what_steps_share_is_no_feature_alone(cross, factors):
    table = shop()
    log = ibcb.read_log(table, cross=[cross], one_hot=True)
    found = by_name(log)
    for name, values in expected(table, factors).items():
        np.testing.assert_array_equal(found.pop(name), values, err_msg=name)
    used = {name for names in factors for name in names}
    alone = {feature for name in (*USER, *ITEM) if name in ITEM or name not in used for feature in raw(table, name)}
    assert set(found) == alone
    assert {note.code for note in log.notes} >= {"products"}
    assert any(note.code == "shared-features" for note in log.notes) == bool(used & set(USER))


def test_a_cross_with_itself_has_every_product_once_and_none_that_is_always_0():
    log = ibcb.read_log(
        shop(), cross=[("item_*", "item_*"), ("item_size", "item_price")], drop=["user_age", "user_city"]
    )
    assert [name for name in log.feature_names if "*" in name] == [
        *("item_price*item_price", "item_price*item_size=m", "item_price*item_size=s"),
    ]


def test_a_column_may_be_read_for_products_alone():
    log = ibcb.read_log(shop(), features=["item_price"], cross=[("item_size", "item_price")])
    assert log.feature_names == ("item_price", "item_size=m*item_price", "item_size=s*item_price")


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.npz", "log.arrow"])
def test_a_model_makes_the_same_products_of_new_data(tmp_path, name):
    log = ibcb.read_log(shop(), cross=[("user_*", "item_*")], standardize=True)
    model = ibcb.ChoiceModel().fit(log)
    ibcb.save_model(model, tmp_path / "m.safetensors")
    kept = ibcb.load_model(tmp_path / "m.safetensors").preparation_
    assert kept == log.preparation
    assert Preparation.from_json(kept.to_json()) == kept
    new = ibcb.read_log(shop(seed=1), preparation=kept)
    age, price = (
        by_name(ibcb.read_log(shop(), standardize=True, one_hot=True))[each] for each in ("user_age", "item_price")
    )
    np.testing.assert_allclose(by_name(log)["user_age*item_price"], age * price, rtol=1e-12)
    # Written with the products, it is read as it is; CSV does not say how they were made.
    ibcb.write_log(new, tmp_path / name)
    back = ibcb.read_log(tmp_path / name, **({} if name == "log.csv" else {"preparation": kept}))
    np.testing.assert_array_equal(model.predict(back), model.predict(new))
    assert back.feature_names == new.feature_names


def test_streamed_in_small_pieces_it_is_the_same_log(monkeypatch):
    disk = open_log(shop(steps=90), cross=[("user_*", "item_*")])
    whole = disk.read()
    monkeypatch.setattr(transforms, "BATCH_NUMBERS", 7 * 4 * whole.n_features)
    pieces = list(disk.parts())
    assert len(pieces) > 10
    np.testing.assert_array_equal(np.concatenate([part.contexts for _, part in pieces]), whole.contexts)
    assert [part.n_steps for _, part in pieces[:3]] == [7, 7, 6]


def test_sparse_products_are_those_of_dense_ones(monkeypatch):
    how = {"one_hot": ["item_id"], "cross": [("user_*", "item_*"), ("user_city", "item_id", "item_price")]}
    table = shop(steps=100, items=40)
    found = ibcb.read_log(table, **how)
    assert is_sparse(found.contexts)
    assert ibcb.validate(found).summary.nbytes < found.n_rows * found.n_features * 8 / 2
    for module in (transforms, ibcb.io.columns):
        monkeypatch.setattr(module, "sparse_pays", lambda d, filled: False)
    plain = ibcb.read_log(table, **how)
    assert not is_sparse(plain.contexts)
    assert plain.feature_names == found.feature_names
    np.testing.assert_allclose(dense(found.contexts), plain.contexts, atol=1e-15)


@pytest.mark.parametrize("name", ["log.csv", "log.arrow", "log.vw", "log.dsjson"])
def test_a_sparse_log_is_written_in_formats_that_are_not(tmp_path, monkeypatch, name):
    log = ibcb.read_log(shop(steps=40, items=80), features=["item_id", "item_price"], one_hot=["item_id"])
    assert is_sparse(log.contexts)
    monkeypatch.setattr("ibcb.log.behavior_log.DENSE_NUMBERS", 7 * 4 * log.n_features)
    ibcb.write_log(log, tmp_path / name)
    back = ibcb.read_log(tmp_path / name, **({"episode_size": 20} if name == "log.vw" else {}))
    assert back.feature_names == log.feature_names
    np.testing.assert_array_equal(dense(back.contexts), dense(log.contexts))
    np.testing.assert_array_equal(back.chosen, log.chosen)
    np.testing.assert_array_equal(back.episode_offsets, log.episode_offsets)


def test_a_sparse_log_is_standardized_where_its_numbers_are_few(monkeypatch):
    how = {"one_hot": ["item_id", "item_size"], "drop": ["user_city"], "standardize": True}
    table = shop(steps=100, items=80)
    found = ibcb.read_log(table, **how)
    assert is_sparse(found.contexts)
    monkeypatch.setattr(ibcb.io.columns, "sparse_pays", lambda d, filled: False)
    np.testing.assert_allclose(dense(found.contexts), ibcb.read_log(table, **how).contexts, atol=1e-12)


# -- one-hot -----------------------------------------------------------------------------------------------------------


def test_ids_and_numbers_are_encoded_and_rare_ones_pooled():
    table = shop(items=30)
    count = np.bincount(table["item_id"].to_numpy(), minlength=30)
    least = int(np.median(count))
    log = ibcb.read_log(table, one_hot=["item_id"], features=["item_id"], min_count=least)
    common = [item for item in range(30) if count[item] >= least]
    assert log.feature_names == (*(f"item_id={item}" for item in common), "item_id=other")
    for row, item in zip(dense(log.contexts), table["item_id"].to_pylist(), strict=True):
        assert np.flatnonzero(row).tolist() == [common.index(item) if item in common else len(common)]
    # What comes later counts as rare; without pooling it is nothing, which is said.
    new = shop(items=30, item_id=np.full(240, 99))
    later = ibcb.read_log(new, preparation=log.preparation)
    assert (dense(later.contexts)[:, -1] == 1).all()
    assert not [n for n in later.notes if n.code == "unknown-categories"]
    plain = ibcb.read_log(table, one_hot=["item_id"], features=["item_id"])
    later = ibcb.read_log(new, preparation=plain.preparation)
    assert not dense(later.contexts).any()
    assert [note.figures["values"] for note in later.notes if note.code == "unknown-categories"] == [240]


def test_the_name_of_what_is_pooled_is_never_that_of_a_category():
    column = FeatureColumn("x", ("(other)", "other"), pooled=True)
    assert column.feature_names == ("x=(other)", "x=other", "x=((other))")
    made = Preparation((column, FeatureColumn("y")))
    assert made.only(["x=other", "x=((other))", "y"]).columns[0] == replace(column, categories=("other",))


def test_a_column_that_was_named_is_taken_for_no_role():
    both = ibcb.read_log(shop(), one_hot=["item_id"], drop=["user_city", "item_size"])
    assert [name for name in both.feature_names if name.startswith("item_id=")]
    assert dict(both.preparation.roles)["candidate"] == "item_id"
    # A wildcard names no column: ids are numbers that mean nothing.
    assert not [n for n in ibcb.read_log(shop(), cross=[("user_*", "item_*")]).feature_names if "item_id" in n]
    table = shop(round=np.repeat(np.arange(60) % 7, 4))
    assert "round" in ibcb.read_log(table, keep=["round"], one_hot=True).feature_names


# -- Vowpal Wabbit, dsjson ---------------------------------------------------------------------------------------------

VW = (
    "shared |user age:2 |hour h:3\n|item price:4 red\n0:1:1 |item price:5\n\n"
    "shared |user age:7\n1:1:1 |item red\n|item\n"
)
DSJSON = (
    '{"_labelIndex": 1, "c": {"user": {"age": 2}, "hour": {"h": 3}, "_multi": [{"item": {"price": 4, "red": 1}}, '
    '{"item": {"price": 5}}]}}\n{"_labelIndex": 0, "c": {"user": {"age": 7}, "_multi": [{"item": {"red": 1}}, {"item": '
    "{}}]}}\n"
)


@pytest.mark.parametrize("name, text, dot", [("log.vw", VW, "^"), ("log.dsjson", DSJSON, ".")])
@pytest.mark.parametrize("cross", [("user", "item"), ("ui",), ("u*", "i*")])
def test_namespaces_are_crossed_as_q_does(tmp_path, name, text, dot, cross):
    (tmp_path / name).write_text(text)
    log = ibcb.read_log(tmp_path / name, cross=[cross], episode_size=1)
    price, red, age = f"item{dot}price", f"item{dot}red", f"user{dot}age"
    assert log.feature_names == (price, red, f"{age}*{price}", f"{age}*{red}")
    np.testing.assert_array_equal(log.contexts, [[4, 1, 8, 2], [5, 0, 10, 0], [0, 1, 0, 7], [0, 0, 0, 0]])
    model = ibcb.ChoiceModel().fit(log)
    assert_same_log(ibcb.read_log(tmp_path / name, preparation=model.preparation_, episode_size=1), log)
    # What both a step and its candidates have is added up, as Vowpal Wabbit does.
    (tmp_path / "both.vw").write_text("shared |i p:1 |u a:3\n|i p:2\n1:1:1 |i p:4\n")
    both = ibcb.read_log(tmp_path / "both.vw", cross=[("u", "i")], episode_size=1)
    assert by_name(both)["i^p"].tolist() == [3, 5]
    assert by_name(both)["u^a*i^p"].tolist() == [9, 15]


def test_many_words_are_read_sparsely(tmp_path):
    rng = np.random.default_rng(0)
    words = rng.integers(300, size=(200, 3))
    text = "".join(f"1:0:1 |w a{a} b:{b / 7}\n|w a{b} c{c}\n\n" for a, b, c in words)
    (tmp_path / "log.vw").write_text(text)
    log = ibcb.read_log(tmp_path / "log.vw", episode_size=50)
    assert is_sparse(log.contexts)
    rows = [row for a, b, c in words for row in ({f"w^a{a}": 1, "w^b": b / 7}, {f"w^a{b}": 1, f"w^c{c}": 1})]
    for row, expected_row in zip(dense(log.contexts), rows, strict=True):
        named = {log.feature_names[at]: row[at] for at in np.flatnonzero(row)}
        assert named == {name: value for name, value in expected_row.items() if value}
    with pytest.raises(LogFormatError, match=r"features are 0 in most rows.*leave it out\. IBCB\(l2=\"auto\"\)"):
        ibcb.read_log(tmp_path / "log.vw", episode_size=50, standardize=True)


# -- refused -----------------------------------------------------------------------------------------------------------

WRONG = {
    "a million features": (
        {"one_hot": ["item_id"], "cross": [("item_id", "item_id", "item_id")], "drop": ["user_city", "item_size"]},
        r"would make 64,000 features \(of item_id,item_id,item_id 40 x 40 x 40\), and at most 20,000.*--min-count",
    ),
    "one column alone": (
        {"cross": [("user_age",)]},
        r"'user_age' alone.*two columns or more.*--cross 'user_\*,item_\*'",
    ),
    "no such column": ({"cross": [("usr_age", "item_*")]}, r"'usr_age', or fits it.*did you mean 'user_age'\?"),
    "a role": ({"cross": [("chosen", "item_*")]}, r"no column marks the chosen"),
    "a model without products": (
        {"cross": [("user_*", "item_*")], "preparation": Preparation((FeatureColumn("item_price"),))},
        r"as for the model, which was fitted without any",
    ),
    "min_count of no number": ({"min_count": 0}, r"min_count=0 must be at least 1"),
}


@pytest.mark.parametrize("options, words", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        ibcb.read_log(shop(items=40), **({"one_hot": True} | options))


def test_a_log_with_products_is_crossed_or_scaled_once_only(tmp_path):
    ibcb.write_log(ibcb.read_log(shop(), cross=[("user_*", "item_*")]), tmp_path / "log.parquet")
    with pytest.raises(LogFormatError, match=r"has products of features by now"):
        ibcb.read_log(tmp_path / "log.parquet", cross=[("item_price", "item_size=m")])
    with pytest.raises(LogFormatError, match=r"has products of features.*read the file that it was made of"):
        ibcb.read_log(tmp_path / "log.parquet", standardize=True)
    names = ibcb.read_log(tmp_path / "log.parquet").feature_names
    some = ibcb.read_log(tmp_path / "log.parquet", features=[names[0], names[-1]])
    assert some.preparation.feature_names == some.feature_names == (names[0], names[-1])
    with pytest.raises(TypeError, match=r"cross has 'user_\*,item_\*', a text"):
        ibcb.read_log(shop(), cross=["user_*,item_*"])
