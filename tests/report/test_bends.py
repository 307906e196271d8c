"""Whether choices depend on squares and products of the features is seen, said with names, and caps the verdict."""

import numpy as np
import pytest

import ibcb
from ibcb.report.bends import Bends

NAMES = ("price", "stars", "age", "distance")


def chosen_by(value, *, episodes=6, steps=400, seed=0):
    """A log of one who draws by the softmax of a value of the features."""
    rng, pairs = np.random.default_rng(seed), []
    for _ in range(episodes):
        X = rng.normal(size=(steps, 5, 4))
        pairs.append((X, (value(X) + rng.gumbel(size=(steps, 5))).argmax(axis=1)))
    return ibcb.BehaviorLog.from_episodes(pairs, feature_names=NAMES)


def linear(X):
    return X @ np.array([2.0, -1.0, 0.5, 1.0])


def bent(X):
    return 2 * X[..., 0] + 1.5 * X[..., 1] * X[..., 2] - X[..., 1] ** 2


@pytest.mark.parametrize("seed", range(3))
def test_products_that_count_are_seen_and_named(seed):
    log = chosen_by(bent, seed=seed)
    verdict = ibcb.IBCB(expert="stationary").fit(log).verdict(log)
    assert verdict.figures.bend > 2.326
    assert set(verdict.figures.bent[:2]) == {"stars", "age"}
    assert verdict.level != "good"
    (sentence,) = (each for each in verdict.reasons if "squares and products" in each)
    assert f"by {verdict.figures.bend:.1f} standard errors" in sentence
    assert "stars" in sentence
    # Beside it nothing is claimed of what predict picks.
    assert not any("If choices depend on these features alone" in each for each in verdict.reasons)


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_the_features_alone_have_no_bend(seed):
    log = chosen_by(linear, seed=seed)
    verdict = ibcb.IBCB(expert="stationary").fit(log).verdict(log)
    assert verdict.figures.bend < 2.326
    assert verdict.figures.bent == []
    assert not any("squares" in each for each in verdict.reasons)


def test_a_bonus_is_no_bend():
    run = ibcb.simulate("synthetic", expert="sbucb", noise=0.03, n_episodes=8, batch_size=400, n_features=6, seed=1)
    assert ibcb.IBCB(expert="sbucb", l2=0.3).fit(run.log).verdict(run.log).figures.bent == []


def test_few_episodes_tell_nothing():
    few = chosen_by(bent, episodes=3)
    assert ibcb.IBCB(expert="stationary").fit(few).verdict(few).figures.bend is None
    assert Bends().finish(4) is None
