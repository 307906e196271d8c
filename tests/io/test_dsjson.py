"""dsjson: what is written comes back and is what Vowpal Wabbit reads, and what is broken is named."""

import json

import numpy as np
import pytest
from hypothesis import given
from strategies import NAMES, assembled, assert_same_log, in_parts, logs, reproducible

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io import sparse
from ibcb.io.dsjson import DSJsonSource, looks_like_dsjson, write_dsjson
from ibcb.log.steps import ReadOptions


def written(tmp_path, *lines):
    path = tmp_path / "log.dsjson"
    texts = [line if isinstance(line, (str, bytes)) else json.dumps(line) for line in lines]
    path.write_bytes(b"\n".join(text if isinstance(text, bytes) else text.encode() for text in texts))
    return path


def source_of(tmp_path, *lines, **options):
    return DSJsonSource(written(tmp_path, *lines), ReadOptions(**options))


def refused(tmp_path, lines, words, **options):
    with pytest.raises(LogFormatError, match=rf"^log\.dsjson: ({words})"):
        ibcb.read_log(written(tmp_path, *lines), **({"episode_size": 1} | options))


def the_only(source):
    (batch,) = source.batches()
    return batch


def decision(*candidates, index=0, **changes):
    """One line with the keys that a decision needs, and changes to them; None takes a key away."""
    line = {"_labelIndex": index, "_label_Action": index + 1, "a": [index + 1], "c": {"_multi": list(candidates)}}
    return {key: value for key, value in (line | changes).items() if value is not None}


def doubles(log):
    """The same log in double precision, without propensities that are all 1."""
    logged = np.array([1.0]) if log.propensities is None else log.propensities[log.chosen_rows]
    known = logged[~np.isnan(logged)]
    return BehaviorLog(
        log.contexts.astype(np.float64),
        log.step_offsets,
        log.chosen,
        log.episode_offsets,
        warmup=log.warmup,
        feature_names=log.feature_names,
        timestamps=log.timestamps,
        step_ids=log.step_ids,
        propensities=None if (known == 1).all() else log.propensities,
    )


# -- round trip ----------------------------------------------------------------------------------------------------


@reproducible
@given(logs(names=NAMES.filter(lambda name: not name.startswith("_"))))
def test_a_log_comes_back_to_the_bit_but_for_its_float_type(tmp_path_factory, log):
    path = tmp_path_factory.getbasetemp() / "round-trip.dsjson"
    write_dsjson(in_parts(log), path)
    again = assembled(DSJsonSource(path, ReadOptions()))
    assert_same_log(again, doubles(log))
    assert again.contexts.tobytes() == log.contexts.astype(np.float64).tobytes()
    for name in ("timestamps", "step_ids"):
        if getattr(log, name) is not None:
            assert getattr(again, name).dtype == getattr(log, name).dtype


TEXTS = np.array([f"2024-02-2{i}" for i in range(6)], dtype=object)


@pytest.mark.parametrize("values", [np.arange(6, dtype=np.uint64) + 2**63, TEXTS], ids=["large", "texts"])
def test_timestamps_and_ids_of_any_kind_come_back(tmp_path, values):
    log = BehaviorLog(np.ones((6, 1)), np.arange(7), np.zeros(6, int), [0, 2, 6], timestamps=values, step_ids=values)
    write_dsjson(in_parts(log), tmp_path / "log.dsjson")
    assert_same_log(assembled(DSJsonSource(tmp_path / "log.dsjson", ReadOptions())), log)


