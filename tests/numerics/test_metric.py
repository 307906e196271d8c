"""The length of weights: against the quadratic form itself, in features of any unit."""

import numpy as np
import pytest

from ibcb.numerics.metric import Metric


@pytest.fixture(name="K")
def some_matrix(rng):
    A = rng.normal(size=(30, 4)) * [1.0, 1e5, 1e-4, 3.0]
    return A.T @ A / 30


def test_lengths_are_those_of_the_quadratic_form(K, rng):
    x = rng.normal(size=4)
    assert Metric(K).square(x) == pytest.approx(sum(x[i] * K[i, j] * x[j] for i in range(4) for j in range(4)))
    assert Metric(K).square(np.zeros(4)) == 0


def test_the_root_takes_euclids_length_to_it(K, rng):
    T = Metric(K).root
    np.testing.assert_allclose(T.T @ K @ T, np.eye(4), atol=1e-10)
    z = rng.normal(size=4)
    assert Metric(K).square(T @ z) == pytest.approx(z @ z)


def test_the_dual_length_is_the_largest_slope(K, rng):
    slope = rng.normal(size=4) * [1.0, 1e5, 1e-4, 3.0]
    found = Metric(K).dual_square(slope)
    assert found == pytest.approx(slope @ np.linalg.solve(K, slope), rel=1e-8)
    steepest = np.linalg.solve(K, slope)
    steepest /= np.sqrt(steepest @ K @ steepest)
    assert (slope @ steepest) ** 2 == pytest.approx(found)
    for x in rng.normal(size=(100, 4)) / [1.0, 1e5, 1e-4, 3.0]:
        assert (slope @ x) ** 2 <= found * (x @ K @ x) * (1 + 1e-9)


def test_a_singular_metric_says_what_to_do():
    with pytest.raises(ValueError, match="singular in floating point; rescale"):
        _ = Metric(np.ones((3, 3)) - 1e-3 * np.eye(3)).root
