"""The verdict: what it promises, that everybody says the same, and rivals against independent recomputation."""

import json
import re

import numpy as np
import pytest
from commands import succeeds
from conftest import slow
from pages import fitted, hostile, plain, shared

import ibcb
from ibcb.log.notes import Note
from ibcb.report import facts, render
from ibcb.report.rivals import ItemShares, Lessons, choice_weights
from ibcb.report.verdict import BARS, Figures, explained_exactly, judge, lead

LEVELS = ("good", "fair", "poor", "unknown")


def learner_log(seed=0, *, episodes=6, steps=150, d=3, candidates=5, random=0.0, items=0, warmup=0):
    """The log of an SBUCB decider; ``random``: share of choices at random; ``items``: candidates of a catalogue."""
    rng = np.random.default_rng(seed)
    theta, expert, pairs = rng.normal(size=d), ibcb.SBUCB(d, alpha=0.4, l2=1.0), []
    catalogue = rng.normal(size=(items, d))
    for number in range(-warmup, episodes):
        X = rng.normal(size=(steps, candidates, d))
        if items:
            X = catalogue[np.argsort(rng.random((steps, items)), axis=1)[:, :candidates]]
        chosen = np.where(
            rng.random(steps) < (random if number >= 0 else 1), rng.integers(candidates, size=steps), expert.act(X)
        )
        S = X[np.arange(steps), chosen]
        expert.update(S, S @ theta + 0.1 * rng.normal(size=steps))
        pairs.append((X, chosen))
    return ibcb.BehaviorLog.from_episodes(pairs, warmup=warmup)


def late(**changes):
    """A later half that is predicted well."""
    figures = {"episodes": 5, "steps": 900, "predicted": 0.95, "greedy": 0.95, "chance": 0.1, "kept": 0.995}
    figures |= {"rival": "choice model", "rival_predicted": 0.94, "apart": (30, 20, 30, 20)}
    figures |= {"confirmed": 0.97, "borne_out": 0.99, "agreement": 0.995, "agreement_low": 0.99}
    figures |= {"bend": 0.0, "bent": []}
    figures |= changes
    model_only, rival_only, greedy_only, over_greedy = figures.pop("apart")
    figures |= {"model_only": model_only, "rival_only": rival_only, "p_value": 0.5}
    return Figures(**figures, greedy_lead=lead(over_greedy, greedy_only, figures["steps"]))


UNKNOWN = {"agreement": None, "agreement_low": None}
NO_RIVAL = {"rival": None, "rival_predicted": None, "apart": (0, 0, 0, 0)}


class Noted:
    """A fitted model with other notes."""

    def __init__(self, model, *notes):
        self._model, self.notes_ = model, notes

    def __getattr__(self, name):
        return getattr(self._model, name)


# -- what it promises ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"expert": "auto", "l2": "auto"}, {"forecast": None}])
def test_three_decisions_tell_nothing(options):
    log = learner_log(episodes=3, steps=1)
    found = ibcb.IBCB(**options).fit(log).verdict(log)
    assert found.level == "unknown"
    assert found.reasons
    assert found.next_step


@pytest.mark.parametrize(
    "options, steps",
    [
        ({}, 15),
        ({"expert": "auto", "l2": "auto"}, 15),
        ({"expert": "sbts"}, 400),
        ({"expert": "topk"}, 400),
        slow({}, 80),
    ],
)
def test_random_choices_support_nothing(options, steps):
    rng = np.random.default_rng(steps)
    pairs = [(rng.normal(size=(steps, 6, 3)), rng.integers(6, size=steps)) for _ in range(6)]
    log = ibcb.BehaviorLog.from_episodes(pairs, warmup=1)
    found = ibcb.IBCB(**options).fit(log).verdict(log)
    assert found.level in (("poor",) if steps == 400 else ("poor", "unknown"))
    assert not found.supported


def test_random_choices_among_others_do_not_lower_the_level():
    """The share predicted falls; what the decider prefers is known all the same."""
    log = learner_log(episodes=10, steps=400, random=0.2)
    found = ibcb.IBCB(expert="auto", l2="auto").fit(log).verdict(log)
    assert found.predicted < 0.85
    assert found.level == "good"


