"""What a decider is: free policies per episode, weights of rules and motions, and when a name is given."""

from functools import partial

import numpy as np
import pytest
from foreign import DECIDERS
from foreign import simulated as foreign_log
from selection import normal_log

import ibcb
from ibcb.deciders import KINDS
from ibcb.engine import blocks
from ibcb.numerics.ridge import ridge
from ibcb.tracking.contenders import Tracks
from ibcb.tracking.free_policies import IMPOSSIBLE, FreeFit, Manner, free_fit
from ibcb.tracking.posterior import (
    UNDETERMINED,
    Check,
    Conclusion,
    Plausible,
    concluded,
    hopeful,
    manner_of,
    manners_of,
    rules,
)

SHORT = {"episodes": 8, "batch": 300, "M": 5, "d": 4}
KNOWN = [
    KINDS[key](l2=1.0) for key in ("sbucb", "sbts", "sbts-episode", "egreedy", "softmax", "other", "stationary")
] + [KINDS["topk"](top_k=2)]
MANNERS = manners_of(KNOWN)
NAMES = [manner.name for manner in MANNERS]


def fits(log, *, scale=1.0, order=None):
    """Of every episode, with what had been chosen before it."""
    gram, found = np.zeros((log.n_features,) * 2), []
    for episode in log:
        X, chosen = episode.contexts * scale, episode.chosen
        M = len(X) // len(chosen)
        if order is not None:
            X = X.reshape(len(chosen), M, -1)[:, order].reshape(len(X), -1)
            chosen = np.argsort(order)[chosen]
        again = ibcb.BehaviorLog.from_episodes([(X.reshape(len(chosen), M, -1), chosen)])
        before = [None if manner.kind is None else ridge(gram, 1.0) for manner in MANNERS]
        asked = partial(free_fit, manners=MANNERS, before=before, asked=[True] * len(MANNERS))
        if gram.any():
            found.append(asked(blocks(again)[0]))
        own = X.reshape(len(chosen), M, -1)[np.arange(len(chosen)), chosen]
        gram = gram + own.T @ own
    return found


def test_every_kind_has_a_manner_by_what_its_rule_declares():
    assert [manner_of(kind).name for kind in KNOWN] == [
        *("bonus", "thompson", "best", "egreedy", "softmax", "other", "other", "topk2")
    ]
    assert sorted(NAMES) == sorted({"best", "softmax", "other", "bonus", "thompson", "egreedy", "topk2"})


@pytest.mark.parametrize(
    "kind, rule",
    [
        ("sbucb", "bonus"),
        ("sbts", "thompson"),
        ("egreedy", "egreedy"),
        ("softmax", "softmax"),
        ("topk", "topk2"),
        ("stationary, greedy", "best"),
        ("other", "other"),
    ],
)
def test_the_rule_that_chose_is_the_most_plausible_and_passes_its_checks(kind, rule):
    found = rules(MANNERS, fits(normal_log(kind, 11, **SHORT)))
    assert found[0].name == rule
    assert sum(each.weight for each in found) == pytest.approx(1)
    assert all(check.passed for check in found[0].checks)


def test_a_mixture_of_two_deciders_fails_a_check_and_has_no_name():
    log, *_ = foreign_log(DECIDERS["A/B"][0], 0)
    model = ibcb.IBCB(expert="auto").fit(log)
    assert model.expert_ == UNDETERMINED
    (note,) = (note for note in model.notes_ if note.code == "kind-open")
    assert "What comes nearest fails a check. It takes the best of a draw from what it believes." in note.text
    assert "But the choices do not vary as much as this rule makes them vary, or vary more" in note.text


def test_scores_depend_neither_on_the_unit_of_features_nor_on_the_order_of_candidates():
    log = normal_log("egreedy", 3, **SHORT)
    plain, scaled, turned = fits(log), fits(log, scale=1000.0), fits(log, order=np.array([3, 1, 4, 0, 2]))
    free = [place for place, manner in enumerate(MANNERS) if manner.kind is None]
    for one, other, another in zip(plain, scaled, turned, strict=True):
        np.testing.assert_allclose(other.scores[free], one.scores[free], atol=0.5)
        np.testing.assert_allclose(another.scores[free], one.scores[free], atol=0.5)


def test_the_softmax_of_an_episode_is_the_conditional_logit():
    """Recomputed: its log-likelihood is that of the maximum, less one for every weight."""
    from scipy.optimize import minimize

    log = normal_log("stationary, softmax", 5, **SHORT)
    episode = log[2]
    X, chosen = episode.contexts.reshape(300, 5, 4), episode.chosen
    before = [None if manner.kind is None else ridge(np.eye(4), 1.0) for manner in MANNERS]
    seen = free_fit(blocks(episode)[0], manners=MANNERS, before=before, asked=[True] * len(MANNERS))

    def loss(w):
        scores = X @ w
        return -(scores[np.arange(300), chosen] - np.log(np.exp(scores).sum(axis=1))).sum()

    best = minimize(loss, np.zeros(4)).fun
    assert seen.scores[NAMES.index("softmax")] == pytest.approx(-best - 4, abs=0.01)


