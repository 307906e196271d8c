"""Helpers of the solvers' tests: episodes as solvers see them, a projection found another way, spoiled choices."""

import numpy as np
from scipy.optimize import nnls

import ibcb
from ibcb.engine import MemoryRows, blocks
from ibcb.inverse.constraints import EpisodeView
from ibcb.numerics.ridge import gram, ridge


def views(log, l2=0.3, margin=None, own_gram=False):
    """One view per episode that has history; ``own_gram`` makes the paper's slip of including the episode itself."""
    phi, number = np.zeros((log.n_features, log.n_features)), 0
    for by_policy, episode in log.episodes():
        after = phi + gram(episode.contexts[episode.chosen_rows])
        if by_policy:
            used = after if own_gram else phi
            if used.any():
                yield (
                    number,
                    used,
                    episode,
                    EpisodeView(MemoryRows(blocks(episode)), ridge(used, l2), margin=margin, episode=number),
                )
            number += 1
        phi = after


def nearest_by_nnls(A, b, centre):
    """Least distance programming (Lawson and Hanson, ch. 23): the QP's dual as non-negative least squares."""
    G, h = -A, -(b - A @ centre)
    E, f = np.vstack([G.T, h]), np.append(np.zeros(A.shape[1]), 1.0)
    weights, _ = nnls(E, f, maxiter=100 * len(b))
    r = E @ weights - f
    return centre - r[:-1] / r[-1]


def flipped(log, episode, step):
    """The log with one choice changed to a candidate far from the one taken."""
    chosen = log.chosen.copy()
    t = log.episode_offsets[log.warmup + episode] + step
    chosen[t] = (chosen[t] + log.candidates_per_step // 2) % log.candidates_per_step
    return ibcb.BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=log.warmup)
