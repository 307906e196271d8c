"""Units do not matter: a feature times any positive number has its weight over it, and nothing else changes.

Of every kind, named and told from the log, with every solver but the paper's, and l2 in units of the features; where l2
is a number, it is the decider's own units that are meant.
"""

import functools
from itertools import product

import numpy as np
import pytest
from conftest import ragged_log, slow, small_run
from numpy.testing import assert_allclose, assert_array_equal

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.deciders import KINDS

SIZE = {"n_episodes": 5, "batch_size": 80}
EXPERTS = ["sbucb", "sbts", "topk", "stationary", "other", "auto"]
#: powers of two change no digit
POWERS = 2.0 ** np.array([-7, 10, 0, 4])
FACTORS = 10.0 ** np.array([-1.7, 2.9, 0.4, 1.3])
#: every solver with an expert it can solve: a decider that draws has no exact explanation; what is tracked does not
#: depend on the solver
CASES = [
    (expert, solver, None)
    for expert in EXPERTS
    for solver in ("auto", "hard", "soft", "robust")
    if solver != "hard" or expert in ("sbucb", "auto")
]
CASES += [(expert, "auto", "auto") for expert in EXPERTS]


def case(expert, solver, forecast, *more):
    """One of the cases; the solver comes after a kind was told from the log, and has no say in what is only tracked."""
    own = solver == "auto" or expert in ("sbucb", "sbts")
    return (pytest.param if own else slow)(expert, solver, forecast, *more)


def log_of(expert, ragged=False):
    if ragged:
        return ragged_log(np.random.default_rng(4), d=4, steps=60)
    world = {"sbts": "sbts"}.get(expert, "sbucb")
    return small_run(world, **SIZE, top_k=2 if expert == "topk" else None).log


def rewritten(log, change, dtype=np.float64):
    """The log with other features."""
    contexts = change(log.contexts.astype(np.float64)).astype(dtype)
    return BehaviorLog(contexts, log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup)


@functools.cache
def plain(expert, solver, forecast, ragged=False, single=False):
    log = log_of(expert, ragged)
    log = rewritten(log, lambda X: X, np.float32) if single else log
    return IBCB(expert=expert, solver=solver, forecast=forecast).fit(log)


def assert_same_in_other_units(one, other, factors, tolerance):
    """All that two models tell, but for the units of weights."""
    assert (other.expert_, other.l2_, other.units_, other.top_k_) == (one.expert_, one.l2_, one.units_, one.top_k_)
    assert (other.solver_, other.forecast_model_) == (one.solver_, one.forecast_model_)
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        mine, its = getattr(one, name), getattr(other, name) * factors
        assert_allclose(its, mine, rtol=tolerance, atol=tolerance * np.abs(mine).max(), err_msg=name)
    assert other.intercept_ == pytest.approx(one.intercept_, rel=tolerance, abs=tolerance)
    assert len(other.evidence_) == len(one.evidence_)
    for mine, its in zip(one.evidence_, other.evidence_, strict=True):
        assert its._replace(log_likelihood=0.0) == mine._replace(log_likelihood=0.0)
        assert its.log_likelihood == pytest.approx(mine.log_likelihood, abs=tolerance)
    for mine, its in zip(one.diagnostics_, other.diagnostics_, strict=True):
        assert (its.episode, its.steps, its.status) == (mine.episode, mine.steps, mine.status)
        assert (its.violated, its.next_agreement) == (mine.violated, mine.next_agreement)
        assert its.max_violation == pytest.approx(mine.max_violation, rel=1e-4, abs=1e-9)
    assert [note.code for note in other.notes_] == [note.code for note in one.notes_]
    sets = np.random.default_rng(9).normal(size=(100, 5, len(factors))) + 0.3
    assert_array_equal(other.predict(sets * factors), one.predict(sets))
    length = np.abs(one.direction(one.policy_coefs_)).max()
    assert_allclose(
        other.direction(other.policy_coefs_) * factors, one.direction(one.policy_coefs_), atol=tolerance * length
    )
    if one.forecast_model_ is None:
        return
    assert other.unidentified_features_ == one.unidentified_features_
    assert_allclose(other.forecast(4) * factors, one.forecast(4), rtol=1e-3, atol=1e-3 * np.abs(one.forecast(4)).max())
    assert_allclose(other.certainty(sets * factors), one.certainty(sets), atol=0.005)
    for direction in (False, True):
        found, own = (each.policy_interval(direction=direction) for each in (other, one))
        for mine, its in zip(own, found, strict=True):
            assert_allclose(its * factors, mine, rtol=1e-5, atol=1e-5 * np.abs(own.upper - own.lower).max())
    if one.decider_.learns:
        wide = np.append(factors, 1.0)
        for mine, its in zip(one.reward_interval(), other.reward_interval(), strict=True):
            assert_allclose(its * wide, mine, rtol=1e-5, atol=1e-5 * np.abs(mine).max())


