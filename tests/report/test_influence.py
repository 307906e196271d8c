"""What decides: influence against recomputation by loops, whatever the units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import shared, shop

import ibcb
from ibcb.report import facts
from ibcb.report.feature_weights import StepSpread, groups_of

NAMES = ["price", "genre=a", "genre=b", "genre=c", "stars"]
GROUPS = groups_of(NAMES)


def a_log(seed):
    """Ragged steps; prices of hundreds, one-hot genres."""
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(12):
        m = rng.integers(2, 6)
        genre = np.eye(3)[rng.integers(3, size=m)]
        steps.append(np.column_stack([rng.uniform(100, 900, m), genre, rng.normal(size=m)]))
    return ibcb.BehaviorLog.from_episodes([(steps, [0] * 12)])


def shares_of(log, weights, names=NAMES):
    groups = groups_of(names)
    spread = StepSpread(weights, groups)
    for _, part in log.parts():
        spread.add(part)
    return spread.finish()


@given(st.integers(0, 2**32 - 1))
def test_influences_add_up_to_one_and_do_not_depend_on_units(seed):
    rng, log = np.random.default_rng(seed), a_log(seed)
    weights, factors = rng.normal(size=5), 10.0 ** rng.uniform(-4, 4, size=5)
    factors[1:4] = factors[1]
    found = shares_of(log, weights)
    assert found.features.sum() == pytest.approx(1)
    assert (found.features >= 0).all()
    assert found.groups["genre"] == pytest.approx(found.features[1:4].sum())
    other = ibcb.BehaviorLog(log.contexts * factors, log.step_offsets, log.chosen, log.episode_offsets)
    np.testing.assert_allclose(shares_of(other, weights / factors).features, found.features, rtol=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_influence_is_the_weight_times_the_deviation_among_the_candidates_of_a_step(seed):
    log, weights = a_log(seed), np.random.default_rng(seed).normal(size=5)
    apart = np.concatenate([log.candidates(step) - log.candidates(step).mean(axis=0) for step in range(log.n_steps)])
    moved = [abs(weights[0]) * np.sqrt(np.mean(apart[:, 0] ** 2))]
    moved += [np.sqrt(np.mean((apart[:, 1:4] @ weights[1:4]) ** 2))]
    moved += [abs(weights[4]) * np.sqrt(np.mean(apart[:, 4] ** 2))]
    found = shares_of(log, weights)
    shown = [found.features[0], found.groups["genre"], found.features[4]]
    np.testing.assert_allclose(shown, np.array(moved) / sum(moved), rtol=1e-9)
    np.testing.assert_allclose(found.spreads, np.sqrt(np.mean(apart**2, axis=0)), rtol=1e-9)


def test_what_all_levels_share_decides_nothing():
    log, weights = a_log(3), np.array([0.01, 1.0, -1.0, 0.5, 2.0])
    higher = weights + np.array([0, 7.0, 7.0, 7.0, 0])
    one, other = (shares_of(log, each) for each in (weights, higher))
    assert one.groups["genre"] == pytest.approx(other.groups["genre"])


@pytest.mark.parametrize(
    "names, expected",
    [
        (["a", "b"], {}),
        (["a=1", "b"], {}),
        (["a=1", "a=2", "b"], {"a": (0, 1)}),
        (["a", "a=1", "a=2"], {}),
        (["arm=1", "arm=1:x", "arm=2", "arm=2:x"], {"arm": (0, 2), "x by arm": (1, 3)}),
        (["=1", "=2", "", ":"], {}),
    ],
)
def test_groups_are_told_by_names(names, expected):
    assert groups_of(names) == expected


def test_the_page_ranks_by_influence_and_keeps_groups_together():
    model, log = shop()
    found = facts(model, log, steps=False)
    assert sum(weight.influence for weight in found.weights) == pytest.approx(1)
    tops = [next(w.influence for w in found.weights if w.name == name) for name in ("rating", "price_cents")]
    (group,) = found.groups
    assert group.name == "genre"
    assert group.told
    places = [place for place, weight in enumerate(found.weights) if weight.group == "genre"]
    assert places == list(range(places[0], places[0] + 3))
    alone = [weight.influence for weight in found.weights if weight.group is None]
    assert alone == sorted(alone, reverse=True)
    assert min(tops) > 0.1
    # Weights per unit say the opposite: a cent is little.
    price = next(weight for weight in found.weights if weight.name == "price_cents")
    assert abs(price.last) == min(abs(weight.last) for weight in found.weights if weight.group is None)


def test_what_is_not_determined_drives_nothing():
    model, log = shared()
    found = facts(model, log, steps=False)
    assert all(weight.influence == pytest.approx(0, abs=1e-9) for weight in found.weights if not weight.told)
