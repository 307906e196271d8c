"""validate: every finding fires on a log made to have it, says the right numbers, and is silent on clean logs."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import paper_run, ragged_log, slow, small_run

import ibcb
import ibcb.log.behavior_log as log_module
from ibcb import BehaviorLog, validate
from ibcb.log.validation.constancy import Sample, Sampler, due, find_change
from ibcb.log.validation.first_episode import missing_past


def changed(log, *, contexts=None, chosen=None, edges=None, warmup=None, **extras):
    """The log with some of its parts replaced."""
    return BehaviorLog(
        log.contexts if contexts is None else contexts,
        log.step_offsets,
        log.chosen if chosen is None else chosen,
        log.episode_offsets if edges is None else edges,
        warmup=log.warmup if warmup is None else warmup,
        **extras,
    )


def with_columns(log, *columns, **extras):
    return changed(log, contexts=np.column_stack([log.contexts, *columns]), **extras)


def shifted(log, steps):
    """Every edge between two of the policy's episodes moved to a later step."""
    edges = log.episode_offsets.copy()
    edges[log.warmup + 1 : -1] += steps
    return changed(log, edges=edges)


def merged(log, count):
    """Every ``count`` of the policy's episodes taken for one."""
    edges = log.episode_offsets
    return changed(log, edges=np.unique([*edges[: log.warmup], *edges[log.warmup :: count], edges[-1]]))


def found(log):
    return {finding.code: finding for finding in validate(log).findings}


def only(log, code, severity):
    """The one finding of a log."""
    (finding,) = validate(log).findings
    assert (finding.code, finding.severity) == (code, severity)
    return finding


@pytest.fixture(scope="module")
def clean():
    return small_run(n_episodes=5, batch_size=250, n_features=3, n_candidates=6, warmup=300).log


@pytest.fixture(scope="module")
def draw(clean):
    """Normal numbers, one per row of the clean log."""
    return np.random.default_rng(7).normal(size=clean.n_rows)


# -- silence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_nothing_is_found_in_logs_of_the_paper(expert):
    result = validate(paper_run(expert).log)
    assert result.findings == ()
    assert result.ok
    assert result.verdict == "Ready to fit: nothing wrong was found."


@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"warmup": 0}, {"draws": "episode"}])
def test_nothing_is_found_in_other_clean_logs(options, seed):
    log = ibcb.simulate("synthetic", expert="sbts", n_episodes=6, batch_size=400, seed=seed, **options).log
    assert validate(log).findings == ()


def test_findings_do_not_depend_on_order_or_units(clean, draw):
    log = with_columns(clean, clean.contexts[:, 0] - clean.contexts[:, 1], np.round(draw))
    expected = Counter(finding.code for finding in validate(log).findings)
    assert expected == {"collinear": 1}
    rng, rows = np.random.default_rng(3), np.arange(log.n_rows).reshape(-1, 6)
    order = rng.permuted(rows, axis=1)
    chosen = np.argmax(order == log.chosen_rows[:, None], axis=1)
    shuffled = changed(log, contexts=log.contexts[order.ravel()] * [3.0, 3.0, 0.01, 1.0, 50.0], chosen=chosen)
    assert Counter(finding.code for finding in validate(shuffled).findings) == expected


# -- what a log holds ----------------------------------------------------------------------------------------------


def test_the_summary_counts_what_is_there(rng):
    log = ragged_log(rng, episodes=3, steps=41, warmup=1)
    times = np.datetime64("2024-03-01T12:00:00") + np.arange(log.n_steps).astype("m8[s]")
    summary = validate(changed(log, timestamps=times)).summary
    counts = np.diff(log.step_offsets)
    assert (summary.episodes, summary.warmup_episodes) == (3, 1)
    assert (summary.steps, summary.rows, summary.features) == (log.n_steps, log.n_rows, log.n_features)
    assert summary.candidates == (counts.min(), np.median(counts), counts.max())
    assert summary.episode_steps == (41, 41, 41)
    assert summary.time_span == ("2024-03-01T12:00:00", str(times[-1]))
    held = (log.contexts, log.chosen, log.step_offsets[1:], times)
    assert summary.nbytes == sum(array.nbytes for array in held)
    assert summary.dtype == "float64"


