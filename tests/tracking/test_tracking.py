"""The tracker: sites, filters, forecasts and intervals against independent recomputation."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from conftest import slow
from numpy.testing import assert_allclose, assert_array_equal
from replayed import episodes_of, tracked

import ibcb
from ibcb.deciders import KINDS, Believed
from ibcb.deciders.sbts import draws_site
from ibcb.engine import blocks, candidate_moments
from ibcb.numerics.contexts import best_rows
from ibcb.numerics.gaussians import Beliefs, Site
from ibcb.numerics.ridge import Frame, ridge
from ibcb.tracking import Track, certainty, forecast, interval, next_models, unidentified
from ibcb.tracking.context_sample import MOST, ContextSample, picked
from ibcb.tracking.motions import Learner, RandomWalk, Update
from ibcb.tracking.posterior import motions


def follow(log: ibcb.BehaviorLog, l2: float, kind: str) -> Track:
    return tracked(log, KINDS[kind](l2=l2))


@pytest.fixture(scope="module", params=["sbucb", "sbts"])
def run(request: pytest.FixtureRequest) -> ibcb.Run:
    return ibcb.simulate(
        "synthetic", expert=request.param, noise=0.03, n_episodes=6, batch_size=200, n_features=5, seed=300
    )


@pytest.fixture(scope="module")
def fitted(run: ibcb.Run) -> ibcb.IBCB:
    """The run's log as its own kind with its own l2; never changed."""
    return ibcb.IBCB(expert=run.expert_settings.kind, l2=0.3).fit(run.log)


@functools.cache
def seen_and_known(kind: str) -> list[tuple[ibcb.Run, Track]]:
    """25 runs and what is known of each."""
    sizes = {"n_episodes": 8, "batch_size": 300, "n_features": 8}
    runs = [ibcb.simulate("synthetic", expert=kind, noise=0.03, seed=seed, **sizes) for seed in range(300, 325)]
    return [(run, follow(run.log, 0.3, kind)) for run in runs]


def random_site(rng: np.random.Generator, d: int) -> Site:
    return Site(rng.normal(size=(d, d)), rng.normal(size=d), -1.0)


def test_filter_equals_the_joint_gaussian_posterior():
    rng, d, D = np.random.default_rng(0), 2, 5
    P0, T = np.diag([1.0, 2.0, 0.5, 1.5, 1.0]), rng.normal(size=(d, D))
    Q, W = 0.3 * np.eye(d)[None], 0.1 * np.diag([0.0, 0.0, 1.0, 1.0, 1.0])[None]
    first, second = random_site(rng, d), random_site(rng, d)
    after_one, likelihood = Beliefs(np.zeros((1, D)), P0[None]).given(first)
    after_two, more = after_one.moved(T, Q, W[:, d:, d:]).given(second)
    likelihood = likelihood[0] + more[0]

    # All at once: x0 ~ N(0, P0), x1 = F (x0 + wander) + noise, both sites observe p.
    F = np.vstack([T, np.eye(D)[d:]])
    joint = np.block([[P0, P0 @ F.T], [F @ P0, F @ (P0 + W[0]) @ F.T]])
    joint[D : D + d, D : D + d] += Q[0]
    H = np.zeros((2 * d, 2 * D))
    H[:d, :d], H[d:, D : D + d] = first.root.T, second.root.T
    y = np.concatenate([first.seen, second.seen])
    spread = H @ joint @ H.T + np.eye(2 * d)
    gain = joint @ H.T @ np.linalg.inv(spread)
    assert_allclose(after_two.mean[0], (gain @ y)[D:], rtol=1e-9)
    assert_allclose(after_two.covariance[0], (joint - gain @ H @ joint)[D:, D:], rtol=1e-8, atol=1e-12)
    _, logdet = np.linalg.slogdet(spread)
    expected = -0.5 * y @ np.linalg.solve(spread, y) - 0.5 * logdet + first.constant + second.constant
    assert_allclose(likelihood, expected, rtol=1e-10)


