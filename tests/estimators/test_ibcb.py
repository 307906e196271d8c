"""IBCB as an estimator: Algorithms 2 and 3, their invariances, and what it promises.

Algorithm 2's own results are those of forecast=None; with a forecast all weights come from the track, see
tests/estimators/test_one_estimate.py.
"""

import pickle
from functools import cache, partial

import numpy as np
import pytest
from conftest import paper_run, ragged_log, slow, small_run
from replayed import episodes_of
from same import assert_same_model
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from views import candidates_metric, flipped, nearest_by_nnls, views

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.engine import History
from ibcb.inverse.evolution import Evolution
from ibcb.inverse.solvers.cutting_plane import hard
from ibcb.inverse.solvers.hinge import robust
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Frame, Regularization

SOLVERS = ["auto", "hard", "soft", "robust", "paper"]


def settings(solver, expert):
    """Every solver with an expert it can solve: the rows of Thompson sampling have no exact solution."""
    return {"solver": solver, "expert": expert, "l2": 0.3}


@cache
def fitted(solver, expert, **more):
    """A fit of the small run; never changed."""
    return IBCB(**settings(solver, expert), **more).fit(small_run(expert).log)


CASES = [(s, e) for s in SOLVERS for e in ("sbucb", "sbts") if (s, e) != ("hard", "sbts")]


def evolved(log, regularization, metric, solver, gram=None):
    """Algorithm 2 alone, through a whole log; ``gram``: of the contexts chosen before it."""
    d = log.n_features
    before = History.before_the_log(np.zeros((d, d)) if gram is None else gram)
    evolution = Evolution.begin(before, metric, None, False)
    for episode in episodes_of(log, before=before):
        evolution = evolution.step(episode, episode.before.ridge(regularization), solver)
    return evolution


# -- the algorithm -------------------------------------------------------------------------------------------------


def test_the_incremental_algorithm_step_by_step():
    """Algorithm 2 with an independent solver gives the same parameters and policies."""
    log, theta = small_run().log, np.zeros(4)
    model = IBCB(solver="hard", l2=0.3, forecast=None).fit(log)
    metric = candidates_metric(log)
    for number, phi, _, view in views(log, metric=metric):
        rows = view.rows()
        theta = nearest_by_nnls(rows.matrix, rows.rhs, theta, metric.matrix)
        policy = np.linalg.solve(0.3 * np.eye(4) + phi, phi @ theta)
        np.testing.assert_allclose(model.policy_coefs_[number], policy, atol=1e-5 * np.linalg.norm(policy))
    np.testing.assert_allclose(model.coef_, theta, rtol=1e-5)
    assert model.intercept_ == 0.0
    shrunk = np.linalg.solve(0.3 * np.eye(4) + (seen := log.contexts[log.chosen_rows]).T @ seen, seen.T @ seen @ theta)
    np.testing.assert_allclose(model.next_policy_coef_, shrunk, atol=1e-5 * np.linalg.norm(shrunk))


@pytest.mark.parametrize("units", ["scaled", "standardized"])
def test_the_algorithm_in_units_of_the_features_is_that_on_features_brought_to_them(units):
    """With l2 in a frame: as Algorithm 2 by hand on a log whose features have been scaled, or centred and scaled."""
    log, theta = small_run().log, np.zeros(4)
    log = log.with_contexts(log.contexts * [1.0, 20.0, 0.1, 3.0] + [0.0, 5.0, 1.0, -3.0], None)
    first = next(episode for by_policy, episode in log.episodes() if by_policy).contexts
    frame = Frame("scaled", np.sqrt(np.mean(first**2, axis=0)), np.zeros(4))
    if units == "standardized":
        frame = Frame("standardized", first.std(axis=0), first.mean(axis=0))
    made = evolved(log, Regularization(0.3, frame), candidates_metric(log), partial(robust, penalty=40.0, bend=0.2))
    by_hand = log.with_contexts((log.contexts - frame.origin) / frame.scale, None)
    # Weights move as little as they can in the same length: that of features as they were.
    K = candidates_metric(log).matrix / frame.scale / frame.scale[:, None]
    policies = []
    for _, phi, _, view in views(by_hand, metric=Metric(K)):
        theta = robust(view, theta, penalty=40.0, bend=0.2).theta
        policies.append(np.linalg.solve(0.3 * np.eye(4) + phi, phi @ theta))
    np.testing.assert_allclose(made.theta * frame.scale, theta, rtol=1e-4, atol=1e-6 * np.abs(theta).max())
    np.testing.assert_allclose(made.policies * frame.scale, policies, rtol=1e-4, atol=1e-6 * np.abs(policies).max())


