"""Gaussian factors of a likelihood."""

import numpy as np
import pytest

from ibcb.numerics.gaussians import site_at


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
