"""Logs in float32: fitted as those in float64 are, and to the same model but for the rounding of the contexts."""

from itertools import product

import numpy as np
import pytest
from conftest import ragged_log, slow, small_run

import ibcb

RUNS = {
    "sbucb": {},
    "sbts": {"expert": "sbts"},
    "topk": {"top_k": 3},
    "short": {"n_episodes": 2, "batch_size": 30},
    "long": {"n_episodes": 12, "batch_size": 500, "n_features": 10},
}


def single_and_double(log):
    """The same log in both float types: the numbers are those that float32 holds."""
    rows = log.contexts.astype("f4")
    return [
        ibcb.BehaviorLog(rows.astype(kind), log.step_offsets, log.chosen, log.episode_offsets, warmup=log.warmup)
        for kind in ("f4", "f8")
    ]


def check(log, expert):
    single, double = (ibcb.IBCB(expert=expert).fit(each) for each in single_and_double(log))
    assert single.expert_ == double.expert_
    np.testing.assert_allclose(single.forecast(), double.forecast(), atol=1e-4 * np.abs(double.forecast()).max())
    assert np.mean(single.predict(log) == double.predict(log)) > 0.99


@pytest.mark.parametrize(
    ("run", "expert"),
    [
        *product(RUNS, ["topk", "stationary", "other"]),
        *product(["sbucb", "sbts", "short"], ["auto"]),
        *(slow("topk", "auto"), slow("long", "auto")),
    ],
)
def test_both_float_types_give_the_same_model(run, expert):
    check(small_run(**RUNS[run]).log, expert)


@pytest.mark.parametrize("expert", ["auto", "other"])
def test_both_float_types_give_the_same_model_of_ragged_steps(expert, rng):
    check(ragged_log(rng), expert)
