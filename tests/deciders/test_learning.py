"""Learning as a value: ridge regression by plain inversion, whatever the batches."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ibcb.deciders import Learning

L2 = np.array([0.3, 1.0, 2.0])


def begun(origin=None):
    return Learning.begin(L2, np.zeros((3, 3)), origin=origin)


@pytest.mark.parametrize("origin", [None, np.array([1.0, -2.0, 0.5])])
def test_it_is_ridge_regression(rng, origin):
    S, R = rng.normal(size=(50, 3)), rng.normal(size=50)
    learned = begun(origin).learn(S, R)
    centred = S if origin is None else S - origin
    assert_allclose(learned.gram, centred.T @ centred)
    assert_allclose(learned.moment, centred.T @ R)
    assert_allclose(learned.coef, np.linalg.solve(np.diag(L2) + centred.T @ centred, centred.T @ R))


def test_batches_add_up_and_nothing_is_changed(rng):
    S, R = rng.normal(size=(50, 3)), rng.normal(size=50)
    start = begun()
    half = start.learn(S[:20], R[:20])
    kept = half.gram.copy(), half.moment.copy()
    assert_allclose(half.learn(S[20:], R[20:]).coef, start.learn(S, R).coef)
    assert_array_equal(half.gram, kept[0])
    assert_array_equal(half.moment, kept[1])
    assert not start.coef.any()


def test_a_row_that_counts_twice_is_there_twice(rng):
    S, R, times = rng.normal(size=(30, 3)), rng.normal(size=30), rng.integers(0, 4, size=30)
    repeated = begun().learn(np.repeat(S, times, axis=0), np.repeat(R, times))
    assert_allclose(begun().learn(S, R, times.astype(float)).coef, repeated.coef)
