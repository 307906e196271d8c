"""The choice likelihood with both allowances: recomputed step by step, by finite differences, and against the truth."""

import itertools

import numpy as np
import pytest
from conftest import paper_run, ragged_log
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import ibcb
from ibcb.inverse.solvers import SolverError
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.laplace import draw_scale, read_choices, stray_rate, summarise, summarise_straying

ALLOWANCES = [(1, 0.0), (2, 0.0), (1, 0.05), (3, 0.1), (9, 0.2)]


def loss_of(log, **allowances):
    return ChoiceLoss(*log.step_arrays(log.policy_steps), **allowances)


def exact_hessian(loss, w):
    here = loss.expand(w)
    return here.hessian if here.excess is None else here.hessian - here.excess


def likelihood(S, chosen, w, top_k):
    """q / K of one step: over all sets of K - 1 others that may be left out, the largest."""
    u = S @ w
    others = [j for j in range(len(S)) if j != chosen]
    free = min(top_k - 1, len(others))
    best = max(
        np.exp(u[chosen]) / (np.exp(u[chosen]) + sum(np.exp(u[j]) for j in others if j not in left_out))
        for left_out in itertools.combinations(others, free)
    )
    return best / min(top_k, len(S))


def by_hand(log, w, top_k, stray):
    total = 0.0
    for step in range(log.policy_steps.start, log.n_steps):
        S = log.candidates(step)
        if len(S) > 1:
            total -= np.log((1 - stray) * likelihood(S, log.chosen[step], w, top_k) + stray / len(S))
    return total


@pytest.mark.parametrize("top_k, stray", ALLOWANCES)
def test_the_loss_is_that_of_the_formula(rng, top_k, stray):
    log, w = ragged_log(rng), rng.normal(size=3)
    loss = loss_of(log, top_k=top_k, stray=stray)
    assert loss(w) == pytest.approx(by_hand(log, w, top_k, stray), rel=1e-10)
    assert loss.expand(w).loss == pytest.approx(loss(w), rel=1e-12)


