"""What every kind of decider keeps to: one suite for all entries of `ibcb.deciders.KINDS`."""

import functools
import pickle
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
import pytest
from conftest import asked_for, small_run
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils.validation import check_is_fitted

from ibcb import IBCB, BehaviorLog
from ibcb.deciders import FIRST_STRAY, KINDS, Believed
from ibcb.engine import blocks, candidate_moments
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Chosen, gram, ridge
from ibcb.tracking.motions import models_of, motions_of

SIZE = {"n_episodes": 4, "batch_size": 60, "n_candidates": 4, "n_features": 3, "warmup": 60}


def make(name):
    """A kind with parameters that matter to it."""
    kind = KINDS[name]
    return kind(**{"l2": 0.3} if kind.learns else {"top_k": 2} if kind.setting("top_k") else {})


@functools.cache
def run_of(name):
    return small_run("sbts" if name == "sbts" else "sbucb", **SIZE)


def past(log):
    """What had been learned before the log's last episode."""
    stored = [part for _, part in log.episodes()]
    return sum(gram(part.contexts[part.chosen_rows]) for part in stored[:-1])


def block_of(sets, chosen):
    (block,) = blocks(BehaviorLog.from_episodes([(sets, chosen)]))
    return block


def beliefs_of(kind, block, before, total):
    """What the kind's models believe before they see anything."""
    unit = kind.unit(candidate_moments(block))
    return tuple(motion.start(unit, before, total) for motion in motions_of(kind, models_of(kind, len(unit))))


class Lessons(NamedTuple):
    """What the beliefs of a kind become by the choices of a block."""

    families: tuple
    log_likelihoods: tuple
    information: np.ndarray


def lessons_of(seen, families, d):
    learned, likely = zip(*(each.given(site) for each, site in zip(families, seen.sites, strict=True)), strict=True)
    return Lessons(learned, likely, seen.sites[-1].information[:d, :d])


def asked(kind, evidence):
    """The families that have a chance, the likeliest first, of equals the last."""
    order = sorted(range(len(evidence)), key=lambda family: (-evidence[family], -family))
    return tuple(family for family in order if evidence[family] >= max(evidence) - kind.hopeless)


def learned(kind, block, before, total=None, evidence=None):
    """Beliefs before, what was observed of a block, and lessons from it."""
    families = beliefs_of(kind, block, before, total)
    d = block.contexts.shape[1]
    leaders = tuple(family[len(family) - 1 :].of_first(d + len(kind.added)) for family in families)
    believed = Believed(leaders[0], leaders, asked(kind, evidence or (0.0,) * len(families)))
    seen = kind.observe(kind.rule.columns(block, before), believed, FIRST_STRAY)
    seen = pickle.loads(pickle.dumps(seen))  # it travels
    return families, seen, lessons_of(seen, families, d)


@pytest.fixture(params=list(KINDS))
def name(request):
    return request.param


@pytest.fixture
def kind(name):
    return make(name)


@pytest.fixture
def world(kind, name):
    """The last episode of a log: its sets and choices, its block, and what had been learned before."""
    log = run_of(name).log
    episode = log[len(log) - 1]
    sets = episode.contexts.reshape(episode.n_steps, -1, 3)
    return sets, episode.chosen, block_of(sets, episode.chosen), ridge(past(log), kind.l2)


# -- choice rule ---------------------------------------------------------------------------------------------------


