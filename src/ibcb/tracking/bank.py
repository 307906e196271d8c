"""Linear-Gaussian models of how a policy moves from update to update, filtered side by side.

Two families, each with the policy p_n of episode n first in the state. Where alpha is not fixed to 1 it comes next, and
never moves:

*walk*      p_(n+1) = p_n + N(0, q^2 S^-1)
            The policy wanders. S is the second moment of the candidates, so that q is a move in units of scores; a
            small q remembers many episodes, a large q only the last.
*learner*   Psi_(n+1) p_(n+1) = Psi_n p_n + Phi theta + m c + N(0, sigma^2 Phi)
            The decider's own ridge regression. Phi and m, the Gram matrix and the sum of the contexts chosen in episode
            n, are in the log, and so are Psi_n and Psi_(n+1) = Psi_n + Phi. Rewards are <theta, s> + c with noise
            sigma; (theta, c) may wander by q, for rewards that are not quite linear.

The evidence for a model is the likelihood of each episode's choices given the episodes before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders.cone import ConeRows, Learned, learn_rows
from ibcb.deciders.sites import Site

__all__ = ["Bank", "Move", "learner", "walk"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Move(NamedTuple):
    """One update of the decider as K models see it: the state x wanders by N(0, W), then p becomes T x + N(0, Q).

    Attributes
    ----------
    transition : ndarray of shape (d, D)
        T.
    noise : ndarray of shape (K, d, d)
        Q.
    wander : ndarray of shape (K, D, D)
        W.
    """

    transition: Matrix
    noise: Matrix
    wander: Matrix


class Bank:
    """K models of one family.

    Attributes
    ----------
    mean : ndarray of shape (K, D)
        Of the states; the first entries are p, or p and alpha.
    covariance : ndarray of shape (K, D, D)
    """

    def __init__(self, mean: Matrix, covariance: Matrix) -> None:
        self.mean, self.covariance = mean, covariance

    def learn_rows(self, rows: ConeRows, models: NDArray[np.int64]) -> Learned:
        """Let some of the models learn that rows (p, alpha) <= 0."""
        o, mean, covariance = rows.leads.shape[1], self.mean[models], self.covariance[models]
        told = learn_rows(rows, mean[:, :o], covariance[:, :o, :o])
        gain = np.swapaxes(np.linalg.solve(told.root, covariance[:, :o]), 1, 2)
        less = gain @ (np.eye(o) - told.covariance) @ np.swapaxes(gain, 1, 2)
        self.mean, self.covariance = self.mean.copy(), self.covariance.copy()
        self.mean[models] = mean + (gain @ told.mean[:, :, None])[:, :, 0]
        self.covariance[models] = covariance - (less + np.swapaxes(less, 1, 2)) / 2
        return told

    def learn(self, site: Site) -> Vector:
        """Condition on an episode's choices. Returns their log-likelihood under each model, shape (K,)."""
        R, y = site.root, site.seen
        d, r = R.shape
        cross = np.swapaxes(self.covariance[:, :, :d] @ R, 1, 2)
        L = _factor(cross[:, :, :d] @ R + np.eye(r))
        whitened = np.linalg.solve(L, np.concatenate([cross, (y - self.mean[:, :d] @ R)[:, :, None]], axis=2))
        gain, surprise = whitened[:, :, :-1], whitened[:, :, -1]
        self.mean = self.mean + (surprise[:, None] @ gain)[:, 0]
        self.covariance = self.covariance - np.swapaxes(gain, 1, 2) @ gain
        spread: Vector = np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
        likelihood: Vector = site.constant - spread - 0.5 * (surprise**2).sum(axis=1)
        return likelihood

    def move(self, move: Move) -> None:
        """Let the decider update once."""
        T = move.transition
        d = len(T)
        wide = self.covariance + move.wander
        top = T @ wide
        own = top @ T.T + move.noise
        wide[:, :d] = top
        wide[:, :, :d] = np.swapaxes(top, 1, 2)
        wide[:, :d, :d] = (own + np.swapaxes(own, 1, 2)) / 2
        self.covariance = wide
        self.mean = np.concatenate([self.mean @ T.T, self.mean[:, d:]], axis=1)


def walk(q: Vector, spread: Matrix, beside: int = 0) -> Move:
    """The move of the walk family, one model for each q; ``spread`` is S^-1, and alpha stands beside p or not."""
    d = len(spread)
    D = d + beside
    return Move(np.eye(d, D), (q**2)[:, None, None] * spread, np.zeros((1, D, D)))


def learner(sigma: Vector, q: Vector, spread: Matrix, psi: Matrix, phi: Matrix, total: Vector, beside: int = 0) -> Move:
    """The move of the learner family, one model for each (sigma, q), from Psi_n by the Phi and m of the episode."""
    d = len(spread)
    o, D = d + beside, 2 * d + 1 + beside
    back = np.linalg.inv(psi + phi).astype(np.float64, copy=False)
    taught = back @ phi
    wander = np.zeros((len(q), D, D))
    wander[:, o:-1, o:-1] = (q**2)[:, None, None] * spread
    wander[:, -1, -1] = q**2
    transition = np.concatenate([back @ psi, np.zeros((d, beside)), taught, (back @ total)[:, None]], axis=1)
    return Move(transition, (sigma**2)[:, None, None] * (taught @ back), wander)


def _factor(spread: Matrix) -> Matrix:
    """Cholesky factors of matrices whose eigenvalues are 1 or more, up to rounding."""
    spread = (spread + np.swapaxes(spread, 1, 2)) / 2
    try:
        factor = np.linalg.cholesky(spread)
    except np.linalg.LinAlgError:
        values, V = np.linalg.eigh(spread)
        factor = np.linalg.cholesky((V * np.maximum(values, 1.0)[:, None]) @ np.swapaxes(V, 1, 2))
    return factor.astype(np.float64, copy=False)