UNWRITABLE = {
    "private name": ({"feature_names": ["_x"]}, "'_x': in dsjson keys that begin with _ are not features; rename"),
    "time long ago": ({"timestamps": np.array(["1066-10-14"], "M8[D]")}, "timestamps holds 1066-10-14.*1678 to 2261"),
    "time nan": ({"timestamps": [np.nan]}, "timestamps holds nan"),
    "id true": ({"step_ids": [True]}, "step_ids holds True"),
    "id a list": ({"step_ids": np.array([None], dtype=object)}, "step_ids holds None"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_dsjson_cannot_hold_is_not_written(tmp_path, name):
    extras, words = UNWRITABLE[name]
    log = BehaviorLog([[1.0]], [0, 1], [0], [0, 1], **extras)
    with pytest.raises(LogFormatError, match=words):
        write_dsjson(in_parts(log), tmp_path / "log.dsjson")


def test_a_line_is_what_the_documentation_says(tmp_path):
    log = BehaviorLog(
        [[0.0, 1.5], [0.0, -2.0], [-0.0, 0.0]],
        [0, 3],
        [1],
        [0, 1],
        feature_names=["a", "b.c"],
        timestamps=[np.datetime64("2020-11-15T17:09:31.835")],
        step_ids=[7],
    )
    write_dsjson([(-3, log)], tmp_path / "log.dsjson")
    assert json.loads((tmp_path / "log.dsjson").read_text()) == {
        "_label_cost": 0,
        "_label_probability": 1,
        "_label_Action": 2,
        "_labelIndex": 1,
        "Timestamp": "2020-11-15T17:09:31.835000000Z",
        "Version": "1",
        "EventId": "7",
        "ibcb_step_id": 7,
        "a": [2, 1, 3],
        "c": {"_multi": [{"a": 0.0, "b.c": 1.5}, {"b.c": -2.0}, {"a": -0.0}]},
        "p": [1, 0, 0],
        "VWState": {"m": "N/A"},
        "ibcb_episode": -3,
    }


# -- reading -------------------------------------------------------------------------------------------------------


def test_a_line_of_the_decision_service(tmp_path):
    line = (
        '{"_label_cost":-1.0,"_label_probability":0.5,"_label_Action":2,"_labelIndex":1,'
        '"o":[{"v":1.0,"EventId":"38cbf24f","ActionTaken":false}],"Timestamp":"2020-11-15T17:09:31.8350000Z",'
        '"Version":"1","EventId":"38cbf24f","a":[2,1],"c":{"GUser":{"id":"person5","major":"engineering"},"_multi":['
        '{"_tag":"x","TAction":{"topic":"SkiConditions-VT"},"j":[{"roast":"light"},{"size":{"ml":250}}]},'
        '{"TAction":{"topic":"HerbGarden","hot":true,"cold":false,"none":null},"v":[0.5,null,2],"t":["a","b","a"]}]},'
        '"p":[0.5,0.5],"VWState":{"m":"N/A"}}'
    )
    source = source_of(tmp_path, line)
    steps = the_only(source)
    rows = [dict(zip(source.feature_names, row, strict=True)) for row in steps.contexts.tolist()]
    names = ["TAction.topic=SkiConditions-VT", "j.roast=light", "j.size.ml", "TAction.topic=HerbGarden"]
    assert list(source.feature_names) == [*names, "TAction.hot", "TAction.cold", "v[0]", "v[2]", "t=a", "t=b"]
    assert [{name: value for name, value in row.items() if value} for row in rows] == [
        {names[0]: 1, names[1]: 1, names[2]: 250},
        {names[3]: 1, "TAction.hot": 1, "v[0]": 0.5, "v[2]": 2, "t=a": 2, "t=b": 1},
    ]
    assert steps.chosen.tolist() == [1]
    assert steps.step_ids.tolist() == ["38cbf24f"]
    np.testing.assert_array_equal(steps.timestamps, np.array(["2020-11-15T17:09:31.835"], "M8[ns]"), strict=True)
    assert steps.episode is None
    assert tuple(map(str, source.notes)) == (
        "shared features (GUser) are the same for all candidates of a step, so no linear policy can depend on "
        "them; left out. To use them, multiply them with features of the candidates: cross=[('GUser', 'TAction')] "
        "(--cross 'GUser,TAction').",
        "keys of candidates that begin with _ are not features; left out: _tag.",
    )


def test_costs_and_probabilities_leave_no_trace_in_what_is_fitted(tmp_path):
    plain = decision({"x": 1}, {"x": 2}, index=1)
    for extra in ({"_label_cost": -3, "_label_probability": 0.1, "p": [0.1, 0.9], "o": [{"v": 5}]}, {}):
        source = source_of(tmp_path, plain | extra)
        assert (source.feature_names, source.notes) == (("x",), ())
        assert the_only(source).contexts.tolist() == [[1], [2]]


def test_lines_without_a_decision_are_counted(tmp_path):
    lines = [{"EventId": "1", "RewardValue": 0.5}, decision({"x": 1}), "[1, 2]", "", "3"]
    source = source_of(tmp_path, *lines, decision({"y": 1}, _skipLearn=True), decision({"x": 2}, _skipLearn=False))
    assert the_only(source).contexts.tolist() == [[1], [2]]
    assert tuple(map(str, source.notes)) == (
        "3 lines without a decision (rewards that came later, checkpoints) left out.",
        "1 decision marked _skipLearn, from which the decider never learned, left out.",
    )


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2020-11-15T17:09:31Z", "2020-11-15T17:09:31"),
        ("2020-11-15T17:09:31", "2020-11-15T17:09:31"),
        ("2020-11-15 17:09", "2020-11-15T17:09"),
        ("2020-11-15T17:09:31.1234567Z", "2020-11-15T17:09:31.1234567"),
        ("2020-11-15T17:09:31.1234567891234Z", "2020-11-15T17:09:31.123456789"),
        ("2020-11-15T01:00:00+02:00", "2020-11-14T23:00"),
        ("2020-11-15T23:00:00.5-0130", "2020-11-16T00:30:00.5"),
    ],
)
def test_times_are_read_as_utc(tmp_path, text, expected):
    steps = the_only(source_of(tmp_path, decision({"x": 1}, Timestamp=text)))
    np.testing.assert_array_equal(steps.timestamps, np.array([expected], "M8[ns]"), strict=True)


