"""Every solver against independent computations of the same problem."""

from functools import partial

import numpy as np
import pytest
from conftest import paper_run, ragged_log, small_run
from scipy.optimize import minimize
from views import candidates_metric, flipped, nearest_by_nnls, views

from ibcb.inverse.constraints import JointView
from ibcb.inverse.solvers import InfeasibleError, SolverError, cutting_plane
from ibcb.inverse.solvers.admm import paper
from ibcb.inverse.solvers.cutting_plane import contradiction, hard
from ibcb.inverse.solvers.hinge import robust, soft
from ibcb.numerics.metric import Metric


def feasible_views():
    yield from (view for _, _, _, view in views(small_run().log))
    yield from (view for _, _, _, view in list(views(paper_run().log))[::6])


def test_hard_agrees_with_an_independent_solver(rng):
    for view in feasible_views():
        centre = rng.normal(size=view.n_features)
        rows = view.rows()
        solution = hard(view, centre)
        expected = nearest_by_nnls(rows.matrix, rows.rhs, centre)
        np.testing.assert_allclose(solution.theta, expected, atol=1e-6 * max(1, np.linalg.norm(expected)))
        # Euclid's length, at the size of the contexts.
        square = view.metric.matrix[0, 0]
        assert solution.objective == pytest.approx(square * np.sum((expected - centre) ** 2) / 2, rel=1e-6)
        assert solution.gap <= 1e-8 * max(solution.objective, 1e-12)
        assert solution.after.violated == 0
        assert (rows.matrix @ solution.theta <= rows.rhs + view.tolerance(solution.theta)).all()


def in_other_units(log, factors):
    return log.with_contexts(log.contexts * factors, None)


def some_metric(rng, d):
    """One with nothing to do with the candidates."""
    A = rng.normal(size=(3 * d, d)) * 10.0 ** rng.uniform(-1, 1, size=d)
    return Metric(A.T @ A)


