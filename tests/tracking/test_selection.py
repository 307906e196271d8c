"""expert="auto": the kind is told from the log, the evidence is given, and what is named stays as it was."""

import importlib
import warnings
from dataclasses import replace

import numpy as np
import pytest
from conftest import slow
from replayed import episodes_of, tracked
from same import assert_same

import ibcb
from ibcb.deciders import KINDS, experts
from ibcb.deciders.softmax import policy_alone
from ibcb.engine import blocks
from ibcb.tracking import Track, selection
from ibcb.tracking.contenders import Comparison, Tracks
from ibcb.tracking.posterior import UNDETERMINED

SIZE = {"n_episodes": 8, "batch_size": 300, "n_candidates": 8, "n_features": 8}


def fixed(seed=0, *, greedy=True, episodes=8, steps=200, strays=0.0):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(episodes, steps, 6, 5))
    theta = rng.normal(size=5)
    scores = contexts @ theta
    if not greedy:
        scores = 2 * scores + rng.gumbel(size=scores.shape)
    chosen = np.where(
        rng.random((episodes, steps)) < strays, rng.integers(6, size=(episodes, steps)), scores.argmax(axis=2)
    )
    return ibcb.BehaviorLog.from_episodes(list(zip(contexts, chosen, strict=True))), theta


def simulated(expert="sbucb", seed=1, **settings):
    return ibcb.simulate("synthetic", expert=expert, noise=0.03, seed=seed, **SIZE | settings)


def auto(**params):
    return ibcb.IBCB(**{"expert": "auto", "l2": "auto"} | params)


@pytest.fixture(scope="module")
def fitted():
    """A log and its fit by "auto", of every kind."""
    logs = {
        "sbucb": simulated().log,
        "sbts": simulated("sbts", 2).log,
        "egreedy": simulated("egreedy", 3).log,
        "softmax": simulated("softmax", 4, n_episodes=12).log,
        "topk": simulated(top_k=2).log,
        "stationary": fixed(greedy=False)[0],
    }
    return {kind: (log, auto().fit(log)) for kind, log in logs.items()}


@pytest.mark.parametrize("kind", ["sbucb", "sbts", "egreedy", "softmax", "topk", "stationary"])
def test_the_kind_is_told_and_the_evidence_given(fitted, kind):
    _, model = fitted[kind]
    assert model.expert_ == kind
    assert [one.chosen for one in model.evidence_].count(True) == 1
    best = next(one for one in model.evidence_ if one.chosen)
    assert (best.expert, best.top_k) == (kind, 2 if kind == "topk" else None)
    assert {one.expert for one in model.evidence_} == set(experts())
    tried = {(one.l2, one.units) for one in model.evidence_ if one.expert == "sbucb"}
    assert tried == {(l2, units) for units, values in KINDS["sbucb"].penalties.items() for l2 in values}
    assert all((one.l2 is None) == (one.units is None) for one in model.evidence_)
    assert all(one.log_likelihood <= 0 and 0 <= one.agreement <= 1 for one in model.evidence_)
    (note,) = (note for note in model.notes_ if note.code == "kind-chosen")
    assert best.name in note.text
    assert note.figures["log_likelihood"] == best.log_likelihood


@pytest.mark.parametrize("kind", ["sbucb", "sbts", "egreedy", "softmax", "topk", "stationary"])
def test_every_kind_predicts_forecasts_and_can_be_stored(fitted, kind, tmp_path):
    log, model = fitted[kind]
    ibcb.save_model(model, tmp_path / "model.safetensors")
    again = ibcb.load_model(tmp_path / "model.safetensors")
    assert (again.expert_, again.l2_, again.top_k_) == (model.expert_, model.l2_, model.top_k_)
    assert (again.evidence_, again.notes_) == (model.evidence_, model.notes_)
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    np.testing.assert_array_equal(model.forecast(), model.next_policy_coef_)
    interval = again.policy_interval()
    assert (interval.lower <= interval.upper).all()
    assert model.policy_coefs_.shape == (len(log), log.n_features)
    assert model.score(log) > 0.3


@pytest.mark.parametrize("kind", [slow("sbucb"), "topk"])
def test_partial_fit_goes_on_with_the_kind_that_was_chosen(fitted, kind):
    log, _ = fitted[kind]
    model = auto().fit(log[:7])
    chosen = model.expert_, model.l2_, model.top_k_
    model.partial_fit(log[7])
    assert (model.expert_, model.l2_, model.top_k_) == chosen
    assert len(model.policy_coefs_) == 8
    if kind == "topk":
        whole = ibcb.IBCB(expert="topk", top_k=2).fit(log)
        a, b = (each.next_policy_coef_ / np.linalg.norm(each.next_policy_coef_) for each in (model, whole))
        np.testing.assert_allclose(a, b)


