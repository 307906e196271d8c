"""Beliefs about a cone: expectation propagation against rejection sampling and closed forms."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.stats import norm, truncnorm

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.deciders import Columns
from ibcb.deciders.cone import Best, Cone, _distinct, cone_sites
from ibcb.deciders.sbucb import UpperBound
from ibcb.engine import Block, blocks
from ibcb.numerics.gaussians import Beliefs, factor
from ibcb.numerics.half_spaces import ConeRows, EPSettings, Posterior, propagate
from ibcb.numerics.ridge import Ridge, gram, ridge

STRAY = EPSettings().stray


def seen(block: Block, before: Ridge, *, bonus: bool = True) -> Columns:
    """The candidates as a decider sees them that takes the best."""
    return (UpperBound() if bonus else Best()).columns(block, before)


def cone_of(log: BehaviorLog, before: Ridge) -> Cone:
    (block,) = blocks(log)
    return Cone(block, seen(block, before))


def fresh(rows: np.ndarray) -> ConeRows:
    return ConeRows.fresh(rows, np.arange(len(rows)))


def learn(rows: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of w after the rows, and their log-likelihood."""
    return moments(propagate(fresh(rows), mean, factor(covariance)))


def moments(found: Posterior) -> tuple[np.ndarray, np.ndarray, float]:
    return found.mean, found.root @ found.root.T, found.log_likelihood


