"""The pages of the documentation run, and do what they say."""

import importlib
import inspect
import json
import pydoc
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from commands import succeeds
from documents import ROOT, headings, python_blocks, run_page

import ibcb
from ibcb.deciders import KINDS
from ibcb.estimators.models import ModelFileError
from ibcb.numerics.ridge import Ridge
from ibcb.report import write_report

DOCS = ROOT / "docs"
HOWTO = DOCS / "howto"
ELSEWHERE = HOWTO / "use-elsewhere.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "your-log.md"
MABWISER_MISSING = "MABWiser cannot be imported: its recipe in use-elsewhere.md is NOT tested"
OBP_MISSING = "the Open Bandit Pipeline cannot be imported: its section of off-policy.md is NOT tested"
VOWPAL_WABBIT_MISSING = "Vowpal Wabbit cannot be imported: its recipe in use-elsewhere.md is NOT tested"


def upper_bounds(policy, rows):
    """<theta, s> + alpha sqrt(s' Psi^-1 s) of every row, by plain inversion."""
    psi_inverse = np.linalg.inv(policy.gram_ + policy.l2 * np.eye(policy.n_features))
    return rows @ policy.coef_ + policy.alpha * np.sqrt(np.einsum("ij,jk,ik->i", rows, psi_inverse, rows))


TEN_MINUTES = DOCS / "tutorial" / "ten-minutes.md"
AUDIT, VW_LOG, CLUSTER = HOWTO / "audit.md", HOWTO / "vw-log.md", HOWTO / "cluster.md"
PREDICT, ARMS, OFF_POLICY = HOWTO / "predict.md", HOWTO / "users-items-arms.md", HOWTO / "off-policy.md"
ADD_A_DECIDER = HOWTO / "add-a-decider.md"
HOME, METHOD = DOCS / "index.md", DOCS / "method.md"


def test_every_page_with_code_is_tested_here():
    """Generated pages and decisions have none."""
    howto = {ADD_A_DECIDER, ARMS, AUDIT, CLUSTER, ELSEWHERE, OFF_POLICY, PREDICT, VW_LOG}
    tested = {*howto, TUTORIAL, TEN_MINUTES, HOME, METHOD}
    assert {page for page in DOCS.glob("**/*.md") if python_blocks(page)} == tested


def commands_run(page):
    """Run the `ibcb` lines of a page; gives how many there are."""
    lines = re.findall(r"^    ibcb (.*)$", page.read_text(), re.M)
    for line in lines:
        succeeds(*shlex.split(line))
    return len(lines)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, and pictures that need no screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield tmp_path
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_ten_minutes_recover_what_they_say_and_the_commands_run(here, capsys):
    names = run_page(TEN_MINUTES)
    model, value = names["model"], names["value"]
    assert np.argsort(model.coef_).tolist() == np.argsort(value).tolist()
    assert np.corrcoef(model.coef_, value)[0, 1] > 0.99
    assert names["verdict"].predicted > 0.9
    assert "The log supports this model well." in capsys.readouterr().out
    assert (here / "evolution.png").exists()
    assert "delivery days" in (here / "report.html").read_text()
    assert commands_run(TEN_MINUTES) == 3


def test_the_audit_finds_the_episode_that_was_changed(here):
    names = run_page(AUDIT)
    named = {row.episode for entry in names["suspect"].diagnostics_ for row in entry.certificate or ()}
    assert 6 in named
    assert 'class="contradictions"' in (here / "audit.html").read_text()
    assert (here / "audit-to-share.html").stat().st_size < (here / "audit.html").stat().st_size
    ibcb.save_model(names["suspect"], "model.safetensors")
    ibcb.write_log(names["changed"], "log.parquet")
    assert commands_run(AUDIT) == 2