def test_learner_moves_as_ridge_regression_does():
    rng, d, l2 = np.random.default_rng(1), 3, 0.7
    before, chosen = rng.normal(size=(30, d)), rng.normal(size=(20, d))
    theta, c, b = rng.normal(size=d), 0.4, rng.normal(size=d)
    psi = l2 * np.eye(d) + before.T @ before
    p = np.linalg.solve(psi, b)
    state = Beliefs(np.concatenate([p, theta, [c]])[None], np.zeros((1, 2 * d + 1, 2 * d + 1)))
    lesson = Update(1, psi, chosen.T @ chosen, chosen.sum(axis=0))
    moved = Learner(KINDS["sbts"](l2=l2), (0.1,), (0.0,)).move(state, np.eye(d), lesson)
    after = np.linalg.solve(psi + chosen.T @ chosen, b + chosen.T @ (chosen @ theta + c))
    assert_allclose(moved.mean[0, :d], after, rtol=1e-10)
    back = np.linalg.inv(psi + chosen.T @ chosen)
    assert_allclose(moved.covariance[0, :d, :d], 0.01 * back @ chosen.T @ chosen @ back, rtol=1e-9)


def test_walk_keeps_the_policy_and_adds_doubt():
    before, unit = Beliefs(np.array([[1.0, -2.0]]), np.eye(2)[None]), np.diag([4.0, 1.0])
    lesson = Update(3, np.eye(2), np.eye(2), np.ones(2))
    for settles, length in ((False, 0.5), (True, 0.5 / 4)):
        after = RandomWalk(KINDS["other"](), "walk", (0.5,), settles).move(before, unit, lesson)
        assert_array_equal(after.mean[0], [1.0, -2.0])
        assert_allclose(after.covariance[0], np.eye(2) + length**2 * unit)
    still = RandomWalk(KINDS["stationary"](), "still", (0.0,)).move(before, unit, lesson)
    assert_array_equal(still.covariance, before.covariance)


def arms_log(policies, steps, seed):
    """Choices by the softmax of what each policy makes of the arms, an episode each."""
    rng, arms = np.random.default_rng(seed), policies.shape[1]
    p = np.exp(policies) / np.exp(policies).sum(axis=1, keepdims=True)
    chosen = [rng.choice(arms, size=steps, p=own) for own in p]
    contexts = np.tile(np.eye(arms), (steps, 1, 1))
    return ibcb.BehaviorLog.from_episodes([(contexts, own) for own in chosen])


def without(kind, motion):
    """The kind, not tracked with a motion."""
    families = tuple(family for family in kind.motions.families if family.motion != motion)
    return replace(kind, motions=replace(kind.motions, families=families))