def sampled(rows: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    drawn = np.random.default_rng(0).multivariate_normal(mean, covariance, size=2_000_000)
    inside = drawn[(drawn @ rows.T <= 0).all(axis=1)]
    return inside.mean(axis=0), np.cov(inside.T), float(np.log(len(inside) / len(drawn)))


def test_one_row_cuts_a_normal_law():
    """Of one row the belief has the very moments: of the law cut by it, and by STRAY of the law as it was."""
    mean, deviation = 0.7, 1.3
    got, spread, likelihood = learn(np.array([[2.0]]), np.array([mean]), np.array([[deviation**2]]))
    cut, holds = truncnorm(-np.inf, -mean / deviation, loc=mean, scale=deviation), norm.cdf(-mean / deviation)
    total = STRAY + (1 - STRAY) * holds
    astray = STRAY / total
    expected = (1 - astray) * cut.mean() + astray * mean
    square = (1 - astray) * (cut.var() + cut.mean() ** 2) + astray * (deviation**2 + mean**2)
    # Passes end when they move the mean by less than a fiftieth of its deviation.
    assert_allclose(got, expected, atol=0.02 * np.sqrt(square - expected**2))
    assert_allclose(spread, square - expected**2, rtol=0.03)
    assert_allclose(likelihood, np.log(total), rtol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_beliefs_have_the_moments_of_the_law_cut_by_the_rows(seed):
    rng = np.random.default_rng(seed)
    mean, root = rng.normal(size=3), rng.normal(size=(3, 3)) + np.eye(3)
    inside = mean + 0.3 * rng.normal(size=3)
    rows = rng.normal(size=(12, 3))
    rows *= -np.sign(rows @ inside)[:, None]
    got, spread, likelihood = learn(rows, mean, root @ root.T)
    exact, own, share = sampled(rows, mean, root @ root.T)
    deviation = np.sqrt(own.diagonal())
    assert (np.abs(got - exact) < 0.15 * deviation).all()
    assert_allclose(np.sqrt(spread.diagonal()), deviation, rtol=0.25)
    assert abs(likelihood - share) < 0.3


def test_a_thousand_rows_that_say_the_same_say_it_hardly_more_than_once():
    """Half-spaces that nearly coincide. Taken for a thousand messages they would fix the belief to a hundredth."""
    rng = np.random.default_rng(0)
    rows = np.array([1.0, 0.5, -0.2]) + 1e-4 * rng.normal(size=(1000, 3))
    got, spread, _ = learn(rows, np.zeros(3), np.eye(3))
    exact, own, _ = learn(rows[:1], np.zeros(3), np.eye(3))
    deviation = np.sqrt(own.diagonal())
    assert (np.abs(got - exact) < 0.35 * deviation).all()
    assert_allclose(np.sqrt(spread.diagonal()), deviation, rtol=0.35)


def test_a_row_that_contradicts_what_is_known_is_left_alone():
    known, certain = np.array([3.0, 1.0]), 0.01 * np.eye(2)
    wrong = np.array([[1.0, 0.0]])
    right = np.array([[-1.0, 2.9]])
    one, both = learn(right, known, certain), learn(np.vstack([right, wrong]), known, certain)
    assert_allclose(both[0], one[0], atol=1e-6)
    assert_allclose(both[1], one[1], atol=1e-6)
    assert_allclose(both[2] - one[2], np.log(STRAY), rtol=0.01)


def test_the_unit_of_rows_and_of_features_does_not_matter():
    rng = np.random.default_rng(1)
    rows, unit = rng.normal(size=(30, 4)), np.array([1e-6, 1.0, 1e3, 1e6])
    rows *= -np.sign(rows @ np.ones(4))[:, None]
    mean, covariance = np.ones(4), np.diag([1.0, 2.0, 3.0, 0.5])
    got, spread, likelihood = learn(rows, mean, covariance)
    other = learn(rng.uniform(0.1, 10, size=(30, 1)) * rows / unit, mean * unit, covariance * unit * unit[:, None])
    assert_allclose(other[0] / unit, got, rtol=1e-6)
    assert_allclose(other[1] / unit / unit[:, None], spread, rtol=1e-5, atol=1e-9)
    assert_allclose(other[2], likelihood, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_sites_are_one_factor_that_says_the_same(episode, seed):
    """By a Kalman update with it a belief becomes what propagation makes of it, at the same likelihood."""
    log, before, w = episode
    rng = np.random.default_rng(seed)
    beliefs = []
    for scale in (1.0, 0.2):
        A = scale * rng.normal(size=(5, 5))
        beliefs.append(Beliefs((w + 0.3 * scale * rng.normal(size=5))[None], (A @ A.T + 0.1 * np.eye(5))[None]))
    (block,) = blocks(log)
    (own, other), _ = cone_sites(block, seen(block, before), beliefs, STRAY)
    exact = Cone(block, seen(block, before)).learn(beliefs[0].mean[0], factor(beliefs[0].covariance[0]))
    learned, likelihood = beliefs[0].given(own)
    mean, covariance, likely = moments(exact)
    deviation = np.sqrt(covariance.diagonal())
    assert (np.abs(learned.mean[0] - mean) < 1e-5 * deviation).all()
    assert_allclose(learned.covariance[0], covariance, rtol=1e-4, atol=1e-6 * deviation.max() ** 2)
    assert_allclose(likelihood[0], likely, rtol=1e-6, atol=1e-6)
    # And the factor of the second belief, found with the first one's rows, is the one that its own search finds.
    (alone,), _ = cone_sites(block, seen(block, before), beliefs[1:], STRAY)
    one, two = (moments_of(beliefs[1].given(site)[0]) for site in (other, alone))
    unit = np.sqrt(two[1].diagonal())
    assert (np.abs(one[0] - two[0]) < 0.3 * unit).all()


def moments_of(belief: Beliefs) -> tuple[np.ndarray, np.ndarray]:
    return belief.mean[0], belief.covariance[0]


def test_a_covariance_that_lacks_a_direction_has_a_root():
    root = factor(np.outer([1.0, 2.0, 1e6], [1.0, 2.0, 1e6]))
    assert_allclose(root @ root.T, np.outer([1.0, 2.0, 1e6], [1.0, 2.0, 1e6]), rtol=1e-9)


# -- which rows ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def episode() -> tuple[ibcb.BehaviorLog, Ridge, np.ndarray]:
    """An episode of choices without error, what had been learned before it, and w."""
    run = ibcb.simulate("synthetic", noise=0.03, n_episodes=3, batch_size=600, n_candidates=6, n_features=4, seed=11)
    stored = [part for _, part in run.log.episodes()]
    before = ridge(sum((gram(part.contexts[part.chosen_rows]) for part in stored[:-1]), np.zeros((4, 4))), 0.3)
    return stored[-1], before, np.append(run.policy_coefs[2] / run.expert_settings.alpha, 1.0)


def every_row(log: ibcb.BehaviorLog, before: Ridge) -> np.ndarray:
    features = np.column_stack([log.contexts, before.widths(log.contexts)]).reshape(log.n_steps, -1, 5)
    leads = features - features[np.arange(log.n_steps), log.chosen][:, None]
    return leads[np.arange(leads.shape[1]) != log.chosen[:, None]]


def test_the_informative_rows_tell_as_much_as_all(episode):
    log, before, w = episode
    mean, covariance = np.zeros(5), np.diag([4.0, 4.0, 4.0, 4.0, 1.0])
    told = cone_of(log, before).learn(mean, factor(covariance))
    rows = np.vstack([-np.eye(5)[-1:], every_row(log, before)])
    assert (rows @ w <= 1e-9).all()
    assert len(told.rows.leads) < len(rows) / 2
    few, every = quantiles(*moments(told)[:2]), quantiles(*learn(rows, mean, covariance)[:2])
    width = every[2] - every[0]
    assert (np.abs(few - every) < 0.15 * width).all()
    # From the sites that it ended with, propagation has nowhere to go.
    again = quantiles(*moments(propagate(told.rows, mean, factor(covariance)))[:2])
    assert (np.abs(again - few) < 0.05 * width).all()


def quantiles(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Of p / alpha: of w only the direction is told."""
    w = np.random.default_rng(0).multivariate_normal(mean, covariance, size=20_000)
    w = w[w[:, -1] > 0]
    found: np.ndarray = np.quantile(w[:, :-1] / w[:, -1:], [0.1, 0.5, 0.9], axis=0)
    return found


def test_candidates_that_do_not_differ_have_no_row(episode):
    log, before, _ = episode
    X = log.contexts.reshape(log.n_steps, -1, 4)
    twice = np.concatenate([X, X[np.arange(log.n_steps), log.chosen][:, None]], axis=1)
    both = ibcb.BehaviorLog.from_episodes([(twice, log.chosen)])
    mean, covariance = np.zeros(5), np.diag([4.0, 4.0, 4.0, 4.0, 1.0])
    one, other = (cone_of(part, before).learn(mean, factor(covariance)) for part in (log, both))
    assert (np.abs(other.rows.leads).max(axis=1) > 0).all()
    mine, its = (quantiles(*moments(each)[:2]) for each in (one, other))
    assert (np.abs(mine - its) < 0.15 * (mine[2] - mine[0])).all()


def test_an_episode_that_nobody_can_learn_from_teaches_nothing(episode):
    """All candidates alike: no rows but alpha > 0, and the belief keeps its direction."""
    _, before, _ = episode
    same = ibcb.BehaviorLog.from_episodes([(np.ones((20, 3, 4)), np.zeros(20, dtype=int))])
    mean, covariance = np.array([1.0, 0.0, 0.0, 0.0, 5.0]), np.eye(5)
    told = cone_of(same, before).learn(mean, factor(covariance))
    assert len(told.rows.leads) <= 1
    got, spread, likelihood = moments(told)
    assert_allclose(got, mean, atol=1e-3)
    assert_allclose(spread, covariance, atol=1e-3)
    assert abs(likelihood) < 0.01


@pytest.mark.parametrize("flipped", [0.0, 0.01])
@pytest.mark.parametrize("seed", range(3))
def test_which_belief_is_likelier_does_not_depend_on_who_is_asked_first(flipped, seed):
    """Nor on how rows are searched: all of them at once say the same, those that contradict the rest included."""
    rng, d, steps = np.random.default_rng(seed), 6, 400
    X, S, p = rng.normal(size=(steps, 8, d)), rng.normal(size=(500, d)), rng.normal(size=d)
    before, w = ridge(S.T @ S, 0.3), np.append(p, 1.0)
    widths = before.widths(X.reshape(-1, d)).reshape(steps, 8)
    chosen = (X @ p + widths).argmax(axis=1)
    wrong = rng.random(steps) < flipped
    chosen[wrong] = rng.integers(8, size=wrong.sum())
    log = ibcb.BehaviorLog.from_episodes([(X, chosen)])
    narrow, wide = (
        Beliefs((w + scale * rng.normal(size=d + 1))[None], scale**2 * np.eye(d + 1)[None]) for scale in (0.05, 0.5)
    )
    features = np.concatenate([X, widths[:, :, None]], axis=2)
    leads = (features - features[np.arange(steps), chosen][:, None])[np.arange(8) != chosen[:, None]]
    exact = [learn(leads, belief.mean[0], belief.covariance[0])[2] for belief in (narrow, wide)]
    for order in ((narrow, wide), (wide, narrow)):
        sites, _ = cone_sites(blocks(log)[0], seen(blocks(log)[0], before), order, STRAY)
        found = {id(belief): belief.given(site)[1][0] for belief, site in zip(order, sites, strict=True)}
        assert abs(found[id(narrow)] - found[id(wide)] - (exact[0] - exact[1])) < 4


def test_copies_of_the_chosen_candidate_say_nothing_whatever_the_rounding_of_their_widths():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(143, 7, 200)).astype(np.float32)
    X[-1, -1] = X[-1, 0]
    log = ibcb.BehaviorLog.from_episodes([(X, np.zeros(143, dtype=int))])
    S = rng.normal(size=(300, 200))
    learned = cone_of(log, ridge(S.T @ S, 1.0)).learn(np.zeros(201), np.eye(201))
    assert 143 * 7 - 1 not in learned.rows.places


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_the_share_of_wrong_rows_is_learned_and_does_no_harm(share):
    """Choices at random, of which most rows fail: the policy of the others is found, and the share is told."""
    rng, d, steps = np.random.default_rng(7), 5, 500
    X, S, p = rng.normal(size=(steps, 6, d)), rng.normal(size=(400, d)), rng.normal(size=d)
    before = ridge(S.T @ S, 0.3)
    widths = before.widths(X.reshape(-1, d)).reshape(steps, 6)
    chosen = (X @ p + widths).argmax(axis=1)
    wrong = rng.random(steps) < share
    chosen[wrong] = rng.integers(6, size=wrong.sum())
    (block,) = blocks(ibcb.BehaviorLog.from_episodes([(X, chosen)]))
    prior = Beliefs(np.append(np.zeros(d), 1.0)[None], np.diag([4.0] * d + [1.0])[None])
    (site,), stray = cone_sites(block, seen(block, before), [prior], STRAY)
    found = prior.given(site)[0].mean[0]
    assert found[:d] @ p > 0.99 * np.linalg.norm(found[:d]) * np.linalg.norm(p)
    # Of a random choice about half of the rows fail.
    scores = X @ p + widths
    failing = np.mean((scores > scores[np.arange(steps), chosen][:, None]).sum(axis=1) / 6)
    assert stray == pytest.approx(failing, abs=0.02)
    assert (stray > STRAY) == (share > 0)


def test_rows_that_repeat_are_counted_with_their_opposites():
    """By brute force: how often each ordered pair (other, chosen) of equal candidates is there."""
    rng = np.random.default_rng(5)
    items, steps = np.eye(4), 60
    shown = np.array([rng.choice(4, 3, replace=False) for _ in range(steps)])
    picks = rng.integers(3, size=steps)
    block = Block(items[shown].reshape(-1, 4), np.arange(steps) * 3 + picks, np.arange(0, 3 * steps + 1, 3), 3, 0, 0)
    rows, times, both_ways = _distinct(block)
    pairs = [(int(o), int(shown[t, picks[t]])) for t in range(steps) for o in shown[t]]
    counts = Counter(pairs)
    expected = {(o, c): k - counts[c, o] for (o, c), k in counts.items() if o == c or k > counts[c, o]}
    expected = {pair: k if pair[0] != pair[1] else counts[pair] for pair, k in expected.items()}
    found = dict(zip([pairs[row] for row in rows], times.tolist(), strict=True))
    # Candidates that do not differ from the chosen one have a row of zeros, whichever they are.
    assert {pair: k for pair, k in found.items() if pair[0] != pair[1]} == {
        pair: k for pair, k in expected.items() if pair[0] != pair[1]
    }
    assert both_ways == sum(min(k, counts[c, o]) for (o, c), k in counts.items() if o < c)


def test_choices_that_contradict_each_other_again_and_again_can_be_learned_from():
    """Arms without features, drawn by chance: every order of two arms is there dozens of times."""
    rng = np.random.default_rng(0)
    episodes = [(np.empty((300, 0)), rng.choice(5, 300, p=[0.5, 0.2, 0.1, 0.1, 0.1])) for _ in range(4)]
    log = BehaviorLog.from_arms(episodes, warmup=1)
    model = IBCB(expert="sbucb").fit(log)
    assert model.predict(log)[-1] == 0


def cold_linucb(seed, *, arms=4, steps=120):
    """Disjoint LinUCB from nothing, by its textbook: while arms are untried they are equal, and the first is taken."""
    rng = np.random.default_rng(seed)
    worth, A, b, episodes = rng.normal(size=(arms, 3)), np.tile(np.eye(3), (arms, 1, 1)), np.zeros((arms, 3)), []
    for _ in range(8):
        X = rng.normal(size=(steps, 3))
        inverse = np.linalg.inv(A)
        bounds = X @ np.einsum("kij,kj->ki", inverse, b).T + np.sqrt(np.einsum("bi,kij,bj->bk", X, inverse, X))
        chosen = bounds.argmax(axis=1)
        for arm in range(arms):
            S = X[chosen == arm]
            A[arm] += S.T @ S
            b[arm] += S.T @ (S @ worth[arm] + 0.3 * rng.normal(size=len(S)))
        episodes.append((X, chosen))
    return ibcb.BehaviorLog.from_arms(episodes, n_arms=arms)


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_which_of_the_untried_arms_was_taken_tells_nothing(form, bonus):
    log = cold_linucb(0)
    # All of the second episode took one arm of three that were alike.
    assert len(set(log.chosen[:120])) == len(set(log.chosen[120:240])) == 1
    first, second = log[0], log[1]
    before = ridge(gram(first.contexts[first.chosen_rows]), 1.0)
    contexts = second.contexts if form == "dense" else sparse.csr_array(second.contexts)
    (block,) = blocks(BehaviorLog(contexts, second.step_offsets, second.chosen, [0, 120]))
    cone = Cone(block, seen(block, before, bonus=bonus))
    arms = cone._rows % 4
    # The arm that was tried, and the chosen one with itself.
    assert set(arms.tolist()) == {first.chosen[0], second.chosen[0]}
    assert cone.tells


@pytest.mark.parametrize("expert", ["sbucb", "auto"])
def test_a_decider_with_untried_arms_is_tracked_and_told(expert):
    log = cold_linucb(1)
    model = ibcb.IBCB(expert=expert).fit(log)
    assert (model.expert_, model.solver_) == ("sbucb", "hard")
    assert model.forecast_model_ is not None
    p = model.propensities(log).reshape(-1, 4)
    late = np.arange(log.n_steps) >= 360
    assert p[late, log.chosen[late]].mean() > 0.95
