"""A kind of decider: a choice rule, the motions it is tracked with, what it has learned from, and numbers, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from ibcb.deciders.rule import Believed, Columns, Life, Observed, Parameter, Rule, Values, Words
from ibcb.engine import ALL, Block, CandidateMoments, History, Past
from ibcb.numerics.arrays import Matrix, Vector, lazy
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Frame, Regularization, Ridge


@dataclass(frozen=True)
class Scales:
    """How large things are before anything is seen, in units of scores; judged by benchmarks/forecast.py.

    Attributes
    ----------
    policy, rewards : float
        Deviations of whole scores, or of what one feature adds to them where ``per_feature``.
    per_feature : bool
    first_policy : float
        How far the first policy may lie from what the learner's law makes of the choices before the log.
    """

    policy: float
    rewards: float = 0.0
    per_feature: bool = True
    first_policy: float = 0.0


@dataclass(frozen=True)
class Family:
    """Models of one motion, by the name that `ibcb.tracking.motions` has for it.

    Attributes
    ----------
    motion : str
    models : tuple of tuple of float
        The parameters of each model.
    early : tuple of float
        Those of the model that speaks for the family before there is evidence.
    few : tuple of tuple of float
        The models that are tracked where features are many, `early` among them.
    learns : bool
        Whether it learns as ridge regression does: then l2 matters, and rewards are part of its state.
    """

    motion: str
    models: tuple[tuple[float, ...], ...]
    early: tuple[float, ...]
    few: tuple[tuple[float, ...], ...]
    learns: bool = False


@dataclass(frozen=True)
class Motions:
    """Which motions a kind is tracked with, side by side.

    Attributes
    ----------
    families : tuple of Family
        Walks first.
    fading : float
        Weight that the evidence so far keeps with every further episode.
    stays : bool
        Whether the policy is known to stay: then the model that is still predicts what comes. The others are there
        because around them the factors of an episode are found better.
    """

    families: tuple[Family, ...]
    fading: float = 1.0
    stays: bool = False

    @lazy
    def learns(self) -> bool:
        """Whether a learner is among them."""
        return any(family.learns for family in self.families)


def grid(*axes: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """All combinations of parameters, the first varying fastest."""
    return tuple(tuple(reversed(each)) for each in product(*reversed(axes)))


@dataclass(frozen=True)
class Kind:
    """A kind of decider with its parameters; called with some of these, it gives itself with them.

    Parameters
    ----------
    name, key : str
        What users call it, and what files do: kinds may share a name.
    rule : Rule
    motions : Motions
    scales : Scales
    words : Words
    penalties : mapping of str to tuple of float
        Values of l2 by its units that "auto" chooses from, of kinds that learn.
    doubt : float
        How much of its variance a belief keeps where choices are predicted: factors are found with more than any model
        has, so that all can learn from them (judged by benchmarks/propensities.py and benchmarks/selection.py).
    most_random : float
        The largest share of choices at random that is allowed for: of kinds that make none, some records may be wrong.
    counts_hits : bool
        Whether models are compared by choices predicted too, not by evidence alone.
    tempering : float
        Models of a family are believed together, their weights falling by e with so much evidence per feature; 0: only
        the best. Of choices that are drawn evidence is approximate, the more so the more weights there are.
    hopeless : float
        Models less likely than the best of their family by more than this are not believed, whatever they predicted.
    most_missed : float
        Share of a walk's errors that a learner may make and be projected further than one update.
    past : Past
        What it has learned from.
    l2 : float
        Ridge parameter, of kinds that learn.
    top_k : int
        How many of its best candidates the decider draws from, of kinds that do.
    frame : Frame, optional
        The units of l2, of kinds that learn; None for those of the log.
    rate : float
        Share of the decider's choices that the log has.
    """

    name: str
    key: str
    rule: Rule
    motions: Motions
    scales: Scales
    words: Words
    penalties: Mapping[str, tuple[float, ...]] = field(default_factory=dict, hash=False)
    doubt: float = 0.3
    most_random: float = 1.0
    counts_hits: bool = False
    tempering: float = 0.0
    hopeless: float = np.inf
    most_missed: float = np.inf
    past: Past = ALL
    l2: float = 1.0
    top_k: int = 1
    frame: Frame | None = None
    rate: float = 1.0

    def __call__(self, **parameters: Any) -> Kind:
        """The kind with some of its parameters."""
        return replace(self, **parameters)

    # -- what it is called -----------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """The kind with its parameters, such as "sbucb(l2=0.3)"."""
        named = [f"{each.name}={self.settings[each.name]}" for each in self.parameters if each.name in self.settings]
        if self.learns:
            named += [f"l2={self.l2:g}", *([] if self.frame is None else [self.units])]
        return f"{self.key}({', '.join(named)})" if named else self.key

    @property
    def title(self) -> str:
        """What it does, in a few words."""
        return self.words.title.format(top_k=self.top_k)

    # -- how it learns ---------------------------------------------------------------------------------------------

    @property
    def learns(self) -> bool:
        """Whether it learns as ridge regression does."""
        return self.motions.learns

    @lazy
    def regularization(self) -> Regularization:
        """l2 with its units, and the share of the decider's choices that it is to be weighed against."""
        return Regularization(self.l2, self.frame, self.rate)

    @property
    def units(self) -> str:
        """Of l2: "own" for those of the log, or the name of the frame."""
        return self.regularization.units

    def ridge(self, history: History) -> Ridge:
        """What the choices before an episode left behind, as far as they count in its past."""
        return history.ridge(self.regularization, self.past)

    def unit(self, candidates: CandidateMoments) -> Matrix:
        """S^-1, the inverse second moment of the candidates: the unit of policies. Shape (d, d).

        A learner learns from what the candidates of a step share, too; of others choices alone tell.
        """
        return candidates.unit if self.learns else candidates.unit_within

    # -- how it chooses --------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Of its rule."""
        return self.rule.parameters

    @lazy
    def added(self) -> Vector:
        """Prior deviations of the weights of the added columns. Shape (k,)."""
        deviations = (each.estimate.deviation for each in self.parameters)
        return np.array([each for each in deviations if each is not None])

    @lazy
    def per_unit(self) -> int | None:
        """The added column per unit of whose weight policies are; None where a state has them as they are."""
        weights = [each for each in self.parameters if each.estimate.deviation is not None]
        return next((place for place, each in enumerate(weights) if each.estimate.is_unit), None)

    @property
    def settings(self) -> dict[str, Any]:
        """Parameters of its rule that are its own, by name."""
        return {"top_k": self.top_k}

    def setting(self, name: str) -> Any:
        """The value of a parameter of its rule that is set with the kind; else None."""
        return next((each.estimate.setting(self.settings) for each in self.parameters if each.name == name), None)

    @property
    def deterministic(self) -> bool:
        """Whether its policy alone decides."""
        return not any(each.luck for each in self.parameters)

    @lazy
    def makes_random_choices(self) -> bool:
        """Whether its rule takes any candidate at random now and then, and how often is to be told."""
        return any(each.estimate.by_share for each in self.parameters)

    def observe(self, columns: Columns, believed: Believed, stray: float) -> Observed:
        """What the choices of an episode's first block say of its policy; ``stray``: of the episode before."""
        return self.rule.observe(columns.block, columns, believed, Values(top_k=self.top_k, stray=stray))

    def propensities(self, columns: Columns, believed: Beliefs, draws: int, *, scale: float = 0.0) -> Vector:
        """Probability of every candidate, given one belief about the policy, without choices at random. Shape (rows,).

        Parameters
        ----------
        columns : Columns
            The candidates as the rule sees them.
        believed : Beliefs
            Of the policy, and of the weights of the added columns.
        draws : int
            From the belief, that probabilities are averaged over.
        scale : float
            Of scores, where one of the best candidates is drawn by their softmax.
        """
        values = Values(top_k=self.top_k, scale=scale, draws=draws)
        return self.rule.probabilities(columns.block, columns, believed, values)

    def weights(self, policy: Vector, added: Vector | None = None) -> Vector:
        """A policy and the weights of the added columns: 1 of the one that it is per unit of, of others those given, or
        0. Shape (d + k,).
        """
        own = np.zeros(len(self.added)) if added is None else added.copy()
        if self.per_unit is not None:
            own[self.per_unit] = 1.0
        return np.append(policy, own)

    def certain(self, policy: Vector, added: Vector | None = None) -> Beliefs:
        """What is believed where there is no doubt of a policy, and of the weights of the added columns."""
        weights = self.weights(policy, added)
        return Beliefs(weights[None], np.zeros((1, len(weights), len(weights))))

    def scores(self, block: Block, before: Ridge, policy: Vector, added: Vector | None = None) -> Vector:
        """Of every candidate, exploration included, to a decider with this policy. Shape (rows,)."""
        return self.rule.columns(block, before).scores(self.weights(policy, added))

    def live(self, life: Life) -> Any:
        """The decider as a policy that acts and, where it is known how, learns."""
        frame = self.frame
        ridge = {"l2": self.l2} if frame is None else {"l2": self.l2 * frame.scale**2, "origin": frame.origin}
        return self.rule.live(life._replace(learns=self.learns, ridge=ridge, top_k=self.top_k))