def test_the_full_algorithm_is_one_problem_over_all_rows():
    log = small_run().log
    parts = [view for _, _, _, view in views(log)]
    model = IBCB(solver="soft", l2=0.3, incremental=False, penalty=7.0, forecast=None).fit(log)
    K = candidates_metric(log).matrix
    rows = [view.rows() for view in parts]
    A, b = np.vstack([r.matrix for r in rows]), np.concatenate([r.rhs for r in rows])
    v = np.maximum(A @ model.coef_ - b, 0)
    gradient = K @ model.coef_ + 7.0 * v @ A
    assert np.linalg.norm(gradient) <= 1e-5 * np.linalg.norm(7.0 * np.maximum(-b, 0) @ A)
    assert len(model.diagnostics_) == 6
    for (_, phi, _, _), policy in zip(views(log), model.policy_coefs_, strict=True):
        np.testing.assert_allclose(policy, np.linalg.solve(0.3 * np.eye(4) + phi, phi @ model.coef_), rtol=1e-9)


def test_pooling_all_episodes_is_infeasible_and_imitates_worse():
    run = paper_run()
    full = IBCB(l2=0.3, incremental=False, forecast=None).fit(run.log)
    assert full.solver_ == "robust"
    each = IBCB(l2=0.3, forecast=None).fit(run.log)
    assert ibcb.metrics.bt_fitness(full, run) < ibcb.metrics.bt_fitness(each, run) - 0.05


def test_pruning_solves_again_without_the_violated_rows():
    """Algorithm 3, written out."""
    log, theta = small_run("sbucb", top_k=2).log, np.zeros(4)
    model = IBCB(solver="robust", l2=0.3, prune=True, forecast=None).fit(log)
    for (_, _, _, view), diagnosis in zip(views(log, metric=candidates_metric(log)), model.diagnostics_, strict=True):
        first = robust(view, theta, penalty=40.0, bend=0.2)
        assert first.after.violated > 0
        theta = robust(view.without_violated(first.theta), theta, penalty=40.0, bend=0.2).theta
        assert diagnosis.violated == view.tally(theta).violated
    np.testing.assert_allclose(model.coef_, theta, rtol=1e-9)
    assert not np.allclose(theta, IBCB(solver="robust", l2=0.3, forecast=None).fit(log).coef_)


def test_without_history_the_first_episode_feeds_only_the_gram_matrix():
    log = small_run(warmup=0).log
    model = IBCB(l2=0.3, forecast=None).fit(log)
    assert not model.policy_coefs_[0].any()
    assert not IBCB(l2=0.3).fit(log).policy_coefs_[0].any()
    assert model.diagnostics_[0].status == "no history"
    assert model.diagnostics_[0].next_agreement is None
    known = log[0].contexts[log[0].chosen_rows]
    later = IBCB(l2=0.3, prior_gram=known.T @ known, forecast=None).fit(log[1:])
    warm = BehaviorLog(log.contexts, log.step_offsets, log.chosen, log.episode_offsets, warmup=1)
    warmed = IBCB(l2=0.3, forecast=None).fit(warm)
    np.testing.assert_allclose(later.policy_coefs_, warmed.policy_coefs_, rtol=1e-9)
    # But for the candidates by which as little as possible is measured, those of the first episode.
    metric = candidates_metric(log)
    whole, rest = (
        evolved(part, Regularization(0.3), metric, hard, gram)
        for part, gram in ((log, None), (log[1:], known.T @ known))
    )
    np.testing.assert_allclose(whole.policies[1:], rest.policies, rtol=1e-9)
    np.testing.assert_allclose(whole.policies, model.policy_coefs_, rtol=1e-12)


