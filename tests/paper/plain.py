"""B-IRL and B-ICB written down plainly, as their papers and public scripts have them: oracles, and what speed is
measured against. Loaded by path (tests and benchmarks/baselines.py); only the random numbers come from the package, so
that both sides use the same ones.
"""

import numpy as np
from scipy.special import logsumexp

from ibcb.paper.rivals import birl, gibbs


def arrays(log, steps=None):
    """Contexts (T, M, d) and choices (T,) of a log with M candidates at every step; the policy's steps by default."""
    steps = log.policy_steps if steps is None else steps
    return log.contexts.reshape(-1, log.candidates_per_step, log.n_features)[steps], log.chosen[steps]


def log_likelihood(rho, contexts, chosen, scale=20.0):
    """sum_t log softmax(scale <rho, s>)[chosen]."""
    scores = scale * (contexts @ rho)
    return float(np.sum(scores[np.arange(len(chosen)), chosen] - logsumexp(scores, axis=1)))


def birl_chain(contexts, chosen, rng, n_steps, step_size=0.005):
    """Every state of the Metropolis-Hastings chain, and which steps moved."""
    d = contexts.shape[2]
    rho = np.full(d, -1 / d) + step_size * rng.standard_normal(d)
    here = log_likelihood(rho, contexts, chosen)
    states, accepted = [], []
    for _, (move, allowance) in zip(range(n_steps), birl.draws(rng, d, step_size), strict=False):
        there = log_likelihood(rho + move, contexts, chosen)
        accepted.append(there - here > -allowance)
        if accepted[-1]:
            rho, here = rho + move, there
        states.append(rho)
    return np.array(states), np.array(accepted)


def beliefs(x, b):
    """N_t = b I + sum_(i<t) x_i x_i' for every step."""
    return np.array([b * np.eye(x.shape[1]) + x[:t].T @ x[:t] for t in range(len(x))])


def moments(x, rewards, b):
    """y_t = b mu + sum_(i<t) r_i x_i for every step."""
    T, d = x.shape
    return np.array([np.full(d, -b / d) + rewards[:t] @ x[:t] for t in range(T)])


def reward_conditional(x, rho, reward_coef, b):
    """Mean and covariance / sigma^2 of the T - 1 latent rewards given all rho: the dense Gaussian, term by term."""
    T, d = x.shape
    before = np.arange(T - 1) < np.arange(1, T)[:, None]
    masked = np.where(before[:, :, None], x[:-1], 0.0)  # (T - 1, T - 1, d): what each belief has seen
    inverse = np.linalg.inv(beliefs(x, b))[1:]
    precision = np.eye(T - 1) + np.tensordot(masked @ inverse, masked, axes=([0, 2], [0, 2]))
    prior = inverse @ np.full(d, -b / d)
    linear = x[:-1] @ reward_coef + np.einsum("tid,td->i", masked, rho[1:] - prior)
    covariance = np.linalg.inv(precision)
    return covariance @ linear, covariance


def bicb_expectation(contexts, chosen, b, reward_coef, rng, n_sweeps, n_dropped, sigma=0.1, scale=20.0, hoist=False):
    """The E step's samples of all rho (n, T, d) and rewards (n, T - 1).

    ``hoist``: invert the rewards' precision once instead of in every sweep, as a compiler might.
    """
    T, _, d = contexts.shape
    x = contexts[np.arange(T), chosen]
    N = beliefs(x, b)
    inverse = np.linalg.inv(N)
    roots = np.linalg.inv(np.linalg.cholesky(N)).transpose(0, 2, 1)
    rewards = x[:-1] @ reward_coef + sigma * rng.standard_normal(T)[1:]
    covariance = reward_conditional(x, np.zeros((T, d)), reward_coef, b)[1]
    root = np.linalg.cholesky(covariance)
    all_rho, all_rewards = [], []
    for block in gibbs.draws(rng, n_sweeps, T, d):
        for s in range(block.rho.shape[1]):
            y = np.full((T, d), -b / d)
            y[1:] += np.cumsum(rewards[:, None] * x[:-1], axis=0)
            means = np.einsum("tij,tj->ti", inverse, y)
            pair = means[:, None] + sigma * np.einsum("tij,tzj->tzi", roots, block.rho[:, s])
            scores = scale * np.einsum("tmd,tzd->tzm", contexts, pair)
            likelihood = scores[np.arange(T), :, chosen] - logsumexp(scores, axis=2)
            second = likelihood[:, 1] - likelihood[:, 0] > -block.allowance[s]
            rho = np.where(second[:, None], pair[:, 1], pair[:, 0])
            if hoist:
                tail = np.cumsum((rho - inverse @ np.full(d, -b / d))[:0:-1], axis=0)[::-1]
                mean = covariance @ (x[:-1] @ reward_coef + np.einsum("td,td->t", x[:-1], tail))
            else:
                mean, covariance = reward_conditional(x, rho, reward_coef, b)
                root = np.linalg.cholesky(covariance)
            rewards = mean + sigma * root @ block.rewards[1:, s]
            all_rho.append(rho)
            all_rewards.append(rewards)
    return np.array(all_rho[n_dropped:]), np.array(all_rewards[n_dropped:])


def prior_objective(x, rho, rewards, b, sigma=0.1, determinant=True):
    """Mean over samples of sum_t log det(N_t / sigma^2) - (rho_t - m_t)' N_t (rho_t - m_t) / sigma^2."""
    N = beliefs(x, b)
    total = 0.0
    for one_rho, one_rewards in zip(rho, rewards, strict=True):
        error = one_rho - np.linalg.solve(N, moments(x, one_rewards, b)[:, :, None])[:, :, 0]
        total -= np.einsum("ti,tij,tj->", error, N, error) / sigma**2
    return total / len(rho) + (np.linalg.slogdet(N / sigma**2)[1].sum() if determinant else 0.0)


def bicb_fit(contexts, chosen, rng, n_iterations, n_sweeps, n_dropped, determinant=True):
    """rho_env, divided by its L1 norm, and b; the slope in p = log(b) / 20 by central differences."""
    x = contexts[np.arange(len(chosen)), chosen]
    d = x.shape[1]
    reward_coef, p, mean_square = np.full(d, -1 / d), 0.0, 0.0
    for _ in range(n_iterations):
        rho, rewards = bicb_expectation(contexts, chosen, np.exp(20 * p), reward_coef, rng, n_sweeps, n_dropped)
        reward_coef = np.linalg.pinv(x[:-1].T @ x[:-1]) @ x[:-1].T @ rewards.mean(axis=0)
        up, down = (
            prior_objective(x, rho, rewards, np.exp(20 * (p + h)), determinant=determinant) for h in (1e-6, -1e-6)
        )
        slope = (up - down) / 2e-6
        mean_square = 0.9 * mean_square + 0.1 * slope**2
        p += 0.001 * slope / (np.sqrt(mean_square) + 1e-8)
    return reward_coef / np.abs(reward_coef).sum(), np.exp(20 * p)
