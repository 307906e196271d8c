"""Rewards from how a policy evolved: recovered exactly where they can be, and the least squares written out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from replayed import tracked

import ibcb
from ibcb.deciders import KINDS
from ibcb.numerics.ridge import Chosen, Frame, Regularization
from ibcb.tracking import reward_interval, rewards
from ibcb.tracking.forecast import _rewards_now
from ibcb.tracking.reward_fit import RewardFit

D = 4


class World:
    """A decider that learns by ridge regression on rewards <theta, s> + c without noise, from some origin."""

    def __init__(self, seed, *, episodes=6, steps=60, frame=None, past=40, shared=False):
        rng = np.random.default_rng(seed)
        self.theta, self.c = rng.normal(size=D), 0.7
        X = rng.normal(size=(500, D)) @ rng.normal(size=(D, D)) + [1.0, 0.0, -0.5, 2.0]
        if shared:
            X[:, 1] = 3.0
        self.second = X.T @ X / len(X)
        self.within = np.cov(X.T, bias=True)
        self.regularization = Regularization(0.3, frame)
        origin = np.zeros(D) if frame is None else frame.origin
        self.S = [X[rng.integers(500, size=past if not n else steps)] - origin for n in range(episodes)]
        self.known, chosen = [], Chosen.before_the_log(np.zeros((D, D)))
        for S in self.S:
            s = S + origin
            chosen = chosen.and_then(len(s), s.sum(axis=0), s.T @ s)
            seen = np.vstack(self.S[: len(self.known) + 1])
            ridge = self.regularization.ridge(chosen)
            p = np.linalg.solve(seen.T @ seen + np.diag(ridge.penalty), seen.T @ (seen @ self.theta + self.c))
            self.known.append((p, ridge, seen.sum(axis=0)))

    def fit(self, policies=None, covariances=None):
        """All episodes, with policies as they are or as they are given."""
        fit = None
        for n, (p, ridge, total) in enumerate(self.known):
            p = p if policies is None else policies[n]
            if fit is None:
                fit = RewardFit.begin(p, ridge, total, self.within, np.linalg.inv(self.second))
            else:
                C = 1e-4 * np.eye(D) if covariances is None else covariances[n]
                fit = fit.after(p, C, ridge, total, self.within, np.linalg.inv(self.second))
        return fit


@pytest.mark.parametrize("seed", range(3))
def test_exact_policies_give_back_the_rewards(seed):
    world = World(seed)
    found = world.fit().solve()
    # What is left is the pull towards rewards of the size of scores, a millionth of the weight of a misfit, and of
    # their level, a hundred-thousandth.
    assert_allclose(np.append(found.theta, found.c), np.append(world.theta, world.c), rtol=3e-2)
    assert found.covariance.shape == (D + 1, D + 1)
    assert (np.linalg.eigvalsh(found.covariance) > 0).all()


def test_without_a_pull_they_are_exact_to_rounding(monkeypatch):
    monkeypatch.setattr("ibcb.tracking.reward_fit._SIZE", 0.0)
    monkeypatch.setattr("ibcb.tracking.reward_fit._LEVEL", 0.0)
    for seed in range(3):
        world = World(seed)
        found = world.fit().solve()
        assert_allclose(np.append(found.theta, found.c), np.append(world.theta, world.c), rtol=1e-6)


def test_measured_from_an_origin_too(monkeypatch):
    monkeypatch.setattr("ibcb.tracking.reward_fit._SIZE", 0.0)
    monkeypatch.setattr("ibcb.tracking.reward_fit._LEVEL", 0.0)
    frame = Frame("standardized", np.array([1.0, 2.0, 0.5, 1.0]), np.array([1.0, 0.0, -0.5, 2.0]))
    world = World(1, frame=frame)
    found = world.fit().solve()
    assert_allclose(np.append(found.theta, found.c), np.append(world.theta, world.c), rtol=1e-6)


def by_hand(world, policies, covariances):
    """The generalised least squares of the module's description, equation by equation."""
    V, e, rows, right, weights = world.within, 0.03, [], [], []
    p1, first, total1 = policies[0], world.known[0][1], world.known[0][2]
    psi1 = first.phi + np.diag(first.penalty)
    size = p1 @ V @ p1
    A = np.linalg.inv(psi1) @ np.column_stack([first.phi, total1])
    rows.append(A), right.append(p1), weights.append(0.03 * V / (e**2 * size))
    for n in range(1, len(policies)):
        _, ridge, total = world.known[n]
        back = np.linalg.inv(ridge.phi + np.diag(ridge.penalty))
        rows.append(back @ np.column_stack([ridge.phi - first.phi, total - total1]))
        right.append(policies[n] - back @ psi1 @ p1)
        weights.append(np.linalg.inv(covariances[n] + e**2 * (policies[n] @ V @ policies[n]) * np.linalg.inv(V)))
    # And rewards are not far beyond the size of scores.
    pull = 1e-6 / (e**2 * size)
    rows += [np.eye(D + 1)[:D], np.eye(D + 1)[D:]]
    right += [np.zeros(D), np.zeros(1)]
    weights += [pull * world.second, 10 * pull * np.eye(1)]
    normal = sum(A.T @ W @ A for A, W in zip(rows, weights, strict=True))
    moment = sum(A.T @ W @ y for A, W, y in zip(rows, weights, right, strict=True))
    x = np.linalg.solve(normal, moment)
    squares = sum(y @ W @ y for W, y in zip(weights, right, strict=True))
    left = max((squares - x @ moment) / 24.0, 0.4)
    return x, left * np.linalg.inv(normal)