@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
def test_a_decider_that_reverts_is_foreseen_better_by_what_it_did_long_ago(seed):
    """Short episodes: the last alone tell less of the next than the long run does."""
    rng, arms, episodes, kind = np.random.default_rng(seed), 20, 80, KINDS["other"]()
    mean, away = 1.2 * rng.normal(size=arms), np.zeros(arms)
    policies = np.empty((episodes, arms))
    for episode in range(episodes):
        away = 0.8 * away + 0.6 * rng.normal(size=arms)
        policies[episode] = mean + away
    log, late = arms_log(policies, steps=20, seed=seed), slice(episodes // 4, None)
    track, other = tracked(log, kind), tracked(log, without(kind, "reverting"))
    foreseen, without_it = (
        np.mean([each.log_likelihood for each in found.predicted[late]]) for found in (track, other)
    )
    assert foreseen > without_it
    assert np.mean([each.model.startswith("reverting") for each in track.predicted[late]]) > 0.5


@pytest.mark.parametrize("kind", ["other", "sbts"])
def test_evidence_is_of_all_episodes_and_fades_where_a_kind_lets_it(run, kind):
    kind, now, faded, whole = KINDS[kind](), None, 0.0, 0.0
    track = Track.begin(kind, np.zeros((run.log.n_features, run.log.n_features)))
    for episode in episodes_of(run.log):
        if not episode.by_policy:
            track = track.after(episode)
            continue
        look = track.look(episode)
        gained = np.concatenate(
            [family.given(site)[1] for family, site in zip(look.now.families, look.seen.sites, strict=True)]
        )
        first, now = now is None, look.now
        track = track.given(look, episode)
        if first and kind.motions.fading < 1:
            # Nothing was predicted of it.
            continue
        faded, whole = kind.motions.fading * faded + gained, whole + gained
        assert len(gained) == len(track.seen.evidence)
    assert_allclose(track.seen.evidence, faded)
    assert_allclose(track.seen.whole_evidence, whole)


@pytest.mark.parametrize("expert", ["softmax", "stationary"])
@pytest.mark.parametrize("seed", range(3))
def test_who_learns_is_seen_to_settle(expert, seed):
    sizes = {"n_episodes": 8, "batch_size": 300, "n_arms": 5, "n_features": 3, "warmup": 40}
    log = ibcb.simulate("arms", expert=expert, seed=seed, **sizes).log
    found = {each.name: each.log_likelihood for each in motions([tracked(log, KINDS["softmax"](l2=1.0))])}
    learns = max(found.get(name, -np.inf) for name in ("settling", "learner"))
    wanders = max(found.get(name, -np.inf) for name in ("restless", "reverting"))
    # One that never moves loses nothing by standing still.
    assert (learns - found["still"] > 3) == (expert != "stationary")
    if expert == "softmax":
        assert learns - wanders > 1


def test_what_a_few_choices_say_is_at_most_certain():
    """A log-likelihood above 0 would win over any other model. Where choices may stray it bends the wrong way."""
    arms, kind = 40, KINDS["other"]()
    before = ridge(np.zeros((arms, arms)), 1.0)
    for seed in range(60):
        policy = np.random.default_rng(seed).normal(size=arms)
        log, belief = arms_log(policy[None], steps=20, seed=seed), Beliefs(policy[None], 0.03 * np.eye(arms)[None])
        columns = kind.rule.columns(blocks(log[0])[0], before)
        seen = kind.observe(columns, Believed(belief, (belief,), (0,)), stray=0.05)
        assert seen.sites[0].constant <= 0, seed


def test_what_is_believed_of_an_episode_is_its_policy(run):
    """The policy believed is the decider's own, and makes the episode's choices."""
    kind, log = run.expert_settings.kind, run.log
    known = follow(log[:3], 0.3, kind)
    episode, before = log[2], ridge(follow(log[:2], 0.3, kind).chosen.phi, 0.3)
    X = episode.contexts.reshape(episode.n_steps, -1, 5)
    scores = X @ known.policies[2]
    if kind == "sbucb":
        scores += before.widths(episode.contexts).reshape(scores.shape)
    agreement = np.mean(scores.argmax(axis=1) == episode.chosen)
    truth = run.policy_coefs[2] / run.expert_settings.alpha
    cosine = known.policies[2] @ truth / np.linalg.norm(known.policies[2]) / np.linalg.norm(truth)
    assert cosine > 0.98
    assert agreement > (0.99 if kind == "sbucb" else 0.6)


def test_site_recovers_the_policy_of_its_episode(run):
    """The policy that a Thompson sampler's choices are summarised by is its own."""
    if run.expert_settings.kind == "sbucb":
        pytest.skip("sbucb is learned from row by row")
    before = ridge(follow(run.log[:2], 0.3, "sbts").chosen.phi, 0.3)
    site = draws_site(blocks(run.log[2])[0], before, Beliefs(np.zeros((1, 5)), 1e6 * np.eye(5)[None]))
    p, truth = np.linalg.solve(site.root.T, site.seen), run.policy_coefs[2]
    # In scores of candidates, which differ little along the features' common mean.
    V = candidate_moments(blocks(run.log[2])[0]).within
    assert p @ V @ truth / np.sqrt((p @ V @ p) * (truth @ V @ truth)) > 0.98


def test_forecast_of_a_learner_in_a_linear_world_is_the_learner_run_on():
    """Rewards exactly <theta, s>: the policy k updates on is the decider's own, for k = 1 and k = 5.

    Its length per unit alpha is told only by the few choices that the bonus decides.
    """
    lengths = []
    for seed in range(5, 11):
        rng = np.random.default_rng(seed)
        theta, expert, episodes = np.array([0.5, -0.3, 0.2, 0.1]), ibcb.SBUCB(4, alpha=0.4, l2=0.5), []
        policies = []
        for number in range(13):
            contexts = rng.normal(size=(400, 6, 4)) + 0.5
            chosen = rng.integers(6, size=400) if number == 0 else expert.act(contexts)
            policies.append(expert.coef_)
            episodes.append((contexts, chosen))
            picked = contexts[np.arange(400), chosen]
            expert.update(picked, picked @ theta)
        log = ibcb.BehaviorLog.from_episodes(episodes[:8], warmup=1)
        known = follow(log, 0.5, "sbucb")
        for updates in (1, 5):
            predicted, own = forecast(known, updates), policies[7 + updates] / 0.4
            assert predicted @ own / np.linalg.norm(predicted) / np.linalg.norm(own) > 0.9995
            lengths.append(np.linalg.norm(predicted) / np.linalg.norm(own))
    assert_allclose(lengths, 1.0, atol=0.2)
    assert_allclose(np.mean(lengths), 1.0, atol=0.05)


@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
def test_forecast_beats_the_choice_model_on_a_short_log(kind):
    run = ibcb.simulate("synthetic", expert=kind, noise=0.03, n_episodes=3, batch_size=500, seed=301)
    model, last = ibcb.IBCB(expert=kind).fit(run.log), ibcb.ChoiceModel(episodes=1).fit(run.log)
    assert ibcb.metrics.bt_fitness(model, run) > ibcb.metrics.bt_fitness(last, run) + 0.02
    assert model.forecast_model_.startswith("learner")
    assert not any("forecast" in note.code for note in model.notes_)


def test_a_decider_that_does_not_learn_is_not_run_on():
    rng = np.random.default_rng(2)
    p = np.array([1.0, -1.0, 0.5])
    contexts = [rng.normal(size=(150, 5, 3)) for _ in range(6)]
    # Draws of its own, around a policy that stays.
    log = ibcb.BehaviorLog.from_episodes(
        [(X, (X @ p + 0.3 * rng.gumbel(size=(150, 5))).argmax(axis=1)) for X in contexts]
    )
    known = follow(log, 1.0, "sbts")
    predicted = forecast(known, 9)
    assert predicted @ p / np.linalg.norm(predicted) / np.linalg.norm(p) > 0.98


def test_same_input_same_bits(run):
    kind = run.expert_settings.kind
    one, other = follow(run.log, 0.3, kind), follow(run.log, 0.3, kind)
    assert_array_equal(forecast(one, 7), forecast(other, 7))


def test_partial_fit_equals_fit_and_survives_storage(run, tmp_path):
    kind = run.expert_settings.kind
    whole = ibcb.IBCB(expert=kind, solver="robust", l2=0.3).fit(run.log)
    parts = ibcb.IBCB(expert=kind, solver="robust", l2=0.3)
    for number, episode in enumerate(run.log):
        if number == 3:
            ibcb.save_model(parts, tmp_path / "m.safetensors")
            parts = ibcb.load_model(tmp_path / "m.safetensors")
        parts.partial_fit(episode)
    for updates in (0, 1, 6):
        assert_array_equal(parts.forecast(updates), whole.forecast(updates))
    assert_array_equal(parts.policy_interval().lower, whole.policy_interval().lower)
    assert_array_equal(np.array(parts.reward_interval()), np.array(whole.reward_interval()))


def test_a_loaded_model_goes_on_with_the_l2_that_it_had_chosen(run, tmp_path):
    """One that was not stored looks again at every episode; a stored one keeps no logs."""
    kind = run.expert_settings.kind
    first = ibcb.IBCB(expert=kind, solver="robust").fit(run.log[:5])
    ibcb.save_model(first, tmp_path / "m.safetensors")
    parts = ibcb.load_model(tmp_path / "m.safetensors").partial_fit(run.log[5])
    assert (parts.l2_, parts.units_, parts.evidence_) == (first.l2_, first.units_, first.evidence_)
    alone = tracked(run.log, first.decider_)
    assert_array_equal(parts.policy_coefs_, alone.policies)


def test_order_of_candidates_and_of_steps_does_not_matter(run):
    kind, log, rng = run.expert_settings.kind, run.log, np.random.default_rng(0)
    episodes = []
    for _, episode in log.episodes():
        X = episode.contexts.reshape(episode.n_steps, -1, log.n_features)
        steps, order = rng.permutation(len(X)), rng.permutation(X.shape[1])
        episodes.append((X[steps][:, order], np.argsort(order)[episode.chosen[steps]]))
    shuffled = ibcb.BehaviorLog.from_episodes(episodes, warmup=log.warmup)
    one, other = (forecast(follow(each, 0.3, kind)) for each in (log, shuffled))
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.9999


def test_alpha_scales_the_forecast(run, fitted):
    three = ibcb.IBCB(expert=run.expert_settings.kind, l2=0.3, alpha=3.0).fit(run.log)
    assert_allclose(three.forecast(2), 3 * fitted.forecast(2), rtol=1e-12)


@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
def test_intervals_cover(kind):
    inside = []
    for run, known in seen_and_known(kind):
        policy = run.policy_coefs[-2] / run.expert_settings.alpha
        found = interval(known, 0.9)
        inside.append((found.lower <= policy) & (policy <= found.upper))
    # 200 weights, of which those of one log go together: wider than the 85 to 95% of a hundred logs.
    assert 0.80 <= np.mean(inside) <= 0.98


def test_certainty_is_a_probability_that_tells_right_from_wrong(run):
    known, test = follow(run.log, 0.3, run.expert_settings.kind), run.test_log
    picks = (test.contexts @ forecast(known, 1)).reshape(test.n_steps, -1).argmax(axis=1)
    certain, right = (
        certainty(known, test.contexts, test.step_offsets, test.step_offsets[:-1] + picks),
        picks == test.chosen,
    )
    assert ((certain >= 0) & (certain <= 1)).all()
    assert certain[right].mean() > certain[~right].mean()


def test_features_that_never_differ_are_unidentified(run):
    kind, rng = run.expert_settings.kind, np.random.default_rng(0)
    episodes = []
    for _, episode in run.log.episodes():
        X = episode.contexts.reshape(episode.n_steps, -1, 5)
        user = np.broadcast_to(rng.normal(size=(len(X), 1, 1)), (*X.shape[:2], 1))
        episodes.append((np.concatenate([X, user], axis=2), episode.chosen))
    known = follow(ibcb.BehaviorLog.from_episodes(episodes, warmup=1), 0.3, kind)
    assert_array_equal(unidentified(known), [5])


def test_sample_is_bounded_uniform_and_grows_by_episode(run):
    sample = ContextSample.empty(5)
    seen = 0
    for number, (_, episode) in enumerate(run.log.episodes()):
        sample = sample.extend(picked(blocks(episode)[0], most=sample.bar, episode=number))
        seen += episode.n_steps
    assert sample.contexts.size <= 1.5 * MOST
    assert len(sample.counts) == seen
    best = best_rows(sample.contexts[:, 0], np.append(0, sample.counts.cumsum()))
    assert best[0] == sample.contexts[: sample.counts[0], 0].argmax()


def test_steps_with_one_candidate_say_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1, 3))
    log = ibcb.BehaviorLog.from_episodes([(X, np.zeros(20, dtype=int)) for _ in range(3)])
    known = follow(log, 1.0, "sbts")
    assert np.isfinite(forecast(known, 3)).all()


