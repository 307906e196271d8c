"""Moments of the candidates against loops over steps, and the units made of them."""

import numpy as np
import pytest
from conftest import ragged_log, small_run
from replayed import first_candidates

import ibcb
from ibcb.engine import blocks, candidate_moments


def moments_of(sets):
    (block,) = blocks(ibcb.BehaviorLog.from_episodes([(sets, [0] * len(sets))]))
    return candidate_moments(block)


@pytest.fixture
def sets(rng):
    """Of two to six candidates each; the third feature is rare."""
    found = [rng.normal(size=(rng.integers(1, 7), 4)) * [1.0, 5.0, 1.0, 0.1] + [0, 2, 0, 1] for _ in range(50)]
    for each in found:
        each[rng.random(len(each)) < 0.8, 2] = 0.0
    return found


def test_moments_are_means_over_candidates(sets):
    found, X = moments_of(sets), np.vstack(sets)
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.second, sum(np.outer(s, s) for s in X) / len(X), rtol=1e-10)
    centred = np.vstack([each - each.mean(axis=0) for each in sets])
    np.testing.assert_allclose(found.within, centred.T @ centred / len(X), rtol=1e-9, atol=1e-12)
    shown = [np.mean(x[x != 0] ** 2) for x in X.T]
    np.testing.assert_allclose(found.shown, shown, rtol=1e-10)


def test_frames_are_those_of_features_scaled_and_standardised(sets):
    X = np.vstack(sets)
    scaled, standardized = moments_of(sets).frames()
    assert (scaled.name, standardized.name) == ("scaled", "standardized")
    # Where a feature shows: one that is 0 or 1 has the unit 1, however rare it is.
    np.testing.assert_allclose(scaled.scale, [np.sqrt(np.mean(x[x != 0] ** 2)) for x in X.T])
    assert not scaled.origin.any()
    np.testing.assert_allclose(standardized.scale, X.std(axis=0))
    np.testing.assert_allclose(standardized.origin, X.mean(axis=0))


def test_a_feature_without_size_or_spread_has_a_unit_all_the_same(sets):
    wide = [np.column_stack([each, np.zeros(len(each)), np.full(len(each), 7.0)]) for each in sets]
    found = moments_of(wide)
    for frame, expected in zip(found.frames(), ((1.0, 7.0), (1.0, 7.0)), strict=True):
        assert (frame.scale > 0).all()
        np.testing.assert_allclose(frame.scale[4:], expected)
    for unit in (found.unit, found.unit_within, found.metric):
        assert np.isfinite(unit).all()
        assert (np.linalg.eigvalsh(unit) > 0).all()


@pytest.mark.parametrize("name", ["unit", "unit_within"])
def test_units_are_inverse_second_moments_but_for_a_share_of_each_feature(sets, name):
    found = moments_of(sets)
    moment = found.second if name == "unit" else found.within
    own = found.shown if name == "unit" else found.within.diagonal()
    np.testing.assert_allclose(getattr(found, name) @ (moment + 0.05 * np.diag(own)), np.eye(4), atol=1e-9)
    factors = np.array([1e3, 0.02, 7.0, 1.0])
    other = moments_of([each * factors for each in sets])
    np.testing.assert_allclose(getattr(other, name) * factors * factors[:, None], getattr(found, name), rtol=1e-8)


def test_units_within_do_not_depend_on_where_features_have_their_zero(sets):
    shift = np.array([3.0, -20.0, 0.0, 1.0])
    shifted = moments_of([each + shift for each in sets])
    np.testing.assert_allclose(shifted.unit_within, moments_of(sets).unit_within, rtol=1e-7)


def test_the_metric_is_the_mean_square_of_each_feature(sets):
    X = np.vstack(sets)
    np.testing.assert_allclose(moments_of(sets).metric, np.diag(np.mean(X**2, axis=0)))


def test_features_are_in_mixed_units_where_their_sizes_are_far_apart(rng):
    X = rng.normal(size=(30, 4, 3))
    assert not moments_of(X * [1.0, 8.0, 1.0]).mixed
    assert moments_of(X * [1.0, 15.0, 1.0]).mixed
    # A feature that is always 0 has no size, and one that is rare is as large as where it shows.
    assert not moments_of(X * [1.0, 0.0, 1.0]).mixed
    rare = X.copy()
    rare[:29, :, 1] = 0.0
    assert not moments_of(rare).mixed
    assert not moments_of(X[:, :, :1]).mixed


def test_the_first_candidates_are_those_of_the_policys_first_episode(rng):
    for log in (small_run().log, ragged_log(rng)):
        first = next(episode for by_policy, episode in log.episodes() if by_policy)
        np.testing.assert_allclose(first_candidates(log).mean, first.contexts.mean(axis=0), rtol=1e-12)


def test_single_precision_is_summed_in_double(rng):
    X = rng.normal(size=(30, 4, 3)).astype(np.float32)
    one, other = moments_of(X), moments_of(X.astype(float))
    for name in ("mean", "second", "within", "shown"):
        assert getattr(one, name).dtype == np.float64
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
