"""How behaviour evolved: agreement with today's policy, ribbons, exploration, times; each found in another way too."""

import warnings

import numpy as np
import pytest
from pages import arms, dirty, fitted, shop

import ibcb
from ibcb.engine import History, replay
from ibcb.report import facts, render
from ibcb.report.feature_weights import weight_numbers
from ibcb.report.walking import Ribbons, agreements, today_begins
from ibcb.report.writing import episode_times


def would_take(policy, log):
    return np.array([np.argmax(log.candidates(step) @ policy) for step in range(log.n_steps)])


def without_warmup(log):
    return ibcb.BehaviorLog.from_episodes(
        [
            (episode.contexts.reshape(episode.n_steps, -1, log.n_features), episode.chosen)
            for by_policy, episode in log.episodes()
            if by_policy
        ]
    )


@pytest.mark.parametrize("expert", ["sbucb", "sbts", "softmax"])
def test_agreement_is_that_of_past_policies_with_what_predict_picks(expert):
    model, run = fitted(expert)
    found, log = facts(model, run.log, steps=False), without_warmup(run.log)
    today = model.predict(log)
    assert found.today_steps == log.n_steps
    for entry, policy in zip(found.episodes, model.policy_coefs_, strict=True):
        assert entry.today == pytest.approx(np.mean(would_take(policy, log) == today), abs=1e-9)
    for updates, share in enumerate(found.forecast_today, start=1):
        assert share == pytest.approx(np.mean(would_take(model.forecast(updates), log) == today), abs=1e-9)
    assert found.forecast_today[0] == 1


def test_a_policy_that_prefers_nothing_agrees_as_often_as_chance():
    _, run = fitted()
    today = np.arange(1.0, 5.0)
    shares = agreements(np.stack([np.zeros(4), today, 3 * today, -today]), today, run.log)
    assert shares[:3] == pytest.approx([1 / 7, 1, 1])
    assert shares[3] == 0


def test_today_is_as_many_of_the_latest_episodes_as_make_up_enough_steps():
    assert today_begins([10, 10]) == 0
    assert today_begins([5000, 5000, 5000]) == 2
    assert today_begins([5000, 1500, 1500]) == 1


def test_the_first_screen_says_what_the_facts_say():
    model, log, _ = dirty()
    found = facts(model, log, steps=False)
    assert [driver.name for driver in found.drivers] == [weight.name for weight in found.weights[:3]]
    for driver, weight in zip(found.drivers, found.weights, strict=False):
        assert (driver.way == "up") == (weight.last > 0)
    figures, page = found.verdict.figures, render(found)
    for share in (figures.predicted, figures.rival_predicted, figures.chance):
        assert f"<b>{share:.1%}</b>" in page
    assert f"its first policy would have made {found.episodes[0].today:.0%}." in page
    assert found.misfits.total == sum(episode.misfits for episode in found.episodes)


def test_a_group_drives_as_one():
    model, log = arms()
    found = facts(model, log, steps=False)
    for driver, group in zip(found.drivers, found.groups, strict=False):
        assert (driver.name, driver.share, driver.way) == (group.name, group.influence, "both")
        members = {weight.name: weight.last for weight in found.weights if weight.group == group.name}
        assert members[driver.best] == max(members.values())


def test_where_nothing_was_learned_the_first_screen_claims_nothing():
    log = ibcb.BehaviorLog.from_episodes([(np.zeros((20, 3, 2)), np.zeros(20, dtype=int))] * 3)
    found = facts(ibcb.IBCB(expert="sbucb", l2=1.0).fit(log), log, steps=False)
    assert found.drivers == []
    assert not found.learned
    assert found.verdict.figures is None
    page = render(found)
    assert "Nothing was learned." in page
    assert "→ 100%" not in page