def test_the_policies_are_the_experts_own():
    """Recovered directions agree with the parameters that made the choices, from the second half on."""
    run = paper_run()
    model = IBCB(l2=0.3).fit(run.log)
    for mine, its in list(zip(model.policy_coefs_, run.policy_coefs, strict=False))[5:]:
        assert mine @ its / np.linalg.norm(mine) / np.linalg.norm(its) > 0.995
    assert model.next_policy_coef_ @ run.expert.coef_ > 0.999 * np.linalg.norm(
        model.next_policy_coef_
    ) * np.linalg.norm(run.expert.coef_)


# -- fit and partial_fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "expert", "warmup"),
    [*((*case, 200) for case in CASES), *((slow if case[0] != "auto" else pytest.param)(*case, 0) for case in CASES)],
)
def test_fit_equals_partial_fit_over_the_episodes(solver, expert, warmup):
    log = small_run(expert, warmup=warmup).log
    whole = fitted(solver, expert) if warmup == 200 else IBCB(**settings(solver, expert)).fit(log)
    parts = IBCB(**settings(solver, expert))
    for episode in log:
        parts.partial_fit(episode)
    assert_same_model(parts, whole)


def test_auto_starts_over_when_a_late_episode_is_infeasible():
    log = flipped(small_run().log, 4, 50)
    whole = IBCB(l2=0.3).fit(log)
    parts = IBCB(l2=0.3).fit(log[:3])
    assert parts.solver_ == "hard"
    parts.partial_fit(log[3]).partial_fit(log[4]).partial_fit(log[5])
    assert whole.solver_ == parts.solver_ == "robust"
    np.testing.assert_array_equal(whole.coef_, parts.coef_)
    assert whole.diagnostics_ == parts.diagnostics_
    assert any(row.step == 50 for row in whole.diagnostics_[4].certificate)
    assert "4:50" in " ".join(map(str, whole.notes_))


def test_a_stored_auto_model_says_what_to_do_when_it_cannot_start_over():
    log = flipped(small_run().log, 4, 50)
    model = pickle.loads(pickle.dumps(IBCB(l2=0.3).fit(log[:4])))
    before = model.coef_.copy()
    with pytest.raises(ibcb.SolverError, match=r"Call fit on the whole log, or start with solver='robust'"):
        model.partial_fit(log[4])
    np.testing.assert_array_equal(model.coef_, before)
    assert len(model.policy_coefs_) == 4


def test_one_episode_is_enough_for_partial_fit_but_not_for_fit():
    log = small_run(warmup=0).log
    with pytest.raises(ValueError, match="one episode.*two episodes or more"):
        IBCB().fit(log[0])
    model = IBCB().partial_fit(log[0])
    assert not model.coef_.any()
    assert "says nothing about the rewards" in str(model.notes_[-1])
    assert model.policy_coefs_.shape == (1, 4)
    assert IBCB(l2=0.3).fit(small_run().log[0]).policy_coefs_.any()


def test_a_named_solver_keeps_no_log_and_a_failed_fit_changes_nothing():
    log = small_run("sbts").log
    assert not hasattr(IBCB(solver="robust").fit(log), "_seen")
    model = IBCB(solver="hard", l2=0.3).fit(small_run().log)
    before = model.coef_
    with pytest.raises(ibcb.InfeasibleError):
        model.set_params(expert="sbts").fit(log)
    assert model.coef_ is before


# -- invariances ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_alpha_only_scales_theta(solver):
    run = small_run()
    one, other = fitted(solver, "sbucb"), IBCB(solver=solver, l2=0.3, alpha=0.37).fit(run.log)
    np.testing.assert_allclose(other.coef_, 0.37 * one.coef_, rtol=1e-12)
    np.testing.assert_allclose(other.policy_coefs_, 0.37 * one.policy_coefs_, rtol=1e-12)
    np.testing.assert_array_equal(one.predict(run.test_log), other.predict(run.test_log))


def test_alpha_scales_what_is_known_of_a_thompson_sampler_per_unit_of_its_draws():
    """Its exact rows do not tell how widely it draws: there the margin is the scale."""
    log = small_run("sbts").log
    one, other = (IBCB(expert="sbts", l2=0.3, alpha=alpha).fit(log) for alpha in (1.0, 0.37))
    for name in ("coef_", "intercept_", "policy_coefs_", "next_policy_coef_"):
        np.testing.assert_allclose(getattr(other, name), 0.37 * getattr(one, name), rtol=1e-12)
    one, other = (IBCB(expert="sbts", l2=0.3, alpha=alpha, forecast=None).fit(log) for alpha in (1.0, 0.37))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.policy_coefs_, other.policy_coefs_)