@pytest.mark.parametrize("seed", range(3))
def test_the_least_squares_written_out(seed):
    world, rng = World(seed), np.random.default_rng(100 + seed)
    policies = [p * (1 + 0.05 * rng.normal(size=D)) for p, _, _ in world.known]
    roots = [0.05 * rng.normal(size=(D, D)) for _ in policies]
    covariances = [A @ A.T + 1e-4 * np.eye(D) for A in roots]
    fit = world.fit(policies, covariances)
    found, doubted = fit.solve(), fit.solve(0.1)
    x, covariance = by_hand(world, policies, covariances)
    assert_allclose(doubted.covariance - found.covariance, 0.01 * np.outer(x, x), rtol=1e-4)
    assert_allclose(np.append(found.theta, found.c), x, rtol=1e-5)
    assert_allclose(found.covariance, covariance, rtol=1e-4, atol=1e-6 * np.abs(covariance).max())


def test_units_of_the_features_do_not_matter():
    factors = np.array([100.0, 0.02, 1.0, 5.0])
    world, rng = World(0), np.random.default_rng(5)
    policies = [p * (1 + 0.05 * rng.normal(size=D)) for p, _, _ in world.known]
    covariances = [1e-3 * np.eye(D)] * len(policies)
    one = world.fit(policies, covariances).solve()
    fit, chosen = None, Chosen.before_the_log(np.zeros((D, D)))
    frame = Frame("scaled", factors, np.zeros(D))
    within, second = (M * factors * factors[:, None] for M in (world.within, world.second))
    for n, S in enumerate(world.S):
        s = S * factors
        chosen = chosen.and_then(len(s), s.sum(axis=0), s.T @ s)
        ridge = Regularization(0.3, frame).ridge(chosen)
        p, C = policies[n] / factors, covariances[n] / factors / factors[:, None]
        if fit is None:
            fit = RewardFit.begin(p, ridge, chosen.total, within, np.linalg.inv(second))
        else:
            fit = fit.after(p, C, ridge, chosen.total, within, np.linalg.inv(second))
    other = fit.solve()
    assert_allclose(other.theta * factors, one.theta, rtol=1e-5)
    assert other.c == pytest.approx(one.c, rel=1e-5)
    unit = np.append(factors, 1.0)
    assert_allclose(other.covariance * unit * unit[:, None], one.covariance, rtol=1e-4, atol=1e-8)


def test_a_feature_that_all_candidates_share_does_no_harm():
    """The others' rewards are as exact; what it adds cannot be told from the intercept."""
    world = World(2, shared=True)
    assert not world.within[1].any()
    found = world.fit().solve()
    others = [0, 2, 3]
    assert np.isfinite(found.theta).all()
    assert np.isfinite(found.covariance).all()
    assert_allclose(found.theta[others], world.theta[others], rtol=0.02)
    constant = world.theta[1] * 3.0 + world.c
    assert found.theta[1] * 3.0 + found.c == pytest.approx(constant, rel=0.05)


def test_where_nothing_was_learned_there_are_no_rewards():
    world = World(0)
    zeros = [np.zeros(D)] * len(world.known)
    found = world.fit(zeros).solve()
    assert not found.theta.any()
    assert found.c == 0.0
    assert not found.covariance.any()
    # Nothing before the first policy: its episode tells nothing, and later ones do.
    fit = RewardFit.begin(np.zeros(D), world.known[0][1], world.known[0][2], world.within, np.linalg.inv(world.second))
    assert not fit.normal.any()
    p, ridge, total = world.known[3]
    later = fit.after(p, 1e-4 * np.eye(D), ridge, total, world.within, np.linalg.inv(world.second))
    assert later.normal.any()
    assert not fit.normal.any()


