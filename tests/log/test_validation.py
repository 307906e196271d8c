"""validate: every finding fires on a log made to have it, says the right numbers, and is silent on clean logs."""

import functools
import json
from collections import Counter

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


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"warmup": 0}, {"draws": "episode"}])
def test_nothing_is_found_in_other_clean_logs(options):
    for seed in range(3):
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
    parts = list(log.parts())
    assert sorted({number for number, _ in parts}) == [-2, -1, 0, 1, 2]
    assert [number for number, _ in parts] == sorted(number for number, _ in parts)
    assert all(part.n_rows <= 17 and len(part) == 1 and part.warmup == 0 for _, part in parts)
    for name in ("contexts", "chosen"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for _, part in parts]), getattr(log, name))
    np.testing.assert_array_equal(
        np.concatenate([np.diff(part.step_offsets) for _, part in parts]), np.diff(log.step_offsets)
    )
    monkeypatch.setattr(log_module, "_PART_ROWS", 1)
    assert [part.n_steps for _, part in log.parts()] == [1] * log.n_steps


class InPieces:
    """A log that comes in parts of a few steps, as one on disk does."""

    def __init__(self, log, steps):
        self.log, self.steps = log, steps

    def parts(self):
        for number, episode in self.log.parts():
            for first in range(0, episode.n_steps, self.steps):
                cut = slice(first, first + self.steps)
                offsets = episode.step_offsets[first : first + self.steps + 1]
                yield (
                    number,
                    BehaviorLog(
                        episode.contexts[offsets[0] : offsets[-1]],
                        offsets - offsets[0],
                        episode.chosen[cut],
                        [0, len(offsets) - 1],
                        feature_names=episode.feature_names,
                        timestamps=None if episode.timestamps is None else episode.timestamps[cut],
                    ),
                )


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
    for steps in (41, 10_000):
        assert validate(InPieces(messy, steps)).to_json() == expected.to_json()


# -- features ------------------------------------------------------------------------------------------------------


def test_features_that_candidates_share_are_named(clean):
    rng = np.random.default_rng(1)
    user = np.repeat(rng.normal(size=(clean.n_steps, 2)) + 0.1, 6, axis=0)
    names = ["a", "b", "c", "age", "tenure"]
    finding = only(with_columns(clean, user, feature_names=names), "constant-within-steps", "warning")
    assert finding.features == ("age", "tenure")
    assert "2 of 5 features" in finding.message


def test_features_that_never_change_are_named_apart(clean):
    finding = only(with_columns(clean, np.full(clean.n_rows, 0.3)), "constant-feature", "note")
    assert finding.features == ("3",)
    assert "intercept" in finding.remedy
    assert "intercept" not in only(with_columns(clean, np.zeros(clean.n_rows)), "constant-feature", "note").remedy


def test_a_log_in_which_nothing_varies_cannot_be_fitted(clean):
    user = np.repeat(np.random.default_rng(1).normal(size=(clean.n_steps, 2)), 6, axis=0)
    result = validate(changed(clean, contexts=user))
    assert not result.ok
    assert [finding.code for finding in result.findings if finding.severity == "error"] == ["nothing-varies"]
    ibcb_says = ibcb.IBCB().fit(changed(clean, contexts=user))
    assert not ibcb_says.coef_.any()


def test_linear_relations_are_found_and_written_out(clean, draw):
    X, (a, b) = clean.contexts, np.random.default_rng(2).normal(size=(2, clean.n_rows))
    user = np.repeat(draw.reshape(-1, 6)[:, 0], 6)
    # What all candidates share cancels: the relation holds within steps only.
    log = with_columns(clean, a, b, a + 2 * b + user, 5 - 3 * X[:, 0], feature_names=list("xyzabcd"))
    relations = [finding for finding in validate(log).findings if finding.code == "collinear"]
    assert [finding.features for finding in relations] == [("x", "d"), ("a", "b", "c")]
    assert "3 x + d" in relations[0].message
    assert "a + 2 b - c" in relations[1].message
    assert found(log).keys() == {"collinear"}


@pytest.mark.parametrize("noise, named", [(1e-4, True), (1e-2, False)])
def test_relations_that_nearly_hold_are_found_too(clean, draw, noise, named):
    copy = clean.contexts[:, 1] + noise * draw
    assert ("collinear" in found(with_columns(clean, copy))) == named


def test_one_hot_groups_are_told_from_other_relations(clean):
    rng = np.random.default_rng(4)
    groups = [np.eye(k)[rng.integers(k, size=clean.n_rows)] for k in (4, 2)]
    findings = validate(with_columns(clean, *groups)).findings
    assert [(finding.code, finding.severity) for finding in findings] == [("sums-to-constant", "note")] * 2
    assert [finding.features for finding in findings] == [("3", "4", "5", "6"), ("7", "8")]