def test_predicting_tells_what_the_page_says_and_the_commands_run(here):
    names = run_page(PREDICT)
    agreement, model = names["agreement"], names["model"]
    # Nine of ten choices of the expert to come, and seven of ten by the policy of the fourth episode.
    assert 0.9 < agreement(model.forecast(17)) < 0.99
    assert 0.6 < agreement(model.forecast(0)) < 0.75
    inside = (names["interval"].lower <= names["truth"]) & (names["truth"] <= names["interval"].upper)
    assert inside.mean() >= 0.8
    # A part of it is enough for the commands.
    ibcb.write_log(names["run"].log.head(10 / 20), "log.parquet")
    ibcb.write_log(names["run"].test_log[:2], "candidates.parquet")
    assert commands_run(PREDICT) == 6
    chosen = {name: pacsv.read_csv(f"{name}.csv")["chosen"].to_numpy() for name in ("first", "predicted", "choices")}
    assert np.mean(chosen["choices"] == chosen["predicted"]) > np.mean(chosen["choices"] == chosen["first"])


def test_a_rule_of_ones_own_is_fitted_named_and_by_auto_stored_and_alive(here):
    try:
        names = run_page(ADD_A_DECIDER)
        model, auto, theta = names["model"], names["found"], names["theta"]
        for each in (model, auto):
            assert each.expert_ == "softucb"
            assert each.coef_ @ theta > 0.99 * np.linalg.norm(each.coef_) * np.linalg.norm(theta)
        assert model.alpha_ == pytest.approx(20, rel=0.25)
        recovered = names["recovered"].reshape(-1, 5)
        np.testing.assert_allclose(recovered.sum(axis=1), 1.0)
        assert names["apart"] < 0.03
        assert names["again"] < 0.05
        assert "softucb" in {candidate.expert for candidate in auto.evidence_}
        assert names["same"].decider_ == model.decider_
        assert "draws by the softmax of its upper confidence bounds" in Path("softucb.html").read_text()
        assert_a_past_is_known_everywhere(names["forgetful"], names["log"])
        # Without its rule the file says what is missing.
        del KINDS["softucb"]
        with pytest.raises(ModelFileError, match=r"'softucb'.*ibcb\.deciders\.register"):
            ibcb.load_model("softucb.safetensors")
    finally:
        KINDS.pop("softucb", None)
        KINDS.pop("forgetful", None)


def assert_a_past_is_known_everywhere(model, log):
    """In verdict, page, propensities, live policy and file; the Gram matrix is that of what is still known."""
    assert model.expert_ == "forgetful"
    assert {each.expert: each.log_likelihood for each in model.evidence_}["sbucb"] < -0.09
    assert model.verdict(log).level in ("good", "fair")
    write_report(model, log, "forgetful.html")
    assert "confidence bonus" in Path("forgetful.html").read_text()
    np.testing.assert_allclose(model.propensities(log).reshape(-1, 5).sum(axis=1), 1.0)
    known = log.contexts[log.chosen_rows[400:]]
    np.testing.assert_allclose(model.to_policy().gram_, known.T @ known)
    ibcb.save_model(model, "forgetful.safetensors")
    same = ibcb.load_model("forgetful.safetensors")
    np.testing.assert_array_equal(same.forecast(3), model.forecast(3))
    np.testing.assert_array_equal(same.propensities(log), model.propensities(log))


OBP_SECTION = "With the Open Bandit Pipeline"


def test_off_policy_values_are_those_the_page_shows_and_the_commands_run(here):
    names = run_page(OFF_POLICY, tuple(heading for heading in headings(OFF_POLICY) if heading != OBP_SECTION))
    value, recovered, logit = (names[name] for name in ("value", "propensities", "logit"))
    off, off_by_logit = (np.abs(np.array(names["values"](p)) - value) for p in (recovered, logit))
    assert off.max() < 0.05
    assert off_by_logit.min() > 5 * off.max()

    assert commands_run(OFF_POLICY) == 4
    feedback = dict(np.load("feedback.npz"))
    np.testing.assert_allclose(feedback["pscore"], names["feedback"]["pscore"], atol=1e-9)
    np.testing.assert_array_equal(feedback["action"], names["action"])
    labels = re.findall(r"^\d+:0:(\S+) ", (here / "labels.vw").read_text(), re.M)
    np.testing.assert_allclose(np.array(labels, dtype=float), feedback["pscore"], rtol=1e-4)


