"""Gaussian factors of a likelihood."""

import numpy as np
import pytest

from ibcb.numerics.gaussians import draws_root, site_at


def test_an_expansion_that_peaks_above_certainty_is_held_at_it(rng):
    """Choices that hardly bend the loss where the prior holds them: same slope there, likelihood 1 at the peak."""
    V, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    information, point, slope, loss = V @ np.diag([9.0, 1.0, 1e-3, 1e-6]) @ V.T, rng.normal(size=4), V @ np.ones(4), 2.0
    site = site_at(point, information, slope, loss, least=1e-12)
    assert site.constant == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(site.root @ (site.root.T @ point - site.seen), slope, rtol=1e-9)
    # No direction is told less than before, and the loss at the point is what it was.
    assert np.linalg.eigvalsh(site.information - information)[0] > -1e-12
    apart = site.root.T @ point - site.seen
    assert float(apart @ apart) / 2 - site.constant == pytest.approx(loss)
    # One that stays below is left as it is.
    mild = site_at(point, information, 1e-4 * slope, loss, least=1e-12)
    np.testing.assert_allclose(mild.information, information, atol=1e-12)


@pytest.mark.parametrize("moved", [True, False])
def test_draws_do_not_depend_on_the_order_or_the_units_of_features(rng, moved):
    """Nor where the mean is 0, as of a decider that has learned nothing yet."""
    d = 5
    A = rng.normal(size=(d, d))
    mean, covariance = rng.normal(size=d) * moved, A @ A.T
    root = draws_root(mean, covariance)
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-8)
    order, units = rng.permutation(d), 10.0 ** rng.uniform(-30, 30, size=d)
    other = draws_root((units * mean)[order], (units[:, None] * covariance * units)[np.ix_(order, order)])
    np.testing.assert_allclose(other, units[order, None] * root[order], rtol=1e-9)


def test_features_of_which_nothing_is_known_change_no_draw_of_others(rng):
    d = 4
    A = rng.normal(size=(d, d))
    mean, covariance = np.array([0.3, -1.0, 2.0, 0.1]), A @ A.T
    wide = np.zeros((d + 1, d + 1))
    kept = np.arange(d + 1) != 1
    wide[np.ix_(kept, kept)], wide[1, 1] = covariance, 7.0
    root = draws_root(np.insert(mean, 1, 0.0), wide)
    np.testing.assert_allclose(root[kept, :d], draws_root(mean, covariance), rtol=1e-12)