def test_partial_fit_cannot_begin_with_auto(fitted):
    log, _ = fitted["sbucb"]
    with pytest.raises(ValueError, match="cannot begin with expert='auto': one episode says nothing"):
        auto().partial_fit(log[0])
    with pytest.raises(ValueError, match="takes two or more"):
        auto().fit(log[:1])


def test_what_was_chosen_is_fitted_as_if_it_had_been_named(fitted):
    """Choosing only chooses: the track is that of the decider chosen, alone."""
    log, model = fitted["sbucb"]
    assert model.units_ in ("scaled", "standardized")
    assert model.decider_ == KINDS["sbucb"](l2=model.l2_, frame=model.decider_.frame)
    assert_same(tracked(log, model.decider_), model._fit.track)
    # The kind alone left open, l2 in the units of the log.
    open_kind, named = auto(l2=0.3).fit(log), ibcb.IBCB(expert="sbucb", l2=0.3).fit(log)
    assert named.evidence_ == ()
    for each in (open_kind, named):
        assert (each.expert_, each.l2_, each.units_, each.top_k_) == ("sbucb", 0.3, "own", None)
    for name in ("coef_", "intercept_", "policy_coefs_", "next_policy_coef_"):
        np.testing.assert_array_equal(getattr(open_kind, name), getattr(named, name))


def likeliest(evidence):
    """Of the candidates that were not given up."""
    return max((one for one in evidence if not one.out_after), key=lambda one: one.log_likelihood)


def test_l2_alone_can_be_left_open(fitted):
    log, _ = fitted["sbucb"]
    model = ibcb.IBCB(expert="sbucb", l2="auto").fit(log)
    assert {one.expert for one in model.evidence_} == {"sbucb"}
    best = likeliest(model.evidence_)
    assert (model.l2_, model.units_) == (best.l2, best.units)


@pytest.mark.parametrize("kind", ["sbucb", "sbts", "egreedy", "softmax", "topk", "stationary"])
def test_every_kind_can_be_brought_to_life(fitted, kind):
    log, model = fitted[kind]
    policy, sets = model.to_policy(random_state=0), log[0].contexts.reshape(log[0].n_steps, -1, log.n_features)
    np.testing.assert_array_equal(policy.decision_function(sets).argmax(axis=1), model.predict(sets))
    # As it explores, it chooses as often as the model says that it will.
    np.testing.assert_allclose(policy.propensities(sets).mean(axis=0), model.propensities(sets).mean(axis=0), atol=0.1)


@pytest.mark.parametrize("kind", ["sbucb", "sbts", "topk", "stationary"])
def test_how_much_it_explores_is_told_of_kinds_that_say_how(fitted, kind):
    _, model = fitted[kind]
    assert (model.epsilon_, model.temperature_) == (None, None)
    with pytest.raises(ValueError, match=f"{kind!r} has neither epsilon nor a temperature"):
        model.exploration_interval()


def test_epsilon_and_temperature_are_told_with_their_uncertainty(fitted):
    _, greedy = fitted["egreedy"]
    found = greedy.exploration_interval(0.99)
    assert len(found.estimate) == len(fitted["egreedy"][0]) + 1
    assert greedy.epsilon_ == found.estimate[-1]
    assert found.lower[-1] < 0.2 < found.upper[-1]
    _, soft = fitted["softmax"]
    run = simulated("softmax", 4, n_episodes=12)
    X = run.log[len(run.log) - 1].contexts.reshape(-1, 8, 8)
    spread = np.sqrt(np.mean(np.var(X @ run.policy_coefs[-2], axis=1)))
    assert soft.temperature_ == pytest.approx(run.expert_settings.temperature / spread, rel=0.2)


def test_parameters_are_checked():
    log, _ = fixed()
    for wrong in ({"expert": "ucb"}, {"l2": "best"}, {"top_k": 1}, {"top_k": 2.5}):
        with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
            auto(**wrong).fit(log)


def test_stray_choices_do_little_harm():
    log, theta = fixed(3, strays=0.05)
    model = ibcb.IBCB(expert="stationary").fit(log)
    p = model.next_policy_coef_
    assert p @ theta / np.linalg.norm(p) / np.linalg.norm(theta) > 0.998
    assert model.forecast_model_ == "still"
    np.testing.assert_array_equal(model.forecast(5), model.forecast(1))


