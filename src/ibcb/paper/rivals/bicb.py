"""Bayesian inverse contextual bandits (Huyuk, Jarrett & van der Schaar 2022), as the paper uses them.

Expectation maximisation for the model of `ibcb.paper.rivals.gibbs`: a decider that updates its belief after every step,
on rewards that are latent here. The E step samples beliefs and rewards; the M step sets rho_env to the least squares of
the mean rewards on the chosen contexts, and takes one RMSProp step uphill on log b, the weight of the decider's prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ibcb.engine import one_blas_thread
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.checks import boolean, positive, whole
from ibcb.paper.rivals.birl import Sampled, progress
from ibcb.paper.rivals.gibbs import GibbsBeliefs, GibbsSteps, draws, init, prepare, prior_slope, step

#: the public code learns log(b) / 20, by RMSProp with these settings
_LOG_PRIOR_UNIT = 20.0
_LEARNING_RATE, _DECAY = 0.001, 0.9


def expectation(
    beliefs: GibbsBeliefs, reward_coef: Vector, rng: Generator, *, n_sweeps: int, n_dropped: int, determinant: bool
) -> tuple[Vector, float]:
    """The E step: mean rewards, shape (T - 1,), and mean slope in b, over the sweeps that are not dropped."""
    T, d = beliefs.steps.x.shape
    rewards = beliefs.chain.x @ reward_coef + beliefs.sigma * rng.standard_normal(T)
    rewards[0] = 1
    state = init(rewards, beliefs)
    total, slope, number = np.zeros(T), 0.0, 0
    for block in draws(rng, n_sweeps, T, d):
        path, noise = [state.moments], []
        for sweep in prepare(block, beliefs, reward_coef):
            state, drawn = step(state, sweep, beliefs)
            number += 1
            if number <= n_dropped:
                path[0] = state.moments
            else:
                total += state.rewards
                path.append(state.moments)
                noise.append(drawn)
        if noise:
            slope += prior_slope(beliefs, np.array(path), np.array(noise), determinant=determinant)
    kept = n_sweeps - n_dropped
    return total[1:] / kept, slope / kept


@dataclass(kw_only=True, eq=False, repr=False)
class BICB(Sampled):
    """Bayesian inverse contextual bandits: the paper's B-ICB, and with ``sample`` its B-ICB-S.

    It models a decider that updates its belief after every single step, on rewards that are latent here: equations in
    `ibcb.paper.rivals.gibbs`. The warm-up's steps are left out. ``coef_`` is rho_env divided by its L1 norm.

    Parameters
    ----------
    sample : float, optional
        Share of the policy's steps to use, drawn uniformly and kept in order; None: all of them. Time grows linearly
        with the steps, and the paper takes 1% of the synthetic log, 0.5% of ML-100K.
    inverse_temperature : float
        The k of the softmax.
    sigma : float
        Standard deviation of the rewards.
    n_iterations : int
        Rounds of expectation maximisation.
    n_sweeps, n_dropped : int
        Gibbs sweeps of every round, and how many of them come before the first one that counts.
    pinv : bool
        The paper's setting for ML-100K, whose chosen contexts do not span all directions: pseudo-inverse in the least
        squares, and no determinant in the slope of the prior weight b.
    random_state : int, optional
    verbose : bool
        Show a progress bar on a terminal, if fitting takes longer than a second.

    Attributes
    ----------
    coef_, next_policy_coef_ : ndarray of shape (d,)
    prior_weight_ : float
        b after the last round.
    steps_ : ndarray of shape (T,)
        The steps of the log that were used.

    Examples
    --------
    >>> import ibcb
    >>> from ibcb.paper.rivals import BICB
    >>> run = ibcb.simulate("synthetic", n_episodes=2, batch_size=100, seed=0)
    >>> model = BICB(sample=0.2, n_iterations=3, n_sweeps=40, n_dropped=20, random_state=0).fit(run.log)
    >>> len(model.steps_), round(float(abs(model.coef_).sum()), 6)
    (40, 1.0)
    """

    sample: float | None = 0.01
    sigma: float = 0.1
    n_iterations: int = 100
    n_sweeps: int = 2_000
    n_dropped: int = 1_000
    pinv: bool = False

    def fit(self, log: BehaviorLog, y: None = None) -> Self:
        """Expectation maximisation over a sample of the steps that the policy chose."""
        scale, rng = self._begin(log)
        sigma = positive("sigma", self.sigma, "it is a standard deviation")
        n_iterations = whole("n_iterations", self.n_iterations, 1, "each is one step of expectation maximisation")
        n_dropped = whole("n_dropped", self.n_dropped, 0, "it counts sweeps")
        n_sweeps = whole("n_sweeps", self.n_sweeps, n_dropped + 1, f"the first n_dropped={n_dropped} do not count")
        pinv = boolean("pinv", self.pinv)
        sweeps: Any = {"n_sweeps": n_sweeps, "n_dropped": n_dropped, "determinant": not pinv}

        picked = _sample(log, self.sample, rng)
        steps = GibbsSteps(log, picked, scale)
        solve = _least_squares(steps.x[:-1], pinv)
        reward_coef = np.full(log.n_features, -1 / log.n_features)
        log_b, mean_square = 0.0, 0.0
        rounds = progress(n_iterations, "B-ICB", "round", shown=bool(self.verbose))
        # One thread: these products are too small to share, and the bits do not depend on the machine. A test whose
        # odds overflow is won, as it should be.
        with one_blas_thread(), np.errstate(over="ignore"):
            for _ in rounds:
                b = math.exp(log_b)
                beliefs = GibbsBeliefs(steps, b, sigma)
                rewards, slope = expectation(beliefs, reward_coef, rng, **sweeps)
                reward_coef = solve @ rewards
                gradient = _LOG_PRIOR_UNIT * b * slope
                mean_square = _DECAY * mean_square + (1 - _DECAY) * gradient**2
                log_b += _LOG_PRIOR_UNIT * _LEARNING_RATE * gradient / (math.sqrt(mean_square) + 1e-8)
        coef = reward_coef / np.abs(reward_coef).sum()
        return self._recovered(log, coef, prior_weight_=math.exp(log_b), steps_=picked)


def _sample(log: BehaviorLog, sample: Any, rng: Generator) -> NDArray[np.int64]:
    """Steps of the policy, all or a uniform sample of them, in order."""
    steps = np.arange(log.policy_steps.start, log.policy_steps.stop)
    if sample is not None:
        share = positive("sample", sample, "it is the share of steps to use")
        if share > 1:
            raise ValueError(f"sample={sample!r} is above 1; it is the share of steps to use, None uses all.")
        count = round(share * len(steps))
        if count < 2:
            raise ValueError(
                f"sample={sample!r} of {len(steps)} steps leaves {count}; the sampler needs two or more. Raise sample."
            )
        steps = np.sort(rng.choice(steps, size=count, replace=False))
    elif len(steps) < 2:
        raise ValueError("the log has one step of the policy; the sampler needs two or more.")
    if (np.diff(log.step_offsets)[steps] == 1).all():
        why = "so their choices say nothing about the rewards"
        raise ValueError(f"all {len(steps)} steps used have one candidate, {why}.")
    return steps


def _least_squares(x: Matrix, pinv: bool) -> Matrix:
    """The matrix, shape (d, n), that takes rewards of the contexts x to reward parameters."""
    gram = x.T @ x
    if pinv:
        pseudo: Matrix = np.linalg.pinv(gram, hermitian=True) @ x.T
        return pseudo
    rank, d = np.linalg.matrix_rank(x), x.shape[1]
    if rank < d:
        raise ValueError(
            f"the {len(x)} chosen contexts used span {rank} of {d} directions, so least squares has no single answer. "
            "Set pinv=True, raise sample, or leave out features that do not vary."
        )
    return np.asarray(np.linalg.solve(gram, x.T), dtype=np.float64)
