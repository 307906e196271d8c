"""What the decider was thinking, recomputed step by step from the formulas and from the simulated truth."""

import numpy as np
import pytest
from conftest import paper_run, ragged_log, slow, small_run
from sklearn.exceptions import NotFittedError

import ibcb
from ibcb import IBCB, BehaviorLog


def by_hand(model, log, alpha, l2, prior=None):
    """(episode, chosen, exploitation, exploration, worth) of every step that the policy chose, one at a time."""
    d = log.n_features
    phi = np.zeros((d, d)) if prior is None else prior
    steps = []
    for number in range(len(log.episode_offsets) - 1):
        episode = number - log.warmup
        chosen = []
        for step in range(log.episode_offsets[number], log.episode_offsets[number + 1]):
            S = log.candidates(step)
            chosen.append(S[log.chosen[step]])
            if episode >= 0:
                inverse = np.linalg.inv(l2 * np.eye(d) + phi)
                value = np.array([s @ model.policy_coefs_[episode] for s in S])
                width = np.array([np.sqrt(s @ inverse @ s) for s in S])
                steps.append((episode, log.chosen[step], value, alpha * width, S @ model.next_policy_coef_))
        phi = phi + np.array(chosen).T @ np.array(chosen)
    return steps


def before_the_log():
    """The later episodes of a log, and the Gram matrix of the choices before."""
    log = small_run().log
    S = log[:3].contexts[log[:3].chosen_rows]
    return log[3:], S.T @ S


@pytest.mark.parametrize("alpha, log, prior", [(1.0, small_run().log, None), (0.4, *before_the_log())])
def test_sbucb_scores_regret_and_shares_are_those_of_the_formulas(alpha, log, prior):
    model = IBCB(alpha=alpha, l2=0.3, prior_gram=prior).fit(log)
    found, steps = ibcb.explain(model, log), by_hand(model, log, alpha, 0.3, prior)
    np.testing.assert_allclose(found.exploitation, [value[c] for _, c, value, _, _ in steps], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.exploration, [width[c] for _, c, _, width, _ in steps], rtol=1e-9)
    regret = [(worth.max() - worth[c]) / alpha for _, c, _, _, worth in steps]
    np.testing.assert_allclose(found.regret, regret, rtol=1e-9, atol=1e-12)
    for episode in found.episodes:
        mine = [step for step in steps if step[0] == episode.episode]
        assert episode.steps == len(mine) == 120
        # The fit is exact: some choices tie with another candidate, and none of these was decided by exploration.
        behind = [(value + width).max() - (value + width)[value.argmax()] for _, _, value, width, _ in mine]
        assert episode.explored == np.mean(np.array(behind) > 1e-7)
        cost = sum(worth.max() - worth[c] for _, c, _, _, worth in mine)
        at_random = sum(worth.max() - worth.mean() for *_, worth in mine)
        assert episode.regret == pytest.approx(cost / alpha / len(mine))
        assert episode.regret_share == pytest.approx(cost / at_random)


