"""The report's figures against independent recomputation, and the page against hostile text."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from commands import ibcb_command
from pages import HOSTILE, fitted, hostile, plain, shared

import ibcb
from ibcb.estimators.models import read_model_file, write_model_file
from ibcb.io.parquet import write_steps
from ibcb.log.steps import Steps
from ibcb.report import facts, render, write_report
from ibcb.report.rendering import json_for_script

EXPERTS = ("sbucb", "sbts")


def page_data(text):
    (content,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(content)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    model, run = fitted()
    ibcb.save_model(model, folder / "model.safetensors")
    ibcb.write_log(run.log, folder / "log.parquet")
    return folder


# -- figures -------------------------------------------------------------------------------------------------------


def plain_scores(model, log, policies):
    """Per policy episode: expected <p, s> and width H of every candidate, by inversion of Psi."""
    d, phi = log.n_features, np.zeros((log.n_features, log.n_features))
    found, number = [], 0
    for by_policy, episode in log.episodes():
        X = episode.contexts.reshape(episode.n_steps, -1, d)
        if by_policy:
            inverse = np.linalg.inv(phi + model.l2 * np.eye(d))
            found.append((episode, X @ policies[number], np.sqrt(np.einsum("bmi,ij,bmj->bm", X, inverse, X))))
            number += 1
        S = episode.contexts[episode.chosen_rows]
        phi += S.T @ S
    return found


@pytest.mark.parametrize("expert", EXPERTS)
def test_predicted_choices_are_those_of_the_policy_that_the_tracker_predicted(expert):
    model, run = fitted(expert)
    track = model._fit.track
    found = facts(model, run.log, steps=False).episodes
    for entry, (episode, expected, width) in zip(found, plain_scores(model, run.log, track.ahead), strict=True):
        picks = (expected + width if expert == "sbucb" else expected).argmax(axis=1)
        # Of the first episode of this log, which has a warm-up, nothing can be predicted.
        assert entry.predicted == (None if entry.number == 0 else pytest.approx(np.mean(picks == episode.chosen)))


def test_without_a_tracker_predicted_choices_are_those_that_the_fit_counted():
    """The policy that the episodes before lead to is found again from the stored policies alone."""
    model, log = plain()
    shown = [entry.predicted for entry in facts(model, log, steps=False).episodes]
    assert shown == [entry.next_agreement for entry in model.diagnostics_]


def test_the_choice_model_learned_from_the_episode_before():
    model, run = fitted()
    entries = facts(model, run.log).episodes
    assert entries[0].rival is None
    for number in range(1, len(entries)):
        rival = ibcb.ChoiceModel(episodes=1).fit(run.log[number - 1])
        # Up to its small ridge, which has units.
        assert entries[number].rival == pytest.approx(rival.score(run.log[number]), abs=0.02)
        assert entries[number].chance == pytest.approx(1 / 7)


@pytest.mark.parametrize("expert", EXPERTS)
def test_weights_do_not_depend_on_what_cannot_be_told(expert):
    _, run = fitted(expert)
    models = (ibcb.IBCB(expert=expert, l2=0.3, alpha=alpha).fit(run.log) for alpha in (1.0, 2.5))
    one, other = (facts(model, run.log, steps=False) for model in models)
    np.testing.assert_allclose([w.policy for w in one.weights], [w.policy for w in other.weights], rtol=1e-6)
    np.testing.assert_allclose(one.evolution, other.evolution, rtol=1e-6, atol=1e-12)


def test_sampled_steps_carry_their_scores_and_contexts():
    model, run = fitted()
    plain = plain_scores(model, run.log, model.policy_coefs_)
    for sampled in facts(model, run.log).sample:
        episode, expected, width = plain[sampled.number]
        for step in sampled.steps:
            X = episode.candidates(step.step)
            np.testing.assert_allclose(step.expected, expected[step.step][step.candidates], rtol=1e-4, atol=1e-9)
            np.testing.assert_allclose(step.width, width[step.step][step.candidates], rtol=1e-4)
            np.testing.assert_allclose(step.values, X[step.candidates], rtol=1e-3)
            assert step.chosen == episode.chosen[step.step]
            total = (expected + width)[step.step]
            # An exact solution lies where a choice just ties with another candidate: the tie is the chosen one's.
            assert total[step.picked] >= total.max() - 1e-8
            if total[step.chosen] >= total.max() - 1e-10:
                assert step.picked == step.chosen


@pytest.mark.parametrize("expert", EXPERTS)
def test_intervals_and_forecast_are_the_model_s_exploration_and_regret_those_of_explain(expert):
    model, run = fitted(expert)
    found, interval = facts(model, run.log, steps=False), model.policy_interval(0.9, direction=True)
    for shown, told in zip(found.episodes, ibcb.explain(model, run.log).episodes, strict=True):
        assert shown.explored == pytest.approx(told.explored, abs=1e-12)
        assert shown.regret == pytest.approx(told.regret_share, rel=1e-9)
    assert found.level == 0.9
    for weight in found.weights:
        column = int(weight.name.split()[-1])
        shown = [weight.low, weight.last, weight.high]
        expected = [interval.lower[column], interval.estimate[column], interval.upper[column]]
        np.testing.assert_allclose(shown, expected, rtol=1e-8)
    order = [int(found.weights[line].name.split()[-1]) for line in found.lines]
    for updates, row in enumerate(found.forecast, start=1):
        np.testing.assert_allclose(row, model.direction(model.forecast(updates))[order], rtol=1e-8)
    assert len(found.forecast) == 5
    page = render(found)
    assert page.count('class="whisker"') == 4
    assert "90% interval" in page


def test_without_prediction_there_are_no_intervals_and_one_update():
    model, log = plain()
    found = facts(model, log, steps=False)
    assert 'class="whisker"' not in render(found)
    assert all(weight.low is None and weight.told for weight in found.weights)
    ((*row,),) = found.forecast
    order = [int(found.weights[line].name.split()[-1]) for line in found.lines]
    np.testing.assert_allclose(row, model.direction(model.next_policy_coef_)[order], rtol=1e-8)


def test_weights_that_no_choice_tells_are_marked_and_have_no_interval():
    model, log = shared()
    assert model.unidentified_features_ == ("<b>age</b> of the user", "always 0")
    found = facts(model, log, steps=False)
    assert {weight.name for weight in found.weights if not weight.told} == set(model.unidentified_features_)
    assert all((weight.low is None) == (not weight.told) for weight in found.weights)
    page = render(found)
    assert page.count('class="undetermined"') == 2
    assert any("do not determine the weights of features" in note for note in found.notes)
    assert "<b>age" not in page


# -- words ----------------------------------------------------------------------------------------------------------


def test_contradicting_steps_are_named_and_always_in_the_sample():
    model, log = hostile(changed=True)
    found = facts(model, log)
    assert found.contradictions
    sampled = {(episode.number, step.step) for episode in found.sample for step in episode.steps if step.contradicts}
    assert sampled == {(row.episode, row.step) for row in found.contradictions}
    assert any("contradict each other" in reason for reason in found.verdict.reasons)
    assert 'class="contradictions"' in render(found)
    assert 'class="contradictions"' not in render(facts(*hostile()))


# -- the page ------------------------------------------------------------------------------------------------------


def test_hostile_names_and_ids_are_text():
    text = render(facts(*hostile(), title='<i onload="x">'))
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "<b>id" not in text
    assert "<i onload" not in text
    assert "49 $" not in text
    assert len(re.findall(r"<script\b", text)) == len(re.findall(r"</script>", text)) == 2
    data = page_data(text)
    assert data["columns"] == list(HOSTILE)
    assert data["sample"][0]["steps"][0][1].startswith("<b>id 0:")


class Elements(HTMLParser):
    """Elements of a page with the names of their attributes, and what stands in its scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.scripts, self._inside = set(), [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.add((tag, *sorted(name for name, _ in attrs)))
        self._inside = tag == "script" and dict(attrs).get("type") is None
        if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.scripts.append(data)


def test_hostile_notes_and_metadata_of_a_model_add_no_element(tmp_path):
    """Whatever text a model file holds, the page has the elements that it has anyway, and runs its own script alone."""
    model, log = hostile(changed=True)
    path, attack = tmp_path / "model.safetensors", " ".join(HOSTILE)
    ibcb.save_model(model, path)
    arrays, meta = read_model_file(path)
    fit = meta["state"]["fit"]
    for place in ("solving", "choosing", "tracking"):
        for severity in ("info", "warning"):
            fit[place].append({"code": attack, "severity": severity, "text": attack, "figures": {attack: attack}})
    for entry in fit["evolution"]["diagnostics"]:
        entry["status"] = attack
    for entry in fit["evidence"]:
        entry["units"] = attack
    write_model_file(path, arrays, meta)
    hostile_page = render(facts(ibcb.load_model(path), log, title=attack))
    plain_page, page = (Elements(text) for text in (render(facts(model, log)), hostile_page))
    assert page.found == plain_page.found
    assert page.policy == plain_page.policy
    assert not [names for _, *names in page.found if any(name.startswith("on") for name in names)]
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy
    assert "default-src 'none'" in page.policy


def test_text_that_is_no_unicode_is_written_all_the_same(tmp_path):
    _, run = fitted()
    parts = (run.log.contexts, run.log.step_offsets, run.log.chosen, run.log.episode_offsets)
    log = ibcb.BehaviorLog(*parts, warmup=run.log.warmup, feature_names=["\ud800", "b", "c", "d"])
    write_report(ibcb.IBCB(l2=0.3).fit(log), log, tmp_path / "page.html", title="\udfff")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_in_a_script_cannot_end_it():
    value = ["</script>", "<!--", "\u2028", "&", "\ud800", {"<": ">"}]
    text = json_for_script(value)
    assert not set("<>&\u2028\u2029") & set(text)
    text.encode()
    assert json.loads(text)[:4] == value[:4]
    with pytest.raises(ValueError):
        json_for_script(float("nan"))


def test_the_same_model_and_log_give_the_same_bytes(tmp_path):
    model, run = fitted("sbts")
    write_report(model, run.log, tmp_path / "a.html")
    write_report(model, run.log, tmp_path / "b.html")
    ibcb.save_model(model, tmp_path / "m.safetensors")
    write_report(ibcb.load_model(tmp_path / "m.safetensors"), run.log, tmp_path / "c.html")
    a, b, c = ((tmp_path / f"{name}.html").read_bytes() for name in "abc")
    assert a == b == c


def test_the_page_refers_to_nothing_outside():
    text = render(facts(*fitted_pair()))
    outside = re.findall(r"""(?:src|href)\s*=\s*["'](?!#)([^"']*)""", text)
    assert outside == []
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp|https?://(?!www\.w3\.org)", text)


def fitted_pair(expert="sbucb"):
    model, run = fitted(expert)
    return model, run.log


def test_without_steps_no_context_and_no_id_leaves():
    model, log = hostile(changed=True)
    text = render(facts(model, log, steps=False))
    assert page_data(text)["sample"] is None
    assert "id 0:" not in text
    assert f"{log.contexts[0, 0]:.4g}" not in text
    assert "written without steps" in text


@pytest.mark.slow
def test_the_paper_s_size_fits_in_four_megabytes_and_says_that_it_is_sampled(tmp_path):
    run = ibcb.simulate("synthetic", expert="sbucb", noise=0.03, seed=0)
    found = write_report(ibcb.IBCB(l2=0.3).fit(run.log), run.log, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 4_000_000
    kept = sum(len(episode.steps) for episode in found.sample)
    assert any(f"{kept:,} of 20,000 steps" in note for note in found.notes)
    # What was not predicted is rare, and worth more room than its share.
    odd = sum(step.predicted not in (None, step.chosen) for episode in found.sample for step in episode.steps)
    assert odd / kept > 1.5 * sum((1 - (e.predicted or 1)) * e.steps for e in found.episodes) / 20_000


def test_many_features_and_candidates_are_cut_to_what_matters():
    rng = np.random.default_rng(0)
    theta = np.r_[3.0, -2.0, np.zeros(200)]
    expert, pairs = ibcb.SBUCB(202, alpha=0.01, l2=1.0), []
    for _ in range(2):
        X = rng.normal(size=(20, 44, 202))
        chosen = expert.act(X)
        S = X[np.arange(20), chosen]
        expert.update(S, S @ theta)
        pairs.append((X, chosen))
    log = ibcb.BehaviorLog.from_episodes(pairs)
    found = facts(ibcb.IBCB(l2=1.0).fit(log), log)
    assert len(found.weights) == 200
    assert len(found.lines) == 40
    assert any("200 of 202 weights" in note for note in found.notes)
    for episode in found.sample:
        assert len(episode.features) == 24
        for step in episode.steps:
            assert len(step.candidates) <= 42
            assert {step.chosen, step.picked} <= set(step.candidates)
            assert step.n_candidates == 44
    assert len(render(found)) < 6_000_000


# -- samples and streams -------------------------------------------------------------------------------------------


def test_a_log_on_disk_says_what_the_log_in_memory_says(tmp_path, monkeypatch):
    model, run = fitted()
    ibcb.write_log(run.log, tmp_path / "log.parquet")
    monkeypatch.setattr("ibcb.io.parquet._STREAM_NUMBERS", 1000)
    disk = ibcb.open_log(tmp_path / "log.parquet")
    assert len(list(disk.parts())) > 10
    there, here = facts(model, disk), facts(model, run.log)
    assert there.log_name == "log.parquet"
    names = ("number", "explored", "agreed", "predicted")
    for one, other in zip(there.episodes, here.episodes, strict=True):
        assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    assert [[s.step for s in e.steps] for e in there.sample] == [[s.step for s in e.steps] for e in here.sample]
    assert there.notes == here.notes


@pytest.mark.slow
def test_ten_million_rows_on_disk_take_less_than_a_gibibyte(tmp_path):
    """Written, fitted and reported part by part, the report in a process of its own whose memory is measured."""
    rng, d, B, M = np.random.default_rng(0), 6, 10_000, 10
    theta, expert = rng.normal(size=d), ibcb.SBUCB(d, alpha=0.4, l2=0.3)

    def parts():
        for number in range(20):
            chosen_contexts, rewards = [], []
            for piece in range(5):
                X = rng.normal(size=(B, M, d))
                chosen = expert.act(X)
                S = X[np.arange(B), chosen]
                chosen_contexts.append(S)
                rewards.append(S @ theta + 0.1 * rng.normal(size=B))
                steps = Steps(X.reshape(-1, d), np.full(B, M), chosen)
                yield number, ibcb.BehaviorLog.part(steps, (number, piece * B))
            expert.update(np.concatenate(chosen_contexts), np.concatenate(rewards))

    write_steps(parts(), tmp_path / "log.parquet")
    ibcb.save_model(ibcb.IBCB(l2=0.3).fit(ibcb.open_log(tmp_path / "log.parquet")), tmp_path / "model.safetensors")
    code = (
        "import resource, sys; from ibcb.cli import app; app(['report', *sys.argv[1:]], standalone_mode=False); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    given = [tmp_path / "model.safetensors", "--log", tmp_path / "log.parquet", "-o", tmp_path / "page.html"]
    found = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=True)
    assert int(found.stdout.split()[-1]) < 2**30
    assert (tmp_path / "page.html").stat().st_size < 4_000_000


# -- what cannot be reported ---------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_the_fitted_one_is_refused():
    model, run = fitted()
    with pytest.raises(ValueError, match="5 episodes but the model was fitted to 6"):
        facts(model, run.log[:5])
    longer = ibcb.IBCB(l2=0.3).fit(run.log[:4])
    with pytest.raises(ValueError, match="episode 4 but the model was fitted to episodes 0 to 3"):
        facts(longer, run.log)
    other = ibcb.simulate(n_episodes=6, batch_size=100, n_candidates=7, n_features=4, warmup=200, seed=0).log
    with pytest.raises(ValueError, match="has 100 steps but that of the fitted log had 120"):
        facts(model, other)
    with pytest.raises(ValueError, match="3 features but IBCB was fitted on 4"):
        facts(model, ibcb.simulate(n_episodes=6, batch_size=9, n_features=3, seed=0).log)
    with pytest.raises(TypeError, match="ChoiceModel does not recover"):
        facts(ibcb.ChoiceModel().fit(run.log), run.log)
    with pytest.raises(TypeError, match="expected a BehaviorLog"):
        facts(model, "log.parquet")
    with pytest.raises(ValueError, match="not fitted"):
        facts(ibcb.IBCB(), run.log)


def test_a_log_of_the_same_size_with_another_fingerprint_gives_a_note():
    model, run = fitted()
    options = {"n_episodes": 6, "batch_size": 120, "n_candidates": 7, "n_features": 4, "warmup": 200}
    other = ibcb.simulate(seed=7, **options).log
    note = facts(model, other).notes[0]
    assert "not the same" in note
    assert model.log_fingerprint_ in note
    assert not any("fingerprint" in note for note in facts(model, run.log).notes)


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page(files):
    out = files / "deep" / "report.html"
    result = ibcb_command("report", files / "model.safetensors", "--log", files / "log.parquet", "-o", out)
    assert result.exit_code == 0, result.output
    assert ": The log supports" in result.stdout
    assert "What log.parquet gives away" in out.read_text()
    shared = files / "shared.html"
    options = ["-o", shared, "--no-steps", "--title", "For <you>", "--json"]
    result = ibcb_command("report", files / "model.safetensors", "--log", files / "log.parquet", *options)
    said = json.loads(result.stdout)
    assert said["bytes"] == shared.stat().st_size < 200_000
    assert said["verdict"]["level"] in ("good", "fair")
    model, run = fitted()
    expected = facts(model, run.log, steps=False, title="For <you>").to_json()
    assert said["facts"] == json.loads(json.dumps(expected)) | {"log_name": "log.parquet"}
    assert "For &lt;you&gt;" in shared.read_text()
