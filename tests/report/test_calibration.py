"""Recovered propensities beside logged ones, recomputed from the arrays; on the page and on the command line."""

import json
import re

import numpy as np
import pytest
from commands import ibcb_command, succeeds
from pages import fitted, logged, stand_in

import ibcb
from ibcb.report import calibration, facts, render
from ibcb.report.page import _curve


@pytest.fixture(autouse=True)
def _recovered(monkeypatch):
    monkeypatch.setattr(ibcb.IBCB, "propensities", stand_in, raising=False)


def by_step(log, values):
    """Rows of the policy's steps, one step after the other."""
    first = int(log.step_offsets[log.policy_steps.start])
    return values[first:].reshape(-1, log.candidates_per_step)


@pytest.mark.parametrize("every", [True, False])
def test_likelihoods_are_those_of_the_choices_of_the_policy(every):
    model, log = logged(every=every)
    found = calibration(model, log)
    chosen = log.chosen[log.policy_steps]
    expected = {"recovered": stand_in(model, log), "ahead": stand_in(model, log, ahead=True)}
    expected |= {"logged": log.propensities, "uniform": np.full(log.n_rows, 1 / 7)}
    for name, values in expected.items():
        per_choice = np.log(by_step(log, values)[np.arange(len(chosen)), chosen])
        assert getattr(found, name) == pytest.approx(per_choice.mean()), name
        for entry in found.episodes:
            assert getattr(entry, name) == pytest.approx(per_choice.reshape(len(log), -1)[entry.number].mean())
    assert found.steps == len(chosen)
    assert [(entry.number, entry.steps) for entry in found.episodes] == [(n, 120) for n in range(6)]
    assert found.told(found.logged) == pytest.approx(1)
    assert found.told(found.uniform) == pytest.approx(0)


def test_total_variation_is_of_steps_whose_propensities_are_complete():
    model, log = logged()
    p, q, r = (by_step(log, v) for v in (log.propensities, stand_in(model, log), stand_in(model, log, ahead=True)))
    found = calibration(model, log)
    assert found.complete == len(p)
    assert found.total_variation == pytest.approx(np.abs(p - q).sum(axis=1).mean() / 2)
    assert found.total_variation_ahead == pytest.approx(np.abs(p - r).sum(axis=1).mean() / 2)
    some = log.propensities.copy()
    some[-7:] *= 0.5
    some[-14:-7] = np.nan
    found = calibration(model, log.with_propensities(some))
    assert found.complete == len(p) - 2
    assert found.total_variation == pytest.approx(np.abs(p - q)[:-2].sum(axis=1).mean() / 2)
    assert found.steps == len(p) - 1
    chosen = calibration(*logged(every=False))
    assert (chosen.complete, chosen.total_variation, chosen.total_variation_ahead) == (0, None, None)


def test_the_curve_goes_through_means_of_like_candidates():
    model, log = logged()
    p, q = (by_step(log, values).ravel() for values in (log.propensities, stand_in(model, log)))
    found = calibration(model, log)
    assert sum(each.candidates for each in found.curve) == len(p)
    assert max(each.candidates for each in found.curve) <= 1.1 * len(p) / 10
    edges = np.cumsum([each.candidates for each in found.curve])[:-1]
    for each, some in zip(found.curve, np.split(np.argsort(q, kind="stable"), edges), strict=True):
        assert (each.recovered, each.logged) == (pytest.approx(q[some].mean()), pytest.approx(p[some].mean()))
    # What is perfectly calibrated lies on the diagonal, and what is equal is in one bin.
    own = calibration(model, log.with_propensities(stand_in(model, log)))
    assert all(each.recovered == pytest.approx(each.logged) for each in own.curve)
    assert own.total_variation == 0
    assert own.recovered == own.logged


def test_what_is_equal_is_one_bin(monkeypatch):
    monkeypatch.setattr(ibcb.IBCB, "propensities", lambda self, log, ahead=False: np.full(log.n_rows, 1 / 7))
    model, log = logged()
    (only,) = calibration(model, log).curve
    assert (only.candidates, only.recovered) == (720 * 7, pytest.approx(1 / 7))


