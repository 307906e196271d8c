"""Logged propensities: read from wherever they are, kept beside the log and out of the fit, and refused by name."""

import json

import numpy as np
import pyarrow as pa
import pytest
from strategies import assert_same_log

import ibcb
from ibcb import BehaviorLog, LogFormatError
from ibcb.io.logged import of_every_candidate
from ibcb.log.fingerprint import log_fingerprint

STEPS, CANDIDATES = 12, 3
CUT = {"episode_size": 4}


@pytest.fixture
def drawn(rng):
    """Features, probabilities of all candidates, and choices."""
    X = rng.normal(size=(STEPS, CANDIDATES, 2)).round(4)
    P = rng.dirichlet(np.ones(CANDIDATES), size=STEPS)
    chosen = np.array([rng.choice(CANDIDATES, p=p) for p in P])
    return X, P, chosen


def of_chosen(P, chosen):
    return np.where(np.arange(CANDIDATES) == chosen[:, None], P, np.nan).ravel()


def expected(drawn, *, every):
    X, P, chosen = drawn
    episodes = [(X[e : e + 4], chosen[e : e + 4]) for e in range(0, STEPS, 4)]
    logged = P.ravel() if every else P[np.arange(STEPS), chosen]
    return BehaviorLog.from_episodes(episodes, feature_names=["a", "b"], propensities=logged)


def long(drawn, name="propensity", values=None):
    X, P, chosen = drawn
    columns = {
        "step": np.repeat(np.arange(STEPS), CANDIDATES),
        "chosen": (np.arange(CANDIDATES) == chosen[:, None]).ravel(),
        "a": X[:, :, 0].ravel(),
        "b": X[:, :, 1].ravel(),
    }
    logged = P.ravel() if values is None else values
    return pa.table(columns | {name: pa.array(logged, mask=np.isnan(logged))})


def same_steps(log, other):
    for array in ("contexts", "step_offsets", "chosen", "episode_offsets", "propensities"):
        np.testing.assert_array_equal(getattr(log, array), getattr(other, array), err_msg=array)
    assert log.feature_names == other.feature_names


# -- the log itself --------------------------------------------------------------------------------------------------


def test_slices_cuts_and_parts_keep_the_propensities_of_their_rows(drawn):
    log = expected(drawn, every=True)
    P = drawn[1]
    np.testing.assert_array_equal(log[1:].propensities, P[4:].ravel())
    np.testing.assert_array_equal(log.head(0.4).propensities, P[:4].ravel())
    np.testing.assert_array_equal(log.recut([0, 5]).propensities, P.ravel())
    np.testing.assert_array_equal(log.recut([0, 5])[1].propensities, P[5:].ravel())
    episode = next(iter(log))
    pieces = [piece.propensities for piece in episode.pieces(2 * CANDIDATES)]
    assert [len(piece) for piece in pieces] == [6, 6]
    np.testing.assert_array_equal(np.concatenate(pieces), episode.propensities)
    warm = BehaviorLog.from_episodes(
        [(drawn[0][:4], drawn[2][:4])] * 2, warmup=1, propensities=np.tile(P[:4].ravel(), 2)
    )
    np.testing.assert_array_equal(warm[:1].propensities, warm.propensities)
    with pytest.raises(ValueError, match="read-only"):
        log.propensities[0] = 1


def test_one_per_step_is_that_of_the_chosen_candidate(drawn):
    log = expected(drawn, every=False)
    np.testing.assert_array_equal(log.propensities, of_chosen(*drawn[1:]))
    arms = BehaviorLog.from_arms([(np.ones((3, 1)), [0, 1, 1])], n_arms=2, propensities=[0.5, 0.25, 0.125])
    np.testing.assert_array_equal(arms.propensities, [0.5, np.nan, np.nan, 0.25, np.nan, 0.125])
    # One that was not chosen may have none at all.
    assert BehaviorLog.from_episodes([([[[1.0], [2.0]]], [0])], propensities=[1, 0]).propensities.tolist() == [1, 0]


