"""How many choices are made at random, and the policy in force by the whole log."""

from functools import partial, reduce

import numpy as np
import pytest
from numpy.testing import assert_allclose
from replayed import episodes_of
from same import assert_same

import ibcb
from ibcb.deciders import KINDS, RANDOM_SHARES, share_likelihoods
from ibcb.numerics.gaussians import Beliefs
from ibcb.tracking import Track
from ibcb.tracking.calibration import Exploration, no_evidence, share_of, with_share
from ibcb.tracking.look import Passed
from ibcb.tracking.motions import Update, motions_of
from ibcb.tracking.smoothing import smoothed


def at_random(rng, shares, steps=2000, M=5):
    """Log-likelihoods of each episode's choices, where the best candidate is known exactly."""
    found = []
    for share in shares:
        best = rng.random(steps) >= share * (1 - 1 / M)
        found.append(share_likelihoods(best.astype(float), np.full(steps, 1 / M)))
    return np.array(found)


def known(likelihoods):
    """Shares of all episodes and of the next, and their deviations. Shape (2, episodes + 1)."""
    found = reduce(Exploration.after, likelihoods, Exploration.begin())
    return np.transpose([found.share(episode) for episode in range(len(likelihoods) + 1)])


@pytest.mark.parametrize(
    "falls", [lambda n: 0.2 + 0 * n, lambda n: 0.5 / n, lambda n: 0.4 / np.sqrt(n), lambda n: 0.4 * 0.8 ** (n - 1)]
)
def test_epsilon_is_told_whether_it_falls_or_not(rng, falls):
    truth = falls(np.arange(1.0, 10.0))
    shares, deviations = known(at_random(rng, truth[:-1]))
    assert_allclose(shares, truth, atol=0.035)
    assert (np.abs(shares - truth) < 4 * deviations + 0.01).all()


def test_the_more_choices_the_surer(rng):
    wide, narrow = (known(at_random(rng, [0.1] * 3, steps))[1, -1] for steps in (100, 10_000))
    assert narrow < wide / 5
    # As sure as a binomial share is.
    assert narrow == pytest.approx(np.sqrt(0.1 * 0.9 / 30_000), rel=0.5)


def test_a_share_is_what_the_likelihood_says_and_no_more_than_the_kind_allows(rng):
    (told,) = at_random(rng, [0.2])
    assert share_of(KINDS["egreedy"](), no_evidence() + told) == pytest.approx(0.2, abs=0.05)
    assert share_of(KINDS["softmax"](), no_evidence() + told) <= KINDS["softmax"].most_random
    p, counts = rng.dirichlet(np.ones(4), size=7).ravel(), np.full(7, 4)
    mixed = with_share(p, counts, 0.3)
    assert_allclose(mixed, 0.7 * p + 0.3 / 4)
    assert len(RANDOM_SHARES) == len(told)


# -- the policy in force ---------------------------------------------------------------------------------------------


def passed_through(log, kind):
    """The track of a log, what it began with, and what it met."""
    d = log.n_features
    track, begun, met = Track.begin(kind, np.zeros((d, d))), None, []
    for episode in episodes_of(log):
        if not episode.by_policy:
            track = track.after(episode)
            continue
        look, before = track.look(episode), kind.regularization.ridge(track.chosen)
        begun = begun or look.now
        update = Update(len(met) + 1, before.psi, episode.lesson.phi, episode.lesson.total)
        met.append(Passed(look.seen.sites, update))
        track = track.given(look, episode)
    assert_same(track.passed, tuple(met))
    return track, begun, met


@pytest.mark.parametrize("kind", ["sbucb", "egreedy", "softmax"])
def test_smoothing_is_conditioning_on_the_whole_log(kind):
    """All states of the model believed at once, as one Gaussian, conditioned on all sites."""
    log = ibcb.simulate("synthetic", expert=kind, seed=3, n_episodes=4, batch_size=150, n_features=3, warmup=60).log
    track, begun, met = passed_through(log, KINDS[kind](l2=0.3))
    found = smoothed(track)
    family, member = track.models.model_at(track.believed_place)
    parameters = track.seen.models[family][member]
    motion = motions_of(
        track.kind, tuple((parameters,) if n == family else each for n, each in enumerate(begun.models))
    )
    motion = motion[family]
    place = begun.models[family].index(parameters)
    first = begun.families[family][place : place + 1]
    D = first.mean.shape[1]
    # Mean and covariance of all states before any choice is seen: moves are linear, with noise of their own.
    mean, joint = [first.mean[0]], np.zeros((4 * D, 4 * D))
    joint[:D, :D] = first.covariance[0]
    given = first
    for n in range(3):
        # A walk's noise depends on where its policy is believed to be once the episode was seen.
        given, _ = given.given(met[n].sites[family])
        A, rows, new = motion.matrix(D, met[n].update), slice(0, (n + 1) * D), slice((n + 1) * D, (n + 2) * D)
        moved = motion.move(given, track.seen.unit, met[n].update)
        noise = moved.covariance[0] - A @ given.covariance[0] @ A.T
        last = slice(n * D, (n + 1) * D)
        joint[new, rows] = A @ joint[last, rows]
        joint[rows, new] = joint[new, rows].T
        joint[new, new] = A @ joint[last, last] @ A.T + noise
        mean.append(A @ mean[-1])
        given = moved
    roots, seen = [], []
    for n in range(4):
        site = met[n].sites[family]
        root = np.zeros((4 * D, site.root.shape[1]))
        root[n * D : n * D + len(site.root)] = site.root
        roots.append(root)
        seen.append(site.seen)
    R, y, m = np.hstack(roots), np.concatenate(seen), np.concatenate(mean)
    gain = joint @ R @ np.linalg.inv(np.eye(R.shape[1]) + R.T @ joint @ R)
    expected, covariance = m + gain @ (y - R.T @ m), joint - gain @ R.T @ joint
    for n, belief in enumerate(found):
        o = belief.mean.shape[1]
        unit = np.sqrt(first.covariance[0].diagonal()[:o].max())
        assert isinstance(belief, Beliefs)
        assert_allclose(belief.mean[0], expected[n * D : n * D + o], atol=1e-4 * unit)
        assert_allclose(belief.covariance[0], covariance[n * D : n * D + o, n * D : n * D + o], atol=1e-4 * unit**2)


def test_a_log_that_is_too_long_to_keep_is_not_smoothed(monkeypatch):
    log = ibcb.simulate("synthetic", expert="softmax", seed=3, n_episodes=3, batch_size=60, warmup=60).log
    model = ibcb.IBCB(expert="softmax", l2=0.3).fit(log)
    smooth = model.propensities(log)
    monkeypatch.setattr("ibcb.tracking.smoothing.MOST_NUMBERS", 1)
    rough = model.propensities(log)
    assert not np.array_equal(smooth, rough)
    sums = partial(np.add.reduceat, indices=log.step_offsets[:-1])
    assert_allclose(sums(rough), 1.0)
