"""The order of candidates and of features does not matter.

Of every kind, also where the log is none of its deciders': choices at random, whose rows contradict each other, so that
whatever a fit looks at first would show.
"""

from itertools import pairwise, product

import numpy as np
import pytest
from conftest import asked_for, slow
from hypothesis import given, settings
from hypothesis import strategies as st

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.deciders import KINDS

#: rounding; some of what is looked at is in single precision
TOLERANCE = 1e-6


def choices(how, *, ragged=False, seed=0, d=5):
    """Three episodes of 80 steps with about six candidates, chosen at random, or for a fixed policy."""
    rng = np.random.default_rng(seed)
    truth, mixing, episodes = rng.normal(size=d), rng.normal(size=(d, d)), []
    for _ in range(3):
        sets = [rng.normal(size=(int(rng.integers(1, 9)) if ragged else 6, d)) @ mixing for _ in range(80)]
        picks = [int(rng.integers(len(s))) if how == "random" else int((s @ truth).argmax()) for s in sets]
        episodes.append((sets, picks))
    return BehaviorLog.from_episodes(episodes)


def arms(seed=0):
    """Four arms with features of the step: weights of their own, sparse contexts."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3, 60, 2))
    return BehaviorLog.from_arms([(x, rng.integers(4, size=60)) for x in X], n_arms=4)


def tiny(seed, *, world, steps, d=3, M=4):
    """Three episodes of a few steps, mostly of candidates that nothing was learned of."""
    rng = np.random.default_rng(seed)
    shape = (3, steps)
    if world == "arms":
        X = rng.normal(size=(*shape, 2))
        return BehaviorLog.from_arms([(x, rng.integers(M, size=steps)) for x in X], n_arms=M)
    if world == "items":
        # Known by their names, and some of them twice in a step.
        sets = np.eye(d + 2)[rng.integers(d + 2, size=(*shape, M))]
    else:
        sets = rng.normal(size=(*shape, M, d)) @ rng.normal(size=(d, d))
    return BehaviorLog.from_episodes([(each, rng.integers(sets.shape[2], size=steps)) for each in sets])


def new_order(log, seed=7):
    """Of all rows, those of a step among themselves."""
    rng = np.random.default_rng(seed)
    return np.concatenate([start + rng.permutation(end - start) for start, end in pairwise(log.step_offsets)])


def candidates_moved(log):
    order = new_order(log)
    chosen = np.argsort(order)[log.chosen_rows] - log.step_offsets[:-1]
    return BehaviorLog(log.contexts[order], log.step_offsets, chosen, log.episode_offsets)


def features_moved(log, columns, signs=1.0):
    parts = (log.contexts[:, columns] * signs, log.step_offsets, log.chosen, log.episode_offsets)
    return BehaviorLog(*parts, warmup=log.warmup)


def assert_alike(one, other, back=slice(None)):
    for name in ("expert_", "l2_", "units_", "forecast_model_"):
        assert getattr(other, name) == getattr(one, name)
    for name in ("policy_coefs_", "next_policy_coef_"):
        mine, its = getattr(one, name), getattr(other, name)[..., back]
        np.testing.assert_allclose(its, mine, rtol=TOLERANCE, atol=TOLERANCE * np.abs(mine).max())
    for mine, its in zip(one.policy_interval(), other.policy_interval(), strict=True):
        np.testing.assert_allclose(its[back], mine, rtol=TOLERANCE, atol=TOLERANCE * np.abs(mine).max())


WORLDS = {
    "random": lambda: choices("random"),
    "random, ragged": lambda: choices("random", ragged=True),
    "fixed": lambda: choices("fixed", seed=1),
    "arms": arms,
}


@pytest.mark.filterwarnings("ignore:the (log seems to start|choices of the first episode)")
@pytest.mark.parametrize(
    ("expert", "world"),
    [
        *product(KINDS, ["random", "random, ragged", "arms"]),
        *(slow(kind, "fixed") for kind in (*KINDS, "auto")),
        *(("auto", "random, ragged"), ("auto", "arms"), slow("auto", "random")),
    ],
)
def test_the_order_of_candidates_and_of_features_does_not_matter(expert, world):
    log = WORLDS[world]()
    given = asked_for(expert) | ({"l2": "auto", "top_k": 2} if expert in ("topk", "auto") else {})
    one = IBCB(**given).fit(log)
    moved = candidates_moved(log)
    other = IBCB(**given).fit(moved)
    assert_alike(one, other)
    columns = np.random.default_rng(3).permutation(log.n_features)
    assert_alike(one, IBCB(**given).fit(features_moved(log, columns)), np.argsort(columns))
    np.testing.assert_allclose(
        other.propensities(moved)[moved.chosen_rows], one.propensities(log)[log.chosen_rows], rtol=1e-4
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("world", ["dense", "pairs", "arms", "items"])
@pytest.mark.parametrize("expert", KINDS)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 8]))
@settings(derandomize=True, deadline=None, max_examples=3)
def test_no_propensity_depends_on_an_order_where_little_was_learned(expert, world, seed, steps):
    """Neither of candidates nor of features: draws are taken in no coordinates of these."""
    if expert == "topk":
        # Of fewer choices among arms, the policies themselves hang on rounding.
        steps = 8
    log = tiny(seed, world=world, steps=steps, M=2 if world == "pairs" else 4)
    given = asked_for(expert) | {"l2": 0.3} | ({"top_k": 2} if expert == "topk" else {})
    one, order, moved = IBCB(**given).fit(log), new_order(log), candidates_moved(log)
    rng = np.random.default_rng(seed)
    columns, signs = rng.permutation(log.n_features), rng.choice([-1.0, 1.0], size=log.n_features)
    turned = features_moved(log, columns, signs)
    others = IBCB(**given).fit(moved), IBCB(**given).fit(turned)
    for ahead in (False, True):
        p = one.propensities(log, ahead=ahead)
        np.testing.assert_allclose(others[0].propensities(moved, ahead=ahead), p[order], rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(others[1].propensities(turned, ahead=ahead), p, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(others[1].propensities(turned[:1]), one.propensities(log[:1]), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_a_forecast_far_ahead_does_not_depend_on_the_order_of_features(expert):
    log = ibcb.simulate("synthetic", expert=expert, n_episodes=6, batch_size=60, seed=1).log
    columns = np.random.default_rng(3).permutation(log.n_features)
    one, other = (IBCB(**asked_for(expert), l2=0.3).fit(each) for each in (log, features_moved(log, columns)))
    np.testing.assert_allclose(other.forecast(4)[np.argsort(columns)], one.forecast(4), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_parameters_that_are_alike_but_for_rounding_are_told_apart_by_no_order(seed):
    # With one feature and two episodes a Thompson sampler's choices are as likely whatever l2.
    log = choices("random", d=1, seed=seed)[:2]
    one, other = (IBCB(expert="sbts", forecast=None).fit(each) for each in (log, candidates_moved(log)))
    figures = [each.log_likelihood for each in (*one.evidence_, *other.evidence_)]
    np.testing.assert_allclose(figures, figures[0], rtol=1e-12)
    assert one.evidence_[0].chosen
    assert other.evidence_[0].chosen
