"""Motions of every kind: names, priors and moves against what they say they are, and episodes one at a time."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import asked_for, ragged_log, slow, small_run
from numpy.testing import assert_allclose, assert_array_equal
from replayed import first_candidates, tracked
from scipy.linalg import block_diag

from ibcb import IBCB
from ibcb.deciders import KINDS
from ibcb.estimators.state import pack
from ibcb.numerics.gaussians import Beliefs, symmetric_inverse
from ibcb.numerics.ridge import ridge
from ibcb.tracking.motions import Learner, PosteriorSampler, RandomWalk, Reverting, Update, models_of, motions_of

SIZE = {"n_episodes": 4, "batch_size": 40, "n_candidates": 4, "n_features": 3, "warmup": 40}
MOTIONS = [
    pytest.param(motion, id=f"{name}-{motion.names[0].partition('(')[0]}")
    for name, kind in KINDS.items()
    for motion in motions_of(kind(l2=0.7), models_of(kind(), 3))
]
D = 3


def past(rng, steps=30):
    """Contexts chosen before, as a motion is told of them."""
    S = rng.normal(size=(steps, D)) * [1.0, 3.0, 0.5]
    return S, S.T @ S, S.sum(axis=0)


def unit_of(rng):
    A = rng.normal(size=(D, D))
    return symmetric_inverse(A @ A.T + np.eye(D))


def positive_definite(rng, size):
    A = rng.normal(size=(size, size))
    return A @ A.T / size + 0.1 * np.eye(size)


def beside(motion):
    """Entries of a state between policy and rewards: the weights of what the rule adds."""
    return len(motion.kind.added)


@pytest.mark.parametrize("d", [2, 10_000])
@pytest.mark.parametrize("kind", KINDS)
def test_every_model_of_a_kind_has_a_name_of_its_own(kind, d):
    models = models_of(KINDS[kind](), d)
    motions = motions_of(KINDS[kind](), models)
    assert all(family.early in own for family, own in zip(KINDS[kind].motions.families, models, strict=True))
    names = [name for motion in motions for name in motion.names]
    assert names
    assert len(set(names)) == len(names)
    for motion in motions:
        assert len(motion.start(np.eye(2), ridge(np.zeros((2, 2)), 1.0), np.zeros(2))) == len(motion.names)
    # Those that only walk come first, and a kind that learns has a learner.
    learners = [isinstance(motion, Learner) for motion in motions]
    assert learners == sorted(learners)
    assert any(learners) == KINDS[kind].learns


@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("known", ["nothing", "all", "gram"])
def test_a_motion_starts_with_a_covariance(motion, known, rng):
    _, phi, total = past(rng)
    given = {"nothing": (np.zeros((D, D)), np.zeros(D)), "all": (phi, total), "gram": (phi, None)}[known]
    beliefs = motion.start(unit_of(rng), ridge(given[0], motion.kind.l2), given[1])
    size = D + beside(motion) + (D + 1) * isinstance(motion, Learner)
    size += D * isinstance(motion, Reverting | PosteriorSampler)
    assert beliefs.mean.shape == (len(motion.names), size)
    assert not beliefs.mean.any()
    assert_array_equal(beliefs.covariance, np.swapaxes(beliefs.covariance, 1, 2))
    values = np.linalg.eigvalsh(beliefs.covariance)
    assert (values >= -1e-12 * values[:, -1:]).all()
    # Whatever is asked of the policy has an answer that is not certain.
    assert (np.linalg.eigvalsh(beliefs.covariance[:, :D, :D]) > 0).all()


@pytest.mark.parametrize("penalty", [0.7, np.array([0.1, 5.0, 0.02])])
@pytest.mark.parametrize("motion", [each for each in MOTIONS if isinstance(each.values[0], Learner)])
def test_what_was_chosen_before_the_log_taught_the_learner(motion, penalty, rng):
    """p is the ridge estimate of rewards <theta, s> + c with noise, and may lie a little off it."""
    (S, phi, total), unit, kind = past(rng), unit_of(rng), motion.kind
    prior = block_diag(unit, 1.0) * kind.scales.rewards**2
    back = np.linalg.inv(S.T @ S + penalty * np.eye(D))
    teach = back @ S.T @ np.column_stack([S, np.ones(len(S))])
    o, found = D + beside(motion), motion.start(unit, ridge(phi, penalty), total)
    for model, sigma in enumerate(motion.noise):
        C, drawn = found.covariance[model], isinstance(motion, PosteriorSampler)
        if drawn:
            # The draw is of the same p, only wider.
            wider = C[:D, :D] - C[D : 2 * D, D : 2 * D]
            assert_allclose(wider, motion.spread[model] ** 2 * back, rtol=1e-8, atol=1e-10)
            assert_array_equal(C[:D, D:], C[D : 2 * D, D:])
            C = C[D:, D:]
        off = kind.scales.first_policy**2 * unit
        expected = teach @ prior @ teach.T + sigma**2 * (back @ S.T) @ (back @ S.T).T + off
        assert_allclose(C[:D, :D], expected, rtol=1e-8, atol=1e-10)
        assert_allclose(C[:D, o:], teach @ prior, rtol=1e-8, atol=1e-10)
        assert_allclose(C[o:, o:], prior, rtol=1e-12)
        if beside(motion):
            assert C[D, D] == kind.added[0] ** 2
            assert not C[D, :D].any()
            assert not C[D, o:].any()


def random_beliefs(motion, rng):
    start = motion.start(np.eye(D), ridge(np.zeros((D, D)), 1.0), np.zeros(D))
    size = start.mean.shape[1]
    # Of little doubt, so that what a move adds can be seen.
    covariances = 1e-3 * np.array([positive_definite(rng, size) for _ in motion.names])
    return Beliefs(rng.normal(size=start.mean.shape), covariances)


#: a decider's own, one for each feature
PENALTY = np.array([0.7, 2.0, 0.1])


def psi_of(gram):
    """Psi, as an update has it."""
    return gram + np.diag(PENALTY)


def propagated(motion, model, draws, rng, unit, contexts, episode):
    """States after an update, each made from a state before by what the motion says of one decider."""
    before, S = contexts
    moved, n = draws.copy(), len(draws)
    if isinstance(motion, RandomWalk):
        q = motion.steps[model] / (episode + 1 if motion.settles else 1)
        moved[:, :D] += q * rng.multivariate_normal(np.zeros(D), unit, size=n)
        # By so much of the length that is believed in, whatever the draw.
        moved[:, :D] += motion.stretch * rng.normal(size=(n, 1)) * draws[:, :D].mean(axis=0)
        return moved
    if isinstance(motion, Reverting):
        middle, rho = draws[:, -D:], motion.kept[model]
        moved[:, :D] = middle + rho * (draws[:, :D] - middle)
        moved[:, :D] += motion.steps[model] * rng.multivariate_normal(np.zeros(D), unit, size=n)
        return moved
    sampled = isinstance(motion, PosteriorSampler)
    if sampled:
        # What it learns does not depend on what it drew.
        moved, draws = moved[:, D:], draws[:, D:]
    o, sigma, q = D + beside(motion), motion.noise[model], motion.wander[model]
    # The rewards wander first.
    moved[:, o:-1] += q * rng.multivariate_normal(np.zeros(D), unit, size=n)
    moved[:, -1] += q * rng.normal(size=n)
    rewards = moved[:, o:-1] @ S.T + moved[:, -1:] + sigma * rng.normal(size=(n, len(S)))
    psi = before.T @ before + np.diag(PENALTY)
    moved[:, :D] = np.linalg.solve(psi + S.T @ S, psi @ draws[:, :D].T + S.T @ rewards.T).T
    if sampled:
        widths = motion.spread[model] ** 2 * np.linalg.inv(psi + S.T @ S)
        drawn = moved[:, :D] + rng.multivariate_normal(np.zeros(D), widths, size=n)
        moved = np.hstack([drawn, moved])
    return moved


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_move_is_what_deciders_do_on_average(motion, rng):
    """Monte Carlo: many deciders drawn from the belief, each moved as the motion says; ridge regression on rewards."""
    (before, gram, _), (S, phi, total) = past(rng), past(rng, 8)
    unit, beliefs, episode, n = unit_of(rng), random_beliefs(motion, rng), 4, 40_000
    moved = motion.move(beliefs, unit, Update(episode, psi_of(gram), phi, total))
    for model in {0, len(motion.names) // 2, len(motion.names) - 1}:
        draws = rng.multivariate_normal(beliefs.mean[model], beliefs.covariance[model], size=n)
        after = propagated(motion, model, draws, rng, unit, (before, S), episode)
        C = moved.covariance[model]
        deviations = np.sqrt(C.diagonal())
        error = deviations / np.sqrt(n)
        assert (np.abs(after.mean(axis=0) - moved.mean[model]) < 5 * error).all()
        # The standard error of a covariance is below sqrt(2 / n) of both deviations.
        apart = (np.cov(after.T) - C) / np.outer(deviations, deviations)
        assert np.abs(apart).max() < 5 * np.sqrt(2 / n)


def test_a_policy_that_nothing_is_known_of_may_grow_by_a_twentieth_of_its_length(rng):
    kind, p = KINDS["other"], 1e6 * rng.normal(size=D)
    stretched = [motion for motion in motions_of(kind, models_of(kind, D)) if getattr(motion, "stretch", 0)]
    assert stretched
    for motion in stretched:
        count = len(motion.steps)
        known = Beliefs(np.tile(p, (count, 1)), np.zeros((count, D, D)))
        moved = motion.move(known, unit_of(rng), SimpleNamespace(episode=1)).covariance
        np.testing.assert_allclose(np.sqrt(p @ moved @ p), 0.05 * (p @ p), rtol=1e-3)


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_move_leaves_alpha_and_rewards_and_stays_a_covariance(motion, rng):
    (_, gram, _), (_, phi, total) = past(rng), past(rng, 8)
    unit, beliefs = unit_of(rng), random_beliefs(motion, rng)
    copy = Beliefs(beliefs.mean.copy(), beliefs.covariance.copy())
    moved = motion.move(beliefs, unit, Update(2, psi_of(gram), phi, total))
    kept = 2 * D if isinstance(motion, PosteriorSampler) else D
    assert_array_equal(moved.mean[:, kept:], beliefs.mean[:, kept:])
    assert_allclose(moved.covariance, np.swapaxes(moved.covariance, 1, 2), rtol=1e-12, atol=1e-14)
    assert (np.linalg.eigvalsh(moved.covariance) > 0).all()
    if beside(motion):
        assert_array_equal(moved.covariance[:, D, D], beliefs.covariance[:, D, D])
    # What was believed before is not written over.
    assert_array_equal(beliefs.mean, copy.mean)
    assert_array_equal(beliefs.covariance, copy.covariance)


@pytest.mark.parametrize("motion", MOTIONS)
def test_models_side_by_side_move_as_each_alone(motion, rng):
    (_, gram, _), (_, phi, total) = past(rng), past(rng, 8)
    unit, beliefs, lesson = unit_of(rng), random_beliefs(motion, rng), Update(3, psi_of(gram), phi, total)
    together = motion.move(beliefs, unit, lesson)
    for model in range(len(motion.names)):
        if isinstance(motion, RandomWalk):
            alone = replace(motion, steps=motion.steps[model : model + 1])
        elif isinstance(motion, Reverting):
            alone = Reverting(motion.kind, motion.steps[model : model + 1], motion.kept[model : model + 1])
        else:
            one = slice(model, model + 1)
            alone = replace(motion, noise=motion.noise[one], wander=motion.wander[one])
            if isinstance(motion, PosteriorSampler):
                alone = replace(alone, spread=motion.spread[one])
        moved = alone.move(beliefs[model : model + 1], unit, lesson)
        assert_allclose(moved.mean[0], together.mean[model], rtol=1e-12)
        assert_allclose(moved.covariance[0], together.covariance[model], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("motion", [each for each in MOTIONS if isinstance(each.values[0], Reverting)])
def test_a_policy_that_reverts_neither_leaves_its_mean_nor_comes_to_rest(motion, rng):
    """Before anything is seen, one move later is no different; and after many, nothing is left of where it was."""
    unit, nothing = unit_of(rng), Update(1, np.eye(D), np.zeros((D, D)), np.zeros(D))
    start = motion.start(unit, ridge(np.zeros((D, D)), 1.0), np.zeros(D))
    moved = motion.move(start, unit, nothing)
    assert_allclose(moved.covariance, start.covariance, rtol=1e-9)
    away = random_beliefs(motion, rng)
    for _ in range(1000):
        away = motion.move(away, unit, nothing)
    assert_allclose(away.mean[:, :D], away.mean[:, -D:], rtol=1e-9)
    for model, (q, rho) in enumerate(zip(motion.steps, motion.kept, strict=True)):
        C = away.covariance[model]
        assert_allclose(C[:D, :D] - C[-D:, -D:], q**2 / (1 - rho**2) * unit, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("motion", [each for each in MOTIONS if isinstance(each.values[0], Learner)])
def test_two_updates_teach_what_one_of_both_episodes_teaches(motion, rng):
    """Where rewards do not wander: ridge regression does not mind where a batch ends."""
    still = Learner(motion.kind, motion.noise[:1], (0.0,))
    (_, gram, _), (_, one, sum_one), (_, two, sum_two) = past(rng), past(rng, 8), past(rng, 9)
    beliefs, unit = random_beliefs(still, rng), unit_of(rng)
    first = still.move(beliefs, unit, Update(1, psi_of(gram), one, sum_one))
    both = still.move(first, unit, Update(2, psi_of(gram + one), two, sum_two))
    at_once = still.move(beliefs, unit, Update(1, psi_of(gram), one + two, sum_one + sum_two))
    assert_allclose(both.mean, at_once.mean, rtol=1e-9)
    assert_allclose(both.covariance, at_once.covariance, rtol=1e-8, atol=1e-10)


# -- episodes one at a time ------------------------------------------------------------------------------------------


def state_of(model):
    arrays = {}
    return pack(model._fit.track, "track", arrays), arrays


def assert_same_track(one, other):
    (told, arrays), (its, others) = state_of(one), state_of(other)
    assert told == its
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert_array_equal(array, others[name], strict=True, err_msg=name)


def logs_of(kind):
    expert = "sbts" if kind.startswith("sbts") else "sbucb"
    return {
        "warm": small_run(expert, **SIZE).log,
        "cold": small_run(expert, **SIZE | {"warmup": 0}).log,
        "ragged": ragged_log(np.random.default_rng(0)),
    }


LEARNERS = [name for name, kind in KINDS.items() if kind.learns]


@pytest.mark.parametrize(
    ("kind", "case", "l2"),
    [
        *product(LEARNERS, ["cold", "ragged"], [0.3]),
        *product(LEARNERS, ["warm"], ["auto"]),
        *(("sbucb", "cold", "auto"), ("sbts", "ragged", "auto")),
        *(slow(kind, "warm", 0.3) for kind in LEARNERS),
        *(slow(kind, "cold", "auto") for kind in LEARNERS if kind != "sbucb"),
        *(slow(kind, "ragged", "auto") for kind in LEARNERS if kind != "sbts"),
    ],
)
def test_fit_equals_partial_fit_over_the_episodes(kind, case, l2, rng):
    log = logs_of(kind)[case]
    whole, parts = IBCB(**asked_for(kind), l2=l2).fit(log), IBCB(**asked_for(kind), l2=l2)
    for episode in log:
        parts.partial_fit(episode)
    assert_same_track(whole, parts)
    assert (whole.notes_, whole.evidence_) == (parts.notes_, parts.evidence_)
    assert (whole.l2_, whole.units_) == (parts.l2_, parts.units_)
    sets = rng.normal(size=(20, 4, 3))
    for ask in (
        lambda model: model.predict(sets),
        lambda model: model.certainty(sets),
        lambda model: model.forecast(3),
        lambda model: np.array(model.policy_interval()),
        lambda model: np.array([model.policy_at(n) for n in range(6)]),
    ):
        assert_array_equal(ask(whole), ask(parts))


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not kind.learns])
def test_a_decider_that_is_only_tracked_goes_on_as_if_fitted_at_once(kind):
    """It cannot begin with one episode; from two on its track is the same."""
    log = logs_of(kind)["warm"]
    params = {**asked_for(kind), "top_k": 2}
    with pytest.raises(ValueError, match="one episode"):
        IBCB(**params).partial_fit(log[0])
    parts = IBCB(**params).fit(log[:2])
    for number in range(2, len(log)):
        parts.partial_fit(log[number])
    assert_same_track(IBCB(**params).fit(log), parts)


@pytest.mark.parametrize("kind", KINDS)
def test_the_track_of_a_fit_is_the_track_of_the_log_alone(kind):
    """Neither the solver nor the other kinds tried have a say in it."""
    log = logs_of(kind)["warm"]
    # Of a kind that does not learn l2 is that of its exact explanation, in units of the features.
    scaled = first_candidates(log).frames()[0]
    chosen = KINDS[kind](
        **{"l2": 0.3} if KINDS[kind].learns else {"frame": scaled, "top_k": 2 if kind == "topk" else 1}
    )
    model = IBCB(**asked_for(kind), l2=0.3 if KINDS[kind].learns else 1.0, top_k=2).fit(log)
    alone, arrays = tracked(log, chosen), {}
    assert pack(alone, "track", arrays) == state_of(model)[0]
    for name, array in arrays.items():
        assert_array_equal(array, state_of(model)[1][name], err_msg=name)