def test_beliefs_stay_finite_and_get_surer(kind, world):
    _, _, block, before = world
    for total in (None, np.ones(3)):
        for lead in (0.0, 100.0, -100.0):
            evidence = tuple(lead * place for place in range(len(kind.motions.families)))
            families, seen, lessons = learned(kind, block, before, total, evidence)
            assert len(lessons.families) == len(lessons.log_likelihoods) == len(families)
            for old, new, likely in zip(families, lessons.families, lessons.log_likelihoods, strict=True):
                assert new.mean.shape == old.mean.shape
                assert new.covariance.shape == old.covariance.shape
                assert likely.shape == (len(old),)
                for array in (new.mean, new.covariance, likely):
                    assert np.isfinite(array).all()
                assert_allclose(new.covariance, np.swapaxes(new.covariance, 1, 2), rtol=1e-6, atol=1e-9)
                # Nobody is less sure than before.
                scale = np.sqrt(np.diagonal(old.covariance, axis1=1, axis2=2))
                scale = np.where(scale > 0, scale, 1.0)
                less = (old.covariance - new.covariance) / scale[:, :, None] / scale[:, None]
                assert np.linalg.eigvalsh(less).min() > -1e-6
                assert np.linalg.eigvalsh(new.covariance / scale[:, :, None] / scale[:, None]).min() > -1e-6
            assert lessons.information.shape == (3, 3)
            assert_allclose(lessons.information, lessons.information.T, rtol=1e-9)
            assert np.linalg.eigvalsh(lessons.information).min() >= -1e-9 * np.trace(lessons.information)
            assert np.trace(lessons.information) > 0
            assert 0 <= seen.stray <= 1


def test_what_is_learned_explains_the_choices(kind, world, name):
    """The policy believed after an episode gives its choices the best score more often than its opposite does, and so
    does the decider's own.
    """
    sets, chosen, block, before = world
    _, _, lessons = learned(kind, block, before)
    state, run = lessons.families[0].mean[-1], run_of(name)
    believed = state[:3] / (1.0 if kind.per_unit is None else state[3 + kind.per_unit])
    for policy in (believed, run.policy_coefs[len(run.log) - 1] / run.expert_settings.alpha):
        right, wrong = (kind.scores(block, before, sign * policy).reshape(len(sets), -1) for sign in (1.0, -1.0))
        agree, against = (np.mean(scores.argmax(axis=1) == chosen) for scores in (right, wrong))
        assert agree > max(0.5, against + 0.3)


@pytest.mark.parametrize("case", ["equal", "one candidate"])
def test_nothing_is_learned_from_candidates_that_do_not_differ(kind, world, rng, case):
    _, _, _, before = world
    if case == "equal":
        sets = np.repeat(rng.normal(size=(20, 1, 3)), 4, axis=1)
        block = block_of(sets, rng.integers(4, size=20))
    else:
        block = block_of(rng.normal(size=(20, 1, 3)), np.zeros(20, dtype=int))
    families, _, lessons = learned(kind, block, before, np.ones(3))
    assert_allclose(lessons.information, 0.0, atol=1e-12)
    # That alpha is positive is known without choices.
    place = 3 if len(kind.added) else None
    for old, new, likely in zip(families, lessons.families, lessons.log_likelihoods, strict=True):
        for one, other in zip(without(old, place), without(new, place), strict=True):
            assert_allclose(other, one, rtol=1e-6, atol=1e-9)
        # No model is likelier than another.
        assert_allclose(likely, likely[0], atol=1e-9)
    assert np.isfinite(kind.scores(block, before, np.ones(3))).all()


def without(beliefs, place):
    """Mean and covariance without an entry of the state."""
    if place is None:
        return beliefs.mean, beliefs.covariance
    kept = np.delete(np.arange(beliefs.mean.shape[1]), place)
    return beliefs.mean[:, kept], beliefs.covariance[:, kept[:, None], kept]