def test_many_relations_do_not_flood_the_report(clean):
    rng = np.random.default_rng(5)
    base = rng.normal(size=(clean.n_rows, 12))
    findings = validate(with_columns(clean, base, 2 * base)).findings
    assert {finding.code for finding in findings} == {"collinear"}
    assert len(findings) == 9
    assert {name for finding in findings for name in finding.features} == {str(column) for column in range(3, 27)}


def test_units_that_are_far_apart_are_reported_with_their_spread(clean):
    scale = np.array([1.0, 1e5, 1.0])
    finding = only(changed(clean, contexts=clean.contexts * scale), "scales", "note")
    steps = (clean.contexts * scale).reshape(-1, 6, 3)
    sd = steps.std(axis=1)
    assert f"{np.sqrt(np.mean(sd[:, 1] ** 2)):.2g}" in finding.message
    assert "1" in finding.features
    assert validate(changed(clean, contexts=clean.contexts * [1.0, 1e3, 1.0])).findings == ()


def test_differences_that_drown_in_rounding_are_reported(clean):
    far = clean.contexts + np.array([0.0, 0.0, 3e5])
    assert only(changed(clean, contexts=far.astype(np.float32)), "precision", "warning").features == ("2",)
    assert validate(changed(clean, contexts=far)).findings == ()
    only(changed(clean, contexts=clean.contexts + np.array([0.0, 0.0, 1e8])), "precision", "warning")


def test_numbers_too_large_to_square_are_an_error(clean):
    finding = found(changed(clean, contexts=clean.contexts * [1.0, 1e200, 1.0]))["overflow"]
    assert (finding.severity, finding.features) == ("error", ("1",))


def test_features_that_hardly_ever_vary_are_noted(clean):
    rare = np.zeros(clean.n_rows)
    rare[[60, 61, 700]] = 1.0
    finding = only(with_columns(clean, rare), "rarely-varying", "note")
    assert finding.features == ("3",)
    assert "the rarest in 2" in finding.message


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", ["flag", "score"])
def test_a_feature_that_is_the_choice_is_named(clean, draw, sign, kind):
    leak = np.zeros(clean.n_rows) if kind == "flag" else np.tanh(draw) / 3
    leak[clean.chosen_rows] += 1
    finding = found(with_columns(clean, sign * leak))["leak"]
    assert (finding.severity, finding.features) == ("warning", ("3",))
    assert ("largest" if sign > 0 else "smallest") in finding.message


@pytest.mark.parametrize("fill", [0.0, 0.37])
@pytest.mark.parametrize("outcome", ["gain", "click"])
def test_what_only_chosen_candidates_have_is_an_outcome(clean, draw, fill, outcome):
    """A reward under any name, with missing values imputed: of both signs, or 0 for most."""
    values = np.full(clean.n_rows, fill)
    values[clean.chosen_rows] = draw[clean.chosen_rows] if outcome == "gain" else draw[clean.chosen_rows] > 0.7
    finding = found(with_columns(clean, values))["outcome"]
    assert (finding.severity, finding.features) == ("warning", ("3",))
    assert f"(feature 3: {fill:g})" in finding.message
    some = values.copy()
    some[(clean.chosen_rows[0] + 1) % clean.n_rows] += 1.0
    assert "outcome" not in found(with_columns(clean, some))


def test_a_feature_that_merely_predicts_the_choice_is_no_leak(clean, draw):
    hint = draw.copy()
    hint[clean.chosen_rows] += 1.5
    assert "leak" not in found(with_columns(clean, hint))


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


def test_a_log_without_alternatives_cannot_be_fitted(clean):
    steps = clean.n_steps
    log = BehaviorLog(clean.contexts[::6], np.arange(steps + 1), np.zeros(steps), clean.episode_offsets, warmup=1)
    result = validate(log)
    assert not result.ok
    assert [finding.code for finding in result.findings if finding.severity == "error"] == ["no-alternatives"]


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
    contexts = clean.contexts.reshape(-1, 6, 3).copy()
    each = np.arange(clean.n_steps)
    contexts[each, clean.chosen], contexts[:, 0] = contexts[:, 0], contexts[each, clean.chosen]
    log = changed(clean, contexts=contexts.reshape(-1, 3), chosen=np.zeros(clean.n_steps))
    finding = found(log)["same-position"]
    assert finding.severity == "note"
    assert "position 0 in 100.0%" in finding.message


# -- episodes and times --------------------------------------------------------------------------------------------


def test_too_few_episodes_are_an_error_only_where_fit_refuses(clean):
    alone = clean[2]
    assert found(alone)["few-episodes"].severity == "error"
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
def test_times_out_of_order_are_counted(clean, kind):
    times = np.arange(clean.n_steps) * 10 + 1_000_000_000
    assert validate(changed(clean, timestamps=times.astype(kind))).findings == ()
    late = times.copy()
    late[[7, 400]] += 15
    finding = only(changed(clean, timestamps=late.astype(kind)), "unsorted-times", "warning")
    assert "In 2 steps" in finding.message
    assert finding.place == "episode -1 (warm-up), step 8"