def test_they_are_no_part_of_what_is_fitted(drawn):
    log = expected(drawn, every=True)
    without = expected(drawn, every=True)[:]
    without.propensities = None
    assert log_fingerprint(log) == log_fingerprint(without)
    one, other = (ibcb.IBCB(expert="sbts", l2=1.0).fit(each) for each in (log, without))
    np.testing.assert_array_equal(one.policy_coefs_, other.policy_coefs_)
    assert one.log_fingerprint_ == other.log_fingerprint_


@pytest.mark.parametrize(
    "values, words",
    [
        ([0.5, 0.5, 1.5, -0.5], r"episode 1, step 0, candidate 0: the propensity is 1.5; .* between 0 and 1"),
        ([0.5, 0.5, 0.5, -0.5], r"episode 1, step 0, candidate 1: the propensity is -0.5"),
        ([0.5, 0.5, np.inf, 0.5], r"propensity is inf"),
        ([0.0, 1.0, 1.0, 0.0], r"episode 0, step 0, candidate 0: .* is 0; the candidate was chosen, so it is above 0"),
        ([0.5, 0.5, 0.5], r"shape \(3,\); expected one entry per row, \(4,\), .* per step, \(2,\)"),
        (["a", "b"], r"must be a number"),
    ],
)
def test_what_cannot_be_a_propensity_is_named(values, words):
    episodes = [([[[1.0], [2.0]]], [0]), ([[[1.0], [2.0]]], [0])]
    with pytest.raises(LogFormatError, match=words):
        BehaviorLog.from_episodes(episodes, propensities=values)


# -- tables with a row per candidate ---------------------------------------------------------------------------------


def test_a_column_of_every_candidate_or_of_the_chosen_one_in_whatever_way(drawn):
    _, P, chosen = drawn
    one = P[np.arange(STEPS), chosen]
    same_steps(ibcb.read_log(long(drawn), **CUT), expected(drawn, every=True))
    ways = {
        "others empty": of_chosen(P, chosen),
        "others 0": np.nan_to_num(of_chosen(P, chosen)),
        "of the step": np.repeat(one, CANDIDATES),
    }
    for way, values in ways.items():
        same_steps(ibcb.read_log(long(drawn, values=values), **CUT), expected(drawn, every=False))
        disk = ibcb.open_log(long(drawn, values=values), **CUT)
        parts = np.concatenate([part.propensities for _, part in disk.parts()])
        np.testing.assert_array_equal(parts, of_chosen(P, chosen), err_msg=way)


def test_even_and_certain_draws_and_one_odd_sum_are_of_every_candidate(drawn):
    _, P, chosen = drawn
    even, certain = np.full(STEPS * CANDIDATES, 1 / CANDIDATES), np.nan_to_num(of_chosen(np.ones((STEPS, 1)), chosen))
    P[5] = 0.5
    for values in (even, certain, P.ravel()):
        np.testing.assert_array_equal(ibcb.read_log(long(drawn, values=values), **CUT).propensities, values)


def test_how_a_column_is_read_does_not_depend_on_where_it_is_cut():
    steps = [([0.5, 0.5], [1, 0]), ([0.4, 0.4, 0.4], [0, 1, 0]), ([0.1, 0.9], [1, 0])]
    for last, every in ((3, True), (2, False), (1, True)):
        batches = [(np.array(p), np.array([0]), np.array(marks, dtype=bool)) for p, marks in steps[:last]]
        whole = (
            np.concatenate([batch[0] for batch in batches]),
            np.cumsum([0, *(len(batch[0]) for batch in batches[:-1])]),
            np.concatenate([batch[2] for batch in batches]),
        )
        assert of_every_candidate(batches) == of_every_candidate([whole]) == every


