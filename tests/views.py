"""Helpers of the solvers' tests: episodes as solvers see them, a projection found another way, spoiled choices."""

import numpy as np
from scipy.optimize import nnls

import ibcb
from ibcb.engine import LocalRows
from ibcb.inverse.constraints import EpisodeView
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import gram, ridge


def views(log, l2=0.3, margin=None, own_gram=False, metric=None):
    """One view per episode that has history; ``own_gram`` makes the paper's slip of including the episode itself."""
    phi, number = np.zeros((log.n_features, log.n_features)), 0
    for by_policy, episode in log.episodes():
        after = phi + gram(episode.contexts[episode.chosen_rows])
        if by_policy:
            used = after if own_gram else phi
            if used.any():
                rows, given = LocalRows(episode), {"metric": metric, "margin": margin, "episode": number}
                yield number, used, episode, EpisodeView(rows, ridge(used, l2), **given)
            number += 1
        phi = after


def candidates_metric(log):
    """The metric of a fit, recomputed: mean squares of the first candidates' features, times how many there are."""
    first = next(episode for by_policy, episode in log.episodes() if by_policy)
    squares = np.mean(first.contexts.astype(float) ** 2, axis=0)
    return Metric(np.count_nonzero(squares) * np.diag(np.where(squares > 0, squares, 1.0)))


def nearest_by_nnls(A, b, centre, K=None):
    """Least distance programming (Lawson and Hanson, ch. 23): the QP's dual as non-negative least squares.

    With K, the nearest in the length sqrt(x' K x): x = T z with T the inverse of a symmetric root of K.
    """
    values, V = np.linalg.eigh(np.eye(len(centre)) if K is None else K)
    T = (V / np.sqrt(values)) @ V.T
    A, b = A @ T, b - A @ centre
    G, h = -A, -b
    E, f = np.vstack([G.T, h]), np.append(np.zeros(A.shape[1]), 1.0)
    weights, _ = nnls(E, f, maxiter=100 * len(b))
    r = E @ weights - f
    return centre - T @ (r[:-1] / r[-1])


def flipped(log, episode, step):
    """The log with one choice changed to a candidate far from the one taken."""
    chosen = log.chosen.copy()
    t = log.episode_offsets[log.warmup + episode] + step
    chosen[t] = (chosen[t] + log.candidates_per_step // 2) % log.candidates_per_step
    return ibcb.BehaviorLog(log.contexts, log.step_offsets, chosen, log.episode_offsets, warmup=log.warmup)
