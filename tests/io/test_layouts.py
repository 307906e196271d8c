"""Tables in other layouts are the same log as the ordinary table that they stand for; what is wrong is said at once."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from commands import ibcb_command, succeeds
from strategies import assert_same_log

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io import jsonlines

STEPS, NAMES = 12, ("car", "bus", "bike")
CUT = {"episode_size": 4}


@pytest.fixture
def journeys(rng):
    """Price and time of three alternatives at every step, which of them could be chosen, and the choice."""
    numbers = rng.uniform(1, 9, size=(STEPS, len(NAMES), 2)).round(3)
    available = rng.random((STEPS, len(NAMES))) < 0.7
    chosen = rng.integers(len(NAMES), size=STEPS)
    available[np.arange(STEPS), chosen] = True
    return numbers, available, chosen


def expected(journeys, *, all_available=False, steps=slice(None)):
    numbers, available, chosen = (array[steps] for array in journeys)
    available = np.ones_like(available) if all_available else available
    contexts = [step[could] for step, could in zip(numbers, available, strict=True)]
    places = [int(could[:pick].sum()) for could, pick in zip(available, chosen, strict=True)]
    edges = range(0, len(chosen), CUT["episode_size"])
    episodes = [(contexts[e : e + 4], places[e : e + 4]) for e in edges]
    return BehaviorLog.from_episodes(episodes, feature_names=["price", "time"])


def wide(journeys, name="{feature}_{alternative}", choice=None, **more):
    numbers, _, chosen = journeys
    columns = {
        name.format(feature=feature, alternative=alternative): numbers[:, k, f]
        for k, alternative in enumerate(NAMES)
        for f, feature in enumerate(("price", "time"))
    }
    picks = [NAMES[pick] for pick in chosen] if choice is None else choice(chosen)
    return pa.table({**columns, "income": np.arange(STEPS), **more, "choice": picks})


def same_choices(log, other):
    """Equal but for how the features were made and the names of candidates."""
    for array in ("contexts", "step_offsets", "chosen", "episode_offsets"):
        np.testing.assert_array_equal(getattr(log, array), getattr(other, array))
    assert log.feature_names == other.feature_names


def codes(log):
    return {note.code for note in log.notes}


# -- wide ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["{feature}_{alternative}", "{alternative}_{feature}", "{feature}.{alternative}", "{alternative}-{feature}"],
)
def test_columns_of_alternatives_become_candidates(journeys, name):
    log = ibcb.read_log(wide(journeys, name), alternatives=NAMES, **CUT)
    same_choices(log, expected(journeys, all_available=True))
    (note,) = log.notes
    assert note.code == "shared-features"
    assert note.figures["features"] == ("income",)


@pytest.mark.parametrize(
    "choice",
    [
        lambda chosen: [NAMES[pick].upper() for pick in chosen],
        lambda chosen: chosen + 1,
        lambda chosen: chosen.astype(float) + 1,
        lambda chosen: [f"choice_{NAMES[pick]}" for pick in chosen],
        lambda chosen: [f"choice{pick + 1}" for pick in chosen],
    ],
    ids=["capitals", "numbers", "floats", "names with a prefix", "numbers with a prefix"],
)
def test_the_choice_is_a_name_or_a_number(journeys, choice):
    journeys[2][:3] = 0, 1, 2
    log = ibcb.read_log(wide(journeys, choice=choice), alternatives=NAMES, **CUT)
    same_choices(log, expected(journeys, all_available=True))


def test_numbers_from_0_and_0_for_no_choice_are_told_apart(journeys):
    journeys[2][:4] = 0, 1, 2, 0
    from_0 = ibcb.read_log(wide(journeys, choice=lambda chosen: chosen), alternatives=NAMES, **CUT)
    same_choices(from_0, expected(journeys, all_available=True))
    assert next(note for note in from_0.notes if note.code == "alternatives-numbered").figures["first"] == 0
    unknown = np.concatenate([journeys[2][:-4] + 1, [0] * 4])
    table = wide(journeys, choice=lambda _: unknown)
    log = ibcb.read_log(table, alternatives=NAMES, skip_unlabelled=True, **CUT)
    same_choices(log, expected(journeys, all_available=True, steps=slice(0, -4)))
    assert {"alternatives-numbered", "unlabelled-steps"} <= codes(log)
    with pytest.raises(LogFormatError, match=r"step 8: no candidate is marked.*--skip-unlabelled.*4 steps have"):
        ibcb.read_log(table, alternatives=NAMES, **CUT)


@pytest.mark.parametrize("name", ["av_{}", "{}_AV", "availability.{}", "{} available"])
def test_what_could_not_be_chosen_is_no_candidate(journeys, name):
    could = {name.format(alternative): journeys[1][:, k].astype(int) for k, alternative in enumerate(NAMES)}
    same_choices(ibcb.read_log(wide(journeys, **could), alternatives=NAMES, **CUT), expected(journeys))


def test_a_choice_of_what_could_not_be_chosen_is_refused_or_left_out(journeys):
    _, available, chosen = journeys
    available[5, chosen[5]] = False
    could = {f"av_{name}": available[:, k] for k, name in enumerate(NAMES)}
    with pytest.raises(LogFormatError, match=rf"row 5 .*'{NAMES[chosen[5]]}' was chosen but 'av_.*--skip-unlabelled"):
        ibcb.read_log(wide(journeys, **could), alternatives=NAMES, **CUT)
    log = ibcb.read_log(wide(journeys, **could), alternatives=NAMES, skip_unlabelled=True, **CUT)
    assert log.n_steps == STEPS - 1


def test_features_named_as_roles_or_outcomes_are_features_still(journeys):
    names = [name.replace("price", "cost") for name in wide(journeys).column_names]
    log = ibcb.read_log(wide(journeys).rename_columns(names), alternatives=NAMES, **CUT)
    assert log.feature_names == ("cost", "time")
    assert log.timestamps is None


def test_constants_of_alternatives_and_what_only_some_have(journeys, tmp_path):
    numbers = journeys[0]
    table = wide(journeys, seats_bus=np.arange(STEPS))
    with pytest.raises(
        LogFormatError, match=r"no column for 'seats' of 'car', 'bike'; .*missing='zero' .*--missing zero"
    ):
        ibcb.read_log(table, alternatives=NAMES, **CUT)
    pacsv.write_csv(table, tmp_path / "log.csv")
    options = ["--alternatives", "car,bus,bike", "--missing", "zero", "--one-hot", "alternative", "--episode-size", 4]
    succeeds("convert", tmp_path / "log.csv", tmp_path / "log.parquet", *options)
    log = ibcb.read_log(tmp_path / "log.parquet")
    which = ["alternative=bike", "alternative=bus", "alternative=car"]
    assert log.feature_names == (*which, "price", "time", "seats")
    rows = log.contexts.reshape(STEPS, 3, 6)
    np.testing.assert_array_equal(rows[0, :, :3], [[0, 0, 1], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(rows[:, :, 3:5], numbers)
    np.testing.assert_array_equal(rows[:, :, 5], np.outer(np.arange(STEPS), [0, 1, 0]))


def test_a_model_of_a_wide_table_predicts_from_a_wide_table(journeys):
    log = ibcb.read_log(wide(journeys), alternatives=NAMES, one_hot=["alternative"], **CUT)
    new = wide(journeys).drop_columns(["choice"])
    again = ibcb.read_log(new, alternatives=NAMES, preparation=log.preparation, choices=False)
    np.testing.assert_array_equal(again.contexts, log.contexts)


def test_columns_of_the_step_can_be_crossed_with_those_of_alternatives(journeys):
    log = ibcb.read_log(
        wide(journeys), alternatives=NAMES, cross=[("income", "price"), ("income", "alternative")], **CUT
    )
    plain = journeys[0].reshape(-1, 2)
    income, which = np.repeat(np.arange(STEPS), 3), np.tile(np.eye(3)[[2, 1, 0]], (STEPS, 1))
    products = np.column_stack([which, plain, income * plain[:, 0], income[:, None] * which])
    assert set(log.feature_names[3:5]) == {"price", "time"}
    np.testing.assert_allclose(log.contexts @ np.eye(log.n_features), products)
    assert log.candidate_ids.tolist() == list(NAMES) * STEPS


WRONG_WIDE = {
    "no such alternative": ({}, {"alternatives": ("car", "plane")}, r"alternative 'plane'; correct alternatives"),
    "none of them": (
        {},
        {"alternatives": ("x", "y")},
        r"no column belongs to one of .*'x', 'y'.*'price_x' or 'x_price'",
    ),
    "another choice": (
        {"choice": ["car"] * 10 + ["jet", "jet"]},
        {},
        r"holds 'jet' \(2 rows\), .*not one of .*'car', 'bus'",
    ),
    "twice": ({"car_price": [1.0] * STEPS}, {}, r"'price_car' and 'car_price' are both 'price' of 'car'; .*--drop"),
    "of two": ({"car_bus": [1.0] * STEPS}, {}, r"'car_bus' could be 'bus' of 'car' or 'car' of 'bus'; rename"),
    "of two kinds": (
        {"time_car": ["a"] * STEPS},
        {},
        r"'time' cannot be read from columns of different kinds: 'time_car'",
    ),
    "drop of nothing": ({}, {"drop": ["prize"]}, r"no column 'prize' \(did you mean 'price'\?\)"),
    "step and candidate": ({"price": [1.0] * STEPS}, {}, r"'price': a column of the step and one of its candidates"),
}


@pytest.mark.parametrize("name", WRONG_WIDE)
def test_wide_tables_that_are_not_understood(journeys, name):
    changes, options, words = WRONG_WIDE[name]
    table = wide(journeys)
    for column, values in changes.items():
        place = table.schema.get_field_index(column)
        table = table if place < 0 else table.remove_column(place)
        table = table.append_column(column, pa.array(values))
    with pytest.raises(LogFormatError, match=words):
        ibcb.read_log(table, **({"alternatives": NAMES} | options), **CUT)


@pytest.mark.parametrize("alternatives", [["car"], ["car", "Car"]])
def test_one_alternative_is_no_choice(alternatives):
    with pytest.raises(ValueError, match="two or more different names"):
        ibcb.read_log(pa.table({}), alternatives=alternatives)


# -- JSON lines and lists of candidates ------------------------------------------------------------------------------


def as_objects(journeys, *, mark):
    """A line per step; the chosen one is marked in its object, or named at the step by its id or its position."""
    numbers, _, chosen = journeys
    for step, (rows, pick) in enumerate(zip(numbers.tolist(), chosen.tolist(), strict=True)):
        objects = [{"id": f"i{k}", "price": price, "time": time} for k, (price, time) in enumerate(rows)]
        line = {"request_id": f"r{step}", "user": {"age": 30 + step}, "candidates": objects}
        if mark == "object":
            for place, each in enumerate(objects):
                each["chosen"] = place == pick
        else:
            line["chosen"] = f"i{pick}" if mark == "id" else pick
        yield line


@pytest.mark.parametrize("mark", ["object", "id", "position"])
@pytest.mark.parametrize("name", ["log.jsonl", "log.ndjson.gz", "log.anything"])
def test_lists_of_candidates_in_json_lines(journeys, tmp_path, monkeypatch, mark, name):
    monkeypatch.setattr(jsonlines, "_BLOCK", 500)  # a few lines at a time
    text = "\n".join(json.dumps(line) for line in as_objects(journeys, mark=mark)).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    options = {"format": "jsonl"} if name.endswith("anything") else {}
    log = ibcb.read_log(tmp_path / name, keep=["time"], **options, **CUT)
    same_choices(log, expected(journeys, all_available=True))
    assert log.step_ids.tolist() == [f"r{step}" for step in range(STEPS)]
    assert codes(log) == {"shared-features"}


def test_lists_of_candidates_in_arrow(journeys):
    table = pa.Table.from_pylist(list(as_objects(journeys, mark="position")))
    table = table.set_column(table.schema.get_field_index("user"), "age", pa.array(range(STEPS)))
    same_choices(ibcb.read_log(table, keep=["time"], **CUT), expected(journeys, all_available=True))


def test_lines_that_are_candidates(journeys, tmp_path):
    numbers, _, chosen = journeys
    lines = [
        {"step": step, "picked": bool(place == chosen[step]), "offer": {"price": price, "hours": hours}}
        for step in range(STEPS)
        for place, (price, hours) in enumerate(numbers[step].tolist())
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    log = ibcb.read_log(tmp_path / "log.jsonl", **CUT)
    assert log.feature_names == ("offer.price", "offer.hours")
    np.testing.assert_array_equal(log.contexts, numbers.reshape(-1, 2))
    np.testing.assert_array_equal(log.chosen, chosen)


LISTS = [{"items": [{"a": 1.0}, {"a": 2.0}], "chosen": 1}] * 2
WRONG_LINES = {
    "nothing": ("", r"the file is empty"),
    "no JSON": ('{"a": 1}\n{"a": \n', r"line 2: not a line of JSON"),
    "no object": ('{"a": 1}\n[1]\n', r"line 2: \[1\] is not an object"),
    "null later": ('{"a": 1}\n \nnull\n', r"line 3: None is not an object"),
    "another kind": ('{"a": 1}\n\n{"a": "x"}\n', r"line 3: 'a' holds a string here but a number in the lines before"),
    "VW --json": (
        '{"_labelIndex": 0, "_multi": [{"a": 1}]}',
        r"_multi stands at the top: this is Vowpal Wabbit's --json",
    ),
    "no candidates": (
        '{"items": [{"a": 1}], "chosen": 0}\n{"items": [], "chosen": 0}',
        r"row 1 .*'items' has no candidate",
    ),
    "position too large": (
        json.dumps(LISTS[0] | {"chosen": 2}),
        r"row 0 .*'chosen' is '2' but the step has 2 candidates",
    ),
    "two lists": (
        json.dumps({"a": [{"x": 1}], "b": [{"x": 1}], "chosen": 0}),
        r"'a', 'b' each hold lists of objects; .*--column candidate=NAME",
    ),
}


@pytest.mark.parametrize("name", WRONG_LINES)
def test_lines_that_are_not_understood(tmp_path, name):
    text, words = WRONG_LINES[name]
    (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(LogFormatError, match=rf"log\.jsonl.*{words}|{words}"):
        ibcb.read_log(tmp_path / "log.jsonl", **CUT)


def test_an_object_and_a_null_within_a_text_are_read(tmp_path):
    lines = [row | {"user": "{} null"} for row in LISTS]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert ibcb.read_log(tmp_path / "log.jsonl", **CUT).n_steps == 2


# -- a table of items ------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(rng, tmp_path):
    """Impressions and items as two files, and as the one table that they stand for."""
    shown = np.concatenate([rng.choice(20, size=3, replace=False) for _ in range(STEPS)])
    impressions = pa.table(
        {"request_id": np.repeat(np.arange(STEPS), 3), "item_id": shown, "picked": np.tile([0, 1, 0], STEPS)}
    )
    order = rng.permutation(20)
    price, stars = rng.uniform(size=20).round(3), rng.integers(5, size=20)
    items = pa.table({"item_id": order, "price": price[order], "stars": stars[order], "picked": order})
    both = impressions.append_column("price", pa.array(price[shown])).append_column("stars", pa.array(stars[shown]))
    pacsv.write_csv(impressions, tmp_path / "impressions.csv")
    pacsv.write_csv(items, tmp_path / "items.csv")
    return impressions, items, both


def test_features_of_items_are_looked_up(shop, tmp_path):
    impressions, items, both = shop
    one = ibcb.read_log(both, **CUT)
    log = ibcb.read_log(impressions, items=items, **CUT)
    assert_same_log(log, one)
    assert codes(log) == {"item-columns-left-out"}
    paths = tmp_path / "impressions.csv", tmp_path / "log.parquet"
    succeeds("convert", *paths, "--items", tmp_path / "items.csv", "--episode-size", 4)
    same_choices(ibcb.read_log(paths[1]), one)
    # Ids are the same whatever their type, and the column may be called otherwise.
    renamed = impressions.rename_columns(["request_id", "sku", "picked"])
    texts = items.set_column(0, "sku", items["item_id"].cast(pa.string()))
    same_choices(ibcb.read_log(renamed, items=texts.drop_columns(["picked"]), **CUT), one)


def test_items_that_do_not_fit(shop, tmp_path):
    impressions, items, _ = shop
    ids = items["item_id"].to_pylist()
    lost = [i for i in ids[:2] if i in impressions["item_id"].to_pylist()]
    rows = sum(i in lost for i in impressions["item_id"].to_pylist())
    with pytest.raises(LogFormatError, match=rf"items lacks {len(lost)} ids? of column 'item_id' \({rows} rows?\)"):
        ibcb.read_log(impressions, items=items.slice(2), **CUT)
    with pytest.raises(LogFormatError, match=rf"column 'item_id' has 1 id several times: '{ids[0]}'"):
        ibcb.read_log(impressions, items=pa.concat_tables([items, items.slice(0, 1)]), **CUT)
    with pytest.raises(LogFormatError, match=r"no column is in both.*--column candidate=NAME"):
        ibcb.read_log(impressions, items=items.select(["price"]), **CUT)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv does not exist; give the path of a table"):
        ibcb.read_log(impressions, items=tmp_path / "nowhere.csv", **CUT)


# -- rows, marks and times -------------------------------------------------------------------------------------------


def ordinary(**changes):
    columns = {
        "request_id": list("aabbcc"),
        "picked": [0, 1, 1, 0, 0, 1],
        "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


@pytest.mark.parametrize(
    "yes, no",
    [
        ("ja", "nein"),
        ("Oui", "Non"),
        ("sí", "no"),
        ("Y", "N"),
        ("t", "f"),
        ("sim", "não"),
        ("x", None),
        ("✓", ""),
        ("да", "нет"),
    ],
)
def test_yes_and_no_in_a_few_languages(yes, no, tmp_path):
    plain = ibcb.read_log(ordinary(), episode_size=1)
    table = ordinary(picked=[yes if flag else no for flag in ordinary()["picked"].to_pylist()])
    assert_same_log(ibcb.read_log(table, episode_size=1), plain)
    pacsv.write_csv(table, tmp_path / "log.csv")
    assert_same_log(ibcb.read_log(tmp_path / "log.csv", episode_size=1), plain)


def test_repeated_rows_are_left_out_on_request():
    table = ordinary()
    twice = pa.concat_tables([table.slice(0, 2), table]).append_column("", pa.array(range(8)))
    with pytest.raises(LogFormatError, match="2 candidates are marked"):
        ibcb.read_log(twice, episode_size=1)
    log = ibcb.read_log(twice, episode_size=1, deduplicate=True)
    assert_same_log(log, ibcb.read_log(table, episode_size=1))
    assert next(note for note in log.notes if note.code == "repeated-rows").figures["rows"] == 2


@pytest.mark.parametrize("length", [None, 2])
def test_steps_without_a_choice_are_left_out_on_request(tmp_path, length):
    table = ordinary(picked=[0, 1, 0, 0, 0, 1])
    with pytest.raises(LogFormatError, match=r"step b: no candidate is marked.*--skip-unlabelled\)\.$"):
        ibcb.read_log(table, episode_size=1)
    log = ibcb.read_log(table, episode_size=1, skip_unlabelled=True)
    rest = pa.concat_tables([ordinary().slice(0, 2), ordinary().slice(4)])
    assert_same_log(log, ibcb.read_log(rest, episode_size=1))
    assert [note.figures["steps"] for note in log.notes if note.code == "unlabelled-steps"] == [1]


def test_steps_in_one_row_without_a_choice_are_left_out_on_request():
    table = pa.table({"episode": [0, 0, 1], "chosen": [1, None, 0], "contexts": [[[1.0], [2.0]]] * 3})
    log = ibcb.read_log(table, skip_unlabelled=True)
    assert log.chosen.tolist() == [1, 0]
    assert codes(log) == {"unlabelled-steps"}


@pytest.mark.parametrize("stored", ["memory", "csv"])
def test_times_in_other_forms(tmp_path, stored):
    """The first two would pass for ISO dates of other days."""
    times = ["2024-01-03", "2024-01-03", "2024-02-03", "2024-02-03", "2024-13-03", "2024-13-03"]
    source = ordinary(time=times)
    if stored == "csv":
        pacsv.write_csv(source, tmp_path / "log.csv")
        source = tmp_path / "log.csv"
    log = ibcb.read_log(source, date_format="%Y-%d-%m", episode_every="1d")
    days = [np.datetime64(f"2024-03-{day:02}", "us") for day in (1, 2, 13)]
    np.testing.assert_array_equal(log.timestamps, days)
    assert len(log) == 3


def test_times_that_are_not_in_that_form():
    form = "%d.%m.%Y %H:%M"
    with pytest.raises(LogFormatError, match=r"'time' holds '1 March' in row 2 .*'%d.%m.%Y %H:%M'.*--date-format"):
        ibcb.read_log(ordinary(time=["01.03.2024 10:00"] * 2 + ["1 March"] * 4), date_format=form, episode_size=1)
    with pytest.raises(LogFormatError, match=r"no column holds times.*--column timestamp=NAME"):
        ibcb.read_log(ordinary(), date_format=form, episode_size=1)
    with pytest.raises(ValueError, match="has no %"):
        ibcb.read_log(ordinary(), date_format="dd.mm.yyyy")


def test_zones_are_heeded():
    times = ["01/03/2024 01:00 +0200"] * 2 + ["01/03/2024 02:00 +0000"] * 4
    log = ibcb.read_log(ordinary(time=times), date_format="%d/%m/%Y %H:%M %z", episode_size=1)
    assert log.timestamps[0] == np.datetime64("2024-02-29T23:00")


# -- all problems at once --------------------------------------------------------------------------------------------


def test_all_problems_of_a_table_are_in_one_message():
    table = ordinary(
        picked=[0, 0, 1, 1, 0, 1], genre=list("xyzxyz"), stars=[1, None, 3, None, 5, 6], price=[None, 2.0, 3, 4, 5, 6]
    )
    with pytest.raises(LogFormatError) as error:
        ibcb.read_log(table, episode_size=1, drop=["colour"], keep=["cost"], one_hot=["size"])
    message = str(error.value)
    for words in (
        "7 problems. (1)",
        "no column 'colour'",
        "no column 'cost' to keep",
        "no column 'size' to encode",
        "'genre' holds text, such as 'x'",
        "'price' has 1 missing value, the first in row 0",
        "'stars' has 2 missing values, the first in row 1",
        "2 steps have that problem: 1 without a mark, 1 with several (step b)",
    ):
        assert words in message
    assert "\n" not in message


def test_roles_that_are_missing_are_said_together_with_the_rest():
    table = ordinary(request_id=None, picked=None, genre=list("xyzxyz"), item_id=list("abcdef"))
    with pytest.raises(
        LogFormatError, match=r"3 problems.*tells the steps apart.*marks the chosen.*'genre' holds text"
    ):
        ibcb.read_log(table, episode_size=1)
    with pytest.raises(LogFormatError, match=r"2 problems.*no column 'a' for step.*no column 'b' for chosen"):
        ibcb.read_log(table, episode_size=1, columns={"step": "a", "chosen": "b"})


def test_what_follows_from_another_problem_is_not_said():
    with pytest.raises(LogFormatError, match=r"2 problems.*tells the steps apart.*marks the chosen") as error:
        ibcb.read_log(pa.table({"a;b;c": ["1;2;3"]}), episode_size=1)
    assert "holds text" not in str(error.value)


def test_the_first_few_of_many_steps_with_a_problem_are_named(tmp_path):
    steps = np.repeat(np.arange(9), 2)
    table = pa.table({"step": steps, "chosen": np.zeros(18, int), "price": np.arange(18.0)})
    with pytest.raises(
        LogFormatError, match=r"^the Table: step 0: .*9 steps have.*\(step 1; step 2; step 3; \.\.\.\)\.$"
    ):
        ibcb.read_log(table, episode_size=3)


# -- formats by name -------------------------------------------------------------------------------------------------


def test_a_format_can_be_named(tmp_path):
    pacsv.write_csv(ordinary(), tmp_path / "export")
    plain = ibcb.read_log(ordinary(), episode_size=1)
    with pytest.raises(LogFormatError, match=r"the name does not tell the format.*--format csv"):
        ibcb.read_log(tmp_path / "export", episode_size=1)
    assert_same_log(ibcb.read_log(tmp_path / "export", format="csv", episode_size=1), plain)
    with pytest.raises(ValueError, match=r"format='cvs' is unknown \(did you mean csv\?\); choose one of .*vw"):
        ibcb.read_log(tmp_path / "export", format="cvs", episode_size=1)
    wrong = ibcb_command("validate", tmp_path / "export", "--format", "cvs")
    assert wrong.exit_code == 2
    (tmp_path / "folder").mkdir()
    pacsv.write_csv(ordinary(), tmp_path / "folder" / "part-00000")
    assert_same_log(ibcb.read_log(tmp_path / "folder", format="csv", episode_size=1), plain)


@pytest.mark.parametrize("name", ["log.dat", "log.data"])
def test_dat_files_are_vw_text_or_delimited(tmp_path, name):
    plain = ibcb.read_log(ordinary(), episode_size=1)
    pacsv.write_csv(ordinary(), tmp_path / name, pacsv.WriteOptions(delimiter="\t"))
    assert_same_log(ibcb.read_log(tmp_path / name, episode_size=1), plain)
    ibcb.write_log(plain, tmp_path / "log.vw")
    (tmp_path / "log.vw").rename(tmp_path / name)
    np.testing.assert_array_equal(ibcb.read_log(tmp_path / name, episode_size=1).contexts, plain.contexts)


@pytest.mark.parametrize("name", ["log.vw.gz", "log.ldf", "log.ldf.gz", "log.dat.gz", "log.txt", "log.dsjson.gz"])
def test_vw_text_and_dsjson_under_other_names_and_gzipped(tmp_path, name):
    plain = ibcb.read_log(ordinary(), episode_size=1)
    written = tmp_path / ("a.dsjson" if "dsjson" in name else "a.vw")
    ibcb.write_log(plain, written)
    text = written.read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    log = ibcb.read_log(tmp_path / name, episode_size=1)
    np.testing.assert_array_equal(log.contexts, plain.contexts)
    np.testing.assert_array_equal(log.chosen, plain.chosen)
