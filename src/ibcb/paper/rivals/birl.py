"""Bayesian inverse reinforcement learning (Ramachandran & Amir 2007), as the paper uses it.

One stationary reward vector rho explains all choices: the chosen candidate was drawn from softmax(k <rho, s>), the
prior is flat, and random-walk Metropolis-Hastings draws from the posterior. A proposal y = rho + step * normal is
accepted when f(y) - f(rho) < e with e exponential (that is -log of a uniform number) and f the negative
log-likelihood of `ibcb.numerics.choice_likelihood`.

Each comparison would cost a pass over the log, yet nearly all of them are clear: bounds on f decide those. Along a
line, phi(t) = f(x + t w), every step contributes a variance to phi'' and a third cumulant to phi''', which is at most
the variance times the range of the step's scores; so |phi'''| <= R phi'' where R bounds the ranges, phi'' changes at
most by exp(+-R t), and integrating twice (Bach 2010, self-concordant analysis for logistic regression)

    f(x) + g'w + w'Hw psi(-R)  <=  f(x + w)  <=  f(x) + g'w + w'Hw psi(R),      psi(r) = (exp(r) - 1 - r) / r^2.

What the bounds leave open is computed, so the chain is the one that plain Metropolis-Hastings would make of the same
random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from tqdm import tqdm

from ibcb.engine import one_blas_thread
from ibcb.estimators.imitator import Imitator, check_log
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.checks import boolean, generator, positive, whole
from ibcb.numerics.choice_likelihood import ChoiceLoss

#: passes that the bounds may cost before they are built anew where the chain is now; building them costs
#: about seven; not tuned finely
_PASSES_PER_BOUNDS = 15
#: moves drawn at a time: enough that calls of the generator cost nothing
_DRAW_BLOCK = 1_000


@dataclass(kw_only=True, eq=False, repr=False)
class Sampled(Imitator):
    """An imitator whose rewards are sampled."""

    inverse_temperature: float = 20.0
    random_state: int | None = None
    verbose: bool = False

    def _begin(self, log: BehaviorLog) -> tuple[float, np.random.Generator]:
        """The k of the softmax and the random numbers, of a log that is one."""
        check_log(log)
        scale = positive("inverse_temperature", self.inverse_temperature, "choices would be random")
        return scale, generator(self.random_state)

    def _recovered(self, log: BehaviorLog, coef: Vector, **fitted: Any) -> Self:
        """Fitted, with one vector for rewards and policy."""
        return self._become(log, coef_=coef, next_policy_coef_=coef, **fitted)


def progress(count: int, name: str, unit: str, *, shown: bool) -> Any:
    """Numbers from 0, with a bar on a terminal if it takes longer than a second."""
    # disable=None: silent unless stderr is a terminal.
    return tqdm(range(count), desc=name, unit=unit, delay=1, leave=False, disable=None if shown else True)


class Target(NamedTuple):
    """What the chain is drawn from: exp(-f), and what the bounds on f need to know of it, `ChoiceLoss.reach`."""

    loss: ChoiceLoss
    reach: Matrix

    def bounds(self, rho: Vector) -> Bounds:
        """The bounds around a point."""
        loss, gradient, hessian, _ = self.loss.expand(rho)
        return Bounds(rho, loss, np.concatenate([gradient[None], hessian, self.reach]))


class Bounds(NamedTuple):
    """The bounds of the module's docstring, around one point.

    ``rows`` stacks gradient, Hessian and the reach B with R <= |B w|, so that one product serves all three.
    """

    centre: Vector
    loss: float
    rows: Matrix

    def at(self, rho: Vector) -> tuple[float, float]:
        """A number below f(rho) and one above."""
        w = rho - self.centre
        products = self.rows @ w
        d = len(w)
        linear, curvature = float(products[0]), float(w @ products[1 : d + 1])
        ranges = products[d + 1 :]
        R = math.sqrt(ranges @ ranges)
        below = linear + curvature * _psi(-R)
        above = linear + curvature * _psi(R) if R < 500 else math.inf
        # Rounding, here and in the sums over the log: far more than it can be, far less than a decision turns on.
        slack = 1e-11 * (self.loss + abs(linear) + curvature)
        return self.loss + below - slack, self.loss + above + slack


class ChainState(NamedTuple):
    """Where the chain is; f there lies between ``low`` and ``high``, which are equal once it has been computed."""

    rho: Vector
    low: float
    high: float
    bounds: Bounds
    passes: int


def init(rho: Vector, target: Target) -> ChainState:
    """The chain's first state."""
    bounds = target.bounds(rho)
    return ChainState(rho, bounds.loss, bounds.loss, bounds, 0)


