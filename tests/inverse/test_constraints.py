"""The paper's inequalities: implicit rows against rows written out by hand, and against the truth."""

import numpy as np
import pytest
from conftest import paper_run, ragged_log, small_run
from views import candidates_metric, views

import ibcb
from ibcb.engine import LocalRows
from ibcb.inverse.constraints import EpisodeView, JointView
from ibcb.numerics.ridge import Chosen, Frame, Regularization, gram, ridge


def rows_by_hand(episode, phi, l2, margin):
    """(A, b, step, other) of every row, straight from the paper's formula."""
    psi_inverse = np.linalg.inv(l2 * np.eye(len(phi)) + phi)

    def width(s):
        return np.sqrt(s @ psi_inverse @ s)

    for step in range(episode.n_steps):
        candidates = episode.candidates(step).astype(float)
        chosen = candidates[episode.chosen[step]]
        for other, s in enumerate(candidates):
            if other != episode.chosen[step]:
                b = width(chosen) - width(s) if margin is None else -margin
                yield phi @ psi_inverse @ (s - chosen), b, step, other


@pytest.mark.parametrize("margin", [None, 0.01])
@pytest.mark.parametrize("make", [lambda rng: small_run().log, ragged_log])
def test_rows_are_the_papers(rng, make, margin):
    for number, phi, episode, view in views(make(rng), l2=0.3, margin=margin):
        A, b, step, other = (np.array(part) for part in zip(*rows_by_hand(episode, phi, 0.3, margin), strict=True))
        rows = view.rows()
        np.testing.assert_allclose(rows.matrix, A, atol=1e-11)
        np.testing.assert_allclose(rows.rhs, b, atol=1e-11)
        chosen = episode.chosen[step]
        np.testing.assert_array_equal(view.places(rows.key), np.column_stack([0 * step + number, step, chosen, other]))


@pytest.mark.parametrize("margin", [None, 0.01])
@pytest.mark.parametrize("block_steps", [7, 4096])
def test_looks_at_theta_agree_with_the_rows(rng, monkeypatch, margin, block_steps):
    monkeypatch.setattr("ibcb.engine.block.BLOCK_STEPS", block_steps)
    for _, _, _, view in views(ragged_log(rng), margin=margin):
        rows, theta = view.rows(), rng.normal(size=3)
        violation = rows.matrix @ theta - rows.rhs
        tally = view.tally(theta)
        assert tally.violated == np.count_nonzero(violation > 0)
        assert tally.max_violation == pytest.approx(violation.max())
        worst, same = view.worst(theta, 5, 0.0)
        assert (same.violated, same.agreeing) == (tally.violated, tally.agreeing)
        assert same.max_violation == pytest.approx(tally.max_violation)
        np.testing.assert_allclose(np.sort(worst.violation), np.sort(violation)[-5:], atol=1e-12)
        np.testing.assert_allclose(worst.matrix @ theta - worst.rhs, worst.violation, atol=1e-12)


@pytest.mark.parametrize("margin", [None, 0.01])
def test_agreement_counts_the_steps_where_the_choice_is_best(rng, margin):
    for _, phi, episode, view in views(ragged_log(rng), margin=margin):
        theta = rng.normal(size=3)
        fitted = ridge(phi, 0.3)
        agreeing = 0
        for step in range(episode.n_steps):
            s = episode.candidates(step)
            scores = s @ fitted.shrinkage @ theta + (fitted.widths(s) if margin is None else 0)
            agreeing += scores.argmax() == episode.chosen[step]
        assert view.tally(theta).agreeing == agreeing


