"""Sizes that nobody can mean are refused at once, with the number found and the limit; or cost nothing."""

import re

import numpy as np
import pytest
from conftest import small_run
from numpy.testing import assert_array_equal

import ibcb
from ibcb import IBCB, BehaviorLog, LogFormatError, TopK

HUGE = 10**9


def test_drawing_from_more_candidates_than_there_are_is_drawing_from_all():
    log = small_run(n_episodes=3, batch_size=60).log
    models = [IBCB(expert="topk", top_k=k).fit(log) for k in (HUGE, log.candidates_per_step)]
    assert_array_equal(models[0].policy_coefs_, models[1].policy_coefs_)
    assert_array_equal(models[0].propensities(log), models[1].propensities(log))
    live = [TopK(ibcb.SBUCB(4), k).propensities(log.contexts[:7]) for k in (HUGE, 7)]
    assert_array_equal(live[0], live[1])


@pytest.mark.parametrize("updates", [HUGE, 10**30])
def test_forecasts_far_ahead_are_refused(updates):
    model = IBCB(l2=1.0).fit(small_run(n_episodes=3, batch_size=60).log)
    for ask, name in ((model.forecast, "updates"), (model.policy_at, "episode")):
        with pytest.raises(ValueError, match=rf"{name}={updates} must be at most 100\d\d:"):
            ask(updates)


@pytest.mark.parametrize("size", ["n_candidates", "n_features", "batch_size", "n_episodes", "warmup"])
def test_worlds_larger_than_memory_are_refused(size):
    with pytest.raises(ValueError, match=rf"{HUGE}|{10**12}|\d{{10,}}.* and at most \d+ fit in half"):
        ibcb.simulate("synthetic", **{size: HUGE})


def test_worlds_of_arms_larger_than_memory_are_refused():
    with pytest.raises(ValueError, match=rf"{HUGE} candidates .* and at most \d+ fit in half"):
        ibcb.simulate("arms", n_arms=HUGE)


@pytest.mark.parametrize("given", [{"n_arms": HUGE}, {}])
def test_ids_are_no_numbers_of_arms(given):
    arms = [0, 1, HUGE - 1]
    with pytest.raises(LogFormatError, match=rf"{HUGE} arms, by .* at most 1000000 .*arm_names"):
        BehaviorLog.from_arms([(np.ones((3, 1)), arms)], **given)


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unnamed")
    log = small_run(n_episodes=3, batch_size=20).log
    for name in ("log.npz", "log.parquet", "log.csv"):
        ibcb.write_log(log, folder / name)
    return folder


@pytest.mark.parametrize(
    "given, error, words",
    [
        ({"episode_size": 1.5}, TypeError, "episode_size=1.5 must be a whole number"),
        ({"episode_size": 10**5000}, ValueError, "episode_size=a number of 5001 digits must be at most"),
        ({"episode_size": 10**19}, ValueError, "episode_size=10000000000000000000 must be at most"),
        ({"episode_every": 5}, TypeError, "episode_every=5 is not a duration; write it as text"),
        ({"warmup": 1.5}, TypeError, "warmup=1.5 must be a whole number"),
        ({"warmup": 10**19}, ValueError, "warmup=10000000000000000000 must be at most"),
    ],
)
@pytest.mark.parametrize("name", ["log.npz", "log.parquet", "log.csv"])
def test_cuts_that_make_no_sense_are_refused(unnamed, name, given, error, words):
    for read in (ibcb.read_log, ibcb.open_log):
        with pytest.raises(error, match=re.escape(words)):
            read(unnamed / name, **given)


@pytest.mark.parametrize("name", ["log.npz", "log.parquet", "log.csv"])
def test_names_are_not_ignored_where_features_have_none(unnamed, name):
    words = "have no names|'feature_names' is missing|there is no column 'price'"
    for read in (ibcb.read_log, lambda path, **given: ibcb.open_log(path, **given).read()):
        with pytest.raises(LogFormatError, match=words):
            read(unnamed / name, features=["price"])