def test_columns_name_keys_within_objects(tmp_path):
    lines = [
        decision({"x": i}, Timestamp="?", at=10.5 + i, user={"id": i}, VWState={"m": model})
        for i, model in enumerate("aabb")
    ]
    columns = {"episode": "VWState.m", "timestamp": "at", "step_id": "user.id"}
    log = assembled(source_of(tmp_path, *lines, columns=columns))
    assert log.episode_offsets.tolist() == [0, 2, 4]
    assert log.timestamps.tolist() == [10.5, 11.5, 12.5, 13.5]
    assert log.step_ids.tolist() == [0, 1, 2, 3]
    source = source_of(tmp_path, *lines, drop=["Timestamp"])
    assert the_only(source).timestamps is None
    assert str(source.notes[-1]).endswith("(--column episode=VWState.m) makes an episode of each.")


def test_sorting_by_time_and_episode(tmp_path, rng, monkeypatch):
    times = [f"2020-01-01T00:00:{second:02}Z" for second in range(20)]
    lines = [decision({"x": i}, Timestamp=times[i], at="ab"[i // 12]) for i in rng.permutation(20).tolist()]
    monkeypatch.setattr(sparse, "BATCH_NUMBERS", 3)
    source = source_of(tmp_path, *lines, "{}", sort=True)
    for _ in range(2):
        assert [value for batch in source.batches() for value in batch.contexts[:, 0]] == list(range(20))
    labelled = source_of(tmp_path, *lines, sort=True, columns={"episode": "at"}, drop=["Timestamp"])
    labels = np.concatenate([batch.episode for batch in labelled.batches()])
    assert np.count_nonzero(labels[1:] != labels[:-1]) == 1
    refused(tmp_path, [decision({"x": 1})], "nothing to sort by", sort=True)


def test_without_choices_no_key_needs_to_tell_them(tmp_path):
    lines = [{"c": {"_multi": [{"x": 1}, {"x": 2}]}}, decision({"x": 3}, {"x": 4}, index=1)]
    assert the_only(source_of(tmp_path, *lines, choices=False)).chosen.tolist() == [0, 1]


def test_a_model_s_features_decide_what_is_read(tmp_path):
    first = source_of(tmp_path, decision({"x": 1, "c": "red"}, {"x": 2, "c": "blue"}))
    again = source_of(tmp_path, decision({"c": "green", "x": 5}, {"c": "red"}), preparation=first.preparation)
    assert again.feature_names == ("x", "c=red", "c=blue")
    assert the_only(again).contexts.tolist() == [[5, 0, 0], [0, 1, 0]]
    assert [note.code for note in again.notes] == ["features-not-asked-for", "features-absent"]


def test_unnamed_features_can_be_asked_for_by_the_names_they_are_written_with(tmp_path):
    log = BehaviorLog([[1.0, 2.0, 3.0]], [0, 1], [0], [0, 1])
    write_dsjson(in_parts(log), tmp_path / "log.dsjson")
    whole = DSJsonSource(tmp_path / "log.dsjson", ReadOptions())
    assert (whole.feature_names, whole.preparation) == (None, None)
    part = DSJsonSource(tmp_path / "log.dsjson", ReadOptions(features=["x2", "x0"]))
    assert part.feature_names == ("x2", "x0")
    assert the_only(part).contexts.tolist() == [[3, 1]]


# -- broken files --------------------------------------------------------------------------------------------------

GOOD = decision({"x": 1}, {"x": 2})
TIMED = decision({"x": 1}, Timestamp="2020-01-01T00:00Z", EventId="a")
DEEP = '{"c":{"_multi":[' + '{"a":' * 600 + "1" + "}" * 600 + "]}}"
BROKEN = {
    "empty": ([""], "the log is empty"),
    "no decision": ([{"EventId": "a"}, "[]"], r"no decision in 2 lines; .*c\._multi"),
    "cut": ([GOOD, json.dumps(GOOD)[:-3]], "line 2: not a line of JSON"),
    "not UTF-8": ([GOOD, b'{"caf\xe9": 1}'], "line 2: byte 5 is not UTF-8"),
    "half a character": (['{"c":{"_multi":[{"\\uD800":1}]}}'], "line 1: a text holds half a character"),
    "bottomless": (["[" * 100_000], "line 1: objects are nested too deeply"),
    "NaN": (['{"c":{"_multi":[{"x":NaN}]}}'], "line 1: .*NaN is not a JSON number"),
    "huge": ([decision({"x": 10**400})], "line 1: candidate 0: feature 'x' is not finite"),
    "--json": ([{"_multi": [{"x": 1}]}], "line 1: _multi stands at the top: this is Vowpal Wabbit's --json"),
    "no candidates": ([decision()], "line 1: c has no list _multi of candidates"),
    "conditional": ([decision(c={"_multi": [{"x": 1}], "_slots": [{}]})], r"line 1: .*\(ccb\): .*each slot as a step"),
    "slate": (
        [decision(c={"_multi": [{"_slot_id": 0}], "_slots": [{}]})],
        r"line 1: .*\(slates\): .*each slot as a step",
    ),
    "continuous": (
        [{"_label_ca": {"action": 0.5}, "c": {"room": 1}}],
        r"line 1: the decision .*\(cats\): a number chosen",
    ),
    "candidate a number": ([decision({"x": 1}, 3)], "line 1: candidate 1: 3 is not an object"),
    "candidate elsewhere": (
        [decision({"__aid": 7})],
        r"line 1: candidate 0: its features are stored elsewhere \(__aid",
    ),
    "array in array": ([decision({"x": [[1]]})], "line 1: candidate 0: 'x' holds an array within an array"),
    "no choice": ([GOOD, {"c": {"_multi": [{"x": 1}]}}], "line 2: no key says which candidate .*--skip-unlabelled"),
    "choice disagrees": ([decision({"x": 1}, {"x": 2}, a=[2, 1])], "line 1: _labelIndex tells .* a tells .*disagree"),
    "choice too large": ([decision({"x": 1}, _labelIndex=1)], "line 1: _labelIndex is 1 but the line has 1 candidate"),
    "choice zero": ([decision({"x": 1}, _label_Action=0)], "line 1: _label_Action is 0 .* counts from 1"),
    "choice zero of actions": ([decision({"x": 1}, _labelIndex=None, _label_Action=None, a=[0])], "line 1: a is 0 but"),
    "choice text": ([decision({"x": 1}, a=["1"])], "line 1: a is '1'; expected a whole number, counted from 1"),
    "time": ([decision({"x": 1}, Timestamp="timestamp_utc")], "line 1: Timestamp is 'timestamp_utc'.*--drop Timestamp"),
    "time of no day": ([decision({"x": 1}, Timestamp="2020-02-30T00:00Z")], "line 1: Timestamp is '2020-02-30"),
    "time long ago": ([decision({"x": 1}, Timestamp="1066-10-14T09:00Z")], "line 1: Timestamp is '1066-10-14"),
    "time missing": (
        [TIMED, dict(TIMED, Timestamp=None)],
        "line 2: Timestamp is missing, but a time .*--drop Timestamp",
    ),
    "time a number": ([TIMED, dict(TIMED, Timestamp=5)], "line 2: Timestamp is a number, but a time in the lines"),
    "episode missing": (
        [GOOD | {"ibcb_episode": 0}, GOOD],
        r"line 2: ibcb_episode is missing, .* the lines before it\.",
    ),
    "no features": ([decision({}, {"_tag": "x"})], "no candidate has a feature"),
    "propensity": (
        [GOOD | {"_label_probability": 1.5}],
        r"line 1: candidate 0: the propensity is 1.5.*--drop p --",
    ),
    "propensity of another": ([GOOD | {"a": [1, 2], "p": [0.5, -0.3]}], "line 1: candidate 1: the propensity is -0.3"),
    "propensities too few": (
        [GOOD | {"a": [1, 2], "p": [0.5]}],
        r"line 1: p has 1 number but a is \[1, 2\], of 2 cand",
    ),
    "propensity text": ([GOOD | {"p": ["x", 0.2]}], r"line 1: p is \['x', 0.2\]; expected a probability"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_by_file_line_and_reason(tmp_path, name):
    refused(tmp_path, *BROKEN[name])
    refused(tmp_path, [GOOD], "'x' was named as column 'chosen', but in this format it takes", columns={"chosen": "x"})
    assert the_only(source_of(tmp_path, GOOD)).contexts.tolist() == [[1], [2]]
    assert the_only(source_of(tmp_path, TIMED)).step_ids.tolist() == ["a"]


def test_deep_objects_are_flattened_or_refused(tmp_path):
    try:
        names = source_of(tmp_path, DEEP, choices=False).feature_names
    except LogFormatError as error:
        names = (".".join("a" * 600),) if "line 1: objects are nested" in str(error) else ()
    assert names == (".".join("a" * 600),)


def test_dsjson_is_recognised_by_its_first_lines(tmp_path):
    assert looks_like_dsjson(written(tmp_path, {"RewardValue": 1}, "", GOOD))
    for lines in ([], ["episode,step"], [{"episode": 0, "c": 1}], [b"\xff\xfe"]):
        assert not looks_like_dsjson(written(tmp_path, *lines))


@pytest.mark.parametrize(
    "keys",
    [
        {"_label_Action": None, "a": None},
        {"_labelIndex": None, "a": None},
        {"_labelIndex": None, "_label_Action": None},
        {"_labelIndex": None, "a": [0, 1, 2]},
        {"a": [0, 1, 2], "p": [0.5, 0.25, 0.25]},
    ],
)
def test_every_key_that_tells_the_choice_is_enough(tmp_path, keys):
    """A list of actions that counts from 0 says nothing where a label does."""
    source = source_of(tmp_path, decision({"x": 1}, {"x": 2}, {"x": 3}, index=1, **keys))
    assert the_only(source).chosen.tolist() == [1]


def test_lines_without_a_choice_are_left_out_on_request(tmp_path):
    unlabelled = decision({"x": 5}, _labelIndex=None, _label_Action=None, a=None)
    source = source_of(tmp_path, decision({"x": 1}), unlabelled, decision({"x": 2}), skip_unlabelled=True)
    assert the_only(source).contexts.ravel().tolist() == [1, 2]
    assert [note.figures["steps"] for note in source.notes if note.code == "unlabelled-steps"] == [1]


def test_times_in_another_form(tmp_path):
    line = decision({"x": 1}, Timestamp="03.02.2021 16:31")
    batch = the_only(source_of(tmp_path, line, date_format="%d.%m.%Y %H:%M"))
    assert batch.timestamps.tolist() == np.array(["2021-02-03T16:31"], "datetime64[ns]").tolist()
    refused(tmp_path, [line], "line 1: the time is '03.02.2021 16:31', not as in '%Y'", date_format="%Y")