def test_obp_gives_the_values_of_the_page(here):
    pytest.importorskip("obp", reason=OBP_MISSING, exc_type=ImportError)
    run_page(OFF_POLICY)


def test_the_page_of_users_items_and_arms(here):
    names = run_page(ARMS)
    # The files that its commands are about, as the tables of the page.
    clinic, shop = names["clinic"], names["shop"]
    pacsv.write_csv(clinic, "clinic.csv")
    pacsv.write_csv(pa.table({"treatment": ["a", "b", "c"], "dose": [1, 2, 3]}), "treatments.csv")
    pacsv.write_csv(clinic.drop_columns(["treatment", "week"]), "patients.csv")
    hours = shop["request_id"].to_numpy() * np.timedelta64(600, "s")
    times = pa.array(np.datetime64("2024-03-01") + hours)
    pacsv.write_csv(shop.drop_columns(["day"]).append_column("timestamp", times), "shop.csv")
    assert commands_run(ARMS) == 5


@pytest.mark.filterwarnings("ignore:the (log seems to start|choices of the first episode)")
def test_a_vowpal_wabbit_log_is_read_as_the_page_says(here):
    names = run_page(VW_LOG)
    weights = dict(zip(names["log"].feature_names, names["model"].coef_, strict=True))
    price, stars, new = (next(w for name, w in weights.items() if part in name) for part in ("price", "stars", "new"))
    assert price > new > stars
    assert not any("age" in name for name in weights)
    assert commands_run(VW_LOG) == 3


def test_home_and_method_run(here):
    run_page(HOME)
    assert (here / "report.html").exists()
    run_page(METHOD)


def test_symbols_of_the_notation_table_exist():
    text = METHOD.read_text()
    known = {*vars(Ridge), *Ridge.__dataclass_fields__}
    symbols = re.findall(r"`ibcb\.numerics\.ridge\.Ridge\.(\w+)`", text)
    assert len(symbols) == 4
    assert set(symbols) <= known
    for parameter in re.findall(r"`IBCB\((\w+)=", text):
        assert parameter in inspect.signature(ibcb.IBCB).parameters


def test_the_cluster_page_runs(here):
    """As a program of its own: Dask's workers import it."""
    pytest.importorskip("distributed", reason="Dask cannot be imported: docs/howto/cluster.md is NOT tested")
    (block,) = python_blocks(CLUSTER)
    (here / "page.py").write_text(block)
    found = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0, found.stderr
    alone = ibcb.IBCB(expert="sbucb", l2=0.3).fit(ibcb.read_log("log.parquet"))
    shown = np.array([float(number) for number in found.stdout.strip(" []\n").split()])
    np.testing.assert_allclose(shown, alone.coef_, rtol=1e-5)
    options = succeeds("fit", "--help").stdout
    for line in re.findall(r"^    ibcb fit (.*)$", CLUSTER.read_text(), re.M):
        assert all(word in options for word in line.split() if word.startswith("-"))


def documented():
    """Objects that the reference shows, by their paths; members of a module unless they are left out."""
    found = []
    for page in (DOCS / "reference").glob("*.md"):
        for path, options in re.findall(r"^::: (\S+)\n((?: +.*\n)*)", page.read_text() + "\n", re.M):
            # A function may have the name of its module, and hide it.
            module, _, name = path.rpartition(".")
            value = pydoc.locate(path) or getattr(importlib.import_module(module), name)
            found.append(value)
            if inspect.ismodule(value) and "members: false" not in options:
                found += [getattr(value, name) for name in value.__all__]
    return found


def test_the_reference_has_every_public_name():
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    shown = documented()
    modules = {name: value for name in ibcb.__all__ if inspect.ismodule(value := getattr(ibcb, name))}
    public = {f"ibcb.{name}": getattr(ibcb, name) for name in ibcb.__all__ if name not in modules}
    for module, value in modules.items():
        public |= {f"ibcb.{module}.{name}": getattr(value, name) for name in value.__all__}
    missing = [path for path, value in public.items() if not any(value is each for each in shown)]
    # Plain values have no docstring; the text speaks of them.
    assert [path for path in missing if f"`{path}`" not in text] == []


