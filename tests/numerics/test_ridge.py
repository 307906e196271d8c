"""Ridge algebra against the textbook formulas, in the units of the log and in those of a frame."""

import pickle

import numpy as np
import pytest

from ibcb.numerics.ridge import Chosen, Frame, Regularization, Whitener, gram, ridge, widths


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


def test_shrinkage_keeps_its_digits_when_contexts_are_tiny(rng):
    S = 1e-12 * rng.normal(size=(40, 3))
    np.testing.assert_allclose(ridge(gram(S), 1.0).shrinkage, S.T @ S, rtol=1e-9)


def test_a_psi_singular_in_floating_point_says_what_to_do():
    S = np.full((10, 3), 1e12)
    with pytest.raises(ValueError, match=r"1e\+12|1e\+13|3.16e\+12.*Rescale the contexts"):
        ridge(gram(S), 1e-9)


# -- frames ----------------------------------------------------------------------------------------------------------


def chosen_of(S):
    """The sums of some contexts, in two episodes."""
    found = Chosen.before_the_log(np.zeros((S.shape[1], S.shape[1])))
    for part in np.array_split(S, 2):
        found = found.and_then(len(part), part.sum(axis=0), part.T @ part)
    return found


FRAMES = ["own", "scaled", "standardized"]


def frame_of(X, name):
    """Of candidates X, recomputed."""
    if name == "own":
        return None
    if name == "scaled":
        return Frame("scaled", np.sqrt(np.mean(X**2, axis=0)), np.zeros(X.shape[1]))
    return Frame("standardized", X.std(axis=0), X.mean(axis=0))


@pytest.fixture
def world(rng):
    """Candidates in different units and far from 0, and some of them that were chosen."""
    X = rng.normal(size=(400, 5)) @ rng.normal(size=(5, 5)) * [1.0, 20.0, 0.05, 3.0, 1.0] + [0.3, 50.0, 0.0, -4.0, 1.0]
    return X, X[rng.permutation(400)[:60]]


