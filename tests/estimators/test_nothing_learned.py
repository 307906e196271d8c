"""Logs in which no choice tells anything: every attribute is finite, or says that it is not determined."""

import json

import numpy as np
import pytest
from commands import succeeds
from conftest import asked_for
from numpy.testing import assert_allclose, assert_array_equal

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.deciders import KINDS

RNG = np.random.default_rng(1)
STEPS, EPISODES = 20, 3
CASES = {
    "one candidate": lambda: (RNG.normal(size=(STEPS, 1, 2)), np.zeros(STEPS, dtype=int)),
    "all equal": lambda: (np.ones((STEPS, 3, 2)), RNG.integers(3, size=STEPS)),
    "all zero": lambda: (np.zeros((STEPS, 3, 2)), RNG.integers(3, size=STEPS)),
    "equal within steps": lambda: (np.repeat(RNG.normal(size=(STEPS, 1, 2)), 3, axis=1), RNG.integers(3, size=STEPS)),
}
LOGS = {name: BehaviorLog.from_episodes([make() for _ in range(EPISODES)]) for name, make in CASES.items()}


def told(kind):
    """Parameters of its rule that a log may tell."""
    return [each.name for each in kind.parameters if each.estimate.told]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("expert", [*KINDS, "auto"])
def test_every_attribute_is_finite_or_not_determined(case, expert):
    log = LOGS[case]
    model = IBCB(**asked_for(expert)).fit(log)
    for name in ("coef_", "intercept_", "policy_coefs_", "next_policy_coef_"):
        assert_array_equal(getattr(model, name), np.zeros_like(getattr(model, name)))
    for found in (model.forecast(3), model.direction(model.policy_coefs_), model.decision_function(log)):
        assert_array_equal(found, np.zeros_like(found))
    assert "nothing-learned" in [note.code for note in model.notes_]
    assert model.unidentified_features_ == ("0", "1")
    for direction in (False, True):
        interval = model.policy_interval(direction=direction)
        assert_array_equal(interval.estimate, [0, 0])
        assert_array_equal(interval.lower, [-np.inf, -np.inf])
        assert_array_equal(interval.upper, [np.inf, np.inf])
    counts = np.diff(log.step_offsets)
    for ahead in (False, True):
        assert_allclose(model.propensities(log, ahead=ahead), np.repeat(1 / counts, counts))
    assert np.isnan(model.certainty(log)).all()
    assert all(np.isfinite([entry.gap, entry.max_violation]).all() for entry in model.diagnostics_)
    assert all(np.isfinite(entry.log_likelihood) for entry in model.evidence_)
    if model.decider_.learns:
        assert_array_equal(model.reward_interval().estimate, [0, 0, 0])
    if model.epsilon_ is not None:
        assert np.isfinite(model.exploration_interval()).all()
    elif "temperature" in told(model.decider_):
        assert model.temperature_ is None
        with pytest.raises(ValueError, match="temperature is not determined"):
            model.exploration_interval()
    assert model.verdict(log).level in ("poor", "unknown")


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_says_so(tmp_path, case):
    path, out = tmp_path / "log.npz", tmp_path / "model.safetensors"
    ibcb.write_log(LOGS[case], path)
    printed = succeeds("fit", path, "--out", out).stdout
    assert "weights     not determined" in printed
    assert "nan" not in printed.lower()
    found = json.loads(succeeds("fit", path, "--out", out, "--json").stdout)
    assert found["last_policy"]["estimate"] == [0, 0]
    assert found["unidentified_features"] == ["0", "1"]
