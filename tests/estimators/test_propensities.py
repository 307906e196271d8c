"""`IBCB.propensities`: a probability for every candidate, of the policy in force or of the next one."""

import functools

import numpy as np
import pyarrow as pa
import pytest
from conftest import ragged_log
from scipy import sparse
from sklearn.exceptions import NotFittedError

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.estimators import reduction

KINDS = ("sbucb", "sbts", "egreedy", "softmax", "topk", "stationary", "other")
LEARNERS = ("sbucb", "sbts", "egreedy", "softmax")


@functools.cache
def lived(expert, *, warmup=100):
    """A decider's run: 5 episodes of 120 steps, 5 candidates, 4 features."""
    sizes = {"n_episodes": 5, "batch_size": 120, "n_candidates": 5, "n_features": 4, "warmup": warmup}
    return ibcb.simulate("synthetic", expert=expert, noise=0.03, seed=3, **sizes)


@functools.cache
def fitted(expert, *, warmup=100):
    return IBCB(expert=expert, l2=0.3, **({"top_k": 2} if expert == "topk" else {})).fit(
        lived(expert, warmup=warmup).log
    )


@functools.cache
def normal_log(expert, seed=0, *, steps=400):
    """A ridge learner among normal contexts, written out once more: its log and its true propensities."""
    rng = np.random.default_rng([seed, 5])
    theta, G, b = rng.normal(size=4), np.eye(4), np.zeros(4)
    episodes, true = [], []
    for _ in range(6):
        X = rng.normal(size=(steps, 5, 4))
        scores = X @ np.linalg.solve(G, b)
        if expert == "softmax":
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
        else:
            p = np.full((steps, 5), 0.2 / 5)
            p[np.arange(steps), scores.argmax(axis=1)] += 0.8
        chosen = (p.cumsum(axis=1) > rng.random((steps, 1))).argmax(axis=1)
        S = X[np.arange(steps), chosen]
        G, b = G + S.T @ S, b + S.T @ (S @ theta + 0.3 * rng.normal(size=steps))
        episodes.append((X, chosen))
        true.append(p)
    return BehaviorLog.from_episodes(episodes), np.concatenate(true)


def item_log(d):
    """Draws by ever longer weights of items that are known by their names, in sparse contexts; the first at random."""
    rng = np.random.default_rng(4)
    worth, done = rng.normal(size=d), []
    for number in range(4):
        items = np.array([rng.choice(d, 5, replace=False) for _ in range(150)])
        scores = number * worth[items] + rng.gumbel(size=items.shape)
        rows = sparse.csr_array((np.ones(items.size), items.ravel(), np.arange(items.size + 1)), shape=(items.size, d))
        done.append((rows, scores.argmax(axis=1)))
    return BehaviorLog.from_episodes(done, warmup=1)


def assert_probabilities(p, log):
    """One per row, in (0, 1], that add up to 1 at every step; 1 where there is one candidate."""
    assert p.shape == (log.n_rows,)
    assert p.dtype == np.float64
    assert (p > 0).all()
    assert (p <= 1).all()
    np.testing.assert_allclose(np.add.reduceat(p, log.step_offsets[:-1]), 1, atol=1e-9)
    alone = np.diff(log.step_offsets) == 1
    np.testing.assert_array_equal(p[log.step_offsets[:-1][alone]], 1.0)


def total_variation(p, q, candidates=5):
    return float(np.abs(np.ravel(p) - np.ravel(q)).reshape(-1, candidates).sum(axis=1).mean() / 2)


# -- what they are -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", KINDS)
def test_every_candidate_of_any_log_has_a_probability(expert):
    run, model = lived(expert), fitted(expert)
    for log in (run.log, run.test_log[:1]):
        assert_probabilities(model.propensities(log), log)
        assert_probabilities(model.propensities(log, ahead=True), log)


@pytest.mark.parametrize("expert", KINDS)
def test_they_are_even_in_the_random_start(expert):
    log, model = lived(expert).log, fitted(expert)
    start = 5 * log.policy_steps.start
    for ahead in (False, True):
        p = model.propensities(log, ahead=ahead)
        np.testing.assert_array_equal(p[:start], 0.2)
        assert p[start:].std() > 0.01


