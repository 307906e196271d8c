"""Vowpal Wabbit text: what is written comes back and is what Vowpal Wabbit reads, and what is broken is named."""

import numpy as np
import pytest
from hypothesis import given
from strategies import assembled, assert_same_log, in_parts, logs, reproducible

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io import sparse
from ibcb.io.vw import VWSource, looks_like_vw, write_vw
from ibcb.log.recipe import FeatureColumn, Preparation
from ibcb.log.steps import ReadOptions

ONE_EPISODE = ReadOptions(episode_size=10**9)


def source_of(tmp_path, text, **options):
    path = tmp_path / "log.vw"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return VWSource(path, ReadOptions(**options))


def refused(tmp_path, text, words, **options):
    (tmp_path / "log.vw").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LogFormatError, match=rf"^log\.vw: ({words})"):
        ibcb.read_log(tmp_path / "log.vw", **options)


def the_only(source):
    (batch,) = source.batches()
    return batch


def as_read_back(log):
    """What Vowpal Wabbit text can carry of a log: no episodes, no times, doubles, and a name for each feature.

    Propensities of the chosen candidates, 1 where none was logged, and none where all are 1.
    """
    every = np.ones(log.n_rows) if log.propensities is None else log.propensities
    logged = np.nan_to_num(every[log.chosen_rows], nan=1)
    return BehaviorLog(
        log.contexts.astype(np.float64),
        log.step_offsets,
        log.chosen,
        [0, log.n_steps],
        feature_names=log.feature_names or [f"x{column}" for column in range(log.n_features)],
        propensities=None if (logged == 1).all() else logged,
    )


# -- round trip ----------------------------------------------------------------------------------------------------


@reproducible
@given(logs())
def test_names_numbers_and_choices_come_back_to_the_bit(tmp_path_factory, log):
    path = tmp_path_factory.getbasetemp() / "round-trip.vw"
    write_vw(in_parts(log), path)
    again = assembled(VWSource(path, ONE_EPISODE), ONE_EPISODE)
    assert_same_log(again, as_read_back(log))
    assert again.contexts.tobytes() == log.contexts.astype(np.float64).tobytes()


NAMES = ["a b", "a\tb", "a|b", "a:b", "%20", "%_", "", "%", "^", "a^", "^a", "a^b", "a^b c", "a\nb", "a\r", "'a"]
NAMES += ["shared", "prix en €", "\u2028", "0:1:0.5", "\x0b\x0c\x85\0", "\ufeff"]


def test_names_of_any_kind_come_back(tmp_path):
    contexts = np.arange(1.0, 2 * len(NAMES) + 1).reshape(2, -1)
    log = BehaviorLog(contexts, [0, 2], [1], [0, 1], feature_names=NAMES)
    write_vw(in_parts(log), tmp_path / "log.vw")
    assert_same_log(assembled(VWSource(tmp_path / "log.vw", ONE_EPISODE), ONE_EPISODE), log)


def test_zeros_are_written_once_and_keep_their_sign(tmp_path):
    log = BehaviorLog([[0.0, 1.0], [0.0, 0.0], [-0.0, 2.0]], [0, 3], [1], [0, 1], feature_names=["a", "b"])
    write_vw(in_parts(log), tmp_path / "log.vw")
    assert (tmp_path / "log.vw").read_text() == "| a:0.0 b:1.0\n2:0:1 |\n| a:-0.0 b:2.0\n\n"
    again = the_only(VWSource(tmp_path / "log.vw", ReadOptions()))
    assert again.contexts.tobytes() == log.contexts.tobytes()


def test_what_cannot_be_written_is_refused(tmp_path):
    one, other, odd = (BehaviorLog([[1.0]], [0, 1], [0], [0, 1], feature_names=[name]) for name in ("a", "b", "\ud800"))
    with pytest.raises(LogFormatError, match="episode 3: features.* not those of the episodes before"):
        write_vw([(2, one), (3, other)], tmp_path / "log.vw")
    with pytest.raises(LogFormatError, match="The log is empty"):
        write_vw([], tmp_path / "log.vw")
    with pytest.raises(LogFormatError, match=r"'\\ud800' cannot be written as UTF-8; rename"):
        write_vw(in_parts(odd), tmp_path / "log.vw")