@pytest.mark.parametrize("name", ["propensity", "Propensity-Score", "pscore", "probability", "prob"])
def test_names_that_tell(drawn, name):
    log = ibcb.read_log(long(drawn, name), **CUT)
    same_steps(log, expected(drawn, every=True))
    (note,) = log.notes
    assert (note.code, note.figures) == ("propensities-read", {"column": name})
    assert ibcb.read_log(long(drawn, name), drop=[name], **CUT).propensities is None
    kept = ibcb.read_log(long(drawn, name), keep=[name], **CUT)
    assert (kept.propensities, kept.feature_names) == (None, ("a", "b", name))


def test_a_column_is_named_for_the_role(drawn):
    table = long(drawn, "p")
    assert ibcb.read_log(table, **CUT).feature_names == ("a", "b", "p")
    log = ibcb.read_log(table, columns={"propensity": "p"}, **CUT)
    same_steps(log, expected(drawn, every=True))
    assert log.notes == ()
    text = table.set_column(4, "p", pa.array(["high"] * STEPS * CANDIDATES))
    with pytest.raises(LogFormatError, match=r"column 'p' holds string; .* number between 0 and 1.*--drop p"):
        ibcb.read_log(text, columns={"propensity": "p"}, **CUT)


def test_of_two_columns_one_is_read_and_the_other_left_out(drawn):
    table = long(drawn).append_column("prob", pa.array(np.full(STEPS * CANDIDATES, 0.1)))
    log = ibcb.read_log(table, **CUT)
    same_steps(log, expected(drawn, every=True))
    (left_out,) = (note for note in log.notes if note.code == "reward-like-columns")
    assert left_out.figures == {"columns": ("prob",)}


def test_a_model_reads_new_logs_with_or_without_the_column(drawn):
    table = long(drawn, "p")
    model = ibcb.IBCB(expert="sbts", l2=1.0).fit(ibcb.read_log(table, columns={"propensity": "p"}, **CUT))
    again = ibcb.read_log(table, preparation=model.preparation_, **CUT)
    np.testing.assert_array_equal(again.propensities, drawn[1].ravel())
    assert ibcb.read_log(table.drop(["p"]), preparation=model.preparation_, **CUT).propensities is None
    assert ibcb.read_log(table, preparation=model.preparation_, choices=False, **CUT).propensities is None


def test_rows_stay_together_where_steps_are_sorted_left_out_and_features_made(drawn, rng):
    P = drawn[1]
    table = long(drawn).append_column("time", pa.array(np.repeat(rng.permutation(STEPS), CANDIDATES)))
    order = np.argsort(table["time"].to_numpy()[::CANDIDATES])
    log = ibcb.read_log(table, sort=True, standardize=True, cross=[("a", "b")], **CUT)
    np.testing.assert_array_equal(log.propensities, P[order].ravel())
    marks = table["chosen"].to_numpy().copy()
    marks[: 2 * CANDIDATES] = False
    some = table.drop(["time"]).set_column(1, "chosen", pa.array(marks))
    log = ibcb.read_log(some, skip_unlabelled=True, **CUT)
    np.testing.assert_array_equal(log.propensities, P[2:].ravel())


@pytest.mark.parametrize(
    "value, words",
    [
        (1.5, r"row 4 \(from 0\), column 'prob': the propensity is 1.5; .* between 0 and 1"),
        (-0.25, r"row 4 .* is -0.25"),
        (0.0, r"row 4 .* is 0; the candidate was chosen, so it is above 0"),
    ],
)
def test_a_value_that_is_none_is_named_with_its_place_and_what_to_do(drawn, value, words):
    drawn[2][1] = 1
    drawn[1][1, 1] = value
    table = long(drawn, "prob")
    with pytest.raises(LogFormatError, match=words) as error:
        ibcb.read_log(table, **CUT)
    assert "drop=['prob'] (--drop prob)" in str(error.value)
    assert "--keep prob" in str(error.value)
    assert ibcb.read_log(table, drop=["prob"], **CUT).propensities is None


