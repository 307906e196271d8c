"""Logs of other libraries' bandits: made the same each time, frozen within batches, and explained by our rows."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import ibcb

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def deciders():
    for library in ("mabwiser", "vowpalwabbit", "bayesianbandits", "river"):
        pytest.importorskip(
            library, reason=f"{library} is not installed; pip install 'ibcb[test]'", exc_type=ImportError
        )
    spec = importlib.util.spec_from_file_location("deciders", ROOT / "benchmarks" / "deciders.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["deciders"] = module
    spec.loader.exec_module(module)
    module.TEST_STEPS = 200
    return module


def kind_of(deciders, library, name):
    return next(kind for kind in deciders.KINDS if (kind.library, kind.name) == (library, name))


@pytest.mark.parametrize(
    "library, name",
    [
        ("mabwiser", "lints arms"),
        pytest.param("vowpalwabbit", "softmax", marks=pytest.mark.slow),
        ("bayesianbandits", "forgetting"),
        ("river", "sgd softmax"),
        ("scikit-learn", "bayes thompson"),
    ],
)
def test_a_seed_gives_the_same_log_and_the_folder_keeps_it(deciders, tmp_path, library, name):
    kind = kind_of(deciders, library, name)
    made, stored, read = deciders.live(kind, 1), *(deciders.kept(kind, 1, tmp_path) for _ in range(2))
    for other in (stored, read):
        np.testing.assert_array_equal(made.log.contexts, other.log.contexts)
        np.testing.assert_array_equal(made.log.chosen, other.log.chosen)
        np.testing.assert_array_equal(made.test_log.chosen, other.test_log.chosen)
        np.testing.assert_array_equal(made.previous, other.previous)
        assert len(made.log) == len(other.log) >= 8
    assert 0 < made.own <= 1


def test_a_foreign_linucb_is_explained_exactly(deciders):
    """Whatever the reward noise, its own parameters satisfy every row: an exact fit exists."""
    case = deciders.live(kind_of(deciders, "mabwiser", "linucb"), 0)
    model = ibcb.IBCB(l2=1.0, solver="hard").fit(case.log)
    assert {entry.violated for entry in model.diagnostics_} == {0}
    assert model.score(case.test_log) > 0.9


def test_policies_are_frozen_within_a_batch(deciders):
    """A learner that takes its best candidate: one linear theta explains every choice of a batch."""
    kind = kind_of(deciders, "scikit-learn", "ridge epsilon")._replace(
        make=lambda seed, m, d: deciders.Scikit(deciders._sklearn("Ridge", fit_intercept=False))
    )
    log = deciders.live(kind, 0).log
    for number in (0, len(log) - 1):
        assert ibcb.ChoiceModel(episodes=1, ridge=1e-9).fit(log[: number + 1]).score(log[number : number + 1]) == 1.0


def test_stationary_deciders_do_not_move(deciders):
    assert deciders.live(kind_of(deciders, "scikit-learn", "ridge stationary"), 0).own == 1.0


def test_the_bar_counts_steady_learners_only(deciders):
    def row(own, gain):
        return {"own": own, "gain": gain}

    steady = [row(0.95, 0.01)] * 15
    assert deciders.summary([*steady, row(0.5, -0.9)], "auto")[1]
    assert deciders.summary([*steady[:14], row(0.95, -0.05)], "auto")[1]
    assert not deciders.summary([*steady[:13], row(0.95, -0.05), row(0.95, -0.05)], "auto")[1]
    assert not deciders.summary([row(0.95, 0.002)] * 15, "auto")[1]


def test_what_is_said_of_restless_and_of_steady_learners_is_counted(deciders):
    rows = [
        {"own": own, "said": said}
        for own, said in [(0.5, True), (0.8, False), (0.95, True), (1.0, False), (0.9, False)]
    ]
    assert deciders.said(rows) == "no linear theta: 1 of 2 logs listed apart, 1 of 3 others"