def test_the_order_of_candidates_and_steps_does_not_matter(kind, world, rng):
    # So few steps that nothing is left out of the first look at them.
    sets, chosen, before = world[0][:30], world[1][:30], world[3]
    block = block_of(sets, chosen)
    orders = rng.permuted(np.tile(np.arange(sets.shape[1]), (len(sets), 1)), axis=1)
    steps = rng.permutation(len(sets))
    shuffled = np.take_along_axis(sets, orders[:, :, None], axis=1)[steps]
    picked = (orders == chosen[:, None]).argmax(axis=1)[steps]
    other = block_of(shuffled, picked)
    assert_allclose(kind.unit(candidate_moments(other)), kind.unit(candidate_moments(block)), rtol=1e-9)
    (_, _, one), (_, _, two) = learned(kind, block, before), learned(kind, other, before)
    for mine, its in zip(one.families, two.families, strict=True):
        unit = np.sqrt(np.diagonal(mine.covariance, axis1=1, axis2=2))
        assert (np.abs(its.mean - mine.mean) <= 1e-8 * (unit + np.abs(mine.mean))).all()
        assert_allclose(its.covariance, mine.covariance, rtol=1e-7, atol=1e-8 * float(unit.max()) ** 2)
    for mine, its in zip(one.log_likelihoods, two.log_likelihoods, strict=True):
        assert_allclose(its, mine, rtol=1e-8)
    assert_allclose(two.information, one.information, rtol=1e-7, atol=1e-8 * np.trace(one.information))
    policy = rng.normal(size=3)
    scores = kind.scores(block, before, policy).reshape(len(sets), -1)
    again = kind.scores(other, before, policy).reshape(len(sets), -1)
    assert_allclose(again, np.take_along_axis(scores, orders, axis=1)[steps], rtol=1e-9, atol=1e-12)


def test_the_unit_of_policies_is_that_of_the_candidates(kind, world):
    """A feature in other units has a weight in other units: scores stay what they are."""
    sets, chosen, block, _ = world
    unit, factors = kind.unit(candidate_moments(block)), np.array([10.0, 0.1, 1.0])
    assert_allclose(unit, unit.T, rtol=1e-12)
    assert np.linalg.eigvalsh(unit).min() > 0
    rescaled = kind.unit(candidate_moments(block_of(sets * factors, chosen)))
    assert_allclose(rescaled, unit / factors / factors[:, None], rtol=1e-9)


def test_a_model_learns_the_same_whoever_is_beside_it(kind, world):
    _, _, block, before = world
    families, seen, together = learned(kind, block, before)
    for place in (0, len(families[0]) - 1):
        alone, likely = families[0][place : place + 1].given(seen.sites[0])
        assert_array_equal(alone.mean[0], together.families[0].mean[place])
        assert_array_equal(alone.covariance[0], together.families[0].covariance[place])
        assert_array_equal(likely, together.log_likelihoods[0][[place]])


@pytest.mark.parametrize("units", ["scaled", "standardized"])
def test_a_frame_is_features_brought_to_its_units(kind, world, rng, units):
    """Scores and lessons are those of a decider whose features have been scaled, or centred and scaled, by hand."""
    sets, chosen, _, _ = world
    sets = sets * [1.0, 30.0, 0.1] + [0.0, 5.0, 1.0]
    block = block_of(sets, chosen)
    S = sets[np.arange(len(sets)), chosen][:40]
    scaled, standardized = candidate_moments(block).frames()
    frame = {"scaled": scaled, "standardized": standardized}[units]
    Z = (sets - frame.origin) / frame.scale
    by_hand = block_of(Z, chosen)
    T = Z[np.arange(len(Z)), chosen][:40]
    own = replace(kind, frame=frame)
    known = Chosen(len(S), S.sum(axis=0), S.T @ S)
    framed, plain = own.regularization.ridge(known), ridge(T.T @ T, kind.l2)
    policy = rng.normal(size=3)
    mine = own.scores(block, framed, policy / frame.scale).reshape(len(sets), -1)
    its = kind.scores(by_hand, plain, policy).reshape(len(sets), -1)
    assert_allclose(mine - mine[:, :1], its - its[:, :1], atol=1e-4)
    o = 3 + len(kind.added)
    unit = np.append(1 / frame.scale, np.ones(o - 3))
    prior = Beliefs(np.full((1, o), 0.1), 4 * np.eye(o)[None])
    moved = Beliefs(prior.mean * unit, prior.covariance * unit * unit[:, None])
    families = len(kind.motions.families)
    seen, other = (
        each.observe(
            each.rule.columns(rows, ridge_),
            Believed(belief, (belief,) * families, tuple(range(families))[::-1]),
            FIRST_STRAY,
        )
        for each, rows, ridge_, belief in ((own, block, framed, moved), (kind, by_hand, plain, prior))
    )
    found, expected = moved.given(seen.sites[-1])[0], prior.given(other.sites[-1])[0]
    deviation = np.sqrt(expected.covariance[0].diagonal())
    # Rows are searched in single precision.
    assert (np.abs(found.mean[0] / unit - expected.mean[0]) <= 0.02 * deviation).all()
    assert_allclose(np.sqrt(found.covariance[0].diagonal()) / unit, deviation, rtol=0.02)