# -- other layouts ---------------------------------------------------------------------------------------------------


def test_wide_tables_have_one_per_alternative_or_one_per_step(drawn):
    X, P, chosen = drawn
    names = ("car", "bus", "bike")
    columns = {f"{f}_{name}": X[:, k, i] for k, name in enumerate(names) for i, f in enumerate("ab")}
    columns["choice"] = [names[pick] for pick in chosen]
    each = {f"prob_{name}": P[:, k] for k, name in enumerate(names)}
    how = CUT | {"alternatives": names}
    log = ibcb.read_log(pa.table(columns | each), **how)
    same_steps(log, expected(drawn, every=True))
    assert [note.code for note in log.notes] == ["propensities-read"]
    named = {f"p_{name}": values for name, values in zip(names, each.values(), strict=True)}
    log = ibcb.read_log(pa.table(columns | named), columns={"propensity": "p"}, **how)
    same_steps(log, expected(drawn, every=True))
    assert ibcb.read_log(pa.table(columns | each), keep=["prob"], **how).feature_names == ("a", "b", "prob")
    assert ibcb.read_log(pa.table(columns | each), drop=["prob"], **how).propensities is None
    one = {"pscore": P[np.arange(STEPS), chosen]}
    same_steps(ibcb.read_log(pa.table(columns | one), **how), expected(drawn, every=False))
    even = pa.table(columns | {"pscore": np.full(STEPS, 1 / CANDIDATES)})
    np.testing.assert_array_equal(np.isnan(ibcb.read_log(even, **how).propensities), np.isnan(of_chosen(P, chosen)))


def test_lists_of_candidates_have_them_inside_or_beside(drawn, tmp_path):
    X, P, chosen = drawn
    one = P[np.arange(STEPS), chosen]
    forms = {
        "inside": (True, lambda t: {}, lambda t, k: {"probability": P[t, k]}),
        "a list": (True, lambda t: {"propensities": P[t].tolist()}, lambda t, k: {}),
        "one": (False, lambda t: {"pscore": one[t]}, lambda t, k: {}),
    }
    for form, (every, of_step, of_item) in forms.items():
        lines = [
            {
                "request": t,
                **of_step(t),
                "chosen": int(chosen[t]),
                "items": [
                    {"a": X[t, k, 0], "b": X[t, k, 1], **of_item(t, k)} for k in range(CANDIDATES)
                ],
            }
            for t in range(STEPS)
        ]  # fmt: skip
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        log = ibcb.read_log(path, columns={"step": "request"}, **CUT)
        same_steps(log, expected(drawn, every=every))
        assert [note.code for note in log.notes] == ["propensities-read"], form
    lines[3] |= {"pscore": 2.0}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(LogFormatError, match=r"column 'pscore': the propensity is 2; .*--drop pscore"):
        ibcb.read_log(path, columns={"step": "request"}, **CUT)


def test_a_list_of_another_length_is_named(drawn):
    X, P, chosen = drawn
    items = [[{"a": x[0], "b": x[1]} for x in step] for step in X]
    for entry, at in ((P[0][:2].tolist(), 0), (None, None)):
        logged = [entry, *P[1:].tolist()]
        table = pa.table({"items": items, "chosen": chosen, "propensities": logged})
        if at is None:
            known = ibcb.read_log(table, **CUT).propensities
            np.testing.assert_array_equal(known, [*[np.nan] * CANDIDATES, *P[1:].ravel()])
            continue
        with pytest.raises(LogFormatError, match=r"row 0 .* the list has 2 numbers but the step has 3 candidates"):
            ibcb.read_log(table, **CUT)