def test_draws_have_the_scale_of_the_decider():
    run = simulated(top_k=3, seed=4)
    model = ibcb.IBCB(expert="topk", top_k=3).fit(run.log)
    truth = run.policy_coefs[-1]
    assert 0.5 < model.next_policy_coef_ @ truth / (truth @ truth) < 2
    assert ibcb.metrics.bt_fitness(model, run) > 0.9 * ibcb.metrics.bt_fitness(run.expert, run)


def unexplained(model):
    return any(note.code in ("restless", "not-predicted") for note in model.notes_)


def test_a_restless_decider_is_said_to_have_no_linear_theta():
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(8, 200, 6, 5))
    chosen = [(each @ rng.normal(size=5)).argmax(axis=1) for each in contexts]
    model = auto().fit(ibcb.BehaviorLog.from_episodes(list(zip(contexts, chosen, strict=True))))
    assert model.expert_ == "other"
    assert unexplained(model)


def textbook_linucb(seed, alpha, noise, d=6, M=8, batch=200):
    """LinUCB over standardised features, without a warm-up; the log has the features as they are."""
    rng = np.random.default_rng(seed)
    middle, spread, weights = 3 * rng.normal(size=d), np.exp(rng.normal(size=d)), rng.normal(size=d)
    A, b, pairs = np.eye(d), np.zeros(d), []
    for _ in range(10):
        Z = rng.normal(size=(batch, M, d))
        inverse = np.linalg.inv(A)
        bonus = np.sqrt(np.einsum("smd,de,sme->sm", Z, inverse, Z))
        chosen = (Z @ (inverse @ b) + alpha * bonus).argmax(axis=1)
        S = Z[np.arange(batch), chosen]
        A, b = A + S.T @ S, b + S.T @ (S @ weights + noise * rng.normal(size=batch))
        pairs.append((middle + spread * Z, chosen))
    return ibcb.BehaviorLog.from_episodes(pairs)


@pytest.mark.parametrize("seed, alpha, noise", [(0, 1.0, 0.1), slow(1, 0.3, 1.0), slow(4, 2.0, 1.0)])
def test_a_textbook_linucb_is_told_whatever_the_units_of_its_features(seed, alpha, noise):
    """It takes the best and learns; whether with a bonus, no log tells in which the bonus hardly ever decides."""
    model = auto().fit(textbook_linucb(seed, alpha, noise))
    assert model.expert_ in ("sbucb", UNDETERMINED)
    assert sum(each.weight for each in model.rules_ if each.name in ("best", "bonus")) > 0.95
    assert model.motions_[0].name == "learner"
    assert model.units_ in ("scaled", "standardized")


def test_so_is_one_that_takes_any_candidate():
    rng = np.random.default_rng(1)
    episodes = [(rng.normal(size=(300, 6, 5)), rng.integers(6, size=300)) for _ in range(4)]
    assert unexplained(auto().fit(ibcb.BehaviorLog.from_episodes(episodes)))


def test_who_foresees_nothing_predicts_as_much_as_chance():
    """Of three candidates, one that draws from its best three takes any: all are the most probable."""
    rng = np.random.default_rng(2)
    episodes = [(rng.normal(size=(100, 3, 2)), rng.integers(3, size=100)) for _ in range(6)]
    model = auto().fit(ibcb.BehaviorLog.from_episodes(episodes))
    (even,) = (one for one in model.evidence_ if one.top_k == 3)
    assert even.log_likelihood == pytest.approx(-np.log(3))
    assert even.agreement == pytest.approx(1 / 3)
    assert unexplained(model)


@pytest.mark.parametrize("expert, top_k", [("sbucb", None), ("sbts", None), slow("sbts", 3)])
def test_moving_in_youth_is_learning(fitted, expert, top_k):
    run = ibcb.simulate("synthetic", expert=expert, noise=0.3, seed=4, top_k=top_k, **SIZE | {"n_episodes": 4})
    X, p = run.log[3].contexts.reshape(300, 8, 8), run.policy_coefs
    best = [(X @ each).argmax(axis=1) for each in p]
    assert np.mean([np.mean(best[n] == best[n + 1]) for n in range(3)]) < selection._STEADY
    assert not unexplained(auto().fit(run.log))
    assert not any(unexplained(model) for _, model in fitted.values())