def test_any_step_can_be_looked_into(rng):
    log = small_run().log
    model = IBCB(l2=0.3).fit(log)
    found, steps = ibcb.explain(model, log), by_hand(model, log, 1.0, 0.3)
    for episode, step in ((0, 0), (0, 119), (3, 7), (5, 119)):
        _, chosen, value, width, _ = steps[120 * episode + step]
        seen = found.candidates(episode, step)
        np.testing.assert_allclose(seen.exploitation, value, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(seen.exploration, width, rtol=1e-9)
        assert seen.exploitation[chosen] == pytest.approx(found.exploitation[120 * episode + step])
    for place in ((6, 0), (-1, 0), (0, 120), (0, -1)):
        with pytest.raises(IndexError, match="does not exist"):
            found.candidates(*place)
    # Steps may have different numbers of candidates.
    log = ragged_log(rng)
    model = IBCB(l2=0.7).fit(log)
    found, steps = ibcb.explain(model, log), by_hand(model, log, 1.0, 0.7)
    np.testing.assert_allclose(found.candidates(2, 5).exploration, steps[85][3], rtol=1e-9)


def test_an_exact_fit_leaves_nothing_unexplained():
    log = small_run().log
    model = IBCB(l2=0.3, solver="hard", forecast=None).fit(log)
    assert [episode.unexplained for episode in ibcb.explain(model, log).episodes] == [0.0] * 6
    wrong = BehaviorLog(
        log.contexts, log.step_offsets, (log.chosen + 1) % 7, log.episode_offsets, warmup=1, step_ids=log.step_ids
    )
    robust = IBCB(l2=0.3, solver="robust", forecast=None).fit(wrong)
    assert max(episode.unexplained for episode in ibcb.explain(robust, wrong).episodes) > 0.1


def test_a_thompson_sampler_explores_by_what_the_chosen_one_lacked():
    log = small_run("sbts").log
    model = IBCB(expert="sbts", l2=0.3).fit(log)
    found, steps = ibcb.explain(model, log), by_hand(model, log, 1.0, 0.3)
    lacked = np.array([value.max() - value[c] for _, c, value, _, _ in steps])
    np.testing.assert_allclose(found.exploration, lacked, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.explored, lacked > 0)
    for episode, share in zip(found.episodes, (lacked > 0).reshape(6, 120).mean(axis=1), strict=True):
        assert (episode.explored, episode.unexplained) == (share, 0.0)
    step = int(np.argmax(lacked))
    seen = found.candidates(*divmod(step, 120))
    total = seen.exploitation + seen.exploration
    assert np.count_nonzero(seen.exploration) == 1
    assert total[steps[step][1]] == pytest.approx(total.max())


@pytest.mark.parametrize("expert", [slow("sbucb"), "sbts"])
def test_it_sees_what_the_simulated_decider_did(expert):
    """The share that exploration decided, from the decider's own parameters; regret falls as it learns."""
    run = paper_run(expert)
    found = ibcb.explain(IBCB(expert=expert, l2=0.3).fit(run.log), run.log)
    shares = []
    d, log = run.log.n_features, run.log
    phi = np.zeros((d, d))
    for number, (by_policy, episode) in enumerate(log.episodes(), start=-log.warmup):
        if by_policy:
            X = episode.contexts.reshape(-1, 10, d)
            value = X @ run.policy_coefs[number]
            width = np.sqrt(np.einsum("bmi,ij,bmj->bm", X, np.linalg.inv(0.3 * np.eye(d) + phi), X))
            acted = (value + 0.4 * width).argmax(axis=1) if expert == "sbucb" else episode.chosen
            shares.append(np.mean(acted != value.argmax(axis=1)))
        S = episode.contexts[episode.chosen_rows]
        phi = phi + S.T @ S
    np.testing.assert_allclose([episode.explored for episode in found.episodes], shares, atol=0.03)
    regret = [episode.regret_share for episode in found.episodes]
    assert regret[0] > 0.3
    assert max(regret[-5:]) < 0.05


def test_regret_share_and_explored_do_not_depend_on_the_scale():
    log = small_run().log
    one, other = (ibcb.explain(IBCB(alpha=alpha, l2=0.3).fit(log), log) for alpha in (1.0, 7.0))
    for mine, its in zip(one.episodes, other.episodes, strict=True):
        assert mine == pytest.approx(its, rel=1e-9)


@pytest.mark.parametrize(
    "made, read",
    [
        ({"expert": "sbucb"}, {"expert": "sbucb", "l2": 0.3}),
        slow({"expert": "sbucb"}, {"expert": "other"}),
        ({"expert": "sbts"}, {"expert": "sbts", "l2": 0.3}),
        ({"expert": "sbucb", "top_k": 2}, {"expert": "topk", "top_k": 2}),
    ],
)
def test_choices_that_contradict_the_rest_are_named_of_every_kind(made, read):
    log = ibcb.simulate("synthetic", noise=0.03, seed=5, n_episodes=6, batch_size=400, **made).log
    rng, chosen = np.random.default_rng(0), log.chosen.copy()
    # Of the later half: the draws of a young Thompson sampler explain whatever is chosen.
    hit = np.sort(rng.choice(np.arange(log.n_steps - 1200, log.n_steps), size=30, replace=False))
    chosen[hit] = (chosen[hit] + rng.integers(1, 10, size=30)) % 10
    dirty = BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=log.warmup)
    strayed = ibcb.explain(IBCB(**read).fit(dirty), dirty).strayed
    assert strayed.shape == (2400,)
    assert ((strayed >= 0) & (strayed <= 1)).all()
    named = log.policy_steps.start + np.flatnonzero(strayed > 0.5)
    assert len(set(named) & set(hit)) >= max(0.9 * len(named), 0.7 * len(hit))


