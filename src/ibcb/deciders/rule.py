"""The contract of a choice rule: how a decider chooses, given its policy.

A rule answers three questions about an episode. *How does it see the candidates?* `Rule.columns`: their features, and
what it adds to them, such as a confidence width, whose weights are tracked beside the policy. *What do choices say?*
`Rule.observe`, as Gaussian factors on the policy and the weights of the added columns, which beliefs of any motion can
learn from. *How probable is each candidate?* `Rule.probabilities`, averaged over what is believed of these. All of
them run where the rows live, so what they give is small and can be sent.

A rule knows nothing of how policies move, nor does anything outside its file ask which rule it is.

It lists its parameters; whatever is published of them (`epsilon_`, `temperature_`, `top_k_` ...) is what their
estimates make of what is known. An estimate is a small value of its own:

`Unit`           policies are per unit of it, so that choices do not tell it
`Weight`         the weight of a column that the rule adds, tracked beside the policy
`RandomShare`    told by how many choices are made at random, episode by episode
`PolicyLength`   told by how long policies are
`Setting`        one value of the kind, fixed or chosen with it
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block
from ibcb.numerics.arrays import Matrix, Vector, lazy
from ibcb.numerics.contexts import Contexts, with_column
from ibcb.numerics.gaussians import Beliefs, Site
from ibcb.numerics.ridge import Ridge

#: share of straying steps that is assumed before the first episode is seen; not tuned: the search moves on from it
FIRST_STRAY = 0.01
#: shares of choices at random between which is told; the least cannot be told from none
RANDOM_SHARES = np.geomspace(1e-4, 1.0, 41)


@dataclass(frozen=True)
class Words:
    """How a kind is spoken of, in notes, on the page and in verdicts.

    Attributes
    ----------
    meaning : str
        What is said where the log chose the kind: a clause.
    title : str
        What it does, in a few words, in which ``{top_k}`` stands for that parameter.
    length : str
        How much its choices tell of the length of its weights.
    explored : str
        What its exploration does: the end of "choices that ..."; empty of kinds that do not explore, or not in a way
        that is known.
    exploration : str
        The same in a sentence.
    misfits : str
        What choices that do not fit mean: a sentence.
    misfit : str
        What choices against the fit mean; empty where an exact fit is to be expected.
    contradictions : str
        What contradicting choices mean.
    spread : str
        How the confidence width of a candidate is called where the decider's draws are as wide; empty elsewhere.
    """

    meaning: str
    title: str
    length: str = "not"
    explored: str = ""
    exploration: str = ""
    misfits: str = "Look here first for changed records, or for choices that somebody else made."
    misfit: str = "The choices of a decider of this kind need not have an exact explanation"
    contradictions: str = "No reward weights explain these choices together, as is usual for a decider that draws."
    spread: str = ""


class Column(ABC):
    """What a rule adds to the candidates: a number for each, from its features and what had been learned."""

    @abstractmethod
    def of(self, contexts: Contexts) -> NDArray[Any]:
        """Shape (rows, d) to (rows,), in the contexts' own float type."""

    def quick(self, block: Block) -> NDArray[Any]:
        """Of all rows of a block, in single precision unless that overflows."""
        return block.in_single(self.of)


@dataclass(frozen=True)
class Width(Column):
    """The confidence width H(s) = sqrt(s' Psi^-1 s)."""

    before: Ridge

    def of(self, contexts: Contexts) -> NDArray[Any]:
        return self.before.widths(contexts)

    def quick(self, block: Block) -> NDArray[Any]:
        return block.widths(self.before)