def test_a_model_without_prediction_says_so(run):
    model = ibcb.IBCB(expert=run.expert_settings.kind, forecast=None).fit(run.log)
    with pytest.raises(ValueError, match="forecast='auto'"):
        model.forecast()
    with pytest.raises(ValueError, match="forecast"):
        ibcb.IBCB(forecast="yes").fit(run.log)


@pytest.mark.parametrize("seed", [0, 1])
def test_no_policy_is_beyond_all_bounds_because_alpha_is_hardly_known(seed):
    """Of an alpha believed to be -0.1 +- 0.4 it is known that it is above 0, and so about 0.3."""
    rng, theta = np.random.default_rng(seed), np.array([0.5, -0.3, 0.2])
    scale, origin = np.array([1.0, 2.0, 0.5]), np.full(3, 0.5)
    expert, pairs, own = ibcb.SBUCB(3, alpha=0.4, l2=0.5 * scale**2, origin=origin), [], []
    for number in range(5):
        X = rng.normal(size=(300, 6, 3)) * scale + origin
        chosen = rng.integers(6, size=300) if number == 0 else expert.act(X)
        own.append(expert.coef_ / 0.4)
        S = X[np.arange(300), chosen]
        expert.update(S, S @ theta + 0.8)
        pairs.append((X, chosen))
    kind = KINDS["sbucb"](l2=0.5, frame=Frame("standardized", scale, origin))
    track = tracked(ibcb.BehaviorLog.from_episodes(pairs, warmup=1), kind)
    lengths = np.linalg.norm(track.policies, axis=1) / np.linalg.norm(own[1:], axis=1)
    assert lengths.max() < 5
    assert lengths.min() > 0.2


