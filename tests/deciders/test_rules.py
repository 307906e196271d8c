"""What every choice rule of the register keeps to, whatever the kind that it belongs to."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from replayed import tracked

from ibcb import BehaviorLog
from ibcb.deciders import (
    FIRST_STRAY,
    KINDS,
    TEMPERATURE,
    Believed,
    Column,
    Columns,
    Life,
    Parameter,
    SoftmaxOfScores,
    Values,
    Weight,
    Width,
    Words,
)
from ibcb.deciders.egreedy import _meant
from ibcb.deciders.kinds import _PARTS as PARTS
from ibcb.deciders.sbucb import UpperBound
from ibcb.engine import blocks
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Ridge, ridge
from ibcb.tracking import forecast, interval, rewards


@dataclass(frozen=True)
class Novelty(Column):
    """How far a candidate is from all that were chosen: the width, squared."""

    before: Ridge

    def of(self, contexts):
        return self.before.widths(contexts) ** 2


class TwoColumns:
    """Two added columns, instead of one or none."""

    def columns(self, block, before):
        return Columns(block, before, (Width(before), Novelty(before)))


BETA = Parameter("beta", "", (0.0, np.inf), "normal, deviation 2", "weight of the novelty", Weight(deviation=2.0))


@dataclass(frozen=True)
class TwoBonuses(TwoColumns, UpperBound):
    parameters = (*UpperBound.parameters, BETA)


@dataclass(frozen=True)
class SoftmaxWithTwo(TwoColumns, SoftmaxOfScores):
    parameters = (TEMPERATURE, BETA._replace(name="alpha"), BETA)


#: those of the register, and what it has none of yet
EVERY = {
    **KINDS,
    "two bonuses": KINDS["sbucb"](rule=TwoBonuses()),
    "softmax with two": KINDS["softmax"](rule=SoftmaxWithTwo()),
}

D, STEPS = 3, 40
SIZES = (2, 4, 5)


def world(seed, sizes=SIZES):
    """A block of steps of several sizes, and what the choices before it left behind."""
    rng = np.random.default_rng(seed)
    sets = [rng.normal(size=(int(rng.choice(sizes)), D)) for _ in range(STEPS)]
    chosen = [int((each @ [1.0, -0.5, 0.2] + 0.2 * rng.gumbel(size=len(each))).argmax()) for each in sets]
    S = rng.normal(size=(50, D))
    return sets, chosen, ridge(S.T @ S, 0.3)


def block_of(sets, chosen):
    (block,) = blocks(BehaviorLog.from_episodes([(sets, chosen)]))
    return block


def belief_of(kind, rng):
    o = D + len(kind.added)
    A = rng.normal(size=(o, o))
    return Beliefs(np.append(rng.normal(size=D), np.ones(o - D))[None], (A @ A.T / o + 0.1 * np.eye(o))[None])


@pytest.fixture(params=list(EVERY))
def kind(request):
    return EVERY[request.param](top_k=2)


@pytest.fixture
def rule(kind):
    return kind.rule


def test_it_has_every_part_and_no_other(rule):
    for part in PARTS:
        assert hasattr(rule, part)
    public = {name for name in dir(rule) if not name.startswith("_")}
    assert public - {*PARTS} <= {"most_stray"}
    assert rule.name.isidentifier()
    assert isinstance(rule.words, Words)


def test_its_parameters_are_complete(rule, kind):
    names = [each.name for each in rule.parameters]
    assert len(set(names)) == len(names)
    for each in rule.parameters:
        assert isinstance(each, Parameter)
        assert each.name.isidentifier()
        assert each.words == each.words.strip() != ""
        assert each.prior
        assert len(each.range) == 2
    weights = [each.estimate.deviation for each in rule.parameters if each.estimate.deviation is not None]
    sets, chosen, before = world(0)
    assert len(rule.columns(block_of(sets, chosen), before).added) == len(weights) == len(kind.added)
    assert kind.deterministic == (not any(each.luck for each in rule.parameters))


def test_its_columns_are_the_features_and_what_it_adds(rule, kind):
    sets, chosen, before = world(1)
    block = block_of(sets, chosen)
    columns = rule.columns(block, before)
    whole, exact = columns.whole, columns.of(block.contexts)
    assert whole.shape == exact.shape == (block.n_rows, D + len(kind.added))
    assert_array_equal(exact[:, :D], block.contexts)
    assert_allclose(whole, exact, rtol=1e-5)
    weights = np.random.default_rng(0).normal(size=D + len(kind.added))
    assert_allclose(columns.scores(weights), exact @ weights, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("certain", [False, True])
def test_probabilities_add_up_to_one_and_follow_the_candidates(rule, kind, rng, certain):
    sets, chosen, before = world(2)
    block, belief = block_of(sets, chosen), belief_of(kind, rng)
    if certain:
        belief = kind.certain(belief.mean[0, :D])
    values = Values(top_k=kind.top_k)
    p = rule.probabilities(block, rule.columns(block, before), belief, values)
    assert p.shape == (block.n_rows,)
    assert (p >= 0).all()
    assert_allclose(np.add.reduceat(p, block.offsets[:-1]), 1.0)
    orders = [rng.permutation(len(each)) for each in sets]
    other = block_of(
        [each[order] for each, order in zip(sets, orders, strict=True)],
        [int(np.flatnonzero(order == one)[0]) for order, one in zip(orders, chosen, strict=True)],
    )
    again = rule.probabilities(other, rule.columns(other, before), belief, values)
    rows = np.concatenate([start + order for start, order in zip(block.offsets[:-1], orders, strict=True)])
    assert_allclose(again, p[rows], atol=1e-6)


@pytest.mark.parametrize("learned", [True, False])
def test_sites_are_finite_and_of_the_policy_and_the_added_weights(rule, kind, rng, learned):
    sets, chosen, before = world(3)
    before = before if learned else ridge(np.zeros((D, D)), 0.3)
    block, belief = block_of(sets, chosen), belief_of(kind, rng)
    believed = Believed(belief, (belief, belief), (1, 0))
    values = Values(top_k=kind.top_k, stray=FIRST_STRAY)
    seen = pickle.loads(pickle.dumps(rule)).observe(block, rule.columns(block, before), believed, values)
    assert len(seen.sites) == 2
    assert 0 <= seen.stray <= 1
    for site in seen.sites:
        assert site.root.shape[0] == D + len(kind.added)
        assert np.isfinite(site.root).all()
        assert np.isfinite(site.seen).all()
        assert np.isfinite(site.constant)


@pytest.mark.parametrize("seed", range(4))
def test_random_choices_are_told_from_meant_ones(seed):
    """Of an epsilon-greedy decider that is known well: hardly one that it did not prefer is learned from."""
    rng = np.random.default_rng(seed)
    X, p = rng.normal(size=(60, 4, D)), rng.normal(size=D)
    best = (X @ p).argmax(axis=1)
    chosen = np.where(rng.random(60) < 0.3, rng.integers(4, size=60), best)
    block = block_of(X, chosen)
    meant, share = _meant(block, Beliefs(p[None], 0.04 * np.eye(D)[None]), FIRST_STRAY)
    preferred = (meant.contexts @ p).reshape(-1, 4).argmax(axis=1) == meant.chosen_rows - meant.offsets[:-1]
    assert np.mean(preferred) > 0.9
    assert np.count_nonzero(preferred) >= 0.95 * np.count_nonzero(best == chosen)
    # Of random choices a quarter are of the best.
    assert share == pytest.approx(np.mean(best != chosen) / 0.75, abs=0.1)


@pytest.mark.parametrize("name", ["other", "topk"])
def test_many_choices_may_stray(name, rng):
    """A fifth of them; where nothing is known of how a decider explores, they are told and do no harm."""
    kind, X, p = KINDS[name](top_k=1), rng.normal(size=(400, 6, D)), np.array([4.0, -2.0, 1.0])
    stray = rng.random(400) < 0.2
    chosen = np.where(stray, rng.integers(6, size=400), (X @ p + rng.gumbel(size=(400, 6))).argmax(axis=1))
    block, prior = block_of(X, chosen), Beliefs(np.zeros((1, D)), 25.0 * np.eye(D)[None])
    seen = kind.observe(kind.rule.columns(block, world(0)[2]), Believed(prior, (prior,), (0,)), FIRST_STRAY)
    assert seen.stray == pytest.approx(0.2, abs=0.08)
    found = prior.given(seen.sites[0])[0].mean[0]
    assert_allclose(found, p, atol=0.25 * np.linalg.norm(p))


def test_it_comes_alive_and_acts(rule, kind, rng):
    S = rng.normal(size=(30, D))
    phi, moment = S.T @ S, S.T @ (S @ [1.0, -1.0, 0.5])
    coef = np.linalg.solve(phi + kind.l2 * np.eye(D), moment)
    added = np.ones(len(kind.added))
    policy = kind.live(Life(phi, moment, coef, 0.4, 0.1, "step", 0, added))
    sets = rng.normal(size=(10, 4, D))
    p = policy.propensities(sets)
    assert_allclose(p.sum(axis=1), 1.0)
    assert np.isin(policy.act(sets), range(4)).all()
    assert_allclose(policy.coef_, coef)
    policy.update(sets[:, 0], np.ones(10))
    if kind.learns:
        assert_allclose(getattr(policy, "expert", policy).gram_, phi + sets[:, 0].T @ sets[:, 0])


@pytest.mark.parametrize("name", ["two bonuses", "softmax with two"])
def test_a_decider_with_two_bonuses_is_tracked(name):
    """Its rewards are recovered, whatever is added to what it expects, and its unit is that of its first bonus."""
    rng, theta, episodes = np.random.default_rng(3), np.array([0.5, -0.3, 0.2]), []
    phi, moment = np.zeros((D, D)), np.zeros(D)
    luck = 0.0 if name == "two bonuses" else 0.1
    for _ in range(8):
        before, X = ridge(phi, 0.3), rng.normal(size=(250, 5, D))
        H = before.widths(X.reshape(-1, D)).reshape(250, 5)
        scores = X @ before.solve(moment) + 0.8 * H + 0.4 * H**2 + luck * rng.gumbel(size=H.shape)
        chosen = scores.argmax(axis=1)
        S = X[np.arange(250), chosen]
        phi, moment = phi + S.T @ S, moment + S.T @ (S @ theta)
        episodes.append((X, chosen))
    kind = EVERY[name](l2=0.3)
    track = tracked(BehaviorLog.from_episodes(episodes), kind)
    found = rewards(track).theta
    assert found @ theta > 0.99 * np.linalg.norm(found) * np.linalg.norm(theta)
    assert track.next_added.shape == (2,)
    assert (track.next_added > 0).all()
    ahead = forecast(track, 3)
    assert ahead @ theta > 0.99 * np.linalg.norm(ahead) * np.linalg.norm(theta)
    bounds = interval(track, 0.9)
    assert (bounds.lower <= bounds.upper).all()
    assert bounds.estimate.shape == (D,)
