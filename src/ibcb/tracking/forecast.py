"""What a track tells of policies: those of the logged episodes, those to come, and the rewards behind them."""

from __future__ import annotations

import numpy as np

from ibcb.deciders import Kind, Learning
from ibcb.engine import Block
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.ridge import Ridge
from ibcb.tracking.context_sample import ContextSample
from ibcb.tracking.reward_fit import Rewards
from ibcb.tracking.tracker import Track
from ibcb.tracking.units import unit_doubt, unit_of

#: draws of the decider's own behind what it is expected to choose in an update that is imagined
_OWN_DRAWS = 64


def logged_policies(track: Track) -> Matrix:
    """The policy of every episode, shape (N, d): of a decider that stays one and the same."""
    return np.tile(track.next_policy, (len(track.policies), 1)) if track.kind.motions.stays else track.policies


def learns(track: Track) -> bool:
    """Whether the model believed is a learner, so that later policies differ from the last."""
    return track.models.motions[track.models.model_at(track.seen.best).family].learns


def projects(track: Track) -> bool:
    """Whether it is believed further than one update: of errorless choices, only a learner that is spared a good part
    of the errors of the best walk.
    """
    now, most = track.seen, track.kind.most_missed
    missed = now.compared - now.hits
    walks = track.models.by_family(missed)[0]
    spared = now.compared == 0 or not np.isfinite(most) or missed[now.best] <= most * walks.min()
    return learns(track) and bool(spared)


def rewards(track: Track) -> Rewards | None:
    """theta and c per unit that explain the policies so far; c is measured from the decider's origin.

    None of kinds of which it is not known how they learn.
    """
    now = track.seen
    if now.rewards is None:
        return None
    return now.rewards.solve(unit_doubt(track.models, now, track.belief(now.last, now.best)))


def _rewards_now(track: Track) -> tuple[Vector, float] | None:
    """theta and c per unit, as the learner believed has them now; None where no learner is believed.

    Where rewards are not linear these are what it earns of late, and project it forward better than `rewards`.
    c is measured from the decider's origin.
    """
    now, models = track.seen, track.models
    family, member = models.model_at(now.best)
    earned = models.motions[family].rewards(now.families[family], member)
    if earned is None:
        return None
    unit = unit_of(models, track.belief(now.families, now.best), now.best)
    return earned[0] / unit, earned[1] / unit


def forecast(track: Track, updates: int = 1) -> Vector:
    """The policy ``updates`` updates after the one that made the last episode's choices. Shape (d,).

    A learner is projected forward where it is believed that far: it goes on choosing among candidates like those it
    has seen, and learns what it is expected to choose, and earn by the rewards believed. Anything else stays.
    """
    now = track.seen
    if updates == 0:
        last: Vector = logged_policies(track)[-1]
        return last
    p = track.next_policy
    earned = _rewards_now(track)
    if not projects(track) or updates < 2 or earned is None:
        return p
    (theta, c), before = earned, track.kind.regularization.ridge(track.chosen)
    learning, X = Learning(before, before.psi @ p), now.sample.contexts
    for _ in range(updates - 1):
        expected = expected_choices(track.kind, now.sample, learning.ridge, learning.coef, track.next_added)
        rows = np.flatnonzero(expected)
        S, often = X[rows].astype(np.float64), now.steps / len(now.sample.counts) * expected[rows]
        centred = S if before.origin is None else S - before.origin
        learning = learning.learn(S, centred @ theta + c, often)
    return learning.coef


def expected_choices(
    kind: Kind, sample: ContextSample, before: Ridge, policy: Vector, added: Vector, draws: int = _OWN_DRAWS
) -> Vector:
    """How often each candidate of a sample is chosen by a policy with these weights of added columns. Shape (rows,)."""
    offsets = np.append(0, sample.counts.cumsum())
    block = Block(sample.contexts, offsets[:-1], offsets, None, 0, 0)
    return kind.propensities(kind.rule.columns(block, before), kind.certain(policy, added), draws)
