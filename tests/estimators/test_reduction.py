"""Logs with very many features: the ones that show most are tracked one by one, the others together."""

import numpy as np
import pytest
from same import assert_same_model
from scipy import sparse

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.estimators import reduction
from ibcb.estimators.reduction import lens_of
from ibcb.log.fingerprint import log_fingerprint


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """So that small logs are wide."""
    monkeypatch.setattr(reduction, "_TRACKED", 20)
    monkeypatch.setattr(reduction, "WIDE", 60)


@pytest.fixture(scope="module")
def episodes():
    """An SBUCB over 90 items, some of which show more often."""
    rng = np.random.default_rng(2)
    d, done = 90, []
    worth, counts, sums, shares = rng.normal(size=d), np.zeros(d), np.zeros(d), rng.dirichlet(np.ones(d) / 2)
    for episode in range(5):
        items = np.array([rng.choice(d, 6, replace=False, p=0.5 * shares + 0.5 / d) for _ in range(150)])
        bounds = (sums / (counts + 1) + 0.4 / np.sqrt(counts + 1))[items]
        picks = bounds.argmax(axis=1) if episode else rng.integers(6, size=150)
        taken = items[np.arange(150), picks]
        np.add.at(counts, taken, 1)
        np.add.at(sums, taken, worth[taken] + 0.3 * rng.normal(size=150))
        rows = sparse.csr_array((np.ones(900), items.ravel(), np.arange(901)), shape=(900, d))
        done.append((rows, picks))
    return done


@pytest.fixture(scope="module")
def log(episodes):
    return BehaviorLog.from_episodes(episodes, warmup=1)


def test_what_shows_most_is_kept_and_the_rest_is_one_score(log):
    found = lens_of([log])
    shows = np.bincount(log[0:].contexts[log.policy_steps.start * 6 :].indices, minlength=90)
    assert len(found.kept) == 19
    assert not found.others[found.kept].any()
    # To be chosen tells as much as five times being there.
    chosen = log.contexts[log.chosen_rows[log.policy_steps.start :]].indices
    worth = shows + 5 * np.bincount(chosen, minlength=90)
    assert worth[found.kept].min() >= np.delete(worth, found.kept).max()
    small = found.log(log).read()
    dense = log.contexts.toarray()
    np.testing.assert_allclose(small.contexts[:, :-1], dense[:, found.kept])
    np.testing.assert_allclose(small.contexts[:, -1], dense @ found.others)
    assert small.feature_names[-1] == "71 other features"


def test_the_logit_is_the_minimum_of_its_loss(log):
    """By finite differences of the penalised log-likelihood, written out once more."""
    policy = log.policy_steps.start * 6
    X = log.contexts[policy:].toarray()
    chosen = log.chosen[log.policy_steps]
    w = reduction._logit(
        log.contexts[policy:], np.arange(0, len(X) + 1, 6), np.arange(len(chosen)) * 6 + chosen, np.ones(90)
    )

    def loss(w):
        scores = (X @ w).reshape(-1, 6)
        likely = scores[np.arange(len(chosen)), chosen] - np.log(np.exp(scores).sum(axis=1))
        return -likely.sum() + 0.05 * w @ w

    for place in (0, 17, 60):
        step = np.eye(90)[place] * 1e-4
        assert abs(loss(w + step) - loss(w - step)) / 2e-4 < 1e-4


def test_all_weights_are_those_of_the_log(log):
    model = IBCB(l2=1.0).fit(log)
    assert model.coef_.shape == (90,)
    assert model.policy_coefs_.shape == (4, 90)
    assert [note.code for note in model.notes_ if note.code == "many-features"]
    lens = lens_of([log])
    np.testing.assert_allclose(lens.expanded(lens.compressed(model.policy_coefs_)), model.policy_coefs_)
    np.testing.assert_allclose(model.decision_function(log), log.contexts @ model.next_policy_coef_)
    np.testing.assert_allclose(model.forecast(1), model.next_policy_coef_)
    bounds = model.policy_interval()
    assert (bounds.lower <= bounds.estimate).all()
    assert (bounds.estimate <= bounds.upper).all()
    np.testing.assert_allclose(bounds.estimate, model.policy_coefs_[-1])
    assert model.reward_interval().estimate.shape == (91,)
    assert model.direction(model.coef_).shape == (90,)


def test_it_predicts_far_more_than_chance(log):
    model = IBCB(l2=1.0).fit(log[:3])
    assert model.score(log[3]) > 0.6
    sure = model.certainty(log[3])
    assert sure.shape == (150,)
    assert model.verdict(log[:3]).level in ("good", "fair", "poor", "unknown")
    assert ibcb.explain(model, log[:3]).episodes[-1].steps == 150


def test_storage_does_not_matter(log, tmp_path):
    own = IBCB(l2=1.0).fit(log)
    assert_same_model(IBCB(l2=1.0).fit(log.densified()), own)
    path = tmp_path / "log.parquet"
    ibcb.write_log(log, path)
    assert_same_model(IBCB(l2=1.0).fit(ibcb.open_log(path)), own)


def test_one_episode_after_the_other_is_the_whole(log):
    model = IBCB(l2=1.0)
    for episode in log:
        model.partial_fit(episode)
    assert_same_model(model, IBCB(l2=1.0).fit(log))


def test_a_stored_model_is_the_same_and_goes_on(log, tmp_path):
    model = IBCB(l2=1.0, solver="robust").fit(log[:3])
    path = tmp_path / "model.safetensors"
    ibcb.save_model(model, path)
    loaded = ibcb.load_model(path)
    assert_same_model(loaded, model)
    loaded.partial_fit(log[3])
    assert len(loaded.policy_coefs_) == 4
    assert loaded.log_fingerprint_ == IBCB(l2=1.0).fit(log).log_fingerprint_


def test_a_live_policy_of_so_many_features_is_refused_with_the_remedy(log):
    with pytest.raises(ValueError, match="90 features, of which 19 were tracked"):
        IBCB(l2=1.0).fit(log).to_policy()


def test_without_a_forecast_nothing_is_reduced(log):
    model = IBCB(l2=1.0, forecast=None, solver="robust").fit(log[:2])
    assert "many-features" not in [note.code for note in model.notes_]
    assert model.diagnostics_ == IBCB(l2=1.0, forecast=None, solver="robust").fit(log[:2].densified()).diagnostics_
    assert np.count_nonzero(model.coef_) > 20


def test_a_wide_log_is_named_while_it_is_reduced(log, monkeypatch):
    """Its name takes no pass of its own, whether it comes whole or one episode at a time."""
    name = log_fingerprint(log)
    monkeypatch.setattr("ibcb.estimators.ibcb.log_fingerprint", None)
    assert IBCB(l2=0.7, solver="robust").fit(log).log_fingerprint_ == name
    model = IBCB(l2=0.7, solver="robust")
    for episode in log:
        model.partial_fit(episode)
    assert model.log_fingerprint_ == name