def test_errors_of_estimation_are_no_unrest():
    """One that never moves, in episodes so small that no two estimates of its policy agree well."""
    for seed in range(3):
        log, _ = fixed(seed, greedy=False, steps=25)
        kind = KINDS["other"]()
        track = tracked(log, kind)
        assert len(track.own_moves) == len(log) - 1
        assert all(0 <= share <= 1 for share in track.own_moves)
        picks = (log.contexts @ track.policies.T).reshape(-1, 6, len(log)).argmax(axis=1)
        changed = np.mean(picks[:, 1:] != picks[:, :-1], axis=0)
        assert 1 - np.mean((changed * track.own_moves)[-3:]) > 0.93
        alone = [policy_alone(blocks(episode)[0], 1) for episode in log]
        best = [(log.contexts @ each).reshape(-1, 6).argmax(axis=1) for each in alone]
        assert np.mean(best[-1] == best[-2]) < 0.9


def test_a_log_on_disk_is_told_apart_to_the_same_bits(fitted, tmp_path):
    log, model = fitted["stationary"]
    ibcb.write_log(log, tmp_path / "log.parquet")
    streamed = auto().fit(ibcb.open_log(tmp_path / "log.parquet"))
    assert streamed.evidence_ == model.evidence_
    np.testing.assert_array_equal(streamed.next_policy_coef_, model.next_policy_coef_)


def test_what_is_plausible_adds_up_and_a_name_takes_nearly_all_of_it(fitted):
    short = [auto().fit(fixed(seed, greedy=False, episodes=4, steps=25)[0]) for seed in range(2)]
    for model in [*short, *(model for _, model in fitted.values())]:
        for what in (model.rules_, model.motions_):
            assert sum(each.weight for each in what) == pytest.approx(1) if what else any(model is one for one in short)
            assert [each.weight for each in what] == sorted((each.weight for each in what), reverse=True)
        (note,) = (note for note in model.notes_ if note.code.startswith("kind-"))
        assert (note.code == "kind-open") == (model.expert_ == UNDETERMINED)
        assert model.expert_ in (UNDETERMINED, model.decider_.name)
        if model.expert_ == UNDETERMINED:
            # Fewer choices than ten a weight tell nothing of how it chooses.
            assert ("No episode has enough choices" in note.text) == (not model.rules_)
        assert note.figures["kind"] == next(one.name for one in model.evidence_ if one.chosen)
        assert bool(model.rules_) == (not any(model is one for one in short))


def test_partial_fit_keeps_the_note_on_how_the_kind_was_chosen(fitted):
    log, _ = fitted["sbts"]
    model = auto().fit(log[:7])
    before = [note for note in model.notes_ if note.code == "kind-chosen"]
    assert before
    model.partial_fit(log[7])
    assert [note for note in model.notes_ if note.code == "kind-chosen"] == before