@pytest.mark.parametrize("expert", LEARNERS)
def test_they_are_even_before_anything_was_learned(expert):
    log, model = lived(expert, warmup=0).log, fitted(expert, warmup=0)
    for ahead in (False, True):
        p = model.propensities(log, ahead=ahead).reshape(5, -1)
        np.testing.assert_allclose(p[0], 0.2, rtol=1e-12)
        assert p[-1].std() > 0.01


@pytest.mark.parametrize("expert", ["egreedy", "softmax"])
def test_they_are_near_the_true_ones(expert):
    log, true = normal_log(expert)
    model = IBCB(expert=expert).fit(log)
    late = slice(2 * 400 * 5, None)
    even = total_variation(np.full(true.size, 0.2)[late], true.ravel()[late])
    assert total_variation(model.propensities(log)[late], true.ravel()[late]) < 0.1 * even
    assert total_variation(model.propensities(log, ahead=True)[late], true.ravel()[late]) < 0.2 * even


@pytest.mark.parametrize("expert", ["egreedy", "softmax", "sbts"])
def test_a_fresh_log_is_chosen_by_the_next_policy(expert):
    """Which is that of the decider after its last update: it says so itself."""
    run, model = lived(expert), fitted(expert)
    fresh = run.test_log[:2]
    truth = run.expert.propensities(fresh.contexts.reshape(-1, 5, 4))
    even = total_variation(np.full(fresh.n_rows, 0.2), truth)
    assert total_variation(model.propensities(fresh), truth) < 0.2 * even
    np.testing.assert_array_equal(model.propensities(fresh, ahead=True), model.propensities(fresh))


# -- of which log ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", KINDS)
def test_the_fitted_log_is_known_wherever_it_lies_and_to_a_loaded_model(expert, tmp_path):
    log, model = lived(expert).log, fitted(expert)
    ibcb.write_log(log, tmp_path / "log.parquet")
    ibcb.save_model(model, tmp_path / "model.safetensors")
    on_disk, loaded = ibcb.open_log(tmp_path / "log.parquet"), ibcb.load_model(tmp_path / "model.safetensors")
    for ahead in (False, True):
        own = model.propensities(log, ahead=ahead)
        np.testing.assert_allclose(model.propensities(on_disk, ahead=ahead), own, rtol=0, atol=1e-12)
        np.testing.assert_allclose(loaded.propensities(log, ahead=ahead), own, rtol=0, atol=1e-12)
    ibcb.write_log(lived(expert).test_log[:1], tmp_path / "fresh.parquet")
    fresh = ibcb.open_log(tmp_path / "fresh.parquet")
    np.testing.assert_allclose(loaded.propensities(fresh), model.propensities(fresh.read()), rtol=0, atol=1e-12)


@pytest.mark.parametrize("expert", KINDS)
def test_ahead_rests_on_the_episodes_before_alone(expert):
    """What follows does not change it, and it is what the model of the episodes before says of a fresh log."""
    log, whole = lived(expert).log, fitted(expert).propensities(lived(expert).log, ahead=True)
    for count in (3, 4):
        model = IBCB(**fitted(expert).get_params()).fit(log[:count])
        begun = model.propensities(log[:count], ahead=True)
        np.testing.assert_allclose(begun, whole[: len(begun)], rtol=0, atol=1e-9)
        if expert != "topk":
            # Which knows no scale of its draws before the log is fitted.
            foreseen = model.propensities(log[count])
            np.testing.assert_allclose(foreseen, whole[len(begun) :][: len(foreseen)], rtol=0, atol=1e-9)


def test_by_the_whole_log_they_rest_on_all_of_it():
    log, model = lived("softmax").log, fitted("softmax")
    begun = IBCB(expert="softmax", l2=0.3).fit(log[:3]).propensities(log[:3])
    whole = model.propensities(log)
    assert np.abs(begun - whole[: len(begun)]).max() > 1e-3