def test_parts_are_the_log_in_whole_steps(rng, monkeypatch):
    log = ragged_log(rng, episodes=3, steps=20, warmup=2)
    monkeypatch.setattr(log_module, "_PART_ROWS", 17)
    numbers, parts = zip(*log.parts(), strict=True)
    assert sorted(set(numbers)) == [-2, -1, 0, 1, 2]
    assert list(numbers) == sorted(numbers)
    assert all(part.n_rows <= 17 and len(part) == 1 and part.warmup == 0 for part in parts)
    whole = BehaviorLog.joined(parts, np.concatenate([part.contexts for part in parts]))
    for name in ("contexts", "chosen", "step_offsets", "episode_offsets", "warmup"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(log, name))
    monkeypatch.setattr(log_module, "_PART_ROWS", 1)
    assert [part.n_steps for _, part in log.parts()] == [1] * log.n_steps


def in_pieces(log, rows):
    """A log that comes in parts of a few steps, as one on disk does."""
    pieces = [(number, piece) for number, episode in log.parts() for piece in episode.pieces(rows)]
    return SimpleNamespace(parts=lambda: iter(pieces))


def test_where_parts_are_cut_does_not_matter():
    log = paper_run().log[:4]
    rng = np.random.default_rng(0)
    contexts = log.contexts.copy()
    contexts[10:20] = contexts[:10]
    contexts[333] = contexts[334]
    times = np.arange(log.n_steps, dtype=float)
    # Few kinds of steps: some repeat by chance.
    contexts[5000:] = np.eye(10)[np.tile([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], len(contexts) // 10 - 500)]
    times[[5, 99, 4000]] = [1e4, np.nan, 0.0]
    messy = shifted(changed(log, contexts=contexts, timestamps=times, chosen=log.chosen), 400)
    messy = with_columns(messy, np.round(rng.normal(size=log.n_rows)) * 1e7, timestamps=times)
    expected = validate(messy)
    assert len(expected.findings) >= 5
    assert validate(in_pieces(messy, 410)).to_json() == expected.to_json()


# -- features ------------------------------------------------------------------------------------------------------


def user(log, columns=2):
    """Features of the step: the same for all of its candidates."""
    return np.repeat(np.random.default_rng(1).normal(size=(log.n_steps, columns)) + 0.1, 6, axis=0)


def rare(log):
    column = np.zeros(log.n_rows)
    column[[60, 61, 700]] = 1.0
    return column


def leak(log, of="score", sign=1):
    column = np.zeros(log.n_rows) if of == "flag" else np.tanh(np.random.default_rng(7).normal(size=log.n_rows)) / 3
    column[log.chosen_rows] += 1
    return sign * column


def far(log, offset, dtype=np.float64):
    return changed(log, contexts=(log.contexts + np.array([0.0, 0.0, offset])).astype(dtype))


def scaled(log, factor):
    return changed(log, contexts=log.contexts * [1.0, factor, 1.0])


#: what is made of the clean log; the finding, its severity, its features, and words in it
MADE = {
    "features of a user": (
        lambda log: with_columns(log, user(log), feature_names=["a", "b", "c", "age", "tenure"]),
        ("constant-within-steps", "warning", ("age", "tenure"), "2 of 5 features"),
    ),
    "a constant": (
        lambda log: with_columns(log, np.full(log.n_rows, 0.3)),
        ("constant-feature", "note", ("3",), "intercept"),
    ),
    "zeros": (lambda log: with_columns(log, np.zeros(log.n_rows)), ("constant-feature", "note", ("3",), "Drop it.")),
    "hardly varies": (lambda log: with_columns(log, rare(log)), ("rarely-varying", "note", ("3",), "the rarest in 2")),
    "rounding": (lambda log: far(log, 3e5, np.float32), ("precision", "warning", ("2",), "float32")),
    "rounding of squares": (lambda log: far(log, 1e8), ("precision", "warning", ("2",), "float64")),
    "flag": (lambda log: with_columns(log, leak(log, "flag")), ("leak", "warning", ("3",), "largest feature 3")),
    "score": (lambda log: with_columns(log, leak(log)), ("leak", "warning", ("3",), "largest feature 3")),
    "lowest": (lambda log: with_columns(log, leak(log, sign=-1)), ("leak", "warning", ("3",), "smallest feature 3")),
    "overflow": (lambda log: scaled(log, 1e200), ("overflow", "error", ("1",), "larger units")),
}


@pytest.mark.parametrize("case", MADE)
def test_features_that_are_odd_are_named(clean, case):
    make, (code, severity, features, words) = MADE[case]
    codes = found(make(clean))
    if case not in ("flag", "score", "lowest", "overflow"):
        assert codes.keys() == {code}
    finding = codes[code]
    assert (finding.severity, finding.features) == (severity, features)
    assert words in f"{finding.message} {finding.remedy}"


def test_features_that_are_not_quite_odd_are_not(clean, draw):
    hint = draw.copy()
    hint[clean.chosen_rows] += 1.5
    for log in (far(clean, 3e5), scaled(clean, 1e3)):
        assert validate(log).findings == ()
    assert "leak" not in found(with_columns(clean, hint))


@pytest.mark.parametrize("code", ["nothing-varies", "no-alternatives"])
def test_a_log_in_which_nothing_can_be_told_apart_cannot_be_fitted(clean, code):
    log = changed(clean, contexts=user(clean))
    if code == "no-alternatives":
        steps = clean.n_steps
        log = BehaviorLog(clean.contexts[::6], np.arange(steps + 1), np.zeros(steps), clean.episode_offsets, warmup=1)
    result = validate(log)
    assert not result.ok
    assert [finding.code for finding in result.findings if finding.severity == "error"] == [code]
    assert not ibcb.IBCB().fit(log).coef_.any()


def test_linear_relations_are_found_and_written_out(clean, draw):
    X, (a, b) = clean.contexts, np.random.default_rng(2).normal(size=(2, clean.n_rows))
    # What all candidates share cancels: the relation holds within steps only.
    log = with_columns(clean, a, b, a + 2 * b + user(clean)[:, 0], 5 - 3 * X[:, 0], feature_names=list("xyzabcd"))
    relations = [finding for finding in validate(log).findings if finding.code == "collinear"]
    assert [finding.features for finding in relations] == [("x", "d"), ("a", "b", "c")]
    assert "3 x + d" in relations[0].message
    assert "a + 2 b - c" in relations[1].message
    assert found(log).keys() == {"collinear"}
    for noise, named in ((1e-4, True), (1e-2, False)):
        assert ("collinear" in found(with_columns(clean, X[:, 1] + noise * draw))) == named


def test_one_hot_groups_are_told_from_other_relations_and_many_do_not_flood_the_report(clean):
    rng = np.random.default_rng(4)
    groups = [np.eye(k)[rng.integers(k, size=clean.n_rows)] for k in (4, 2)]
    findings = validate(with_columns(clean, *groups)).findings
    assert [(finding.code, finding.severity) for finding in findings] == [("sums-to-constant", "note")] * 2
    assert [finding.features for finding in findings] == [("3", "4", "5", "6"), ("7", "8")]
    base = rng.normal(size=(clean.n_rows, 12))
    findings = validate(with_columns(clean, base, 2 * base)).findings
    assert [finding.code for finding in findings] == ["collinear"] * 9
    assert {name for finding in findings for name in finding.features} == {str(column) for column in range(3, 27)}


def test_units_that_are_far_apart_are_reported_with_their_spread(clean):
    log = scaled(clean, 1e5)
    finding = only(log, "scales", "note")
    sd = log.contexts.reshape(-1, 6, 3).std(axis=1)
    assert f"{np.sqrt(np.mean(sd[:, 1] ** 2)):.2g}" in finding.message
    assert "1" in finding.features


@pytest.mark.parametrize("fill", [0.0, 0.37])
@pytest.mark.parametrize("outcome", ["gain", "click"])
def test_what_only_chosen_candidates_have_is_an_outcome(clean, draw, fill, outcome):
    """A reward under any name, with missing values imputed: of both signs, or 0 for most."""
    values = np.full(clean.n_rows, fill)
    values[clean.chosen_rows] = draw[clean.chosen_rows] if outcome == "gain" else draw[clean.chosen_rows] > 0.7
    finding = found(with_columns(clean, values))["outcome"]
    assert (finding.severity, finding.features) == ("warning", ("3",))
    assert f"(feature 3: {fill:g})" in finding.message
    values[(clean.chosen_rows[0] + 1) % clean.n_rows] += 1.0
    assert "outcome" not in found(with_columns(clean, values))


# -- steps ---------------------------------------------------------------------------------------------------------


def test_equal_candidates_are_counted_as_a_slow_count_does(rng):
    log = ragged_log(rng, episodes=4, steps=60, warmup=0, d=2)
    coarse = changed(log, contexts=np.sign(log.contexts))
    candidates = [coarse.candidates(step) for step in range(log.n_steps)]
    kinds = [len(np.unique(rows, axis=0)) for rows in candidates]
    twins = [len(rows) > kind for rows, kind in zip(candidates, kinds, strict=True)]
    equal = [len(rows) > 1 and kind == 1 for rows, kind in zip(candidates, kinds, strict=True)]
    of_chosen = [
        (rows == rows[pick]).all(axis=1).sum() > 1 for rows, pick in zip(candidates, coarse.chosen, strict=True)
    ]
    assert sum(twins) > sum(equal) > 0
    codes = found(coarse)
    assert f"{sum(twins)} steps" in codes["twin-candidates"].message
    assert f"in {sum(of_chosen)} (" in codes["twin-candidates"].message
    assert codes["twin-candidates"].severity == "warning"
    first = int(np.argmax(twins))
    assert codes["twin-candidates"].place == f"episode {first // 60}, step {first % 60}"
    assert f"{sum(equal)} steps" in codes["equal-candidates"].message


def test_zero_and_minus_zero_are_equal(clean):
    contexts = clean.contexts.copy()
    contexts[0], contexts[1] = [0.0, 1.0, 2.0], [-0.0, 1.0, 2.0]
    finding = only(changed(clean, contexts=contexts), "twin-candidates", "note")
    assert finding.place == "episode -1 (warm-up), step 0"


def test_steps_without_a_choice_are_counted(clean):
    sets = [rows if step % 4 else rows[:1] for step, rows in enumerate(clean.contexts.reshape(-1, 6, 3))]
    chosen = [pick if step % 4 else 0 for step, pick in enumerate(clean.chosen)]
    cut = zip(clean.episode_offsets[:-1], clean.episode_offsets[1:], strict=True)
    log = BehaviorLog.from_episodes([(sets[a:b], chosen[a:b]) for a, b in cut], warmup=1)
    finding = only(log, "one-candidate", "note")
    assert f"{-(-clean.n_steps // 4)} steps (25.0%)" in finding.message


@pytest.mark.parametrize("every, severity", [(50, "note"), (5, "warning")])
def test_steps_logged_twice_are_counted(clean, every, severity):
    contexts, chosen = clean.contexts.reshape(-1, 6, 3).copy(), clean.chosen.copy()
    copies = np.arange(1, clean.n_steps, every)
    contexts[copies], chosen[copies] = contexts[copies - 1], chosen[copies - 1]
    finding = found(changed(clean, contexts=contexts.reshape(-1, 3), chosen=chosen))["repeated-steps"]
    assert finding.severity == severity
    assert f"{len(copies)} steps" in finding.message
    assert finding.place == "episode -1 (warm-up), step 1"


def test_few_kinds_of_steps_are_no_steps_logged_twice():
    # The same four arms at every step: steps repeat because there is nothing else to log.
    rng = np.random.default_rng(8)
    contexts = np.broadcast_to(np.eye(4), (200, 4, 4))
    log = BehaviorLog.from_episodes(
        [(contexts, rng.choice(4, p=p, size=200)) for p in ([0.25] * 4, [0.6, 0.2, 0.1, 0.1])]
    )
    assert "repeated-steps" not in found(log)


def test_choices_that_are_always_at_one_position_are_noted(clean):
    rows = clean.contexts.reshape(-1, 6, 3)
    first = np.argsort(np.arange(6) != clean.chosen[:, None], axis=1, kind="stable")
    moved = np.take_along_axis(rows, first[..., None], axis=1).reshape(-1, 3)
    finding = found(changed(clean, contexts=moved, chosen=np.zeros(clean.n_steps)))["same-position"]
    assert finding.severity == "note"
    assert "position 0 in 100.0%" in finding.message


# -- episodes and times --------------------------------------------------------------------------------------------


def test_too_few_episodes_are_an_error_only_where_fit_refuses(clean):
    alone = clean[2]
    assert found(alone)["few-episodes"].severity == "error"
    assert validate(alone).verdict.startswith("Not ready to fit: 1 error")
    with pytest.raises(ValueError, match="one episode"):
        ibcb.IBCB().fit(alone)
    assert found(clean[:1])["few-episodes"].severity == "warning"
    assert found(clean[1:3])["few-episodes"].severity == "warning"
    assert found(clean[:2])["few-episodes"].severity == "note"
    assert "few-episodes" not in found(clean[:3])


def test_episodes_with_fewer_steps_than_features_are_counted(clean):
    first = clean.episode_offsets[1]
    edges = [0, first, first + 2, *clean.episode_offsets[2:]]
    codes = found(changed(clean, edges=edges))
    assert codes["small-episodes"].severity == "note"
    assert codes["small-episodes"].place == "episode 0"
    assert "1 of 6 episodes" in codes["small-episodes"].message
    assert codes["unequal-episodes"].place == "episode 0"
    tiny = small_run(n_episodes=8, batch_size=3).log
    assert found(tiny)["small-episodes"].severity == "warning"


@pytest.mark.parametrize("kind", ["M8[ns]", "i8", "f8"])
def test_times_that_are_missing_out_of_order_or_overlap_are_counted(clean, kind):
    times = np.arange(clean.n_steps) * 10 + 1_000_000_000

    def timed(**places):
        other = times.astype(kind)
        for name, value in places.items():
            other[{"late": [7, 400], "missing": [3, 4], "rest": slice(clean.episode_offsets[2], None)}[name]] += value
        return changed(clean, timestamps=other)

    assert validate(timed()).findings == ()
    finding = only(timed(late=15), "unsorted-times", "warning")
    assert "In 2 steps" in finding.message
    assert finding.place == "episode -1 (warm-up), step 8"
    finding = only(timed(rest=-600), "overlapping-episodes", "warning")
    assert "59 steps" in finding.message
    assert finding.place == "episode 1, step 0"
    if kind != "i8":
        missing = np.timedelta64("NaT") if kind == "M8[ns]" else np.nan
        assert only(timed(missing=missing), "missing-times", "note").message.startswith("2 steps")
        # They do not hide the others.
        assert found(timed(missing=missing, late=15)).keys() == {"missing-times", "unsorted-times"}


# -- the start -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_a_random_start_that_is_not_marked_is_noted(expert):
    log = paper_run(expert).log[:6]
    finding = only(changed(log, warmup=0), "unmarked-warmup", "note")
    assert "warmup=1 (--warmup 1)" in finding.remedy
    # A fit says the same, with the same code.
    note = missing_past(log.read()._slice(0, 1), bonus=True)
    assert note.code == finding.code
    assert finding.remedy in note.text
    middle = log.episode_offsets[1] // 2
    finding = found(changed(log, warmup=0, edges=[0, middle, *log.episode_offsets[1:]]))["unmarked-warmup"]
    assert "warmup=2" in finding.remedy


def test_a_warmup_that_the_policy_chose_is_noted():
    log = paper_run().log[:6]
    finding = only(changed(log, warmup=3), "warmup-not-random", "note")
    assert finding.place == "episode -2"
    assert "2 warm-up episodes" in finding.message


def test_a_log_that_starts_in_the_middle_is_noted():
    assert "starts-in-the-middle" in found(paper_run().log[3:6])
    assert "starts-in-the-middle" not in found(small_run(warmup=0).log)
    # Many features and few steps: nothing can be said.
    rng = np.random.default_rng(0)
    wide = BehaviorLog.from_episodes([(rng.normal(size=(100, 5, 60)), rng.integers(5, size=100)) for _ in range(4)])
    assert "starts-in-the-middle" not in found(wide)


def test_choices_at_random_or_by_position_alone_are_reported_as_such(clean):
    for seed in range(3):
        chosen = np.random.default_rng(seed).integers(6, size=clean.n_steps)
        only(changed(clean, chosen=chosen), "unexplained", "warning")
    rng = np.random.default_rng(0)
    shuffled = rng.permuted(clean.contexts.reshape(-1, 6, 3), axis=1).reshape(-1, 3)
    chosen = rng.choice(6, p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1], size=clean.n_steps)
    finding = found(changed(clean, contexts=shuffled, chosen=chosen))["unexplained"]
    assert "not evenly over positions" in finding.message


def test_a_policy_that_stays_the_same_is_noted():
    run = paper_run()
    assert "no-change" in found(run.test_log[:5])
    assert "no-change" not in found(run.log)


# -- edges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", ["sbucb", slow("sbts")])
@pytest.mark.parametrize("seed", [0, slow(1)])
@pytest.mark.parametrize("edges", ["right", "a quarter late", slow("half late"), "merged"])
def test_wrong_edges_are_found_and_right_ones_are_not(expert, seed, edges):
    log = ibcb.simulate("synthetic", expert=expert, noise=0.03, n_episodes=5, seed=seed).log
    if edges == "right":
        assert validate(log).findings == ()
        return
    wrong = merged(log, 2) if edges == "merged" else shifted(log, {"a quarter late": 250, "half late": 500}[edges])
    finding = only(wrong, "episode-edges", "warning")
    assert finding.place.startswith("episode ")
    if finding.place.startswith("episode 0"):
        step = int(finding.place.split()[-1])
        assert abs(step - 1000) < 100


def test_a_decider_that_learns_inside_episodes_is_found():
    log = ibcb.simulate("synthetic", n_episodes=20, batch_size=50, seed=0).log
    assert "episode-edges" in found(merged(log, 10))


def wander(seed, expert, episodes=6, steps=400, M=6, d=4, pace=0.05):
    """A log whose candidates drift within the episodes, while the policy changes only between them."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=d)
    walk = np.cumsum(pace * rng.normal(size=(episodes * steps, M, d)), axis=0)
    contexts = 0.5 * rng.normal(size=walk.shape) + walk
    decider = ibcb.SBUCB(d, alpha=1.0) if expert == "sbucb" else ibcb.SBTS(d, alpha=0.5, random_state=seed)
    pairs = []
    for batch in np.split(contexts, episodes):
        chosen = decider.act(batch)
        taken = batch[np.arange(steps), chosen]
        decider.update(taken, np.tanh(taken @ truth) + 0.5 * rng.normal(size=steps))
        pairs.append((batch, chosen))
    return BehaviorLog.from_episodes(pairs)


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_candidates_that_drift_are_not_taken_for_a_changing_policy_nor_a_novice_for_a_random_start(expert):
    for seed in range(3):
        assert "episode-edges" not in found(wander(seed, expert))
        assert "unmarked-warmup" not in found(wander(seed, expert, pace=0.0))


def logit_sample(rng, weights, n, M=5):
    d = weights.shape[-1]
    contexts = rng.normal(size=(n, M, d))
    utility = np.einsum("tmd,td->tm", contexts, np.broadcast_to(weights, (n, d))) + rng.gumbel(size=(n, M))
    chosen = utility.argmax(axis=1)
    part = BehaviorLog(contexts.reshape(-1, d), np.arange(0, n * M + 1, M), chosen, [0, n])
    return Sample.of(part, np.arange(n), 0)


def test_the_probabilities_of_a_change_are_those_of_chance():
    rng = np.random.default_rng(0)
    p = np.array([10 ** find_change(logit_sample(rng, rng.normal(size=3), 250)).log10_p for _ in range(150)])
    # The formula is that of long series, and cautious in short ones.
    for level in (0.3, 0.1, 0.03):
        assert np.mean(p < level) <= level + 3 * np.sqrt(level / len(p))
    assert np.mean(p < 0.3) > 0.05


def test_a_change_is_dated():
    rng = np.random.default_rng(1)
    for change in (120, 300, 420):
        weights = np.where(np.arange(600)[:, None] < change, [1.0, 0.5, -1.0], [1.0, -1.0, 0.5])
        result = find_change(logit_sample(rng, weights, 600))
        assert result.log10_p < -7
        assert abs(result.step - change) < 30


def test_too_few_steps_say_nothing_of_a_change(rng):
    assert find_change(logit_sample(rng, np.array([1.0, -1.0]), 90)) is None
    same = logit_sample(rng, np.array([1.0, -1.0]), 400)
    same.contexts[:] = 0.1
    assert find_change(same) is None


# -- samples -------------------------------------------------------------------------------------------------------


def test_a_sample_holds_every_kth_step_wherever_parts_are_cut(rng):
    log = ragged_log(rng, episodes=1, steps=2000, warmup=0)
    whole = Sampler()
    whole.add(log, 0)
    np.testing.assert_array_equal(whole.sample.steps, np.arange(0, 2000, 4))
    for t, step in enumerate(whole.sample.steps[:50]):
        rows = whole.sample.contexts[whole.sample.offsets[t] : whole.sample.offsets[t + 1]]
        np.testing.assert_array_equal(rows[0], log.candidates(step)[log.chosen[step]])
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(log.candidates(step), axis=0))
    pieces, first = Sampler(), 0
    for part in log.pieces(1333):
        pieces.add(part, first)
        first += part.n_steps
    np.testing.assert_array_equal(pieces.sample.contexts, whole.sample.contexts)


def test_of_many_candidates_a_sample_keeps_distinct_ones():
    contexts = np.arange(3 * 40.0)[:, None]
    log = BehaviorLog(contexts, [0, 40, 80, 120], [0, 39, 17], [0, 3])
    sample = Sample.of(log, np.arange(3), 0)
    assert np.diff(sample.offsets).tolist() == [16] * 3
    for t, pick in enumerate([0, 39, 17]):
        kept = sample.contexts[16 * t : 16 * (t + 1), 0] - 40 * t
        assert kept[0] == pick
        assert len(set(kept)) == 16
        assert set(kept) <= set(range(40))
        # Evenly spread: no gap much wider than 40 / 16.
        assert np.diff(np.sort(kept)).max() <= 3


def test_ever_fewer_of_the_later_episodes_are_looked_at():
    numbers = [number for number in range(10_000) if due(number)]
    assert numbers[:33] == list(range(33))
    assert len(numbers) < 32 + 16 * 9
    assert all(due(-number) == due(number) for number in range(100))


# -- the report ----------------------------------------------------------------------------------------------------


def test_the_report_reads_well_in_a_terminal():
    names = [f"a rather long name of feature number {column}" for column in range(10)]
    log = shifted(changed(paper_run().log[:4], feature_names=names), 300)
    user = np.repeat(np.arange(float(log.n_steps)), 10)
    result = validate(with_columns(log, user, log.contexts[:, :3], feature_names=[*names, *"abcd"]))
    text = str(result)
    assert text == result.render(80)
    assert text.startswith("Ready to fit: 5 warnings.")
    for width in (40, 80, 120):
        assert max(map(len, result.render(width).splitlines())) <= width
    for finding in result.findings:
        assert " ".join(finding.remedy.split()) in " ".join(text.split())
    severities = [finding.severity for finding in result.findings]
    assert severities == sorted(severities, key=("error", "warning", "note").index)


def test_the_report_is_plain_data(clean):
    result = validate(clean[1:3])
    data = json.loads(json.dumps(result.to_json()))
    assert data["ok"] is True
    assert data["summary"]["steps"] == 500
    assert [finding["code"] for finding in data["findings"]] == [finding.code for finding in result.findings]
    assert all(finding["remedy"] and finding["message"] for finding in data["findings"])


def test_an_empty_log_is_an_error():
    result = validate(SimpleNamespace(parts=lambda: iter(())))
    assert [finding.code for finding in result.findings] == ["empty"]
    assert not result.ok
    assert "0" in str(result)


@pytest.mark.parametrize("wrong", ["log.parquet", None, np.zeros((3, 2))])
def test_only_logs_are_validated(wrong):
    with pytest.raises(TypeError, match="open_log"):
        validate(wrong)


# -- as notes ------------------------------------------------------------------------------------------------------


def test_every_finding_is_a_note_with_its_place_features_and_remedy(clean):
    big = 1e7 + np.random.default_rng(7).normal(size=clean.n_rows)
    names = ["A", "B", "C", "Leak", "D", "Big"]
    logs = [
        with_columns(clean, leak(clean), np.ones(clean.n_rows), big, feature_names=names),
        merged(clean, 2),
        changed(clean, warmup=0),
        BehaviorLog(np.ones((4, 1)), [0, 2, 4], [0, 1], [0, 1, 2]),
    ]
    results = [validate(log) for log in logs]
    every = [finding for result in results for finding in result.findings]
    assert {finding.severity for finding in every} == {"error", "warning", "note"}
    for finding in every:
        note = finding.note
        assert note.code == finding.code
        assert note.severity == ("info" if finding.severity == "note" else "warning")
        assert note.figures.get("place") == finding.place
        assert note.figures.get("features", ()) == finding.features
        assert str(note).endswith(finding.remedy)
        assert str(note).startswith(finding.place or "")
        assert finding.message[1:] in str(note)
        assert all(name in str(note) for name in finding.features[:6])
    assert any(str(finding.note).startswith("Big reaches") for finding in every)
    assert results[0].notes == tuple(finding.note for finding in results[0].findings)