@pytest.mark.parametrize("solver", ["auto", "soft", "robust"])
def test_the_margin_only_scales_the_theta_of_exact_rows(solver):
    log = small_run("sbts").log
    given = {"expert": "sbts", "solver": solver, "l2": 0.3}
    one, other = (IBCB(**given, margin=margin, forecast=None).fit(log) for margin in (0.01, 0.0025))
    np.testing.assert_allclose(other.coef_, one.coef_ / 4, rtol=1e-6)
    one, other = (IBCB(**given, margin=margin).fit(log) for margin in (0.01, 0.0025))
    np.testing.assert_array_equal(other.coef_, one.coef_)
    np.testing.assert_array_equal(other.policy_coefs_, one.policy_coefs_)


@pytest.mark.parametrize(("solver", "expert"), CASES)
def test_permuting_candidates_permutes_predictions(rng, solver, expert):
    run = small_run(expert)
    order = np.array([rng.permutation(7) for _ in range(run.log.n_steps)])
    rows = (7 * np.arange(len(order))[:, None] + order).ravel()
    chosen = np.argmax(order == run.log.chosen[:, None], axis=1)
    log = run.log
    shuffled = BehaviorLog(log.contexts[rows], log.step_offsets, chosen, log.episode_offsets, warmup=log.warmup)
    one = fitted(solver, expert, forecast=None)
    other = IBCB(**settings(solver, expert), forecast=None).fit(shuffled)
    tolerance = 1e-7 if solver != "paper" else 0.05
    np.testing.assert_allclose(other.coef_, one.coef_, atol=tolerance * np.abs(one.coef_).max())
    permuted = np.take_along_axis(order, other.predict(shuffled)[:, None], axis=1)[:, 0]
    agreement = np.mean(permuted == one.predict(log))
    assert agreement == 1 or solver == "paper"


def with_a_zero_feature(log):
    wider = np.insert(log.contexts, 2, 0.0, axis=1)
    return BehaviorLog(wider, log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup)


@pytest.mark.parametrize(("solver", "expert"), CASES)
def test_an_all_zero_feature_changes_nothing(solver, expert):
    run = small_run(expert)
    one = fitted(solver, expert, forecast=None)
    other = IBCB(**settings(solver, expert), forecast=None).fit(with_a_zero_feature(run.log))
    assert other.coef_[2] == pytest.approx(0, abs=1e-12)
    tolerance = 1e-7 if solver != "paper" else 1e-2  # the scaling inside OSQP sees the empty column
    np.testing.assert_allclose(np.delete(other.coef_, 2), one.coef_, atol=tolerance * np.abs(one.coef_).max())
    if solver == "paper":
        return
    np.testing.assert_array_equal(
        other.predict(np.insert(run.test_log.contexts.reshape(-1, 7, 4), 2, 0, axis=2)), one.predict(run.test_log)
    )


@pytest.mark.parametrize("expert", ["sbucb", "sbts", "topk", "stationary", "other"])
def test_an_all_zero_feature_changes_nothing_that_is_tracked(expert):
    run = small_run("sbts" if expert == "sbts" else "sbucb")
    given = {"expert": expert, "l2": 0.3, "top_k": 2}
    one, other = IBCB(**given).fit(run.log), IBCB(**given).fit(with_a_zero_feature(run.log))
    assert other.unidentified_features_ == ("2",)
    # How far propagation goes, and from how many rows, depends on the number of weights.
    close = 0.05 if expert == "sbucb" else 1e-6
    for name in ("policy_coefs_", "next_policy_coef_") if expert == "sbucb" else ("coef_", "policy_coefs_"):
        mine, its = getattr(one, name), getattr(other, name)
        assert np.abs(its[..., 2]).max() <= 1e-12 * np.abs(mine).max()
        np.testing.assert_allclose(np.delete(its, 2, axis=-1), mine, rtol=close, atol=close * np.abs(mine).max())
    assert other.intercept_ == pytest.approx(one.intercept_, rel=10 * close, abs=close)
    picked = other.predict(np.insert(run.test_log.contexts.reshape(-1, 7, 4), 2, 0, axis=2))
    assert np.mean(picked == one.predict(run.test_log)) >= (0.99 if expert == "sbucb" else 1)


