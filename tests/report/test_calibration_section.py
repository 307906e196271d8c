"""Recovered propensities beside logged ones, recomputed from the arrays; on the page and on the command line."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from commands import ibcb_command, succeeds
from pages import fitted, logged
from replayed import Given

import ibcb
from ibcb.engine import History, replay
from ibcb.report import calibration, facts, render
from ibcb.report.calibrating import Calibrating
from ibcb.report.rendering import _curve


def compared(log, values):
    """The calibration of propensities that are given."""
    model, before = logged()[0], History.before_the_log(np.zeros((log.n_features, log.n_features)))
    (found,) = replay([log], Calibrating(model, before, lambda ahead: Given(values)))
    return found


def by_step(log, values):
    """Rows of the policy's steps, one step after the other."""
    first = int(log.step_offsets[log.policy_steps.start])
    return values[first:].reshape(-1, log.candidates_per_step)


@pytest.mark.parametrize("every", [True, False])
def test_likelihoods_are_those_of_the_choices_of_the_policy(every):
    model, log = logged(every=every)
    found = calibration(model, log)
    chosen = log.chosen[log.policy_steps]
    expected = {"recovered": model.propensities(log), "ahead": model.propensities(log, ahead=True)}
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
    p, q, r = (
        by_step(log, v) for v in (log.propensities, model.propensities(log), model.propensities(log, ahead=True))
    )
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
    p, q = (by_step(log, values).ravel() for values in (log.propensities, model.propensities(log)))
    found = calibration(model, log)
    assert sum(each.candidates for each in found.curve) == len(p)
    assert 5 < len(found.curve) <= 10
    edges = np.cumsum([each.candidates for each in found.curve])[:-1]
    bins = np.split(np.argsort(q, kind="stable"), edges)
    for each, some in zip(found.curve, bins, strict=True):
        # About a tenth of them, unless they are equal: these stay together.
        assert len(some) <= len(p) / 10 + 1 or len(np.unique(q[some])) < len(some)
        assert (each.recovered, each.logged) == (pytest.approx(q[some].mean()), pytest.approx(p[some].mean()))
    assert all(q[one].max() < q[other].min() for one, other in pairwise(bins))
    # What is perfectly calibrated lies on the diagonal.
    own = calibration(model, log.with_propensities(model.propensities(log)))
    assert all(each.recovered == pytest.approx(each.logged) for each in own.curve)
    assert own.total_variation == 0
    assert own.recovered == own.logged


def test_recovered_propensities_of_a_thompson_sampler_agree_with_its_own():
    found = calibration(*logged())
    assert found.total_variation < 0.05
    assert found.told(found.recovered) > 0.95
    assert found.told(found.recovered) > found.told(found.ahead) > 0.7
    # From the third episode on little is left to be learned.
    assert all(abs(entry.recovered - entry.logged) < 0.1 for entry in found.episodes[2:])


def test_a_curve_of_choices_stands_for_all_candidates(rng):
    """Drawn again and again from the same steps: the choices, weighted, have the means of all candidates."""
    P = rng.dirichlet(np.ones(5), size=4000)
    Q = P * rng.uniform(0.5, 1.5, size=P.shape)
    Q /= Q.sum(axis=1, keepdims=True)
    chosen = np.array([rng.choice(5, p=p) for p in P])
    log = ibcb.BehaviorLog.from_episodes([(np.ones((4000, 5, 1)), chosen)], propensities=P.ravel())
    every = compared(log, Q.ravel())
    alone = compared(log.with_propensities(P[np.arange(4000), chosen]), Q.ravel())
    # Between the first points, where few were chosen, and the last, which is beyond that of all candidates.
    some = alone.curve[2:-1]
    at, expected = zip(*((each.recovered, each.logged) for each in every.curve), strict=True)
    np.testing.assert_allclose(
        [each.logged for each in some], np.interp([each.recovered for each in some], at, expected), rtol=0.05
    )


def test_what_is_equal_is_one_bin():
    _, log = logged()
    (only,) = compared(log, np.full(log.n_rows, 1 / 7)).curve
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
    on_disk, in_memory = calibration(model, ibcb.open_log(tmp_path / "log.parquet")), calibration(model, log)
    assert on_disk == in_memory


def test_of_the_beginning_of_the_fitted_log_propensities_are_those_after_its_end():
    """As `propensities` gives them, and as the note says."""
    model, log = logged()
    part = log[:2]
    found = calibration(model, part)
    p = by_step(part, model.propensities(part))
    assert found.recovered == pytest.approx(np.log(p[np.arange(len(p)), part.chosen[part.policy_steps]]).mean())
    assert not found.fitted
    assert calibration(model, log).fitted


def test_an_impossible_choice_does_not_outweigh_all_others():
    model, log = logged()
    values = model.propensities(log)
    values[log.chosen_rows[-1]] = 0
    found = compared(log, values)
    assert found.uniform < found.recovered < calibration(model, log).recovered


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
    drawn = _curve(found)
    places = {text: x for x, _, text in drawn["ticks"]}
    assert places["1"] == drawn["size"]
    assert min(places.values()) == 0
    decades = len(places) - 1
    for (x, y), each in zip(drawn["lines"]["now"], found.calibration.curve, strict=True):
        found_at = [10 ** ((place / drawn["size"] - 1) * decades) for place in (x, drawn["size"] - y)]
        # What is below an axis lies on it.
        assert found_at == pytest.approx(np.maximum([each.recovered, each.logged], 10.0**-decades), rel=0.01)


def test_validate_compares_with_a_model(tmp_path):
    model, log = logged()
    ibcb.save_model(model, tmp_path / "model.safetensors")
    ibcb.write_log(log, tmp_path / "log.parquet")
    asked = ["validate", tmp_path / "log.parquet", "--model", tmp_path / "model.safetensors"]
    found = calibration(model, log)
    result = succeeds(*asked)
    assert f"propensities: {found}" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()[-len(found.curve) :]]
    assert [int(row[2]) for row in rows] == [each.candidates for each in found.curve]
    assert [float(row[1]) for row in rows] == pytest.approx([each.logged for each in found.curve], abs=6e-4)
    assert "not the log that the model was fitted on" not in result.stderr
    told = json.loads(succeeds(*asked, "--json").stdout)["calibration"]
    assert told == json.loads(json.dumps(found.to_json()))
    ibcb.write_log(log[:2], tmp_path / "part.parquet")
    result = succeeds("validate", tmp_path / "part.parquet", "--model", tmp_path / "model.safetensors", "--json")
    assert "another-log" in [note["code"] for note in json.loads(result.stdout)["notes"]]
    ibcb.write_log(log.with_propensities(None), tmp_path / "bare.parquet")
    result = ibcb_command("validate", tmp_path / "bare.parquet", "--model", tmp_path / "model.safetensors")
    assert result.exit_code == 1
    assert "bare.parquet: the log has no propensities" in result.stderr
    ibcb.save_model(ibcb.ChoiceModel().fit(log), tmp_path / "choice.safetensors")
    result = ibcb_command("validate", tmp_path / "log.parquet", "--model", tmp_path / "choice.safetensors")
    assert result.exit_code == 2
    assert "--model needs an IBCB model" in result.stderr