def test_bars():
    """Each bar alone decides, and only from where it stands."""
    model, _ = fitted()
    model = Noted(model)

    def level(figures, judged=model):
        return judge(judged, figures).level

    assert level(late()) == "good"
    assert level(late(steps=BARS.many_steps - 1)) == "fair"
    assert level(late(steps=BARS.some_steps - 1)) == "unknown"
    assert level(late(kept=0.97)) == level(late(borne_out=0.97)) == "fair"
    assert level(late(kept=0.7, borne_out=0.7)) == "poor"
    assert level(late(agreement=0.99, agreement_low=0.97)) == level(late(**UNKNOWN)) == "fair"
    # Many steps tell by themselves.
    many = {"steps": 1000, "confirmed": 0.99}
    assert level(late(**many, **UNKNOWN)) == level(late(**many, agreement=0.97, agreement_low=0.8)) == "good"
    # Unless what is believed says otherwise.
    assert level(late(**many, agreement=0.95, agreement_low=0.8)) == "fair"
    assert level(late(steps=1000, confirmed=0.98, **UNKNOWN)) == level(late(confirmed=0.99, **UNKNOWN)) == "fair"
    assert level(late(apart=(0, 20, 0, 20))) == "fair"
    assert level(late(predicted=0.91, apart=(0, 90, 0, 90))) == "poor"
    assert level(late(episodes=1, predicted=0.91, apart=(0, 90, 0, 90))) == "fair"
    # predict picks without exploration: there the rival does not lead.
    assert level(late(predicted=0.91, apart=(0, 90, 90, 90))) == "fair"
    # So few steps may be luck.
    assert level(late(apart=(0, 4, 0, 4))) == "good"
    assert level(late(predicted=0.11, greedy=0.1, **NO_RIVAL)) == "poor"
    assert level(late(steps=100, predicted=0.15, greedy=0.1, **NO_RIVAL)) == "unknown"
    assert level(late(chance=1.0, predicted=1.0)) == "unknown"
    # The code decides, not the words.
    codes = dict.fromkeys(("late-start", "unmarked-warmup", "restless"), "fair")
    for code, expected in (codes | {"other": "good", "not-predicted": "unknown"}).items():
        assert level(late(), judged=Noted(model, Note(code, "warning", "it seems to start late"))) == expected


def test_a_log_that_begins_in_the_middle_is_not_good_unless_the_beginning_is_known():
    log = learner_log(episodes=12, steps=300)
    later = log[3:]
    with pytest.warns(UserWarning, match="start in the middle"):
        blind = ibcb.IBCB().fit(later)
    assert blind.verdict(later).level != "good"
    known = np.concatenate([part.contexts[part.chosen_rows] for part in log[:3]])
    assert ibcb.IBCB(prior_gram=known.T @ known).fit(later).verdict(later).level == "good"


def test_what_could_not_be_predicted_is_unknown_and_says_why():
    _, run = fitted()
    joint = ibcb.IBCB(l2=0.3, incremental=False, forecast=None).fit(run.log)
    found = facts(joint, run.log)
    assert found.verdict.level == "unknown"
    assert "solved at once" in found.verdict.reasons[0]
    assert "incremental=True" in found.verdict.next_step
    assert all(step.predicted is None for episode in found.sample for step in episode.steps)
    render(found)
    # The tracker goes through the episodes one after the other all the same.
    assert ibcb.IBCB(l2=0.3, incremental=False).fit(run.log).verdict(run.log).supported


def test_a_verdict_is_on_the_fitted_log_alone():
    model, run = fitted()
    log, arrays = run.log, (run.log.step_offsets, run.log.chosen, run.log.episode_offsets)
    other = ibcb.BehaviorLog(run.log.contexts[::-1], *arrays, warmup=1)
    with pytest.raises(ValueError, match=r"not the log that the model was fitted to: the warm-up .*score\(log\)"):
        model.verdict(other)
    said = facts(model, other, steps=False)
    assert (said.verdict.level, said.verdict.supported, said.verdict.figures) == ("unknown", False, None)
    assert "not the log that the model was fitted to" in said.verdict.reasons[0]
    render(said)
    # The log that goes on after the fitted one.
    with pytest.raises(ValueError, match=r"episodes 0 to 3; give the log that it was fitted to, log\[:4\], or fit all"):
        ibcb.IBCB(l2=0.3).fit(log[:4]).verdict(log)
    assert ibcb.IBCB(l2=0.3).fit(log[:4]).verdict(log[:4]).figures


def test_what_is_explained_exactly_is_not_accused_in_the_same_breath():
    model, _ = fitted()
    assert explained_exactly(model.coef_, model.diagnostics_)
    reasons = judge(model, late(), misfits=129).reasons
    assert "There are reward weights that explain every logged choice exactly." in reasons
    assert not any("do not fit" in reason for reason in reasons)