def test_the_tutorial_recovers_what_it_says_and_its_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page(TUTORIAL)
    shown = capsys.readouterr().out
    beginning = (tmp_path / "shop.csv").read_text().splitlines()[:3]
    text = TUTORIAL.read_text()
    assert all(f"    {line}\n" in text for line in beginning)

    assert names["updates"].edges.tolist() == names["log"].episode_offsets[:-1].tolist()

    weights = dict(zip(names["log"].feature_names, names["model"].coef_, strict=True))
    assert weights["price"] < 0 < weights["stars"]
    order = sorted(names["genres"], key=lambda genre: -weights[f"genre={genre}"])
    assert (order[0], order[-1]) == ("comedy", "nature")
    truth = names["value"] - names["value"].mean()
    recovered = names["features"] @ names["model"].coef_
    assert np.corrcoef(truth, recovered)[0, 1] > 0.98
    assert names["verdict"].predicted > 0.95
    assert "warning, reward-like-columns: left out: 'clicked' (the name suggests an outcome)" in shown
    assert "genre" in shown

    pacsv.write_csv(names["tomorrow"], "tomorrow.csv")
    assert commands_run(TUTORIAL) == 4
    choices = pacsv.read_csv("choices.csv")
    assert choices["step_id"].to_pylist() == ["n1", "n2"]
    assert choices["chosen"].to_pylist() == names["again"].predict(names["candidates"]).tolist()


def test_a_page_that_shows_what_its_code_does_not_print_is_caught(tmp_path):
    page = tmp_path / "page.md"
    block = "```python\nprint('share', 0.5)\n```\n"
    for output in ("share 0.5", "share   0.501"):
        page.write_text(f"{block}\n```text\n{output}\n```\n")
        run_page(page)
    for output in ("share 0.6", "part 0.5", "share 0.5 0.5"):
        page.write_text(f"{block}\n```text\n{output}\n```\n")
        with pytest.raises(AssertionError):
            run_page(page)
    page.write_text(block)
    with pytest.raises(AssertionError, match="Run docs/outputs.py"):
        run_page(page)