def test_rows_of_steps_with_contexts_as_lists(drawn):
    X, P, chosen = drawn
    table = pa.table({"contexts": X.tolist(), "chosen": chosen})
    for values, every in ((P.tolist(), True), (P[np.arange(STEPS), chosen], False)):
        log = ibcb.read_log(table.append_column("propensities", pa.array(values)), **CUT)
        np.testing.assert_array_equal(log.propensities, expected(drawn, every=every).propensities)
    P[2, chosen[2]] = 0
    for values in (P.tolist(), P[np.arange(STEPS), chosen]):
        with pytest.raises(LogFormatError, match=r"row 2 .*is 0; the candidate was chosen.*--drop propensities"):
            ibcb.read_log(table.append_column("propensities", pa.array(values)), **CUT)
    dropped = ibcb.read_log(table.append_column("propensities", pa.array(values)), drop=["propensities"], **CUT)
    assert dropped.propensities is None


def test_tables_of_arms_have_that_of_the_arm(rng):
    arms, p = rng.integers(3, size=STEPS), rng.uniform(0.1, 1, size=STEPS)
    table = pa.table({"arm": arms, "age": rng.normal(size=STEPS), "pscore": p})
    log = ibcb.read_log(table, arm="arm", **CUT)
    assert not any("pscore" in name for name in log.feature_names)
    np.testing.assert_array_equal(log.propensities[log.chosen_rows], p)
    assert np.count_nonzero(~np.isnan(log.propensities)) == STEPS
    assert "propensities-read" in [note.code for note in log.notes]
    wrong = table.set_column(2, "pscore", pa.array([*p[:-1], 7.0]))
    with pytest.raises(LogFormatError, match=r"row 11 .* 'pscore': the propensity is 7"):
        ibcb.read_log(wrong, arm="arm", **CUT)


# -- other formats ---------------------------------------------------------------------------------------------------


def test_csv_reads_back_what_was_written(drawn, tmp_path):
    for every in (True, False):
        log = expected(drawn, every=every)
        ibcb.write_log(log, tmp_path / "log.csv")
        same_steps(ibcb.read_log(tmp_path / "log.csv"), log)


def test_whole_numbers_in_the_first_rows_of_csv_may_become_fractions(tmp_path, monkeypatch):
    monkeypatch.setattr("ibcb.io.csvfiles._CSV_BLOCK", 1 << 10)
    logged = [(1, 0)] * 400 + [(0.5, 0.5)] * 100
    rows = [f"{t},{int(k == 0)},{(t + k) % 7},{p}" for t, pair in enumerate(logged) for k, p in enumerate(pair)]
    (tmp_path / "log.csv").write_text("step,chosen,x,prob\n" + "\n".join(rows) + "\n")
    log = ibcb.read_log(tmp_path / "log.csv", episode_size=100)
    np.testing.assert_array_equal(log.propensities, np.ravel(logged))


def test_archives_take_one_per_row_or_one_per_step(drawn, tmp_path):
    X, P, chosen = drawn
    path = tmp_path / "log.npz"
    for values, every in ((P.ravel(), True), (P[np.arange(STEPS), chosen], False)):
        np.savez(path, contexts=X, chosen=chosen, feature_names=["a", "b"], propensities=values)
        same_steps(ibcb.read_log(path, **CUT), expected(drawn, every=every))
        assert ibcb.read_log(path, drop=["propensities"], **CUT).propensities is None
    np.savez(path, contexts=X, chosen=chosen, propensities=P.ravel() * 3)
    with pytest.raises(LogFormatError, match=r"log.npz: step \d+, candidate \d: .* between 0 and 1.*drop="):
        ibcb.read_log(path, **CUT)
    np.savez(path, contexts=X, chosen=chosen, propensities=P.ravel()[1:])
    with pytest.raises(LogFormatError, match=r"propensities has shape \(35,\); expected .*one entry per row, \(36,\)"):
        ibcb.read_log(path, **CUT)