@pytest.mark.parametrize("expert", ["sbucb", "auto"])
def test_worse_than_chance_is_called_so_and_auto_is_not_advised_after_auto(expert):
    told = Noted(fitted()[0])
    told.expert = expert
    found = judge(told, late(predicted=0.12, greedy=0.12, chance=0.25, steps=5000))
    assert "That is no better than chance." in found.reasons
    assert ("expert='auto'" in found.next_step) == (expert != "auto")
    assert "That is hardly more than chance." in judge(told, late(predicted=0.11, greedy=0.1, steps=5000)).reasons


def test_what_predict_picks_is_said_under_the_condition_that_the_log_cannot_tell():
    reasons = judge(fitted()[0], late()).reasons
    (said,) = [reason for reason in reasons if "predict picks" in reason]
    assert said.startswith("If choices depend on these features alone, predict picks")


def test_where_candidates_never_differ_nothing_was_learned():
    log = ibcb.BehaviorLog.from_episodes([(np.ones((60, 3, 2)), np.zeros(60, dtype=int))] * 4)
    found = ibcb.IBCB().fit(log).verdict(log)
    assert found.level == "poor"
    assert "Nothing was learned" in found.reasons[0]


# -- what it does not depend on --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"expert": "sbucb"}, {"expert": "sbts"}, slow({"expert": "auto", "l2": "auto"})])
def test_the_order_of_candidates_and_the_names_of_features_do_not_matter(options):
    log = learner_log(1, random=0.05)
    rng, pairs = np.random.default_rng(0), []
    for episode in log:
        X = episode.contexts.reshape(episode.n_steps, -1, log.n_features)
        order = np.argsort(rng.random(X.shape[:2]), axis=1)
        chosen = np.argsort(order, axis=1)[np.arange(len(X)), episode.chosen]
        pairs.append((np.take_along_axis(X, order[..., None], axis=1), chosen))
    other = ibcb.BehaviorLog.from_episodes(pairs, feature_names=["price", "stars", "near"])
    one, two = (ibcb.IBCB(**options).fit(each).verdict(each) for each in (log, other))
    assert (one.level, one.next_step) == (two.level, two.next_step)
    assert one.predicted == pytest.approx(two.predicted, abs=0.003)
    assert one.figures.rival_predicted == pytest.approx(two.figures.rival_predicted, abs=0.003)


@pytest.mark.parametrize("options", [{"l2": "auto"}, {"expert": "sbts", "l2": "auto"}, {"expert": "other"}])
def test_units_do_not_matter(options):
    log = learner_log(1, random=0.05, warmup=1)
    arrays = (log.step_offsets, log.chosen, log.episode_offsets)
    other = ibcb.BehaviorLog(log.contexts * [1e-3, 1.0, 1e4], *arrays, warmup=1)
    one, two = (ibcb.IBCB(**options).fit(each).verdict(each) for each in (log, other))
    assert (one.level, one.next_step, one.figures.rival) == (two.level, two.next_step, two.figures.rival)
    for name in ("predicted", "rival_predicted", "kept", "confirmed", "borne_out", "agreement", "agreement_low"):
        assert getattr(one.figures, name) == pytest.approx(getattr(two.figures, name), abs=0.01), name


@pytest.mark.parametrize("items", [0, 12])
def test_a_log_on_disk_gets_the_same_verdict(tmp_path, monkeypatch, items):
    log = learner_log(2, items=items)
    model = ibcb.IBCB().fit(log)
    ibcb.write_log(log, tmp_path / "log.parquet")
    monkeypatch.setattr("ibcb.io.parquet._STREAM_NUMBERS", 400)
    disk = ibcb.open_log(tmp_path / "log.parquet")
    assert len(list(disk.parts())) > 12
    assert model.verdict(disk) == model.verdict(log)


# -- everybody says the same -----------------------------------------------------------------------------------------


def test_page_command_line_and_method_say_the_same(tmp_path):
    log = learner_log(3)
    ibcb.write_log(log, tmp_path / "log.parquet")
    given = [str(tmp_path / name) for name in ("log.parquet", "m.safetensors", "page.html")]
    fit = succeeds("fit", given[0], "-o", given[1], "--json")
    report = succeeds("report", given[1], "--log", given[0], "-o", given[2], "--json")
    found = ibcb.load_model(given[1]).verdict(log)
    told = json.loads(json.dumps(found.to_json()))
    assert json.loads(fit.stdout)["verdict"] == json.loads(report.stdout)["verdict"] == told
    page = (tmp_path / "page.html").read_text()
    for words in (found.headline, *found.reasons, found.next_step):
        assert words.replace("'", "&#39;").replace("<", "&lt;") in page
    assert f'class="judgement {found.level}"' in page
    # One measure, one value, wherever it is named.
    said = re.findall(r"[Pp]redicts (\d+\.\d)% of choices one episode ahead", page + " ".join(found.reasons))
    assert set(said) == {f"{found.predicted:.1%}"[:-1]}


