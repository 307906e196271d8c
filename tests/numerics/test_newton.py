"""Damped Newton: minima known in closed form, and every way to end without one."""

from typing import NamedTuple

import numpy as np
import pytest

from ibcb.numerics.newton import SolverError, Stopping, descend

STOPPING = Stopping(gain=1e-14, slack=1e-15, max_passes=60, floor=1.0)


class At(NamedTuple):
    x: np.ndarray
    value: float
    gradient: np.ndarray
    hessians: tuple[np.ndarray, ...]


def valley(x):
    """sum x - log x: its Newton steps overshoot into x < 0 from afar; least at 1."""
    with np.errstate(invalid="ignore"):
        return At(x, float(np.sum(x - np.log(x))), 1 - 1 / x, (np.diag(1 / x**2),))


def hill(x):
    """-exp(-x^2 / 2): not convex beyond 1; 1 is above its second derivative everywhere."""
    e = np.exp(-(x**2) / 2)
    return At(x, -float(e[0]), x * e, (np.diag(e * (1 - x**2)), np.eye(1)))


@pytest.mark.parametrize("start", [1e-3, 0.5, 1.0, 1.9, 30.0])
def test_the_line_search_leads_to_the_minimum_from_anywhere(start):
    found = descend(valley, np.full(3, start), STOPPING)
    assert found.solved
    np.testing.assert_allclose(found.point.x, 1, rtol=1e-6)
    assert 0 <= found.gain <= 1e-13
    assert found.passes < 60


def test_a_quadratic_takes_one_step(rng):
    A = rng.normal(size=(4, 4))
    H, best = A @ A.T + np.eye(4), rng.normal(size=4)
    found = descend(lambda x: At(x, (x - best) @ H @ (x - best) / 2, H @ (x - best), (H,)), np.zeros(4), STOPPING)
    np.testing.assert_allclose(found.point.x, best)
    assert found.passes == 2
    assert found.hessian is H


def test_where_it_is_not_convex_the_bound_leads_on():
    found = descend(hill, np.array([3.0]), STOPPING)
    np.testing.assert_allclose(found.point.x, 0, atol=1e-6)
    assert found.hessian[0, 0] == pytest.approx(1)


def test_every_pass_is_counted_and_none_is_made_beyond_the_limit():
    looks = []

    def at(x):
        looks.append(x)
        return valley(x)

    found = descend(at, np.array([30.0]), Stopping(gain=1e-14, slack=0.0, max_passes=4))
    assert (found.passes, len(looks), found.status) == (4, 4, "out of passes")
    with pytest.raises(SolverError, match=r"a valley: about .* above the minimum, .* after 4 passes .* Go down\."):
        raise found.error("a valley", "Go down.")


def test_its_own_test_ends_it_earlier():
    found = descend(valley, np.array([30.0]), STOPPING, lambda here: here.value < 2)
    assert found.solved
    assert found.gain > 1e-3


@pytest.mark.parametrize(
    "value, hessian",
    [
        (1.0, np.zeros((2, 2))),
        (1.0, np.diag([1.0, -1.0])),
        (1.0, np.diag([np.inf, 1.0])),
        (1.0, np.full((2, 2), np.nan)),
        (np.nan, np.eye(2)),
        (np.inf, np.eye(2)),
    ],
)
def test_what_has_no_finite_newton_step_is_no_solution(value, hessian):
    found = descend(lambda x: At(x, value, np.ones(2), (hessian,)), np.zeros(2), STOPPING)
    assert not found.solved
    assert "singular in floating point, or not finite" in str(found.error("a plane", "Tilt it."))


def test_a_step_that_rounding_hides_is_the_end_if_so_told():
    """F is flat in floating point long before its gradient is 0."""
    big = 1e16

    def at(x):
        return At(x, big + float(x @ x), 2 * x, (2 * np.eye(1),))

    found = descend(at, np.array([0.5]), Stopping(gain=0.0, slack=1e-15, max_passes=60, shortest=1e-12))
    assert found.solved
    assert found.passes <= 3
    assert abs(found.point.x[0]) < 0.5