# -- in which form -----------------------------------------------------------------------------------------------------


def test_steps_may_have_any_number_of_candidates(rng):
    log = ragged_log(rng)
    lone = [([rng.normal(size=(size, 3)) for size in (1, 4, 1, 2)], [0, 3, 0, 1])]
    episodes = [(list(np.split(each.contexts, each.step_offsets[1:-1])), each.chosen) for _, each in log.episodes()]
    log = BehaviorLog.from_episodes([*episodes, *lone], warmup=1)
    for expert in ("sbucb", "egreedy", "softmax"):
        model = IBCB(expert=expert, l2=0.7).fit(log)
        for ahead in (False, True):
            assert_probabilities(model.propensities(log, ahead=ahead), log)
        fresh = BehaviorLog.from_episodes(lone)
        assert_probabilities(model.propensities(fresh), fresh)


def test_candidates_are_given_as_to_predict():
    run, model = lived("softmax"), fitted("softmax")
    sets = run.test_log.contexts.reshape(-1, 5, 4)[:20]
    p = model.propensities(sets)
    assert p.shape == (20, 5)
    np.testing.assert_allclose(p.ravel(), model.propensities(run.test_log)[:100], rtol=0, atol=1e-12)
    alone = model.propensities(sets[3])
    assert alone.shape == (5,)
    np.testing.assert_allclose(alone, p[3], rtol=0, atol=1e-12)
    some = [sets[0], sets[1][:2], sets[2][:1]]
    listed = model.propensities(some)
    assert listed.shape == (8,)
    np.testing.assert_allclose(listed[:5], p[0], rtol=0, atol=1e-12)
    assert listed[-1] == 1.0
    np.testing.assert_allclose(listed[5:7], p[1][:2] / p[1][:2].sum(), atol=0.01)


@pytest.mark.parametrize("expert", ["softmax", "sbts"])
def test_sparse_contexts_have_those_of_dense_ones(expert):
    log = item_log(d=8)
    assert sparse.issparse(log.contexts)
    model, dense = (IBCB(expert=expert, l2=1.0).fit(each) for each in (log, log.densified()))
    for ahead in (False, True):
        found = model.propensities(log, ahead=ahead)
        np.testing.assert_allclose(found, dense.propensities(log.densified(), ahead=ahead), rtol=0, atol=1e-6)
        assert_probabilities(found, log)
    fresh = log[2]
    np.testing.assert_allclose(model.propensities(fresh), dense.propensities(fresh.densified()), rtol=0, atol=1e-6)


@pytest.mark.parametrize("expert", ["sbts", "softmax"])
def test_logs_with_very_many_features_have_them_too(expert, monkeypatch):
    monkeypatch.setattr(reduction, "_TRACKED", 12)
    monkeypatch.setattr(reduction, "WIDE", 30)
    log = item_log(d=40)
    model = IBCB(expert=expert, l2=1.0).fit(log)
    assert "many-features" in [note.code for note in model.notes_]
    p = model.propensities(log)
    assert_probabilities(p, log)
    assert_probabilities(model.propensities(log, ahead=True), log)
    # Better than chance, which is what the random start has.
    likely = np.log(p[log.chosen_rows[log.policy_steps]])
    assert likely.mean() > np.log(0.2) + 0.2
    assert_probabilities(model.propensities(log[2]), log[2])


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_other_features_are_refused_with_both_numbers():
    model = fitted("softmax")
    for wrong in (np.zeros((5, 3)), np.zeros((2, 5, 3)), BehaviorLog.from_episodes([(np.zeros((2, 5, 3)), [0, 0])])):
        with pytest.raises(ValueError, match="3 features but IBCB was fitted on 4"):
            model.propensities(wrong)