@pytest.mark.parametrize("which", ["candidates", "any"])
def test_hard_is_the_nearest_in_the_metric(rng, which):
    """Against the dual by non-negative least squares, and against SciPy's own quadratic programming."""
    log = small_run().log
    metric = candidates_metric(log) if which == "candidates" else some_metric(rng, 4)
    K, farther = metric.matrix, []
    for _, _, _, view in views(log, metric=metric):
        centre, rows = rng.normal(size=4), view.rows()
        solution = hard(view, centre)
        expected = nearest_by_nnls(rows.matrix, rows.rhs, centre, K)
        np.testing.assert_allclose(solution.theta, expected, atol=1e-6 * max(1, np.linalg.norm(expected)))
        away = expected - centre
        assert solution.objective == pytest.approx(away @ K @ away / 2, rel=1e-6)
        assert solution.gap <= 1e-8 * max(solution.objective, 1e-12)
        assert solution.after.violated == 0
        matters = rows.matrix @ expected > rows.rhs - 0.1
        A, b = rows.matrix[matters], rows.rhs[matters]
        found = minimize(
            lambda theta, centre=centre: (theta - centre) @ K @ (theta - centre) / 2 / K.max(),
            solution.theta + 0.01 * rng.normal(size=4),
            jac=lambda theta, centre=centre: K @ (theta - centre) / K.max(),
            method="SLSQP",
            constraints={"type": "ineq", "fun": lambda x, A=A, b=b: b - A @ x, "jac": lambda x, A=A: -A},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert found.fun * K.max() == pytest.approx(solution.objective, rel=1e-4)
        euclid = nearest_by_nnls(rows.matrix, rows.rhs, centre)
        farther.append((euclid - centre) @ K @ (euclid - centre) / 2 - solution.objective)
    # Euclid's nearest is another one.
    assert min(farther) > -1e-6
    assert which == "candidates" or max(farther) > 1e-3


@pytest.mark.parametrize("solver", ["hard", "soft", "robust"])
@pytest.mark.parametrize("margin", [None, 0.01])
def test_units_do_not_matter_to_a_solver(rng, solver, margin):
    """Features times factors, l2 times their squares, the metric of the candidates: theta over the factors."""
    factors = 10.0 ** rng.uniform(-2, 3, size=4)
    log = small_run().log
    other = in_other_units(log, factors)
    solve = {"hard": hard, "soft": partial(soft, penalty=40.0), "robust": partial(robust, penalty=40.0, bend=0.2)}
    pairs = zip(
        views(log, 0.3, margin, metric=candidates_metric(log)),
        views(other, 0.3 * factors**2, margin, metric=candidates_metric(other)),
        strict=True,
    )
    for (_, _, _, one), (_, _, _, two) in pairs:
        centre = rng.normal(size=4)
        try:
            mine = solve[solver](one, centre)
        except InfeasibleError:
            with pytest.raises(InfeasibleError):
                solve[solver](two, centre / factors)
            continue
        its = solve[solver](two, centre / factors)
        np.testing.assert_allclose(its.theta * factors, mine.theta, rtol=1e-5, atol=1e-6 * np.abs(mine.theta).max())
        assert its.objective == pytest.approx(mine.objective, rel=1e-6)
        assert (its.after.violated, its.after.agreeing) == (mine.after.violated, mine.after.agreeing)


def test_hard_leaves_a_feasible_centre_alone(rng):
    for view in feasible_views():
        inside = hard(view, rng.normal(size=view.n_features)).theta
        again = hard(view, inside)
        np.testing.assert_array_equal(again.theta, inside)
        assert (again.objective, again.iterations) == (0.0, 1)


def test_soft_with_a_large_penalty_approaches_hard(rng):
    for view in feasible_views():
        centre = 0.1 * rng.normal(size=view.n_features)
        exact = hard(view, centre).theta
        far = [np.linalg.norm(soft(view, centre, penalty=p).theta - exact) for p in (1e4, 1e7, 1e10)]
        assert far[2] <= 1e-3 * np.linalg.norm(exact - centre)
        assert far[2] <= far[1] <= far[0]


@pytest.mark.parametrize("bend", [np.inf, 0.3])
@pytest.mark.parametrize("margin", [None, 0.01])
@pytest.mark.parametrize("which", ["euclid", "candidates", "any"])
def test_newton_finds_the_minimum(rng, bend, margin, which):
    log = ragged_log(rng)
    metric = {"euclid": lambda: None, "candidates": lambda: candidates_metric(log), "any": lambda: some_metric(rng, 3)}
    for _, _, _, view in views(log, margin=margin, metric=metric[which]()):
        centre, rows = rng.normal(size=3), view.rows()
        solution = soft(view, centre, penalty=5.0) if bend == np.inf else robust(view, centre, penalty=5.0, bend=bend)
        width, K = bend * view.bonus_scale, view.metric.matrix

        def objective(theta, rows=rows, centre=centre, K=K, width=width):
            v = np.maximum(rows.matrix @ theta - rows.rhs, 0)
            bent = np.minimum(v, width)
            away = theta - centre
            value = away @ K @ away / 2 + 5 * np.sum(bent * v - bent**2 / 2)
            return value, K @ away + 5 * bent @ rows.matrix

        found = minimize(objective, centre, jac=True, method="BFGS", options={"gtol": 1e-9})
        value, gradient = objective(solution.theta)
        assert solution.objective == pytest.approx(value, rel=1e-9)
        assert value <= found.fun * (1 + 1e-9)
        # The gap bounds how far the value is from the minimum, which BFGS bounds from above.
        assert value - found.fun <= solution.gap + 1e-12 * value
        assert np.linalg.norm(gradient) <= 1e-4 * np.linalg.norm(objective(centre)[1])


@pytest.mark.parametrize("margin", [None, 0.01])
def test_newton_on_all_rows_equals_newton_on_those_that_matter(rng, monkeypatch, margin):
    for _, _, _, view in views(small_run("sbts").log, margin=margin):
        centre = rng.normal(size=4)
        pooled = robust(view, centre, penalty=5.0, bend=0.3)
        with monkeypatch.context() as patch:
            patch.setattr("ibcb.inverse.solvers.hinge._POOL_NUMBERS", 0)
            passes = robust(view, centre, penalty=5.0, bend=0.3)
        np.testing.assert_allclose(pooled.theta, passes.theta, rtol=1e-7)
        assert pooled.before[::2] == passes.before[::2]
        assert pooled.after.violated == passes.after.violated
        assert pooled.before.max_violation == pytest.approx(passes.before.max_violation)
        assert pooled.iterations <= passes.iterations


def test_robust_bends_to_soft_when_nothing_is_far(rng):
    for _, _, _, view in views(ragged_log(rng)):
        np.testing.assert_allclose(
            robust(view, np.zeros(3), penalty=3.0, bend=1e6).theta,
            soft(view, np.zeros(3), penalty=3.0).theta,
            rtol=1e-9,
        )


def test_the_papers_solver_reports_its_own_residuals(monkeypatch):
    monkeypatch.setattr("ibcb.inverse.solvers.admm._MAX_ITERATIONS", 10**6)
    view, centre = next(feasible_views()), np.array([1.0, -2.0, 0.5, 0.0])
    solution, rows = paper(view, centre), view.rows()
    violation = rows.matrix @ solution.theta - rows.rhs
    assert solution.after.violated == np.count_nonzero(violation > view.tolerance(solution.theta))
    assert solution.after.max_violation == pytest.approx(max(violation.max(), 0), abs=1e-12)
    tight = paper(view, centre, tolerance=1e-6)
    np.testing.assert_allclose(tight.theta, hard(view, centre).theta, rtol=1e-3)
    assert tight.gap <= 1e-3 * tight.objective


@pytest.mark.parametrize("margin", [None, 0.01])
def test_an_infeasible_episode_yields_a_proof(margin):
    log = small_run("sbts").log if margin else flipped(small_run().log, 2, 50)
    proofs = 0
    for number, phi, episode, view in views(log, margin=margin):
        try:
            hard(view, np.zeros(4))
        except InfeasibleError as error:
            proofs += 1
            certificate = error.certificate
        else:
            continue
        assert 1 <= len(certificate) <= 5  # d + 1
        psi_inverse = np.linalg.inv(0.3 * np.eye(4) + phi)
        total, bound, size = np.zeros(4), 0.0, 0.0
        for row in certificate:
            assert row.episode == number
            assert row.chosen == episode.chosen[row.step]
            assert row.weight > 0
            c, o = episode.candidates(row.step)[[row.chosen, row.other]]
            a = phi @ psi_inverse @ (o - c)
            H = [np.sqrt(s @ psi_inverse @ s) for s in (c, o)]
            total += row.weight * a
            size += row.weight * np.linalg.norm(a)
            bound += row.weight * (H[0] - H[1] if margin is None else -margin)
        np.testing.assert_allclose(total, 0, atol=1e-6 * size)
        assert bound == pytest.approx(-1, abs=1e-5)
        if margin is None:
            assert any(row.step == 50 for row in certificate)
    assert proofs >= 1


@pytest.mark.parametrize("seed", range(3))
def test_a_proof_does_not_depend_on_what_daqp_leaves_in_memory(monkeypatch, seed):
    rng, solve = np.random.default_rng(seed), cutting_plane.daqp.solve
    _, _, _, view = list(views(flipped(small_run().log, 2, 50)))[2]

    def proof():
        with pytest.raises(InfeasibleError) as caught:
            hard(view, np.zeros(4))
        return caught.value.certificate

    def with_garbage(*problem, **how):
        z, value, flag, info = solve(*problem, **how)
        return z, value, flag, info if flag == 1 else info | {"lam": rng.normal(size=len(info["lam"]))}

    expected = proof()
    monkeypatch.setattr(cutting_plane.daqp, "solve", with_garbage)
    assert proof() == expected


def test_feasible_rows_have_no_proof_of_the_contrary():
    for view in feasible_views():
        assert contradiction(view, view.rows()) is None


def test_rows_of_episodes_with_drift_are_feasible_alone_but_not_together():
    parts = [view for _, _, _, view in views(paper_run().log)]
    with pytest.raises(InfeasibleError) as caught:
        hard(JointView(parts), np.zeros(10))
    assert len({row.episode for row in caught.value.certificate}) > 1


def test_an_unsolved_theta_is_never_returned(monkeypatch):
    view = next(feasible_views())
    monkeypatch.setattr("ibcb.inverse.solvers.admm._MAX_ITERATIONS", 1)
    monkeypatch.setattr("ibcb.inverse.solvers.admm._SECOND_TOLERANCE", 1e-7)
    with pytest.raises(SolverError, match=r"maximum iterations reached at tolerance 1e-06 .* at tolerance 1e-07"):
        paper(view, np.full(4, 100.0), tolerance=1e-6)
    monkeypatch.setattr("ibcb.inverse.solvers.hinge._MAX_PASSES", 1)
    monkeypatch.setattr("ibcb.inverse.solvers.hinge._POOL_NUMBERS", 0)
    with pytest.raises(SolverError, match=r"soft \(penalty .*\): about .* above the minimum, .* after 2 passes"):
        soft(view, np.zeros(4), penalty=1.0)
    monkeypatch.setattr("ibcb.inverse.solvers.cutting_plane._MAX_ROUNDS", 1)
    with pytest.raises(SolverError, match="hard: .* after 1 passes"):
        hard(view, np.full(4, 100.0))
