"""What every kind of decider has: a choice rule, the motions it is tracked with, words, and a live policy.

A kind answers two questions about an episode. *What do its choices say of the policy?* `Kind.observe` finds that out
where the rows live, as Gaussian factors that beliefs of any motion can learn from. *How probable is each candidate,
given what is believed of the policy?* `Kind.propensities`, the choice rule averaged over the belief.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, CandidateMoments
from ibcb.numerics.averages import best_of_draws
from ibcb.numerics.contexts import Contexts
from ibcb.numerics.gaussians import Beliefs, Site
from ibcb.numerics.ridge import Frame, Regularization, Ridge

__all__ = [
    "FIRST_STRAY",
    "RANDOM_SHARES",
    "Believed",
    "Family",
    "Kind",
    "Life",
    "Motions",
    "Observed",
    "Scales",
    "Words",
    "grid",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: share of straying steps that is assumed before the first episode is seen; not tuned: the search moves on from it
FIRST_STRAY = 0.01
#: shares of choices at random between which is told; the least cannot be told from none
RANDOM_SHARES = tuple(np.geomspace(1e-4, 1.0, 41).tolist())


@dataclass(frozen=True)
class Scales:
    """How large things are before anything is seen, in units of scores; judged by benchmarks/forecast.py.

    Attributes
    ----------
    policy, rewards : float
        Deviations of whole scores, or of what one feature adds to them where ``per_feature``.
    alpha : float
        Deviation of alpha; 0 where it is not tracked.
    per_feature : bool
    first_policy : float
        How far the first policy may lie from what the learner's law makes of the choices before the log.
    """

    policy: float
    rewards: float = 0.0
    alpha: float = 0.0
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
    """

    motion: str
    models: tuple[tuple[float, ...], ...]
    early: tuple[float, ...]
    few: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Motions:
    """Which motions a kind is tracked with, side by side.

    Attributes
    ----------
    families : tuple of Family
        Walks first.
    fading : float
        Weight that the evidence so far keeps with every further episode.
    """

    families: tuple[Family, ...]
    fading: float = 1.0