@pytest.mark.parametrize("actions", ["with features", "arms"])
def test_feedback_has_the_scores_of_its_actions(drawn, actions, rng):
    X, P, chosen = drawn
    pscore = P[np.arange(STEPS), chosen]
    feedback = {"n_rounds": STEPS, "n_actions": CANDIDATES, "action": chosen, "context": X[:, 0], "pscore": pscore}
    feedback["action_context"] = None if actions == "arms" else rng.normal(size=(CANDIDATES, 2))
    log = ibcb.read_log(feedback, **CUT)
    np.testing.assert_array_equal(log.propensities, of_chosen(P, chosen))
    assert not any("pscore" in name for name in log.feature_names)
    assert ibcb.read_log(feedback, drop=["pscore"], **CUT).propensities is None
    assert ibcb.read_log(feedback | {"pscore": None}, **CUT).propensities is None
    with pytest.raises(LogFormatError, match=r"propensity is 2; a probability must be between 0 and 1"):
        ibcb.read_log(feedback | {"pscore": np.where(np.arange(STEPS) == 3, 2.0, pscore)}, **CUT)
    with pytest.raises(LogFormatError, match=r"pscore has shape \(12, 3\); expected one entry per round"):
        ibcb.read_log(feedback | {"pscore": P}, **CUT)


def impressions(folder, scores):
    folder.mkdir(exist_ok=True)
    (folder / "item_context.csv").write_text("item_id,item_feature_0\n0,0.5\n1,-0.5\n2,1.5\n")
    rows = [f"2020-01-01 00:00:0{t},{t % 3},{score}" for t, score in enumerate(scores)]
    (folder / "all.csv").write_text("timestamp,item_id,propensity_score\n" + "\n".join(rows) + "\n")
    return folder


def test_open_bandit_impressions_have_that_of_the_item_shown(tmp_path):
    how = {"episode_size": 2, "drop": ["user-item_affinity"]}
    log = ibcb.read_log(impressions(tmp_path / "obd", [0.25, "", 0.5, 1]), **how)
    np.testing.assert_array_equal(log.propensities[log.chosen_rows], [0.25, np.nan, 0.5, 1])
    assert np.count_nonzero(~np.isnan(log.propensities)) == 3
    for scores, words in (
        ([0.25, 0], r"all.csv: row 1 \(from 0\): the propensity is 0; .*--drop propensity_score"),
        ([0.25, "many"], r"all.csv: .*column 'propensity_score' holds string; .*--drop propensity_score"),
    ):
        folder = impressions(tmp_path / "obd", scores)
        with pytest.raises(LogFormatError, match=words):
            ibcb.read_log(folder, **how)
        without = how | {"drop": ["user-item_affinity", "propensity_score"]}
        assert ibcb.read_log(folder, **without).propensities is None


def test_vowpal_wabbit_labels_have_that_of_the_chosen_candidate(tmp_path):
    path = tmp_path / "log.vw"
    text = "1:0:{} |a x:1\n|a x:2\n\n|a x:3\n2:1:{} |a x:4\n"
    path.write_text(text.format(0.25, 1))
    np.testing.assert_array_equal(ibcb.read_log(path, episode_size=1).propensities, [0.25, np.nan, np.nan, 1])
    assert ibcb.read_log(path, drop=["probability"], episode_size=1).propensities is None
    assert ibcb.open_log(path, choices=False).read().propensities is None
    for nobody_knew in (0, 1):
        path.write_text(text.format(nobody_knew, nobody_knew))
        assert ibcb.read_log(path, episode_size=1).propensities is None
    for wrong, words in ((1.5, "1.5; a probability must be"), (0, "0; the candidate was chosen")):
        path.write_text(text.format(0.25, wrong))
        with pytest.raises(LogFormatError, match=rf"log.vw: line 4: candidate 1: .* is {words}.*--drop probability"):
            ibcb.read_log(path, episode_size=1)
        assert ibcb.read_log(path, drop=["probability"], episode_size=1).propensities is None