# -- reading -------------------------------------------------------------------------------------------------------

EXAMPLE = """\
shared |user age:31 :paris city
|item:2 price:0.5 red |text sale
2:-1:0.25 first|item price:0.25 |text sale sale:2

0:0.5:1 'second |text sale |item:0.5 price:4 price
"""


@pytest.mark.parametrize(
    "ending, tail, mark",
    [("\n", "", b"\xef\xbb\xbf"), ("\r\n", "{}", b""), ("\n", "{}{}", b""), ("\r\n", " {}", b"\xef\xbb\xbf")],
)
def test_namespaces_weights_tags_and_repeats(tmp_path, ending, tail, mark):
    text = EXAMPLE.replace(" :paris", "").rstrip("\n").replace("\n", ending) + tail.format(ending, ending)
    source = source_of(tmp_path, mark + text.encode())
    steps = the_only(source)
    assert source.feature_names == ("item^price", "item^red", "text^sale")
    assert steps.counts.tolist() == [2, 1]
    assert steps.chosen.tolist() == [1, 0]
    assert steps.contexts.tolist() == [[1.0, 2.0, 1.0], [0.25, 0.0, 3.0], [2.5, 0.0, 1.0]]
    assert steps.episode is None
    assert steps.timestamps is None
    assert tuple(map(str, source.notes)) == (
        "the features of the shared lines (user^age, user^city) are the same for all candidates of a step, so no "
        "linear policy can depend on them; left out. To use them, multiply them with features of the candidates: "
        "cross=[('user', 'item')] (--cross 'user,item').",
    )