def test_candidates_may_vary_in_number_and_not_differ():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=4)
    episodes = []
    for _ in range(4):
        sets = [rng.normal(size=(rng.integers(1, 7), 4)) * [1, 1, 1, 0] for _ in range(80)]
        sets[0] = np.ones((3, 4))
        episodes.append((sets, [int((each @ theta).argmax()) for each in sets]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = auto().fit(ibcb.BehaviorLog.from_episodes(episodes))
    assert np.isfinite(model.next_policy_coef_).all()


def test_a_track_learns_from_each_episode_and_never_from_what_comes():
    log, theta = fixed(6)
    whole, short = tracked(log, KINDS["other"]()), tracked(log[:4], KINDS["other"]())
    np.testing.assert_array_equal(short.policies, whole.policies[:4])
    aims = [p @ theta / np.linalg.norm(p) / np.linalg.norm(theta) for p in whole.policies]
    assert aims[-1] > max(0.999, aims[0])


# -- a selection as a value ------------------------------------------------------------------------------------------


KINDS_TRIED = (KINDS["sbucb"](), KINDS["topk"](top_k=2), KINDS["stationary"](), KINDS["other"]())


def stepped(log, kinds=KINDS_TRIED, begun=None):
    """The selection after every stored episode."""
    d = log.n_features
    state, states = selection.Selecting(begun or Tracks.begin(kinds, np.zeros((d, d)))), []
    for episode in episodes_of(log):
        state = state.step(episode)
        states.append(state)
    return states


def test_a_selection_goes_on_from_its_tracks_alone():
    log = simulated(top_k=2).log
    states = stepped(log)
    for state in states:
        again = stepped(log, begun=state.tracks)[-1]
        assert_same(again, states[-1])
        assert_same(again.finish(), states[-1].finish())


@pytest.mark.parametrize("kind", ["sbucb", slow("sbts")])
def test_candidates_that_fall_behind_are_given_up(kind):
    """Their figures are those of a selection that ends there; of every kind and parameter one is left to choose."""
    log = simulated(kind).log
    evidence = auto().fit(log).evidence_
    given_up = [one for one in evidence if one.out_after]
    assert given_up
    assert {one.expert for one in evidence} == set(experts())
    # Of every kind one parameter is left, unless all are far behind.
    left = [one for one in evidence if not one.out_after]
    assert len({(one.expert, one.draws) for one in left}) == len(left)
    (chosen,) = (one for one in left if one.chosen)
    late = [one for one in given_up if one.out_after > selection._RACES[2]]
    assert all(one.log_likelihood < chosen.log_likelihood for one in late)
    for episodes_ in {one.out_after for one in given_up}:
        known = [each._replace(chosen=False) for each in auto().fit(log[:episodes_]).evidence_]
        assert all(one in known for one in given_up if one.out_after == episodes_)


def test_tracks_are_those_of_each_kind_alone(monkeypatch):
    monkeypatch.setattr(selection, "_RACES", ())
    log = fixed(2, greedy=False)[0]
    together = stepped(log)[-1].tracks
    for place, kind in enumerate(KINDS_TRIED):
        assert_same(together.tracks[place], tracked(log, kind))
        alone = stepped(log, (kind,))[-1].tracks
        assert together.steadiness(place) == alone.steadiness(0)
        # By the last three moves.
        assert len(alone.changes[0]) == min(3, len(alone.tracks[0].own_moves))
        assert [each.log_likelihoods[place] for each in together.judged] == [
            pytest.approx(each.log_likelihoods[0], rel=1e-12) for each in alone.judged
        ]


def test_a_judgement_is_the_sum_over_steps(rng):
    """Without keeping a step, leads are those that all steps tell."""
    table, parts = rng.normal(size=(3, 100)), []
    for first in (0, 40):
        own = table[:, first : first + 40 if first == 0 else None]
        steps = own.shape[1]
        chances = np.full(steps, 0.25)
        looks = [type("Look", (), {"likelihoods": each, "chances": chances, "agreement": 0.5})() for each in own]
        parts.append(Comparison.of([*looks, None]))
    both = parts[0] + parts[1]
    assert (both.steps, both.candidates) == (100, 400)
    for one in range(3):
        for other in range(3):
            apart = table[one] - table[other]
            expected = apart.sum() / np.sqrt((apart**2).sum()) if one != other else 0.0
            assert both.lead(one, other) == pytest.approx(expected, abs=1e-9)
    assert both.per_step(3) == pytest.approx(np.log(0.25))
    assert both.beyond_chance(3) == pytest.approx(0.0)


def test_a_belief_that_is_not_finite_predicts_nothing_and_is_not_stored(monkeypatch):
    log, real = fixed(1, greedy=False)[0], Track.given

    def broken(self, *arguments):
        track = real(self, *arguments)
        if len(track.policies) != 4 or not self.kind.learns:
            return track
        return replace(track, now=replace(track.now, evidence=np.full_like(track.now.evidence, np.nan)))

    monkeypatch.setattr(Track, "given", broken)
    state = stepped(log)[-1]
    assert state.tracks.tracks[0] is None
    assert state.tracks.failures[0] == "a belief is not finite"
    # Its figures are of the episodes until then, and say so.
    assert [one.out_after for one in state.finish().evidence if one.expert == "sbucb"] == [4]
    assert not state.finish().track.kind.learns
    with pytest.raises(ValueError, match="cannot be tracked as those of sbucb.*a belief is not finite.*Rescale"):
        stepped(log, KINDS_TRIED[:1])[-1].finish()


@pytest.mark.parametrize("verbose", [True, False])
def test_progress_is_shown_to_who_asks_for_it(monkeypatch, verbose):
    """On a terminal only: that is what disable=None means to tqdm."""
    module = importlib.import_module("ibcb.engine.replay")
    shown, real = [], module._Bar

    def bar(**options):
        shown.append((options["desc"], options["disable"], options["total"]))
        return real(**options)

    monkeypatch.setattr(module, "_Bar", bar)
    log = fixed(episodes=3, steps=20)[0]
    ibcb.IBCB(expert="other", verbose=verbose).fit(log)
    expected = [("choose", None, 3), ("fit", None, 3)] if verbose else [("", True, 3)] * 2
    assert shown == expected


def test_nothing_is_given_up_by_an_episode_that_nobody_could_predict():
    """Without a warm-up the first policy that has learned anything is that of the second episode."""
    log = simulated("sbts", warmup=0).log
    evidence = auto(expert="sbts").fit(log).evidence_
    assert {one.out_after for one in evidence} <= {0, *selection._RACES[1:]}
    assert len({one.log_likelihood for one in evidence if one.out_after}) > 1