# -- a kind as a thing ---------------------------------------------------------------------------------------------


def test_a_kind_travels(kind, world):
    """To the workers of a cluster, alone and inside a kernel."""
    again = pickle.loads(pickle.dumps(kind))
    assert again == kind
    assert hash(again) == hash(kind)
    assert (again.label, again.title, again.words) == (kind.label, kind.title, kind.words)
    _, _, block, before = world
    kernel = pickle.loads(pickle.dumps(functools.partial(kind.scores, before=before, policy=np.ones(3))))
    assert_array_equal(kernel(block), kind.scores(block, before, np.ones(3)))


def test_a_kind_has_words(kind, name):
    assert name == (f"{kind.name}-episode" if kind.setting("draws") == "episode" else kind.name)
    assert kind.label.startswith(kind.name)
    assert (f"{kind.l2:g}" in kind.label) == kind.learns
    assert (str(kind.top_k) in kind.label) == (kind.setting("top_k") is not None)
    words = asdict(kind.words) | {"title": kind.title}
    explores = bool(kind.words.explored)
    assert explores == bool(kind.words.exploration) == (name not in ("stationary", "other", "sbts-episode"))
    for part, text in words.items():
        may_be_silent = (part == "misfit" and kind.deterministic) or (
            part in ("explored", "exploration") and not explores
        )
        assert text or may_be_silent or part == "spread"
        assert text == text.strip()
        assert not text.endswith("..")
        # A sentence ends in a full stop; what others make sentences of does not.
        assert text.endswith(".") == (bool(text) and part in ("exploration", "misfits", "contradictions")), part
    assert f'"{kind.name}"' in IBCB.__doc__
    others = [make(other) for other in KINDS if other != name]
    assert kind.words.meaning not in [other.words.meaning for other in others]
    assert kind.title not in [other.title for other in others]


# -- a fit with it ---------------------------------------------------------------------------------------------------


def with_user(log):
    """The log with a fourth feature that all candidates of a step share."""
    rng, episodes = np.random.default_rng(0), []
    for _, episode in log.episodes():
        X = episode.contexts.reshape(episode.n_steps, -1, log.n_features)
        user = np.broadcast_to(rng.normal(size=(len(X), 1, 1)), (*X.shape[:2], 1))
        episodes.append((np.concatenate([X, user], axis=2), episode.chosen))
    return BehaviorLog.from_episodes(episodes, warmup=log.warmup)


@functools.cache
def fitted(name):
    kind = make(name)
    params = {"l2": kind.l2} if kind.learns else {"top_k": kind.top_k} if kind.setting("top_k") else {}
    return IBCB(**asked_for(name), **params).fit(with_user(run_of(name).log))


def test_a_fit_holds_what_it_was_asked_for(name, kind):
    model = fitted(name)
    check_is_fitted(model)
    # Of a kind that does not learn l2 is only that of its exact explanation.
    assert replace(model.decider_, frame=None) == kind
    assert (model.expert_, model.l2_, model.units_) == (kind.name, kind.l2, "own" if kind.learns else "scaled")
    motions = motions_of(kind, models_of(kind, 3))
    assert model.forecast_model_ in [each for motion in motions for each in motion.names]
    for array in (model.coef_, model.policy_coefs_, model.next_policy_coef_, model.forecast(3)):
        assert np.isfinite(array).all()
    assert all(str(note).strip() and not str(note).endswith("..") for note in model.notes_)