@pytest.mark.parametrize(
    ("expert", "solver", "forecast", "which"),
    # Powers of two with every solver, and of a kind that is told: in single precision, below.
    [case(*given, "any") for given in CASES]
    + [(case if given[2] and given[0] != "auto" else slow)(*given, "powers of two") for given in CASES],
)
def test_units_do_not_matter(expert, solver, forecast, which):
    factors, tolerance = (POWERS, 1e-9) if which == "powers of two" else (FACTORS, 1e-6)
    log = rewritten(log_of(expert), lambda X: X * factors)
    other = IBCB(expert=expert, solver=solver, forecast=forecast).fit(log)
    assert_same_in_other_units(plain(expert, solver, forecast), other, factors, tolerance)


@pytest.mark.parametrize("expert", [*EXPERTS[:-1], slow("auto")])
@pytest.mark.parametrize("forecast", ["auto", slow(None)])
def test_nor_of_ragged_candidate_sets(expert, forecast):
    log = rewritten(log_of(expert, ragged=True), lambda X: X * FACTORS)
    other = IBCB(expert=expert, forecast=forecast).fit(log)
    assert_same_in_other_units(plain(expert, "auto", forecast, ragged=True), other, FACTORS, 1e-6)


@pytest.mark.parametrize(("expert", "solver", "forecast"), [case(*given) for given in CASES])
def test_nor_in_single_precision(expert, solver, forecast):
    """By powers of two, which single precision holds as it holds the rest."""
    log = rewritten(log_of(expert), lambda X: X.astype(np.float32) * POWERS.astype(np.float32), np.float32)
    other = IBCB(expert=expert, solver=solver, forecast=forecast).fit(log)
    assert_same_in_other_units(plain(expert, solver, forecast, single=True), other, POWERS, 1e-8)


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_nor_to_the_recovered_policy(expert):
    one = plain(expert, "auto", "auto")
    other = IBCB(expert=expert).fit(rewritten(log_of(expert), lambda X: X * FACTORS))
    mine, its = (each.to_policy(random_state=3) for each in (one, other))
    rng = np.random.default_rng(1)
    for _ in range(3):
        sets = rng.normal(size=(60, 5, 4)) + 0.3
        picks = mine.act(sets)
        if expert == "sbucb":  # a draw has its own luck in other units
            assert_array_equal(its.act(sets * FACTORS), picks)
        S, R = sets[np.arange(60), picks], rng.normal(size=60)
        mine.update(S, R)
        its.update(S * FACTORS, R)
        assert_allclose(its.coef_ * FACTORS, mine.coef_, rtol=1e-6, atol=1e-8)


# -- l2 in the units of the log --------------------------------------------------------------------------------------


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@functools.cache
def world(expert):
    return ibcb.simulate(
        "synthetic", expert=expert, noise=0.03, n_episodes=8, batch_size=300, n_candidates=8, n_features=8, seed=11
    )


@functools.cache
def as_it_is(expert, given, l2):
    return IBCB(expert=given, l2=l2).fit(world(expert).log)


def in_units(run, factors):
    """The run seen in other units: its log, and its test log."""
    return (rewritten(log, lambda X: X * factors) for log in (run.log, run.test_log))


@pytest.mark.parametrize(
    ("expert", "kind", "l2"),
    [
        *product(["sbucb", "sbts"], ["named"], [0.3, "auto"]),
        *(("sbucb", "auto", 0.3), slow("sbucb", "auto", "auto")),
        *(slow("sbts", "auto", 0.3), ("sbts", "auto", "auto")),
    ],
)
@pytest.mark.parametrize("seed", [0, slow(1)])
def test_policies_in_mixed_units_are_the_deciders_own(expert, kind, l2, seed):
    """With l2 a number, features of far different sizes are seen to be in units that are not the decider's."""
    run, factors = world(expert), 10.0 ** np.random.default_rng(seed).uniform(-2, 3, size=8)
    log, test = in_units(run, factors)
    given = expert if kind == "named" else "auto"
    model, own = IBCB(expert=given, l2=l2).fit(log), as_it_is(expert, given, l2)
    assert model.expert_ == own.expert_ == expert
    for mine, its in list(zip(model.policy_coefs_, run.policy_coefs, strict=False))[2:]:
        assert cosine(mine * factors, its) > 0.98
    assert cosine(model.next_policy_coef_ * factors, run.policy_coefs[-1]) > 0.98
    fitness = [np.mean(each.predict(part) == part.chosen) for each, part in ((own, run.test_log), (model, test))]
    assert fitness[0] == pytest.approx(ibcb.metrics.bt_fitness(own, run))
    assert abs(fitness[0] - fitness[1]) <= 0.01
    if l2 == 0.3:
        assert (own.units_, own.l2_) == ("own", 0.3)
        assert model.units_ != "own"
        (note,) = (note for note in model.notes_ if note.code == "kind-chosen")
        assert model.units_ in note.text