# -- what the estimator tells ----------------------------------------------------------------------------------------


def with_user(run: ibcb.Run, names: tuple[str, ...] | None = None) -> ibcb.BehaviorLog:
    """The run's log with a sixth feature that all candidates of a step share."""
    rng, episodes = np.random.default_rng(0), []
    for _, episode in run.log.episodes():
        X = episode.contexts.reshape(episode.n_steps, -1, 5)
        user = np.broadcast_to(rng.normal(size=(len(X), 1, 1)), (*X.shape[:2], 1))
        episodes.append((np.concatenate([X, user], axis=2), episode.chosen))
    return ibcb.BehaviorLog.from_episodes(episodes, warmup=1, feature_names=names)


def test_certainty_is_the_share_of_drawn_policies_that_agree(run, fitted):
    """Drawn again from what each model of the family believes, as far as it is likely, by another route."""
    model, rng = fitted, np.random.default_rng(1)
    beliefs, evidence = next_models(model._fit.track)
    weights = np.exp(evidence - evidence.max())
    models = rng.choice(len(weights), size=6000, p=weights / weights.sum())
    parts = [
        rng.multivariate_normal(beliefs.mean[k], beliefs.covariance[k], size=np.sum(models == k))
        for k in range(len(weights))
    ]
    drawn = np.concatenate(parts)
    X = run.test_log.contexts[: 60 * 10].reshape(60, 10, 5)
    picks = model.predict(X)
    shares = np.mean((X @ drawn.T).argmax(axis=1) == picks[:, None], axis=1)
    found = model.certainty(X)
    assert found.shape == (60,)
    # 1,000 draws: a standard error of 0.016 at most.
    assert np.abs(found - shares).max() < 0.07
    assert np.abs(found - shares).mean() < 0.01
    assert model.certainty(X[0]) == found[0]
    assert_array_equal(model.certainty(run.test_log)[:60], found)
    ragged = model.certainty([X[0], X[1, :4]])
    assert ragged[0] == found[0]
    with pytest.raises(ValueError, match="4 features"):
        model.certainty(X[:, :, :4])


