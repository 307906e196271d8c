"""What a Thompson sampler's choices say: the logit recomputed independently, the length against known draws."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import ibcb
from ibcb.deciders import KINDS, Believed
from ibcb.deciders.sbts import _bounded, _Loss, _rows, draws_site, length_factor
from ibcb.engine import blocks
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.laplace import WithPrior
from ibcb.numerics.ridge import Chosen, Frame, Regularization, ridge

D = 4


def block_of(sets, chosen):
    (block,) = blocks(ibcb.BehaviorLog.from_episodes([(sets, chosen)]))
    return block


def drawn_choices(X, p, psi, rng):
    """The best candidate of a draw from N(p, Psi^-1) at every step."""
    draws = rng.multivariate_normal(p, np.linalg.inv(psi), size=len(X))
    return np.einsum("tmd,td->tm", X, draws).argmax(axis=1)


@pytest.fixture
def world(rng):
    """Candidates, Psi by its ridge, a policy that draws often go against, and choices by draws from it."""
    X, S = rng.normal(size=(400, 5, D)) + 0.5, rng.normal(size=(60, D)) + 0.5
    before = ridge(S.T @ S, 0.3)
    p = np.array([0.3, -0.2, 0.1, 0.05])
    return X, before, p, drawn_choices(X, p, before.psi, rng)


def log_likelihood(p, sets, chosen, psi):
    """Of all choices, step by step and candidate by candidate, as the module says it."""
    back, total = np.linalg.inv(psi), 0.0
    for candidates, c in zip(sets, chosen, strict=True):
        weights = 0.0
        for o, s in enumerate(candidates):
            lead = s - candidates[c]
            if o != c and lead.any():
                weights += np.exp(1.7 * (p @ lead) / np.sqrt(lead @ back @ lead))
        total -= np.log1p(weights)
    return total


def prior_of(mean, deviation=2.0):
    return Beliefs(np.asarray(mean, dtype=float)[None], deviation**2 * np.eye(len(mean))[None])


def test_the_loss_is_the_likelihood_of_the_choices(world, rng):
    X, before, p, chosen = world
    rows, step = _rows(block_of(X[:40], chosen[:40]), before)
    centre, precision = rng.normal(size=D), np.diag([1.0, 2.0, 0.5, 3.0])
    for at in (p, 5 * rng.normal(size=D), np.zeros(D)):
        found = WithPrior(at, _Loss(rows, step), centre, precision)
        assert found.here.loss == pytest.approx(-log_likelihood(at, X[:40], chosen[:40], before.psi))
        away = at - centre
        assert found.value == pytest.approx(found.here.loss + away @ precision @ away / 2)


def test_gradient_and_curvature_by_differences(world, rng):
    X, before, p, chosen = world
    likelihood = _Loss(*_rows(block_of(X[:60], chosen[:60]), before))
    loss = partial(WithPrior, loss=likelihood, centre=rng.normal(size=D), precision=np.diag([1.0, 2.0, 0.5, 3.0]))
    for at in (p, p + rng.normal(size=D)):
        here, h = loss(at), 1e-5
        for i, e in enumerate(np.eye(D)):
            up, down = loss(at + h * e), loss(at - h * e)
            assert (up.value - down.value) / (2 * h) == pytest.approx(here.gradient[i], rel=1e-6, abs=1e-6)
            slope = (up.here.loss - down.here.loss) / (2 * h)
            assert slope == pytest.approx(here.here.gradient[i], rel=1e-6, abs=1e-6)
            assert_allclose((up.gradient - down.gradient) / (2 * h), here.hessians[0][i], rtol=1e-5, atol=1e-5)
        assert (np.linalg.eigvalsh(here.hessians[0]) > 0).all()


@pytest.mark.parametrize("ragged", [False, True])
def test_the_site_with_its_prior_peaks_where_the_posterior_does(world, rng, ragged):
    X, before, _, chosen = world
    sets, picks = list(X[:120]), chosen[:120]
    if ragged:
        sets = [each[: max(c + 1, rng.integers(1, 6))] for each, c in zip(sets, picks, strict=True)]
    prior = prior_of(rng.normal(size=D), 1.5)
    site = draws_site(block_of(sets, picks), before, prior)

    def minus_log_posterior(p):
        away = p - prior.mean[0]
        return away @ away / 2 / 1.5**2 - log_likelihood(p, sets, picks, before.psi)

    found = minimize(minus_log_posterior, np.zeros(D), method="BFGS", options={"gtol": 1e-7})
    after, likely = prior.given(site)
    assert_allclose(after.mean[0], found.x, atol=1e-3 * np.sqrt(after.covariance[0].diagonal()).max())
    # The curvature there, by differences of the likelihood itself.
    h, information = 1e-3, np.empty((D, D))
    for i, a in enumerate(h * np.eye(D)):
        for j, b in enumerate(h * np.eye(D)):
            corners = [
                log_likelihood(found.x + m * a + n * b, sets, picks, before.psi) * m * n
                for m in (1, -1)
                for n in (1, -1)
            ]
            information[i, j] = -sum(corners) / 4 / h**2
    assert_allclose(site.information, information, rtol=1e-2, atol=1e-2 * np.abs(information).max())
    # Laplace's approximation of the evidence.
    _, logdet = np.linalg.slogdet(np.eye(D) + 1.5**2 * information)
    assert likely[0] == pytest.approx(-found.fun - logdet / 2, abs=0.05)


def test_the_direction_is_the_deciders(world):
    X, before, p, chosen = world
    site = draws_site(block_of(X, chosen), before, prior_of(np.zeros(D), 10.0))
    found = prior_of(np.zeros(D), 10.0).given(site)[0].mean[0]
    # In the metric of the draws, where the policy is of length 3.
    assert found @ before.psi @ p > 0.98 * np.sqrt((found @ before.psi @ found) * (p @ before.psi @ p))


def test_the_order_of_steps_and_candidates_does_not_matter(world, rng):
    X, before, _, chosen = world
    orders = rng.permuted(np.tile(np.arange(X.shape[1]), (len(X), 1)), axis=1)
    steps = rng.permutation(len(X))
    shuffled = np.take_along_axis(X, orders[:, :, None], axis=1)[steps]
    picked = (orders == chosen[:, None]).argmax(axis=1)[steps]
    prior = prior_of(np.full(D, 0.1))
    one, other = draws_site(block_of(X, chosen), before, prior), draws_site(block_of(shuffled, picked), before, prior)
    assert_allclose(other.information, one.information, rtol=1e-6)
    (mine, like), (its, likewise) = prior.given(one), prior.given(other)
    assert_allclose(its.mean, mine.mean, rtol=1e-6, atol=1e-8)
    assert_allclose(likewise, like, rtol=1e-8)
    # Candidates in another order have other luck only step by step: the draws are the same.
    p = prior.given(one)[0].mean[0]
    same_steps = np.take_along_axis(X, orders[:, :, None], axis=1)
    own = block_of(same_steps, (orders == chosen[:, None]).argmax(axis=1))
    assert length_factor(own, before, p) == pytest.approx(length_factor(block_of(X, chosen), before, p), rel=1e-9)
    assert length_factor(block_of(shuffled, picked), before, p) == pytest.approx(
        length_factor(block_of(X, chosen), before, p), rel=0.1
    )


def test_before_anything_was_learned_the_choices_say_nothing(world):
    X, _, _, chosen = world
    site = draws_site(block_of(X, chosen), ridge(np.zeros((D, D)), 0.3), prior_of(np.zeros(D)))
    assert site.root.shape == (D, 0)
    alone = block_of(X[:, :1], np.zeros(len(X), dtype=int))
    assert draws_site(alone, world[1], prior_of(np.zeros(D))).root.shape == (D, 0)
    copies = block_of(np.repeat(X[:, :1], 3, axis=1), chosen % 3)
    assert draws_site(copies, world[1], prior_of(np.zeros(D))).root.shape == (D, 0)


# -- the length ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mistaken", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("seed", range(3))
def test_a_policy_of_the_wrong_length_is_corrected(mistaken, seed):
    """By how often choices go against its mean; 2,000 choices of which a fifth or more do tell it to a twentieth."""
    rng = np.random.default_rng(seed)
    X, S = rng.normal(size=(2000, 6, D)) + 0.5, rng.normal(size=(200, D)) + 0.5
    before, p = ridge(S.T @ S, 0.3), np.array([0.3, -0.2, 0.1, 0.05])
    chosen = drawn_choices(X, p, before.psi, rng)
    against = np.mean((X @ p).argmax(axis=1) != chosen)
    assert 0.1 < against < 0.6
    found = length_factor(block_of(X, chosen), before, mistaken * p)
    assert found * mistaken == pytest.approx(1.0, abs=0.08)


def test_the_factor_is_the_quantile_by_brute_force(world):
    """At the factor found draws go against the mean as often as choices did: redrawn, with other luck."""
    X, before, p, chosen = world
    block, rng = block_of(X, chosen), np.random.default_rng(5)
    factor = length_factor(block, before, 0.6 * p)
    against = int(np.sum((X @ p).argmax(axis=1) != chosen))
    # What remains of it once the logit's own word counts as five choices against the mean.
    whole = factor ** ((against + 5.0) / against)
    shares = [np.mean((X @ p).argmax(axis=1) != drawn_choices(X, whole * 0.6 * p, before.psi, rng)) for _ in range(40)]
    assert np.mean(shares) == pytest.approx(against / len(X), abs=0.02)


def test_without_a_choice_against_the_mean_the_length_stays(world):
    X, before, p, _ = world
    assert length_factor(block_of(X, (X @ p).argmax(axis=1)), before, p) == 1.0
    alone = block_of(X[:, :1], np.zeros(len(X), dtype=int))
    assert length_factor(alone, before, p) == 1.0
    same = block_of(np.repeat(X[:, :1], 3, axis=1), np.arange(len(X)) % 3)
    assert length_factor(same, before, p) == 1.0
    assert length_factor(block_of(X, world[3]), before, np.zeros(D)) == 1.0


def test_a_factor_is_bounded(world, rng):
    X, before, p, chosen = world
    for policy in (1e-6 * p, 1e6 * p, -p):
        assert 0.3 <= length_factor(block_of(X, chosen), before, policy) <= 3.0


@pytest.mark.parametrize("place", [0, 2, D])
def test_a_feature_that_is_always_zero_changes_nothing(world, place):
    X, before, p, chosen = world
    wide = np.insert(X, place, 0.0, axis=2)
    phi = np.insert(np.insert(before.phi, place, 0.0, axis=0), place, 0.0, axis=1)
    longer = ridge(phi, 0.3)
    kept = np.arange(D + 1) != place
    for weight in (0.0, 7.0):
        policy = np.insert(p, place, weight)
        found = length_factor(block_of(wide, chosen), longer, policy)
        assert found == pytest.approx(length_factor(block_of(X, chosen), before, p), rel=1e-12)
    prior = prior_of(np.zeros(D))
    one = draws_site(block_of(X, chosen), before, prior)
    other = draws_site(block_of(wide, chosen), longer, prior_of(np.zeros(D + 1)))
    assert_allclose(other.information[np.ix_(kept, kept)], one.information, rtol=1e-9)
    assert not other.information[place].any()


def test_units_of_the_features_do_not_matter(world, rng):
    X, before, p, chosen = world
    for factors, tolerance in ((2.0 ** rng.integers(-6, 7, size=D), 1e-12), (10.0 ** rng.uniform(-2, 3, size=D), 1e-6)):
        phi = before.phi * factors * factors[:, None]
        other = ridge(phi, 0.3 * factors**2)
        assert length_factor(block_of(X * factors, chosen), other, p / factors) == pytest.approx(
            length_factor(block_of(X, chosen), before, p), rel=tolerance
        )
        mine = draws_site(block_of(X, chosen), before, prior_of(np.zeros(D)))
        scaled = Beliefs(np.zeros((1, D)), np.diag(4.0 / factors**2)[None])
        its = draws_site(block_of(X * factors, chosen), other, scaled)
        assert_allclose(its.information / factors / factors[:, None], mine.information, rtol=1e-5)


def test_a_shift_does_not_matter_to_one_that_measures_from_its_mean(world, rng):
    """Draws and leads depend on differences; Psi is about the origin."""
    X, _, p, chosen = world
    S, shift = X[np.arange(len(X)), chosen], np.array([3.0, -1.0, 0.5, 10.0])

    def before(contexts, S):
        flat = contexts.reshape(-1, D)
        frame = Frame("standardized", flat.std(axis=0), flat.mean(axis=0))
        return Regularization(1.0, frame).ridge(Chosen(len(S), S.sum(axis=0), S.T @ S))

    one, other = before(X, S), before(X + shift, S + shift)
    blocks_ = block_of(X, chosen), block_of(X + shift, chosen)
    mine, its = (draws_site(b, r, prior_of(np.zeros(D))) for b, r in zip(blocks_, (one, other), strict=True))
    assert_allclose(its.information, mine.information, rtol=1e-6)
    factors = [length_factor(b, r, p) for b, r in zip(blocks_, (one, other), strict=True)]
    assert factors[1] == pytest.approx(factors[0], rel=1e-6)


def test_what_is_observed_has_the_length_of_the_decider(world):
    """`BestOfDraw.observe` makes the logit's p longer by the factor, and is as sure of it."""
    X, before, p, chosen = world
    block, prior = block_of(X, chosen), prior_of(np.zeros(D), 10.0)
    kind = KINDS["sbts"](l2=0.3)
    seen = kind.observe(kind.rule.columns(block, before), Believed(prior, (prior, prior), (1, 0)), 0.0)
    assert len(seen.sites) == 2
    plain = draws_site(block, before, prior)
    logit = prior.given(plain)[0].mean[0]
    factor = length_factor(block, before, logit)
    assert_allclose(seen.sites[0].information, plain.information / factor**2, rtol=1e-9)
    longer = np.linalg.lstsq(seen.sites[0].root.T, seen.sites[0].seen, rcond=None)[0]
    assert_allclose(longer, factor * np.linalg.lstsq(plain.root.T, plain.seen, rcond=None)[0], rtol=1e-9)
    length, own = np.sqrt(longer @ before.psi @ longer), np.sqrt(p @ before.psi @ p)
    assert length == pytest.approx(own, rel=0.2)


def test_a_belief_is_at_most_three_times_as_wide_as_the_draws(world, rng):
    """In every direction of its own metric; where it is narrower it stays as it is."""
    L, A = world[1].whitener.matrix, rng.normal(size=(D, D))
    back, covariance = np.linalg.inv(L), A @ A.T
    bounded = _bounded(covariance, L)
    assert_allclose(np.linalg.eigvalsh(back.T @ bounded @ back).max(), 3.0, rtol=1e-9)
    assert np.linalg.eigvalsh(covariance - bounded).min() > -1e-9
    narrow = 2.9 * covariance / np.linalg.eigvalsh(back.T @ covariance @ back).max()
    assert_allclose(_bounded(narrow, L), narrow)