@pytest.mark.parametrize("solver", SOLVERS)
def test_ragged_equals_padded(rng, solver):
    """Padding a short candidate set with copies of a losing candidate repeats rows that are there already.

    Not those of the first episode, whose candidates tell in which units as little as possible is measured.
    """
    log = ragged_log(rng)
    pairs, first = [], log.warmup
    for number, (_, episode) in enumerate(log.episodes()):
        sets = []
        for t, chosen in enumerate(episode.chosen):
            candidates = episode.candidates(t)
            loser = candidates[(chosen + 1) % len(candidates)]
            short = 6 - len(candidates) if number != first else 0
            sets.append(np.vstack([candidates, *[loser] * short]))
        pairs.append((sets, episode.chosen))
    padded = BehaviorLog.from_episodes(pairs, warmup=1)
    assert log.candidates_per_step is None
    assert [part.candidates_per_step for _, part in padded.episodes()] == [6, None, 6, 6, 6]
    given = {"solver": solver, "l2": 0.7, "penalty": 1e9 if solver == "soft" else 40.0}
    ragged, square = (IBCB(**given, forecast=None).fit(each) for each in (log, padded))
    if solver in ("auto", "hard"):
        np.testing.assert_allclose(ragged.coef_, square.coef_, rtol=1e-6)
    elif solver == "soft":  # repeated rows weigh more, except in the limit
        np.testing.assert_allclose(ragged.coef_, square.coef_, rtol=1e-2)
    assert ragged.policy_coefs_.shape == square.policy_coefs_.shape
    if solver != "paper":
        picks = [model.predict(each) for model, each in ((ragged, log), (ragged, padded))]
        np.testing.assert_array_equal(*picks)
    # Of a track copies say the same twice, and hardly more.
    mine, its = (IBCB(**given).fit(each).next_policy_coef_ for each in (log, padded))
    assert mine @ its > 0.999 * np.linalg.norm(mine) * np.linalg.norm(its)


@pytest.mark.parametrize("solver", ["hard", "soft", "robust"])
def test_a_uniform_log_read_as_ragged_gives_the_same_bits(solver):
    """The fast path for equal numbers of candidates is only a fast path."""
    log = small_run().log
    slow = BehaviorLog(log.contexts, log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup)
    slow.candidates_per_step = None
    for episode in slow.episodes():
        assert episode[1].candidates_per_step == 7
    one = IBCB(solver=solver, l2=0.3).fit(log)
    other = IBCB(solver=solver, l2=0.3).fit(slow)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.predict(log), other.predict(slow))


# -- evidence and notes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "expert"), CASES)
def test_next_agreement_is_what_the_model_before_would_have_predicted(solver, expert):
    log, model = small_run(expert).log, fitted(solver, expert)
    assert model.diagnostics_[0].next_agreement is None
    for n in range(1, len(log)):
        past = IBCB(**(settings(solver, expert) | {"solver": model.solver_, "forecast": None})).fit(log[:n])
        seen = log[:n].contexts[log[:n].chosen_rows]
        psi_inverse = np.linalg.inv(0.3 * np.eye(4) + seen.T @ seen)
        X = log[n].contexts
        bonus = np.sqrt(np.einsum("ij,jk,ik->i", X, psi_inverse, X)) if expert == "sbucb" else 0
        picks = (X @ past.next_policy_coef_ + bonus).reshape(-1, 7).argmax(axis=1)
        assert model.diagnostics_[n].next_agreement == pytest.approx(np.mean(picks == log[n].chosen))


def test_diagnostics_tell_the_rows_that_are_violated():
    log = small_run("sbts").log
    model = IBCB(expert="sbts", l2=0.3, forecast=None).fit(log)
    assert model.diagnostics_ == IBCB(expert="sbts", l2=0.3).fit(log).diagnostics_
    assert model.solver_ == "robust"
    last = list(views(log, margin=0.01))[-1][3]
    rows = last.rows()
    violation = rows.matrix @ model.coef_ - rows.rhs
    assert model.diagnostics_[-1].violated == np.count_nonzero(violation > 1e-9)
    assert model.diagnostics_[-1].max_violation == pytest.approx(max(violation.max(), 0))