def test_a_fit_is_never_changed_and_intervals_are_normal():
    world = World(0)
    fit = world.fit()
    copy = fit.normal.copy(), fit.right.copy(), fit.squares
    p, ridge, total = world.known[-1]
    fit.after(p, np.eye(D), ridge, total, world.within, np.linalg.inv(world.second))
    assert_array_equal(fit.normal, copy[0])
    assert_array_equal(fit.right, copy[1])
    assert fit.squares == copy[2]
    found = fit.solve()
    bounds = reward_interval(found, 0.9)
    deviation = np.sqrt(found.covariance.diagonal())
    assert_allclose(bounds.upper - bounds.estimate, 1.6448536 * deviation, rtol=1e-6)
    assert_allclose(bounds.estimate - bounds.lower, 1.6448536 * deviation, rtol=1e-6)
    assert_allclose(bounds.estimate, np.append(found.theta, found.c))


# -- through a log ---------------------------------------------------------------------------------------------------


def simulated(kind, frame_name, seed=0, episodes=8, steps=300):
    """A decider with linear rewards and an intercept, in the units of the log or in standardised ones."""
    rng = np.random.default_rng(seed)
    theta, c, alpha = np.array([0.5, -0.3, 0.2]), 0.8, 0.4
    scale, origin = np.ones(3), np.zeros(3)
    if frame_name == "standardized":
        scale, origin = np.array([1.0, 2.0, 0.5]), np.array([0.5, 0.5, 0.5])
    make = {"sbucb": ibcb.SBUCB, "sbts": lambda *a, **k: ibcb.SBTS(*a, random_state=seed, **k)}[kind]
    expert, pairs = make(3, alpha=alpha, l2=0.5 * scale**2, origin=origin), []
    for number in range(episodes + 1):
        X = rng.normal(size=(steps, 6, 3)) * scale + origin
        chosen = rng.integers(6, size=steps) if number == 0 else expert.act(X)
        S = X[np.arange(steps), chosen]
        expert.update(S, S @ theta + c)
        pairs.append((X, chosen))
    frame = None if frame_name == "own" else Frame("standardized", scale, origin)
    log = ibcb.BehaviorLog.from_episodes(pairs, warmup=1)
    return log, KINDS[kind](l2=0.5, frame=frame), theta / alpha, c / alpha


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
@pytest.mark.parametrize("units", ["own", "standardized"])
def test_rewards_that_are_found_lead_to_the_deciders_own_policies(kind, units, seed):
    """Theta and c can hardly be told apart where choices are always alike; what they teach together can."""
    log, decider, theta, c = simulated(kind, units, seed)
    track = tracked(log, decider)
    found, V = rewards(track), track.seen.within
    scale, origin = (np.ones(3), np.zeros(3)) if decider.frame is None else (decider.frame.scale, decider.frame.origin)
    for known in range(4, len(log) + 2):
        stored = [episode for _, episode in log.episodes()][:known]
        S = np.vstack([episode.contexts[episode.chosen_rows] for episode in stored]) - origin
        psi = S.T @ S + 0.5 * np.diag(scale**2)
        mine, its = (
            np.linalg.solve(psi, S.T @ (S @ weights + constant))
            for weights, constant in (
                (found.theta, found.c + origin @ found.theta),
                (theta, c + origin @ theta),
            )
        )
        lengths = np.sqrt([mine @ V @ mine, its @ V @ its])
        assert mine @ V @ its > 0.998 * lengths.prod()
        assert 0.6 < lengths[0] / lengths[1] < 1.7


def test_kinds_of_which_it_is_not_known_how_they_learn_have_no_rewards():
    log = simulated("sbucb", "own", episodes=3, steps=60)[0]
    for name in ("topk", "stationary", "other"):
        assert rewards(tracked(log, KINDS[name]())) is None
        assert _rewards_now(tracked(log, KINDS[name]())) is None


@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
def test_an_estimator_publishes_the_rewards_of_its_track(kind):
    log, decider, _, _ = simulated(kind, "own", episodes=5, steps=120)
    found = rewards(tracked(log, decider))
    for alpha in (1.0, 0.4):
        model = ibcb.IBCB(expert=kind, l2=0.5, alpha=alpha).fit(log)
        assert_allclose(model.coef_, alpha * found.theta, rtol=1e-12)
        assert model.intercept_ == pytest.approx(alpha * found.c, rel=1e-12)
        bounds = reward_interval(found, 0.8)
        for mine, its in zip(model.reward_interval(0.8), bounds, strict=True):
            assert_allclose(mine, alpha * its, rtol=1e-12)


@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
def test_rewards_of_one_episode_at_a_time_are_those_of_all(kind):
    log, decider, _, _ = simulated(kind, "standardized", episodes=4, steps=60)
    whole, parts = tracked(log, decider), tracked(log[:2], decider)
    assert_array_equal(parts.policies, whole.policies[:2])
    for track in (whole, parts):
        assert rewards(track) is not None
    assert not np.array_equal(rewards(parts).theta, rewards(whole).theta)