def test_episodes_that_overlap_in_time_are_reported(clean):
    times = np.arange(clean.n_steps)
    times[clean.episode_offsets[2] :] -= 60
    finding = only(changed(clean, timestamps=times), "overlapping-episodes", "warning")
    assert "59 steps" in finding.message
    assert finding.place == "episode 1, step 0"


def test_missing_times_do_not_hide_the_others(clean):
    times = np.arange(clean.n_steps).astype("M8[s]")
    times[[3, 4]] = np.datetime64("NaT")
    assert only(changed(clean, timestamps=times), "missing-times", "note").message.startswith("2 steps")
    times[6] = times[0]
    assert found(changed(clean, timestamps=times)).keys() == {"missing-times", "unsorted-times"}


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
    assert "starts-in-the-middle" in found(paper_run().log[3:])
    assert "starts-in-the-middle" not in found(small_run(warmup=0).log)
    # Many features and few steps: nothing can be said.
    rng = np.random.default_rng(0)
    wide = BehaviorLog.from_episodes([(rng.normal(size=(100, 5, 60)), rng.integers(5, size=100)) for _ in range(4)])
    assert "starts-in-the-middle" not in found(wide)


def test_a_thompson_sampler_that_knows_nothing_is_no_random_start():
    for seed in range(4):
        assert "unmarked-warmup" not in found(wander(seed, "sbts", pace=0.0))


@pytest.mark.parametrize("seed", range(5))
def test_random_choices_are_reported_as_such(clean, seed):
    chosen = np.random.default_rng(seed).integers(6, size=clean.n_steps)
    only(changed(clean, chosen=chosen), "unexplained", "warning")


def test_choices_by_position_alone_are_reported_as_such(clean, draw):
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


@functools.cache
def seven_episodes(expert, seed):
    return ibcb.simulate("synthetic", expert=expert, noise=0.03, n_episodes=7, seed=seed).log


@pytest.mark.parametrize("expert", ["sbucb", slow("sbts")])
@pytest.mark.parametrize("seed", [0, slow(1)])
@pytest.mark.parametrize("edges", ["right", "a quarter late", slow("half late"), "merged"])
def test_wrong_edges_are_found_and_right_ones_are_not(expert, seed, edges):
    log = seven_episodes(expert, seed)
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
    log = ibcb.simulate("synthetic", n_episodes=20, batch_size=100, seed=0).log
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
def test_candidates_that_drift_are_not_taken_for_a_changing_policy(expert):
    for seed in range(4):
        assert "episode-edges" not in found(wander(seed, expert))


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
    for _, part in InPieces(log, 333).parts():
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
    assert {finding["code"] for finding in data["findings"]} == {finding.code for finding in result.findings}
    assert all(finding["remedy"] and finding["message"] for finding in data["findings"])


def test_verdicts(clean):
    assert validate(clean).verdict == "Ready to fit: nothing wrong was found."
    assert validate(clean[:2]).verdict.startswith("Ready to fit: 1 note")
    assert validate(clean[2]).verdict.startswith("Not ready to fit: 1 error")


class Nothing:
    def parts(self):
        return iter(())


def test_an_empty_log_is_an_error():
    result = validate(Nothing())
    assert [finding.code for finding in result.findings] == ["empty"]
    assert not result.ok
    assert "0" in str(result)


@pytest.mark.parametrize("wrong", ["log.parquet", None, np.zeros((3, 2))])
def test_only_logs_are_validated(wrong):
    with pytest.raises(TypeError, match="open_log"):
        validate(wrong)


# -- as notes ------------------------------------------------------------------------------------------------------


def test_every_finding_is_a_note_with_its_place_features_and_remedy(clean, draw):
    leak = np.tanh(draw) / 3
    leak[clean.chosen_rows] += 1
    logs = [
        with_columns(clean, leak, np.ones(clean.n_rows), 1e7 + draw, feature_names=["A", "B", "C", "Leak", "D", "Big"]),
        merged(clean, 2),
        clean[:1],
        changed(clean, warmup=0),
    ]
    found = [finding for log in logs for finding in validate(log).findings]
    assert {finding.severity for finding in found} == {"warning", "note"}
    found += validate(BehaviorLog(np.ones((4, 1)), [0, 2, 4], [0, 1], [0, 1, 2])).findings
    assert {finding.severity for finding in found} == {"error", "warning", "note"}
    for finding in found:
        note = finding.note
        assert note.code == finding.code
        assert note.severity == ("info" if finding.severity == "note" else "warning")
        assert note.figures.get("place") == finding.place
        assert note.figures.get("features", ()) == finding.features
        assert str(note).endswith(finding.remedy)
        assert str(note).startswith(finding.place or "")
        assert finding.message[1:] in str(note)
        assert all(name in str(note) for name in finding.features[:6])
    assert any(str(finding.note).startswith("Big reaches") for finding in found)
    assert validate(logs[0]).notes == tuple(finding.note for finding in validate(logs[0]).findings)
