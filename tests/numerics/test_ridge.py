"""Ridge algebra against the textbook formulas."""

import numpy as np
import pytest

from ibcb.numerics.ridge import gram, ridge


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 7, 5000])
def test_widths_are_the_norm_under_psi_inverse(rng, rows, dtype):
    S, X = rng.normal(size=(50, 6)), rng.normal(size=(rows, 6)).astype(dtype)
    fitted = ridge(S.T @ S, 0.3)
    psi_inverse = np.linalg.inv(0.3 * np.eye(6) + S.T @ S)
    expected = np.sqrt(np.array([x @ psi_inverse @ x for x in X.astype(float)]))
    widths = fitted.widths(X)
    assert widths.dtype == dtype
    np.testing.assert_allclose(widths, expected, rtol=2e-5 if dtype == np.float32 else 1e-12)


def test_shrinkage_takes_expected_rewards_to_the_ridge_estimate(rng):
    S, theta = rng.normal(size=(40, 5)), rng.normal(size=5)
    fitted = ridge(gram(S), 0.8)
    estimate = np.linalg.solve(S.T @ S + 0.8 * np.eye(5), S.T @ (S @ theta))
    np.testing.assert_allclose(fitted.shrinkage @ theta, estimate, rtol=1e-12)
    np.testing.assert_allclose(fitted.shrinkage, np.eye(5) - 0.8 * np.linalg.inv(S.T @ S + 0.8 * np.eye(5)), atol=1e-12)


def test_shrinkage_keeps_its_digits_when_contexts_are_tiny(rng):
    S = 1e-12 * rng.normal(size=(40, 3))
    np.testing.assert_allclose(ridge(gram(S), 1.0).shrinkage, S.T @ S, rtol=1e-9)


def test_gram_in_parts_equals_gram_at_once(rng):
    S = rng.normal(size=(300, 4)).astype(np.float32)
    parts = sum(gram(part) for part in np.array_split(S, 7))
    np.testing.assert_allclose(parts, S.astype(float).T @ S.astype(float), rtol=1e-12)


def test_a_psi_singular_in_floating_point_says_what_to_do():
    S = np.full((10, 3), 1e12)
    with pytest.raises(ValueError, match=r"1e\+12|1e\+13|3.16e\+12.*Rescale the contexts"):
        ridge(gram(S), 1e-9)
