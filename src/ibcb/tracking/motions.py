"""How a policy moves from update to update: families of linear-Gaussian models, tracked side by side.

Each has the policy of episode n, p_n, first in its state. The weights of what a choice rule adds come next, and never
move:

*walk*      p_(n+1) = p_n + N(0, q^2 S^-1)
            The policy wanders. S is the second moment of the candidates, so that q is a move in units of scores; a
            small q remembers many episodes, a large q only the last. A *settling* walk takes q / (n + 1) for q, and a
            policy that is *still* has q = 0.
*reverting* p_(n+1) = mu + rho (p_n - mu) + N(0, q^2 S^-1)
            The policy wanders, but is drawn back to a mean mu that stays: what was chosen most for a while is not
            chosen most for ever. Most of mu is told by episodes of long ago.
*learner*   Psi_(n+1) p_(n+1) = Psi_n p_n + Phi theta + m c + N(0, sigma^2 Phi)
            The decider's own ridge regression. Phi and m, the Gram matrix and the sum of the contexts chosen in episode
            n, are in the log, and so are Psi_n and Psi_(n+1) = Psi_n + Phi. Rewards are <theta, s> + c with noise
            sigma; (theta, c) may wander by q, for rewards that are not quite linear.
*sampler*   p~_n = p_n + N(0, a^2 Psi_n^-1)
            A learner that acts on a draw p~_n from what it knows, made once an episode: the policy is the draw.

The models of a family differ in q, in q and rho, in sigma and q, or in sigma, q and a. The evidence for a model is the
likelihood of each episode's choices given the episodes before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import block_diag

from ibcb.deciders import Kind
from ibcb.numerics.arrays import Matrix, Stored, Vector
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Ridge

#: the parameters of each of some models of one motion
Models = tuple[tuple[float, ...], ...]

#: share of its length by which a policy of unknown kind may grow or shrink in a move: scores are in units of the
#: decider's own randomness, which may change too (judged by benchmarks/deciders.py)
_STRETCH = 0.05
#: with more features only a few models of each family are tracked: the covariance of one learner is as large as four
#: d x d matrices (decision 0012, benchmarks/scale.py)
MANY_FEATURES = 256


class Update(NamedTuple):
    """What moves a policy on: the update after an episode. Contexts are measured from the decider's origin.

    With b = Psi p, what a decider learns is b' = kept b + phi theta + total c; of all of the log these are 1, and the
    Gram matrix and the sum of the contexts chosen in the episode.

    Attributes
    ----------
    episode : int
        Number of the policy's episodes so far, this one included.
    psi, phi : ndarray of shape (d, d)
        Psi before the episode, and what comes to it.
    total : ndarray of shape (d,)
    kept : float
    psi_after, noise : ndarray of shape (d, d) or None
        Psi after it, psi + phi where None; and the Gram matrix by which noise of the rewards comes in, phi where None.
    """

    episode: int
    psi: Annotated[Matrix, Stored("d d")]
    phi: Annotated[Matrix, Stored("d d")]
    total: Annotated[Vector, Stored("d")]
    kept: float = 1.0
    psi_after: Annotated[Matrix, Stored("d d")] | None = None
    noise: Annotated[Matrix, Stored("d d")] | None = None

    @property
    def after(self) -> Matrix:
        """Psi after the episode."""
        return self.psi + self.phi if self.psi_after is None else self.psi_after


class Law(NamedTuple):
    """How the models of a learner go on, for whoever rolls draws of them forward.

    Attributes
    ----------
    state : Beliefs
        Of the policy that is learned, the weights of the added columns, theta and c.
    noise, wander, spread : ndarray of shape (K,)
        sigma, q, and a: how widely the policy that it acts on is drawn around the one that it has learned.
    """

    state: Beliefs
    noise: Vector
    wander: Vector
    spread: Vector


class Motion(ABC):
    """A family of models, and what each gives.

    Attributes
    ----------
    kind : Kind
        How large things are before anything is seen.
    settles : bool
        Whether moves become shorter, as those of one who learns from all it has seen.
    learns : bool
        Whether it has `rewards`.
    """

    kind: Kind
    settles: bool = False
    learns: ClassVar[bool] = False

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """One per model."""

    @property
    def still(self) -> tuple[bool, ...]:
        """Of each model, whether it stands still, or only grows longer and shorter."""
        return (False,) * len(self.names)

    @property
    def units(self) -> Vector:
        """What policies are per unit of, as each model has it, at the scale of its state."""
        return np.ones(len(self.names))

    def lengths(self, episode: int) -> Vector | None:
        """How far each model moves by chance after so many episodes; None where moves are not by chance alone."""
        return None

    def taught(self, beliefs: Beliefs, d: int) -> Beliefs | None:
        """What is believed of the policy that it has learned, where that is not the one that it acts on; else None."""
        return None

    def rewards(self, beliefs: Beliefs, model: int) -> tuple[Vector, float] | None:
        """theta and c as a model believes them now, at the scale of its state; c from the decider's origin. None of a
        motion that knows of none.
        """
        return None

    def law(self, beliefs: Beliefs, d: int) -> Law | None:
        """How its models go on learning, with what each believes; None of a motion that does not learn."""
        return None

    @abstractmethod
    def beside(self, d: int) -> int:
        """How many numbers the state holds beside a policy of d features and the weights of the added columns."""

    @abstractmethod
    def start(self, unit: Matrix, before: Ridge, total: Vector | None) -> Beliefs:
        """Before the first episode; ``unit`` is S^-1, shared among the features where scales are of whole scores,
        ``before`` and ``total`` are of the contexts chosen before it.

        Of choices before the log the Gram matrix may be known, but never the sum: then ``total`` is None.
        """

    @abstractmethod
    def move(self, beliefs: Beliefs, unit: Matrix, lesson: Update) -> Beliefs:
        """After the update."""

    @abstractmethod
    def matrix(self, size: int, lesson: Update) -> Matrix:
        """What the update makes of a state of this size, noise aside; of a motion with one model."""


@dataclass(frozen=True)
class RandomWalk(Motion):
    """Policies that wander.

    Parameters
    ----------
    kind : Kind
    label : str
    steps : tuple of float
        q of each model.
    settles : bool
        Whether moves become shorter: q / (n + 1) after n episodes.
    stretch : float
        Share of its length by which a policy may grow or shrink as well.
    """

    kind: Kind
    label: str
    steps: tuple[float, ...]
    settles: bool = False
    stretch: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        if self.label == "still":
            return (self.label,)
        return tuple(f"{self.label}(q={q:g})" for q in self.steps)

    @property
    def still(self) -> tuple[bool, ...]:
        return tuple(q == 0 for q in self.steps)

    def beside(self, d: int) -> int:
        return 0

    def lengths(self, episode: int) -> Vector:
        q = np.array(self.steps)
        return q / (episode + 1) if self.settles else q

    def start(self, unit: Matrix, before: Ridge, total: Vector | None) -> Beliefs:
        return _alike(len(self.steps), block_diag(_policy_prior(self.kind, unit), _added_prior(self.kind)))

    def move(self, beliefs: Beliefs, unit: Matrix, lesson: Update) -> Beliefs:
        d = len(unit)
        noise = (self.lengths(lesson.episode) ** 2)[:, None, None] * unit
        if self.stretch:
            own = self.stretch * beliefs.mean[:, :d]
            noise = noise + own[:, :, None] * own[:, None]
        return beliefs.wandered(noise)

    def matrix(self, size: int, lesson: Update) -> Matrix:
        return np.eye(size)


@dataclass(frozen=True)
class Reverting(Motion):
    """Policies that wander about a mean of their own, mu; it is part of the state.

    Parameters
    ----------
    kind : Kind
    steps, kept : tuple of float
        q and rho of each model, rho below 1.
    """

    kind: Kind
    steps: tuple[float, ...]
    kept: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"reverting(q={q:g}, rho={rho:g})" for q, rho in zip(self.steps, self.kept, strict=True))

    def beside(self, d: int) -> int:
        return d

    def lengths(self, episode: int) -> Vector:
        return np.array(self.steps)

    def start(self, unit: Matrix, before: Ridge, total: Vector | None) -> Beliefs:
        d, mean = len(unit), _policy_prior(self.kind, unit)
        beliefs = _alike(len(self.steps), block_diag(mean, _added_prior(self.kind), mean))
        beliefs.covariance[:, :d, -d:] = beliefs.covariance[:, -d:, :d] = mean
        # How far it has wandered off, if it always moved like this.
        away = np.array(self.steps) ** 2 / (1 - np.array(self.kept) ** 2)
        return beliefs.wandered(away[:, None, None] * unit)

    def move(self, beliefs: Beliefs, unit: Matrix, lesson: Update) -> Beliefs:
        d, rho = len(unit), np.array(self.kept)[:, None, None]
        mean, covariance = beliefs.mean[:, :, None].copy(), beliefs.covariance.copy()
        for rows in (mean, covariance, np.swapaxes(covariance, 1, 2)):
            rows[:, :d] = rho * rows[:, :d] + (1 - rho) * rows[:, -d:]
        noise = (self.lengths(lesson.episode) ** 2)[:, None, None] * unit
        return Beliefs(mean[:, :, 0], covariance).wandered(noise)

    def matrix(self, size: int, lesson: Update) -> Matrix:
        (rho,) = self.kept
        matrix, d = np.eye(size), len(lesson.total)
        matrix[:d] = rho * matrix[:d] + (1 - rho) * matrix[-d:]
        return matrix


@dataclass(frozen=True)
class Learner(Motion):
    """Policies that learn by ridge regression; the reward parameters (theta, c) are part of the state.

    Parameters
    ----------
    kind : Kind
    noise, wander : tuple of float
        sigma and q of each model.
    """

    kind: Kind
    noise: tuple[float, ...]
    wander: tuple[float, ...]

    settles = True
    learns = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"learner(sigma={s:g}, q={q:g})" for s, q in zip(self.noise, self.wander, strict=True))

    def beside(self, d: int) -> int:
        return d + 1

    def start(self, unit: Matrix, before: Ridge, total: Vector | None) -> Beliefs:
        scales, d = self.kind.scales, len(unit)
        first = _policy_prior(self.kind, unit) if total is None else np.zeros((d, d))
        rewards = scales.rewards**2 * unit
        state = block_diag(first, _added_prior(self.kind), rewards, scales.rewards**2)
        beliefs = _alike(len(self.noise), state)
        if total is None:
            return beliefs
        # The choices before the log taught the decider as any others.
        taught = Update(0, np.diag(before.penalty), before.phi, total)
        matrix, noise, wander = self._transition(unit, taught, wander=np.zeros(len(self.noise)))
        return beliefs.moved(matrix, noise + scales.first_policy**2 * unit, wander)

    def move(self, beliefs: Beliefs, unit: Matrix, lesson: Update) -> Beliefs:
        return beliefs.moved(*self._transition(unit, lesson, np.array(self.wander)))

    def matrix(self, size: int, lesson: Update) -> Matrix:
        matrix, d = np.eye(size), len(lesson.total)
        matrix[:d] = self._transition(np.zeros((d, d)), lesson, np.zeros(1))[0]
        return matrix

    def _transition(self, unit: Matrix, lesson: Update, wander: Vector) -> tuple[Matrix, Matrix, Matrix]:
        """As `Beliefs.moved` wants it."""
        d, beside = len(unit), len(self.kind.added)
        back = np.linalg.inv(lesson.after).astype(np.float64, copy=False)
        taught = back @ lesson.phi
        W = np.zeros((len(wander), d + 1, d + 1))
        W[:, :-1, :-1] = (wander**2)[:, None, None] * unit
        W[:, -1, -1] = wander**2
        matrix = np.concatenate(
            [back @ (lesson.kept * lesson.psi), np.zeros((d, beside)), taught, (back @ lesson.total)[:, None]], axis=1
        )
        came = taught if lesson.noise is None else back @ lesson.noise
        noise = (np.array(self.noise) ** 2)[:, None, None] * (came @ back)
        return matrix, noise, W

    def rewards(self, beliefs: Beliefs, model: int) -> tuple[Vector, float]:
        added = len(self.kind.added)
        d = (beliefs.mean.shape[1] - 1 - added) // 2
        x = beliefs.mean[model, d + added :]
        return x[:-1], float(x[-1])

    def law(self, beliefs: Beliefs, d: int) -> Law:
        return Law(beliefs, np.array(self.noise), np.array(self.wander), np.zeros(len(self.noise)))


@dataclass(frozen=True)
class PosteriorSampler(Learner):
    """Learners that act on a draw from what they know, made once an episode; the state is (draw, p, theta, c).

    Parameters
    ----------
    spread : tuple of float
        a of each model.
    """

    spread: tuple[float, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        models = zip(self.noise, self.wander, self.spread, strict=True)
        return tuple(f"sampler(sigma={s:g}, q={q:g}, a={a:g})" for s, q, a in models)

    def beside(self, d: int) -> int:
        return 2 * d + 1

    def start(self, unit: Matrix, before: Ridge, total: Vector | None) -> Beliefs:
        return self._drawn(super().start(unit, before, total), before.psi)

    def move(self, beliefs: Beliefs, unit: Matrix, lesson: Update) -> Beliefs:
        return self._drawn(super().move(_without_draw(beliefs, len(unit)), unit, lesson), lesson.after)

    def matrix(self, size: int, lesson: Update) -> Matrix:
        d = len(lesson.total)
        learned, matrix = super().matrix(size - d, lesson), np.zeros((size, size))
        matrix[:, d:] = np.concatenate([learned[:d], learned])
        return matrix

    @property
    def units(self) -> Vector:
        return np.array(self.spread)

    def taught(self, beliefs: Beliefs, d: int) -> Beliefs:
        return _without_draw(beliefs, d).of_first(d)

    def rewards(self, beliefs: Beliefs, model: int) -> tuple[Vector, float]:
        return super().rewards(_without_draw(beliefs, (beliefs.mean.shape[1] - 1) // 3), model)

    def law(self, beliefs: Beliefs, d: int) -> Law:
        return super().law(_without_draw(beliefs, d), d)._replace(spread=np.array(self.spread))

    def _drawn(self, learned: Beliefs, psi: Matrix) -> Beliefs:
        """With a draw from N(p, a^2 Psi^-1) before what has been learned."""
        d = len(psi)
        twice = np.r_[:d, : learned.mean.shape[1]]
        drawn = Beliefs(learned.mean[:, twice], learned.covariance[:, twice][:, :, twice])
        return drawn.wandered((np.array(self.spread) ** 2)[:, None, None] * np.linalg.inv(psi))


def _without_draw(beliefs: Beliefs, d: int) -> Beliefs:
    return Beliefs(beliefs.mean[:, d:], beliefs.covariance[:, d:, d:])


#: the motions by name, each made of a kind and the parameters of its models; a new motion is a class and a line here
MOTIONS: dict[str, Callable[[Kind, Models], Motion]] = {
    "walk": lambda kind, models: RandomWalk(kind, "walk", _column(models)),
    "settling": lambda kind, models: RandomWalk(kind, "settling", _column(models), settles=True, stretch=_STRETCH),
    "restless": lambda kind, models: RandomWalk(kind, "restless", _column(models), stretch=_STRETCH),
    "still": lambda kind, models: RandomWalk(kind, "still", _column(models)),
    "reverting": lambda kind, models: Reverting(kind, _column(models), _column(models, 1)),
    "learner": lambda kind, models: Learner(kind, _column(models), _column(models, 1)),
    "sampler": lambda kind, models: PosteriorSampler(kind, _column(models), _column(models, 1), _column(models, 2)),
}


def models_of(kind: Kind, d: int) -> tuple[Models, ...]:
    """The models with which a kind is tracked from the start, by family."""
    return tuple(family.models if d <= MANY_FEATURES else family.few for family in kind.motions.families)


def motions_of(kind: Kind, models: tuple[Models, ...]) -> tuple[Motion, ...]:
    """The motions of a kind, first those that only walk, with some of its models each."""
    families = zip(kind.motions.families, models, strict=True)
    return tuple(MOTIONS[family.motion](kind, own) for family, own in families)


def _column(models: Models, place: int = 0) -> tuple[float, ...]:
    return tuple(model[place] for model in models)


def _policy_prior(kind: Kind, unit: Matrix) -> Matrix:
    return kind.scales.policy**2 * unit


def _added_prior(kind: Kind) -> Matrix:
    """Of the weights of the added columns. Shape (k, k)."""
    return np.diag(kind.added**2)


def _alike(count: int, covariance: Matrix) -> Beliefs:
    """So many beliefs N(0, covariance)."""
    return Beliefs(np.zeros((count, len(covariance))), np.tile(covariance, (count, 1, 1)))