def test_sections_of_a_page_can_be_run_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\na = 1\n```\n## One\n```python\nb = a\n```\n## Two\n```sh\nls\n```\n```python\n1 / 0\n```\n"
    )
    assert len(python_blocks(page)) == 3
    assert run_page(page, ("One",))["b"] == 1
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(page)
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == (str(page), 13)
    with pytest.raises(AssertionError, match="no section"):
        run_page(page, ("Three",))


def test_the_unit_of_the_rewards_is_found_from_a_few_of_them():
    names = run_page(ELSEWHERE, ("Here",))
    run, policy, model = names["run"], names["policy"], names["model"]
    raw, scaled, true = (np.linalg.norm(each) for each in (model.next_policy_coef_, policy.coef_, run.expert.coef_))
    assert abs(np.log(scaled / true)) < 0.2
    # alpha is told: so is the unit.
    assert abs(np.log(raw / true)) < 0.2
    candidates = run.test_log.contexts.reshape(-1, 10, 10)
    assert np.mean(policy.act(candidates) == run.expert.act(candidates)) > 0.98


def test_mabwiser_takes_over_scores_and_goes_on_the_same():
    pytest.importorskip("mabwiser", reason=MABWISER_MISSING, exc_type=ImportError)
    names = run_page(ELSEWHERE, ("MABWiser",))
    mab, policy, rows = names["mab"], names["policy"], names["run"].test_log.contexts[:500]
    policy.update(names["candidates"][[names["chosen"]]], [0.7])

    def theirs():
        return [each["take"] for each in mab.predict_expectations(rows)]

    np.testing.assert_allclose(theirs(), upper_bounds(policy, rows), rtol=1e-9, atol=1e-12)
    rng = np.random.default_rng(0)
    S, R = rng.normal(size=(60, 10)), rng.normal(size=60)
    mab.partial_fit(["take"] * 60, R, S)
    policy.update(S, R)
    np.testing.assert_allclose(theirs(), upper_bounds(policy, rows), rtol=1e-9, atol=1e-12)


def test_vowpal_wabbit_ranks_as_predict_does():
    vowpalwabbit = pytest.importorskip("vowpalwabbit", reason=VOWPAL_WABBIT_MISSING, exc_type=ImportError)
    names = run_page(ELSEWHERE, ("Vowpal Wabbit",))
    model, example, run = names["model"], names["example"], names["run"]
    weights = dict(enumerate(-model.next_policy_coef_))
    sets = run.test_log.contexts.reshape(-1, 10, 10)

    def started(options):
        vw = vowpalwabbit.Workspace(f"{options} --noconstant --quiet")
        for i, weight in weights.items():
            vw.set_weight(vw.hash_feature(f"x{i}", vw.hash_space("candidate")), 0, weight)
        return vw

    costs = started("--cb_adf")
    for candidates in sets[:300]:
        # Vowpal Wabbit computes in single precision.
        np.testing.assert_allclose(costs.predict(example(candidates)), -model.decision_function(candidates), atol=1e-5)
    policy = started("--cb_explore_adf --epsilon 0.1")
    picks = [int(np.argmax(policy.predict(example(candidates)))) for candidates in sets[:300]]
    assert np.mean(picks == model.predict(sets[:300])) > 0.99
    before = [policy.get_weight(policy.hash_feature(f"x{i}", policy.hash_space("candidate"))) for i in weights]
    np.testing.assert_allclose(before, list(weights.values()), rtol=1e-6)


def test_vowpal_wabbit_learns_on_from_there(tmp_path):
    """Where rewards are linear: better than it began, better on the way than one that starts with nothing."""
    vowpalwabbit = pytest.importorskip("vowpalwabbit", reason=VOWPAL_WABBIT_MISSING, exc_type=ImportError)
    example = run_page(ELSEWHERE, ("Vowpal Wabbit",))["example"]
    rng = np.random.default_rng(0)
    theta = rng.normal(size=4)
    start = theta + 0.5 * rng.normal(size=4)
    sets = rng.normal(size=(400, 6, 4))

    def regret(vw):
        scores = sets[:200] @ theta
        picks = [int(np.argmax(vw.predict(example(candidates)))) for candidates in sets[:200]]
        return float(np.mean(scores.max(axis=1) - scores[np.arange(200), picks]))

    def life(weights):
        """Regret before learning and after every ten steps, and the workspace."""
        vw = vowpalwabbit.Workspace("--cb_explore_adf --epsilon 0.1 --noconstant --quiet")
        for i, weight in enumerate(weights):
            vw.set_weight(vw.hash_feature(f"x{i}", vw.hash_space("candidate")), 0, -weight)
        luck, path = np.random.default_rng(1), [regret(vw)]
        for number, candidates in enumerate(sets[200:], start=1):
            p = np.array(vw.predict(example(candidates)))
            chosen = int(luck.choice(6, p=p / p.sum()))
            vw.learn(example(candidates, chosen, candidates[chosen] @ theta + 0.1 * luck.normal(), p[chosen]))
            if number % 10 == 0:
                path.append(regret(vw))
        return path, vw

    warm, vw = life(start)
    cold, _ = life(np.zeros(4))
    assert warm[-1] < warm[0]
    assert np.mean(warm) < 0.5 * np.mean(cold)
    vw.save(str(tmp_path / "policy.vw"))
    again = vowpalwabbit.Workspace(f"-i {tmp_path / 'policy.vw'} --quiet")
    for candidates in sets[:50]:
        assert again.predict(example(candidates)) == vw.predict(example(candidates))


def test_the_performance_page_and_the_readme_are_made_from_the_records(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from performance_page import headline, text

    records = [json.loads(line) for line in (ROOT / "docs" / "performance.jsonl").read_text().splitlines()]
    assert (ROOT / "docs" / "performance.md").read_text() == text(records)
    assert headline(records) in (ROOT / "README.md").read_text()


@pytest.fixture
def open_bandit(monkeypatch):
    """The program that makes docs/cases/open-bandit.md."""
    monkeypatch.syspath_prepend(str(DOCS))
    import open_bandit

    return open_bandit


def test_the_open_bandit_page_is_made_from_the_records(open_bandit):
    records = [json.loads(line) for line in open_bandit.RECORDS.read_text().splitlines()]
    assert open_bandit.PAGE.read_text() == open_bandit.text(records)
    assert (DOCS / "images" / "open-bandit.svg").exists()


def impressions(folder, rows=600, seed=5):
    """Made up, in the layout of the Open Bandit Dataset: three items, of which another wins after a day."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    (folder / "item_context.csv").write_text(",item_id,item_feature_0\n0,0,0.1\n1,1,0.2\n2,2,0.4\n")
    times = np.sort(rng.integers(3, size=rows) * 86400 + rng.integers(12 * 3600, 14 * 3600, size=rows))
    chances = np.where(times[:, None] < 86400, [0.7, 0.2, 0.1], [0.1, 0.2, 0.7])
    shown = np.array([rng.choice(3, p=each) for each in chances])
    pacsv.write_csv(pa.table({
        "timestamp": (np.datetime64("2019-11-24T00:00:00", "us") + times * np.timedelta64(1, "s")),
        "item_id": shown,
        "position": rng.integers(1, 4, size=rows),
        "click": rng.integers(2, size=rows),
        "propensity_score": chances[np.arange(rows), shown],
    }), folder / f"{folder.name}.csv")  # fmt: skip
    return times / 3600, chances, shown


def test_the_open_bandit_figures_are_those_of_the_log_and_the_commands_run(here, open_bandit):
    hours, chances, shown = impressions(here / "obd" / "bts" / "men")
    found = list(open_bandit.figures(here / "obd" / "bts" / "men"))
    late = hours >= 48
    (fit,) = (each for each in found if each["what"] == "fit" and each["cut"] == "30 minutes")
    likelihood = fit["likelihood"]
    assert fit["late"] == late.sum()
    np.testing.assert_allclose(likelihood["uniform"], -np.log(3))
    np.testing.assert_allclose(likelihood["logged"], np.log(chances[np.arange(len(shown)), shown])[late].mean())
    shares = np.bincount(shown) / len(shown)
    np.testing.assert_allclose(likelihood["logit, whole log"], np.log(shares)[shown][late].mean(), atol=1e-3)
    assert likelihood["logit, whole log"] < likelihood["one episode ahead"] < likelihood["logged"] + 0.02

    (change,) = (each for each in found if each["what"] == "change")
    assert (change["gains"][0], change["loses"][0]) == (2, 0)
    at = (np.datetime64(change["time"]) - np.datetime64("2019-11-24")) / np.timedelta64(1, "h")
    assert abs((hours < at).sum() - (hours < 24).sum()) < 0.05 * len(hours)
    of_day = {each["item"]: each["days"] for each in found if each["what"] == "item"}
    assert of_day[2][-1] > 0.5 > of_day[2][0]
    assert next(each for each in found if each["what"] == "kept")["0 to 1"] == 1

    found = json.loads(json.dumps([open_bandit._rounded(each) for each in found]))
    assert f"{len(shown)} choices among 3 items" in open_bandit.text(found)
    open_bandit.picture(found, here / "picture.svg")
    assert commands_run(open_bandit.PAGE) == 4


def test_fading_counts_are_weighted_shares_of_what_was_known(open_bandit):
    chosen, hours, known = np.array([0, 1, 1, 0, 2]), np.array([0.0, 1, 2, 4, 5]), np.array([0, 0, 2, 2, 4])
    got = open_bandit.fading(chosen, hours, known, items=3, half_life=2.0, even=3.0)
    first = {0: 0, 1: 0, 2: 2, 3: 2, 4: 4}  # the episode of each choice begins here, when its counts are taken
    for step, start in first.items():
        counts = np.ones(3)
        for before in range(start):
            counts[chosen[before]] += 2 ** (-(hours[start] - hours[before]) / 2)
        np.testing.assert_allclose(np.exp(got[step]), counts[chosen[step]] / counts.sum())