def step(state: ChainState, move: Vector, allowance: float, target: Target) -> tuple[ChainState, bool, int]:
    """Accept rho + move if f grows by less than ``allowance``, an exponential random number.

    Gives the state after it, whether it moved, and how many passes over the log it took.
    """
    proposal = state.rho + move
    low, high = state.bounds.at(proposal)
    if low - state.high > allowance:
        return state, False, 0
    if high - state.low < allowance:
        return ChainState(proposal, low, high, state.bounds, state.passes), True, 0
    known = state.low == state.high
    here = state.low if known else target.loss(state.rho)
    there = target.loss(proposal)
    accepted, passes = there - here < allowance, 1 if known else 2
    rho, loss = (proposal, there) if accepted else (state.rho, here)
    bounds, spent = state.bounds, state.passes + passes
    if spent >= _PASSES_PER_BOUNDS:
        spent = 0
        if not np.array_equal(rho, bounds.centre):
            bounds = target.bounds(rho)
            passes += 1
    return ChainState(rho, loss, loss, bounds, spent), accepted, passes


def _psi(r: float) -> float:
    """(exp(r) - 1 - r) / r^2; 1/2 at 0."""
    if abs(r) < 1e-4:
        return 0.5 + r / 6
    return (math.expm1(r) - r) / (r * r)


def draws(rng: np.random.Generator, d: int, step_size: float) -> Iterator[tuple[Vector, float]]:
    """The chain's random numbers without end: a move of shape (d,) and an exponential allowance for each step."""
    while True:
        moves = step_size * rng.standard_normal((_DRAW_BLOCK, d))
        yield from zip(moves, rng.standard_exponential(_DRAW_BLOCK).tolist(), strict=True)


@dataclass(kw_only=True, eq=False, repr=False)
class BIRL(Sampled):
    """Bayesian inverse reinforcement learning by Metropolis-Hastings: the paper's B-IRL.

    P(choices | rho) = prod_steps softmax(k <rho, s>)[chosen] with a flat prior on rho. The chain starts at
    ``-1/d`` plus one step of noise; ``coef_`` is the mean of the samples kept. The warm-up's steps are left out.

    Parameters
    ----------
    inverse_temperature : float
        The k of the softmax.
    step_size : float
        Standard deviation of a proposal, in every direction.
    burn_in : int
        Steps of the chain before the first sample.
    n_samples, thin : int
        Samples to keep, and steps of the chain from one to the next. The paper: 10,000 / 1,000 / 10 on the synthetic
        data, 5,000 / 500 / 10 on ML-100K.
    normalise : bool
        Divide the mean by its L1 norm, as the public code of Huyuk et al. (2022) does and the paper does not say. It
        changes the scale of ``coef_``, hence OL-Fitness, and no greedy choice.
    random_state : int, optional
    verbose : bool
        Show a progress bar on a terminal, if fitting takes longer than a second.

    Attributes
    ----------
    coef_, next_policy_coef_ : ndarray of shape (d,)
    samples_ : ndarray of shape (n_samples, d)
    acceptance_rate_ : float
    n_passes_ : int
        Passes over the log, those that build bounds included; plain Metropolis-Hastings makes one for every step.

    Examples
    --------
    >>> import ibcb
    >>> from ibcb.paper.rivals import BIRL
    >>> run = ibcb.simulate("synthetic", n_episodes=2, batch_size=100, seed=0)
    >>> model = BIRL(burn_in=500, n_samples=50, random_state=0).fit(run.log)
    >>> model.samples_.shape
    (50, 10)
    """

    step_size: float = 0.005
    burn_in: int = 10_000
    n_samples: int = 1_000
    thin: int = 10
    normalise: bool = True

    def fit(self, log: BehaviorLog, y: None = None) -> Self:
        """Sample the posterior of rho given all steps that the policy chose."""
        scale, rng = self._begin(log)
        step_size = positive("step_size", self.step_size, "the chain would stand still")
        burn_in = whole("burn_in", self.burn_in, 0, "it counts steps")
        n_samples = whole("n_samples", self.n_samples, 1, "they are averaged")
        thin = whole("thin", self.thin, 1, "1 keeps every step")
        normalise = boolean("normalise", self.normalise)

        contexts, offsets, chosen = log.step_arrays(log.policy_steps)
        # Double precision whatever the log has: a decision is a small difference of large sums.
        loss = ChoiceLoss(contexts.astype(np.float64, copy=False), offsets, chosen, scale)
        if loss.empty:
            raise ValueError(
                "no step of the log has candidates that differ, so its choices say nothing about the rewards."
            )
        d, n_steps = loss.n_features, burn_in + (n_samples - 1) * thin + 1
        samples, accepted, passes = np.empty((n_samples, d)), 0, 0
        with one_blas_thread():
            target = Target(loss, loss.reach())
            state = init(np.full(d, -1 / d) + step_size * rng.standard_normal(d), target)
            bar = progress(n_steps, "B-IRL", "step", shown=bool(self.verbose))
            for number, (move, allowance) in zip(bar, draws(rng, d, step_size), strict=False):
                state, moved, cost = step(state, move, allowance, target)
                accepted += moved
                passes += cost
                if number >= burn_in and (number - burn_in) % thin == 0:
                    samples[(number - burn_in) // thin] = state.rho
        mean = samples.mean(axis=0)
        coef = mean / np.abs(mean).sum() if normalise else mean
        rate = accepted / n_steps
        return self._recovered(log, coef, samples_=samples, acceptance_rate_=rate, n_passes_=passes)