def grid(*axes: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """All combinations of parameters, the first varying fastest."""
    return tuple(tuple(reversed(each)) for each in product(*reversed(axes)))


@dataclass(frozen=True)
class Words:
    """How a kind is spoken of, in notes, on the page and in verdicts.

    Attributes
    ----------
    meaning : str
        What is said where the log chose the kind: a clause.
    title : str
        What it does, in a few words.
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
    """

    meaning: str
    title: str
    length: str = "not"
    explored: str = ""
    exploration: str = ""
    misfits: str = "Look here first for changed records, or for choices that somebody else made."
    misfit: str = "The choices of a decider of this kind have no exact explanation"
    contradictions: str = "No reward weights explain these choices together, as is usual for a decider that draws."


class Believed(NamedTuple):
    """What is believed of an episode's policy before its choices are seen.

    Attributes
    ----------
    best : Beliefs
        Of the model preferred.
    leaders : tuple of Beliefs
        Of the likeliest model of each family, walks first.
    evidence : tuple of float
        Log-likelihood of the choices so far under each leader.
    """

    best: Beliefs
    leaders: tuple[Beliefs, ...]
    evidence: tuple[float, ...]


class Observed(NamedTuple):
    """What the choices of an episode say of its policy.

    Attributes
    ----------
    sites : tuple of Site
        One for each family of models to learn from.
    stray : float
        Share of the steps that strayed; 0 where the kind has no such thing.
    at_random : ndarray of shape (S,) or None
        Of kinds that choose at random now and then, the log-likelihood of the episode's choices for each of the shares
        `RANDOM_SHARES`.
    """

    sites: tuple[Site, ...]
    stray: float = 0.0
    at_random: Vector | None = None


class Life(NamedTuple):
    """What a decider has learned, to bring it to life with.

    Attributes
    ----------
    gram, moment : ndarray of shape (d, d) and (d,)
        S'S and S'R of what it has learned.
    coef : ndarray of shape (d,)
        Its policy.
    alpha : float
        Its exploration weight, in the unit of the policy: of a softmax the temperature.
    share : float
        Of its choices that are made at random.
    draws : str
        How often a Thompson sampler draws: every "step" or "episode".
    random_state : int, Generator or None
    """

    gram: Matrix
    moment: Vector
    coef: Vector
    alpha: float
    share: float
    draws: str
    random_state: Any


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of decider with its parameters.

    Parameters
    ----------
    l2 : float
        Ridge parameter, of kinds that learn.
    top_k : int
        How many of its best candidates the decider draws from, of kinds that do.
    frame : Frame, optional
        The units of l2, of kinds that learn; None for those of the log.
    """

    l2: float = 1.0
    top_k: int = 1
    frame: Frame | None = None
    rate: float = 1.0

    name: ClassVar[str]
    words: ClassVar[Words]
    scales: ClassVar[Scales]
    motions: ClassVar[Motions]
    #: whether it learns as ridge regression does: then l2 matters, and rewards are part of its state
    learns: ClassVar[bool] = False
    #: values of l2 by its units that "auto" chooses from: a factor of three, or of ten where features are standardised,
    #: because the choice is not sharp
    penalties: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "scaled": (0.1, 0.3, 1.0, 3.0, 10.0),
        "standardized": (0.3, 3.0),
    }
    #: whether it adds a confidence bonus to what it expects: then only weights per unit of alpha are known
    adds_bonus: ClassVar[bool] = False
    #: whether its choices are drawn: then no policy explains all of them
    draws: ClassVar[bool] = True
    #: of Thompson samplers, how often they draw: every "step" or "episode"
    draws_every: ClassVar[str | None] = None
    #: whether it draws the less widely the more it has learned, so that its luck leaves nothing open
    narrows: ClassVar[bool] = False
    #: whether it draws by the softmax of its scores over a temperature, which is to be told
    has_temperature: ClassVar[bool] = False
    #: whether its policy can change; if not, what comes is predicted by the model that is still
    moves: ClassVar[bool] = True
    #: whether it draws from its best candidates, so that top_k matters
    draws_from_best: ClassVar[bool] = False
    #: whether it takes any candidate at random now and then, and how often is to be told
    explores_at_random: ClassVar[bool] = False
    #: the largest share of choices at random that is allowed for: of kinds that do not, some records may be wrong
    most_random: ClassVar[float] = 1.0
    #: how much of its variance a belief keeps where choices are foreseen: factors are found with more than any model
    #: has, so that all can learn from them (judged by benchmarks/propensities.py and benchmarks/selection.py)
    doubt: ClassVar[float] = 0.3
    #: whether models are compared by choices predicted too, not by evidence alone
    compares_predictions: ClassVar[bool] = False
    #: models of a family are believed together, their weights falling by e with so much evidence per feature; 0: only
    #: the best. Of choices that are drawn evidence is approximate, the more so the more weights there are
    tempering: ClassVar[float] = 0.0
    #: models less likely than the best of their family by more than this are not believed, whatever they predicted
    hopeless: ClassVar[float] = np.inf

    @property
    def label(self) -> str:
        """The kind with its parameter, such as "sbucb(l2=0.3)"."""
        if not self.learns:
            return self.name
        name = f"{self.name}-episode" if self.draws_every == "episode" else self.name
        return f"{name}(l2={self.l2:g})" if self.frame is None else f"{name}(l2={self.l2:g}, {self.units})"

    @property
    def regularization(self) -> Regularization:
        """l2 with its units, and the share of the decider's choices that it is to be weighed against."""
        return Regularization(self.l2, self.frame, self.rate)

    @property
    def own_ridge(self) -> dict[str, Any]:
        """l2 and origin of a live policy, in the units of the log."""
        frame = self.frame
        return {"l2": self.l2} if frame is None else {"l2": self.l2 * frame.scale**2, "origin": frame.origin}

    @property
    def units(self) -> str:
        """Of l2: "own" for those of the log, or the name of the frame."""
        return self.regularization.units

    @property
    def deterministic(self) -> bool:
        """Whether its policy alone decides: it neither draws nor takes any candidate at random."""
        return not (self.draws or self.explores_at_random)

    @property
    def title(self) -> str:
        """What it does, in a few words."""
        return self.words.title

    @abstractmethod
    def unit(self, candidates: CandidateMoments) -> Matrix:
        """S^-1, the inverse second moment of the candidates: the unit of policies. Shape (d, d)."""

    @abstractmethod
    def observe(self, block: Block, before: Ridge, believed: Believed, stray: float) -> Observed:
        """What the choices of an episode's first block say of its policy; ``stray``: of the episode before.

        Runs where the rows live, so what it gives is small and can be sent.
        """

    def drawn(self, block: Block, before: Ridge, believed: Beliefs) -> tuple[Contexts, Vector, Matrix]:
        """Contexts X, and mean and covariance of w, such that the decider takes the candidate with the best X w."""
        return block.contexts, believed.mean[0], believed.covariance[0]

    def propensities(self, block: Block, before: Ridge, believed: Beliefs, draws: int, *, scale: float = 0.0) -> Vector:
        """Probability of every candidate, given one belief about the policy. Shape (rows,).

        Parameters
        ----------
        block : Block
        before : Ridge
            Of all choices before the episode.
        believed : Beliefs
            Of the policy, and of alpha where it is tracked.
        draws : int
            From the belief, that probabilities are averaged over.
        scale : float
            Of scores, where one of the best candidates is drawn by their softmax.
        """
        X, mean, covariance = self.drawn(block, before, believed)
        return best_of_draws(X, block.offsets, mean, covariance, draws)

    @abstractmethod
    def scores(self, block: Block, before: Ridge, policy: Vector) -> Vector:
        """Of every candidate, to a decider with this policy per unit of alpha, exploration included. Shape (rows,)."""

    def imagine(self, contexts: NDArray[Any], counts: NDArray[np.int64], p: Vector, now: Ridge, rng: Any) -> Any:
        """Scores of imagined candidate sets, exploration included, for projecting a learner forward. Shape (rows,)."""
        raise NotImplementedError(f"{self.name} cannot be projected forward: how it learns is not known.")

    @abstractmethod
    def live(self, life: Life) -> Any:
        """The decider as a policy that acts and, where it is known how, learns."""