def test_a_model_not_to_be_relied_on_says_so_beside_what_drives_it():
    rng = np.random.default_rng(0)
    log = ibcb.BehaviorLog.from_episodes([(rng.normal(size=(80, 4, 3)), rng.integers(4, size=80)) for _ in range(5)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = facts(ibcb.IBCB(expert="sbucb", l2=1.0).fit(log), log, steps=False)
    assert not found.verdict.supported
    assert "Not to be relied on" in render(found)


# -- ribbons -----------------------------------------------------------------------------------------------------------


def ribbons(model, log):
    """Of every episode, as the log goes by."""
    before = History.before_the_log(np.zeros((log.n_features, log.n_features)))
    (found,) = replay([log], Ribbons(model, before))
    return found


@pytest.mark.parametrize("expert", ["sbucb", "sbts", "egreedy"])
def test_ribbons_are_the_model_s_intervals_as_each_episode_was_seen(expert):
    """Those of the last episode are `policy_interval`; of an earlier one, that of a model of the log until then."""
    model, run = fitted(expert)
    band = ribbons(model, run.log)
    for episodes in (4, 6):
        until = model if episodes == 6 else ibcb.IBCB(expert=expert, l2=0.3).fit(run.log[:episodes])
        interval = until.policy_interval(0.9, direction=True)
        estimate = model.direction(model.policy_coefs_[episodes - 1])
        np.testing.assert_allclose(band[episodes - 1].lower - estimate, interval.lower - interval.estimate, atol=1e-6)
        np.testing.assert_allclose(band[episodes - 1].upper - estimate, interval.upper - interval.estimate, atol=1e-6)


def test_ribbons_hold_the_true_weights_about_as_often_as_they_say():
    run = ibcb.simulate("synthetic", n_episodes=10, batch_size=300, n_features=8, seed=4)
    model = ibcb.IBCB(expert="sbucb", l2=0.3).fit(run.log)
    true = model.direction(run.policy_coefs[:10])
    inside = [(low <= own) & (own <= high) for (_, low, high), own in zip(ribbons(model, run.log), true, strict=True)]
    assert np.mean(inside) > 0.75


def test_the_page_has_one_estimate_and_no_kink():
    model, run = fitted()
    found = facts(model, run.log, steps=False)
    for line, place in enumerate(found.lines):
        weight = found.weights[place]
        assert found.evolution[-1][line] == weight.last
        assert found.forecast[0][line] == weight.policy
        assert found.lower[-1][line] == pytest.approx(weight.low)
        assert found.upper[-1][line] == pytest.approx(weight.high)


# -- exploration -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", [pytest.param("sbts", marks=pytest.mark.slow), "softmax"])
def test_the_exploration_of_a_decider_that_draws_is_its_own(expert):
    run = ibcb.simulate("synthetic", expert=expert, n_episodes=6, batch_size=300, seed=2)
    found = facts(ibcb.IBCB(expert=expert, l2=0.3).fit(run.log), run.log, steps=False)
    true = 1 - np.maximum.reduceat(run.propensities(), run.log.step_offsets[:-1])
    edges = run.log.episode_offsets[run.log.warmup :]
    for entry, first, end in zip(found.episodes, edges[:-1], edges[1:], strict=True):
        assert entry.exploration == pytest.approx(true[first:end].mean(), abs=0.08)


def test_of_an_epsilon_greedy_decider_it_is_epsilon():
    model, run = fitted("egreedy")
    interval = model.exploration_interval(0.9)
    for entry, *own in zip(facts(model, run.log, steps=False).episodes, *interval, strict=False):
        shown = [entry.exploration, entry.exploration_low, entry.exploration_high]
        np.testing.assert_allclose(shown, own, rtol=1e-8)


def test_records_that_were_changed_are_no_exploration():
    model, log, clean = dirty()
    shown = [entry.exploration for entry in facts(model, log, steps=False).episodes]
    own = facts(ibcb.IBCB(expert="sbucb", l2=0.3).fit(clean), clean, steps=False)
    np.testing.assert_allclose(shown, [entry.exploration for entry in own.episodes], atol=0.025)


# -- times and numbers -------------------------------------------------------------------------------------------------


def test_times_are_no_finer_than_it_takes_to_tell_them_apart():
    model, log = shop()
    shown = [entry.time for entry in facts(model, log, steps=False).episodes]
    assert shown == [str(np.datetime64(log[number].timestamps[0], "D")) for number in range(7)]
    assert episode_times(["2024-03-01T08:00:00Z", "2024-03-01T08:00:05Z"])[1] == "2024-03-01 08:00:05"
    assert episode_times(["yesterday", "today"]) == [None, None]
    assert episode_times([np.datetime64("NaT"), np.datetime64("2024-03-01")]) == [None, None]


def test_small_weights_keep_their_digits():
    for weight in facts(*shop(), steps=False).weights:
        for factor in (1.0, weight.spread):
            text = weight_numbers(weight, factor)["last"].replace("\u2212", "-")
            assert len(text.lstrip("-0.").replace(".", "")) >= 3 or float(text) == 0