@pytest.mark.parametrize("bend", [0.05, np.inf])
def test_penalty_and_its_derivatives(rng, bend):
    for _, _, _, view in views(ragged_log(rng)):
        rows, theta = view.rows(), rng.normal(size=3)
        here = view.penalty(theta, 2.5, bend)
        v = np.maximum(rows.matrix @ theta - rows.rhs, 0)
        bent = np.minimum(v, bend)
        assert here.value == pytest.approx(2.5 * np.sum(bent * v - bent**2 / 2))
        for direction in np.eye(3):
            step = 1e-6 * direction
            up, down = view.penalty(theta + step, 2.5, bend), view.penalty(theta - step, 2.5, bend)
            assert (up.value - down.value) / 2e-6 == pytest.approx(here.gradient @ direction, rel=1e-5, abs=1e-7)
        curved = rows.matrix[(v > 0) & (v < bend)]
        np.testing.assert_allclose(here.hessian, 2.5 * curved.T @ curved, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_true_parameters_satisfy_every_row_of_every_episode(noise):
    """theta = Phi^-1 b / alpha_expert leads exactly to the expert's policy, whatever the noise."""
    run = paper_run(noise=noise)
    for number, phi, _, view in views(run.log, l2=0.3):
        moment = (0.3 * np.eye(10) + phi) @ run.policy_coefs[number]
        theta = np.linalg.solve(phi, moment) / run.expert_settings.alpha
        tally = view.tally(theta)
        assert (tally.violated, tally.agreeing) == (0, 1000)


def test_the_gram_matrix_of_the_episode_itself_is_caught():
    """Algorithm 2 read literally: the true parameters then violate rows."""
    run = paper_run()
    broken = 0
    for number, phi, episode, view in views(run.log, l2=0.3, own_gram=True):
        moment = (0.3 * np.eye(10) + phi - gram(episode.contexts[episode.chosen_rows])) @ run.policy_coefs[number]
        broken += view.tally(np.linalg.solve(phi, moment) / 0.4).violated > 0
    assert broken >= 15


def test_the_sign_of_the_thompson_margin_matters():
    """With -margin theta = 0 breaks every row; with +margin it would satisfy all, and nothing would be learned."""
    for _, _, episode, view in views(small_run("sbts").log, margin=0.01):
        rows = len(view.rows().rhs)
        assert rows == episode.n_rows - episode.n_steps
        assert view.tally(np.zeros(4)).violated == rows
    for _, _, _, view in views(small_run("sbts").log, margin=-0.01):
        assert (view.rows().rhs > 0).all()


def test_exact_copies_of_the_chosen_candidate_give_no_thompson_row(rng):
    log = ragged_log(rng)
    pairs = []
    for _, episode in log.episodes():
        sets = [episode.candidates(t) for t in range(episode.n_steps)]
        sets = [np.vstack([s, s[c]]) for s, c in zip(sets, episode.chosen, strict=True)]
        pairs.append((sets, episode.chosen))
    doubled = ibcb.BehaviorLog.from_episodes(pairs, warmup=1)
    for (_, _, _, one), (_, _, _, other) in zip(views(log, margin=0.01), views(doubled, margin=0.01), strict=True):
        np.testing.assert_array_equal(one.rows().matrix, other.rows().matrix)


def test_pruned_rows_are_gone_and_the_others_stay(rng):
    for _, _, _, view in views(ragged_log(rng)):
        rows, theta = view.rows(), rng.normal(size=3)
        kept = view.without_violated(theta)
        holds = rows.matrix @ theta - rows.rhs <= view.tolerance(theta)
        np.testing.assert_array_equal(kept.rows().key, rows.key[holds])
        assert kept.tally(theta).violated == 0
        assert view.tally(theta).violated == np.count_nonzero(~holds)


def test_a_joint_view_is_the_sum_of_its_parts(rng):
    parts = [view for _, _, _, view in views(ragged_log(rng))]
    joint, theta = JointView(parts), rng.normal(size=3)
    rows = joint.rows()
    assert len(rows.rhs) == sum(len(part.rows().rhs) for part in parts)
    violation = rows.matrix @ theta - rows.rhs
    worst, tally = joint.worst(theta, 6, 0.0)
    np.testing.assert_allclose(np.sort(worst.violation), np.sort(violation)[-6:], atol=1e-12)
    assert tally.violated == np.count_nonzero(violation > 0)
    np.testing.assert_array_equal(
        joint.places(rows.key)[:, 0], np.repeat(range(len(parts)), [len(p.rows().rhs) for p in parts])
    )
    assert joint.penalty(theta, 1.0, 0.1).value == pytest.approx(
        sum(part.penalty(theta, 1.0, 0.1).value for part in parts)
    )


def test_rows_keep_their_names_across_blocks(rng, monkeypatch):
    log = ragged_log(rng)
    whole = [view for _, _, _, view in views(log)]
    monkeypatch.setattr("ibcb.engine.block.BLOCK_STEPS", 7)
    for one, (_, _, _, cut) in zip(whole, views(log), strict=True):
        rows, same = one.rows(), cut.rows()
        np.testing.assert_array_equal(rows.key, same.key)
        np.testing.assert_array_equal(one.places(rows.key), cut.places(same.key))
        np.testing.assert_allclose(rows.matrix, same.matrix, atol=1e-14)
        theta = rng.normal(size=3)
        worst, _ = cut.worst(theta, 9, 0.0)
        np.testing.assert_array_equal(one.worst(theta, 9, 0.0)[0].key, worst.key)


def test_units_are_root_mean_squares(rng):
    parts = []
    for _, phi, episode, view in views(ragged_log(rng), l2=0.4):
        widths = ridge(phi, 0.4).widths(episode.contexts)
        assert view.bonus_scale == pytest.approx(np.sqrt(np.mean(widths**2)))
        parts.append(view)
    joint = JointView(parts)
    assert joint.bonus_scale == pytest.approx(np.sqrt(np.mean([part.bonus_scale**2 for part in parts])))
    np.testing.assert_allclose(joint.metric.matrix, np.mean([part.metric.matrix for part in parts], axis=0))
    for _, _, _, view in views(ragged_log(rng), margin=0.02):
        assert view.bonus_scale == 0.02


def test_without_a_metric_lengths_are_euclids_at_the_size_of_the_contexts(rng):
    for _, _, episode, view in views(ragged_log(rng)):
        square = np.mean(np.sum(episode.contexts**2, axis=1))
        np.testing.assert_allclose(view.metric.matrix, square * np.eye(3), rtol=1e-6)


def test_a_metric_that_is_given_is_the_views(rng):
    log = ragged_log(rng)
    metric = candidates_metric(log)
    parts = [view for _, _, _, view in views(log, metric=metric)]
    for view in parts:
        assert view.metric is metric
        assert view.without_violated(np.ones(3)).metric is metric
    np.testing.assert_allclose(JointView(parts).metric.matrix, metric.matrix, rtol=1e-12)


def test_rows_of_a_decider_that_measures_features_from_an_origin(rng):
    """Its rows are those of features that have been centred and scaled, with theta over the scale."""
    log, number = ragged_log(rng), 0
    X = log[0].contexts
    frame = Frame("standardized", X.std(axis=0), X.mean(axis=0))
    known = Chosen.before_the_log(np.zeros((3, 3)))
    for by_policy, episode in log.episodes():
        S = episode.contexts[episode.chosen_rows]
        if by_policy and known.count:
            fitted = Regularization(0.4, frame).ridge(known)
            view = EpisodeView(LocalRows(episode), fitted, margin=None, episode=number)
            sets = [(episode.candidates(t) - frame.origin) / frame.scale for t in range(episode.n_steps)]
            plain = ibcb.BehaviorLog.from_episodes([(sets, episode.chosen)])
            phi = known.about(frame.origin) / frame.scale / frame.scale[:, None]
            A, b, _, _ = (np.array(part) for part in zip(*rows_by_hand(plain, phi, 0.4, None), strict=True))
            rows = view.rows()
            np.testing.assert_allclose(rows.matrix / frame.scale, A, atol=1e-10)
            np.testing.assert_allclose(rows.rhs, b, atol=1e-10)
            theta = rng.normal(size=3)
            assert view.tally(theta).violated == np.count_nonzero(rows.matrix @ theta > rows.rhs)
            number += 1
        known = known.and_then(len(S), S.sum(axis=0), S.T @ S)
    assert number >= 3


def test_single_precision_rows_are_penalised_in_double(rng):
    log = small_run().log
    for _, _, _, view in views(log.with_contexts(log.contexts.astype(np.float32), None)):
        theta, rows = rng.normal(size=4), view.rows()
        found, written = view.penalty(theta, 3.0, 0.05), rows.penalty(theta, 3.0, 0.05)
        assert found.value == pytest.approx(written.value, rel=1e-12)
        np.testing.assert_allclose(found.gradient, written.gradient, rtol=1e-10)