def test_there_is_none_without_logged_propensities_of_the_policy():
    model, log = logged()
    assert calibration(model, log.with_propensities(None)) is None
    assert facts(model, log.with_propensities(None), steps=False).calibration is None
    warmup = np.where(np.arange(log.n_rows) < log.step_offsets[log.policy_steps.start], log.propensities, np.nan)
    assert calibration(model, log.with_propensities(warmup)) is None
    _, run = fitted("sbts")
    plain = ibcb.IBCB(expert="sbts", l2=0.3, forecast=None).fit(run.log)
    assert facts(plain, log, steps=False).calibration is None


def test_a_log_on_disk_gives_the_same(tmp_path):
    model, log = logged()
    ibcb.write_log(log, tmp_path / "log.parquet")
    assert calibration(model, ibcb.open_log(tmp_path / "log.parquet")).to_json() == calibration(model, log).to_json()


def test_an_impossible_choice_does_not_outweigh_all_others(monkeypatch):
    model, log = logged()
    values = stand_in(model, log)
    values[log.chosen_rows[-1]] = 0
    monkeypatch.setattr(ibcb.IBCB, "propensities", lambda self, log, ahead=False: values)
    assert calibration(model, log).recovered > calibration(model, log).uniform


# -- shown -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [True, False])
def test_the_page_shows_it_where_there_is_any(every):
    model, log = logged(every=every)
    found = facts(model, log, steps=False)
    page = render(found)
    section = re.search(r'<section id="propensities".*?</section>', page, re.S)[0]
    for value in (found.calibration.logged, found.calibration.recovered, found.calibration.ahead):
        assert f"{value:.3f}".replace("-", "\N{MINUS SIGN}") in section
    assert f"{found.calibration.told(found.calibration.ahead):.0%}" in section
    assert ("total variation" in section) == every
    assert 'href="#propensities"' in page
    without = render(facts(model, log.with_propensities(None), steps=False))
    assert "propensities" not in re.sub(r"<style>.*?</style>", "", without, flags=re.S)


def test_points_lie_where_their_propensities_are():
    found = facts(*logged(), steps=False)
    drawn = _curve(found.calibration, found)
    places = {text: x for x, _, text in drawn["ticks"]}
    assert places["1"] == drawn["size"]
    assert min(places.values()) == 0
    decades = len(places) - 1
    for (x, y), each in zip(drawn["lines"]["now"], found.calibration.curve, strict=True):
        assert 10 ** ((x / drawn["size"] - 1) * decades) == pytest.approx(each.recovered, rel=0.01)
        assert 10 ** (((drawn["size"] - y) / drawn["size"] - 1) * decades) == pytest.approx(each.logged, rel=0.01)


def test_validate_compares_with_a_model(tmp_path):
    model, log = logged()
    ibcb.save_model(model, tmp_path / "model.safetensors")
    ibcb.write_log(log, tmp_path / "log.parquet")
    asked = ["validate", tmp_path / "log.parquet", "--model", tmp_path / "model.safetensors"]
    found = calibration(model, log)
    assert f"propensities: {found}" in succeeds(*asked).stdout
    told = json.loads(succeeds(*asked, "--json").stdout)["calibration"]
    assert told == json.loads(json.dumps(found.to_json()))
    ibcb.write_log(log.with_propensities(None), tmp_path / "bare.parquet")
    result = ibcb_command("validate", tmp_path / "bare.parquet", "--model", tmp_path / "model.safetensors")
    assert result.exit_code == 1
    assert "bare.parquet: no propensities were logged" in result.stderr
    ibcb.save_model(ibcb.ChoiceModel().fit(log), tmp_path / "choice.safetensors")
    result = ibcb_command("validate", tmp_path / "log.parquet", "--model", tmp_path / "choice.safetensors")
    assert result.exit_code == 2
    assert "--model needs an IBCB model" in result.stderr