def test_unknown_features_are_refused_by_name():
    contexts, chosen = np.random.default_rng(0).normal(size=(3, 40, 4, 2)), np.zeros(40, dtype=int)
    log = BehaviorLog.from_episodes([(each, chosen) for each in contexts], feature_names=["price", "stars"])
    model = IBCB(expert="softmax", l2=1.0).fit(log)
    other = BehaviorLog.from_episodes([(contexts[0], chosen)], feature_names=["price", "weight"])
    with pytest.raises(ValueError, match="feature 1 is 'weight' but IBCB was fitted with 'stars' there; give it the"):
        model.propensities(other)
    turned = BehaviorLog.from_episodes([(contexts[0], chosen)], feature_names=["stars", "price"])
    with pytest.raises(ValueError, match="feature 0 is 'stars' but IBCB was fitted with 'price' there; bring the"):
        model.propensities(turned)


def test_there_are_none_before_fitting_and_none_without_tracking():
    log = lived("sbucb").log
    with pytest.raises(NotFittedError):
        IBCB().propensities(log)
    with pytest.raises(ValueError, match="forecast=None"):
        IBCB(forecast=None, l2=0.3).fit(log).propensities(log)
    with pytest.raises((TypeError, ValueError), match="ahead"):
        fitted("sbucb").propensities(log, ahead="yes")


def table_of_visits(rng):
    """One of three arms at each visit, a day after the other; the first are drawn."""
    age = rng.normal(size=240)
    arms = np.where(rng.random(240) < 0.3, rng.integers(3, size=240), (age > 0).astype(int))
    return pa.table({"day": np.arange(240) // 40, "age": age, "arm": np.array(["a", "b", "c"])[arms]})


def test_a_table_is_known_for_the_fitted_log_by_its_choices(rng):
    visits = table_of_visits(rng)
    log = ibcb.read_log(visits, arm="arm", columns={"episode": "day"}, warmup=1)
    model = IBCB(expert="egreedy", l2=1.0).fit(log)
    for ahead in (False, True):
        in_force = model.propensities(log, ahead=ahead)
        np.testing.assert_array_equal(model.propensities(visits, ahead=ahead), in_force)
    # Without them it is candidates for the next policy.
    following = model.propensities(log.contexts.reshape(-1, 3, log.n_features)).ravel()
    for column in ("arm", "day"):
        np.testing.assert_allclose(model.propensities(visits.drop_columns([column])), following, atol=1e-12)
    assert np.abs(following - model.propensities(log)).max() > 0.01


def test_a_table_with_an_unknown_arm_is_refused_by_name(rng):
    visits = table_of_visits(rng)
    model = IBCB(expert="egreedy", l2=1.0).fit(ibcb.read_log(visits, arm="arm", columns={"episode": "day"}))
    wrong = visits.set_column(2, "arm", [["upper", *visits["arm"].to_pylist()[1:]]])
    with pytest.raises(ibcb.LogFormatError, match=r"row 0 .*arm 'upper' is unknown"):
        model.propensities(wrong)


def test_a_long_table_is_known_for_the_fitted_log(rng):
    chosen = np.eye(3, dtype=int)[rng.integers(3, size=120)].ravel()
    rows = pa.table(
        {"day": np.arange(360) // 90, "visit": np.arange(360) // 3, "price": rng.normal(size=360), "shown": chosen}
    )
    log = ibcb.read_log(rows, columns={"episode": "day", "step": "visit", "chosen": "shown"})
    model = IBCB(expert="softmax", l2=1.0).fit(log)
    np.testing.assert_array_equal(model.propensities(rows), model.propensities(log))


@pytest.mark.parametrize("seed", range(3))
def test_an_arm_that_a_thompson_sampler_never_takes_is_known_to_be_worse(seed):
    # Arms without features: soon one is always taken, and choices bound the scores of the others from above only.
    sizes = {"n_features": 1, "n_arms": 8, "n_episodes": 6, "batch_size": 200, "warmup": 80}
    run = ibcb.simulate("arms", expert="sbts", seed=seed, **sizes)
    found = IBCB(expert="sbts").fit(run.log).propensities(run.log).reshape(-1, 8)
    late = slice(80 + 2 * 200, None)
    assert np.abs(found - run.propensities().reshape(-1, 8))[late].sum(axis=1).mean() / 2 < 0.02
