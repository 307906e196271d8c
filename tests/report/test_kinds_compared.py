"""What is said of a decider's kind: how much it explores, what it was compared with, and nothing that it has not."""

import json
import math
import re

import numpy as np
import pytest
from commands import succeeds
from pages import compared as by_the_log
from pages import fitted

import ibcb
from ibcb.report import facts, render
from ibcb.report.sections import compared, exploration

KINDS = ("sbucb", "sbts", "egreedy", "softmax", "topk", "stationary", "other")


def words_of(page):
    """What a reader sees, without what is computed with."""
    return re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)


# -- exploration ---------------------------------------------------------------------------------------------------


def test_epsilon_is_said_with_its_interval():
    model, _ = fitted("egreedy")
    estimate, low, high = (each[-1] for each in model.exploration_interval(0.9))
    assert f"is {estimate:.1%} (90% interval {low:.1%} to {high:.1%})" in exploration(model)


def test_an_epsilon_that_falls_is_said_to_fall():
    run = ibcb.simulate(
        "synthetic", expert="egreedy", epsilon=0.6, decay=1.0, n_episodes=8, batch_size=300, n_features=4, seed=2
    )
    model = ibcb.IBCB(expert="egreedy").fit(run.log)
    estimate = model.exploration_interval().estimate
    assert f"falls: {estimate[0]:.1%} in the first episode, {estimate[-1]:.1%} right after the last" in exploration(
        model
    )


def test_a_temperature_is_said_as_how_much_oftener_the_better_is_drawn():
    model, _ = fitted("softmax")
    words = exploration(model)
    (times,) = re.findall(r"the better about ([\d,.]+) times as often", words)
    oftener = float(times.replace(",", ""))
    assert oftener == pytest.approx(math.exp(1 / model.temperature_), rel=0.05)
    for value in model.exploration_interval():
        assert f"{float(value[0]):.2g}" in words


@pytest.mark.parametrize("expert", ["sbucb", "sbts", "topk", "stationary", "other"])
def test_kinds_without_either_have_no_such_words(expert):
    assert exploration(fitted(expert)[0]) == ""


# -- evidence ------------------------------------------------------------------------------------------------------


def test_every_kind_is_compared_once_with_its_best_parameter():
    model, _ = by_the_log()
    rows = compared(model)
    tried = {(each.expert, each.draws or "") for each in model.evidence_}
    assert sorted((row.best.expert, row.best.draws or "") for row in rows) == sorted(tried)
    assert sum(row.tried for row in rows) == len(model.evidence_)
    for row in rows:
        alike = [each for each in model.evidence_ if (each.expert, each.draws) == (row.best.expert, row.best.draws)]
        furthest = [each for each in alike if not each.out_after] or [
            each for each in alike if each.out_after == max(other.out_after for other in alike)
        ]
        likeliest = max(furthest, key=lambda each: each.log_likelihood)
        assert row.best == next((each for each in alike if each.chosen), likeliest)
    running = [row.best.log_likelihood for row in rows if not row.best.out_after]
    assert running == sorted(running, reverse=True)
    assert not any(row.best.out_after for row in rows[: len(running)])
    assert [row.best.expert for row in rows if row.outcome == "chosen"] == [model.expert_] == ["egreedy"]


def test_where_the_kind_was_given_there_is_nothing_to_compare():
    model, _ = fitted("egreedy")
    assert compared(model) == ()
    assert 'id="kinds"' not in render(facts(model, fitted("egreedy")[1].log, steps=False))


def test_the_command_shows_both_and_has_all_of_it_as_json(tmp_path):
    model, log = by_the_log()
    ibcb.write_log(log, tmp_path / "log.parquet")
    fit = ("fit", tmp_path / "log.parquet", "-o", tmp_path / "model.safetensors", "--expert", "auto")
    shown = succeeds(*fit).stdout
    assert f"explores    {exploration(model)}" in shown
    for row in compared(model):
        figures = [re.escape(row.best.name), f"{row.tried}", f"{row.best.log_likelihood:.4f}"]
        assert re.search(rf"(?m)^{r' +'.join(figures)} .*{row.outcome}$", shown)
    assert all(len(line) <= 80 for line in shown.split("kind ")[1].split("\n\n")[0].splitlines())
    told = json.loads(succeeds(*fit, "--json").stdout)
    assert told["epsilon"] == model.epsilon_
    assert told["temperature"] is None
    for name, values in model.exploration_interval()._asdict().items():
        np.testing.assert_array_equal(told["exploration_interval"][name], values)
    assert told["evidence"] == [each._asdict() for each in model.evidence_]


def test_the_page_has_the_same_table():
    model, log = by_the_log()
    found = facts(model, log, steps=False)
    page = words_of(render(found))
    assert found.exploration == exploration(model)
    assert found.exploration in page
    (table,) = re.findall(r'<table class="evidence">.*?</table>', page, re.S)
    names = re.findall(r'<th scope="row">(.*?)</th>', table)
    assert names == [row.best.name for row in compared(model)]
    assert table.count("chosen</td>") == 1


# -- no words of other kinds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", KINDS)
def test_a_page_speaks_of_no_parameter_that_its_kind_has_not(expert):
    model, run = fitted(expert)
    found = facts(model, run.log)
    settings, page = dict(found.settings), words_of(render(found))
    assert ("alpha" in settings) == ("bonus" in page) == (expert == "sbucb")
    assert ("epsilon" in settings) == (expert == "egreedy")
    assert ("temperature" in settings) == (expert == "softmax")
    assert ("top_k" in settings) == (expert == "topk")
    assert ("l2" in settings) == model.decider_.learns
    assert "margin" not in settings


@pytest.mark.parametrize("expert", ["egreedy", "softmax"])
def test_that_choices_at_random_have_no_exact_explanation_is_no_warning(expert):
    (note,) = [note for note in fitted(expert)[0].notes_ if note.code == "no-exact-solution"]
    assert note.severity == "info"
