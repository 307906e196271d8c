"""A look at an episode before it is learned from: how far it was predicted, and what its choices say of the policy."""

from __future__ import annotations

from dataclasses import dataclass
from operator import contains
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import RANDOM_SHARES, Believed, Columns, Kind, Observed, share_likelihoods
from ibcb.engine import Block
from ibcb.numerics.arrays import Matrix, Stored, Vector, plain
from ibcb.numerics.checks import gram_matrix
from ibcb.numerics.contexts import step_counts
from ibcb.numerics.gaussians import Beliefs, Site
from ibcb.numerics.ridge import Ridge
from ibcb.tracking.calibration import Exploration, probable
from ibcb.tracking.context_sample import ContextSample
from ibcb.tracking.motions import Models, Update, motions_of
from ibcb.tracking.reward_fit import RewardFit

#: steps of an episode on which the models' predictions are compared: a standard error of .03 at most in each episode
_COMPARED_STEPS = 256
#: steps of an episode whose propensities are predicted while a log is tracked, and draws from the belief for them: more
#: tell kinds of deciders apart no better (benchmarks/selection.py)
_JUDGED_STEPS, _JUDGED_DRAWS = 512, 64


class Passed(NamedTuple):
    """What the tracker met in an episode: the sites of its families, and the update after it."""

    sites: tuple[Site, ...]
    update: Update

    @classmethod
    def of(cls, sites: tuple[Site, ...], update: Update) -> Passed:
        """With arrays laid out as files keep them, so that a model that was stored gives the same bits."""
        known = {id(site): Site(plain(site.root), plain(site.seen), site.constant) for site in sites}
        psi, phi, total = (plain(each) for each in (update.psi, update.phi, update.total))
        return cls(tuple(known[id(site)] for site in sites), update._replace(psi=psi, phi=phi, total=total))

    @property
    def size(self) -> int:
        """About so many numbers are held."""
        return sum(site.root.size for site in self.sites) + 2 * self.update.psi.size


@dataclass(frozen=True)
class Tracked:
    """What has been learned since the first episode that the policy chose. K counts the models of all families.

    Models that have no chance are dropped, once more than one episode has been seen.

    Attributes
    ----------
    unit : ndarray of shape (d, d)
        S^-1 of the first episode's candidates, the unit of policies.
    within : ndarray of shape (d, d)
        Mean covariance of the candidates of a step, in the first episode.
    shared : int
        Features among which scales of whole scores are shared.
    models : tuple of Models
        Parameters of the models that are still tracked, by family.
    families : tuple of Beliefs
        Of the coming episode's state, one entry per motion.
    last : tuple of Beliefs
        Of the last episode's policy, and of the weights of the added columns, that episode seen.
    evidence : ndarray of shape (K,)
        Log-likelihood of the choices under each model, of kinds whose evidence fades the late episodes' mostly.
    whole_evidence : ndarray of shape (K,)
        The same of all episodes alike.
    hits : ndarray of shape (K,)
        Choices that each model predicted.
    apart : ndarray of shape (K, K)
        For every two models, choices that only the first predicted.
    compared : int
        Choices that could be predicted.
    best : int
        The model believed, counted through all families.
    blank : int
        Episodes before the first policy that had learned anything.
    information : ndarray of shape (d, d)
        What all episodes together told of the policy.
    stray : float
        Share of the last episode's steps that strayed, of kinds that know of that.
    sample : ContextSample
        Candidate sets, for projecting the decider forward.
    steps : int
        Of the last episode.
    rewards : RewardFit or None
        What the policies so far say of the rewards; of kinds that learn.
    random_share : ndarray of shape (S,)
        Evidence for each share of choices at random, see `ibcb.tracking.calibration`.
    exploration : Exploration or None
        Of kinds that explore at random, how often.
    """

    unit: Annotated[Matrix, Stored("d d")]
    within: Annotated[Matrix, Stored("d d")]
    shared: int
    models: tuple[Models, ...]
    families: tuple[Beliefs, ...]
    last: tuple[Beliefs, ...]
    evidence: Annotated[Vector, Stored("K")]
    whole_evidence: Annotated[Vector, Stored("K")]
    hits: Annotated[NDArray[np.int64], Stored("K", np.int64)]
    apart: Annotated[NDArray[np.int64], Stored("K K", np.int64)]
    compared: int
    best: int
    blank: int
    information: Annotated[Matrix, Stored("d d")]
    stray: float
    sample: ContextSample
    steps: int
    rewards: RewardFit | None
    random_share: Annotated[Vector, Stored("S")]
    exploration: Exploration | None

    def check(self) -> None:
        """Raise ValueError where the parts cannot be of one episode; of which kind, `Track.check` knows."""
        d = len(self.unit)
        gram_matrix("unit", self.unit, d)
        gram_matrix("within", self.within, d)
        if len(self.random_share) != len(RANDOM_SHARES):
            raise ValueError(f"its evidence of random choices is not of {len(RANDOM_SHARES)} shares")
        if not len(self.sample.counts) or self.shared < 1:
            raise ValueError("it has no candidate sets")
        if (self.information.diagonal() < 0).any():
            raise ValueError("its information is negative")
        if self.rewards is not None and len(self.rewards.right) != d + 1:
            raise ValueError(f"its rewards have {len(self.rewards.right)} unknowns, expected {d + 1}")

    def check_of(self, kind: Kind, episodes: int) -> None:
        """Raise ValueError where this cannot be what was learned of a kind in so many episodes."""
        name, families, own = kind.name, kind.motions.families, len(self.unit) + len(kind.added)
        known = [{*family.models, *family.few} for family in families]
        if len(self.models) != len(known) or not all(map(set[Any].issuperset, known, self.models)):
            raise ValueError(f"its models are not those of {name}")
        if episodes < 2 and not all(map(contains, self.models, (family.early for family in families))):
            raise ValueError(f"its models are not those that {name} begins with")
        motions = motions_of(kind, self.models)
        counts = [len(motion.names) for motion in motions]
        sizes = [(count, own + motion.beside(len(self.unit))) for count, motion in zip(counts, motions, strict=True)]
        variances = [each.covariance.diagonal(axis1=1, axis2=2) for each in (*self.last, *self.families)]
        lengths, learns = {len(self.evidence), len(self.whole_evidence)}, "has" if kind.learns else "has no"
        wrong = {
            f"its beliefs are not those of the motions of {name}": [each.mean.shape for each in self.families] != sizes,
            f"its beliefs of the last policy are not those of {name}": (
                [each.mean.shape for each in self.last] != [(count, own) for count in counts]
            ),
            "a variance of an added weight is not above 0": (
                not all((each[:, len(self.unit) : own] > 0).all() for each in variances)
            ),
            f"its evidence is not of the {sum(counts)} models of {name}": (
                lengths != {sum(counts)} or self.best >= sum(counts)
            ),
            f"a decider of the kind {name} {learns} rewards": (self.rewards is not None) != kind.learns,
        }
        for why in (why for why, is_so in wrong.items() if is_so):
            raise ValueError(why)