@pytest.mark.parametrize("top_k, stray", ALLOWANCES)
def test_the_gradient_is_that_of_the_loss_and_the_hessian_is_that_of_a_bound(rng, top_k, stray):
    log, w = ragged_log(rng), rng.normal(size=3)
    loss = loss_of(log, top_k=top_k, stray=stray)
    here = loss.expand(w)
    h = 1e-6
    slopes = [(loss(w + h * e) - loss(w - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(here.gradient, slopes, rtol=1e-5, atol=1e-5)
    h = 1e-4
    curvature = np.array(
        [(loss.expand(w + h * e).gradient - loss.expand(w - h * e).gradient) / (2 * h) for e in np.eye(3)]
    )
    assert np.linalg.eigvalsh(here.hessian).min() >= 0
    assert np.linalg.eigvalsh(here.hessian - (curvature + curvature.T) / 2).min() >= -1e-3 * np.abs(here.hessian).max()
    np.testing.assert_allclose(exact_hessian(loss, w), curvature, rtol=1e-4, atol=1e-4 * np.abs(here.hessian).max())
    assert (here.excess is None) == (stray == 0)


def test_without_allowances_nothing_changes(rng):
    log, w = ragged_log(rng), rng.normal(size=3)
    plain, same = loss_of(log), loss_of(log, top_k=1, stray=0.0)
    assert plain.expand(w).loss == same.expand(w).loss
    assert plain.plain() is plain
    tolerant = loss_of(log, top_k=2, stray=0.1)
    np.testing.assert_array_equal(tolerant.plain().expand(w).hessian, plain.expand(w).hessian)
    assert (tolerant.top_k, tolerant.stray) == (2, 0.1)


@given(st.integers(0, 10_000), st.sampled_from([1e-3, 0.3]))
def test_no_step_costs_more_than_straying_does(seed, stray):
    rng = np.random.default_rng(seed)
    log = ragged_log(rng, episodes=1, steps=10, warmup=0)
    counts = np.diff(log.step_offsets)
    most = np.log(counts / stray).sum()
    assert loss_of(log, stray=stray)(1e4 * rng.normal(size=3)) <= most * (1 + 1e-12)


@pytest.mark.parametrize("top_k, stray", ALLOWANCES[:4])
def test_the_summary_is_a_minimum_with_the_prior(rng, top_k, stray):
    log = ragged_log(rng)
    A = rng.normal(size=(3, 3))
    centre, precision = rng.normal(size=3), A @ A.T + np.eye(3)
    loss = loss_of(log, top_k=top_k, stray=stray)
    found = summarise(loss, centre, precision)

    def objective(w):
        return loss(w) + (w - centre) @ precision @ (w - centre) / 2

    gradient = loss.expand(found.mode).gradient + precision @ (found.mode - centre)
    assert np.abs(gradient).max() < 1e-3
    before = summarise(loss.plain(), centre, precision).mode
    assert objective(found.mode) <= objective(before)
    if top_k == 1:
        # With more, the loss has kinks wherever two candidates change places, and a minimum between any two of them.
        for direction in np.concatenate([np.eye(3), rng.normal(size=(5, 3))]):
            around = [objective(found.mode + length * direction) for length in (-0.05, 0.05)]
            assert objective(found.mode) <= min(around)
    np.testing.assert_allclose(found.hessian, exact_hessian(loss, found.mode) + precision)
    assert found.loss == pytest.approx(loss(found.mode))


@pytest.mark.parametrize("top_k, stray", ALLOWANCES[:4])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_contexts_in_single_precision_are_summarised_as_well(top_k, stray, unit):
    """The loss is evaluated in float64: that of float32 is noise where Newton's method comes to rest."""
    last = paper_run().log[19]
    rows = (unit * last.contexts).astype("f4")
    single, double = (
        summarise(
            ChoiceLoss(rows.astype(kind), last.step_offsets, last.chosen, top_k=top_k, stray=stray),
            np.zeros(10),
            1e-3 * unit**2 * np.eye(10),
        )
        for kind in ("f4", "f8")
    )
    assert single.passes <= double.passes + 2
    assert single.loss == pytest.approx(double.loss, rel=1e-4)
    np.testing.assert_allclose(single.mode, double.mode, atol=1e-4 * np.abs(double.mode).max())


@pytest.mark.parametrize("seed", [0, 3])
def test_many_straying_steps_among_separable_ones_are_solved_in_a_few_passes(seed):
    """The bound alone would lead there by hundreds of ever shorter steps."""
    rng = np.random.default_rng(seed)
    theta, sets = rng.normal(size=4), rng.normal(size=(300, 5, 4))
    chosen = np.where(rng.random(300) < 0.15, rng.integers(5, size=300), (sets @ theta).argmax(axis=1))
    log = ibcb.BehaviorLog.from_episodes([(sets, chosen)])
    found = summarise_straying(loss_of(log, stray=0.01), np.zeros(4), 1e-3 * np.eye(4))
    assert found.passes < 120
    # By turns, until neither the share nor the weights would move.
    likeliest = stray_rate(*loss_of(log, stray=found.stray).likelihoods(found.mode))
    assert found.stray == pytest.approx(likeliest, rel=0.02)
    assert found.mode @ theta > 0.99 * np.linalg.norm(found.mode) * np.linalg.norm(theta)


def test_a_prior_without_choices_that_tell_is_the_summary():
    contexts = np.ones((6, 2))
    loss = ChoiceLoss(contexts, np.array([0, 3, 6]), np.array([0, 2]), top_k=2, stray=0.1)
    found = summarise_straying(loss, np.array([1.0, -2.0]), 3 * np.eye(2))
    np.testing.assert_allclose(found.mode, [1, -2])
    np.testing.assert_allclose(found.hessian, 3 * np.eye(2))


def test_filtering_episode_by_episode_is_bayes_rule_when_choices_are_plain(rng):
    """Two Laplace updates in turn come close to one with both episodes: the second starts where the first ended."""
    log = ragged_log(rng, episodes=2, steps=200)
    centre, precision = np.zeros(3), np.eye(3)
    first, second = (loss_of(log[n], stray=1e-3) for n in (0, 1))
    once = summarise(loss_of(log, stray=1e-3), centre, precision)
    half = summarise(first, centre, precision)
    twice = summarise(second, half.mode, half.hessian)
    assert np.linalg.norm(twice.mode - once.mode) < 0.15 * np.linalg.norm(once.mode)


def test_a_singular_prior_without_evidence_is_refused():
    contexts = np.ones((4, 2))
    loss = ChoiceLoss(contexts, np.array([0, 2, 4]), np.array([0, 1]))
    with pytest.raises(SolverError, match="singular"):
        summarise(loss, np.zeros(2), np.zeros((2, 2)))


def test_information_is_that_of_the_choices_where_they_agree(rng):
    log = ragged_log(rng)
    loss = loss_of(log, stray=0.01)
    found = summarise(loss, np.zeros(3), np.eye(3))
    np.testing.assert_allclose(found.information, exact_hessian(loss, found.mode), rtol=1e-10)


def test_information_counts_each_step_as_far_as_it_was_meant_where_they_do_not(rng):
    """Recomputed: covariances of the candidates under the softmax, which are never less than nothing."""
    log, centre = ragged_log(rng), np.array([9.0, -9.0, 9.0])
    found = summarise(loss_of(log, stray=0.2), centre, 1e3 * np.eye(3))
    expected = np.zeros((3, 3))
    for step in range(log.policy_steps.start, log.n_steps):
        S = log.candidates(step)
        p = np.exp(S @ found.mode - np.max(S @ found.mode))
        p /= p.sum()
        meant = 0.8 * p[log.chosen[step]]
        apart = S - p @ S
        expected += meant / (meant + 0.2 / len(S)) * (apart.T * p) @ apart
    np.testing.assert_allclose(found.information, expected, rtol=1e-8, atol=1e-10)
    assert np.linalg.eigvalsh(found.hessian - 1e3 * np.eye(3))[0] < 0 < np.linalg.eigvalsh(found.information)[0]


def test_the_stray_rate_maximises_its_likelihood(rng):
    meant, astray = rng.uniform(size=400), np.full(400, 0.1)
    meant[:60] = 1e-9

    def objective(e):
        return -np.log((1 - e) * meant + e * astray).sum() - 0.5 * np.log(e * (1 - e))

    best = minimize_scalar(objective, bounds=(1e-5, 0.5), method="bounded", options={"xatol": 1e-8}).x
    assert stray_rate(meant, astray) == pytest.approx(best, rel=1e-3)
    assert stray_rate(np.full(50, 1e-9), np.full(50, 0.1)) == 0.5
    assert stray_rate(np.ones(10**6), np.full(10**6, 0.1)) == 1e-5


def flipped(log, share, seed):
    rng, chosen = np.random.default_rng(seed), log.chosen.copy()
    hit = np.flatnonzero(rng.random(log.n_steps) < share)
    chosen[hit] = (chosen[hit] + rng.integers(1, 10, size=len(hit))) % 10
    return ibcb.BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=log.warmup), hit


def agreement(w, run):
    mine, its = (scores.reshape(-1, 10).argmax(axis=1) for scores in (run.test_log.contexts @ w, decided(run)))
    return np.mean(mine == its)


def decided(run):
    return run.expert.decision_function(run.test_log)


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_flipped_choices_cost_little_and_are_named(expert):
    run = paper_run(expert)
    last = run.log[len(run.log) - 1]
    dirty, hit = flipped(last, 0.02, 7)
    clean, found = (
        summarise_straying(loss_of(log, stray=0.01), np.zeros(10), 1e-3 * np.eye(10)) for log in (last, dirty)
    )
    assert clean.stray < 0.002
    assert found.stray == pytest.approx(len(hit) / dirty.n_steps, rel=0.25)
    assert agreement(found.mode, run) > agreement(clean.mode, run) - 0.006
    read = read_choices(dirty.contexts @ found.mode, np.diff(dirty.step_offsets), dirty.chosen, 1)
    named = np.flatnonzero(read.strayed > 0.5)
    assert set(named) <= set(hit)
    assert len(named) >= 0.8 * len(hit)
    plain = summarise(loss_of(dirty), np.zeros(10), 1e-3 * np.eye(10))
    assert agreement(plain.mode, run) < agreement(found.mode, run)


@pytest.mark.parametrize("top_k", [1, 3])
def test_choices_are_read_at_the_unit_and_the_stray_share_that_make_them_likeliest(rng, top_k):
    counts = rng.integers(1, 7, size=500)
    starts = np.append(0, counts.cumsum())
    scores = rng.normal(size=starts[-1])
    steps = [scores[a:b] for a, b in itertools.pairwise(starts)]
    chosen = np.array([np.argsort(-each)[rng.integers(min(top_k, len(each)))] for each in steps])
    chosen[:50] = [rng.integers(len(each)) for each in steps[:50]]
    found, scaled = (read_choices(unit * scores, counts, chosen, top_k) for unit in (1.0, 1e3))
    np.testing.assert_allclose(scaled.strayed, found.strayed)
    assert found.agreement == np.mean([each[c] == each.max() for each, c in zip(steps, chosen, strict=True)])

    def read(k):
        meant = np.array([likelihood(k * s[:, None], c, np.ones(1), top_k) for s, c in zip(steps, chosen, strict=True)])
        e = stray_rate(meant, 1 / counts)
        return (1 - e) * meant + e / counts, e / counts

    best = max((read(k) for k in np.geomspace(0.1, 100, 60)), key=lambda one: np.log(one[0]).sum())
    assert found.log_likelihoods.sum() > np.log(best[0]).sum() - 0.1
    np.testing.assert_allclose(found.strayed, best[1] / best[0], atol=0.1)


@pytest.mark.parametrize("top_k", [2, 4])
def test_the_better_candidates_may_win(top_k):
    run = ibcb.simulate("synthetic", noise=0.03, seed=1, top_k=top_k)
    last = run.log[len(run.log) - 1]
    fair, plain = (summarise(loss_of(last, top_k=k), np.zeros(10), 1e-3 * np.eye(10)).mode for k in (top_k, 1))
    assert agreement(fair, run) > 0.975
    assert agreement(fair, run) > agreement(plain, run) + 0.01


@pytest.mark.parametrize("top_k, sharpness", [(2, 1.5), (3, 0.7)])
def test_the_scale_of_the_draws_is_found_within_its_error(rng, top_k, sharpness):
    scores = rng.normal(size=(4000, 6))
    p = ibcb.deciders.top_k_softmax(sharpness * scores, top_k)
    chosen = ibcb.deciders.draw(p, rng.random(4000))
    offsets = np.arange(0, 24_001, 6)
    found = draw_scale(scores.ravel(), offsets, chosen, top_k)
    assert abs(found.scale - sharpness) < 4 * found.error < 0.3
    scaled = draw_scale(10 * scores.ravel(), offsets, chosen, top_k)
    assert scaled.scale == pytest.approx(found.scale / 10, rel=1e-4)
    # Candidates below the top k, however many, and ragged steps change nothing.
    worse = np.concatenate([scores, np.full((4000, 1), -100.0)], axis=1)
    keep = np.ones((4000, 7), dtype=bool)
    keep[::2, 6] = False
    ragged = draw_scale(worse[keep], np.append(0, keep.sum(axis=1).cumsum()), chosen, top_k)
    assert ragged.scale == pytest.approx(found.scale, rel=1e-9)


def test_draws_that_tell_nothing_have_no_scale(rng):
    same = draw_scale(np.zeros(30), np.arange(0, 31, 3), rng.integers(3, size=10), 2)
    assert (same.scale, same.error) == (0.0, np.inf)
    scores = rng.normal(size=(50, 4))
    worst_of_two = np.argsort(-scores, axis=1)[:, 1]
    assert draw_scale(scores.ravel(), np.arange(0, 201, 4), worst_of_two, 2).scale == 0.0
    best = draw_scale(scores.ravel(), np.arange(0, 201, 4), scores.argmax(axis=1), 2)
    assert np.isfinite(best.scale)
    assert best.scale > 5