def test_logged_propensities_are_written_where_there_was_a_placeholder(drawn, tmp_path):
    log = expected(drawn, every=True)
    _, P, chosen = drawn
    ibcb.write_log(log, tmp_path / "log.vw")
    labels = [line.split(" ")[0] for line in (tmp_path / "log.vw").read_text().splitlines() if not line.startswith("|")]
    told = [label.split(":") for label in labels if label]
    assert [(int(action) - 1, cost, float(p)) for action, cost, p in told] == [
        (pick, "0", P[t, pick]) for t, pick in enumerate(chosen)
    ]
    ibcb.write_log(log, tmp_path / "log.dsjson")
    for t, line in enumerate(map(json.loads, (tmp_path / "log.dsjson").read_text().splitlines())):
        assert line["_label_probability"] == line["p"][0] == P[t, chosen[t]]
        assert dict(zip(line["a"], line["p"], strict=True)) == {k + 1: P[t, k] for k in range(CANDIDATES)}
    ibcb.write_log(expected(drawn, every=False), tmp_path / "log.dsjson")
    assert all("p" not in json.loads(line) for line in (tmp_path / "log.dsjson").read_text().splitlines())


def decision(**keys):
    line = {"_labelIndex": 1, "_label_Action": 2, "a": [2, 3, 1], **keys}
    line["c"] = {"_multi": [{"x": 1}, {"x": 2}, {"x": 4}]}
    return line


@pytest.mark.parametrize(
    "keys, options, found",
    [
        ({"_label_probability": 0.5}, {}, [np.nan, 0.5, np.nan]),
        ({"p": [0.5, 0.3, 0.2]}, {}, [0.2, 0.5, 0.3]),
        ({"_p": [0.5, 0.3, 0.2], "_label_probability": 0.5}, {}, [0.2, 0.5, 0.3]),
        ({"p": [0.2, 0.5, 0.3], "a": [0, 1, 2]}, {}, [0.2, 0.5, 0.3]),
        ({"p": [0.5, 0.3], "a": [2, 3]}, {}, [np.nan, 0.5, 0.3]),
        ({"p": [0.5], "_label_probability": 0.25}, {}, [np.nan, 0.25, np.nan]),
        ({"p": [0.2, 0.5, 0.3], "_label_probability": 0.25}, {"drop": ["p"]}, [np.nan, 0.25, np.nan]),
        ({"x": {"q": 0.125}, "p": [0.5, 0.3, 0.2]}, {"columns": {"propensity": "x.q"}}, [np.nan, 0.125, np.nan]),
        ({"p": [1, 0, 0], "_label_probability": 1}, {}, None),
        ({"p": [0.5, 0.3, 0.2], "_label_probability": 0.5}, {"drop": ["p", "_label_probability"]}, None),
        ({}, {}, None),
    ],
)
def test_dsjson_has_them_of_the_actions_listed_or_of_the_label(tmp_path, keys, options, found):
    path = tmp_path / "log.dsjson"
    path.write_text(json.dumps(decision(**keys)) + "\n")
    log = ibcb.read_log(path, episode_size=1, **options)
    if found is None:
        assert log.propensities is None
    else:
        np.testing.assert_array_equal(log.propensities, found)


def test_a_log_on_disk_has_them_episode_by_episode(drawn, tmp_path):
    log = expected(drawn, every=True)
    ibcb.write_log(log, tmp_path / "log.parquet")
    disk = ibcb.open_log(tmp_path / "log.parquet")
    assert disk.elsewhere is not None
    assert_same_log(disk.read(), log)
    for stored, episode in zip(disk, log, strict=True):
        parts = [part.propensities for _, part in stored.parts()]
        np.testing.assert_array_equal(np.concatenate(parts), episode.propensities)
        (some,) = disk.steps(stored.number, 1, 3)
        np.testing.assert_array_equal(some.propensities, episode.propensities[CANDIDATES : 3 * CANDIDATES])
    for one, other in zip(disk, log, strict=True):
        np.testing.assert_array_equal(one.read().propensities, other.propensities)