def test_sums_of_what_was_chosen(rng):
    S = rng.normal(size=(31, 3)) + 2.0
    found = chosen_of(S)
    assert found.count == 31
    np.testing.assert_allclose(found.total, S.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.phi, S.T @ S, rtol=1e-12)
    for origin in (np.zeros(3), S.mean(axis=0), np.array([5.0, -1.0, 0.2])):
        np.testing.assert_allclose(found.about(origin), (S - origin).T @ (S - origin), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(found.about(np.zeros(3)), found.phi)


def test_of_choices_before_the_log_only_the_gram_matrix_is_known(rng):
    S = rng.normal(size=(10, 3))
    past = Chosen.before_the_log(S.T @ S)
    assert (past.count, past.total) == (0, None)
    later = past.and_then(10, S.sum(axis=0), S.T @ S)
    assert (later.count, later.total) == (10, None)
    np.testing.assert_allclose(later.phi, 2 * S.T @ S)
    with pytest.raises(ValueError, match="not known, so they have no origin"):
        later.about(np.ones(3))
    nothing = Chosen.before_the_log(np.zeros((3, 3)))
    np.testing.assert_array_equal(nothing.total, np.zeros(3))


@pytest.mark.parametrize("name", FRAMES)
def test_a_ridge_in_a_frame_is_ridge_regression_on_features_brought_to_it(world, rng, name):
    """Policies, widths and shrinkage, from features that are explicitly scaled and centred."""
    (X, S), l2, theta, c = world, 0.7, rng.normal(size=5), 0.4
    frame = frame_of(X, name)
    given = Regularization(l2, frame)
    assert given.units == name
    fitted = given.ridge(chosen_of(S))
    scale, origin = (np.ones(5), np.zeros(5)) if frame is None else (frame.scale, frame.origin)
    Z, V = (S - origin) / scale, (X - origin) / scale
    psi = Z.T @ Z + l2 * np.eye(5)
    np.testing.assert_allclose(fitted.psi / scale / scale[:, None], psi, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fitted.penalty, l2 * scale**2)
    np.testing.assert_allclose(fitted.phi, (S - origin).T @ (S - origin), rtol=1e-9, atol=1e-7)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", V, np.linalg.inv(psi), V))
    np.testing.assert_allclose(fitted.widths(X), expected, rtol=1e-9)
    W = fitted.whitener
    np.testing.assert_allclose(widths(W, X), expected, rtol=1e-9)
    assert (W.offset is None) == (name != "standardized")
    # Of differences the origin has no part.
    lead = (X[1:] - X[:-1]) / scale
    np.testing.assert_allclose(
        fitted.lengths(X[1:] - X[:-1]), np.sqrt(np.einsum("ij,jk,ik->i", lead, np.linalg.inv(psi), lead)), rtol=1e-9
    )
    # A policy in the units of the log: weights of scaled features, each over its scale.
    R = S @ theta + c
    weights = np.linalg.solve(psi, Z.T @ R) / scale
    np.testing.assert_allclose(fitted.solve((S - origin).T @ R), weights, rtol=1e-8)
    shrunk = np.linalg.solve(psi, Z.T @ (Z @ (scale * theta))) / scale
    np.testing.assert_allclose(fitted.shrinkage @ theta, shrunk, rtol=1e-8)


@pytest.mark.parametrize("name", ["scaled", "standardized"])
def test_units_of_the_log_are_nothing_to_a_ridge_in_a_frame(world, rng, name):
    X, S = world
    factors = 10.0 ** rng.uniform(-2, 3, size=5)
    one = Regularization(0.3, frame_of(X, name)).ridge(chosen_of(S))
    other = Regularization(0.3, frame_of(X * factors, name)).ridge(chosen_of(S * factors))
    np.testing.assert_allclose(other.widths(X * factors), one.widths(X), rtol=1e-8)
    np.testing.assert_allclose(other.shrinkage * factors[:, None] / factors, one.shrinkage, rtol=1e-6, atol=1e-9)
    powers = 2.0 ** rng.integers(-8, 9, size=5)
    exact = Regularization(0.3, frame_of(X * powers, name)).ridge(chosen_of(S * powers))
    np.testing.assert_array_equal(exact.widths(X * powers), one.widths(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_widths_about_an_origin_have_the_type_of_the_contexts(rng, dtype):
    S, X, origin = rng.normal(size=(40, 3)), rng.normal(size=(20, 3)).astype(dtype), np.array([0.5, -1.0, 2.0])
    fitted = ridge((S - origin).T @ (S - origin), np.array([0.3, 1.0, 2.0]), origin)
    psi_inverse = np.linalg.inv((S - origin).T @ (S - origin) + np.diag([0.3, 1.0, 2.0]))
    away = X.astype(float) - origin
    found = fitted.widths(X)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, np.sqrt(np.einsum("ij,jk,ik->i", away, psi_inverse, away)), rtol=1e-5 if dtype == np.float32 else 1e-12
    )


def test_a_frame_is_equal_to_itself_and_travels(world):
    X, _ = world
    frames = [frame_of(X, name) for name in ("scaled", "standardized")]
    for frame in frames:
        again = pickle.loads(pickle.dumps(frame))
        assert again == frame
        assert hash(again) == hash(frame)
        assert Regularization(0.3, again) == Regularization(0.3, frame)
        assert len({Regularization(0.3, again), Regularization(0.3, frame), Regularization(1.0, frame)}) == 2
    assert frames[0] != frames[1]
    assert frames[0] != Frame("scaled", 2 * frames[0].scale, frames[0].origin)
    assert Regularization(0.3) != Regularization(0.3, frames[0])
    assert frames[0] != "scaled"


def test_whiteners_are_the_same_if_widths_are():
    W, o = np.eye(2), np.ones(2)
    assert Whitener(W, None).same(Whitener(W.copy(), None))
    assert Whitener(W, o).same(Whitener(W.copy(), o.copy()))
    for other in (None, Whitener(2 * W, None), Whitener(W, o)):
        assert not Whitener(W, None).same(other)
    assert not Whitener(W, o).same(Whitener(W, 2 * o))
