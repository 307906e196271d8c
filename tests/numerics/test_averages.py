"""Choice rules averaged over a belief: beside plain draws from it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import ndtr, softmax

from ibcb.numerics.averages import ERROR, best_of_draws, softmax_of_draws, top_k_of_draws

STEPS, M, D = 60, 5, 4
OFFSETS = np.arange(0, STEPS * M + 1, M)


@pytest.fixture
def world(rng):
    root = rng.normal(size=(D, D)) / 2
    return rng.normal(size=(STEPS * M, D)), rng.normal(size=D), root @ root.T


def drawn(world, count=40_000, seed=1):
    """Scores of all candidates by policies drawn at random. Shape (steps, M, count)."""
    X, mean, covariance = world
    draws = np.random.default_rng(seed).multivariate_normal(mean, covariance, size=count)
    return (X @ draws.T).reshape(STEPS, M, count)


def apart(found, expected):
    """Mean total variation."""
    return np.abs(found.reshape(STEPS, M) - expected).sum(axis=1).mean() / 2


def test_the_best_is_as_probable_as_draws_make_it(world):
    scores = drawn(world)
    expected = (scores == scores.max(axis=1, keepdims=True)).mean(axis=2)
    errors = [apart(best_of_draws(world[0], OFFSETS, *world[1:], draws), expected) for draws in (32, 512)]
    assert errors[1] < 0.02
    # And by more than as many draws at random would.
    for draws, error in zip((32, 512), errors, strict=True):
        plain = [drawn(world, draws, seed) for seed in range(2, 12)]
        assert error < np.mean([apart((s == s.max(axis=1, keepdims=True)).mean(axis=2), expected) for s in plain])


def random_world(seed, d, M):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) / 2
    return rng.normal(size=(STEPS * M, d)), rng.normal(size=d), root @ root.T


@pytest.mark.parametrize("known", [1.0, 0.0], ids=["one frame", "frames of the steps"])
def test_the_error_is_the_published_one(known):
    """Of the best, which is the least smooth; 0: a belief that tells no feature from another."""
    errors = []
    for seed in range(20):
        for d, M in ((2, 4), (4, 5), (8, 6)):
            X, mean, covariance = random_world(seed, d, M)
            draws = np.random.default_rng(seed + 1).multivariate_normal(known * mean, covariance, size=20_000)
            scores = (X @ draws.T).reshape(STEPS, M, -1)
            expected = (scores == scores.max(axis=1, keepdims=True)).mean(axis=2)
            found = best_of_draws(X, np.arange(STEPS + 1) * M, known * mean, covariance, 512).reshape(STEPS, M)
            errors.append(np.abs(found - expected).sum(axis=1).mean() / 2)
    most = ERROR / 2 if known else ERROR
    assert most / 2 < np.mean(errors) < most


def test_of_two_the_better_one_is_as_probable_as_the_normal_distribution_says():
    X, mean, covariance = random_world(0, 3, 2)
    lead = X[::2] - X[1::2]
    expected = ndtr(lead @ mean / np.sqrt(np.einsum("nd,de,ne->n", lead, covariance, lead)))
    found = best_of_draws(X, np.arange(STEPS + 1) * 2, mean, covariance, 8)
    assert_allclose(found[::2], expected, atol=1e-9)
    assert_allclose(found[1::2], 1 - expected, atol=1e-9)


@pytest.mark.parametrize("how", ["normal", "alike", "more than features"])
@pytest.mark.parametrize("rule", [best_of_draws, softmax_of_draws, "top_k"])
def test_where_no_feature_is_told_from_another_no_frame_matters(rng, rule, how):
    """By turns of all features, and by another order of candidates, some of which are alike."""
    d, M = (2, 9) if how == "more than features" else (6, 4)
    X, mean, covariance = random_world(3, d, M)
    mean *= 0.0
    if how == "alike":
        X, mean, covariance = np.eye(d)[rng.integers(d, size=STEPS * M)], np.zeros(d), np.eye(d) + 0.3
    offsets, order = np.arange(STEPS + 1) * M, np.concatenate([M * n + rng.permutation(M) for n in range(STEPS)])
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0] if how != "normal" else np.eye(d)[rng.permutation(d)]

    def call(X, mean, covariance):
        if rule == "top_k":
            return top_k_of_draws(X, offsets, mean, covariance, 64, top_k=2, scale=1.0)
        return rule(X, offsets, mean, covariance, 64)

    found = call(X, mean, covariance)
    assert_allclose(np.add.reduceat(found, offsets[:-1]), 1.0)
    assert_allclose(call(X[order], mean, covariance), found[order], atol=1e-9)
    assert_allclose(call((X @ turn)[order], mean @ turn, turn.T @ covariance @ turn), found[order], atol=1e-6)
    if how == "alike":
        one_of_each = np.sort(X.argmax(axis=1).reshape(STEPS, M), axis=1)
        apart_all = (np.diff(one_of_each, axis=1) > 0).all(axis=1)
        assert_allclose(found.reshape(STEPS, M)[apart_all], 1 / M, atol=1e-9)


def test_a_few_draws_all_but_rule_out_nobody_who_is_taken_now_and_then(world):
    """What is left to the softmax fills the gaps between draws."""
    scores = drawn(world)
    expected = (scores == scores.max(axis=1, keepdims=True)).mean(axis=2)
    found = best_of_draws(world[0], OFFSETS, *world[1:], 32).reshape(STEPS, M)
    assert found[expected > 0.02].min() > 0.004


def test_so_is_a_softmax(world):
    expected = softmax(drawn(world), axis=1).mean(axis=2)
    error = apart(softmax_of_draws(world[0], OFFSETS, *world[1:], 128), expected)
    assert error < 0.02
    assert error < np.mean([apart(softmax(drawn(world, 128, s), axis=1).mean(axis=2), expected) for s in range(2, 12)])


def test_and_a_draw_from_the_best(world):
    X, mean, covariance = world
    # With long weights it is clear who is among the best; with scale 0 each of them is drawn as often.
    scores = drawn((X, 100 * mean, 1e4 * covariance))
    best = np.argsort(np.argsort(-scores, axis=1), axis=1) < 2
    expected = (best / 2).mean(axis=2)
    found = top_k_of_draws(X, OFFSETS, 100 * mean, 1e4 * covariance, 512, top_k=2, scale=0.0)
    assert apart(found, expected) < 0.02
    weights = np.where(best, np.exp(0.02 * (scores - scores.max(axis=1, keepdims=True))), 0.0)
    expected = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=2)
    found = top_k_of_draws(X, OFFSETS, 100 * mean, 1e4 * covariance, 512, top_k=2, scale=0.02)
    assert apart(found, expected) < 0.02


@pytest.mark.parametrize("rule", [best_of_draws, softmax_of_draws, "top_k"])
def test_probabilities_add_up_and_storage_does_not_matter(rng, world, rule):
    def call(X, offsets):
        if rule == "top_k":
            return top_k_of_draws(X, offsets, *world[1:], 16, top_k=2, scale=1.0)
        return rule(X, offsets, *world[1:], 16)

    counts = rng.integers(1, 7, size=40)
    offsets, X = np.append(0, counts.cumsum()), rng.normal(size=(counts.sum(), D))
    found = call(X, offsets)
    assert (found > 0).all()
    assert_allclose(np.add.reduceat(found, offsets[:-1]), 1.0)
    assert_allclose(found[offsets[:-1]][counts == 1], 1.0)
    assert_allclose(call(sparse.csr_array(X), offsets), found, atol=1e-9)


def test_scores_that_are_known_make_the_choice_certain(world):
    X, mean, _ = world
    found = best_of_draws(X, OFFSETS, mean, np.zeros((D, D)), 8).reshape(STEPS, M)
    best = (X @ mean).reshape(STEPS, M).argmax(axis=1)
    assert_allclose(found[np.arange(STEPS), best], 1.0)
    # Candidates that do not differ are as probable.
    assert_allclose(best_of_draws(np.ones((3, D)), np.array([0, 3]), mean, np.eye(D), 8), 1 / 3)