class Look(NamedTuple):
    """What a look at an episode tells: how far it was predicted, and what its choices say.

    Attributes
    ----------
    now : Tracked
        What was known before it.
    hits : ndarray of shape (steps, K)
        Which of its first choices each model predicted.
    seen : Observed
    sample : ContextSample
        Some of its candidate sets.
    likelihoods, chances : ndarray of shape (steps,)
        Logarithm of the probability predicted of each of its first choices, and its probability by chance.
    agreement : float
        Share of these that were the most probable; of n that are alike, each counts as 1 / n.
    share_likelihoods : ndarray of shape (S,)
        Log-likelihood of the same choices for each share of them that may have been made at random.
    """

    now: Tracked
    hits: NDArray[np.bool_]
    seen: Observed
    sample: ContextSample
    likelihoods: Vector
    chances: Vector
    agreement: float
    share_likelihoods: Vector


def look_at(
    block: Block,
    *,
    kind: Kind,
    stray: float,
    before: Ridge,
    believed: Believed,
    states: Matrix,
    ahead: Beliefs | None,
    share: float,
    sample: Any,
) -> tuple[Any, ...]:
    """`Look` at the first block of an episode, but for what was known before; ``ahead`` is None where nothing had been
    learned before it.
    """
    columns, judged = kind.rule.columns(block, before), block.first(_JUDGED_STEPS)
    counts = step_counts(judged.offsets)
    chances = 1.0 / counts
    p = by_chance = np.repeat(chances, counts)
    if ahead is not None:
        seen = columns if judged is block else kind.rule.columns(judged, before)
        p = probable(kind, seen, ahead, _JUDGED_DRAWS)
    propensities = (1 - share) * p + share * by_chance
    of_chosen, starts = propensities[judged.chosen_rows], judged.offsets[:-1]
    best = np.maximum.reduceat(propensities, starts)
    # Of several that are the most probable each is predicted in part: who predicts nothing has what chance has.
    alike = np.add.reduceat((propensities >= np.repeat(best, counts)).astype(np.int64), starts)
    return (
        _predicted(block, columns, states),
        kind.observe(columns, believed, stray),
        sample(block) if sample else None,
        np.log(of_chosen),
        chances,
        float(((of_chosen >= best) / alike).mean()),
        share_likelihoods(p[judged.chosen_rows], chances),
    )


def _predicted(block: Block, columns: Columns, states: Matrix) -> NDArray[np.bool_]:
    """Which of the first choices each policy, with the weights of what is added, predicts. Shape (steps, states)."""
    steps = min(_COMPARED_STEPS, len(block.chosen_rows))
    count = int(block.offsets[steps])
    X = block.contexts[:count]
    d = X.shape[1]
    scores = X @ states[:, :d].T.astype(X.dtype)
    if states.shape[1] > d:
        scores += columns.quick[:count] @ states[:, d:].T.astype(X.dtype)
    hits: NDArray[np.bool_] = scores[block.chosen_rows[:steps]] >= np.maximum.reduceat(scores, block.offsets[:steps])
    return hits