@pytest.mark.parametrize("made, read", [({"expert": "sbucb"}, {"l2": 0.3}), ({"expert": "sbts"}, {"expert": "other"})])
def test_steps_are_ranked_by_doubt_with_what_the_policy_preferred(made, read):
    clean = ibcb.simulate("synthetic", noise=0.03, seed=5, n_episodes=5, batch_size=200, **made).log
    chosen, hit = clean.chosen.copy(), np.array([-3, -50, -150])
    worst = IBCB(**read).fit(clean)
    scores = (clean.contexts @ worst.policy_coefs_[-1]).reshape(-1, 10)
    chosen[hit] = scores[hit].argmin(axis=1)
    labels = {"timestamps": np.arange(len(chosen)) + 0.5, "step_ids": np.array([f"s{n}" for n in range(len(chosen))])}
    log = BehaviorLog(clean.contexts, clean.step_offsets, chosen, clean.episode_offsets, warmup=clean.warmup, **labels)
    model = IBCB(**read).fit(log)
    found = ibcb.explain(model, log)
    table = found.ranked()
    assert table.column_names == ["episode", "step", "step_id", "timestamp", "chosen", "preferred", "probability"]
    rows = table.to_pylist()
    assert len(rows) == 1000
    assert {row["step_id"] for row in rows[:3]} == {f"s{len(chosen) + place}" for place in hit}
    probabilities = [row["probability"] for row in rows]
    assert probabilities == sorted(found.strayed.tolist(), reverse=True)
    warm = log.policy_steps.start
    for row in rows[::37]:
        step = warm + 200 * row["episode"] + row["step"]
        assert (row["step_id"], row["timestamp"]) == (f"s{step}", step + 0.5)
        assert row["chosen"] == chosen[step]
        assert row["probability"] == found.strayed[step - warm]
        seen = found.candidates(row["episode"], row["step"])
        total = seen.exploitation + (seen.exploration if model.decider_.per_unit is not None else 0)
        assert total[row["preferred"]] == pytest.approx(total.max(), rel=1e-6)
    for row in rows[:3]:
        assert row["preferred"] != row["chosen"]
    plain = BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=log.warmup)
    assert ibcb.explain(model, plain).ranked().column_names == ["episode", "step", "chosen", "preferred", "probability"]


def test_before_anything_is_learned_only_a_bonus_explores_and_prefers_a_candidate(rng):
    log = ragged_log(rng, warmup=0)
    bonus, sampler = (ibcb.explain(IBCB(expert=expert, l2=0.7).fit(log), log) for expert in ("sbucb", "sbts"))
    longest = [np.linalg.norm(log.candidates(step), axis=1).argmax() for step in range(40)]
    np.testing.assert_array_equal(bonus.preferred[:40], longest)
    assert bonus.episodes[0].explored > 0.5
    assert bonus.episodes[0].unexplained == 0
    assert (sampler.preferred[:40] == -1).all()
    assert sampler.ranked()["preferred"].null_count == 40
    assert np.isnan(sampler.episodes[0].explored)


def test_no_choice_of_a_clean_log_contradicts_the_rest(rng):
    log = small_run(n_episodes=10, batch_size=300).log
    assert ibcb.explain(IBCB(l2=0.3).fit(log), log).strayed.max() < 0.5
    ragged = ragged_log(rng)
    strayed = ibcb.explain(IBCB(l2=0.7).fit(ragged), ragged).strayed
    assert strayed.shape == (ragged.n_steps - ragged.policy_steps.start,)


def test_the_log_must_be_the_fitted_one():
    model = IBCB(l2=0.3).fit(small_run().log)
    with pytest.raises(ValueError, match="another log than the model was fitted on"):
        ibcb.explain(model, small_run(seed=1).log)
    with pytest.raises(NotFittedError):
        ibcb.explain(IBCB(), small_run().log)
    with pytest.raises(TypeError, match="expected a BehaviorLog"):
        ibcb.explain(model, [1, 2])