@pytest.mark.parametrize("make", [lambda: fitted(), lambda: fitted("sbts"), plain, hostile, shared])
def test_reasons_are_sentences_with_the_figures_and_agree_with_the_level(make):
    model, log = make()
    log = getattr(log, "log", log)
    found = model.verdict(log)
    assert found.level in LEVELS
    assert f"Predicts {found.predicted:.1%} of choices one episode ahead" in found.reasons[0]
    assert f"{found.figures.rival_predicted:.1%}" in found.reasons[0]
    assert all(reason == reason.strip() and reason.endswith(".") for reason in (*found.reasons, found.next_step))
    assert len(set(found.reasons)) == len(found.reasons)
    said = " ".join(found.reasons)
    assert ("The rival predicts" in said) <= (found.figures.rival_only > found.figures.model_only)
    assert (found.level == "good") <= ("changed" not in said and "bear out" not in said)


def test_intervals_are_claimed_only_where_the_model_is_supported():
    model, run = fitted()
    assert model.verdict(run.log).supported
    assert "90% interval" in render(facts(model, run.log, steps=False))
    log = learner_log(episodes=3, steps=4)
    unknown = ibcb.IBCB().fit(log)
    found = facts(unknown, log, steps=False)
    assert not found.verdict.supported
    assert all(weight.low is None for weight in found.weights)
    assert "90% interval" not in render(found)


# -- rivals ----------------------------------------------------------------------------------------------------------


def test_the_best_rival_is_compared_on_the_same_steps():
    model, run = fitted("sbts")
    figures, track = model.verdict(run.log).figures, model._fit.track
    known = np.flatnonzero(track.ahead.any(axis=1))
    half = known[len(known) // 2 :].tolist()
    own, rivals = [], {"choice model of the last episode": [], "choice model of all episodes before": []}
    for number in half:
        episode = run.log[number]
        own.append((episode.contexts @ track.ahead[number]).reshape(-1, 7).argmax(axis=1) == episode.chosen)
        for hits, first in zip(rivals.values(), (number - 1, 0), strict=True):
            rival = ibcb.ChoiceModel(episodes=None).fit(run.log[first:number])
            hits.append(rival.predict(episode) == episode.chosen)
    hit, guess = np.concatenate(own), np.concatenate(rivals[figures.rival])
    assert figures.predicted == pytest.approx(hit.mean())
    assert figures.rival_predicted == pytest.approx(guess.mean())
    assert figures.rival_predicted == pytest.approx(max(np.mean(np.concatenate(each)) for each in rivals.values()))
    assert (figures.model_only, figures.rival_only) == ((hit & ~guess).sum(), (guess & ~hit).sum())
    assert figures.chance == pytest.approx(1 / 7)
    assert figures.steps == 120 * len(half)


def test_item_shares_count_what_came_before():
    rng = np.random.default_rng(0)
    items = rng.normal(size=(6, 2))
    ids = np.argsort(rng.random((300, 6)), axis=1)[:, :3]
    chosen = np.where(rng.random(300) < 0.8, ids.argmin(axis=1), rng.integers(3, size=300))
    log = ibcb.BehaviorLog.from_episodes([(items[ids[s]], chosen[s]) for s in (slice(200), slice(200, 300))])
    shares = ItemShares()
    shares.learn(log[0])
    assert not shares.known
    assert shares.hits(log[1]) is None
    shares.end_episode()
    assert shares.known
    offered = np.bincount(ids[:200].ravel(), minlength=6)
    taken = np.bincount(ids[np.arange(200), chosen[:200]], minlength=6)
    best = (taken / (offered + 1))[ids[200:]].argmax(axis=1)
    np.testing.assert_array_equal(shares.hits(log[1]), best == chosen[200:])


def test_item_shares_give_up_where_candidates_do_not_come_back():
    shares = ItemShares()
    for episode in learner_log():
        shares.learn(episode)
        shares.end_episode()
    assert not shares.known


def test_a_sample_is_that_of_all_steps_however_they_arrive():
    (log,) = learner_log(episodes=1, steps=900)
    whole, pieces = Lessons(3000), Lessons(3000)
    whole.offer(log, (0, 0))
    for first in range(0, 900, 70):
        last = min(first + 70, 900)
        contexts, offsets, chosen = log.step_arrays(slice(first, last))
        pieces.offer(ibcb.BehaviorLog(contexts, offsets, chosen, [0, last - first]), (0, first))
    for name in ("contexts", "steps", "seen"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))
    assert len(whole.steps) == 3000 // 15
    assert len(whole.steps) < whole.seen
    assert choice_weights(Lessons()) is None
