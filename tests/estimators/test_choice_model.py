"""The choice model: its optimum against scipy's, its features, its invariances."""

import numpy as np
import pytest
from conftest import paper_run, ragged_log, small_run
from scipy.optimize import minimize

import ibcb
from ibcb import BehaviorLog, SolverError
from ibcb.estimators.choice_model import ChoiceModel
from ibcb.numerics.choice_likelihood import ChoiceLoss
from ibcb.numerics.laplace import summarise


def widths(log, l2):
    """H of every row, the Gram matrix growing episode by episode."""
    phi, parts = l2 * np.eye(log.n_features), []
    for _, episode in log.episodes():
        parts.append(np.sqrt(np.einsum("id,de,ie->i", episode.contexts, np.linalg.inv(phi), episode.contexts)))
        S = episode.contexts[episode.chosen_rows]
        phi = phi + S.T @ S
    return np.concatenate(parts)


def log_loss(w, rows, log, steps):
    """Summed over the steps, one by one."""
    scores, total = rows @ w, 0.0
    for t in steps:
        start, stop = log.step_offsets[t : t + 2]
        top = scores[start:stop].max()
        total += top + np.log(np.exp(scores[start:stop] - top).sum()) - scores[start + log.chosen[t]]
    return total


def squares(rows, log, steps):
    """Mean square of each feature among the choices of steps that leave one; none is 0 there."""
    steps = [t for t in steps if log.step_offsets[t + 1] - log.step_offsets[t] > 1]
    chosen = np.array([rows[log.step_offsets[t] + log.chosen[t]] for t in steps], dtype=float)
    return (chosen**2).mean(axis=0)


def optimum(rows, log, steps, ridge):
    penalty = ridge * squares(rows, log, steps)

    def objective(w):
        return log_loss(w, rows, log, steps) + (penalty * w) @ w / 2

    return minimize(objective, np.zeros(rows.shape[1]), options={"gtol": 1e-5}).x


# -- the loss ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_huge_scores_do_not_overflow(dtype, rng):
    contexts = (1e3 * rng.normal(size=(20, 5, 2))).astype(dtype)
    log = BehaviorLog.from_episodes([(contexts, np.zeros(20, dtype=int))])
    w = np.array([1.0, -2.0])
    found = ChoiceLoss(*log.step_arrays(log.policy_steps)).expand(w)
    assert found.loss == pytest.approx(log_loss(w, log.contexts.astype("f8"), log, range(20)), rel=1e-5)
    assert np.isfinite(found.hessian).all()


# -- the optimum ---------------------------------------------------------------------------------------------------


def test_the_optimum_is_scipys_on_ragged_steps(rng):
    log = ragged_log(rng)
    model = ChoiceModel(episodes=2, ridge=0.5).fit(log)
    steps = range(log.episode_offsets[3], log.n_steps)
    np.testing.assert_allclose(model.coef_, optimum(log.contexts, log, steps, 0.5), atol=1e-4)
    np.testing.assert_array_equal(model.next_policy_coef_, model.coef_)
    assert model.width_coef_ is None


def test_a_feature_that_candidates_share_gets_no_weight(rng):
    contexts = rng.normal(size=(60, 4, 3))
    contexts[:, :, 1] = rng.normal(size=(60, 1))
    chosen = (contexts[:, :, 0] + rng.normal(size=(60, 4))).argmax(axis=1)
    with_it = ChoiceModel(ridge=0.1).fit(BehaviorLog.from_episodes([(contexts, chosen)])).coef_
    without = ChoiceModel(ridge=0.1).fit(BehaviorLog.from_episodes([(contexts[:, :, [0, 2]], chosen)])).coef_
    np.testing.assert_allclose(with_it, [without[0], 0, without[1]], rtol=1e-9)


def test_the_width_is_one_more_feature(rng):
    """The Gram matrix of all choices before each episode, the warm-up's included."""
    log = ragged_log(rng)
    model = ChoiceModel(episodes=3, width=True, ridge=0.2, l2=0.7).fit(log)
    rows = np.column_stack([log.contexts, widths(log, 0.7)])
    best = optimum(rows, log, range(log.episode_offsets[2], log.n_steps), 0.2)
    np.testing.assert_allclose(np.append(model.coef_, model.width_coef_), best, atol=1e-4)
    np.testing.assert_allclose(model.decision_function(log), log.contexts @ best[:3], atol=1e-3)


def test_a_separable_log_is_solved_to_its_optimum():
    """A decider that always takes its best: weights are large, the gradient vanishes."""
    log = small_run().log
    model = ChoiceModel().fit(log)
    steps = slice(int(log.episode_offsets[-2]), log.n_steps)
    found = ChoiceLoss(*log.step_arrays(steps)).expand(model.coef_)
    assert model.score(log[len(log) - 1]) > 0.95
    pull = 1e-3 * squares(log.contexts, log, range(steps.start, steps.stop)) * model.coef_
    assert np.linalg.norm(found.gradient + pull) < 1e-4 * np.linalg.norm(pull)


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_the_last_episode_imitates_well(expert):
    run = paper_run(expert)
    assert ibcb.metrics.bt_fitness(ChoiceModel().fit(run.log), run) > 0.97


def test_a_problem_without_a_finite_answer_is_reported():
    contexts = np.array([[[1e160, 0.0], [0.0, 1.0]]])
    log = BehaviorLog.from_episodes([(contexts, [0])])
    with np.errstate(all="ignore"), pytest.raises(SolverError, match=r"Rescale the contexts to about 1"):
        summarise(ChoiceLoss(*log.step_arrays(log.policy_steps)), np.zeros(2), 1e-3 * np.eye(2))


