"""Every solver against independent computations of the same problem."""

import numpy as np
import pytest
from conftest import paper_run, ragged_log, small_run
from scipy.optimize import minimize
from views import flipped, nearest_by_nnls, views

from ibcb.inverse.constraints import JointView
from ibcb.inverse.solvers import InfeasibleError, SolverError, hard, paper, robust, soft
from ibcb.inverse.solvers.solution import contradiction


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
        assert solution.objective == pytest.approx(np.sum((expected - centre) ** 2) / 2, rel=1e-6)
        assert solution.gap <= 1e-8 * max(solution.objective, 1e-12)
        assert solution.after.violated == 0
        assert (rows.matrix @ solution.theta <= rows.rhs + view.tolerance(solution.theta)).all()


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
def test_newton_finds_the_minimum(rng, bend, margin):
    for _, _, _, view in views(ragged_log(rng), margin=margin):
        centre, rows = rng.normal(size=3), view.rows()
        solution = soft(view, centre, penalty=5.0) if bend == np.inf else robust(view, centre, penalty=5.0, bend=bend)
        width = bend * view.bonus_scale

        def objective(theta, rows=rows, centre=centre, view=view, width=width):
            v = np.maximum(rows.matrix @ theta - rows.rhs, 0)
            bent = np.minimum(v, width)
            stiffness = view.context_scale**2
            value = stiffness / 2 * np.sum((theta - centre) ** 2) + 5 * np.sum(bent * v - bent**2 / 2)
            return value, stiffness * (theta - centre) + 5 * bent @ rows.matrix

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
            patch.setattr("ibcb.inverse.solvers.newton._POOL_NUMBERS", 0)
            passes = robust(view, centre, penalty=5.0, bend=0.3)
        np.testing.assert_allclose(pooled.theta, passes.theta, rtol=1e-7)
        assert pooled.before[::2] == passes.before[::2]
        assert pooled.after.violated == passes.after.violated
        assert pooled.before.max_violation == pytest.approx(passes.before.max_violation)
        assert pooled.iterations <= passes.iterations


def test_context_scale_is_the_root_mean_square_length(rng):
    for _, _, episode, view in views(ragged_log(rng)):
        assert view.context_scale == pytest.approx(np.sqrt(np.mean(np.sum(episode.contexts**2, axis=1))))


def test_robust_bends_to_soft_when_nothing_is_far(rng):
    for _, _, _, view in views(ragged_log(rng)):
        np.testing.assert_allclose(
            robust(view, np.zeros(3), penalty=3.0, bend=1e6).theta,
            soft(view, np.zeros(3), penalty=3.0).theta,
            rtol=1e-9,
        )


def test_the_papers_solver_reports_its_own_residuals(monkeypatch):
    monkeypatch.setattr("ibcb.inverse.solvers.admm._MAX_ITERATIONS", 10**6)
    view = next(feasible_views())
    solution, rows = paper(view, np.zeros(4)), view.rows()
    violation = rows.matrix @ solution.theta - rows.rhs
    assert solution.after.violated == np.count_nonzero(violation > view.tolerance(solution.theta))
    assert solution.after.max_violation == pytest.approx(max(violation.max(), 0), abs=1e-12)
    tight = paper(view, np.zeros(4), tolerance=1e-6)
    np.testing.assert_allclose(tight.theta, hard(view, np.zeros(4)).theta, rtol=1e-3)
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
    monkeypatch.setattr("ibcb.inverse.solvers.newton._MAX_PASSES", 1)
    monkeypatch.setattr("ibcb.inverse.solvers.newton._POOL_NUMBERS", 0)
    with pytest.raises(SolverError, match=r"soft \(penalty .*\): about .* above the minimum, .* after 2 passes"):
        soft(view, np.zeros(4), penalty=1.0)
    monkeypatch.setattr("ibcb.inverse.solvers.cutting_plane._MAX_ROUNDS", 1)
    with pytest.raises(SolverError, match="hard: .* after 1 passes"):
        hard(view, np.full(4, 100.0))