@dataclass(frozen=True)
class Columns:
    """The candidates of a block as a rule sees them: d features, and k columns that it adds.

    Attributes
    ----------
    block : Block
    before : Ridge
        What the choices before the episode left behind.
    added : tuple of Column
    """

    block: Block
    before: Ridge
    added: tuple[Column, ...] = ()

    @lazy
    def quick(self) -> NDArray[Any]:
        """The added columns of all rows, in single precision unless that overflows. Shape (rows, k)."""
        return np.column_stack([each.quick(self.block) for each in self.added])

    @lazy
    def whole(self) -> Contexts:
        """Features and `quick` columns of all rows. Shape (rows, d + k)."""
        contexts = self.block.contexts
        for place in range(len(self.added)):
            contexts = with_column(contexts, self.quick[:, place])
        return contexts

    def of(self, contexts: Contexts) -> Contexts:
        """Features of some candidates with their added columns, in their own precision. Shape (rows, d + k)."""
        seen = contexts
        for each in self.added:
            seen = with_column(seen, each.of(contexts))
        return seen

    def scores(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Of every candidate by d + k weights. Shape (rows,)."""
        contexts = self.block.contexts
        scores: NDArray[Any] = contexts @ weights[: contexts.shape[1]]
        for weight, each in zip(weights[contexts.shape[1] :], self.added, strict=True):
            scores += weight * each.of(contexts)
        return scores


class Believed(NamedTuple):
    """What is believed of an episode's policy, and of the weights of the added columns, before its choices are seen.

    Attributes
    ----------
    best : Beliefs
        Of the model preferred.
    leaders : tuple of Beliefs
        Of the likeliest model of each family, walks first.
    asked : tuple of int
        The families that have a chance, the likeliest first.
    """

    best: Beliefs
    leaders: tuple[Beliefs, ...]
    asked: tuple[int, ...]


class Values(NamedTuple):
    """Values of a rule's parameters while an episode is looked at, and how closely.

    Attributes
    ----------
    top_k : int
        How many of its best candidates the decider draws from.
    scale : float
        Of scores, where one of the best candidates is drawn by their softmax.
    stray : float
        Share of the steps that strayed in the episode before.
    draws : int
        From a belief, that probabilities are averaged over.
    """

    top_k: int = 1
    scale: float = 1.0
    stray: float = FIRST_STRAY
    draws: int = 64


class Observed(NamedTuple):
    """What the choices of an episode say of its policy.

    Attributes
    ----------
    sites : tuple of Site
        One for each family of models to learn from.
    stray : float
        Share of the steps that strayed; 0 where the rule has no such thing.
    at_random : ndarray of shape (S,) or None
        Of rules that choose at random now and then, the log-likelihood of the episode's choices for each of the shares
        `RANDOM_SHARES`.
    """

    sites: tuple[Site, ...]
    stray: float = 0.0
    at_random: Vector | None = None


def share_likelihoods(p: Vector, chances: Vector) -> Vector:
    """Log-likelihood of some choices for each of `RANDOM_SHARES`, given the probability of each if it was meant, and by
    chance.
    """
    likely = p[:, None] * (1 - RANDOM_SHARES) + chances[:, None] * RANDOM_SHARES
    likelihoods: Vector = np.log(likely).sum(axis=0)
    return likelihoods


class Life(NamedTuple):
    """What a decider has learned, to bring it to life with.

    Attributes
    ----------
    gram, moment : ndarray of shape (d, d) and (d,)
        S'S and S'R of what it has learned.
    coef : ndarray of shape (d,)
        Its policy.
    alpha : float
        What policies are per unit of, in the unit of ``coef``: an exploration weight, or a temperature.
    share : float
        Of its choices that are made at random.
    draws : str
        How often a Thompson sampler draws: every "step" or "episode".
    random_state : int, Generator or None
    added : ndarray of shape (k,)
        Weights of the added columns, in the unit of ``coef``.
    learns : bool
        Whether it is known how it learns.
    ridge : mapping
        Its l2, and the origin of its contexts, as live policies have them.
    top_k : int
    """

    gram: Matrix
    moment: Vector
    coef: Vector
    alpha: float
    share: float
    draws: str
    random_state: Any
    added: Vector = np.zeros(0)
    learns: bool = False
    ridge: Mapping[str, Any] = {}
    top_k: int = 1

    @property
    def learned(self) -> dict[str, Any]:
        """What a live policy around a ridge regression goes on from, as its parameters."""
        return {"gram": self.gram, "moment": self.moment, **self.ridge}


class Interval(NamedTuple):
    """Values between which the true ones lie with the asked probability, an array of one shape each."""

    estimate: Vector
    lower: Vector
    upper: Vector


class Share(NamedTuple):
    """The share of choices at random in an episode, and its standard deviation."""

    mean: float
    deviation: float


class Known(NamedTuple):
    """What a log told, from which parameters are estimated.

    Attributes
    ----------
    believed : Beliefs
        Of the last episode's policy and the weights of the added columns, by the model believed.
    within : ndarray of shape (d, d)
        Mean covariance of the candidates of a step.
    shares : tuple of Share
        Of choices at random in every episode, and in the one to come; empty of rules that make none.
    """

    believed: Beliefs
    within: Matrix
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Estimate:
    """How a parameter is told; this one is not."""

    #: whether policies are per unit of the parameter
    is_unit: ClassVar[bool] = False
    #: whether a log can tell it
    told: ClassVar[bool] = False
    #: whether it is told by the share of choices at random
    by_share: ClassVar[bool] = False
    #: prior deviation of the weight of an added column; None of what is none
    deviation: float | None = None

    def setting(self, own: Any) -> Any:
        """Its value where a kind has one, of which ``own`` are the settings by name; None where the log tells it."""
        return None

    def interval(self, known: Known, reach: float, column: int) -> Interval | None:
        """``reach`` deviations either way; None where nothing tells it. ``column``: of which of the added ones."""
        return None


@dataclass(frozen=True)
class Unit(Estimate):
    """Policies are per unit of it; of a column's weight they are brought to that unit after tracking."""

    is_unit: ClassVar[bool] = True


@dataclass(frozen=True)
class Weight(Estimate):
    """The weight of an added column, in the unit of the policy; it is above 0, and does not move."""

    told: ClassVar[bool] = True

    def interval(self, known: Known, reach: float, column: int) -> Interval | None:
        place = len(known.within) + column
        mean = known.believed.mean[0, place : place + 1]
        spread = reach * np.sqrt(known.believed.covariance[0, place, place])
        return Interval(mean, np.maximum(mean - spread, 0.0), mean + spread)


@dataclass(frozen=True)
class RandomShare(Estimate):
    """One value for every episode, and last for the one to come."""

    told: ClassVar[bool] = True
    by_share: ClassVar[bool] = True

    def interval(self, known: Known, reach: float, column: int) -> Interval | None:
        if not known.shares:
            return None
        mean, deviation = np.array(known.shares).T
        # Shares are positive: normal intervals of their logarithms.
        factor = np.exp(reach * deviation / mean)
        return Interval(mean, mean / factor, np.minimum(mean * factor, 1.0))


@dataclass(frozen=True)
class PolicyLength(Estimate):
    """In deviations of the scores among the candidates of a step: one over the deviation that the policy gives them."""

    told: ClassVar[bool] = True

    def interval(self, known: Known, reach: float, column: int) -> Interval | None:
        d = len(known.within)
        p, C = known.believed.mean[0, :d], known.believed.covariance[0, :d, :d]
        along = known.within @ p
        size = float(p @ along)
        if size <= 0:
            return None
        relative = float(np.sqrt(max(float(along @ C @ along), 0.0))) / size
        value = np.array([1 / np.sqrt(size)])
        return Interval(value, value * np.exp(-reach * relative), value * np.exp(reach * relative))


@dataclass(frozen=True)
class Setting(Estimate):
    """One of the kind's own parameters, or a value that is always the same."""

    name: str = ""
    value: Any = None

    def setting(self, own: Any) -> Any:
        return own[self.name] if self.name else self.value


class Parameter(NamedTuple):
    """A parameter of a choice rule.

    Attributes
    ----------
    name : str
        It is published under this name and an underscore.
    unit : str
    range : tuple
        The least and the largest, or all values that there are.
    prior : str
        What is believed of it before anything is seen.
    words : str
        What it means.
    estimate : Estimate
    luck : bool
        Whether it makes choices a matter of luck, so that no policy explains all of them.
    """

    name: str
    unit: str
    range: tuple[Any, ...]
    prior: str
    words: str
    estimate: Estimate
    luck: bool = False


class Rule(ABC):
    """How a decider chooses, given its policy p and the weights of what it adds to the candidates.

    Subclasses are frozen dataclasses, so that rules can be compared, hashed and sent.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """A word."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """What it depends on; the weights of the added columns in the order of these."""

    @property
    @abstractmethod
    def words(self) -> Words:
        """How deciders that choose by it are spoken of."""

    def columns(self, block: Block, before: Ridge) -> Columns:
        """The candidates as the rule sees them; ``before``: what the choices before the episode left behind."""
        return Columns(block, before)

    @abstractmethod
    def observe(self, block: Block, columns: Columns, belief: Believed, parameters: Values) -> Observed:
        """What the choices of an episode's first block say of the policy and of the weights of the added columns."""

    @abstractmethod
    def probabilities(self, block: Block, columns: Columns, belief: Beliefs, parameters: Values) -> Vector:
        """Probability of every candidate, averaged over one belief, without choices at random. Shape (rows,)."""

    @abstractmethod
    def live(self, state: Life) -> Any:
        """The decider as a policy that acts and, where it is known how, learns."""