def test_certainty_does_not_depend_on_how_many_steps_are_asked_at_once(run, fitted, monkeypatch):
    sets = run.test_log.contexts[: 60 * 10].reshape(60, 10, 5)
    whole = fitted.certainty(sets)
    monkeypatch.setattr("ibcb.estimators.answers._STEPS_AT_ONCE", 7)
    assert_array_equal(fitted.certainty(sets), whole)


@pytest.mark.parametrize("names", [None, ("a", "b", "c", "d", "e", "user")])
def test_unidentified_features_are_named_and_have_no_bounds(run, fitted, names, tmp_path):
    kind = run.expert_settings.kind
    model = ibcb.IBCB(expert=kind, l2=0.3).fit(with_user(run, names))
    name = "5" if names is None else "user"
    assert model.unidentified_features_ == (name,)
    assert any(f"weight of feature {name!r}" in str(note) for note in model.notes_)
    for found in (model.policy_interval(), model.policy_interval(direction=True), model.reward_interval()):
        assert found.estimate[5] == pytest.approx(0.0, abs=1e-9)
        assert (found.lower[5], found.upper[5]) == (-np.inf, np.inf)
        assert np.isfinite(np.delete(np.array(found), 5, axis=1)).all()
    ibcb.save_model(model, tmp_path / "m.safetensors")
    again = ibcb.load_model(tmp_path / "m.safetensors")
    assert (again.unidentified_features_, again.notes_) == (model.unidentified_features_, model.notes_)
    assert fitted.unidentified_features_ == ()
    assert not any(note.code == "undetermined-features" for note in fitted.notes_)


