"""sampling_rate: a log that is a sample of the decider's choices, which its Gram matrix has all of."""

from functools import cache

import numpy as np
import pytest
from conftest import small_run

import ibcb


@cache
def sampled(kind, rate, l2=1000.0, steps=100, seed=1, d=6):
    """A decider with a large l2, of whose choices the log has a share; about so many steps an episode are logged."""
    rng = np.random.default_rng(seed)
    truth, count = rng.normal(size=d), int(steps / rate)
    live = {"sbucb": ibcb.SBUCB(d, alpha=1.0, l2=l2), "sbts": ibcb.SBTS(d, alpha=1.0, l2=l2, random_state=rng)}[kind]
    episodes = []
    for _ in range(8):
        X = rng.normal(size=(count, 8, d))
        chosen = live.act(X)
        S = X[np.arange(count), chosen]
        live.update(S, S @ truth + 0.3 * rng.normal(size=count))
        kept = rng.random(count) < rate
        episodes.append((X[kept], chosen[kept]))
    return ibcb.BehaviorLog.from_episodes(episodes), live


def fitted(log, kind, **options):
    return ibcb.IBCB(expert=kind, **options).fit(log)


@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
@pytest.mark.parametrize("forecast", ["auto", None])
def test_a_rate_is_a_factor_of_l2_and_of_the_widths(kind, forecast):
    log = small_run(kind).log
    G = np.diag([3.0, 4.0, 5.0, 6.0])
    model = fitted(log, kind, l2=2.0, alpha=3.0, sampling_rate=0.25, prior_gram=G, forecast=forecast)
    same = fitted(log, kind, l2=0.5, alpha=1.5, prior_gram=G / 4, forecast=forecast)
    assert model.l2_ == 2.0
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        np.testing.assert_allclose(getattr(model, name), getattr(same, name), rtol=1e-9)
    np.testing.assert_allclose(model.decision_function(log), same.decision_function(log), rtol=1e-9)
    # The live policy has all the choices, and makes those that the fit explains.
    whole, part = model.to_policy(), same.to_policy()
    np.testing.assert_allclose(whole.gram_, 4 * part.gram_)
    np.testing.assert_allclose(whole.coef_, part.coef_)
    assert (whole.l2, whole.alpha) == (2.0, 3.0)
    if kind == "sbucb":
        test = small_run(kind).test_log.contexts.reshape(-1, 7, 4)[:300]
        assert (whole.act(test) == part.act(test)).all()


@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
def test_a_live_policy_is_as_sure_as_the_decider_was(kind):
    log, live = sampled(kind, 0.1)
    policy = fitted(log, kind, l2=1000.0, sampling_rate=0.1).to_policy()
    X = np.random.default_rng(0).normal(size=(50, 6))

    def widths(policy):
        return np.sqrt(np.einsum("mi,ij,mj->m", X, np.linalg.inv(policy.gram_ + policy.l2 * np.eye(6)), X))

    np.testing.assert_allclose(widths(policy), widths(live), rtol=0.1)
    np.testing.assert_array_less(2 * widths(live), widths(fitted(log, kind, l2=100.0).to_policy()))


def test_a_sample_is_guessed_from_the_spread_of_draws():
    for kind, rate, expected in (("sbts", 0.1, True), ("sbts", 1.0, False), ("sbucb", 0.1, False)):
        notes = fitted(sampled(kind, rate)[0], kind, l2=1000.0).notes_
        found = [note for note in notes if note.code == "looks-sampled"]
        assert bool(found) == expected
    (note,) = [n for n in fitted(sampled("sbts", 0.1)[0], "sbts", l2=1000.0).notes_ if n.code == "looks-sampled"]
    assert note.figures["rate"] == 0.1
    assert "sampling_rate=0.1 (--sampling-rate 0.1)" in note.text
    told = fitted(sampled("sbts", 0.1)[0], "sbts", l2=1000.0, sampling_rate=0.1)
    assert "looks-sampled" not in [note.code for note in told.notes_]


def test_bonuses_on_the_page_are_the_deciders_own():
    log = small_run().log
    model = fitted(log, "sbucb", l2=2.0, alpha=3.0, sampling_rate=0.25)
    last = ibcb.explain(model, log).candidates(5, 0)
    before = log[:5]
    S = before.contexts[before.chosen_rows]
    Psi = 2.0 * np.eye(4) + S.T @ S / 0.25
    step = int(log.episode_offsets[6])
    X = log.candidates(step)
    widths = np.sqrt(np.einsum("mi,ij,mj->m", X, np.linalg.inv(Psi), X))
    np.testing.assert_allclose(last.exploration, 3.0 * widths)


def test_a_model_keeps_its_rate(tmp_path):
    log = small_run().log
    model = fitted(log, "sbucb", l2=2.0, sampling_rate=0.25)
    ibcb.save_model(model, tmp_path / "m.safetensors")
    loaded = ibcb.load_model(tmp_path / "m.safetensors")
    assert loaded.get_params()["sampling_rate"] == 0.25
    np.testing.assert_array_equal(loaded.to_policy().gram_, model.to_policy().gram_)
    steps = ibcb.IBCB(expert="sbucb", l2=2.0, sampling_rate=0.25)
    for episode in log:
        steps.partial_fit(episode)
    np.testing.assert_allclose(steps.next_policy_coef_, model.next_policy_coef_)
    steps.set_params(sampling_rate=0.5)
    with pytest.raises(ValueError, match=r"sampling_rate is 0\.5 but the episodes so far were fitted with 0\.25"):
        steps.partial_fit(log[-1])


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan"), "half", None])
def test_rates_that_are_none(rate):
    with pytest.raises((ValueError, TypeError), match="sampling_rate"):
        fitted(small_run().log, "sbucb", sampling_rate=rate)