# -- which steps, which order --------------------------------------------------------------------------------------


def test_episodes_counts_from_the_end():
    log = small_run().log
    for count in (1, 3):
        alone = ChoiceModel(episodes=None).fit(log[len(log) - count :])
        np.testing.assert_array_equal(ChoiceModel(episodes=count).fit(log).coef_, alone.coef_)
    every, more = ChoiceModel(episodes=None).fit(log), ChoiceModel(episodes=99).fit(log)
    np.testing.assert_array_equal(every.coef_, more.coef_)


def test_the_warm_up_teaches_nothing_but_the_widths():
    log = small_run().log
    chosen = log.chosen.copy()
    chosen[: log.policy_steps.start] = 0
    other = BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=1)
    one, two = (ChoiceModel(episodes=None).fit(each).coef_ for each in (log, other))
    np.testing.assert_array_equal(one, two)
    one, two = (ChoiceModel(episodes=None, width=True).fit(each).coef_ for each in (log, other))
    assert (one != two).any()


def test_permuting_candidates_changes_nothing(rng):
    log = small_run().log
    contexts, chosen = log.contexts.reshape(log.n_steps, 7, 4), log.chosen
    order = np.array([rng.permutation(7) for _ in chosen])
    shuffled = BehaviorLog(
        np.take_along_axis(contexts, order[:, :, None], axis=1).reshape(-1, 4),
        log.step_offsets,
        (order == chosen[:, None]).argmax(axis=1),
        log.episode_offsets,
        warmup=1,
    )
    for width in (False, True):
        one, two = (ChoiceModel(width=width, l2=0.3).fit(each).coef_ for each in (log, shuffled))
        np.testing.assert_allclose(one, two, rtol=1e-6)


def test_single_candidates_contribute_nothing(rng):
    log = ragged_log(rng, warmup=0)
    episodes = [([e.candidates(t) for t in range(e.n_steps)], e.chosen.tolist()) for e in log]
    for sets, chosen in episodes:
        sets.insert(3, rng.normal(size=(1, 3)))
        chosen.insert(3, 0)
    more = ChoiceModel(episodes=None).fit(BehaviorLog.from_episodes(episodes))
    np.testing.assert_array_equal(more.coef_, ChoiceModel(episodes=None).fit(log).coef_)


@pytest.mark.parametrize("size", [-139, -100, -30, 0, 50, 139])
def test_units_do_not_matter(rng, size):
    """One feature as it is, the others far from 1; one of them shows rarely, one never where it was chosen."""
    log = ragged_log(rng, warmup=0)
    rare = np.zeros((log.n_rows, 2))
    rare[::7, 0], rare[np.setdiff1d(np.arange(log.n_rows), log.chosen_rows)[::5], 1] = 1.0, 2.0
    contexts, units = np.hstack([log.contexts, rare]), 10.0 ** np.array([0, size, 0, size, size])
    logs = (log.with_contexts(each, None) for each in (contexts, contexts * units))
    one, other = (ChoiceModel(episodes=None, width=False).fit(each) for each in logs)
    np.testing.assert_allclose(other.coef_ * units, one.coef_, rtol=1e-6)


def test_a_feature_too_small_to_be_squared_is_named(rng):
    log = ragged_log(rng, warmup=0)
    tiny = BehaviorLog(log.contexts * [1, 1e-150, 1], log.step_offsets, log.chosen, log.episode_offsets)
    with pytest.raises(ValueError, match="feature 1 is about .*e-15.; .*Rescale it to about 1"):
        ChoiceModel(episodes=None).fit(tiny)


# -- the estimator -------------------------------------------------------------------------------------------------


def test_state_goes_there_and_back():
    log = small_run().log
    model, other = ChoiceModel(width=True).fit(log), ChoiceModel(width=True)
    other.set_state(*model.get_state())
    np.testing.assert_array_equal(other.predict(log), model.predict(log))
    assert other.width_coef_ == model.width_coef_


@pytest.mark.parametrize(
    "wrong, error, says",
    [
        (
            {"episodes": 0},
            ValueError,
            "episodes=0 must be at least 1: it counts episodes to learn from, None takes all",
        ),
        ({"episodes": 1.0}, TypeError, "episodes=1.0 must be a whole number"),
        ({"ridge": 0}, ValueError, "ridge=0 must be finite and above 0: separable choices"),
        ({"ridge": float("nan")}, ValueError, "ridge=nan must be finite"),
        ({"l2": -1}, ValueError, "l2=-1 must be finite and above 0"),
        ({"width": "yes"}, TypeError, "width='yes' must be True or False"),
    ],
)
def test_wrong_parameters_are_named(wrong, error, says):
    with pytest.raises(error, match=says):
        ChoiceModel(**wrong).fit(small_run().log)


def test_logs_without_a_choice_are_refused(rng):
    lonely = (rng.normal(size=(5, 1, 2)), np.zeros(5, dtype=int))
    log = BehaviorLog.from_episodes([(rng.normal(size=(5, 2, 2)), np.zeros(5, dtype=int)), lonely])
    with pytest.raises(ValueError, match=r"no step of the last 1 episode has candidates that differ.*Raise episodes"):
        ChoiceModel().fit(log)
    ChoiceModel(episodes=2).fit(log)
