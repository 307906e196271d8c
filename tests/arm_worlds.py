"""Deciders that choose among arms, for tests: a ridge regression per arm with an upper bound."""

import numpy as np

ALPHA = 0.4


def features(rng, steps, m):
    return np.column_stack([np.ones(steps), rng.normal(size=(steps, m - 1))])


def disjoint_ucb(arms, m, episodes, steps, seed, could=None):
    """Episodes of (X, arm), the warm-up first, and the next policy, shape (arms, m)."""
    rng = np.random.default_rng(seed)
    worth = rng.normal(size=(arms, m)) / np.sqrt(m)
    A, b = np.stack([np.eye(m)] * arms), np.zeros((arms, m))
    done = []
    for episode in range(episodes + 1):
        X, inverse = features(rng, steps, m), np.linalg.inv(A)
        policy = np.einsum("kij,kj->ki", inverse, b)
        scores = X @ policy.T + ALPHA * np.sqrt(np.einsum("bi,kij,bj->bk", X, inverse, X))
        if episode == 0:
            scores = rng.random(scores.shape)
        if could is not None:
            scores[:, ~could[episode]] = -np.inf
        picks = scores.argmax(axis=1)
        rewards = np.einsum("bi,bi->b", X, worth[picks]) + 0.3 * rng.normal(size=steps)
        for arm in range(arms):
            own = picks == arm
            A[arm] += X[own].T @ X[own]
            b[arm] += X[own].T @ rewards[own]
        done.append((X, picks))
    return done, np.einsum("kij,kj->ki", np.linalg.inv(A), b)


def written_out(episodes, arms):
    """The same as contexts (steps, arms, arms * m): each arm's features in columns of its own."""
    return [(np.einsum("bm,kj->bkjm", X, np.eye(arms)).reshape(len(X), arms, -1), picks) for X, picks in episodes]