def test_one_of_each_kind_is_told_only_against_the_others():
    """One-hot columns add up to 1 for every candidate: adding a number to all their weights changes nothing."""
    rng, expert, episodes = np.random.default_rng(3), ibcb.SBUCB(4, alpha=0.4, l2=1.0), []
    for _ in range(5):
        X = np.concatenate([np.eye(3)[rng.integers(3, size=(150, 6))], rng.normal(size=(150, 6, 1))], axis=2)
        chosen = expert.act(X)
        S = X[np.arange(150), chosen]
        expert.update(S, S @ [1.0, 0.0, -0.5, 0.7])
        episodes.append((X, chosen))
    log = ibcb.BehaviorLog.from_episodes(episodes, feature_names=["kind=a", "kind=b", "kind=c", "price"])
    model = ibcb.IBCB(l2=1.0).fit(log)
    assert model.unidentified_features_ == ("kind=a", "kind=b", "kind=c")
    some = np.array([0.3, -0.2, 0.6, 1.0])
    moved = some + 5.0 * np.array([1, 1, 1, 0])
    assert_allclose(model.direction(moved), model.direction(some), atol=1e-9)
    # Against the group's mean, each weighed by what the choices told of it; at a length that gives scores deviation 1.
    told, V = model._fit.track.seen.information.diagonal()[:3], model._fit.track.seen.within
    centred = np.append(some[:3] - told @ some[:3] / told.sum(), 1.0)
    assert_allclose(model.direction(some), centred / np.sqrt(centred @ V @ centred), atol=1e-7)
    for weights in (model.coef_, model.next_policy_coef_, *model.policy_coefs_):
        assert told @ weights[:3] == pytest.approx(0.0, abs=1e-6 * told.sum() * np.abs(weights).max())
    mine, its = (each @ V for each in (model.forecast(), expert.coef_))
    assert mine @ expert.coef_ > 0.999 * np.sqrt((mine @ model.forecast()) * (its @ expert.coef_))


def test_direction_intervals_of_sbucb_cover():
    inside = []
    for run, known in seen_and_known("sbucb"):
        policy = run.policy_coefs[-2] / np.sqrt(run.policy_coefs[-2] @ known.seen.within @ run.policy_coefs[-2])
        found = interval(known, 0.9, direction=True)
        inside.append((found.lower <= policy) & (policy <= found.upper))
    assert 0.80 <= np.mean(inside) <= 0.98