def test_a_number_is_kept_where_units_are_alike():
    run = world("sbucb")
    model = IBCB(l2=0.3).fit(rewritten(run.log, lambda X: X * [1.0, 2.0, 0.5, 3.0, 1.0, 1.0, 1.0, 1.0]))
    assert (model.l2_, model.units_, model.evidence_) == (0.3, "own", ())


@pytest.mark.parametrize("seed", [2, slow(3)])
def test_a_number_is_kept_where_the_decider_had_these_units(seed):
    """One that learned from features of far different sizes as they are, with l2 = 0.3."""
    rng, scale = np.random.default_rng(seed), np.array([0.05, 1.0, 20.0])
    expert, pairs = ibcb.SBUCB(3, alpha=0.4, l2=0.3), []
    for number in range(8):
        X = rng.normal(size=(250, 6, 3)) * scale
        chosen = rng.integers(6, size=250) if number == 0 else expert.act(X)
        S = X[np.arange(250), chosen]
        expert.update(S, S @ (np.array([0.5, -0.3, 0.4]) / scale))
        pairs.append((X, chosen))
    model = IBCB(l2=0.3).fit(BehaviorLog.from_episodes(pairs, warmup=1))
    assert len(model.evidence_) == 1 + sum(map(len, KINDS["sbucb"].penalties.values()))
    assert (model.l2_, model.units_) == (0.3, "own")


def test_the_papers_solver_takes_l2_as_it_is_given():
    run = world("sbucb")
    log, _ = in_units(run, np.array([0.01, 1.0, 100.0, 1.0, 10.0, 1.0, 1.0, 1.0]))
    model = IBCB(solver="paper", forecast=None, l2=0.3).fit(log)
    assert (model.l2_, model.units_, model.evidence_) == (0.3, "own", ())


# -- shifts ----------------------------------------------------------------------------------------------------------

SHIFT = np.array([0.7, -3.0, 10.0, 0.2])


@pytest.mark.parametrize("expert", ["topk", "stationary", "other"])
@pytest.mark.parametrize("ragged", [False, True])
def test_a_shift_is_nothing_to_a_decider_that_is_only_tracked(expert, ragged):
    """Choices depend on differences between candidates."""
    log = rewritten(log_of(expert, ragged), lambda X: X + SHIFT)
    one, other = plain(expert, "auto", "auto", ragged), IBCB(expert=expert).fit(log)
    assert (other.top_k_, other.forecast_model_) == (one.top_k_, one.forecast_model_)
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        mine, its = getattr(one, name), getattr(other, name)
        assert_allclose(its, mine, rtol=1e-5, atol=1e-6 * np.abs(mine).max(), err_msg=name)
    sets = np.random.default_rng(9).normal(size=(100, 5, 4))
    assert_array_equal(other.predict(sets + SHIFT), one.predict(sets))
    assert_allclose(other.certainty(sets + SHIFT), one.certainty(sets), atol=0.005)
    for mine, its in zip(one.policy_interval(), other.policy_interval(), strict=True):
        assert_allclose(its, mine, rtol=1e-4, atol=1e-5 * np.abs(mine).max())


@pytest.mark.parametrize(
    ("expert", "kind"), [("sbucb", "named"), ("sbts", "named"), slow("sbucb", "auto"), ("sbts", "auto")]
)
def test_a_shift_changes_little_of_a_learner(expert, kind):
    """It learned from features with their zero elsewhere; which l2, units and kind describe it best may change."""
    run = world(expert)
    shift = run.log.contexts.std(axis=0) * [1.0, -1.0, 2.0, 0.5, 0.0, -2.0, 1.0, 0.0]
    given = expert if kind == "named" else "auto"
    one, other = as_it_is(expert, given, "auto"), IBCB(expert=given).fit(rewritten(run.log, lambda X: X + shift))
    assert one.expert_ == expert
    for mine, its in list(zip(one.policy_coefs_, other.policy_coefs_, strict=True))[2:]:
        assert cosine(mine, its) >= 0.98
    assert cosine(one.next_policy_coef_, other.next_policy_coef_) >= 0.98
    shifted = rewritten(run.test_log, lambda X: X + shift)
    assert np.mean(other.predict(shifted) == one.predict(run.test_log)) >= 0.96