def scored(*scores, lengths=None):
    """Fits of three manners."""
    some = np.zeros((len(scores), 3)) if lengths is None else np.array(lengths)
    return [
        FreeFit(np.array(each, float), own, np.full(3, 0.1), *np.zeros((2, 3)))
        for each, own in zip(scores, some, strict=True)
    ]


THREE = (Manner("best"), Manner("softmax", soft=True), Manner("egreedy", share=True))


def test_a_lead_within_its_error_does_not_decide():
    clear, noisy = [(-10, -90, -12)] * 8, [(-10, -90, -12 + 12 * (-1) ** n) for n in range(8)]
    assert rules(THREE, scored(*clear))[0][:2] == ("best", pytest.approx(1, abs=1e-3))
    assert rules(THREE, scored(*noisy))[0].weight < 0.95


def test_what_is_not_likelier_than_its_limit_is_its_limit():
    found = {each.name: each.weight for each in rules(THREE, scored(*[(-10, -11.5, -90)] * 6))}
    assert found["softmax"] == 0
    assert found["best"] == pytest.approx(1)


def test_lengths_that_vary_tell_against_who_has_one_length():
    """Scores alike: one length for all costs nothing, one for each episode a parameter each."""
    one = rules(THREE, scored(*[(-99, -10, -9.9)] * 8, lengths=[[0, 1.0, 0]] * 8))
    many = rules(THREE, scored(*[(-99, -10, -9.9)] * 8, lengths=[[0, 3.0 * (n % 2), 0] for n in range(8)]))
    assert one[0].name == "softmax"
    assert many[0].name == "egreedy"


def test_manners_far_behind_are_given_up_and_are_no_hypotheses():
    some = scored(*[(-10, -11, -400)] * 3)
    assert hopeful(THREE, some[:2]) == [True] * 3
    assert hopeful(THREE, some) == [True, True, False]
    later = scored((-10, -11, IMPOSSIBLE))
    assert {each.name for each in rules(THREE, [*some, *later])} == {"best", "softmax"}


def test_episodes_that_tell_nothing_leave_all_open():
    assert rules(THREE, [FreeFit.of_nothing(3)] * 4) == ()
    short = normal_log("egreedy", 0, episodes=3, batch=20, M=5, d=4)
    assert all(not fit.scores.any() for fit in fits(short))
    assert concluded((), {}, {}).name == UNDETERMINED


def test_a_name_takes_nearly_all_of_the_weight_over_rules_and_motions():
    kinds = {"best": {"sampler": "sbts"}, "egreedy": {"learner": "egreedy", "settling": "egreedy"}}

    def name(best, still):
        motions = [Plausible("still", still, 0.0), Plausible("learner", 1 - still, 0.0)]
        both = [Plausible("best", best, 0.0), Plausible("egreedy", 1 - best, 0.0)]
        return concluded(both, kinds, {"best": motions, "egreedy": motions}).name

    # Whoever stands still is stationary, by whichever rule; who learns has the name of its rule, if that has one.
    assert name(best=0.5, still=0.95) == "stationary"
    assert name(best=0.02, still=0.01) == "egreedy"
    assert name(best=0.5, still=0.01) == name(best=0.0, still=0.5) == name(best=1.0, still=0.0) == UNDETERMINED


def test_sentences_say_what_is_told_and_what_is_not():
    sure, unsure = Plausible("best", 0.97, 0.0), (Plausible("still", 0.6, 0.0), Plausible("learner", 0.4, 0.0))
    failed = sure._replace(checks=(Check("strays", 4.0),))
    told = Conclusion(UNDETERMINED, (sure,), unsure).words
    moves = "The log does not tell whether its policy stands still (60%) or it learns as ridge regression does (40%)."
    assert told == f"It takes the best. {moves}"
    assert Conclusion(UNDETERMINED, (failed,), unsure).words.startswith(
        "What comes nearest fails a check. It takes the best."
    )
    assert Conclusion(UNDETERMINED, (failed,), unsure).words.endswith("not made at random (4.0 standard errors).")
    assert "as softucb does" in Conclusion("softucb", (Plausible("softucb", 1.0, 0.0),)).words


def test_candidates_that_are_all_alike_tell_nothing():
    X, chosen = np.ones((50, 3, 2)), np.arange(50) % 3
    log = ibcb.BehaviorLog.from_episodes([(X, chosen)] * 3)
    assert all(not fit.scores.any() for fit in fits(log))


def test_a_name_without_a_track_is_not_given(monkeypatch):
    """What is named is what predicts, whatever fell behind on the way."""
    log = normal_log("stationary, softmax", 5, **SHORT)
    monkeypatch.setattr(
        Tracks,
        "running",
        property(
            lambda tracks: [
                place
                for place, kind in enumerate(tracks.kinds)
                if tracks.tracks[place] is not None and kind.name != "stationary"
            ]
        ),
    )
    assert ibcb.IBCB(expert="auto").fit(log).expert_ == UNDETERMINED
