"""The Gibbs sampler inside B-ICB (Huyuk, Jarrett & van der Schaar 2022): beliefs and rewards that nobody logged.

The decider updates a belief after every step t = 0 ... T - 1. With x_t the chosen context, rewards r_t, prior weight b
and prior mean mu = -1/d in every coordinate, N_t = b I + sum_(i<t) x_i x_i', y_t = b mu + sum_(i<t) r_i x_i and

    rho_t ~ N(N_t^-1 y_t, sigma^2 N_t^-1),   choice_t ~ softmax(k <rho_t, s>),   r_t ~ N(<rho_env, x_t>, sigma^2).

A sweep takes each rho_t from two fresh draws of its belief by one Metropolis-Hastings test, and then all rewards from
their exact conditional given rho, with precision Q / sigma^2 (`RewardChain`). Write m_i = <rho_env, x_i>,
e_t = rho_t - N_t^-1 y_t for the noise of the draws, and v_i = <x_i, sum_(t>i) e_t>. The conditional's mean is

    Q^-1 (m_i + <x_i, sum_(t>i) rho_t - b N_t^-1 mu>)_i  =  r + Q^-1 (m + v - r)

with r the rewards of the sweep before, because <x_i, sum_(t>i) N_t^-1 (y_t - b mu)> is (Q r - r)_i. So rho itself is
never needed: noise and the scores it adds are products of matrices, made for many sweeps at once (`prepare`), and what
is left for a sweep is linear in T. Those products and the tests are in single precision, as all of the public code is;
whatever adds up over steps or sweeps is in double.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ibcb.log import BehaviorLog

Array = NDArray[np.float64]

#: normal numbers drawn at a time: enough for efficient products, few enough to stay in the processor's cache;
#: not tuned finely
_DRAW_BLOCK = 1 << 16
#: observations; not tuned finely: dense products of this size cost little, and steps between them are few
_STRETCH = 256


class RewardChain:
    """The conditional of the latent rewards: a linear-Gaussian chain, filtered backwards and drawn forwards.

    Observation i is a context x_i with a reward r_i; x_0 stands for the prior and its reward is known. The belief draw
    of step t looks at u_t = sum_(i<=t) r_i x_i with precision N_t^-1 / sigma^2, and every latent r_i has prior variance
    sigma^2. Given the draws, the latent rewards are jointly normal with precision Q / sigma^2,

        Q = I + sum_t X_t N_t^-1 X_t',      (X_t has the rows x_i with 1 <= i <= t, and zeros below)

    which is dense. But all that the past tells the future is u, a vector of d numbers, so the future's message about it
    has a d x d precision P_t, and eliminating rewards from the last to the first gives

        P_t = N_t^-1 + P_(t+1) - k_(t+1) w_(t+1) w_(t+1)',   k_t = 1 + x_t' P_t x_t,   w_t = P_t x_t / k_t,
        Q = (I + F)' diag(k) (I + F),                         F_ti = <w_t, x_i> for i < t, else 0.

    This is the backward filter: (I + F)' a = v runs from the end (the messages' means), (I + F) r = a / k from the
    start (the draws, given u). Both go by stretches: dense and inverted once inside a stretch, one vector of d numbers
    between.

    Vectors have an entry, always 0 in results, for the known reward.

    Parameters
    ----------
    x : ndarray of shape (T, d)
        The observations' contexts, the prior's first.
    inverse : ndarray of shape (T, d, d)
        N_t^-1 of the beliefs that have seen observations 0 to t.

    Building costs O(T (d^2 + 256)), every product after that O(T (d + 256)).
    """

    def __init__(self, x: Array, inverse: Array) -> None:
        T, d = x.shape
        # An infinite k and no w: however much evidence arrives, what is known does not move.
        self.x, self.w, self.k = x, np.zeros((T, d)), np.full(T, np.inf)
        P = np.zeros((d, d))
        for t in range(T - 1, 0, -1):
            P += inverse[t]
            Px = P @ x[t]
            k = 1 + float(x[t] @ Px)
            w = Px / k
            P -= np.outer(w, Px)
            self.w[t], self.k[t] = w, k
        self._stretches: list[tuple[slice, Array]] = []
        for first in range(0, T, _STRETCH):
            part = slice(first, min(first + _STRETCH, T))
            unit = np.tril(self.w[part] @ x[part].T, -1)
            unit.flat[:: len(unit) + 1] = 1
            inverted = lapack.dtrtri(unit, lower=1, unitdiag=1)[0]
            self._stretches.append((part, np.ascontiguousarray(inverted)))
        # One stretch: Q^-1 itself saves half the work.
        self._dense: Array | None = None if T > _STRETCH else (inverted / self.k) @ inverted.T

    def solve(self, v: Array) -> Array:
        """Q^-1 v, for v of shape (T,)."""
        if self._dense is not None:
            product: Array = self._dense @ v
            return product
        a = np.empty_like(v)
        message = np.zeros(self.x.shape[1])
        for part, inverse in reversed(self._stretches):
            a[part] = (v[part] - self.x[part] @ message) @ inverse
            message += a[part] @ self.w[part]
        a /= self.k
        return self._forward(a)

    def colour(self, white: Array) -> Array:
        """The Cholesky factor of Q^-1 times white noise, shape (T, draws)."""
        return self._forward(white / np.sqrt(self.k)[:, None])

    def _forward(self, b: Array) -> Array:
        """(I + F)^-1 b, for b of shape (T,) or (T, draws)."""
        r = np.empty_like(b)
        u = np.zeros((self.x.shape[1], *b.shape[1:]))
        for part, inverse in self._stretches:
            r[part] = inverse @ (b[part] - self.w[part] @ u)
            u += self.x[part].T @ r[part]
        return r


class GibbsSteps:
    """What the sampler sees of T steps of a log.

    Attributes
    ----------
    x : ndarray of shape (T, d)
        Chosen contexts.
    leads : ndarray of shape (T, J, d)
        k (s_j - x_t) for the other candidates; steps with fewer than J of them are filled up with zeros.
    missing : ndarray of shape (J, T) or None
        -inf where `leads` is filled up, so that no candidate scores there, 0 elsewhere; None if nothing is.
    gram : ndarray of shape (T, d, d)
        sum_(i<t) x_i x_i'.
    """

    def __init__(self, log: BehaviorLog, steps: NDArray[np.int64], scale: float) -> None:
        contexts, chosen = log.contexts, log.chosen_rows[steps]
        self.x: Array = contexts[chosen].astype(np.float64)
        counts = np.diff(log.step_offsets)[steps]
        position = np.arange(int(counts.max()) - 1)
        other = position + (position >= log.chosen[steps][:, None])
        there = position < (counts - 1)[:, None]
        rows = np.where(there, log.step_offsets[steps][:, None] + other, chosen[:, None])
        self.leads: Array = scale * (contexts[rows].astype(np.float64) - self.x[:, None])
        self.missing: Array | None = None if there.all() else np.where(there, 0.0, -np.inf).T
        T, d = self.x.shape
        self.gram: Array = np.zeros((T, d, d))
        np.cumsum(self.x[:-1, :, None] * self.x[:-1, None, :], axis=0, out=self.gram[1:])


class GibbsBeliefs:
    """All that depends on the prior weight b alone, for every E step anew.

    Attributes
    ----------
    inverse, root : ndarray of shape (T, d, d)
        N_t^-1 and its root L_t^-T, where N_t = L_t L_t'.
    observed : ndarray of shape (d, T)
        What the beliefs add up: first the prior, which counts as an observation of b mu with reward 1, then the chosen
        contexts of all steps but the last, whose reward reaches no belief.
    chain : RewardChain
        The rewards' conditional.
    """

    def __init__(self, steps: GibbsSteps, b: float, sigma: float) -> None:
        d = steps.x.shape[1]
        self.steps, self.sigma = steps, sigma
        self.mu = np.full(d, -1 / d)
        self.root: Array = np.linalg.inv(np.linalg.cholesky(steps.gram + b * np.eye(d))).transpose(0, 2, 1)
        self.inverse: Array = self.root @ self.root.transpose(0, 2, 1)
        observed = np.concatenate([b * self.mu[None], steps.x[:-1]])
        self.observed: Array = np.ascontiguousarray(observed.T)
        self.chain = RewardChain(observed, self.inverse)
        # From normal numbers to noise and the scores it adds, (T, d, d + J); from moments to scores, (J, d, T).
        both = np.concatenate([self.root, steps.leads @ self.root], axis=1)
        self.noise_and_scores = np.ascontiguousarray(sigma * both.transpose(0, 2, 1), dtype=np.float32)
        self.moment_scores: Array = np.ascontiguousarray((steps.leads @ self.inverse).transpose(1, 2, 0))


class Draws(NamedTuple):
    """Random numbers of n sweeps: normal `rho` (T, n, 2, d) and `rewards` (T, n), exponential `allowance` (n, T)."""

    rho: Array
    rewards: Array
    allowance: Array


def draws(rng: np.random.Generator, sweeps: int, T: int, d: int) -> Iterator[Draws]:
    """Random numbers of that many sweeps, in blocks of a few; the next block overwrites the last one's ``rho``."""
    block = max(1, _DRAW_BLOCK // (2 * T * d))
    rho = np.empty((T, block, 2, d))
    for first in range(0, sweeps, block):
        n = min(block, sweeps - first)
        rho = rho if n == block else np.empty((T, n, 2, d))
        rng.standard_normal(out=rho)
        yield Draws(rho, rng.standard_normal((T, n)), rng.standard_exponential((n, T)))


class Sweep(NamedTuple):
    """One sweep's random numbers, worked up; time is the last axis, the long one, for speed.

    ``noise`` (2, d, T) and ``scores`` (2, J, T) of the two draws of every rho, ``odds`` (T,) for their tests, and
    ``rewards`` (T,): noise with the covariance sigma^2 Q^-1, plus Q^-1 m.
    """

    noise: Array
    scores: NDArray[np.float32]
    odds: NDArray[np.float32]
    rewards: Array


def prepare(block: Draws, beliefs: GibbsBeliefs, reward_coef: Array) -> Iterator[Sweep]:
    """Work up the random numbers of some sweeps, as far as that does not depend on the rewards."""
    T, n, _, d = block.rho.shape
    both = (block.rho.astype(np.float32).reshape(T, 2 * n, d) @ beliefs.noise_and_scores).transpose(1, 2, 0)
    noise = np.ascontiguousarray(both[:, :d], dtype=np.float64).reshape(n, 2, d, T)
    scores = np.ascontiguousarray(both[:, d:]).reshape(n, 2, -1, T)
    if beliefs.steps.missing is not None:
        scores += beliefs.steps.missing
    chain = beliefs.chain
    rewards = beliefs.sigma * chain.colour(block.rewards).T + chain.solve(chain.x @ reward_coef)
    return map(Sweep, noise, scores, np.exp(block.allowance.astype(np.float32)), rewards)


class SweepState(NamedTuple):
    """Rewards (T,): the prior's, always 1, then those of all steps but the last; and the moments y_t, (d, T)."""

    rewards: Array
    moments: Array


def init(rewards: Array, beliefs: GibbsBeliefs) -> SweepState:
    """The state with given rewards."""
    moments = beliefs.observed * rewards
    np.add.accumulate(moments, axis=1, out=moments)
    return SweepState(rewards, moments)


def step(state: SweepState, sweep: Sweep, beliefs: GibbsBeliefs) -> tuple[SweepState, Array]:
    """One Gibbs sweep: rho_t from two draws each, then all rewards from their conditional given rho.

    Gives the state after it, and the noise e_t of the draws of rho that won their tests, shape (d, T).
    """
    means = np.einsum("jdt,dt->jt", beliefs.moment_scores, state.moments)
    second = second_wins(sweep.scores + means.astype(np.float32), sweep.odds)
    noise = np.where(second, sweep.noise[1], sweep.noise[0])
    later = np.empty_like(noise)
    np.add.accumulate(noise[:, ::-1], axis=1, out=later[:, ::-1])
    later *= beliefs.observed
    v = np.add.reduce(later, axis=0)
    v -= state.rewards
    rewards = beliefs.chain.solve(v)
    rewards += state.rewards
    rewards += sweep.rewards
    return init(rewards, beliefs), noise


def second_wins(scores: NDArray[np.float32], odds: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Metropolis-Hastings between two draws: does likelihood_2 / likelihood_1 exceed the uniform number 1 / odds?

    One over a choice's likelihood is 1 + sum_j exp(score_j). Scores of shape (2, J, T).
    """
    if np.maximum.reduce(scores, axis=None) < 80:
        totals = np.add.reduce(np.exp(scores), axis=1)
        totals += 1
    else:
        # The common factor exp(-top) cancels, and nothing overflows.
        top = np.maximum(scores.max(axis=(0, 1)), 0)
        totals = np.exp(-top) + np.exp(scores - top).sum(axis=1)
    wins: NDArray[np.bool_] = totals[1] < totals[0] * odds
    return wins


def prior_slope(beliefs: GibbsBeliefs, path: Array, noise: Array, *, determinant: bool) -> float:
    """d/db of sum_t log det N_t - (rho_t - m_t)' N_t (rho_t - m_t) / sigma^2, summed over n sweeps.

    ``path`` has the moments before the sweeps and after each, shape (n + 1, d, T), ``noise`` their e_t, shape
    (n, d, T): rho_t is the mean of the belief before a sweep plus noise, m_t the mean after it. As N_t (rho_t - m_t)
    is b (rho_t - mu) plus terms without b, with c = rho_t - m_t the derivative of c' N_t c is
    2 <rho_t - mu, c> - <c, c> = |rho_t - mu|^2 - |m_t - mu|^2, and that of log det N_t is tr N_t^-1.
    """
    means = np.ascontiguousarray(path.transpose(2, 0, 1)) @ beliefs.inverse
    means -= beliefs.mu
    rho = means[:, :-1] + noise.transpose(2, 0, 1)
    quadratic = (np.vdot(rho, rho) - np.vdot(means[:, 1:], means[:, 1:])) / beliefs.sigma**2
    trace = np.trace(beliefs.inverse, axis1=1, axis2=2).sum() if determinant else 0.0
    return float(len(noise) * trace - quadratic)