def test_costs_and_probabilities_leave_no_trace_in_what_is_fitted(tmp_path):
    text = "{} |a x:1\n| y:2\n\n|a x:3\n{} |a x:4\n"
    one, other = (
        the_only(source_of(tmp_path, text.format(*labels)))
        for labels in (("1:0:1", "2:0:1"), ("0:-7.5:0.125", "9:1e3:0.5"))
    )
    assert one.propensities is None
    assert other.propensities is not None
    for first, second in zip(one, other._replace(propensities=None), strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_text_as_value_is_a_feature_of_its_own(tmp_path):
    source = source_of(tmp_path, "0:1:1 |a:3 city:paris x:2\n|a city:rome\n| city:rome\n")
    assert source.feature_names == ("a^city^paris", "a^x", "a^city^rome", "city^rome")
    assert the_only(source).contexts.tolist() == [[1, 6, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_without_choices_labels_may_be_missing_and_tabs_are_spaces(tmp_path):
    steps = the_only(source_of(tmp_path, "| x:1\n|\tx:2\n\t\n| x:3\n1:0:1\t| x:4\n", choices=False))
    assert steps.chosen.tolist() == [0, 1]
    assert steps.contexts.tolist() == [[1], [2], [3], [4]]


@pytest.mark.parametrize("given", ["features", "preparation"])
def test_given_features_decide_what_is_read(tmp_path, given):
    names = ("b", "missing", "a")
    preparation = Preparation(tuple(FeatureColumn(name) for name in names))
    options = {"features": list(names)} if given == "features" else {"preparation": preparation}
    source = source_of(tmp_path, "0:1:1 | a:1 b:2 c:3\n| d:4\n", **options)
    assert the_only(source).contexts.tolist() == [[2, 0, 1], [0, 0, 0]]
    assert source.feature_names == source.preparation.feature_names == names
    assert tuple(map(str, source.notes)) == (
        "2 features not asked for left out: c, d.",
        "1 feature asked for appear nowhere: missing.",
    )
    assert source_of(tmp_path, "0:1:1 | a:1 b:2 c:3\n", drop=["b"]).feature_names == ("a", "c")


def test_what_stands_for_missing_numbers_in_a_model_s_log_stands_for_them_here(tmp_path):
    columns = (FeatureColumn("a", fill=0.5), FeatureColumn("c", ("red", "blue")), FeatureColumn("b"))
    source = source_of(tmp_path, "0:1:1 | c=red b:2\n| a:3\n", preparation=Preparation(columns))
    assert the_only(source).contexts.tolist() == [[0.5, 1, 0, 2], [3, 0, 0, 0]]


def test_a_batch_may_be_all_zeros(tmp_path, monkeypatch):
    monkeypatch.setattr(sparse, "BATCH_NUMBERS", 1)
    batches = source_of(tmp_path, "0:1:1 |\n\n0:1:1 | x\n").batches()
    assert [batch.contexts.tolist() for batch in batches] == [[[0.0]], [[1.0]]]


# -- broken files --------------------------------------------------------------------------------------------------

GOOD = "0:1:1 |a x:1\n|a x:2\n\n"
BROKEN = {
    "empty": ("", "the log is empty"),
    "no label": (GOOD + "|a x\n|a y\n", r"line 4: no candidate of the block .*action:cost:probability.*--skip-unl"),
    "two labels": (GOOD + "0:1:1 |a x\n0:1:1 |a y\n", r"line 5: a second labelled candidate .* begins at line 4"),
    "--cb": ("1:0:0.5 |f a\n2:1:0.5 |f b\n", r"line 2: a second labelled .* Every line is labelled, as in --cb, with"),
    "conditional": (
        "ccb shared |User b\nccb action |Action d\n",
        r"line 1: 'ccb shared' is of .*\(ccb\): one choice for",
    ),
    "costs": ("1:1.0 | a_1\n2:0.0 | a_2\n", r"line 1: '1:1.0' is not a label; .*csoaa_ldf"),
    "shared only": (GOOD + "shared |a x\n", r"line 4: a shared line without candidates"),
    "shared late": ("|a x\nshared |a x\n", r"line 2: a shared line within a block.*blank line"),
    "shared with cost": ("shared:1:2 |a x\n0:1:1 |a x\n", r"line 1: 'shared:1:2' is not a label"),
    "no bar": (GOOD + "0:1:1 a x\n", r"line 4: '0:1:1 a x' has no '\|'"),
    "label touches": ("0:1:1|a x\n|a y\n", r"line 1: '0:1:1' touches the '\|'.*space"),
    "label short": ("0:1 |a x\n", r"line 1: '0:1' is not a label"),
    "two labels in a line": ("0:1:1 1:1:1 |a x\n", r"line 1: '0:1:1 1:1:1' is not a label"),
    "value": ("0:1:1 |a x:1.5.2\n", r"line 1: 'x:1.5.2' is not a feature; expected name or name:number"),
    "name missing": ("0:1:1 |a :2\n", r"line 1: ':2' is a value without a name"),
    "nan": (GOOD + "0:1:1 |a x:nan\n", r"line 4: the value of 'x:nan' is not finite"),
    "overflow": ("0:1:1 |a:1e200 x:1e200\n", r"line 1: the value of 'x:1e200' is not finite"),
    "namespace weight": ("0:1:1 |a:b x\n", r"line 1: 'a:b' after '\|' is not a namespace"),
    "no features": ("0:1:1 |\n|\n", "no candidate has a feature"),
    "not UTF-8": (GOOD.encode() + b"0:1:1 |a caf\xe9\n", r"line 4: byte 12 is not UTF-8; save"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_by_file_line_and_reason(tmp_path, name):
    text, words = BROKEN[name]
    refused(tmp_path, text, words, episode_size=1)
    assert the_only(source_of(tmp_path, GOOD)).contexts.tolist() == [[1], [2]]


def test_too_many_features_are_refused_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(sparse, "MOST_FEATURES", 200)
    text = "".join(f"0:1:1 | w{word}\n\n" for word in range(201))
    refused(tmp_path, text, r"line 401: 201 different features.*at most 200 .*--features")
    source = source_of(tmp_path, text, features=["w7"])
    assert tuple(map(str, source.notes)) == (
        "more than 200 features not asked for left out: w0, w1, w2, w3, w4 and 195 more.",
    )


ASKED = {
    "unknown features": ({"features": ["y"]}, r"none of the 1 feature asked for \(y\) appears in it; it has a\^x"),
    "features twice": ({"features": ["a^x", "a^x"]}, r"'a\^x' twice"),
    "no features": ({"features": []}, r"names no feature"),
    "unknown drop": ({"drop": ["y"]}, r"y cannot be dropped: it appears nowhere"),
    "all dropped": ({"drop": ["a^x"]}, r"no candidate has a feature"),
    "sort": ({"sort": True}, r"neither times nor episodes to sort by"),
    "columns": ({"columns": {"episode": "day"}}, r"'day' was named as column 'episode'.*no columns"),
    "one-hot": ({"one_hot": ["x"]}, "no column 'x' to encode .*a text is a feature of its own.*Leave it out"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_cannot_be_asked_is_refused(tmp_path, name):
    options, words = ASKED[name]
    refused(tmp_path, GOOD, f".*{words}", **options)
    with pytest.raises(LogFormatError, match="a folder; give the path of a file"):
        VWSource(tmp_path, ReadOptions())


def test_vw_is_recognised_by_its_first_line(tmp_path):
    for text in (EXAMPLE, GOOD, "\n\n'tag| x\n", "ccb shared |User b\n", "1:1:1.0 2:2 3:3 | a b\n"):
        (tmp_path / "log.txt").write_text(text)
        assert looks_like_vw(tmp_path / "log.txt")
    for text in ("", "episode,step\n", "a,b|c\n", '{"c": "|"}\n', "episode | step\n"):
        (tmp_path / "log.txt").write_text(text)
        assert not looks_like_vw(tmp_path / "log.txt")


# -- Vowpal Wabbit itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix, separator, how", [(".vw", "\n\n", ""), (".dsjson", "\n", "--dsjson")])
def test_vowpal_wabbit_reads_the_names_numbers_and_labels_that_we_write(tmp_path, rng, suffix, separator, how):
    package = pytest.importorskip(
        "vowpalwabbit", reason="vowpalwabbit is not installed: that Vowpal Wabbit reads our files was NOT tested"
    )
    how, path = f"--cb_adf --noconstant --quiet --strict_parse {how}", tmp_path / f"log{suffix}"
    names = ["item^price", "item^sale %", "text^a|b", "plain name", "0.e"]
    contexts = [rng.normal(size=(m, 5)) * (rng.random((m, 5)) < 0.7) for m in (3, 1, 4, 2)]
    log = BehaviorLog.from_episodes([(contexts, [2, 0, 3, 0])], feature_names=names, step_ids=np.arange(4))
    ibcb.write_log(log, path)
    workspace = package.Workspace(how)
    blocks = path.read_text().removesuffix(separator).split(separator)
    assert len(blocks) == log.n_steps
    for step, block in enumerate(blocks):
        examples = every = workspace.parse(block)
        if suffix == ".dsjson":
            shared, *examples = every
            assert not list(shared.iter_features())
        for index, (example, row) in enumerate(zip(examples, log.candidates(step), strict=True)):
            features = sorted(value for _, value in example.iter_features())
            np.testing.assert_allclose(features, sorted(row[row != 0]), rtol=1e-6)
            assert len(example.get_label().costs) == (index == log.chosen[step])
        workspace.learn(every)
    workspace.finish()
    whole = package.Workspace(f"{how} -d {path}")
    assert whole.get_weighted_examples() == log.n_steps
    whole.finish()


def test_blocks_without_a_label_are_left_out_on_request(tmp_path):
    text = GOOD + "|a x\n|a y\n\n" + GOOD
    source = source_of(tmp_path, text, skip_unlabelled=True)
    assert len(the_only(source).counts) == 2 * len(the_only(source_of(tmp_path, GOOD)).counts)
    assert [note.figures["steps"] for note in source.notes if note.code == "unlabelled-steps"] == [1]