def test_policy_at_is_the_policy_believed_and_then_the_forecast(run, fitted):
    model = fitted
    blind = ibcb.IBCB(expert=run.expert_settings.kind, l2=0.3, forecast=None).fit(run.log)
    assert_array_equal(model.policy_at(5), model.forecast(0))
    X = run.test_log.contexts.reshape(run.test_log.n_steps, -1, 5)
    agreement = []
    for episode in range(1, 6):
        assert_array_equal(model.policy_at(episode), model.policy_coefs_[episode])
        own = (X @ run.policy_coefs[episode]).argmax(axis=1)
        points = model.policy_at(episode), blind.policy_at(episode)
        agreement.append([np.mean((X @ p).argmax(axis=1) == own) for p in points])
    # What is believed lies inside what the choices allow; Algorithm 2 goes to its edge.
    believed, edge = np.mean(agreement, axis=0)
    assert believed > edge
    assert_array_equal(model.policy_at(6), model.next_policy_coef_)
    assert_array_equal(model.policy_at(9), model.forecast(4))
    assert_array_equal(blind.policy_at(6), blind.next_policy_coef_)
    assert_array_equal(blind.policy_at(3), blind.policy_coefs_[3])
    for ask, value in ((blind.policy_at, 7), (blind.certainty, run.test_log), (blind.policy_interval, 0.9)):
        with pytest.raises(ValueError, match="fitted with forecast=None"):
            ask(value)
    assert blind.unidentified_features_ is None
    assert blind.forecast_note_ is None
    with pytest.raises(ValueError, match="episode=-1"):
        model.policy_at(-1)
    for level in (0.0, 1.0, 90):
        with pytest.raises(ValueError, match="level="):
            model.policy_interval(level)
    with pytest.raises(ValueError, match="weights have shape"):
        model.direction(np.ones(4))


def test_where_nothing_was_learned_nothing_is_certain():
    rng = np.random.default_rng(0)
    log = ibcb.BehaviorLog.from_episodes([(rng.normal(size=(20, 1, 3)), np.zeros(20, dtype=int)) for _ in range(3)])
    model = ibcb.IBCB(expert="sbts").fit(log)
    assert np.isnan(model.certainty(rng.normal(size=(4, 3, 3)))).all()
    assert model.unidentified_features_ == ("0", "1", "2")
    assert not any(note.code == "undetermined-features" for note in model.notes_)


@functools.cache
def alike_but_for_one_unit(kind: str, size: float, **params) -> ibcb.IBCB:
    """A fit on the log of one who likes the second feature and not the third; the first is of another size."""
    X = np.random.default_rng(0).normal(size=(5, 40, 4, 3))
    log = ibcb.BehaviorLog.from_episodes(
        [(each * [size, 1, 1], (each @ [0.0, 1.0, -1.0]).argmax(axis=1)) for each in X]
    )
    return ibcb.IBCB(expert=kind, solver="robust", **params).fit(log)


@pytest.mark.filterwarnings("ignore:the (log seems to start|choices of the first episode)")
@pytest.mark.parametrize(
    ("size", "forecast"),
    [
        *product([1e-12, 1e12, 1e40, 1e-40], ["auto"]),
        *product([1e40, 1e-40], [None]),
        *(slow(1e15, "auto"), slow(1e-12, None), slow(1e12, None), slow(1e15, None)),
    ],
)
@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
def test_a_feature_of_any_size_is_one_in_other_units(kind, size, forecast):
    own, model = (alike_but_for_one_unit(kind, each, forecast=forecast) for each in (1.0, size))
    assert (model.l2_, model.units_) == (own.l2_, own.units_)
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        mine, its = getattr(own, name), getattr(model, name) * [size, 1.0, 1.0]
        assert_allclose(its, mine, rtol=1e-5, atol=1e-6 * np.abs(mine).max())
    assert [each.violated for each in model.diagnostics_] == [each.violated for each in own.diagnostics_]


@pytest.mark.filterwarnings("ignore:the (log seems to start|choices of the first episode)")
@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
@pytest.mark.parametrize("l2", [1.0, "auto"])
@pytest.mark.parametrize("size", [1e-155, 1e-12, 1e12])
def test_a_belief_that_numbers_cannot_hold_is_given_up_with_a_word(kind, size, l2):
    if size == 1e-155:
        with pytest.raises(ValueError, match=r"feature 0 is \S+e-155 at most .* vanish. Rescale it"):
            alike_but_for_one_unit(kind, size, l2=l2)
        return
    model = alike_but_for_one_unit(kind, size, l2=l2)
    assert np.isfinite(model.next_policy_coef_).all()
    assert (model.forecast_model_ is None) == ("not-tracked" in {note.code for note in model.notes_})
