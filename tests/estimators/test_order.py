"""The order of candidates and of features does not matter.

Of every kind, also where the log is none of its deciders': choices at random, whose rows contradict each other, so that
whatever a fit looks at first would show.
"""

from itertools import pairwise, product

import numpy as np
import pytest
from conftest import asked_for, slow

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


def candidates_moved(log):
    rng = np.random.default_rng(7)
    order = np.concatenate([start + rng.permutation(end - start) for start, end in pairwise(log.step_offsets)])
    chosen = np.argsort(order)[log.chosen_rows] - log.step_offsets[:-1]
    return BehaviorLog(log.contexts[order], log.step_offsets, chosen, log.episode_offsets)


def features_moved(log, columns):
    parts = (log.contexts[:, columns], log.step_offsets, log.chosen, log.episode_offsets)
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
