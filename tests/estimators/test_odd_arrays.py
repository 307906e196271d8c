"""Masked, missing and odd arrays: read right, or refused with the place; wherever the public API takes an array."""

import functools

import numpy as np
import pandas as pd
import pytest
from conftest import small_run
from numpy.testing import assert_array_equal

from ibcb import IBCB, SBUCB, BehaviorLog, EGreedy, FixedPolicy, LogFormatError, TopK

#: a place of every array below
PLACE = 1
SETS = np.random.default_rng(0).normal(size=(3, 2, 4))


@functools.cache
def model():
    return IBCB(l2=1.0).fit(small_run().log)


def policy():
    taught = SBUCB(4)
    taught.update(SETS[0], [1.0, 0.5])
    return taught


def fitted_with_prior(gram):
    return IBCB(l2=1.0, prior_gram=gram).fit(small_run().log).coef_


def learned(contexts, rewards):
    taught = SBUCB(4)
    taught.update(contexts, rewards)
    return taught.coef_


def edges(given):
    return small_run().log.recut(given).episode_offsets


#: whatever takes an array, and an array that it takes
TAKERS = {
    "from_episodes": (lambda X: BehaviorLog.from_episodes([(X, [0, 1, 0])]).contexts, SETS),
    "from_episodes, ragged": (lambda X: BehaviorLog.from_episodes([([X, X[:1]], [0, 0])]).contexts, SETS[0]),
    "BehaviorLog": (lambda X: BehaviorLog(X, [0, 1, 2], [0, 0], [0, 2]).contexts, SETS[0]),
    "from_arms": (lambda X: BehaviorLog.from_arms([(X, [0, 1])]).contexts, SETS[0]),
    "arm_features": (lambda X: BehaviorLog.from_arms([(SETS[0], [0, 1])], arm_features=X).contexts, SETS[0]),
    "chosen": (lambda a: BehaviorLog.from_episodes([(SETS, a)]).chosen, np.array([0, 1, 0])),
    "arms": (lambda a: BehaviorLog.from_arms([(SETS[0], a)]).chosen, np.array([0, 1])),
    "logged propensities": (
        lambda p: BehaviorLog.from_episodes([(SETS, [0, 0, 0])], propensities=p).propensities,
        np.array([0.3, 0.4, 0.5]),
    ),
    "edges": (edges, np.array([0, 20, 30])),
    "predict": (lambda X: model().predict(X), SETS),
    "decision_function": (lambda X: model().decision_function(X), SETS),
    "certainty": (lambda X: model().certainty(X), SETS),
    "propensities": (lambda X: model().propensities(X).ravel(), SETS),
    "one set": (lambda X: model().decision_function(X), SETS[0]),
    "direction": (lambda w: model().direction(w), SETS[0, 0]),
    "prior_gram": (fitted_with_prior, np.diag([1.0, 2.0, 3.0, 4.0])),
    "act": (lambda X: policy().act(X), SETS),
    "act without exploration": (lambda X: EGreedy(4, random_state=0).act(X, explore=False), SETS),
    "its propensities": (lambda X: TopK(policy(), 2).propensities(X), SETS),
    "its scores": (lambda X: policy().decision_function(X), SETS),
    "update": (lambda X: learned(X, [1.0, 0.5]), SETS[0]),
    "rewards": (lambda r: learned(SETS[0], r), np.array([1.0, 0.5])),
    "gram": (lambda G: SBUCB(4, gram=G, moment=np.ones(4)).coef_, np.eye(4)),
    "moment": (lambda b: SBUCB(4, gram=np.eye(4), moment=b).coef_, np.ones(4)),
    "weights": (lambda w: FixedPolicy(w).coef_, SETS[0, 0]),
}


def masked(array):
    mask = np.zeros(array.shape, dtype=bool)
    mask.flat[PLACE] = True
    return np.ma.masked_array(array, mask)


def with_object(array, value):
    changed = array.astype(object)
    changed.flat[PLACE] = value
    return changed


def unlocked(array):
    """As nested lists of masked arrays, in which a mask is easily lost."""
    return list(masked(array)) if array.ndim > 1 else masked(array)


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize(
    "form",
    [
        lambda X: memoryview(np.ascontiguousarray(X)),
        lambda X: X.astype(object),
        lambda X: np.ma.masked_array(X),
        np.asfortranarray,
        lambda X: X.astype(X.dtype.newbyteorder()),
        np.ndarray.tolist,
    ],
    ids=["memoryview", "object", "nothing masked", "Fortran", "byte order", "lists"],
)
def test_forms_of_the_same_numbers_are_the_same(name, form):
    take, array = TAKERS[name]
    assert_array_equal(take(form(array)), take(array))


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize(
    "form, words",
    [
        (masked, "is masked; impute"),
        (unlocked, "is masked; impute"),
        (lambda X: with_object(X, None), r"is missing \(None\); impute"),
        (lambda X: with_object(X, pd.NA), r"is missing \(<NA>\); impute"),
        (lambda X: with_object(X, pd.NaT), r"is missing \(NaT\); impute"),
        (lambda X: with_object(X, "1"), "is str"),
        (lambda X: with_object(X, 10**400), "beyond the range of floating point"),
        (lambda X: X + 1j, "complex"),
        (lambda X: X.astype(str), "<U"),
        (lambda X: X.astype("m8[s]"), "timedelta64"),
    ],
    ids=["masked", "masked lists", "None", "NA", "NaT", "text", "huge", "complex", "texts", "times"],
)
def test_what_is_no_number_is_refused_by_name(name, form, words):
    take, array = TAKERS[name]
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        take(form(array))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(TAKERS) - {"logged propensities"}))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(name, value):
    take, array = TAKERS[name]
    changed = array.astype(float)
    changed.flat[PLACE] = value
    with pytest.raises(ValueError, match=r"nan|inf|finite"):
        take(changed)


def test_what_stands_beside_steps_may_be_any_object_but_masked():
    ids = np.array(["a", None, 3], dtype=object)
    assert_array_equal(BehaviorLog.from_episodes([(SETS, [0, 0, 0])], step_ids=ids).step_ids, ids)
    for name in ("step_ids", "timestamps"):
        with pytest.raises(LogFormatError, match=rf"{name}\[1\] is masked"):
            BehaviorLog.from_episodes([(SETS, [0, 0, 0])], **{name: masked(np.arange(3))})


def test_nullable_columns_are_read():
    frame = pd.DataFrame(SETS[0], columns=list("abcd")).astype("Float64")
    assert_array_equal(model().decision_function(frame), model().decision_function(SETS[0]))
    frame.iloc[1, 2] = pd.NA
    for take in (model().predict, lambda X: BehaviorLog.from_episodes([([X], [0])])):
        with pytest.raises(LogFormatError, match=r"\[1, 2\] is missing"):
            take(frame)