def test_a_log_that_starts_in_the_middle_is_noticed():
    log = paper_run().log
    late = log[15:]
    with pytest.warns(UserWarning, match=r"start in the middle.*\d+% of its steps; pass prior_gram="):
        model = IBCB(l2=0.3).fit(late)
    assert any("prior_gram" in str(note) for note in model.notes_)
    seen = log[:15].contexts[log[:15].chosen_rows]
    model = IBCB(l2=0.3, prior_gram=seen.T @ seen).fit(late)
    assert not any("prior_gram" in str(note) for note in model.notes_)
    assert model.solver_ == "hard"


def test_a_thompson_log_that_starts_in_the_middle_is_noted():
    log = small_run("sbts", warmup=0, n_episodes=12).log
    fresh, late = IBCB(expert="sbts").fit(log), IBCB(expert="sbts").fit(log[8:])
    assert not any("middle" in str(note) for note in fresh.notes_)
    assert any("middle" in str(note) and "prior_gram" in str(note) for note in late.notes_)


# -- the scikit-learn contract -------------------------------------------------------------------------------------


def test_parameters_are_stored_cloned_and_shown():
    model = IBCB(expert="sbts", margin=0.02)
    assert model.get_params()["margin"] == 0.02
    assert clone(model).get_params() == model.get_params()
    assert repr(model) == "IBCB(expert='sbts', margin=0.02)"
    assert {key: IBCB().get_params()[key] for key in ("expert", "alpha", "l2", "margin", "solver")} == {
        "expert": "sbucb",
        "alpha": 1.0,
        "l2": "auto",
        "margin": 0.01,
        "solver": "auto",
    }
    with pytest.raises(TypeError):
        IBCB("sbts")


ESTIMATORS = [
    IBCB,
    ibcb.BaseSVC,
    ibcb.ChoiceModel,
    lambda: ibcb.ChoiceModel(episodes=None, width=True),
    lambda: ibcb.BIRL(burn_in=50, n_samples=5, random_state=0),
    lambda: ibcb.BICB(sample=0.1, n_iterations=2, n_sweeps=10, n_dropped=5, random_state=0),
    lambda: ibcb.Averaged(ibcb.ChoiceModel()),
]


@pytest.mark.parametrize("make", ESTIMATORS)
def test_every_estimator_keeps_the_contract(make):
    run = small_run()
    with pytest.raises(NotFittedError):
        make().predict(run.log)
    model = make().fit(run.log)
    d, T = run.log.n_features, run.log.n_steps
    assert model.coef_.shape == (d,)
    scores, picks = model.decision_function(run.log), model.predict(run.log)
    assert scores.shape == (run.log.n_rows,)
    assert picks.shape == (T,)
    assert (scores.reshape(-1, 7).argmax(axis=1) == picks).all()
    steps = run.log.policy_steps
    assert model.score(run.log) == pytest.approx(np.mean(picks[steps] == run.log.chosen[steps]))
    candidates = run.test_log.candidates(7)
    assert type(model.predict(candidates)) is int
    assert model.predict(candidates) == model.predict(run.test_log)[7]
    assert model.predict(run.test_log.contexts.reshape(-1, 7, 4)).tolist() == model.predict(run.test_log).tolist()
    assert (pickle.loads(pickle.dumps(model)).predict(run.log) == picks).all()
    again = clone(model).fit(run.log)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_predictions_on_ragged_sets_take_the_first_of_equals(rng):
    log = ragged_log(rng)
    model = IBCB(l2=0.7).fit(log)
    expected = [int((log.candidates(t) @ model.next_policy_coef_).argmax()) for t in range(log.n_steps)]
    assert model.predict(log).tolist() == expected
    assert model.predict([log.candidates(t) for t in range(log.n_steps)]).tolist() == expected
    model.next_policy_coef_ = np.zeros(3)
    assert not model.predict(log).any()


def test_random_starts_teach_the_baselines_nothing():
    run = small_run()
    without = BehaviorLog.from_episodes([(e.contexts.reshape(-1, 7, 4), e.chosen) for p, e in run.log.episodes() if p])
    np.testing.assert_array_equal(ibcb.BaseSVC().fit(run.log).coef_, ibcb.BaseSVC().fit(without).coef_)