def test_what_no_choice_depends_on_is_undetermined(name, kind):
    model = fitted(name)
    assert model.unidentified_features_ == ("3",)
    assert "undetermined-features" in [note.code for note in model.notes_]
    for weights in (model.coef_, model.policy_coefs_, model.next_policy_coef_, model.forecast(3)):
        assert_allclose(weights[..., 3], 0.0, atol=1e-9 * np.abs(weights).max())
    asked = (model.policy_interval, model.reward_interval) if kind.learns else (model.policy_interval,)
    for ask in asked:
        estimate, lower, upper = ask()
        assert np.isfinite(estimate).all()
        assert (lower <= estimate).all()
        assert (estimate <= upper).all()
        bounded = np.arange(len(estimate)) != 3
        assert np.isfinite(lower[bounded]).all()
        assert np.isfinite(upper[bounded]).all()
        assert (lower[3], upper[3]) == (-np.inf, np.inf)
    assert_allclose(model.direction(model.policy_coefs_)[:, 3], 0.0, atol=1e-9)
    direction = model.policy_interval(direction=True)
    assert direction.estimate[3] == pytest.approx(0.0, abs=1e-9)
    assert (direction.lower[3], direction.upper[3]) == (-np.inf, np.inf)


def test_rewards_are_bounded_of_kinds_that_learn(name, kind):
    model = fitted(name)
    if kind.learns:
        found = model.reward_interval()
        assert_allclose(found.estimate, np.append(model.coef_, model.intercept_), rtol=1e-12)
        wider = model.reward_interval(0.99)
        assert (wider.lower <= found.lower).all()
        assert (wider.upper >= found.upper).all()
        return
    with pytest.raises(ValueError, match="coef_ is its policy and there are no rewards to bound"):
        model.reward_interval()
    assert_array_equal(model.coef_, model.next_policy_coef_)
    assert model.intercept_ == 0.0
    assert "coef-is-policy" in [note.code for note in model.notes_]


def test_certainty_is_a_probability_on_ties_too(name, rng):
    model = fitted(name)
    sets = rng.normal(size=(40, 4, 4))
    plain, best = model.certainty(sets), model.predict(sets)
    doubled = np.concatenate([sets, sets[np.arange(40), best][:, None]], axis=1)
    assert_array_equal(model.certainty(doubled), plain)
    first = np.concatenate([sets[np.arange(40), best][:, None], sets], axis=1)
    assert_array_equal(model.certainty(first), plain)
    for found in (plain, model.certainty([sets[0], sets[1, :2], sets[2, :1]])):
        assert ((found >= 0) & (found <= 1)).all()
    equal = np.repeat(sets[:, :1], 4, axis=1)
    assert_array_equal(model.certainty(equal), np.ones(40))
    assert model.certainty(equal[0]) == 1.0
    assert model.certainty(sets[0, :1]) == 1.0


@pytest.mark.parametrize("name", KINDS)
def test_steps_of_any_size_may_stand_in_any_order(name):
    """Numbers of candidates differ, one included: within an episode, the order of the steps tells nothing."""
    rng = np.random.default_rng(4)
    theta, episodes = rng.normal(size=3), []
    for _ in range(3):
        sets = [rng.normal(size=(count, 3)) for count in rng.permutation(np.repeat([1, 2, 3, 5], 15))]
        # Now and then any candidate is taken.
        chosen = [int(rng.integers(len(s)) if rng.random() < 0.2 else (s @ theta).argmax()) for s in sets]
        episodes.append((sets, chosen))
    orders = [sorted(range(60), key=lambda step, sets=sets: len(sets[step])) for sets, _ in episodes]
    ordered = [
        ([sets[step] for step in order], [chosen[step] for step in order])
        for (sets, chosen), order in zip(episodes, orders, strict=True)
    ]
    parameters = {"l2": 0.3, "top_k": 2 if KINDS[name].setting("top_k") else "auto"}
    one, other = (IBCB(**asked_for(name), **parameters, prior_gram=np.eye(3)) for _ in range(2))
    one.fit(BehaviorLog.from_episodes(episodes))
    other.fit(BehaviorLog.from_episodes(ordered))
    # Beliefs are found by passes over the rows, within a share of their spread.
    for policy, its in zip(one.policy_coefs_, other.policy_coefs_, strict=True):
        assert policy @ its > 0.995 * np.linalg.norm(policy) * np.linalg.norm(its)
